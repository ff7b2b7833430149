"""What a search looked for, and the variants that no other beats in all of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep.config.scores import SCORES, Score
from seq2sweep.report.aggregate import Variant, aggregate
from seq2sweep.report.number_format import fixed, millions, powers

_NAMES = {
    **{name: label for score in SCORES.values() for name, label in score.metrics.items()},
    "valid_perplexity": "perplexity",
    "flops": "training FLOPs",
    "parameters": "parameters",
}
_COSTS = ("flops", "parameters")


@dataclass(frozen=True)
class Objective:
    """A figure of a variant (`aggregate.figures`), and whether more of it is better."""

    figure: str
    higher: bool

    @property
    def name(self) -> str:
        return _NAMES[self.figure]

    @property
    def axis(self) -> str:
        """What stands beside an axis."""
        return self.name if self.is_cost else f"{self.name} (dev)"

    @property
    def is_cost(self) -> bool:
        """Whether it grows with the model: known before, and drawn to the right."""
        return self.figure in _COSTS

    def gain(self, one: Variant, other: Variant) -> float:
        """By how much `one` is better, where both have the figure.

        Another seed draws the data in another order, which alone makes a training cheaper by a
        thousandth: FLOPs are of the seeds that both have, or with none in common equal within 1 %.
        """
        ours, theirs = one.mean(self.figure) or 0.0, other.mean(self.figure) or 0.0
        if self.figure == "flops":
            if seeds := one.costs.keys() & other.costs.keys():
                ours, theirs = (math.fsum(v.costs[seed] for seed in seeds) for v in (one, other))
            elif math.isclose(ours, theirs, rel_tol=0.01):
                return 0.0
        return ours - theirs if self.higher else theirs - ours

    def text(self, variant: Variant) -> str:
        """The variant's mean: `BLEU 31.4`."""
        value = variant.mean(self.figure)
        if self.figure == "flops":
            return f"{powers(value)} {self.name}"
        if self.figure == "parameters":
            return f"{millions(value)} M {self.name}"
        return f"{self.name} {fixed(value, 2 if self.figure == 'valid_perplexity' else 1)}"


def objectives(sweep: Mapping[str, Any]) -> list[Objective]:
    """Of reports/sweep.json, in its order; none where the sweep was no search."""
    return [
        Objective(given["figure"], given["better"] == "higher")
        for given in sweep.get("objectives", [])
    ]


def front(variants: Sequence[Variant], sought: Sequence[Objective]) -> list[Variant]:
    """Those that no other equals in all objectives and beats in one.

    Of the finished ones whose figures are all known; none where nothing is sought. One that is not
    `comparable` is there only where none is. The cheapest comes first, or where no cost is sought
    the best in the last objective.
    """
    if not sought:
        return []
    known = [
        variant
        for variant in variants
        if variant.state == "finished"
        and all(variant.mean(objective.figure) is not None for objective in sought)
    ]
    fair = [variant for variant in known if variant.comparable] or known
    kept = [one for one in fair if not any(_beats(other, one, sought) for other in fair)]
    first = next((objective for objective in sought if objective.is_cost), sought[-1])
    sign = -1 if first.higher else 1
    return sorted(kept, key=lambda variant: sign * (variant.mean(first.figure) or 0.0))


def equal_flops(sweep: Mapping[str, Any]) -> bool:
    """Whether all were trained for as many FLOPs: what differs then is rounding to whole updates,
    and makes none cheaper."""
    return bool(sweep.get("budget") == "flops")


def cheapest(sweep: Mapping[str, Any], variants: Sequence[Variant]) -> list[Variant]:
    """The front of score and training FLOPs, whatever was looked for: each has the best score of
    all that cost no more. Of `equal_flops` the best score alone."""
    costs = [] if equal_flops(sweep) else [Objective("flops", False)]
    return front(variants, [*costs, Objective(Score.of(sweep).name, True)])


def overview(sweep: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a short table: each variant, its score, what it costs, and a mark of
    those on that front. The base is first, as a long table may be cut, then the best score; last
    are those of which trials were stopped early or diverged."""
    variants, score = aggregate(sweep), Score.of(sweep)
    best = cheapest(sweep, variants)
    scored = [variant for variant in variants if variant.mean_score is not None]
    scored.sort(key=lambda one: (not one.is_base, bool(one.unfinished), -(one.mean_score or 0.0)))
    found = [
        [
            variant.label + f" {variant.name}" * (variant.number is not None) + variant.unfinished,
            fixed(variant.mean_score, 2),
            powers(variant.mean("flops")),
            f"{millions(variant.mean('parameters'))} M",
            "yes" if variant in best else "",
        ]
        for variant in scored
    ]
    heading = f"best {score.label} {'at equal' if equal_flops(sweep) else 'for its'} FLOPs"
    return ["variant", f"{score.label} (dev)", "training FLOPs", "parameters", heading], found


def _beats(one: Variant, other: Variant, sought: Sequence[Objective]) -> bool:
    better = False
    for objective in sought:
        if (gain := objective.gain(one, other)) < 0:
            return False
        better |= gain > 0
    return better


def notes(sweep: Mapping[str, Any], variants: Sequence[Variant]) -> list[str]:
    """What was looked for, what was found, and what was proposed in vain; none of other sweeps."""
    sought = objectives(sweep)
    if not sought:
        return []
    aims = " and ".join(f"{'high' if one.higher else 'low'} {one.name}" for one in sought)
    result = [
        f"#1 is the variant that Optuna proposed first, and so on. It looked for {aims}.",
    ]
    found = front(variants, sought)
    if found:
        named = "; ".join(
            f"{variant.label} ({', '.join(one.text(variant) for one in sought)})"
            for variant in found
        )
        several = len(sought) > 1
        result.append(
            f"Pareto front, of what no variant beats in one without losing in another: {named}."
            if several
            else f"Best: {named}."
        )
    labels = {variant.name: variant.label for variant in variants}
    again = [
        f"#{proposal['number']} (as {labels.get(proposal['variant'], proposal['variant'])})"
        for proposal in sweep["proposals"]
        if proposal["repeats"]
    ]
    if again:
        result.append(f"Proposed again, and not trained again: {', '.join(again)}.")
    return result
