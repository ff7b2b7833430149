"""Table 3 of the paper, measured: one row a variant, its seeds pooled, and how to read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config.scores import F1, Score
from seq2sweep.report import findings, paper
from seq2sweep.report.aggregate import (
    PAPERS_OWN,
    Variant,
    aggregate,
    most_seeds,
    seeds_untested,
    variant_of,
    with_margin,
)
from seq2sweep.report.markdown import Table
from seq2sweep.report.number_format import MISSING, fixed, millions, plain, powers, whole
from seq2sweep.report.pareto import front, objectives
from seq2sweep.report.pareto import notes as notes_of_search
from seq2sweep.report.positions import length_scores

PRECISIONS = {"float32": "float32", "bf16": "bf16 (products; weights and updates in float32)"}
LATER = {
    key.partition(".")[2]: value
    for key, value in configuration.DEFAULTS.items()
    if key.startswith(("model.", "train."))
}
"""Settings that Table 3 does not know, and what they were before there was a key for them."""
OF_MODEL = {
    architecture: {field.name for field in dataclasses.fields(section)}
    for architecture, section in configuration.architectures().items()
}
"""Settings that a model of each architecture has."""
SHARED = "†"
"""Marks device-hours of a device that other trials used at the same time."""
SHARED_NOTE = (
    f"{SHARED}: trained while other trials ran on the same device (a node's processor is one); its "
    "hours count for each of them, and each took longer than it would have alone."
)
UNSEEN = "≈"
"""Marks a score that cannot be told from the base row's."""

NONE_YET = (
    "No variants have been trained. To train some, set `sweep.method` in params.yaml, such as "
    "`table3` or `one_at_a_time`, see `seq2sweep plan` for what that takes, then run `dvc repro`."
)

_BUDGETS = {
    "tokens": "Every row has as many updates × `train.tokens_per_update` as the base row.",
    "flops": "Every row is trained for as many FLOPs as the base row.",
}


def headings(score: Score, settings: Iterable[str] = paper.SETTINGS) -> tuple[str, ...]:
    """The columns of the paper come first."""
    return (
        "row",
        *settings,
        "PPL (dev)",
        f"{score.label} (dev)",
        "params ×10⁶",
        *score.beside.values(),
        "FLOPs",
        "device-hours",
        "status",
    )


@dataclass(frozen=True)
class Row:
    """Cells under `headings`; `state` is base, or how the variant ended.

    front: whether it is on the Pareto front of a search for several objectives.
    """

    cells: tuple[str, ...]
    state: str
    front: bool = False


@dataclass(frozen=True)
class Tables:
    """All that the report says of a sweep in words and numbers.

    failures: name and cause of each trial without a result. by_length: scores by length of the
    source, None where they are not known.
    """

    headings: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]
    failures: Sequence[tuple[str, str]]
    comparison_headings: Sequence[str]
    comparisons: Sequence[paper.Comparison]
    comparison_notes: Sequence[str]
    findings: Sequence[findings.Finding]
    finding_notes: Sequence[str]
    by_length: Table | None = None


def tables(sweep: Mapping[str, Any], dataset: str, vocabulary_size: int | None) -> Tables:
    """From reports/sweep.json; `dataset` says in words what was translated."""
    variants, score = aggregate(sweep), Score.of(sweep)
    # The sweep may be kept from a time when the project had another.
    vocabulary_size = sweep.get("vocabulary_size", vocabulary_size)
    lengths = length_scores.read(sweep)
    found = findings.findings(variants, lengths)
    of_table3 = any(one.source.startswith("Table 3") for one in found)
    unlike = _unlike_paper(sweep.get("budget"), variants)
    return Tables(
        headings=headings(score, _columns(variants)),
        rows=rows(variants, sweep),
        notes=notes(sweep, variants, dataset, vocabulary_size),
        failures=[
            (name if variant.number is None else f"{variant.label} {name}", cause)
            for variant in variants
            for name, cause in variant.failures
        ],
        comparison_headings=paper.headings(score),
        comparisons=paper.comparisons(variants),
        comparison_notes=[*paper.notes(variants, lowercase(sweep)), *unlike],
        findings=found,
        finding_notes=[*findings.notes(found, score), *unlike * of_table3],
        by_length=length_scores.table(variants, lengths),
    )


def lowercase(sweep: Mapping[str, Any]) -> bool:
    """Whether text was lower-cased, and BLEU counts words whatever their case."""
    return bool(((sweep.get("config") or {}).get("prepare") or {}).get("lowercase"))


