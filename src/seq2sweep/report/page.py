"""reports/index.html: one file that needs nothing else, not even a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep import console
from seq2sweep.report import plots, samples, sweep_plots, templates
from seq2sweep.report.aggregate import aggregate, most_seeds
from seq2sweep.report.attention import heads_table
from seq2sweep.report.markdown import Table
from seq2sweep.report.number_format import MISSING, decoding, fixed, percent, plain, powers, whole
from seq2sweep.report.paper_tables import table1 as layer_types
from seq2sweep.report.paper_tables import table2 as architectures
from seq2sweep.report.paper_tables.table4 import Parser, architecture_name
from seq2sweep.report.pareto import equal_flops, objectives
from seq2sweep.report.positions import length_scores, position_plots
from seq2sweep.report.table import NONE_YET, tables
from seq2sweep.report.trees import parsing_scores

_STATUSES = ("finished", "stopped early", "failed", "refused")
_HELD_OUT = {"valid": "validation", "test": "test"}
REASONS = {
    "empty": "a side is empty",
    "too_long": "too many words",
    "ratio": "sides too unequal in length",
    "copied": "both sides the same",
    "script": "letters of another script",
    "contamination": "a side is in the validation or test set",
    "duplicate": "pair seen before",
}


@dataclass(frozen=True)
class Results:
    """What the stages wrote, as read from their JSON files; `sweep` is None where none was run.

    curves: rows of metrics/curves.csv, None where nothing was measured. lineage: of
    models/train/receipt.json, and model, the settings that were trained, where it has them. tree:
    `git.commit` and `git.dirty` of what is here, whose code and settings give these results; what
    trained may be older.
    dataset: what was translated, in words. parser: of a run whose task is parsing, None else.
    """

    dataset: str
    prepare: Mapping[str, Any]
    train: Mapping[str, Any]
    curves: Sequence[Mapping[str, float | None]]
    evaluate: Mapping[str, Any]
    translations: Sequence[samples.Translation]
    lineage: Mapping[str, str]
    tree: Mapping[str, str]
    sweep: Mapping[str, Any] | None = None
    table1: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    parser: Parser | None = None
    attention: Mapping[str, Any] | None = None


def render(results: Results) -> str:
    """The whole page as HTML text; sections without data are left out."""
    train = results.prepare["train"]
    task = _translation(results) if results.parser is None else _parsing(results, results.parser)
    return templates.render(
        "translation.html" if results.parser is None else "parsing.html",
        dataset=results.dataset,
        architecture=architecture_name(results.model),
        train=results.train,
        evaluate=results.evaluate,
        curves=_curves(results.curves),
        attention=results.attention,
        positions=position_plots.section(results.model),
        sweep=_sweep(results),
        table1=results.table1 and layer_types.section(results.table1),
        tables=results.sweep
        and tables(results.sweep, results.dataset, results.train["vocabulary_size"]),
        none_yet=NONE_YET,
        sentences=len(results.translations),
        pairs=train,
        dropped=sorted(train["dropped"].items(), key=lambda item: -item[1]),
        reasons=REASONS,
        **_held_out(results.prepare),
        provenance={
            "MLflow run of the training": results.train.get("mlflow_run_id"),
            "MLflow run of the evaluation": results.evaluate.get("mlflow_run_id"),
            **results.lineage,
        },
        commit=_commit(results.tree),
        **task,
    )


def _held_out(prepare: Mapping[str, Any]) -> dict[str, Any]:
    """`held_out`: examples of each split, its name, and how many of their sentences are in training
    too, None where that was not counted; `unseen`: whether none can be."""
    found = [
        (prepare[split]["kept"], name, prepare[split].get("in_training"))
        for split, name in _HELD_OUT.items()
    ]
    counts = [in_training for *_, in_training in found]
    return {
        "held_out": found,
        "unseen": "contamination" in prepare["train"]["dropped"] or counts == [0] * len(found),
    }


def _translation(results: Results) -> dict[str, Any]:
    """What translation.html alone shows."""
    tokenised = {
        "BLEU of tokens, unsplit": fixed(results.evaluate["bleu"]["tokenised"]["score"], 1)
    }
    return {
        "facts": _facts(results, tokenised),
        "phenomena": _hardest_first(results.evaluate, "exact_match"),
        "by_length": _of_main_model(results.evaluate, "bleu"),
        "table2": architectures.section(results.sweep, results.dataset, trained_here(results)),
        "translations": samples.choose(results.translations),
        "token": "token",
        "examples": "sentence pairs",
        "unit": "pairs",
    }


def trained_here(results: Results) -> Table | None:
    """Of Table 2, which is of translation: None where the task is parsing."""
    if results.parser is not None:
        return None
    name = architecture_name(results.model)
    return architectures.trained_here(results.dataset, name, results.train, results.evaluate)


def _parsing(results: Results, parser: Parser) -> dict[str, Any]:
    """What parsing.html alone shows."""
    return {
        "facts": _facts(results, parsing_scores.facts(results.evaluate)),
        "phenomena": _hardest_first(results.evaluate, "f1"),
        "by_length": _of_main_model(results.evaluate, "f1"),
        "token": "symbol of a tree",
        "examples": "trees",
        "unit": "trees",
        # Of parsing the paper's own has nothing: only what was measured.
        "table2": architectures.section(results.sweep, results.dataset)
        if "table2" in (results.sweep or {})
        else None,
        **parsing_scores.context(parser, results.translations),
    }


def _hardest_first(evaluate: Mapping[str, Any], score: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Phenomena and their scores: that is what a reader looks for."""
    found = (evaluate.get("phenomena") or {}).items()
    return sorted(found, key=lambda item: (item[1][score], item[0]))


