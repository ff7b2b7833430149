"""A run's record as MLflow has it. A store may be shared, so what is read there is checked."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.errors import UserError
from seq2sweep.paths import mismatch, read_bytes
from seq2sweep.tracking.store_reader import StoreReader, gone

FOLDER = "reproduce"
PARAMS, LOCK, PACKAGES, PATCH, RECORD = FILES = (
    "params.yaml",
    "dvc.lock",
    "constraints.txt",
    "changes.patch",
    "record.json",
)
MOST_BYTES = 4 * 2**20
"""Of each file; what is recorded is far smaller."""
RESULTS = {
    "train": "metrics/train.json",
    "student": "metrics/student.json",
    "evaluate": "metrics/evaluate.json",
    "sweep": "reports/sweep.json",
}
"""The stages whose runs can be made again, and the file that says which run they recorded."""
SCORES = RESULTS | {"student": "metrics/semi_supervised.json"}
"""The same of the run with the scores: that stage trains, and then scores."""
SHAPE: dict[str, Any] = {
    "stage": str,
    "commit": str,
    "origin": (str, type(None)),
    "changes_missing": (str, type(None)),
    "identity": {},
    "machine": {},
    "trained": {},
    "outcome": {"weights": {}, "curves": {}, "scores": {}, "stopped_early": bool},
}
LONGEST_TEXT = 300
_COMPUTES = (
    "OMP_ KMP_ GOMP_ MKL_ OPENBLAS_ DNNL_ ONEDNN_ ATEN_ TORCH_ PYTORCH_ CUBLAS_ CUDNN_ NCCL_"
).split()


@dataclass(frozen=True)
class StoredRecord:
    """What MLflow has of a run in its folder `reproduce`.

    content: record.json, with `packages`, the versions of constraints.txt by name. folder: of
    copies of the files.
    """

    run_id: str
    content: dict[str, Any]
    folder: Path

    @classmethod
    def fetch(cls, store: StoreReader, run_id: str, folder: Path) -> StoredRecord:
        """Copy a run's record to a folder. Raises UserError where it is missing or damaged."""
        store.fetch(run_id, FOLDER, FILES, MOST_BYTES, folder)
        if missing := [name for name in FILES if not (folder / name).is_file()]:
            if len(missing) == len(FILES) and (place := store.lost(run_id)):
                raise UserError(gone(f"run {run_id}", place))
            raise UserError(
                f"run {run_id} has no {FOLDER}/{missing[0]}: it is of an earlier version, has "
                "not ended, is of a training or a trial that was trained before with other "
                "libraries or on another machine, whose run of then has one unless it was killed, "
                "or is that of a sweep or a variant, whose trials have one"
            )
        return cls.read(run_id, folder)

    @classmethod
    def read(cls, run_id: str, folder: Path) -> StoredRecord:
        """What is in a folder. Raises UserError where it is damaged."""
        content = _record(read_bytes(folder / RECORD), f"run {run_id}: {FOLDER}/{RECORD}")
        lines = read_bytes(folder / PACKAGES).decode(errors="replace").splitlines()
        pairs = [line.partition("==")[::2] for line in lines]
        packages = {_plain(name): _plain(version) for name, version in pairs if version}
        return cls(run_id, {**content, "packages": packages}, folder)

    @property
    def stage(self) -> str:
        """Of dvc.yaml."""
        return str(self.content["stage"])

    @property
    def result(self) -> str:
        """The file of a project that says which run the stage recorded there in the place of it."""
        return (SCORES if self.content["outcome"]["scores"] else RESULTS)[self.stage]


def variables() -> dict[str, str]:
    """The environment variables that can change how numbers are computed, by their names."""
    found = {k: v for k, v in sorted(os.environ.items()) if k.startswith(tuple(_COMPUTES))}
    found.pop("KMP_INIT_AT_FORK", None)  # torch sets it, when it is loaded
    return found


def _record(text: bytes, name: str) -> dict[str, Any]:
    """record.json, checked; its texts can be printed. Raises UserError."""
    try:
        content = _plain(json.loads(text.decode(), parse_constant=lambda _: None))
        wrong = mismatch(content, SHAPE) or _wrong(content)
    except (ValueError, RecursionError) as error:
        wrong = str(error) or type(error).__name__
    if wrong:
        raise UserError(f"{name} is damaged ({wrong}): choose another run")
    return dict(content)


def _wrong(content: dict[str, Any]) -> str | None:
    """What of a record's inner values is not as it should be."""
    outcome, values = content["outcome"], (str, int, float, type(None))
    if content["stage"] not in RESULTS:
        return f"stage is none of {', '.join(RESULTS)}"
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}|unknown", content["commit"]):
        return "commit is none of git's"
    for section in (content["identity"], content["machine"], content["trained"], outcome["scores"]):
        for key, value in section.items():
            if not isinstance(value, values):
                return f"{key} is neither a text nor a number"
    for step, found in outcome["weights"].items():
        if not re.fullmatch(r"\d{1,15}", step) or not re.fullmatch("[0-9a-f]{64}", str(found)):
            return "weights are no sums by step"
    for key, points in outcome["curves"].items():
        if not isinstance(points, list) or not all(map(_is_point, points)) or not points:
            return f"{key} is no curve"
    return None


def _is_point(value: Any) -> bool:
    """Whether it is a step and a number, or null."""
    pair = isinstance(value, list) and len(value) == 2
    return pair and type(value[0]) is int and isinstance(value[1], float | int | type(None))


def _plain(value: Any) -> Any:
    """A value that can be printed and computed with: no control characters, nothing infinite."""
    match value:
        case str():
            return "".join(c if c.isprintable() else "?" for c in value[:LONGEST_TEXT])
        case int():
            return value if abs(value) < 2**63 else None
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
    return value
