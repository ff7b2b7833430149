"""Self-attention, the paper's mixer: every position sees every other in one step."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seq2sweep.config import TransformerConfig
from seq2sweep.model.attention import (
    MultiHeadAttention,
    kept_bytes,
    kept_of_scores,
    pairwise,
    parameter_count,
    projections,
)
from seq2sweep.model.caching import KeyValueCache
from seq2sweep.model.packing import Packing


class Mixer(MultiHeadAttention):
    """MultiHead(x, x, x) of section 3.2.2."""

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__(
            config.d_model,
            config.heads,
            config.d_k,
            config.d_v,
            config.attention,
            config.attention_dropout,
        )
        self.causal = causal

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
    ) -> Tensor:
        """As `MultiHeadAttention.forward`; one that is made causal is so always, without a mask."""
        return super().forward(x, mask, causal or self.causal, packing)

    def start(self, memory: Tensor) -> KeyValueCache:
        """An empty cache for as many sentences as memory [B, n, d_model] has."""
        keys = memory.new_empty(len(memory), self.heads, 0, self.d_k)
        return KeyValueCache(keys, memory.new_empty(len(memory), self.heads, 0, self.d_v))

    def step(self, x: Tensor, cache: KeyValueCache, past: Tensor) -> Tensor:
        """One position of each hypothesis, x [B, K, d_model]; appends to the cache.

        past: the mask [B, 1, K, pieces in the cache after this step] of those a hypothesis sees.
        """
        queries, keys, values = self.project(x)
        return self.attend(queries, *cache.append(keys, values), past)

    @staticmethod
    def reach(config: TransformerConfig) -> int:
        """Of how many of the last positions a step needs keys and values: of all."""
        return sys.maxsize

    @staticmethod
    def parameter_count(config: TransformerConfig, causal: bool) -> int:
        """Trainable numbers: W^Q, W^K, W^V and W^O; additive attention has u besides."""
        return parameter_count(config)

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """What the backward pass needs for each piece of a sentence of `length`.

        size: bytes of a number that goes into a product; plain: without fused attention.
        """
        scores = config.heads * length * kept_of_scores(config, size, plain)
        return kept_bytes(config, size) + scores

    @staticmethod
    def flops(
        config: TransformerConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Operations of a forward pass for each sentence, of `lengths` pieces.

        widths: what each sentence is padded to; without them, what the task needs.
        """
        keys = lengths if widths is None else widths
        return lengths * projections(config) + keys * keys * pairwise(config)
