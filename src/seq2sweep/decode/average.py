"""Checkpoint averaging (section 6.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.decode.exported import Weights
from seq2sweep.storage.atomic import sha256, write_whole


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each tensor over safetensors files of one model, summed in float64.

    Raises ValueError when there is no file or the files differ in names or shapes.
    """
    if not files:
        raise ValueError("no checkpoint to average")
    sums: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            names = set(tensors.keys())
            if sums and names != sums.keys():
                raise ValueError(f"{file} holds other tensors than {files[0]}")
            for name in names:
                tensor = tensors.get_tensor(name)
                if name not in sums:
                    sums[name] = tensor.double()
                elif tensor.shape != sums[name].shape:
                    raise ValueError(f"{name} in {file} has another shape than in {files[0]}")
                else:
                    sums[name] += tensor
    return {name: (total / len(files)).to(torch.float32) for name, total in sums.items()}


def write_average(folder: Path, chosen: Sequence[Weights], receipt: Mapping[str, Any]) -> None:
    """Make in `folder` one of weights whose only ones are the mean of the checkpoints `chosen`.

    receipt: of the folder that they are from. What reads the new folder has the very weights that
    the scores of `chosen` belong to, whatever `evaluate` says of checkpoints then.
    """
    known = {entry["step"]: entry for entry in receipt["checkpoints"]}
    file = folder / CHECKPOINTS / "averaged.safetensors"
    file.parent.mkdir(parents=True)
    save_file(average([weights.file for weights in chosen]), file)
    entry = {
        "step": chosen[-1].step,
        "file": file.name,
        "sha256": sha256(file),
        "valid_loss": None,
        "averaged": [known[weights.step] for weights in chosen],
    }
    text = json.dumps({**receipt, "checkpoints": [entry]}, indent=2, ensure_ascii=False)
    write_whole(folder / RECEIPT, text + "\n")
