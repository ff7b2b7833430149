"""Long short-term memory (Hochreiter and Schmidhuber 1997), by PyTorch's fused kernels.

Gates i, f, g, o as nn.LSTM has them, with both of its biases.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2sweep.model.packing import real


def made(inputs: int, width: int) -> nn.LSTM:
    """Xavier uniform for each gate's two matrices; biases 0, that of the forget gate 1."""
    layer = nn.LSTM(inputs, width, batch_first=True)
    forget: Any = layer.bias_ih_l0
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight"):
                for gate in parameter.chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                parameter.zero_()
        forget[width : 2 * width] = 1.0
    return layer


def run(lstm: nn.Module, x: Tensor, state: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Outputs [B, n, width] and the last state; in float32 on a CPU, many of which have no LSTM in
    bf16."""
    narrow = x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False) if narrow else contextlib.nullcontext():
        found: tuple[Tensor, tuple[Tensor, Tensor]] = lstm(x.float() if narrow else x, state)
    return found


def parameter_count(inputs: int, width: int) -> int:
    """Trainable numbers: 4 gates, with two biases a unit."""
    return 4 * width * (inputs + width + 2)


def flops(inputs: int, width: int) -> int:
    """Operations of a forward pass, for each step of a sentence."""
    return 8 * width * (inputs + width)


def kept_bytes(inputs: int, width: int) -> int:
    """What the backward pass needs for each step, in float32: inputs, outputs, and what oneDNN
    notes of gates and states, as measured; cuDNN notes less."""
    return 4 * inputs + 26 * max(inputs, width) + 40 * width


def turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Where the rows of x [B * n, d] come from when each sentence is turned round: int64 [B * n].

    Padding stays where it is.
    """
    sentences, n = x.shape[:2]
    columns = torch.arange(n, device=x.device)
    lengths = n if mask is None else real(mask).sum(dim=1, keepdim=True)
    places = lengths - 1 - columns
    places = torch.where(places < 0, columns, places).expand(sentences, n)
    return (places + n * torch.arange(sentences, device=x.device)[:, None]).flatten()


def arranged(x: Tensor, places: Tensor) -> Tensor:
    """x [B, n, d] with row r from row places[r] of B * n."""
    rows: Tensor = _Arrange.apply(x.flatten(0, 1), places)  # type: ignore[no-untyped-call]
    return rows.view(x.shape)


class _Arrange(torch.autograd.Function):
    """Turning round is its own inverse, so the gradient is arranged as the rows were."""

    @staticmethod
    def forward(context: Any, x: Tensor, places: Tensor) -> Tensor:
        context.save_for_backward(places)
        return x.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = context.saved_tensors
        return gradient.index_select(0, places), None
