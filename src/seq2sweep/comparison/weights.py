"""Folders of weights, by their receipts, with the scores of the evaluation that used them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2sweep.comparison.side import (
    Missing,
    Scores,
    Side,
    read_json,
    read_references,
    read_scored,
    scored_on,
)
from seq2sweep.data.files import RECEIPT
from seq2sweep.decode.exported import read_receipt

WEIGHTS = Path("models/train")
METRICS = Path("metrics/evaluate.json")
TRANSLATIONS = Path("reports/translations.tsv")


def find(folder: Path) -> Side:
    """Weights, or the training of the project in that folder.

    Raises UserError when the receipt, or the evaluation beside it, is damaged or missing.
    """
    if not (folder / RECEIPT).exists() and (folder / WEIGHTS / RECEIPT).exists():
        folder = folder / WEIGHTS
    receipt = read_receipt(folder)
    steps = ", ".join(str(entry["step"]) for entry in receipt["checkpoints"])
    found = _evaluation(folder, receipt)
    config = dict(receipt["config"])
    scores = unknown = None
    if found is None:
        unknown = (
            f"{METRICS} of its project is missing or of other weights; `dvc repro evaluate` there "
            "makes it"
        )
    else:
        project, metrics = found
        config["evaluate"] = metrics["made_from"]["evaluate"]
        scores = _scores(project, metrics, config)
    return Side(
        name=str(folder),
        about=f"weights of steps {steps}",
        remarks=[],
        config=config,
        lineage=receipt["lineage"],
        scores=scores,
        unknown=unknown,
    )


def _evaluation(folder: Path, receipt: Mapping[str, Any]) -> tuple[Path, dict[str, Any]] | None:
    """The project whose evaluation used these very weights, and its metrics/evaluate.json.

    It is the folder's own project, or this one where the folder is a copy.
    """
    sums = {entry["step"]: entry["sha256"] for entry in receipt["checkpoints"]}
    above = Path(*folder.parts[:-2]) if folder.parts[-2:] == WEIGHTS.parts else None
    for project in dict.fromkeys([above or Path(), Path()]):
        if not (project / METRICS).is_file():
            continue
        metrics = read_json(project / METRICS)
        used = metrics.get("made_from", {}).get("weights")
        averaged = metrics.get("averaged_checkpoints", [])
        if used and used == [sums.get(step) for step in averaged]:
            return project, metrics
    return None


def _scores(project: Path, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Scores:
    bleu, made_from = metrics["bleu"], metrics["made_from"]
    translations: list[list[str]] = []
    references: list[str] = []
    missing = None
    try:
        table = read_scored(
            project / TRANSLATIONS, made_from["translations"], "run `dvc checkout reports`"
        )
        references = read_references(project, made_from["test_set"])
        translations = [[line.split("\t")[2] for line in table[1:]]]
    except Missing as why:
        missing = str(why)
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
        translations=translations,
        references=references,
        missing=missing,
    )
