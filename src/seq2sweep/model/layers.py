"""Encoder and decoder layers (section 3.1), feed-forward (3.3) and positions (3.5).

Shapes: B sentences, n source positions, m target positions, K hypotheses a sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import ModelConfig
from seq2sweep.model.attention import MultiHeadAttention

LEARNED_POSITIONS = 1024
# Sinusoids made at the start; longer sentences make more.
FIRST_POSITIONS = 256


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] to [..., d_model]."""
        out: Tensor = self.outer(F.relu(self.inner(x)))
        return out


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = dropout

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Both [..., d_model]."""
        out: Tensor = self.norm(x + F.dropout(sublayer_output, self.dropout, self.training))
        return out


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.after_attention = _residual(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.after_feed_forward = _residual(config)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """x [B, n, d_model]; source_mask [B, 1, 1, n], True at words, False at padding."""
        x = self.after_attention(x, self.attention(x, source_mask))
        out: Tensor = self.after_feed_forward(x, self.feed_forward(x))
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
        self.after_attention = _residual(config)
        self.memory_attention = _attention(config)
        self.after_memory_attention = _residual(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.after_feed_forward = _residual(config)

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """x [B, m, d_model]; memory [B, n, d_model]; source_mask [B, 1, 1, n].

        The causal mask alone suffices for the target: its padding comes last, so no word sees it.
        """
        x = self.after_attention(x, self.attention(x, causal=True))
        queries = self.memory_attention.project_queries(x)
        keys, values = self.memory_attention.project_memory(memory)
        attended = self.memory_attention.attend(queries, keys, values, source_mask)
        x = self.after_memory_attention(x, attended)
        out: Tensor = self.after_feed_forward(x, self.feed_forward(x))
        return out

    def start(self, memory: Tensor) -> LayerCache:
        """An empty cache for memory [B, n, d_model], before the first step."""
        keys, values = self.memory_attention.project_memory(memory)
        return LayerCache(keys[:0, :, :0], values[:0, :, :0], keys, values)

    def step(self, x: Tensor, cache: LayerCache, source_mask: Tensor) -> Tensor:
        """One target position of each hypothesis, x [B, K, d_model]; appends to the cache."""
        sentences, hypotheses, d_model = x.shape
        queries, keys, values = self.attention.project(x.reshape(-1, 1, d_model))
        if cache.self_keys.size(2):
            keys = torch.cat((cache.self_keys, keys), dim=2)
            values = torch.cat((cache.self_values, values), dim=2)
        cache.self_keys, cache.self_values = keys, values
        attended = self.attention.attend(queries, keys, values)
        x = self.after_attention(x, attended.view(sentences, hypotheses, d_model))
        # A sentence's hypotheses are so many queries over the same memory.
        attended = self.memory_attention.attend(
            self.memory_attention.project_queries(x),
            cache.memory_keys,
            cache.memory_values,
            source_mask,
        )
        x = self.after_memory_attention(x, attended)
        out: Tensor = self.after_feed_forward(x, self.feed_forward(x))
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
    return MultiHeadAttention(config.d_model, config.heads, config.d_k, config.d_v)


def _residual(config: ModelConfig) -> Residual:
    return Residual(config.d_model, config.dropout)
