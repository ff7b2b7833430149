"""What autograd keeps for a backward pass, counted as it is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seq2sweep.train.step import autocast


def saved_bytes(
    forward: Callable[[], object], precision: Any, counts: Callable[[Tensor], bool]
) -> int:
    """Of a forward pass on a CPU in this precision: each storage of tensors that count, once."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if counts(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        autocast(precision, torch.device("cpu")),
    ):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def none_of(model: nn.Module) -> Callable[[Tensor], bool]:
    """Whether a tensor is no weight of a model."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    return lambda tensor: tensor.untyped_storage().data_ptr() not in weights
