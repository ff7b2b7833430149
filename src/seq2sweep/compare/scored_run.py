"""A run that can be compared: a trial or variant of a sweep, or a folder of weights."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seq2sweep.config.datasets import TREES
from seq2sweep.config.scores import BLEU, F1, Score
from seq2sweep.data.files import MANIFEST, RECEIPT, text_name
from seq2sweep.data.reading import read_lines
from seq2sweep.decode.exported_weights import read_receipt
from seq2sweep.errors import UserError, did_you_mean
from seq2sweep.paths import REPRO, read_json
from seq2sweep.project_files import (
    CLEAN,
    EVALUATED,
    MODEL,
    REPORTS,
    STUDENT,
    STUDENT_EVALUATED,
    SWEEP,
    TRANSLATIONS,
)
from seq2sweep.report.aggregate import Trial, is_selected, is_weak, over_seeds, variant_of
from seq2sweep.storage.atomic import sha256

WITHOUT_EFFECT = ("download", "sweep", "cluster", "tracking")
"""Sections of which a training's figures do not depend."""
SHOWN = 12
"""Names of trials that an error lists."""


class Evaluated(NamedTuple):
    """Where a stage leaves the scores of weights, and their translations."""

    stage: str
    metrics: Path
    translations: Path


EVALUATIONS = {
    MODEL: Evaluated("evaluate", EVALUATED, TRANSLATIONS),
    STUDENT: Evaluated("student", STUDENT_EVALUATED, REPORTS / "semi_supervised.tsv"),
}
"""By the folder of the weights, which may also be a copy: they are told by their sums."""

Texts = tuple[list[list[str]], list[str]]
"""Translations, a list a training, and their references."""


@dataclass(frozen=True)
class Scores:
    """What a run scored.

    each: of each of its trainings, by the run's score; figures: means over them by name, such as
    `chrf`, None where not known; test_set: what was translated, the same exactly where scores can
    be compared, None if not known; texts: reads translations and references, raises
    NotComparableError where they are not there, or should not be tested.
    """

    each: list[float]
    figures: dict[str, float | None]
    signature: str
    test_set: dict[str, Any] | None
    texts: Callable[[], Texts]


@dataclass(frozen=True)
class ScoredRun:
    """A run.

    about: what it is, in words; score: by which it is compared; remarks: how trainings of it ended
    that did not finish; config: sections as params.yaml has them, as far as they are known;
    lineage: tags that name code and data; unknown: why there are no scores or what they are of, and
    how to know; project: the folder whose data it was scored on; weights: its folder of weights, or
    of checkpoints, of one training only.
    """

    name: str
    about: str
    score: Score
    remarks: list[str]
    config: Mapping[str, Any]
    lineage: Mapping[str, Any]
    scores: Scores | None = None
    unknown: str | None = None
    project: Path = Path()
    weights: Path | None = None


class NotComparableError(Exception):
    """A text is not there, or is not the one that was scored."""


def find(name: str) -> ScoredRun:
    """The run that a name stands for: a folder of weights, another project's folder, or a trial.

    `FOLDER:TRIAL` is a trial of the project in that folder. Raises UserError for anything else, and
    where what is there is damaged or of another shape.
    """
    # Of os.path, for which what is too long for a path is none: a variant has such names.
    if os.path.isdir(name or "."):
        return _weights(Path(name))
    if os.path.isfile(name):
        raise UserError(
            f"{name} is a file: two files of translations are compared by a reference, add "
            "REFERENCE --to LANGUAGE"
        )
    folder, separator, trial = name.partition(":")
    if separator and os.path.isdir(folder or "."):
        return _trial(Path(folder), trial)
    if not SWEEP.exists():
        raise UserError(
            f"{name} is missing, and there is no {SWEEP} that could have a trial of that "
            f"name: {REPRO}"
        )
    return _trial(Path(), name)


