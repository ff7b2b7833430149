"""Each variant beside the row of the paper's Table 3 that it is, or that changes the same alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets import table3
from seq2sweep.report.aggregate import PAPERS_OWN, Against, Variant, most_seeds
from seq2sweep.report.number_format import MISSING, fixed, millions, p_value, plain, signed

# Settings that make a row of the paper when nothing else changes; the first is the one compared.
_KINDS: dict[str, list[tuple[str, ...]]] = {
    "A": [("heads", "d_k", "d_v")],
    "B": [("d_k",)],
    "C": [("layers",), ("d_model", "d_k", "d_v"), ("d_ff",)],
    "D": [("dropout",), ("label_smoothing",)],
    "E": [("positions",)],
}
_SHARES = ("dropout", "label_smoothing")
"""May be 0, and rows of the paper have them as they are, of whatever size the base is."""
SETTINGS = {
    "N": "layers",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "h": "heads",
    "d_k": "d_k",
    "d_v": "d_v",
    "P_drop": "dropout",
    "ε_ls": "label_smoothing",
    "train steps": "steps",
}
"""Heading of a column of Table 3, and the setting in it."""
_SYMBOLS = {key: symbol for symbol, key in SETTINGS.items()}


def headings(score: Score) -> tuple[str, ...]:
    """Of what the paper has no such score of, there is nothing to compare it with."""
    same = score == BLEU
    return (
        "change",
        "row of the paper",
        "PPL, paper",
        "PPL, here",
        *[f"{score.label}, paper"] * same,
        f"{score.label}, here",
        "params, paper",
        "params, here",
        "p",
        *[f"direction of {score.label}"] * same,
    )


@dataclass(frozen=True)
class Comparison:
    """Cells under `headings`; `verdict` is same, opposite or none."""

    cells: tuple[str, ...]
    verdict: str


def comparisons(variants: Sequence[Variant]) -> list[Comparison]:
    """Each finished variant beside its row of the paper; `variants` are those of `aggregate`.

    Differences are to the base of each table. Where the sweep does not say which row a variant is,
    it is the one nearest in proportion (for dropout and smoothing: in value) of those that change
    the same. Empty when the base itself was not trained to its end: then there is nothing to
    compare with.
    """
    base = variants[0]
    if base.state != "finished":
        return []
    return [
        _compare(variant, base, row)
        for variant in variants[1:]
        if variant.state == "finished" and (row := counterpart(variant, base))
    ]


def notes(variants: Sequence[Variant], lowercase: bool = False) -> list[str]:
    """What the comparison can say, and what not. lowercase: whether words have no case here."""
    paper, several = table3.read(), most_seeds(variants) > 1
    kind = (
        "BLEU here is computed as the paper's was (Moses tokens, or characters where no blanks are "
        "between words, compounds split for German)"
        f"{', but of lower-cased text' * lowercase}. p, and whether a difference can be seen, are "
        "of sacreBLEU (paired bootstrap), and so is the direction."
        if _score(variants[0]) == "bleu_paper"
        else "BLEU here is sacreBLEU's, and the paper's is of other tokens."
    )
    result = [
        f"Paper: {paper.source} ({paper.data}).",
        "In brackets: the difference to the base row of the same table.",
        "Rows (A) of the paper keep h × d_k constant; a change of h alone also changes the amount "
        "of computation.",
    ]
    if variants[0].score != BLEU:
        here = variants[0].score.label
        return [*result, f"The paper's rows are trained to translate, and have no {here}."]
    result.insert(2, kind)
    return [
        *result,
        "BLEU of a small model on a small data set is not comparable with the paper's in absolute "
        "terms. The direction of each difference is"
        + ("." if several else "; a single seed leaves differences of a few tenths open."),
    ]


def kind_of(variant: Variant, base: Variant) -> tuple[str, str] | None:
    """(group of Table 3, setting compared) when all that changed belongs to one row of it.

    Of a base that is no Transformer nothing does.
    """
    return kind_of_change(variant, base) if base.architecture == PAPERS_OWN else None


def kind_of_change(variant: Variant, base: Variant) -> tuple[str, str] | None:
    """The same of any architecture: what changed, whether or not the paper has such a row."""
    changed = changed_settings(variant, base)
    for group, settings in _KINDS.items():
        for names in settings:
            if names[0] in changed and changed <= set(names):
                return group, names[0]
    return None


def changed_settings(variant: Variant, base: Variant) -> set[str]:
    """Plain names of the settings that a variant changes, of those that both are known to have."""
    own, before = variant.settings, base.settings
    # What a budget of tokens or FLOPs does to the steps is no change of the variant's.
    return {
        key
        for key in before.keys() & own.keys()
        if before[key] != own[key] and (key != "steps" or "train.steps" in variant.changes)
    }


def counterpart(variant: Variant, base: Variant) -> table3.Row | None:
    """The row of the paper that is compared with, if there is one; of `base` itself its base row.

    None too for a variant that is a row of the paper's but changes its base the other way: dropout
    of 0.2 is more than the paper's base has, and less than one of 0.3.
    """
    rows = table3.read().rows
    if variant is base:
        return rows[0] if base.architecture == PAPERS_OWN else None
    if variant.row is not None:
        row = next((row for row in rows if row.name == variant.row), None)
        return row if row and _in_one_direction(row, variant, base) else None
    kind = kind_of(variant, base)
    if kind is None or variant.state == "refused":
        return None
    group, setting = kind
    before, after = base.settings[setting], variant.settings[setting]
    there = [
        (row, *change)
        for row in rows
        for name, *change in _changes(row)
        if row.group == group and name == setting
    ]
    if setting == "positions":
        return there[0][0] if (before, after) == ("sinusoidal", "learned") else None
    step = _step(setting, before, after)
    steps = [(row, _step(setting, *change)) for row, *change in there]
    # Rounded, so that a tie (half or double of a ratio) is one, and its first row is taken.
    alike = [(round(abs(size - step), 6), row) for row, size in steps if size * step > 0]
    return min(alike, key=lambda pair: pair[0])[1] if alike else None


def lacks_steps(variant: Variant) -> bool:
    """Whether it is a row of the paper's that has other steps than its base row there, and a budget
    of tokens or FLOPs gave it what the base row here has: what is printed of it is of more."""
    row = next((row for row in table3.read().rows if row.name == variant.row), None)
    return row is not None and "train.steps" in row.changes.keys() - variant.changes.keys()


def _in_one_direction(row: table3.Row, variant: Variant, base: Variant) -> bool:
    """Whether a share that is all that a row changes rises here where it rises in the paper."""
    (name, before, after), *more = _changes(row)
    if more or name not in _SHARES:
        return True
    here = _step(name, base.settings[name], variant.settings[name])
    return _step(name, before, after) * here > 0


def _changes(row: table3.Row) -> list[tuple[str, Any, Any]]:
    """The settings that a row changes in the paper's base model, each with its two values."""
    return [
        (key.rpartition(".")[2], table3.read().base[key], value)
        for key, value in row.changes.items()
    ]


