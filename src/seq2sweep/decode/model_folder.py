"""A model in one folder that needs no other: what `seq2sweep translate --model FOLDER` takes.

model.safetensors   weights, float32, of the checkpoints' mean
config.json         `config`, sections of params.yaml as they were, and `about`, where it comes from
vocabulary.model    as in data/vocabulary, with symbols.json where that has one
manifest.json       sha256 (hex) of all these; written last

A README.md beside them is for people: it may be edited, and has no sum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seq2sweep.data.files import MANIFEST
from seq2sweep.data.vocabulary import JSON_NAME, MODEL_NAME, SYMBOLS_NAME, Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.paths import mismatch, open_regular, read_text
from seq2sweep.storage.atomic import sha256, write_json

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
NEEDED = (CONFIG, WEIGHTS, MODEL_NAME)
SOMETIMES = (SYMBOLS_NAME, JSON_NAME)
"""The last one in folders that earlier versions wrote."""
SECTIONS = ("data", "prepare", "model", "evaluate")
"""Of params.yaml, that `config` must have."""
SHAPE = {"config": {key: dict[str, Any]() for key in SECTIONS}, "about": dict[str, Any]()}
"""Of config.json, as `paths.mismatch` has it."""
AGAIN = "export the model again, by `seq2sweep export FOLDER --format safetensors`"


@dataclass(frozen=True)
class ModelFolder:
    """What such a folder holds. sha256: of its weights' file."""

    weights: dict[str, Tensor]
    vocabulary: Vocabulary
    config: dict[str, Any]
    about: dict[str, Any]
    sha256: str


def write_model_folder(
    folder: Path,
    weights: Mapping[str, Tensor],
    vocabulary: Vocabulary,
    config: Mapping[str, Any],
    about: Mapping[str, Any],
) -> None:
    """Fill a folder that is empty, or not there yet.

    weights: of each parameter by its name. config: sections of params.yaml, SECTIONS among them;
    about: anything that JSON holds. Without its manifest, which comes last, a folder is not read.
    """
    if missing := [name for name in SECTIONS if name not in config]:
        raise ValueError(f"config has no section {missing[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: one.detach().float().cpu().contiguous() for name, one in weights.items()}
    save_file(tensors, folder / WEIGHTS)
    vocabulary.write(folder)
    write_json(folder / CONFIG, {"config": dict(config), "about": dict(about)})
    sums = {name: sha256(folder / name) for name in _known(folder)}
    write_json(folder / MANIFEST, {"format": FORMAT, "sha256": sums})


def read_model_folder(folder: Path) -> ModelFolder:
    """Read one, its sums verified.

    Raises UserError when a file is missing, was changed or is of another version.
    """
    sums = _sums(folder / MANIFEST)
    for name in {*NEEDED, *_known(folder), *sums}:
        if name not in (*NEEDED, *SOMETIMES):
            raise UserError(f"{folder / MANIFEST} lists {name!r}, which no model has: {AGAIN}")
        with open_regular(folder / name, AGAIN) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != sums.get(name):
                raise UserError(
                    f"{folder / name} is not the file that {MANIFEST} beside it describes (its "
                    f"sha256 differs): {AGAIN}"
                )
    held = read_model_config(folder)
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise UserError(f"{folder / WEIGHTS} is damaged ({error}): {AGAIN}") from None
    return ModelFolder(
        weights, Vocabulary.open(folder), held["config"], held["about"], sums[WEIGHTS]
    )


def read_model_config(folder: Path) -> dict[str, Any]:
    """`config` and `about` of such a folder. Raises UserError."""
    return _json(folder / CONFIG, SHAPE)


def _known(folder: Path) -> list[str]:
    return [name for name in (*NEEDED, *SOMETIMES) if (folder / name).exists()]


def _sums(path: Path) -> dict[str, str]:
    held = _json(path, {"format": int, "sha256": {}})
    if held["format"] != FORMAT:
        raise UserError(
            f"{path} is of format {held['format']}, and this program reads {FORMAT}: {AGAIN}"
        )
    sums: dict[str, str] = held["sha256"]
    return sums


def _json(path: Path, shape: Mapping[str, Any]) -> dict[str, Any]:
    """An object of that shape, as `paths.mismatch` has it. Raises UserError."""
    try:
        held: dict[str, Any] = json.loads(read_text(path, f"is {path.parent} a model? {AGAIN}"))
        wrong = mismatch(held, shape)
    except (ValueError, RecursionError):
        wrong = "it is no JSON"
    if wrong:
        raise UserError(f"{path} is damaged ({wrong}): {AGAIN}")
    return held
