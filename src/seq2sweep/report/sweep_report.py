"""What a sweep says of its trials in reports/sweep.json and metrics/sweep.json."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import console, hardware
from seq2sweep.config import Config
from seq2sweep.config.scores import SCORES, Score
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError
from seq2sweep.evaluate.by_length import ScoresByLength, TrainedOn
from seq2sweep.evaluate.scorers import Scorer, scorer
from seq2sweep.evaluate.significance import against_base
from seq2sweep.model import flops
from seq2sweep.redaction import redact
from seq2sweep.report.aggregate import aggregate
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.storage.atomic import sha256
from seq2sweep.sweep.contest import Entrant
from seq2sweep.sweep.optuna_search import FIGURE_OF, HIGHER_IS_BETTER
from seq2sweep.sweep.search import Proposal
from seq2sweep.sweep.search_space import SWEPT_SECTIONS
from seq2sweep.sweep.trial_record import TrialResult, nodes_of
from seq2sweep.sweep.variants import Refused, Variant

FIGURES = ("signature", "flops", "mfu", "device_hours", "energy_kwh")
"""Of a trial that did not fail, where they are known, beside the metrics of its score."""

Span = tuple[float, float]
"""Unix seconds, from and to."""

FEWEST_SENTENCES = 6
"""Draws of fewer are so much alike that an interval of theirs tells nothing: of one all are."""
MOST_POINTS = 1000
"""Of a learning curve; more are thinned out evenly."""
ORIGIN = {name: "train_precision" if name == "precision" else name for name in hardware.ORIGIN}
"""Its keys in an entry, where `precision` is a score of trees."""
COUNTS = ("trials", "finished", "stopped_early", "failed", "refused")
"""The keys of metrics/sweep.json that count trials."""


def describe(
    result: TrialResult,
    vocabulary_size: int,
    run_ids: dict[str, str | None],
    shared: bool | None = None,
) -> dict[str, Any]:
    """One entry of reports/sweep.json; shared: its device with other trials, as `sharing` says."""
    variant = result.variant
    entries = journal.entries(result.journal, "validated")
    # What is beyond is of steps that are lost, as of `TrialRecord.figures`. A step that was trained
    # twice counts once, or of two seeds other steps would be left.
    losses = {e["step"]: e["valid_loss"] for e in entries if e["step"] <= result.steps}
    values, score = configuration.to_dict(variant.config), SCORES[variant.config.data.score]
    entry = _entry(variant, variant.variant, values, score, result.status, result.cause) | {
        "params_sha256": configuration.fingerprint(variant.config),
        "steps": result.steps,
        "wall_seconds": result.wall_seconds,
        "nodes": result.nodes,
        **{key: result.origin.get(name) for name, key in ORIGIN.items()},
        "shared_device": shared,
        "curve": journal.thinned(sorted(losses.items()), MOST_POINTS),
        "mlflow_run_id": run_ids.get(variant.name),
    }
    if result.status != "failed":
        entry["translations"] = _translations(result)
        entry["heads"] = result.metrics.get("heads")
        names = (*(score.metrics if result.scored else ()), *FIGURES)
        entry |= {name: result.metrics.get(name) for name in names}
        entry["valid_perplexity"] = result.metrics.get("valid_perplexity")
        entry["parameters"] = flops.parameter_count(variant.config.model, vocabulary_size)
    return entry


def describe_refused(variant: Refused, score: Score) -> dict[str, Any]:
    """The entry of a variant that nothing was trained of: the same keys, all figures null."""
    return _entry(variant, variant.name, variant.values, score, "refused", variant.cause)


def _entry(
    variant: Variant | Refused,
    name: str,
    values: Mapping[str, Any],
    score: Score,
    status: str,
    cause: str | None,
) -> dict[str, Any]:
    """All keys of a trial, those null that only a training makes known; values: of all sections."""
    return {
        "name": variant.name,
        "variant": name,
        "row": variant.row.name if variant.row else None,
        "group": variant.row.group if variant.row else None,
        "seed": values["train"]["seed"],
        "changes": variant.changes,
        "model": values["model"],
        "train": values["train"],
        "status": status,
        "cause": cause,
        "params_sha256": None,
        "steps": 0,
        "valid_perplexity": None,
        **dict.fromkeys((*score.metrics, *FIGURES)),
        "parameters": None,
        "wall_seconds": 0.0,
        "nodes": [],
        **dict.fromkeys(ORIGIN.values()),
        "shared_device": None,
        "curve": [],
        "translations": None,
        "heads": None,
        "mlflow_run_id": None,
    }


def sharing(results: Sequence[TrialResult]) -> dict[str, bool | None]:
    """Of each trial, by name, whether others ran at its time on the device that its hours count.

    That is a node's processor, or a GPU of which each trial gets a part. None where it is not
    known: of trials of several workers it is not kept where they ran. The time of one that was
    interrupted is all from its beginning to its end. Others are also those that the sweep had
    before it was changed, and whose folders are still there.
    """
    spans = {result.variant.name: _span(result) for result in results}
    before = _of_before(results)

    def shared(one: TrialResult) -> bool | None:
        device, span = one.origin.get("device"), spans[one.variant.name]
        if device not in (None, "CPU") and one.variant.config.sweep.gpus_per_trial > 0.5:
            return False  # no second one has room there
        if device is None or not one.nodes or span is None:
            return None
        others = [
            spans[other.variant.name]
            for other in results
            if other.journal != one.journal and set(one.nodes) & set(other.nodes)
        ]
        others += [other for nodes, other in before if set(one.nodes) & set(nodes)]
        return any(other and max(span[0], other[0]) < min(span[1], other[1]) for other in others)

    return {one.variant.name: shared(one) for one in results}


def _of_before(results: Sequence[TrialResult]) -> list[tuple[list[str], Span | None]]:
    """Nodes and time of the trials beside these, which belong to the sweep no more.

    One whose journal is damaged is passed over: this sweep's results do not depend on it.
    """
    ours = {result.journal.parent for result in results}
    beside = {folder for trials in {one.parent for one in ours} for folder in trials.iterdir()}
    before = []
    for folder in sorted(beside - ours):
        with contextlib.suppress(UserError):
            if nodes := nodes_of(folder):
                before.append((nodes, _times(folder / JOURNAL_NAME)))
    return before


def _span(result: TrialResult) -> Span | None:
    """When it began and ended, in unix seconds; its journal's first line comes later than that."""
    times = _times(result.journal)
    return times and (min(times[0], times[1] - result.wall_seconds), times[1])


