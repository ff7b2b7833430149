"""Self-attention that is restricted to a neighbourhood (section 4, Table 1).

The neighbourhood of r positions counts the position itself: of an encoder r is odd and it is
[i - (r - 1) / 2, i + (r - 1) / 2]; of a decoder it is the last r, i - r + 1 ... i. Both are clipped
at the ends of the sentence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.model.attention import (
    additive,
    kept_bytes,
    kept_of_scores,
    pairwise,
    projections,
)
from seq2sweep.model.mixer import self_attention
from seq2sweep.model.packing import Packing, real

MULTIPLE = 8
"""Of which the number of queries in a block is one: products of a few rows are slow."""


class Mixer(self_attention.Mixer):
    """Multi-head attention of each position over its neighbourhood.

    Computed by blocks of queries, each with the keys that any of them sees; or, where that is more,
    as attention over all keys with the others masked.
    """

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__(config, causal, layer)
        self.neighbourhood = config.mixer_neighbourhood

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
    ) -> Tensor:
        """x [B, n, d_model] or packed; mask as in `MultiHeadAttention.attend`, [B, 1, 1, n]."""
        causal = causal or self.causal
        queries, keys, values = self.project(x, packing)
        n = queries.size(2)
        shown = x.new_ones(1, n, dtype=torch.bool) if mask is None else real(mask)
        back = self.neighbourhood - 1 if causal else (self.neighbourhood - 1) // 2
        if self.keep_weights or not by_blocks(n, self.neighbourhood):
            allowed = band(n, n, 0, back, self.neighbourhood, shown, self.projection.dtype)
            return self.attend(queries, keys, values, allowed, packing=packing)
        heads = self._blocks(queries, keys, values, shown, back)
        return self.join(heads, packing)

    def _stays_packed(self, x: Tensor, packing: Packing) -> bool:
        """Never: blocks are of padded sentences."""
        return False

    def _blocks(
        self, queries: Tensor, keys: Tensor, values: Tensor, shown: Tensor, back: int
    ) -> Tensor:
        """Heads [B, h, n, d_v] by blocks of w queries, each with its w + r - 1 keys.

        shown: bool [B or 1, n], which keys are real.
        """
        sentences, n = queries.size(0), queries.size(2)
        w = block(self.neighbourhood)
        blocks = -(-n // w)
        span = w + self.neighbourhood - 1
        missing = blocks * w - n
        around = (back, missing + self.neighbourhood - 1 - back)

        def windows(x: Tensor) -> Tensor:
            padded = F.pad(x, (0, 0, *around)).unfold(2, span, w)  # [B, h, blocks, d, span]
            return padded.permute(0, 2, 1, 4, 3).flatten(0, 1)

        by_block = F.pad(queries, (0, 0, 0, missing)).unflatten(2, (blocks, w))
        seen = F.pad(shown, around).unfold(1, span, w)  # [B or 1, blocks, span]
        allowed = band(w, span, back, back, self.neighbourhood, seen, self.projection.dtype)
        allowed = allowed.expand(sentences, -1, -1, -1, -1).flatten(0, 1)
        heads = self.heads_of(
            by_block.transpose(1, 2).flatten(0, 1), windows(keys), windows(values), allowed
        )
        joined: Tensor = heads.unflatten(0, (sentences, blocks)).transpose(1, 2).flatten(2, 3)
        return joined[:, :, :n]

    @staticmethod
    def reach(config: TransformerConfig) -> int:
        """Of how many of the last positions a step needs keys and values."""
        return config.mixer_neighbourhood

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """As `self_attention`; by blocks, keys and values once for each block that sees them."""
        r, h = config.mixer_neighbourhood, config.heads
        if not by_blocks(length, r):
            return self_attention.Mixer.kept_bytes(config, causal, length, size, plain)
        w = block(r)
        span = w + r - 1
        filled = math.ceil(length / w) * w / length
        copies = size * h * (span / w - 1) * (config.d_k + config.d_v)
        scores = h * span * kept_of_scores(config, size, plain)
        return kept_bytes(config, size) + filled * (copies + scores)

    @staticmethod
    def flops(
        config: TransformerConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """As `self_attention`: without widths the sizes of all neighbourhoods, clipped at the ends;
        with them the keys of all blocks, or all keys where that is how they are computed."""
        r = config.mixer_neighbourhood
        if widths is None:
            pairs = neighbours(lengths, r, causal)
        else:
            w = block(r)
            in_blocks = np.ceil(widths / w) * w * (w + r - 1)
            pairs = np.where(by_blocks(widths, r), in_blocks, widths * widths)
        return lengths * projections(config) + pairs * pairwise(config)


def neighbours(lengths: NDArray[np.float64], r: int, causal: bool) -> NDArray[np.float64]:
    """Pairs of a query and a key that it sees, for each sentence."""
    if causal:
        first: NDArray[np.float64] = np.minimum(lengths, r)
        return first * (first + 1) / 2 + (lengths - first) * r
    # Each position sees itself, and each distance up to (r - 1) / 2 is there twice.
    far: NDArray[np.float64] = np.minimum((r - 1) // 2, np.maximum(lengths - 1, 0))
    return lengths + 2 * (far * lengths - far * (far + 1) / 2)


def block(r: int) -> int:
    """Queries of a block: about r / 2, so that its keys are about three times as many."""
    return MULTIPLE * max(1, -(-(r // 2) // MULTIPLE))


def by_blocks(n: Any, r: int) -> Any:
    """Whether blocks need fewer products than all keys, for sentences of n pieces."""
    w = block(r)
    return -(-n // w) * w * (w + r - 1) < n * n


def band(
    queries: int, keys: int, own: int, back: int, r: int, shown: Tensor, dtype: torch.dtype
) -> Tensor:
    """What to add to scores [..., 1, queries, keys] so that each query sees its neighbourhood.

    The first query stands at key `own` and sees from `back` before itself r keys on, of those that
    are shown (bool [..., keys]). It always sees itself: a softmax over nothing is no number.
    """
    device = shown.device
    away = torch.arange(keys, device=device) - own - torch.arange(queries, device=device)[:, None]
    near = (away >= -back) & (away < r - back)
    allowed = near & (shown.unsqueeze(-2) | (away == 0))
    return additive(allowed, dtype).unsqueeze(-3)
