"""Trials and variants of a sweep, by the names that reports/sweep.json has for them."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep.compare.scored_run import (
    NotComparableError,
    ScoredRun,
    Scores,
    Texts,
    read_references,
    read_scored,
    scored_on,
)
from seq2sweep.errors import UserError
from seq2sweep.paths import read_json
from seq2sweep.report.aggregate import over_seeds

REPORT = Path("reports/sweep.json")
FIGURES = {
    "bleu": "bleu",
    "bleu_paper": "bleu_paper",
    "chrf": "chrf",
    "perplexity": "valid_perplexity",
}
WITHOUT_EFFECT = ("download", "sweep", "cluster", "tracking")
"""Sections of which a training's figures do not depend."""
SHOWN = 12
"""Names of trials that an error lists."""

Trial = Mapping[str, Any]


def find(project: Path, name: str) -> ScoredRun:
    """A variant with all of its seeds, or one trial of it (`base seed=2`).

    Raises UserError where the sweep's report is missing or has no such name.
    """
    path = project / REPORT
    sweep = read_json(path)
    try:
        return _scored_run(path, project, sweep, name)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is no report of a sweep ({error!r}): run `dvc repro -f sweep`"
        ) from None


def _scored_run(path: Path, project: Path, sweep: Mapping[str, Any], name: str) -> ScoredRun:
    trials = _named(path, sweep["trials"], name)
    scored = [trial for trial in trials if trial["bleu"] is not None]
    finished = [trial for trial in scored if trial["status"] == "finished"]
    # As the report has it: those stopped early count where none has finished.
    measured = finished or scored
    shown = measured or trials
    config = {k: v for k, v in (sweep.get("config") or {}).items() if k not in WITHOUT_EFFECT}
    seeds = [trial["train"]["seed"] for trial in shown]
    config["model"] = shown[0]["model"]
    config["train"] = shown[0]["train"] | {"seed": seeds[0] if len(seeds) == 1 else seeds}
    trainings = "1 training" if len(measured) == 1 else f"{len(measured) or 'no'} trainings"
    remarks = [_remark(trial) for trial in trials if trial not in finished]
    unknown = None if measured else "; ".join(remarks)
    if not sweep.get("test_set"):
        unknown = unknown or f"{path} does not say what was translated: run `dvc repro sweep`"
    return ScoredRun(
        name=name,
        about=f"{path}, {trainings}",
        remarks=remarks,
        config=config,
        lineage=sweep.get("lineage") or {},
        scores=_scores(project, sweep, config, measured) if measured else None,
        unknown=unknown,
    )


def _named(path: Path, trials: Sequence[Trial], name: str) -> list[Trial]:
    """The trials of a variant, else the one trial, of this name."""
    of_variant = [trial for trial in trials if (trial.get("variant") or trial["name"]) == name]
    found = of_variant or [trial for trial in trials if trial["name"] == name]
    if found:
        return found
    variants = [trial.get("variant") or trial["name"] for trial in trials]
    known = list(dict.fromkeys([*variants, *(trial["name"] for trial in trials)]))
    lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    listed = ", ".join(dict.fromkeys(variants[:SHOWN])) + ", ..." * (len(variants) > SHOWN)
    hint = f", did you mean {lower[close[0]]}?" if close else f"; it has {listed or 'none'}"
    raise UserError(f"{name} is neither a file, a folder nor a trial of {path}{hint}")


def _remark(trial: Trial) -> str:
    cause = f" ({' '.join(str(trial['cause']).split())})" if trial.get("cause") else ""
    if trial["status"] == "stopped early":
        step = f" at step {trial['steps']} of {trial['train']['steps']}"
        return f"{trial['name']} was stopped early{step}{cause}"
    if trial["status"] == "finished":
        return f"{trial['name']} has no score{cause}"
    was = "was refused" if trial["status"] == "refused" else trial["status"]
    return f"{trial['name']} {was}{cause}"


def _scores(
    project: Path, sweep: Mapping[str, Any], config: Mapping[str, Any], trials: Sequence[Trial]
) -> Scores:
    figures = {name: over_seeds(trials, key) for name, key in FIGURES.items()}
    test_set: Any = sweep.get("test_set")
    return Scores(
        bleu=[float(trial["bleu"]) for trial in trials],
        figures={name: None if known is None else known.mean for name, known in figures.items()},
        signature=trials[0]["signature"],
        test_set=test_set and scored_on(test_set, config),
        texts=functools.partial(_texts, project, test_set, trials),
    )


def _texts(project: Path, test_set: Mapping[str, Any], trials: Sequence[Trial]) -> Texts:
    """Raises NotComparableError where there are none that should be tested."""
    for trial in trials:
        if trial["status"] != "finished":
            raise NotComparableError(f"{_remark(trial)}, and only what finished is compared")
    remedy = "run `dvc repro -f sweep`, which trains again only what cluster.storage has lost"
    places = [trial["translations"] for trial in trials]
    translations = [read_scored(project / p["file"], p["sha256"], remedy) for p in places]
    return translations, read_references(project, test_set)