def _times(path: Path) -> Span | None:
    """Of a journal's first line and of its last."""
    times = [entry["time"] for entry in journal.entries(path) if "time" in entry]
    return (times[0], times[-1]) if times else None


def whole(
    config: Config,
    base: Config,
    lineage: dict[str, str],
    test_set: dict[str, str],
    vocabulary_size: int,
    **found: Any,
) -> dict[str, Any]:
    """reports/sweep.json: how variants were chosen and trained, and what all trials have alike,
    which is with `model` and `train` of one its params.yaml.

    base: the base variant. test_set: what was translated, as `files.test_set` says. found: the
    values that training made known, by their keys. Secrets in addresses are masked.
    """
    sections = configuration.to_dict(base)
    return {
        "wall_seconds": 0.0,
        "mlflow_run_id": None,
        "vocabulary_size": vocabulary_size,
        "config": {k: _redacted(v) for k, v in sections.items() if k not in SWEPT_SECTIONS},
        "lineage": lineage,
        "test_set": test_set,
        "method": config.sweep.method,
        "scheduler": config.sweep.scheduler,
        "budget": config.sweep.budget,
        "seeds": config.sweep.seeds,
        "split": "valid",
        "dataset": config.data.dataset,
        **SCORES[config.data.score].mark,
        "base": {section: sections[section] for section in SWEPT_SECTIONS},
        "trials": [],
        "significance": None,
        "by_length": None,
        **found,
    }


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _translations(result: TrialResult) -> dict[str, str] | None:
    """Which those of the validation set are, and where: seen from the project if they are in it.

    Else the path is absolute, since the stage may run in a copy of the project.
    """
    if not result.scored:
        return None
    place, project = result.translations, Path.cwd().resolve()
    if place.is_relative_to(project):
        place = place.relative_to(project)
    return {"file": place.as_posix(), "sha256": sha256(result.translations)}


def refused_of(proposals: Sequence[Proposal]) -> list[Refused]:
    """The variants of a search that nothing was trained of, each once."""
    return [p.made for p in proposals if isinstance(p.made, Refused) and not p.repeats]


def describe_search(config: Config, proposals: Sequence[Proposal]) -> dict[str, Any]:
    """What reports/sweep.json says of a search besides its trials; nothing of other methods.

    Of each objective the figure of a trial that it is, and of each proposal the variant, which
    is an earlier one's where it repeats it.
    """
    if config.sweep.method != "optuna":
        return {}
    return {
        "objectives": [
            {
                "name": name,
                "figure": FIGURE_OF.get(name, name),
                "better": "higher" if HIGHER_IS_BETTER[name] else "lower",
            }
            for name in config.sweep.objectives
        ],
        "proposals": [
            {key: getattr(one, key) for key in ("number", "round", "variant", "repeats")}
            for one in proposals
        ],
    }