@contextlib.contextmanager
def _shaped(path: Path, what: str, stage: str) -> Iterator[None]:
    """Say that a file of the stage has another shape, where the block trips over that."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no {what} ({error!r}): run `dvc repro -f {stage}`") from None


def _read_scored(path: Path, wanted: str, remedy: str) -> list[str]:
    """The lines of a text, if it is the one with this sha256; raises NotComparableError."""
    if not path.is_file():
        raise NotComparableError(f"{path} is missing: {remedy}")
    if sha256(path) != wanted:
        raise NotComparableError(f"{path} is not the text that was scored: {remedy}")
    return list(read_lines(path))


def _read_references(project: Path, test_set: Mapping[str, Any]) -> list[str]:
    """What the translations of a test set were scored against; raises NotComparableError."""
    file = project / CLEAN / text_name(test_set["split"], "target")
    return _read_scored(file, test_set["target"], "run `dvc checkout data/clean`, or `dvc repro`")


def _scored_on(test_set: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """All that two scores must agree on to be compared."""
    lowercase = config["prepare"]["lowercase"]
    return {**test_set, "to": config["data"]["target"], "lowercase": lowercase}


# --- trials and variants of a sweep --------------------------------------------------------------


def _trial(project: Path, name: str) -> ScoredRun:
    """A variant with all of its seeds, or one trial of it (`base seed=2`)."""
    path = project / SWEEP
    sweep = read_json(path)
    with _shaped(path, "report of a sweep", "sweep"):
        trials, score = _named(path, sweep["trials"], name), Score.of(sweep)
        scored = [trial for trial in trials if trial[score.name] is not None]
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
            score=score,
            remarks=remarks,
            config=config,
            lineage=sweep.get("lineage") or {},
            scores=_trial_scores(project, sweep, config, trials, measured) if measured else None,
            unknown=unknown,
            project=project,
            weights=_checkpoints(project, measured),
        )


def _checkpoints(project: Path, trials: Sequence[Trial]) -> Path | None:
    """The folder of a trial, in which its translations are beside its checkpoints."""
    if len(trials) != 1 or not trials[0].get("translations"):
        return None
    return Path(project, trials[0]["translations"]["file"]).parent


def _named(path: Path, trials: Sequence[Trial], name: str) -> list[Trial]:
    """The trials of a variant, else the one trial, of this name."""
    variants = [variant_of(trial) for trial in trials]
    names = [trial["name"] for trial in trials]
    for known in (variants, names):
        if name in known:
            return [trial for own, trial in zip(known, trials, strict=True) if own == name]
    listed = ", ".join(dict.fromkeys(variants[:SHOWN])) + ", ..." * (len(variants) > SHOWN)
    hint = did_you_mean(name, [*variants, *names], 0.5) or f"; it has {listed or 'none'}"
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


def _trial_scores(
    project: Path,
    sweep: Mapping[str, Any],
    config: Mapping[str, Any],
    trials: Sequence[Trial],
    measured: Sequence[Trial],
) -> Scores:
    """trials: all of the run; measured: those of them that its scores are of."""
    test_set: Any = sweep.get("test_set")

    def texts() -> Texts:
        selected = is_selected(trials) and measured[0]["status"] == "finished"
        why = (
            "those that finished were the better ones: name one of them alone"
            if selected
            else "only what finished is compared"
        )
        for trial in trials:
            if trial["status"] == "stopped early" or (selected and is_weak(trial)):
                raise NotComparableError(f"{_remark(trial)}, and {why}")
        cluster = (sweep.get("config") or {}).get("cluster") or {}
        remedy = (
            # A job's trials stay where it ran, and another would find them there.
            f"it is in the cluster.storage of a job, {cluster['storage']}; copy it from there"
            if cluster.get("job_server")
            else "run `dvc repro -f sweep`, which trains again only what cluster.storage has lost"
        )
        places = [trial["translations"] for trial in measured]
        translations = [_read_scored(project / p["file"], p["sha256"], remedy) for p in places]
        return translations, _read_references(project, test_set)

    score = Score.of(sweep)
    found = {name: over_seeds(measured, name) for name in score.metrics}
    found["perplexity"] = over_seeds(measured, "valid_perplexity")
    return Scores(
        each=[float(trial[score.name]) for trial in measured],
        figures={name: None if known is None else known.mean for name, known in found.items()},
        signature=measured[0]["signature"],
        test_set=test_set and _scored_on(test_set, config),
        texts=texts,
    )


# --- folders of weights, with the scores of the evaluation that used them ------------------------


def _model(folder: Path) -> dict[str, Any]:
    """What a receipt says, of a model in one folder."""
    from seq2sweep.decode.model_folder import read_model_config  # torch takes seconds to load

    held = read_model_config(folder)
    about = held["about"]
    entries = zip(about.get("steps", ()), about.get("checkpoints", ()), strict=True)
    checkpoints = [{"step": step, "sha256": sha256} for step, sha256 in entries]
    # How it is searched says nothing of how it was scored.
    config = {
        section: values for section, values in held["config"].items() if section != "evaluate"
    }
    return {"config": config, "lineage": about.get("lineage", {}), "checkpoints": checkpoints}


def _weights(folder: Path) -> ScoredRun:
    """Weights by their receipt, a model in one folder, or the training of that folder's project."""
    if not (folder / RECEIPT).exists() and (folder / MODEL / RECEIPT).exists():
        folder = folder / MODEL
    if not any((folder / name).exists() for name in (RECEIPT, MANIFEST)):
        student = " where self_training.sentences is above 0" * (folder.name == STUDENT.name)
        raise UserError(
            f"{folder} has no weights, and is no project whose {MODEL} has some: `dvc repro` "
            f"trains them there{student}"
        )
    receipt = _model(folder) if (folder / MANIFEST).exists() else read_receipt(folder)
    ours = EVALUATIONS.get(Path(*folder.parts[-2:]))
    sums = {entry["step"]: entry["sha256"] for entry in receipt["checkpoints"]}
    run = ScoredRun(
        name=str(folder),
        about=f"weights of steps {', '.join(map(str, sums))}",
        score=F1 if receipt["config"].get("data", {}).get("target") == TREES else BLEU,
        remarks=[],
        config=receipt["config"],
        lineage=receipt["lineage"],
        unknown=f"{ours.metrics} of its project is missing or of other weights; `dvc repro "
        f"{ours.stage}` there makes it"
        if ours
        else f"stages score {' and '.join(map(str, EVALUATIONS))} alone, and no evaluation here "
        "is of the weights in this folder",
        weights=folder,
    )
    # The evaluation may be in the weights' own project, or in this one.
    own = [Path(*folder.parts[:-2])] if ours else []
    projects = dict.fromkeys([*own, Path()])
    for project, one in itertools.product(projects, EVALUATIONS.values()):
        path = project / one.metrics
        if not path.is_file():
            continue
        metrics = read_json(path)
        with _shaped(path, "evaluation", one.stage):
            made_from = metrics.get("made_from")
            if made_from is None:
                continue  # of an earlier version
            used, steps = made_from["weights"], metrics["averaged_checkpoints"]
            if used == [sums.get(step) for step in steps]:
                config = {**run.config, "evaluate": made_from["evaluate"]}
                scores = _evaluated(project, one, metrics, config, run.score)
                return dataclasses.replace(
                    run, config=config, scores=scores, unknown=None, project=project
                )
    return run


def _evaluated(
    project: Path,
    one: Evaluated,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    score: Score,
) -> Scores:
    made_from = metrics["made_from"]

    def texts() -> Texts:
        remedy = f"run `dvc checkout {one.translations}`, or `dvc repro -f {one.stage}`"
        table = _read_scored(project / one.translations, made_from["translations"], remedy)
        translations = [line.split("\t")[2] for line in table[1:]]
        return [translations], _read_references(project, made_from["test_set"])

    if score == BLEU:
        bleu = metrics["bleu"]
        figures = {
            "bleu": bleu["sacrebleu"]["score"],
            "bleu_paper": bleu["paper"]["score"],
            "chrf": metrics["chrf"]["score"],
        }
        signature = bleu["sacrebleu"]["signature"]
    else:
        figures = {name: metrics[name] for name in score.metrics}
        signature = metrics["signature"]
    return Scores(
        each=[figures[score.name]],
        figures=figures | {"perplexity": metrics["perplexity"]},
        signature=signature,
        test_set=_scored_on(made_from["test_set"], config),
        texts=texts,
    )
