"""A recurrent layer (section 4, Table 1): long short-term memory (Hochreiter and Schmidhuber 1997).

An encoder has one of width d_model / 2 for each direction, their outputs joined; a decoder one of
width d_model from left to right. Gates i, f, g, o as nn.LSTM has them, with both of its biases; the
forget gate's bias begins at 1.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2sweep.config import ModelConfig
from seq2sweep.model.caching import StateCache
from seq2sweep.model.packing import Packing, real


class Mixer(nn.Module):
    """LSTM of x [B, n, d_model], by the fused kernels of nn.LSTM, which compute padding too.

    Padding comes after the words. From right to left each sentence is turned round by itself, so
    that neither direction meets padding before it has read the words.
    """

    def __init__(self, config: ModelConfig, causal: bool, layer: int = 0) -> None:
        super().__init__()
        self.causal, self.d_model = causal, config.d_model
        width = config.d_model if causal else config.d_model // 2
        self.rightwards = _lstm(config.d_model, width)
        if not causal:
            self.leftwards = _lstm(config.d_model, width)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, packing: Packing | None = None
    ) -> Tensor:
        """x [B, n, d_model] or packed; mask [B, 1, 1, n] as in `MultiHeadAttention.attend`."""
        if packing is not None:
            x = packing.pad(x)
        out, _ = _run(self.rightwards, x)
        if not self.causal:
            places = _turned(x, mask)
            back, _ = _run(self.leftwards, _arranged(x, places))
            out = torch.cat((out, _arranged(back, places)), dim=-1)
        return out if packing is None else packing.pack(out)

    def start(self, memory: Tensor) -> StateCache:
        """Output and cell before the first step, [B, d_model] each: zeros."""
        zeros = memory.new_zeros(len(memory), self.d_model)
        return StateCache((zeros, zeros))

    def step(self, x: Tensor, cache: StateCache, past: Tensor) -> Tensor:
        """One position of each hypothesis, x [B, K, d_model]."""
        output, cell = cache.states
        rows = x.flatten(0, 1).unsqueeze(1)
        out, after = _run(self.rightwards, rows, (output.unsqueeze(0), cell.unsqueeze(0)))
        cache.states = (after[0].squeeze(0), after[1].squeeze(0))
        return out.view(x.shape)

    @staticmethod
    def reach(config: ModelConfig) -> int:
        """Of how many of the last positions a step needs keys and values: it has a state."""
        return 0

    @staticmethod
    def parameter_count(config: ModelConfig, causal: bool) -> int:
        """Trainable numbers: 4 gates of each direction, with two biases a unit."""
        d, directions = config.d_model, 1 if causal else 2
        width = d // directions
        return directions * 4 * width * (d + width + 2)

    @staticmethod
    def kept_bytes(
        config: ModelConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """What the backward pass needs for each piece, in float32: inputs, outputs, and what oneDNN
        notes of gates and states, as measured; cuDNN notes less."""
        d, directions = config.d_model, 1 if causal else 2
        return directions * (30 * d + 40 * (d // directions))

    @staticmethod
    def flops(
        config: ModelConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Operations of a forward pass for each sentence, padded to `widths`."""
        d, directions = config.d_model, 1 if causal else 2
        width = d // directions
        steps = lengths if widths is None else widths
        return steps * (directions * 8 * width * (d + width))


def _lstm(inputs: int, width: int) -> nn.LSTM:
    """Xavier uniform for each gate's two matrices; biases 0, that of the forget gate 1."""
    made = nn.LSTM(inputs, width, batch_first=True)
    forget: Any = made.bias_ih_l0
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.startswith("weight"):
                for gate in parameter.chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                parameter.zero_()
        forget[width : 2 * width] = 1.0
    return made


def _run(lstm: nn.LSTM, x: Tensor, state: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Outputs [B, n, width] and the last state; in float32 on a CPU, many of which have no LSTM in
    bf16."""
    narrow = x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False) if narrow else contextlib.nullcontext():
        found: tuple[Tensor, tuple[Tensor, Tensor]] = lstm(x.float() if narrow else x, state)
    return found


def _turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Where the rows of x [B * n, d] come from when each sentence is turned round: int64 [B * n].

    Padding stays where it is.
    """
    sentences, n = x.shape[:2]
    columns = torch.arange(n, device=x.device)
    lengths = n if mask is None else real(mask).sum(dim=1, keepdim=True)
    turned = lengths - 1 - columns
    turned = torch.where(turned < 0, columns, turned).expand(sentences, n)
    return (turned + n * torch.arange(sentences, device=x.device)[:, None]).flatten()


def _arranged(x: Tensor, places: Tensor) -> Tensor:
    """x [B, n, d] with row r from row places[r] of B * n."""
    arranged: Tensor = _Arrange.apply(x.flatten(0, 1), places)  # type: ignore[no-untyped-call]
    return arranged.view(x.shape)


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
