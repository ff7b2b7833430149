"""Trials and variants of a sweep, by the names that reports/sweep.json has for them."""

from __future__ import annotations

import difflib
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep.compare.scored_run import (
    Missing,
    Scores,
    Side,
    Texts,
    read_references,
    read_scored,
    scored_on,
)
from seq2sweep.errors import UserError
from seq2sweep.paths import read_json

REPORT = Path("reports/sweep.json")
FIGURES = {"bleu_paper": "bleu_paper", "chrf": "chrf", "perplexity": "valid_perplexity"}
WITHOUT_EFFECT = ("download", "sweep", "cluster", "tracking")
"""Sections of which a training's figures do not depend."""
SHOWN = 12
"""Names of trials that an error lists."""

Trial = Mapping[str, Any]


def find(project: Path, name: str) -> Side:
    """A variant with all of its seeds, or one trial of it (`base seed=2`).

    Raises UserError where the sweep's report is missing or has no such name.
    """
    path = project / REPORT
    sweep = read_json(path)
    try:
        return _side(path, project, sweep, name)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is no report of a sweep ({error!r}): run `dvc repro -f sweep`"
        ) from None


def _side(path: Path, project: Path, sweep: Mapping[str, Any], name: str) -> Side:
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
    return Side(
        name=name,
        about=f"{path}, {trainings}",
        remarks=remarks,
        config=config,
        lineage=sweep.get("lineage") or {},
        scores=_scores(project, sweep, config, measured) if measured else None,
        unknown=None if measured else "; ".join(remarks),
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
    bleu = [float(trial["bleu"]) for trial in trials]
    figures = {name: _mean([trial.get(key) for trial in trials]) for name, key in FIGURES.items()}
    test_set = sweep.get("test_set")
    texts: Texts = ([], [])
    missing = None
    try:
        texts = _texts(project, test_set, trials)
    except Missing as why:
        missing = str(why)
    return Scores(
        bleu=bleu,
        figures={"bleu": statistics.fmean(bleu), **figures},
        signature=trials[0]["signature"],
        test_set=None if test_set is None else scored_on(test_set, config),
        translations=texts[0],
        references=texts[1],
        missing=missing,
    )


def _texts(project: Path, test_set: Mapping[str, Any] | None, trials: Sequence[Trial]) -> Texts:
    """Raises Missing where there are none that should be tested."""
    if test_set is None:
        raise Missing(f"{project / REPORT} does not say where they are: run `dvc repro sweep`")
    for trial in trials:
        if trial["status"] != "finished":
            raise Missing(f"{_remark(trial)}, and only what finished is compared")
    translations = [_translations(project, trial) for trial in trials]
    return translations, read_references(project, test_set)


def _translations(project: Path, trial: Trial) -> list[str]:
    place = trial["translations"]
    remedy = "run `dvc repro -f sweep`, which trains again only what cluster.storage has lost"
    return read_scored(project / place["file"], place["sha256"], remedy)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(known) if known else None
