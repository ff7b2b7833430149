"""Encoder and decoder layers (section 3.1) and positions (3.5).

Shapes: B sentences, n source positions, m target positions, K hypotheses a sentence. What is packed
has one row [d_model] for each real piece of all sentences instead of [B, n, d_model].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seq2sweep.config import TransformerConfig
from seq2sweep.model import components, residual_norm
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.caching import MixerCache
from seq2sweep.model.dropout import dropout
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import Linear

LEARNED_POSITIONS = 1024
"""Pieces a side for which `model.positions: learned` has a position."""
# Sinusoids made at the start; longer sentences make more.
FIRST_POSITIONS = 256


Stream = Tensor | tuple[Tensor, Tensor]
"""What goes from sub-layer to sub-layer: [..., d_model]. Where `residual_norm` makes it, twice: in
float32, as sums are, and in the type of products."""


class Residual(nn.Module):
    """The connection around each sub-layer, with the dropout of section 5.4.

    post: LayerNorm(x + Dropout(Sublayer(x))), section 3.1. pre: x + Dropout(Sublayer(LayerNorm(x)))
    (Xiong et al. 2020), after which each stack of layers ends with a LayerNorm. Instead of
    LayerNorm there may be another kind of norm.
    """

    def __init__(
        self,
        d_model: int,
        dropout: float,
        norm: Literal["post", "pre"] = "post",
        norm_kind: str = "layernorm",
    ) -> None:
        super().__init__()
        self.norm = components.norm(norm_kind)(d_model)
        self.dropout = dropout
        self.pre = norm == "pre"

    def forward(self, x: Stream, sublayer: Callable[[Tensor], Tensor]) -> Stream:
        """x and what the sub-layer makes of it: [..., d_model]."""
        wide, narrow = x if isinstance(x, tuple) else (x, x)
        inside = sublayer(self.norm(wide) if self.pre else narrow)
        if not self.pre and residual_norm.serves(wide, self.norm):
            share = self.dropout if self.training else 0.0
            return residual_norm.residual_norm(wide, inside, self.norm, share)
        summed = wide + dropout(inside, self.dropout, self.training)
        out: Tensor = summed if self.pre else self.norm(summed)
        return out


def summed(x: Stream) -> Tensor:
    """The stream as the next sum takes it."""
    return x[0] if isinstance(x, tuple) else x


class EncoderLayer(nn.Module):
    """Self-attention, or another mixer in its place, then feed-forward.

    The mixer is called `attention` whatever it is: its weights' names are those in checkpoints.
    """

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        self.attention = components.mixer(config.encoder_mixer)(config, False, number)
        self.attention_residual = _residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = _residual(config)

    def forward(
        self, x: Stream, source_mask: Tensor | None, packing: Packing | None = None
    ) -> Stream:
        """x [B, n, d_model] or packed; source_mask [B, 1, 1, n]: see MultiHeadAttention.attend."""
        x = self.attention_residual(x, lambda y: self.attention(y, source_mask, packing=packing))
        out: Stream = self.feed_forward_residual(x, self.feed_forward)
        return out


@dataclass
class LayerCache:
    """What one decoder layer need not compute again.

    mixer: of the target so far. memory_keys, memory_values: [B, h, n, d_k or d_v], shared by a
    sentence's K hypotheses.
    """

    mixer: MixerCache
    memory_keys: Tensor
    memory_values: Tensor

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices)."""
        self.mixer.keep(sentences)
        self.memory_keys = self.memory_keys.index_select(0, sentences)
        self.memory_values = self.memory_values.index_select(0, sentences)


