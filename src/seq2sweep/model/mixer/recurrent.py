"""A recurrent layer (section 4, Table 1): long short-term memory (Hochreiter and Schmidhuber 1997).

An encoder has one of width d_model / 2 for each direction, their outputs joined; a decoder one of
width d_model from left to right. Gates i, f, g, o as nn.LSTM has them, with both of its biases; the
forget gate's bias begins at 1.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2sweep.config import TransformerConfig
from seq2sweep.model import lstm
from seq2sweep.model.caching import StateCache
from seq2sweep.model.packing import Packing


class Mixer(nn.Module):
    """LSTM of x [B, n, d_model], by the fused kernels of nn.LSTM, which compute padding too.

    Padding comes after the words. From right to left each sentence is turned round by itself, so
    that neither direction meets padding before it has read the words.
    """

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__()
        self.causal, self.d_model = causal, config.d_model
        width = config.d_model if causal else config.d_model // 2
        self.rightwards = lstm.made(config.d_model, width)
        if not causal:
            self.leftwards = lstm.made(config.d_model, width)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, packing: Packing | None = None
    ) -> Tensor:
        """x [B, n, d_model] or packed; mask [B, 1, 1, n] as in `MultiHeadAttention.attend`."""
        if packing is not None:
            x = packing.pad(x)
        out, _ = lstm.run(self.rightwards, x)
        if not self.causal:
            places = lstm.turned(x, mask)
            back, _ = lstm.run(self.leftwards, lstm.arranged(x, places))
            out = torch.cat((out, lstm.arranged(back, places)), dim=-1)
        return out if packing is None else packing.pack(out)

    def start(self, memory: Tensor) -> StateCache:
        """Output and cell before the first step, [B, d_model] each: zeros."""
        zeros = memory.new_zeros(len(memory), self.d_model)
        return StateCache((zeros, zeros))

    def step(self, x: Tensor, cache: StateCache, past: Tensor) -> Tensor:
        """One position of each hypothesis, x [B, K, d_model]."""
        output, cell = cache.states
        rows = x.flatten(0, 1).unsqueeze(1)
        out, after = lstm.run(self.rightwards, rows, (output.unsqueeze(0), cell.unsqueeze(0)))
        cache.states = (after[0].squeeze(0), after[1].squeeze(0))
        return out.view(x.shape)

    @staticmethod
    def reach(config: TransformerConfig) -> int:
        """Of how many of the last positions a step needs keys and values: it has a state."""
        return 0

    @staticmethod
    def parameter_count(config: TransformerConfig, causal: bool) -> int:
        """Trainable numbers."""
        d, directions = config.d_model, 1 if causal else 2
        return directions * lstm.parameter_count(d, d // directions)

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """What the backward pass needs for each piece, in float32."""
        d, directions = config.d_model, 1 if causal else 2
        return directions * lstm.kept_bytes(d, d // directions)

    @staticmethod
    def flops(
        config: TransformerConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Operations of a forward pass for each sentence, padded to `widths`."""
        d, directions = config.d_model, 1 if causal else 2
        steps = lengths if widths is None else widths
        return steps * (directions * lstm.flops(d, d // directions))