def rows(variants: Sequence[Variant], sweep: Mapping[str, Any]) -> list[Row]:
    """The base row with all settings, then each variant; a cell that equals the base's is empty."""
    base, sought = variants[0], objectives(sweep)
    best = front(variants, sought) if len(sought) > 1 else []
    columns = list(_columns(variants).values())
    return [_row(variant, base, columns, variant in best) for variant in variants]


def _columns(variants: Sequence[Variant]) -> dict[str, str]:
    """SETTINGS, and of LATER those that variants differ in, or that some have and not as before."""
    values = {
        key: {plain(one.settings.get(key, before)) for one in variants}
        for key, before in LATER.items()
    }
    return paper.SETTINGS | {key: key for key in LATER if len(values[key]) > 1}


def notes(
    sweep: Mapping[str, Any],
    variants: Sequence[Variant],
    dataset: str,
    vocabulary_size: int | None,
) -> list[str]:
    """What a reader must know to read the table."""
    score, architecture = Score.of(sweep), variants[0].architecture
    signatures = sorted({t["signature"] for t in sweep["trials"] if t.get("signature")})
    seeds, split = most_seeds(variants), sweep["split"]
    tested = [v for v in variants if v.against is not None and v.against.p is not None]
    result = [
        *notes_of_search(sweep, variants),
        "Empty cells are the base row's, as in the paper.",
        f"Data: {dataset}, {'validation' if split == 'valid' else split} set; no checkpoint "
        "averaging.",
        _perplexity(score, vocabulary_size),
        "FLOPs are the multiply-adds of the model, times two, over the training done; FLOPs and "
        "device-hours are those of one training.",
        *_precision(sweep),
        *devices_note(variants),
    ]
    if any(variant.shared for variant in variants):
        result.append(SHARED_NOTE)
    if architecture != PAPERS_OWN:
        result.append(
            f"`model.architecture` of the base row is {architecture}, and Table 3 is of the "
            "Transformer: no row here is one of the paper's."
        )
    if any(variant.row for variant in variants[1:]):
        result.append(
            "Rows are named as in the paper. Their sizes are its own, in the proportion of the "
            "base row here to its base row."
        )
    if sweep.get("budget") in _BUDGETS:
        result.append(_BUDGETS[sweep["budget"]])
    if signatures:
        named = ", ".join(f"`{text}`" for text in signatures)
        result.append(f"{score.label} is {score.rule}: {named}")
    if seeds > 1:
        result.append(seeds_note(seeds))
    if tested:
        result.append(
            f"{UNSEEN}: no difference to the base row's {score.label} can be seen, by a paired "
            "bootstrap over the sentences (p of 0.05 or more)"
            + (", or by the seeds (Welch's interval contains 0)." if seeds > 1 else ".")
            + f" Of comparisons in which nothing differs, one in 20 has a smaller p; here are "
            f"{len(tested)}." + (f" {untested}" if (untested := seeds_untested(variants)) else "")
        )
    if any(variant.state == "stopped" for variant in variants):
        result.append(
            f"The scheduler ({sweep['scheduler']}) stops weak trials early; their figures are "
            "those of their last step and not comparable with finished ones."
        )
    if selected := [variant.label for variant in variants if variant.selected]:
        result.append(
            f"Of {', '.join(selected)} the weaker seeds diverged or were stopped early. The "
            "figures are means over the others, and too good: no difference to or from such a row "
            "is tested."
        )
    return result


def _unlike_paper(budget: str | None, variants: Sequence[Variant]) -> list[str]:
    """What a verdict on Table 3 may come of, or why there is none, where rows have another budget
    than its own."""
    result = []
    if budget == "flops":
        result.append(
            "The paper's rows have equal steps (big three times as many), those here equal FLOPs, "
            "larger models fewer steps: a difference that is not as published may come of that."
        )
    if any(one.state == "finished" and paper.lacks_steps(one) for one in variants):
        result.append(
            "The paper's row big has three times as many steps as its base row, that here only "
            f"what `sweep.budget: {budget}` gives it: it is not judged, and counts for no finding."
        )
    return result


def seeds_note(seeds: int) -> str:
    """How to read figures of several seeds."""
    return (
        f"Figures are means over seeds, n = {seeds} unless the status says otherwise; ± is half "
        "the width of the 95 % confidence interval of the mean (Student's t)."
    )