class DecoderLayer(nn.Module):
    """Masked self-attention, or another mixer in its place, attention over the encoder's output,
    then feed-forward."""

    def __init__(self, config: TransformerConfig, number: int = 0) -> None:
        super().__init__()
        self.attention = components.mixer(config.decoder_mixer)(config, True, number)
        self.attention_residual = _residual(config)
        self.memory_attention = _attention(config)
        self.memory_residual = _residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = _residual(config)

    def forward(
        self,
        x: Stream,
        memory: Tensor,
        source_mask: Tensor | None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Stream:
        """x [B, m, d_model] and memory [B, n, d_model], or packed; source_mask [B, 1, 1, n].

        The mixer is causal, which suffices for the target: its padding comes last, unseen by words.
        """
        keys, values = self.memory_attention.project_memory(memory, memory_packing)
        x = self.attention_residual(x, lambda y: self.attention(y, packing=packing))
        return self._rest(x, keys, values, source_mask, packing, memory_packing)

    def start(self, memory: Tensor) -> LayerCache:
        """An empty cache for memory [B, n, d_model], before the first step."""
        keys, values = self.memory_attention.project_memory(memory)
        start = self.attention.start(memory)
        return LayerCache(start, keys.contiguous(), values.contiguous())

    def step(self, x: Tensor, cache: LayerCache, past: Tensor, source_mask: Tensor) -> Tensor:
        """One target position of each hypothesis, x [B, K, d_model]; appends to the cache.

        past: the mask [B, 1, K, pieces in the cache after this step] of those a hypothesis sees.
        """
        out = self.attention_residual(x, lambda y: self.attention.step(y, cache.mixer, past))
        # A sentence's hypotheses are so many queries over the same memory.
        return summed(self._rest(out, cache.memory_keys, cache.memory_values, source_mask))

    def _rest(
        self,
        x: Stream,
        keys: Tensor,
        values: Tensor,
        source_mask: Tensor | None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Stream:
        """Attention over the encoder's output, given as keys and values, and feed-forward."""
        memory_attention = self.memory_attention
        x = self.memory_residual(
            x,
            lambda y: memory_attention.attend(
                memory_attention.project_queries(y, packing),
                keys,
                values,
                source_mask,
                packing=packing,
                memory_packing=memory_packing,
            ),
        )
        out: Stream = self.feed_forward_residual(x, self.feed_forward)
        return out


class Positions(nn.Module):
    """Sinusoidal positions of section 3.5, or the learned table of Table 3 row (E)."""

    table: Tensor

    def __init__(self, kind: str, d_model: int) -> None:
        super().__init__()
        self.learned = kind == "learned"
        self.d_model = d_model
        if self.learned:
            self.table = nn.Parameter(torch.empty(LEARNED_POSITIONS, d_model))
            nn.init.normal_(self.table, std=d_model**-0.5)
        else:
            self.register_buffer("table", sinusoids(FIRST_POSITIONS, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Rows for positions start ... start + length - 1: [length, d_model].

        Raises ValueError beyond the learned table; sinusoids reach as far as is asked for.
        """
        end = start + length
        if end > self.table.size(0):
            if self.learned:
                raise ValueError(
                    f"a sentence of {end} tokens is longer than the {LEARNED_POSITIONS} learned "
                    "positions; use model.positions: sinusoidal or shorter sentences"
                )
            self.table = sinusoids(2 * end, self.d_model).to(self.table)
        return self.table[start:end]


def embedding(vocabulary_size: int, d_model: int) -> nn.Embedding:
    """Variance 1 / d_model, so that sqrt(d_model) times it (section 3.4) has variance 1, the scale
    of the positions."""
    made = nn.Embedding(vocabulary_size, d_model)
    nn.init.normal_(made.weight, std=d_model**-0.5)
    return made


def projection(vocabulary_size: int, d_model: int, tied: nn.Embedding | None) -> Linear:
    """To logits, without a bias: with the weights of `tied`, or with weights of its own that give
    logits of variance 1 from states that have it."""
    made = Linear(d_model, vocabulary_size, bias=False)
    if tied is not None:
        made.weight = tied.weight
    else:
        nn.init.normal_(made.weight, std=d_model**-0.5)
    return made


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(same): float32."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(even * (-math.log(10000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model,
        config.heads,
        config.d_k,
        config.d_v,
        config.attention,
        config.attention_dropout,
    )


def _feed_forward(config: TransformerConfig) -> nn.Module:
    kind = components.feed_forward(config.feed_forward)
    made: nn.Module = kind(config.d_model, config.d_ff, config.feed_forward_dropout)
    return made


def _residual(config: TransformerConfig) -> Residual:
    return Residual(config.d_model, config.dropout, config.norm, config.norm_kind)
