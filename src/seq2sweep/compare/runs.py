"""Two runs side by side: their differences, their scores, and whether those differ by chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.compare.scored_run import NotComparableError, ScoredRun, Scores
from seq2sweep.config.scores import BLEU
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import BOOTSTRAP_SAMPLES
from seq2sweep.evaluate.compare import DRAWN_SENTENCES
from seq2sweep.evaluate.scorers import scorer
from seq2sweep.evaluate.significance import against_base
from seq2sweep.report.aggregate import PAPERS_OWN, Against, against, estimate
from seq2sweep.report.number_format import p_value
from seq2sweep.report.table import OF_MODEL
from seq2sweep.tracking.lineage import UNKNOWN


def compare(
    first: ScoredRun, second: ScoredRun, *, samples: int = BOOTSTRAP_SAMPLES
) -> dict[str, Any]:
    """All that two runs of one task differ in.

    Returns `a` and `b`, each {name, about, remarks, scores}; `parameters` by dotted key, `code` and
    `data` by tag: {key: [of the first, of the second]} of what is not the same in both; `remarks`:
    what must be known before scores are looked at; `difference`: the second's `bleu`, of parsing
    `f1`, less the first's, with `low`, `high` and `p` as `against_base` says, `seeds_margin`,
    Welch's 95 % of the seeds, and `seen`, each null where not known, all of it null where scores
    cannot be compared; `not_tested`: why there is no p; `conclusion`, a sentence. Of parsing there
    is `score` as well.

    Raises UserError when `samples` is below one or more than `compare` of text files may draw, or
    one run is of translation and one of parsing.
    """
    if samples < 1:
        raise UserError(f"--samples must be a whole number from 1, not {samples}")
    if first.score != second.score:
        raise UserError(
            f"A ({first.name}) is scored by {first.score.label}, B ({second.name}) by "
            f"{second.score.label}: only runs of one task can be compared"
        )
    found, why = _difference(first, second, samples)
    unlike = differences(first, second)
    return {
        **first.score.mark,
        "a": _about(first),
        "b": _about(second),
        **unlike,
        "remarks": [*_warnings(first, second, unlike), *first.remarks, *second.remarks],
        "difference": None if found is None else _numbers(found, first.score.name),
        "not_tested": why,
        "conclusion": _conclusion(first, second, found, why),
    }


def differences(first: ScoredRun, second: ScoredRun) -> dict[str, dict[str, list[Any]]]:
    """`parameters`, `code` and `data` of which the two have not the same.

    What is null is not known, or one of them does not have it. Sections of parameters that nothing
    is known of on one side are left out, and places of a text, which a model does not tell.
    """
    lineages = [run.lineage for run in (first, second)]
    code = _tags(lineages, "git.commit")
    dirty = [lineage.get("git.dirty") for lineage in lineages]
    # A commit does not say all of the code then.
    if dirty != ["false", "false"]:
        code["git.dirty"] = dirty
    sections = [key for key in first.config if key in second.config]
    parameters = _unequal(*(_settings(run, sections) for run in (first, second)))
    for key in configuration.PLACES:
        if None in parameters.get(key, ()):
            del parameters[key]
    return {
        "parameters": parameters,
        "code": code,
        "data": _tags(lineages, "data.dataset", "data.vocabulary"),
    }


def _settings(run: ScoredRun, sections: Sequence[str]) -> dict[str, Any]:
    """By dotted key, with the default of one that there was not yet; not of a key of `model` that
    models of this architecture do not have."""
    found = dict(configuration.leaves({key: run.config[key] for key in sections}))
    own = OF_MODEL.get(str(found.get("model.architecture", PAPERS_OWN)), ())
    defaults = {
        key: value
        for key, value in configuration.DEFAULTS.items()
        for section, _, name in [key.partition(".")]
        if section in sections and (section != "model" or name in own)
    }
    return defaults | found


def _tags(lineages: Sequence[Mapping[str, Any]], *names: str) -> dict[str, list[Any]]:
    """Of these tags, those that differ or that one side does not have."""
    pairs = {name: [lineage.get(name) for lineage in lineages] for name in names}
    return {name: pair for name, pair in pairs.items() if None in pair or pair[0] != pair[1]}


def _about(run: ScoredRun) -> dict[str, Any]:
    found, scores = run.scores, None
    if found is not None:
        own = {"signature": found.signature, "test_set": found.test_set}
        scores = {**found.figures, f"{run.score.name}_of_each": found.each, **own}
    return {"name": run.name, "about": run.about, "remarks": run.remarks, "scores": scores}


def _unequal(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    pairs = {key: [first.get(key), second.get(key)] for key in dict(first) | dict(second)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


# --- scores --------------------------------------------------------------------------------------


def _difference(
    first: ScoredRun, second: ScoredRun, samples: int
) -> tuple[Against | None, str | None]:
    """How the second's score differs from the first's, and why it was not tested, if it was not."""
    try:
        one, other, test_set = _comparable(first, second)
    except NotComparableError as unlike:
        return None, str(unlike)
    ours, theirs = estimate(other.each), estimate(one.each)
    try:
        (base, references), (system, _) = one.texts(), other.texts()
    except NotComparableError as why:
        return dataclasses.replace(against(ours, theirs, None), seen=None), str(why)
    if samples > BOOTSTRAP_SAMPLES and samples * len(references) > DRAWN_SENTENCES:
        raise UserError(
            f"--samples {samples} of {len(references)} sentences are too many: at most "
            f"{DRAWN_SENTENCES:,} sentences can be drawn in all"
        )
    of = scorer(references, test_set["to"], lowercase=test_set["lowercase"])
    return against(ours, theirs, against_base(base, system, of, samples=samples)), None


def _comparable(first: ScoredRun, second: ScoredRun) -> tuple[Scores, Scores, dict[str, Any]]:
    """The scores of both and their test set, if it is the same; else raises NotComparableError."""
    found = []
    for letter, run in zip("AB", (first, second), strict=True):
        if run.scores is None:
            raise NotComparableError(f"{letter} ({run.name}) has no known score: {run.unknown}")
        if run.scores.test_set is None:
            raise NotComparableError(str(run.unknown))
        found.append((run.scores, run.scores.test_set))
    (one, test_set), (other, test_set_of_other) = found
    if test_set != test_set_of_other:
        why = "their test sets are not the same"
        # Leaves of `translate` do not have gold's tags, by which EVALB tells punctuation.
        if first.score == BLEU:
            why += (
                "; translate one text by both (`seq2sweep translate`), and `seq2sweep score` "
                "scores each by its reference"
            )
            if test_set["lowercase"] or test_set_of_other["lowercase"]:
                why += ", both with --lowercase"
        raise NotComparableError(why)
    return one, other, test_set


def _warnings(
    first: ScoredRun, second: ScoredRun, unlike: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """What makes the two another experiment altogether."""
    tests = [run.scores.test_set for run in (first, second) if run.scores]
    if len(tests) == 2 and None not in tests and tests[0] != tests[1]:
        yield f"Different test sets: {_unlike(tests[0] or {}, tests[1] or {})}."
    known = [name for name, pair in unlike["data"].items() if None not in pair]
    # Another vocabulary makes other tokens of the same text, and so another `data.dataset`.
    texts = {run.lineage.get("input.clean", UNKNOWN) for run in (first, second)}
    if "data.vocabulary" in known and len(texts - {UNKNOWN}) == len(texts) == 1:
        yield "Trained with different vocabularies, on the same text."
    elif known:
        yield "Trained on different data."


def _unlike(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """How two test sets differ."""
    if first["split"] != second["split"]:
        return f"A is scored on {first['split']}, B on {second['split']}"
    if [first["source"], first["target"]] != [second["source"], second["target"]]:
        return f"{first['split']} is not the same text in both"
    return "; ".join(
        f"{key} is {a} for A, {b} for B" for key, (a, b) in _unequal(first, second).items()
    )


def _numbers(found: Against, score: str) -> dict[str, Any]:
    return {
        score: round(found.difference.mean, 4),
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "seeds_margin": found.difference.margin,
        "seen": found.seen,
    }


def _conclusion(first: ScoredRun, second: ScoredRun, found: Against | None, why: str | None) -> str:
    """One sentence."""
    if found is None:
        return f"Whether one is better cannot be said: {why}."
    if found.seen is None:
        return f"Whether the difference is chance cannot be said: {why}."
    margin = found.difference.margin
    if found.seen:
        better = second if found.difference.mean > 0 else first
        letter = "B" if better is second else "A"
        tests = []
        if found.p is not None and found.low is not None and found.high is not None:
            low, high = (found.low, found.high) if better is second else (-found.high, -found.low)
            tests.append(f"95 % interval {low:.2f} to {high:.2f}, {_p(found.p)}")
        if margin is not None:
            tests.append(f"over seeds ± {margin:.2f}")
        size = abs(found.difference.mean)
        unit = better.score.label
        return f"{letter} ({better.name}) is better by {size:.2f} {unit}, {'; '.join(tests)}."
    tests = [_p(found.p)] if found.p is not None else []
    if margin is not None and abs(found.difference.mean) <= margin:
        tests.append(f"seeds alone explain up to {margin:.2f} {first.score.label}")
    return f"No difference can be seen between them ({', '.join(tests)})."


def _p(p: float) -> str:
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"