def describe_entrants(config: Config, entrants: Sequence[Entrant]) -> dict[str, Any]:
    """What reports/sweep.json says of method table2 besides its trials: the tries of each
    architecture, and the learning rate that was chosen, as a multiple of the base's."""
    if config.sweep.method != "table2":
        return {}
    rates = config.sweep.learning_rates
    return {
        "table2": {
            "optimizer": config.sweep.base.get("train.optimizer", config.train.optimizer),
            "search_share": config.sweep.search_share,
            "learning_rates": list(rates),
            "architectures": [
                {
                    "variant": one.name,
                    "best": one.best,
                    "tries": [
                        {
                            "learning_rate": rate,
                            "status": result.status,
                            "cause": result.cause,
                            "steps": result.steps,
                            **{
                                figure: result.metrics.get(figure)
                                for figure in ("valid_perplexity", "flops", "device_hours")
                            },
                        }
                        for rate, result in zip(rates, one.tries, strict=False)
                    ],
                }
                for one in entrants
            ],
        }
    }


def significance(
    config: Config, results: Sequence[TrialResult], references: Path
) -> dict[str, Any] | None:
    """Each variant against the base, by their finished trials; None where the base has none.

    references: of the validation set.
    """
    files: dict[str, list[Path]] = {}
    for result in results:
        if result.status == "finished" and result.scored:
            files.setdefault(result.variant.variant, []).append(result.translations)
    # Of Table 2 the base may be missing, and then the first is another one.
    name = next((one.variant.variant for one in results if not one.variant.changes), "")
    if name not in files:
        return None
    base, of = _texts(files.pop(name)), _scorer(config, references)
    variants = console.progress(files.items(), "compare with base", "variants", len(files))
    found = {name: against_base(base, _texts(own), of) for name, own in variants}
    if of.sentences < FEWEST_SENTENCES:
        found = {name: of_one | {"low": -100.0, "high": 100.0} for name, of_one in found.items()}
    return found


def _texts(files: Sequence[Path]) -> list[list[str]]:
    return [list(read_lines(file)) for file in files]


def _scorer(config: Config, references: Path) -> Scorer:
    lines, lowercase = list(read_lines(references)), config.prepare.lowercase
    return scorer(lines, config.data.target, lowercase=lowercase)


def by_length(
    config: Config, results: Sequence[TrialResult], references: Path, encoded: Path
) -> dict[str, Any] | None:
    """The score of each scored trial by the length of the source; None where none was scored.

    `trained_on`: what `TrainedOn` says of the training data; `signature`: of the score; `bins` and
    `bleu` or `f1`, by the trial's name, as `ScoresByLength` gives them. references: of the
    validation set; encoded: folder of the encoded splits. Translations are those that trials left.
    """
    scored = [one for one in results if one.status != "failed" and one.scored]
    if not scored:
        return None
    train, valid = (Bitext.open(encoded, split) for split in ("train", "valid"))
    trained_on = TrainedOn.of(train.source_lengths)
    of = _scorer(config, references)
    scores = ScoresByLength(of, valid.source_lengths, trained_on=trained_on)
    return {
        "trained_on": dataclasses.asdict(trained_on),
        "signature": of.signature,
        "bins": scores.bins,
        of.name: {
            one.variant.name: scores.score(list(read_lines(one.translations)))
            for one in console.progress(scored, "score by length", "trials")
        },
    }


def summarise(report: dict[str, Any]) -> dict[str, Any]:
    """metrics/sweep.json, from reports/sweep.json: counts, scores and the best variant."""
    trials, score = report["trials"], Score.of(report).name
    statuses = [trial["status"] for trial in trials]
    return {
        "trials": len(trials),
        **{key: statuses.count(key.replace("_", " ")) for key in COUNTS[1:]},
        "best": _best(report, score),
        score: {trial["name"]: trial[score] for trial in trials},
    }


def _best(report: dict[str, Any], score: str) -> dict[str, Any] | None:
    """The variant of the highest mean score on the validation set, of finished trials alone; one
    that is not `comparable` only where none is.

    name, steps: of its best trial; bleu, or f1: the variant's mean.
    """
    ranks = {
        variant.name: (variant.comparable, variant.mean(score) or 0.0)
        for variant in aggregate(report)
    }
    finished = [
        trial
        for trial in report["trials"]
        if trial["status"] == "finished" and trial[score] is not None
    ]
    if not finished:
        return None
    best = max(finished, key=lambda trial: (ranks[trial["variant"]], trial[score]))
    own = {key: best[key] for key in ("variant", "name", "steps")}
    return own | {score: ranks[best["variant"]][1]}