def _facts(results: Results, more: Mapping[str, str]) -> dict[str, str]:
    """The rest of metrics/train.json and metrics/evaluate.json, name to value, where known; `more`
    is of the task."""
    train, evaluate = results.train, results.evaluate
    steps = [whole(step) for step in evaluate["averaged_checkpoints"]]
    facts = {
        "Steps": whole(train["steps"]),
        "Target tokens": whole(train["target_tokens"]),
        "Time": console.duration(train["wall_seconds"]),
        "Workers": f"{plain(train['workers'])} ({train['device']}, {train['precision']})",
        "Padding": percent(train["padding_share"]),
        "Validation perplexity": fixed(train["final"]["valid_perplexity"], 2),
        "FLOPs with padding": powers(train["flops"].get("padded")),
        "FLOPs, by the paper's rule": powers(train["flops"].get("paper_rule")),
        "FLOP/s of a device": powers(train.get("flops_per_second")),
        "Model FLOPs utilisation": percent(train["mfu"]),
        "Device-hours": fixed(train.get("device_hours"), 2),
        "Energy": f"{fixed(train.get('energy_kwh'), 3)}\u202fkWh",
        "Decoding": f"{decoding(evaluate)}, stopping {evaluate.get('stopping', 'exact')}, "
        f"in {evaluate.get('search_precision', 'float32')}",
        "Decoding speed": f"{whole(evaluate['decode_tokens_per_second'])} tokens a second",
        "Checkpoints averaged": ", ".join(steps) or "none",
        **more,
    }
    return {name: value for name, value in facts.items() if not value.startswith(MISSING)}


def _of_main_model(evaluate: Mapping[str, Any], score: str) -> list[tuple[str, str, str]]:
    """Lengths, sentences and score of each bin; none in a file of an earlier version."""
    return [
        (
            length_scores.Bin(one["shortest"], one["longest"], one["sentences"]).label,
            whole(one["sentences"]),
            fixed(one[score], 1),
        )
        for one in evaluate.get("by_length") or ()
    ]


def _curves(rows: Sequence[Mapping[str, float | None]]) -> list[dict[str, str]]:
    """Title and drawing of each learning curve that has points."""
    charts = [
        ("Loss, nats a token", {"training, smoothed": "loss", "validation": "valid_loss"}, False),
        ("Validation perplexity", {"validation perplexity": "valid_perplexity"}, False),
        ("Learning rate", {"learning rate": "learning_rate"}, True),
        ("Target tokens a second", {"target tokens a second": "tokens_per_second"}, True),
    ]
    result = []
    for number, (title, columns, from_zero) in enumerate(charts):
        curves: dict[str, list[tuple[float, float]]] = {}
        for row, (label, column) in itertools.product(rows, columns.items()):
            step, value = row.get("step"), row.get(column)
            if step is not None and value is not None and math.isfinite(value):
                curves.setdefault(label, []).append((step, value))
        if curves:
            drawing = plots.lines(curves, title, from_zero=from_zero, name=f"curve{number}")
            result.append({"title": title, "svg": drawing})
    return result


def _sweep(results: Results) -> dict[str, Any] | None:
    sweep = results.sweep
    if sweep is None:
        return None
    statuses = [trial["status"] for trial in sweep["trials"]]
    variants = aggregate(sweep)
    return {
        "summary": ", ".join(
            f"{statuses.count(status)} {status}" for status in _STATUSES if status in statuses
        ),
        "time": console.duration(sweep["wall_seconds"]),
        "scatter": sweep_plots.objectives(variants, objectives(sweep), equal_flops(sweep)),
        "heads": heads_table.section(sweep, variants),
        "effects": sweep_plots.effects(variants),
        "by_length": position_plots.scores_by_length(variants, length_scores.read(sweep)),
        "curves": sweep_plots.validation_losses(variants),
        "seeds": most_seeds(variants),
    }


def _commit(tree: Mapping[str, str]) -> str | None:
    """What to check out for these results, or None where it is unknown."""
    commit = tree.get("git.commit", "unknown")
    if commit == "unknown":
        return None
    more = {
        "true": "   # and changes that were not committed",
        "false": "",
        # As in a job, where $SEQ2SWEEP_COMMIT says nothing of params.yaml.
        "unknown": "   # and, if it differs, the params.yaml of this run (lineage.json in MLflow)",
    }
    return commit + more[tree.get("git.dirty", "unknown")]
