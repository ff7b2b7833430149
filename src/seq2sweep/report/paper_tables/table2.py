"""Table 2 of the paper: its figures, what its costs are made of, and what was measured here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets.rivals import PAIRS, ROWS, Cost, Row
from seq2sweep.report.aggregate import (
    Against,
    Variant,
    aggregate,
    most_seeds,
    seeds_untested,
    with_margin,
)
from seq2sweep.report.formats import difference_columns, paper_files
from seq2sweep.report.markdown import Table, as_csv
from seq2sweep.report.number_format import MISSING, fixed, millions, p_value, plain, powers, signed
from seq2sweep.report.table import SHARED, SHARED_NOTE, devices_note, lowercase, seeds_note

TITLE = "Table 2, measured"
PAPER = (
    "model",
    "BLEU En-De",
    "BLEU En-Fr",
    "FLOPs En-De",
    "FLOPs En-Fr",
    "days × devices, En-De",
    "days × devices, En-Fr",
    "computed, En-De",
    "computed, En-Fr",
)
TRAINED = (
    "model",
    "params ×10⁶",
    "BLEU as in the paper",
    "sacreBLEU",
    "FLOPs",
    "FLOPs, by the paper's rule",
    "device-hours",
)
NOT_MEASURED = (
    "No architectures were compared at equal FLOPs: set `sweep.method: table2` in params.yaml, or "
    "see the presets `phrasebook-table2` and `multi30k-en-de-table2`."
)
PAPER_NOTES = (
    "BLEU on newstest2014 and FLOPs as printed. Days and devices are those of each model's own "
    "paper, as far as it says them; computed: days × seconds × devices × what the paper assumes "
    "that a device sustains (K80 2.8, K40 3.7, M40 6.0, P100 9.5 TFLOP/s). Of an ensemble it is 8 "
    "times the printed figure of one model.",
    "GNMT's BLEU is that of a training that reinforcement learning had refined; the days are those "
    "of the training before, as far as can be told.",
    "Deep-Att, MoE and the ensembles are figures alone here. Extended Neural GPU and other models "
    "that section 2 names are not in the paper's table.",
)


def table2_files(
    sweep: Mapping[str, Any] | None, dataset: str, trained: Table | None = None
) -> dict[str, str]:
    """The text of each file by its name, from reports/sweep.json; None where none has been run.

    dataset: what was translated, in words; trained: `trained_here`.
    """
    sweep = sweep or {}
    ending = [] if "table2" in sweep else [NOT_MEASURED]
    shown = section(sweep, dataset, trained)
    return paper_files("table2", TITLE, shown, _csv(sweep), ending=ending)


def _csv(sweep: Mapping[str, Any]) -> str:
    """A line a row of the paper's table; the measured columns of rows that are here, empty else.

    Of a sweep of parsing there is no `paper_bleu_*`, and `f1*` in place of `bleu*`.
    """
    score = Score.of(sweep)
    figures = ("parameters", "valid_perplexity", *score.columns, "flops", "device_hours")
    measured, tried = {}, {}
    if "table2" in sweep:
        measured = {v.architecture: v for v in aggregate(sweep)}
        tried = _tried(sweep)
    lines = []
    for row in ROWS:
        line: dict[str, Any] = {"model": row.name, "architecture": row.architecture}
        for pair in PAIRS:
            cost = row.cost.get(pair)
            if score == BLEU:
                line[f"paper_bleu_{pair}"] = row.bleu.get(pair)
            line |= {
                f"paper_flops_{pair}": cost and cost.printed,
                f"computed_flops_{pair}": cost and cost.computed,
            }
        variant = measured.get(str(row.architecture))
        for figure in figures:
            known = variant and variant.figures[figure]
            line[figure] = known and known.mean
            line[f"{figure}_margin"] = known and known.margin
            line[f"{figure}_n"] = known and known.n
        line["devices"] = variant and ", ".join(variant.devices)
        line |= difference_columns(score, variant.against if variant else None)
        own = tried.get(variant.name, {}) if variant else {}
        # Of the base's train.learning_rate_scale.
        line["learning_rate_multiple"] = own.get("best")
        line["flops_of_tries"] = _flops_of_tries(own)
        line["status"] = variant and variant.status
        lines.append(line)
    return as_csv(lines, lines[0])


def section(
    sweep: Mapping[str, Any] | None, dataset: str, trained: Table | None = None
) -> dict[str, Any]:
    """What the page shows: `where`, `tables` and `plots`.

    sweep: reports/sweep.json, None where none has been run; dataset: what was translated, in words;
    trained: `trained_here`.
    """
    measured = sweep is not None and "table2" in sweep
    return {
        "where": f"{dataset}." if measured else NOT_MEASURED,
        "tables": tables(sweep, trained),
        "plots": [],
    }


def trained_here(
    dataset: str, architecture: str, train: Mapping[str, Any], evaluate: Mapping[str, Any]
) -> Table:
    """The project's own training in the columns of the paper.

    dataset, architecture: in words; train, evaluate: metrics/train.json and metrics/evaluate.json.
    """
    paper, flops = evaluate["bleu"]["paper"], train["flops"]
    averaged = len(evaluate["averaged_checkpoints"])
    checkpoints = f"{averaged} averaged checkpoints" if averaged > 1 else "one checkpoint"
    row = [
        architecture,
        millions(train["parameters"]),
        fixed(paper["score"], 1),
        fixed(evaluate["bleu"]["sacrebleu"]["score"], 1),
        powers(flops["model"]),
        powers(flops.get("paper_rule")),
        fixed(train.get("device_hours"), 2),
    ]
    lower = ", but of lower-cased text" * ("case:lc" in paper["signature"])
    notes = (
        f"{dataset}: {checkpoints} on the test set. BLEU as the paper counted it is of tokens, "
        f"with compounds split for German{lower} ({paper['signature']}).",
        "FLOPs: those of the model; by the paper's rule: what such devices sustain, times their "
        "seconds. Only what was trained and tested on the paper's WMT14 compares with its figures.",
    )
    return Table("Trained here", TRAINED, [row], notes)


def tables(sweep: Mapping[str, Any] | None, trained: Table | None = None) -> list[Table]:
    """The paper's table, the project's own training, and what a sweep of method table2 measured.

    The paper's is of translation, and not shown beside a sweep of parsing. trained: `trained_here`.
    """
    printed = Table("As printed", PAPER, [_printed(row) for row in ROWS], PAPER_NOTES, (5, 6))
    sweep = sweep or {}
    found = [_measured(sweep)] if "table2" in sweep else []
    found += [trained] if trained is not None else []
    return [*found, printed] if Score.of(sweep) == BLEU else found


# --- cells ---------------------------------------------------------------------------------------


def _printed(row: Row) -> list[str]:
    costs = [row.cost.get(pair) for pair in PAIRS]
    return [
        row.name,
        *(plain(row.bleu[pair]) if pair in row.bleu else MISSING for pair in PAIRS),
        *(powers(None if cost is None else cost.printed) for cost in costs),
        *(_terms(cost) for cost in costs),
        *(powers(None if cost is None else cost.computed) for cost in costs),
    ]


def _terms(cost: Cost | None) -> str:
    if cost is None:
        return MISSING
    several = f"{cost.models} × " if cost.models > 1 else ""
    return f"{several}{plain(cost.days)} × {cost.devices} {cost.device}"


def _headings(score: Score) -> tuple[str, ...]:
    return (
        "model here",
        "in place of",
        "layers",
        "d_model",
        "params ×10⁶",
        "PPL (dev)",
        f"{score.label} (dev)",
        *score.beside.values(),
        "less base's",
        "p",
        "FLOPs",
        "FLOPs of the tries",
        "device-hours",
        "learning rate",
        "status",
    )


def _measured(sweep: Mapping[str, Any]) -> Table:
    score = Score.of(sweep)
    tried, variants = _tried(sweep), aggregate(sweep)
    share, rates = (sweep["table2"][key] for key in ("search_share", "learning_rates"))
    ends = (min(rates), max(rates)) if len(rates) > 1 else ()
    edges = [name for name, one in tried.items() if one["best"] in ends]
    paper = ", and as the paper counted it (tokenised, compounds split for German)"
    paper += ", but of lower-cased text" * lowercase(sweep)
    notes = [
        f"Scored on the validation set, without checkpoint averaging. {score.label} is "
        f"{score.rule}{paper * (score == BLEU)}.",
        "Each model got the same FLOPs, by its formula: those of the base's `train.steps`. "
        f"{100 * share:g} % of them went into {len(rates)} tries of the learning rate "
        f"({', '.join(map(plain, rates))} × the base's `train.learning_rate_scale`), of which the "
        "lowest validation perplexity was chosen; the rest into the training of each seed. FLOPs "
        "and device-hours are those of one training; what the tries took is beside, no part of "
        "them.",
        f"{_alike(sweep['table2'].get('optimizer'))} Layers (of ByteNet the width) are chosen so "
        "that a token costs as many FLOPs as it costs the base"
        f"{_far_from_equal(sweep, variants[0])}.",
        "p: paired bootstrap over sentences against base.",
        *_intervals(variants),
        *devices_note(variants),
        *[SHARED_NOTE] * any(variant.shared for variant in variants),
    ]
    if edges:
        notes.append(
            f"The best rate is at an end of those tried for {', '.join(edges)}: a wider "
            "`sweep.learning_rates` may find a better one."
        )
    if lost := list(_lost(tried)):
        notes.append(
            f"Tries that ended without a perplexity, and could not be chosen: {', '.join(lost)}."
        )
    rows = [_row(variant, variants[0], tried.get(variant.name, {})) for variant in variants]
    headings = _headings(score)
    return Table("Measured", headings, rows, notes, (1, len(headings) - 1))


def _intervals(variants: Sequence[Variant]) -> Iterator[str]:
    """What ± and the brackets of `_difference` are, where there are any."""
    if (seeds := most_seeds(variants)) > 1:
        yield seeds_note(seeds)
    against = [one.against for one in variants if one.against is not None]
    found = {
        "Welch's over seeds": any(one.difference.margin is not None for one in against),
        "the paired bootstrap's over sentences": any(one.low is not None for one in against),
    }
    if of := [name for name, there in found.items() if there]:
        wider = ", from the lowest end of the two to the highest" * (len(of) > 1)
        parts = (f"{' and '.join(of)}{wider}.", seeds_untested(variants))
        what = " ".join(filter(None, parts))
        yield f"In brackets: the 95 % interval of the difference, {what}"


def _lost(tried: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, one in tried.items():
        for each in one["tries"]:
            found = each["valid_perplexity"]
            if each["status"] != "finished" or found is None or not math.isfinite(found):
                why = " ".join(str(each["cause"] or each["status"]).split())
                yield f"{name} at {plain(each['learning_rate'])} × ({why})"


def _far_from_equal(sweep: Mapping[str, Any], base: Variant) -> str:
    """Models of which no size costs about as much: of a small base even two layers cost more."""
    costs = {
        one["variant"]: one["flops"] / one["steps"]
        for one in sweep["trials"]
        if one["status"] == "finished" and one["flops"] and one["steps"]
    }
    times = {name: cost / costs[base.name] for name, cost in costs.items() if base.name in costs}
    far = (f"{name} costs {x:.2f} times as many" for name, x in times.items() if abs(x - 1) > 0.1)
    return "".join(f"; {one}" for one in far)


def _alike(optimizer: str | None) -> str:
    others = "batches, label smoothing, dropout and beam search"
    if optimizer == "as_published":
        return f"Each has its own paper's optimizer and schedule. All use the base's {others}."
    return f"All use the base's optimizer, schedule, {others}, not what their own papers tuned."


def _row(variant: Variant, base: Variant, tried: Mapping[str, Any]) -> list[str]:
    architecture = variant.architecture
    counterpart = next((row.name for row in ROWS if row.architecture == architecture), MISSING)
    against = variant.against
    return [
        f"{architecture} (base)" if variant is base else architecture,
        counterpart,
        *(plain(variant.settings.get(key)) for key in ("layers", "d_model")),
        millions(variant.mean("parameters")),
        with_margin(variant.figures["valid_perplexity"], 2),
        *(with_margin(variant.figures[name], 1) for name in variant.score.columns),
        MISSING if against is None else _difference(against),
        MISSING if against is None else p_value(against.p),
        powers(variant.mean("flops") or None),
        powers(_flops_of_tries(tried)),
        fixed(variant.mean("device_hours"), 3) + f" {SHARED}" * bool(variant.shared),
        MISSING if tried.get("best") is None else f"{plain(tried['best'])} ×",
        variant.status,
    ]


def _difference(against: Against) -> str:
    shown = signed(against.difference.mean, 1)
    if against.interval is None:
        return shown
    low, high = against.interval
    return f"{shown} ({signed(low, 1)} to {signed(high, 1)})"


def _tried(sweep: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By variant what `sweep_report.describe_entrants` says of each."""
    return {one["variant"]: one for one in sweep["table2"]["architectures"]}


def _flops_of_tries(tried: Mapping[str, Any]) -> float | None:
    """Of all tries of an architecture; None where there are none."""
    return sum(one["flops"] or 0.0 for one in tried.get("tries", ())) or None
