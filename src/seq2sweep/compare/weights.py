"""Folders of weights, by their receipts, with the scores of the evaluation that used them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2sweep.compare.scored_run import (
    ScoredRun,
    Scores,
    Texts,
    read_references,
    read_scored,
    scored_on,
)
from seq2sweep.data.files import RECEIPT
from seq2sweep.decode.exported_weights import read_receipt
from seq2sweep.errors import UserError
from seq2sweep.paths import read_json

WEIGHTS = Path("models/train")
METRICS = Path("metrics/evaluate.json")
TRANSLATIONS = Path("reports/translations.tsv")


def find(folder: Path) -> ScoredRun:
    """Weights, or the training of the project in that folder.

    Raises UserError when the receipt, or the evaluation beside it, is damaged or missing.
    """
    if not (folder / RECEIPT).exists() and (folder / WEIGHTS / RECEIPT).exists():
        folder = folder / WEIGHTS
    receipt = read_receipt(folder)
    steps = ", ".join(str(entry["step"]) for entry in _checkpoints(receipt))
    side = ScoredRun(
        name=str(folder),
        about=f"weights of steps {steps}",
        remarks=[],
        config=receipt["config"],
        lineage=receipt["lineage"],
        unknown=f"{METRICS} of its project is missing or of other weights; `dvc repro evaluate` "
        "there makes it",
    )
    for project in _projects(folder):
        path = project / METRICS
        if not path.is_file():
            continue
        try:
            found = _evaluated(side, receipt, project, read_json(path))
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is no evaluation ({error!r}): run `dvc repro -f evaluate`"
            ) from None
        if found is not None:
            return found
    return side


def _checkpoints(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of training: a folder may hold their mean in place of them."""
    return [one for entry in receipt["checkpoints"] for one in entry.get("averaged") or [entry]]


def _projects(folder: Path) -> list[Path]:
    """Where the evaluation of weights may be: in their own project, or in this one."""
    own = [Path(*folder.parts[:-2])] if folder.parts[-2:] == WEIGHTS.parts else []
    return list(dict.fromkeys([*own, Path()]))


def _evaluated(
    side: ScoredRun, receipt: Mapping[str, Any], project: Path, metrics: Mapping[str, Any]
) -> ScoredRun | None:
    """With its scores, if the evaluation used these very weights."""
    made_from = metrics.get("made_from")
    if made_from is None:  # of an earlier version
        return None
    sums = {entry["step"]: entry["sha256"] for entry in _checkpoints(receipt)}
    if made_from["weights"] != [sums.get(step) for step in metrics["averaged_checkpoints"]]:
        return None
    config = {**side.config, "evaluate": made_from["evaluate"]}
    scores = _scores(project, metrics, config)
    return dataclasses.replace(side, config=config, scores=scores, unknown=None)


def _scores(project: Path, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Scores:
    bleu, made_from = metrics["bleu"], metrics["made_from"]
    return Scores(
        bleu=[bleu["sacrebleu"]["score"]],
        figures={
            "bleu": bleu["sacrebleu"]["score"],
            "bleu_paper": bleu["paper"]["score"],
            "chrf": metrics["chrf"]["score"],
            "perplexity": metrics["perplexity"],
        },
        signature=bleu["sacrebleu"]["signature"],
        test_set=scored_on(made_from["test_set"], config),
        texts=functools.partial(_texts, project, made_from),
    )


def _texts(project: Path, made_from: Mapping[str, Any]) -> Texts:
    """Raises NotComparableError where they are not those that were scored."""
    remedy = "run `dvc checkout reports/translations.tsv`, or `dvc repro -f evaluate`"
    table = read_scored(project / TRANSLATIONS, made_from["translations"], remedy)
    translations = [line.split("\t")[2] for line in table[1:]]
    return [translations], read_references(project, made_from["test_set"])