def _step(setting: str, before: float, after: float) -> float:
    """Signed size of a change: in value for shares, which may be 0; else as a logarithm."""
    if setting in _SHARES:
        return after - before
    return math.log(after / before)


def _score(base: Variant) -> str:
    """The figure that is printed: of the paper's kind where it is known."""
    return base.score.name if base.figures.get("bleu_paper") is None else "bleu_paper"


def _compare(variant: Variant, base: Variant, row: table3.Row) -> Comparison:
    printed = table3.read().rows[0]
    changes = ", ".join(
        f"{_SYMBOLS.get(key, key)} {plain(before)} → {plain(after)}"
        for key, before, after in _changes(row)
    )
    kind, same = _score(base), base.score == BLEU
    ours, theirs = variant.mean(kind), base.mean(kind)
    there = _difference(row.bleu, printed.bleu) if same else None
    # Of the score that was tested: a direction is of what p beside it is of.
    here = _difference(variant.mean_score, base.mean_score)
    verdict, words = _verdict(here, there, variant.against)
    if lacks_steps(variant):
        verdict, words = "none", "not judged: trained for fewer steps"
    parameters = [
        None if r.parameters_millions is None else r.parameters_millions * 1e6
        for r in (row, printed)
    ]
    cells = (
        variant.label + variant.unfinished,
        f"({row.group}) {changes}",
        _with_difference(row.perplexity, printed.perplexity, 2),
        _with_difference(variant.mean("valid_perplexity"), base.mean("valid_perplexity"), 2),
        *[_with_difference(row.bleu, printed.bleu, 1)] * same,
        _with_difference(ours, theirs, 1),
        _parameters(*parameters),
        _parameters(variant.mean("parameters"), base.mean("parameters")),
        MISSING if variant.against is None else p_value(variant.against.p),
        *[words] * same,
    )
    return Comparison(cells, verdict)


def _difference(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else round(value - base, 1)


def _with_difference(value: float | None, base: float | None, decimals: int) -> str:
    if value is None or base is None:
        return fixed(value, decimals)
    return f"{fixed(value, decimals)} ({signed(value - base, decimals)})"


def _parameters(value: float | None, base: float | None) -> str:
    """In millions; empty where it is the base row's, as in the paper."""
    shown = millions(value)
    if value is None or base is None or shown == millions(base):
        return ""
    return f"{shown} ({signed((value - base) / 1e6, len(shown.partition('.')[2]))})"


def _verdict(here: float | None, there: float | None, against: Against | None) -> tuple[str, str]:
    if here is None or there is None:
        return "none", MISSING
    if against is None:
        return "none", "not tested"
    if against.seen is False:
        return "none", "no difference can be seen here"
    if here == 0 or there == 0:
        where = "either" if here == there else "the paper" if there == 0 else "this run"
        return "none", f"no difference in {where}"
    return ("same", "the same") if here * there > 0 else ("opposite", "the opposite")
