"""Encoder and decoder layers (section 3.1), feed-forward (3.3) and positions (3.5).

Shapes: B sentences, n source positions, m target positions, K hypotheses a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import ModelConfig
from seq2sweep.model.attention import MultiHeadAttention

LEARNED_POSITIONS = 1024
# Sinusoids made at the start; longer sentences make more.
FIRST_POSITIONS = 256


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (equation 2); dropout, zero in the paper, is on the inner layer."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] to [..., d_model]."""
        out: Tensor = self.outer(F.dropout(F.relu(self.inner(x)), self.dropout, self.training))
        return out


class Residual(nn.Module):
    """The connection around each sub-layer, with the dropout of section 5.4.

    post: LayerNorm(x + Dropout(Sublayer(x))), section 3.1. pre: x + Dropout(Sublayer(LayerNorm(x)))
    (Xiong et al. 2020), after which each stack of layers ends with a LayerNorm.
    """

    def __init__(self, d_model: int, dropout: float, norm: Literal["post", "pre"] = "post") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = dropout
        self.pre = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x and what the sub-layer makes of it: [..., d_model]."""
        inside = sublayer(self.norm(x) if self.pre else x)
        x = x + F.dropout(inside, self.dropout, self.training)
        out: Tensor = x if self.pre else self.norm(x)
        return out


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.attention_residual = _residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = _residual(config)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """x [B, n, d_model]; source_mask [B, 1, 1, n], True at words, False at padding."""
        x = self.attention_residual(x, lambda y: self.attention(y, source_mask))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out


@dataclass
class LayerCache:
    """Keys and values that one decoder layer need not compute again.

    self_keys, self_values: [B * K, h, steps so far, d_k or d_v];
    memory_keys, memory_values: [B, h, n, d_k or d_v], shared by a sentence's K hypotheses.
    """

    self_keys: Tensor
    self_values: Tensor
    memory_keys: Tensor
    memory_values: Tensor


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.attention_residual = _residual(config)
        self.memory_attention = _attention(config)
        self.memory_residual = _residual(config)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_residual = _residual(config)

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """x [B, m, d_model]; memory [B, n, d_model]; source_mask [B, 1, 1, n].

        The causal mask alone suffices for the target: its padding comes last, so no word sees it.
        """
        keys, values = self.memory_attention.project_memory(memory)
        x = self.attention_residual(x, lambda y: self.attention(y, causal=True))
        return self._rest(x, keys, values, source_mask)

    def start(self, memory: Tensor) -> LayerCache:
        """An empty cache for memory [B, n, d_model], before the first step."""
        keys, values = self.memory_attention.project_memory(memory)
        return LayerCache(keys[:0, :, :0], values[:0, :, :0], keys, values)

    def step(self, x: Tensor, cache: LayerCache, source_mask: Tensor) -> Tensor:
        """One target position of each hypothesis, x [B, K, d_model]; appends to the cache."""
        x = self.attention_residual(x, lambda y: self._attend_to_past(y, cache))
        # A sentence's hypotheses are so many queries over the same memory.
        return self._rest(x, cache.memory_keys, cache.memory_values, source_mask)

    def _attend_to_past(self, x: Tensor, cache: LayerCache) -> Tensor:
        sentences, hypotheses, d_model = x.shape
        queries, keys, values = self.attention.project(x.reshape(-1, 1, d_model))
        if cache.self_keys.size(2):
            keys = torch.cat((cache.self_keys, keys), dim=2)
            values = torch.cat((cache.self_values, values), dim=2)
        cache.self_keys, cache.self_values = keys, values
        return self.attention.attend(queries, keys, values).view(sentences, hypotheses, d_model)

    def _rest(self, x: Tensor, keys: Tensor, values: Tensor, source_mask: Tensor) -> Tensor:
        """Attention over the encoder's output, given as keys and values, and feed-forward."""
        memory_attention = self.memory_attention
        x = self.memory_residual(
            x,
            lambda y: memory_attention.attend(
                memory_attention.project_queries(y), keys, values, source_mask
            ),
        )
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
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
                    f"a sentence of {end} pieces is longer than the {LEARNED_POSITIONS} learned "
                    "positions; use model.positions: sinusoidal or shorter sentences"
                )
            self.table = sinusoids(2 * end, self.d_model).to(self.table)
        return self.table[start:end]


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(same): float32."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(even * (-math.log(10000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model,
        config.heads,
        config.d_k,
        config.d_v,
        config.attention,
        config.attention_dropout,
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(config.d_model, config.d_ff, config.feed_forward_dropout)


def _residual(config: ModelConfig) -> Residual:
    return Residual(config.d_model, config.dropout, config.norm)
