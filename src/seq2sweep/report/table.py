"""Table 3 of the paper, measured: one row a trial, and the paper's own figures beside it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.presets import table3
from seq2sweep.report.text import MISSING, fixed, millions, plain, powers, signed, whole

# Heading of a column of Table 3, and the setting in it.
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
HEADINGS = (
    "row",
    *SETTINGS,
    "PPL (dev)",
    "BLEU (dev)",
    "params ×10⁶",
    "FLOPs",
    "status",
)
COMPARISON_HEADINGS = (
    "change",
    "PPL here",
    "BLEU here",
    "row of the paper",
    "PPL there",
    "BLEU there",
    "direction of BLEU",
)

# Settings that make a row of the paper when nothing else changes; the first is the one compared.
_KINDS: dict[str, list[tuple[str, ...]]] = {
    "A": [("heads", "d_k", "d_v")],
    "B": [("d_k",)],
    "C": [("layers",), ("d_model", "d_k", "d_v"), ("d_ff",)],
    "D": [("dropout",), ("label_smoothing",)],
    "E": [("positions",)],
}

_SYMBOLS = {setting: symbol for symbol, setting in SETTINGS.items()} | {"positions": "positions"}


@dataclass(frozen=True)
class Row:
    """Cells under HEADINGS; `state` is base, finished, stopped or failed."""

    cells: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class Comparison:
    """Cells under COMPARISON_HEADINGS; `verdict` is same, opposite or none."""

    cells: tuple[str, ...]
    verdict: str


def rows(sweep: Mapping[str, Any]) -> list[Row]:
    """The base row with all settings, then each trial; a cell that equals the base's is empty."""
    base = _settings(sweep["base"])
    base_trial = _base_trial(sweep)
    result = [_base_row(base, base_trial)]
    for trial in sweep["trials"]:
        if trial is not base_trial:
            result.append(_trial_row(trial, base, base_trial))
    return result


def comparisons(sweep: Mapping[str, Any]) -> list[Comparison]:
    """Each finished trial beside the row of the paper that changes the same setting alike.

    Differences are to the base of each table. Of several rows of the paper the one nearest in
    proportion (for dropout and smoothing: in value) is taken. Empty when the base itself was not
    trained to its end: then there is nothing to compare with.
    """
    base_trial = _base_trial(sweep)
    if base_trial is None or base_trial["status"] != "finished":
        return []
    base = _settings(sweep["base"])
    result = []
    for trial in sweep["trials"]:
        if trial is base_trial or trial["status"] != "finished":
            continue
        counterpart = _counterpart(base, _settings(trial))
        if counterpart is not None:
            result.append(_compare(trial, base_trial, counterpart))
    return result


def markdown(sweep: Mapping[str, Any] | None, *, dataset: str, vocabulary_size: int | None) -> str:
    """reports/table3.md: the table, how to read it, and the paper's figures beside it."""
    lines = ["# Table 3, measured", ""]
    if sweep is None:
        lines += ["No variants have been trained yet: `dvc repro sweep` trains them.", ""]
        return "\n".join(lines)
    lines += _markdown_table(HEADINGS, [row.cells for row in rows(sweep)])
    lines += ["", *(f"- {note}" for note in notes(sweep, dataset, vocabulary_size))]
    beside = comparisons(sweep)
    if beside:
        lines += ["", "## Beside the paper", ""]
        lines += _markdown_table(COMPARISON_HEADINGS, [row.cells for row in beside])
        lines += ["", *(f"- {note}" for note in comparison_notes())]
    return "\n".join(lines) + "\n"


