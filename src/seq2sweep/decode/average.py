"""Checkpoint averaging (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from seq2sweep.config import ModelConfig
from seq2sweep.decode.beam import best_device
from seq2sweep.model import building
from seq2sweep.model.architecture import Architecture
from seq2sweep.train.checkpointing import load_weights


def build(config: ModelConfig, weights: dict[str, Tensor], vocabulary_size: int) -> Architecture:
    """The model of `config` with these weights, ready to decode."""
    model = building.build(config, vocabulary_size)
    load_weights(model, weights)
    return model.to(best_device()).eval()


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
