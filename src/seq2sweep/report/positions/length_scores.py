"""What reports/sweep.json says of scores by length (`by_length`): read, pooled over seeds, a table.

A sweep of an earlier version has no such entry; then there is nothing to show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2sweep.config.scores import SCORES, Score
from seq2sweep.paths import mismatch
from seq2sweep.report.aggregate import Estimate, Variant, by_variant, estimate, with_margin
from seq2sweep.report.markdown import Table
from seq2sweep.report.number_format import whole

SHAPE: dict[str, Any] = {
    "trained_on": {"usual": int, "longest": int},
    "signature": str,
    "bins": [{"shortest": int, "longest": int, "sentences": int}],
}
"""Of the entry, for `seq2sweep.paths.mismatch`. Under the score's name, `bleu` or `f1`, it has an
entry for each trial, which is of this:"""
SHAPE_OF_TRIAL: dict[str, Any] = {"bins": [float], "within": (float, type(None))}


@dataclass(frozen=True)
class Bin:
    """Sentences of `shortest` to `longest` source tokens.

    rare: longer than nearly all that were trained on; beyond: than all of them.
    """

    shortest: int
    longest: int
    sentences: int
    rare: bool = False
    beyond: bool = False

    @property
    def label(self) -> str:
        kind = "beyond: " if self.beyond else "rare: " if self.rare else ""
        alone = self.shortest == self.longest
        return kind + (str(self.longest) if alone else f"{self.shortest}–{self.longest}")


@dataclass(frozen=True)
class Scores:
    """Of one variant's finished trials.

    bins: over seeds, one a bin, None where no trial finished; within, beyond: by seed, of all
    sentences of a usual length, and of all that are longer than any trained on.
    """

    bins: Sequence[Estimate | None]
    within: Mapping[int, float] = field(default_factory=dict)
    beyond: Mapping[int, float] = field(default_factory=dict)

    def over(self, seeds: Collection[int]) -> Scores:
        """Of these seeds alone; `bins` are left out."""
        within, beyond = (
            {seed: score for seed, score in some.items() if seed in seeds}
            for some in (self.within, self.beyond)
        )
        return Scores([], within, beyond)

    @property
    def change(self) -> dict[int, float]:
        """By seed: the score beyond the lengths trained on less that within them."""
        seeds = self.within.keys() & self.beyond.keys()
        return {seed: self.beyond[seed] - self.within[seed] for seed in sorted(seeds)}


@dataclass(frozen=True)
class ByLength:
    """of: scores by variant; score: what they are.

    usual, longest: source tokens that nearly all of the training data have at most, and those of
    its longest.
    """

    score: Score
    usual: int
    longest: int
    signature: str
    bins: Sequence[Bin]
    of: Mapping[str, Scores]

    @property
    def longer(self) -> int:
        """How many sentences are longer than any that was trained on."""
        return sum(one.sentences for one in self.bins if one.beyond)

    def scored(self, variants: Sequence[Variant]) -> list[Variant]:
        """Those of these variants that have a score of some length."""
        return [one for one in variants if one.name in self.of and any(self.of[one.name].bins)]

    def compared(self, variant: Variant) -> Scores:
        """By which a variant of the same sweep is compared; empty where it may not be."""
        found = self.of.get(variant.name) if variant.comparable else None
        return found or Scores([])


def problem(sweep: Mapping[str, Any]) -> str | None:
    """What of `score` and `by_length` is not as `sweep_report` makes it, in words; None if nothing.

    None too where there is no such entry.
    """
    if sweep.get("score", "bleu") not in [*SCORES]:
        return f"score is {sweep['score']!r}, not one of {', '.join(SCORES)}"
    entry = sweep.get("by_length")
    if entry is None:
        return None
    score = Score.of(sweep).name
    if found := mismatch(entry, SHAPE | {score: dict}, "by_length"):
        return found
    bins = entry["bins"]
    if not bins:
        return "by_length.bins is empty"
    ends = [end for one in bins for end in (one["shortest"], one["longest"])]
    if ends != sorted(ends) or any(
        one["longest"] >= other["shortest"] for one, other in itertools.pairwise(bins)
    ):
        return "by_length.bins are not in rising order"
    if any(one["sentences"] < 1 for one in bins):
        return "by_length.bins has one without sentences"
    usual, longest = (entry["trained_on"][key] for key in ("usual", "longest"))
    if usual > longest:
        return f"by_length.trained_on.usual, {usual}, is above longest, {longest}"
    if any(one["shortest"] <= end < one["longest"] for one in bins for end in (usual, longest)):
        return "by_length.bins has one that is on both sides of a length of by_length.trained_on"
    if sum(one["shortest"] > longest for one in bins) > 1:
        return "by_length.bins has several beyond by_length.trained_on.longest"
    for name, trial in entry[score].items():
        key = f"by_length.{score}.{name}"
        if found := mismatch(trial, SHAPE_OF_TRIAL, key):
            return found
        if len(trial["bins"]) != len(bins):
            return f"{key} has {len(trial['bins'])} scores for {len(bins)} bins"
        scores = [*trial["bins"], *([] if trial["within"] is None else [trial["within"]])]
        if not all(math.isfinite(score) and 0 <= score <= 100.001 for score in scores):
            return f"{key} has a score that is not from 0 to 100"
        if (trial["within"] is None) != (bins[0]["shortest"] > usual):
            return f"{key}.within does not fit the bins"
    return None


def problem_of_model(evaluate: Mapping[str, Any], score: str) -> str | None:
    """The same of `by_length` in metrics/evaluate.json; score: bleu or f1, of each length."""
    entry, shape = evaluate.get("by_length"), [{**SHAPE["bins"][0], score: float}]
    return None if entry is None else mismatch(entry, shape, "by_length")


def read(sweep: Mapping[str, Any]) -> ByLength | None:
    """The entry pooled by variant; None where there is none. `problem` says whether it is whole."""
    entry = sweep.get("by_length")
    if entry is None:
        return None
    score = Score.of(sweep)
    usual, longest = (entry["trained_on"][key] for key in ("usual", "longest"))
    bins = [
        Bin(
            one["shortest"],
            one["longest"],
            one["sentences"],
            rare=usual < one["shortest"] <= longest,
            beyond=one["shortest"] > longest,
        )
        for one in entry["bins"]
    ]
    scores = entry[score.name]
    trials = {
        name: {
            trial["train"]["seed"]: scores[trial["name"]]
            for trial in of_variant
            if trial["status"] == "finished" and trial["name"] in scores
        }
        for name, of_variant in by_variant(sweep["trials"]).items()
    }
    return ByLength(
        score,
        usual,
        longest,
        entry["signature"],
        bins,
        {name: _scores(bins, found) for name, found in trials.items()},
    )


def _scores(bins: Sequence[Bin], trials: Mapping[int, Mapping[str, Any]]) -> Scores:
    """trials: of one variant, by seed."""
    pooled = [
        estimate([trial["bins"][place] for trial in trials.values()]) if trials else None
        for place in range(len(bins))
    ]
    within = {seed: one["within"] for seed, one in trials.items() if one["within"] is not None}
    beyond = {seed: one["bins"][-1] for seed, one in trials.items() if bins[-1].beyond}
    return Scores(pooled, within, beyond)


def table(variants: Sequence[Variant], lengths: ByLength | None) -> Table | None:
    """The scores of each variant that finished; None where nothing is known of lengths."""
    if lengths is None:
        return None
    rows = [
        (
            variant.label + variant.unfinished,
            *(with_margin(score, 1) for score in lengths.of[variant.name].bins),
        )
        for variant in lengths.scored(variants)
    ]
    if not rows:
        return None
    headings = (
        "source tokens",
        *(f"{one.label} (n = {whole(one.sentences)})" for one in lengths.bins),
    )
    title = f"{lengths.score.label} by length of the source"
    return Table(title, headings, rows, notes(lengths))


def notes(lengths: ByLength) -> list[str]:
    """What the lengths are of, and how the scores were found."""
    return [
        f"Corpus {lengths.score.label} over the validation sentences of each length, n of them; "
        f"{lengths.score.rule}: `{lengths.signature}`. Tokens are those of the source's "
        "vocabulary, the end of the sentence among them. Longer sentences are harder anyway: "
        "compare rows, not columns.",
        f"99 % of the sources of the training data have at most {lengths.usual} tokens, the "
        f"longest has {lengths.longest}. Rare: longer than that 99 %. "
        + (
            "Beyond: longer than any."
            if lengths.longer
            else "No validation sentence is longer than any."
        ),
    ]