def notes(sweep: Mapping[str, Any], dataset: str, vocabulary_size: int | None) -> list[str]:
    """What a reader must know to read the table."""
    signatures = sorted({t["signature"] for t in sweep["trials"] if t.get("signature")})
    stopped = any(trial["status"] == "stopped early" for trial in sweep["trials"])
    result = [
        "Empty cells are the base row's, as in the paper.",
        f"Data: {dataset}, {_split(sweep)} set; no checkpoint averaging.",
        "PPL is per word piece, not per word, of a shared vocabulary of "
        f"{whole(vocabulary_size)} pieces; parameters are counted with that vocabulary.",
        "FLOPs are the multiply-adds of the model, times two, over the training done.",
    ]
    if signatures:
        result.append("BLEU is sacreBLEU's: " + ", ".join(f"`{text}`" for text in signatures))
    if stopped:
        result.append(
            f"The scheduler ({sweep['scheduler']}) stops weak trials early; their figures are "
            "those of their last step and not comparable with finished ones."
        )
    return result


def comparison_notes() -> list[str]:
    """What the comparison can say, and what not."""
    paper = table3.read()
    return [
        f"There: {paper.source} ({paper.data}).",
        "In brackets: the difference to the base row of the same table.",
        "Rows (A) of the paper keep h × d_k constant; a change of h alone also changes the amount "
        "of computation.",
        "BLEU of a small model on a small data set is not comparable with the paper's in absolute "
        "terms. The direction of each difference is; a single seed leaves differences of a few "
        "tenths open.",
    ]


def label_of(trial: Mapping[str, Any]) -> str:
    """What a trial is called in tables and figures."""
    return str(trial["name"]) if trial["changes"] else "base"


