"""A convolution over neighbouring positions (section 4, Table 1), contiguous or dilated.

A kernel of k with dilation s: an encoder's output i is made of the inputs i + (t - (k - 1) / 2) s,
t = 0 ... k - 1, for odd k; a decoder's of i + (t - (k - 1)) s. What lies outside of the sentence is
zero. No bias and no gate: only the mixer differs from the paper's layer.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.model.caching import StateCache
from seq2sweep.model.packing import Packing, zeroed
from seq2sweep.model.products import linear


class Mixer(nn.Module):
    """sum_t W_t x[i + offset_t], with W_t in R^{d_model x d_model}.

    One product makes what each input adds to all outputs that see it, and these are added up where
    they belong. So only real pieces are multiplied, and the backward pass keeps only the input.
    """

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__()
        self.causal, self.kernel = causal, config.mixer_kernel
        self.dilation = dilation(config, layer)
        d = config.d_model
        self.taps = nn.Parameter(torch.empty(self.kernel * d, d))
        # Xavier uniform of a convolution: k * d_model inputs and outputs.
        bound = math.sqrt(3 / (self.kernel * d))
        nn.init.uniform_(self.taps, -bound, bound)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, packing: Packing | None = None
    ) -> Tensor:
        """x [B, n, d_model] or packed; mask [B, 1, 1, n] as in `MultiHeadAttention.attend`."""
        added = linear(zeroed(x, mask, packing), self.taps)
        if packing is not None:
            added = packing.pad(added)
        taps = added.unflatten(-1, (self.kernel, -1)).unbind(2)
        offsets = offsets_of(self.kernel, self.dilation, self.causal)
        out = sum_of_shifted(taps, offsets)
        return out if packing is None else packing.pack(out)

    def start(self, memory: Tensor) -> StateCache:
        """What the coming outputs are made of so far, [B, (k - 1) s, d_model]: nothing."""
        ahead = (self.kernel - 1) * self.dilation
        return StateCache((memory.new_zeros(len(memory), ahead, memory.size(-1)),))

    def step(self, x: Tensor, cache: StateCache, past: Tensor) -> Tensor:
        """One position of each hypothesis, x [B, K, d_model]."""
        added: Tensor = linear(x.flatten(0, 1), self.taps).unflatten(-1, (self.kernel, -1))
        (coming,) = cache.states
        if self.kernel == 1:
            return added[:, 0].reshape(x.shape)
        out = coming[:, 0] + added[:, -1]
        coming = F.pad(coming[:, 1:], (0, 0, 0, 1))
        # The last tap but one is for the output after s steps, the one before it after 2 s ...
        coming[:, self.dilation - 1 :: self.dilation] += added[:, :-1].flip(1)
        cache.states = (coming,)
        return out.view(x.shape)

    @staticmethod
    def reach(config: TransformerConfig) -> int:
        """Of how many of the last positions a step needs keys and values: it has a state."""
        return 0

    @staticmethod
    def parameter_count(config: TransformerConfig, causal: bool) -> int:
        """Trainable numbers."""
        return config.mixer_kernel * config.d_model**2

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """What the backward pass needs for each piece: the input."""
        return size * config.d_model

    @staticmethod
    def flops(
        config: TransformerConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Operations of a forward pass for each sentence; zeros around it count, padding is not
        multiplied."""
        return lengths * (2 * config.mixer_kernel * config.d_model**2)


def dilation(config: TransformerConfig, layer: int) -> int:
    """Of a layer, from 0: `mixer_dilation`, over and over."""
    return config.mixer_dilation[layer % len(config.mixer_dilation)]


def offsets_of(kernel: int, dilation: int, causal: bool) -> list[int]:
    """Where the inputs of an output are, from where it is itself."""
    own = kernel - 1 if causal else (kernel - 1) // 2
    return [(t - own) * dilation for t in range(kernel)]


def sum_of_shifted(taps: tuple[Tensor, ...], offsets: list[int]) -> Tensor:
    """sum_t taps[t][:, i + offsets[t]]: [B, n, d]; zero outside of [0, n)."""
    n = taps[0].size(1)
    out = taps[offsets.index(0)]
    for tap, offset in zip(taps, offsets, strict=True):
        if 0 < abs(offset) < n:
            inside = tap[:, max(offset, 0) : n + min(offset, 0)]
            out = out + F.pad(inside, (0, 0, max(-offset, 0), max(offset, 0)))
    return out