def _perplexity(score: Score, vocabulary_size: int | None) -> str:
    """What it is per, and of which vocabulary."""
    size = whole(vocabulary_size)
    if score == F1:
        return (
            "PPL is per symbol of a tree, of which a bracket has two and a word one. Sentences are "
            f"of a vocabulary of {size} tokens; parameters are counted with both vocabularies."
        )
    return (
        f"PPL is per token, not per word, of a shared vocabulary of {size} tokens; parameters "
        "are counted with that vocabulary."
    )


def _precision(sweep: Mapping[str, Any]) -> list[str]:
    """In which the rows were trained, as far as it is known."""
    rows: dict[str, list[str]] = {}
    for trial in sweep["trials"]:
        found = trial.get("train_precision") or trial["train"].get("precision")
        if trial["status"] in ("finished", "stopped early") and found in PRECISIONS:
            rows.setdefault(found, []).append(variant_of(trial))
    if len(rows) == 1:
        return [f"All rows are trained in {PRECISIONS[next(iter(rows))]}."]
    each = "; ".join(
        f"{PRECISIONS[key]}: {', '.join(dict.fromkeys(names))}" for key, names in rows.items()
    )
    return [f"Rows are not all trained in the same precision. {each}."] if rows else []


def devices_note(variants: Sequence[Variant]) -> list[str]:
    """Of which devices the hours are, as far as it is known: of no CPU its kind."""
    rows: dict[str, list[str]] = {}
    for variant in variants:
        for device in variant.devices:
            rows.setdefault(device, []).append(variant.label)
    if len(rows) < 2:
        return [
            f"Device-hours are of {'CPUs of any kind' if device == 'CPU' else device}."
            for device in rows
        ]
    each = "; ".join(f"{device}: {', '.join(labels)}" for device, labels in rows.items())
    both = " A row of several is their mean." * any(len(one.devices) > 1 for one in variants)
    return [f"Device-hours are of different devices, and do not compare. {each}.{both}"]


def _row(variant: Variant, base: Variant, columns: Sequence[str], on_front: bool) -> Row:
    own = [_setting(variant, key) for key in columns]
    parameters = millions(variant.mean("parameters"))
    name = _name(variant, columns)
    if variant is not base:
        same = [_setting(base, key) for key in columns]
        own = ["" if a == b else a for a, b in zip(own, same, strict=True)]
        parameters = "" if parameters == millions(base.mean("parameters")) else parameters
        kind = paper.kind_of(variant, base)
        named = variant.row is None and variant.number is None
        name = f"({kind[0]}) {name}" if kind and named else name
    cells = (
        name,
        *own,
        with_margin(variant.figures["valid_perplexity"], 2),
        _score(variant),
        parameters,
        *(with_margin(variant.figures[name], 1) for name in variant.score.beside),
        # A trial that failed before its first step has cost nothing worth a figure.
        powers(variant.mean("flops") or None),
        _hours(variant.mean("device_hours")) + f" {SHARED}" * bool(variant.shared),
        variant.status + ", Pareto front" * on_front,
    )
    return Row(cells, "base" if variant is base else variant.state, on_front)


def _name(variant: Variant, columns: Sequence[str]) -> str:
    """A proposal's number, and what it changes that no column shows."""
    if variant.number is None:
        return variant.label
    shown = {key.rpartition(".")[2]: value for key, value in variant.changes.items()}
    others = [f"{k}={plain(v)}" for k, v in shown.items() if k not in columns]
    return " ".join([variant.label, *others])


def _setting(variant: Variant, key: str) -> str:
    """A dash for one that a model of its architecture does not have."""
    own = OF_MODEL.get(variant.architecture, ())
    known = key in own or f"train.{key}" in configuration.DEFAULTS
    value = variant.settings.get(key, LATER.get(key) if known else None)
    if value is None:
        return MISSING
    return whole(value) if key == "steps" and isinstance(value, int) else plain(value)


def _score(variant: Variant) -> str:
    unseen = variant.against is not None and variant.against.seen is False
    return with_margin(variant.scored, 1) + (f" {UNSEEN}" if unseen else "")


def _hours(hours: float | None) -> str:
    """Two digits that say something: demonstrations take minutes, the paper's rows days."""
    if hours is None:
        return MISSING
    return fixed(hours, 3 if hours < 0.1 else 2 if hours < 10 else 0)