# --- rows ----------------------------------------------------------------------------------------


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their plain names, of a trial or of a whole configuration."""
    return {**values["train"], **values["model"]}


def _base_trial(sweep: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((trial for trial in sweep["trials"] if not trial["changes"]), None)


def _base_row(base: Mapping[str, Any], trial: Mapping[str, Any] | None) -> Row:
    settings = tuple(_setting(base, key) for key in SETTINGS.values())
    if trial is None:
        return Row(("base", *settings, *[""] * 4, "not trained"), "base")
    figures = (*_scores(trial), millions(trial["parameters"]), _flops(trial))
    return Row(("base", *settings, *figures, _status(trial)), "base")


def _trial_row(
    trial: Mapping[str, Any], base: Mapping[str, Any], base_trial: Mapping[str, Any] | None
) -> Row:
    own = _settings(trial)
    lead = _lead(base, own)
    settings = tuple(
        "" if own.get(key) == base.get(key) else _setting(own, key) for key in SETTINGS.values()
    )
    parameters = millions(trial["parameters"])
    if base_trial is not None and parameters == millions(base_trial["parameters"]):
        parameters = ""
    name = f"({lead[0]}) {label_of(trial)}" if lead else label_of(trial)
    state = {"finished": "finished", "stopped early": "stopped"}.get(trial["status"], "failed")
    cells = (name, *settings, *_scores(trial), parameters, _flops(trial), _status(trial))
    return Row(cells, state)


def _setting(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    if value is None:
        return MISSING
    return whole(value) if key == "steps" else plain(value)


def _scores(trial: Mapping[str, Any]) -> tuple[str, str]:
    return fixed(trial["valid_perplexity"], 2), fixed(trial["bleu"], 1)


def _flops(trial: Mapping[str, Any]) -> str:
    # A trial that failed before its first step has cost nothing worth a figure.
    return powers(trial["flops"] or None)


def _status(trial: Mapping[str, Any]) -> str:
    if trial["status"] == "stopped early":
        return f"stopped early at step {whole(trial['steps'])}"
    if trial["status"] == "failed":
        cause = " ".join(str(trial.get("cause") or "cause unknown").split())
        return "failed: " + (cause if len(cause) <= 120 else cause[:119] + "…")
    return str(trial["status"])


def _split(sweep: Mapping[str, Any]) -> str:
    return {"valid": "validation"}.get(sweep["split"], str(sweep["split"]))


# --- the paper's rows ----------------------------------------------------------------------------


@functools.cache
def _paper_base() -> dict[str, Any]:
    return _settings(configuration.to_dict(presets.load("base").config))


def _paper_changes(row: table3.Row) -> dict[str, Any]:
    return {key.rpartition(".")[2]: value for key, value in row.changes.items()}


def _changed(base: Mapping[str, Any], own: Mapping[str, Any]) -> set[str]:
    return {key for key in base.keys() & own.keys() if base[key] != own[key]}


def _lead(base: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[str, str] | None:
    """(row of the paper, setting compared) when all that changed belongs to one row."""
    changed = _changed(base, own)
    for row, groups in _KINDS.items():
        for group in groups:
            if group[0] in changed and changed <= set(group):
                return row, group[0]
    return None


def _counterpart(base: Mapping[str, Any], own: Mapping[str, Any]) -> table3.Row | None:
    lead = _lead(base, own)
    if lead is None:
        return None
    group, setting = lead
    candidates = [
        row for row in table3.read().rows if row.group == group and setting in _paper_changes(row)
    ]
    if setting == "positions":
        same = (base[setting], own[setting]) == ("sinusoidal", "learned")
        return candidates[0] if same else None
    step = _step(setting, base[setting], own[setting])
    before = _paper_base()[setting]
    there = [
        (_step(setting, before, _paper_changes(candidate)[setting]), candidate)
        for candidate in candidates
    ]
    # Rounded, so that a tie (half or double of a ratio) is one, and its first row is taken.
    alike = [
        (round(abs(size - step), 6), candidate) for size, candidate in there if size * step > 0
    ]
    return min(alike, key=lambda pair: pair[0])[1] if alike else None


def _step(setting: str, before: float, after: float) -> float:
    """Signed size of a change: in value for shares, which may be 0; else as a logarithm."""
    if setting in ("dropout", "label_smoothing"):
        return after - before
    return math.log(after / before)


def _compare(
    trial: Mapping[str, Any], base_trial: Mapping[str, Any], counterpart: table3.Row
) -> Comparison:
    base_row, base_settings = table3.read().rows[0], _paper_base()
    changes = ", ".join(
        f"{_SYMBOLS[key]} {plain(base_settings[key])} → {plain(value)}"
        for key, value in _paper_changes(counterpart).items()
    )
    here = _difference(trial["bleu"], base_trial["bleu"])
    there = _difference(counterpart.bleu, base_row.bleu)
    verdict, words = _verdict(here, there)
    cells = (
        label_of(trial),
        _with_difference(trial["valid_perplexity"], base_trial["valid_perplexity"], 2),
        _with_difference(trial["bleu"], base_trial["bleu"], 1),
        f"({counterpart.group}) {changes}",
        _with_difference(counterpart.perplexity, base_row.perplexity, 2),
        _with_difference(counterpart.bleu, base_row.bleu, 1),
        words,
    )
    return Comparison(cells, verdict)


def _difference(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else round(value - base, 1)


def _with_difference(value: float | None, base: float | None, decimals: int) -> str:
    if value is None or base is None:
        return fixed(value, decimals)
    return f"{fixed(value, decimals)} ({signed(value - base, decimals)})"


def _verdict(here: float | None, there: float | None) -> tuple[str, str]:
    if here is None or there is None:
        return "none", MISSING
    if here == 0 or there == 0:
        both = "no difference in either"
        where = "the paper" if there == 0 else "this run"
        return "none", both if here == there else f"no difference in {where}"
    return ("same", "the same") if here * there > 0 else ("opposite", "the opposite")


# --- Markdown ------------------------------------------------------------------------------------


def _markdown_table(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to one width, so that the text reads as a table in a terminal too."""
    cells = [[_escape(cell) for cell in row] for row in (headings, *table)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    widths[-1] = 3  # the cause of a failure can be long
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return [lines[0], "| " + " | ".join("-" * width for width in widths) + " |", *lines[1:]]


def _escape(cell: str) -> str:
    for character in ("\\", "|", "`", "*", "<"):
        cell = cell.replace(character, "\\" + character)
    return cell
