"""Whether the scores of a project are those of its files: `seq2sweep evaluate --check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import read_header
from seq2sweep.data.files import RECEIPT
from seq2sweep.decode.exported_weights import read_receipt
from seq2sweep.errors import UserError
from seq2sweep.evaluate.evaluation import Data, Evaluation, evaluate_weights, shown_by_dvc
from seq2sweep.evaluate.translator import Translator
from seq2sweep.paths import mismatch, read_json
from seq2sweep.project_files import (
    CLEAN,
    ENCODED,
    EVALUATED,
    METRICS,
    MODEL,
    PARAMS,
    TRANSLATIONS,
    VOCABULARY,
)
from seq2sweep.storage.atomic import sha256

TOLERANCE = 1e-6
"""Relative. Sums of float32 come out in another order with another number of threads."""
SHOWN = METRICS / "dvc/evaluate.json"
OF_THE_RUN = ("mlflow_run_id", "decode_seconds")
"""What no file determines."""
ASKED = {"split": str, "decode_seconds": float, "made_from": {"evaluate": dict}}
"""Of metrics/evaluate.json, what it takes to evaluate once more."""


@dataclass(frozen=True)
class Figure:
    """One of a file, by its dotted key; None stands for one that is missing."""

    file: Path
    key: str
    stored: Any
    found: Any

    @property
    def same(self) -> bool:
        """Numbers within TOLERANCE, all else exactly."""
        pair = (self.stored, self.found)
        if all(type(one) in (int, float) for one in pair):
            return math.isclose(*pair, rel_tol=TOLERANCE)
        return bool(self.stored == self.found)


def evaluate_project(
    project: Path,
    on_start: Callable[[int], object],
    on_done: Callable[[int], object],
    *,
    check: bool,
) -> tuple[Evaluation, list[Figure]]:
    """Evaluate the weights of a project once more, as when metrics/evaluate.json was written.

    The settings are those of that file and of the receipt beside the weights, whatever params.yaml
    has now. on_start hears how many sentences there are, on_done how many more are translated. With
    `check` the figures are all of metrics/evaluate.json and metrics/dvc/evaluate.json that files
    determine, and the sum of reports/translations.tsv. Raises UserError, before anything is
    translated, for a file that is missing or damaged.
    """
    path = project / EVALUATED
    stored = read_json(path)
    if wrong := mismatch(stored, ASKED):
        raise UserError(f"{path}: {wrong}: run `dvc repro -f evaluate`, which writes it again")
    config = _settings(project, stored)
    beside = _beside(project) if check else None
    data = Data(project / CLEAN, project / VOCABULARY, project / ENCODED)
    on_start(read_header(data.encoded, stored["split"])["sentences"])
    translator = Translator(project / MODEL, data.vocabulary, config.evaluate)
    found = evaluate_weights(config, translator, data, stored["split"], on_done)
    if beside is None:
        return found, []
    return found, list(_compared(beside, config, stored, found.metrics))


def _beside(project: Path) -> tuple[Any, str]:
    """What metrics/dvc/evaluate.json says, and the sum of reports/translations.tsv."""
    path = project / TRANSLATIONS
    if not path.is_file():
        raise UserError(f"{path} is missing: run `dvc repro evaluate`, which makes it")
    return read_json(project / SHOWN), sha256(path)


def _settings(project: Path, stored: Mapping[str, Any]) -> Config:
    values = configuration.to_dict(configuration.load(project / PARAMS))
    # What no score depends on need not go with what was scored.
    values |= {"attention": {}, "self_training": {}}
    values["sweep"] = {**values["sweep"], "method": "none"}
    values["cluster"] = {**values["cluster"], "fsdp": False}
    values |= read_receipt(project / MODEL)["config"]
    values["evaluate"] = stored["made_from"]["evaluate"]
    return configuration.from_dict(values, f"{project / EVALUATED}, {project / MODEL / RECEIPT}")


def _compared(
    beside: tuple[Any, str], config: Config, stored: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Iterator[Figure]:
    # What it says nothing of, as it was written before there was the key.
    known = configuration.to_dict(config)["evaluate"]
    made_from = stored["made_from"]
    made_from = {**made_from, "evaluate": {**known, **made_from["evaluate"]}}
    later = {"stopping": known["stopping"], "search_precision": known["precision"]}
    stored = {**later, **stored, "made_from": made_from}
    pieces = metrics["decode_tokens_per_second"] * metrics["decode_seconds"]
    found = dict(metrics) | {"decode_tokens_per_second": pieces / (stored["decode_seconds"] or 1)}
    for file, there, here in (
        (EVALUATED, stored, found),
        (SHOWN, beside[0], shown_by_dvc(found, config)),
    ):
        before, now = dict(configuration.leaves(there)), dict(configuration.leaves(here))
        for key in {**before, **now}:
            if key not in OF_THE_RUN:
                yield Figure(file, key, before.get(key), now.get(key))
    yield Figure(TRANSLATIONS, "sha256", beside[1], metrics["made_from"]["translations"])


def overview(figures: list[Figure]) -> str:
    """A line for each that differs, and how many are the same."""
    lines = [
        f"{figure.file}: {figure.key} is {figure.stored}, but {figure.found} by the files"
        for figure in figures
        if not figure.same
    ]
    same = sum(figure.same for figure in figures)
    return "\n".join([*lines, f"{same} of {len(figures)} metrics are those of the files"])
