"""Multi-head attention (section 3.2): scaled dot-product, unscaled dot-product and additive.

Shapes: B sentences, n queries, m keys, h heads; d_k and d_v are independent of d_model / h.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import ModelConfig, TransformerConfig
from seq2sweep.model import varlen_attention
from seq2sweep.model.dropout import dropout
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import Linear, linear, product_type

Kind = Literal["scaled_dot_product", "dot_product", "additive"]

FEW_SCORES = 64 * 64
"""Queries times keys of a sentence up to which plain products take less time on a CPU."""


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    W^Q, W^K and W^V of all heads are stacked in one matrix, so that self-attention projects in
    one product. No biases: the paper's equations have none.

    The kinds differ in how a query q and a key k of one head score (section 3.2.1):
    scaled_dot_product q . k / sqrt(d_k), dot_product q . k, and additive u . tanh(q + k), a
    network with one hidden layer of width d_k (Bahdanau et al. 2015; W^Q and W^K are its first
    weights, u, one vector a head, its second). Additive attention holds h * n * m * d_k numbers
    a sentence, d_k times what the others do.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        kind: Kind = "scaled_dot_product",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.d_k, self.d_v = heads, d_k, d_v
        self.kind, self.dropout = kind, dropout
        self.scale = d_k**-0.5 if kind == "scaled_dot_product" else 1.0
        self.query_width = heads * d_k
        self.projection = nn.Parameter(torch.empty(heads * (2 * d_k + d_v), d_model))
        self.output = Linear(heads * d_v, d_model, bias=False)
        if kind == "additive":
            self.hidden = nn.Parameter(torch.empty(heads, d_k, 1))
        self.keep_weights = False
        self.kept_weights: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier uniform for each of W^Q, W^K, W^V, W^O and u on its own."""
        with torch.no_grad():
            widths = [self.query_width, self.query_width, self.heads * self.d_v]
            for matrix in self.projection.split(widths):
                nn.init.xavier_uniform_(matrix)
            nn.init.xavier_uniform_(self.output.weight)
            if self.kind == "additive":
                for vector in self.hidden:
                    nn.init.xavier_uniform_(vector)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
    ) -> Tensor:
        """Self-attention of x [B, n, d_model], or of its real pieces [R, d_model] by `packing`.

        mask: see `attend`, with n for m.
        """
        queries, keys, values = self.project(x, packing)
        return self.attend(queries, keys, values, mask, causal, packing, packing)

    def project(self, x: Tensor, packing: Packing | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys [B, h, n, d_k] and values [B, h, n, d_v] of x [B, n, d_model] or packed.

        Where packed sentences can be attended as they are (`_stays_packed`), rows: [R, h, d_k] and
        [R, h, d_v]; so do `project_queries` and `project_memory`.
        """
        widths = [self.query_width, self.query_width, self.heads * self.d_v]
        queries, keys, values = self._project(x, slice(None), packing).split(widths, dim=-1)
        return self._by_head(queries), self._by_head(keys), self._by_head(values)

    def project_queries(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """Queries [B, h, n, d_k] of x [B, n, d_model] or packed."""
        return self._by_head(self._project(x, slice(self.query_width), packing))

    def project_memory(
        self, memory: Tensor, packing: Packing | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys [B, h, m, d_k] and values [B, h, m, d_v] of memory [B, m, d_model] or packed."""
        widths = [self.query_width, self.heads * self.d_v]
        projected = self._project(memory, slice(self.query_width, None), packing)
        keys, values = projected.split(widths, dim=-1)
        return self._by_head(keys), self._by_head(values)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Tensor:
        """Values weighted by attention, heads joined by W^O: [B, n, d_model], or packed.

        queries [B, h, n, d_k], keys [B, h, m, d_k], values [B, h, m, d_v]; mask: broadcastable to
        [B, h, n, m], bool, True where a query may look at a key, or, which is faster, what to add
        to the scores (`additive`); causal (not with a mask): query i sees keys 0 ... i.

        Rows, as `project` may give them, need no mask: each query sees the keys of its sentence.
        packing: of the queries and of what comes out; memory_packing: of keys and values.
        """
        if queries.dim() == 3:
            assert packing is not None
            assert memory_packing is not None
            packings = packing, memory_packing
            rows = varlen_attention.attention(queries, keys, values, packings, causal, self.scale)
            out: Tensor = self.output(rows.flatten(1))
            return out
        return self.join(self.heads_of(queries, keys, values, mask, causal), packing)

    def heads_of(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Values weighted by attention, head by head: [B, h, n, d_v]; arguments as in `attend`."""
        if self.keep_weights or not self._fused(queries, keys):
            weights = self.weights(queries, keys, mask, causal)
            if self.keep_weights:
                self.kept_weights = weights.detach()
            kept = dropout(weights, self.dropout, self.training)
            return kept.to(values.dtype) @ values
        return F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
            scale=self.scale,
        )

    def join(self, heads: Tensor, packing: Packing | None = None) -> Tensor:
        """Heads [B, h, n, d_v] joined by W^O: [B, n, d_model], or packed."""
        joined = heads.transpose(1, 2).flatten(2)
        out: Tensor = self.output(joined if packing is None else packing.pack(joined))
        return out

    def weights(
        self, queries: Tensor, keys: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """softmax of the scores, over keys: [B, h, n, m]; arguments as in `attend`."""
        scores = self._scores(queries, keys)
        if causal:
            # In float32, in which a CPU's softmax and its gradient take a third of the time.
            wide = torch.promote_types(scores.dtype, torch.float32)
            mask = scores.new_full(scores.shape[-2:], -math.inf, dtype=wide).triu(1)
        if mask is not None:
            allowed = mask.dtype == torch.bool
            scores = scores + (additive(mask, scores.dtype) if allowed else mask)
        return torch.softmax(scores, dim=-1)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        if self.kind != "additive":
            return (queries * self.scale) @ keys.transpose(-2, -1)
        # [h, B, n, m, d_k]: heads first, so that u multiplies each head's numbers in one product.
        activations = torch.tanh(
            queries.transpose(0, 1).unsqueeze(3) + keys.transpose(0, 1).unsqueeze(2)
        )
        scores = torch.bmm(activations.flatten(1, 3), self.hidden)
        return scores.view(activations.shape[:-1]).transpose(0, 1)

    def _fused(self, queries: Tensor, keys: Tensor) -> bool:
        """Whether PyTorch's fused kernel serves.

        It knows no additive attention. On a CPU plain products are faster for short sentences; and
        in bf16 the kernel's gradient takes ten times as long as theirs (torch 2.13, AMX).
        """
        if self.kind == "additive" or queries.device.type != "cpu":
            return self.kind != "additive"
        many = queries.size(-2) * keys.size(-2) > FEW_SCORES
        return many and queries.dtype != torch.bfloat16

    def _project(self, x: Tensor, rows: slice, packing: Packing | None) -> Tensor:
        """Some rows of the stacked W^Q, W^K, W^V times x; padding, if packed, is not computed."""
        projected = linear(x, self.projection, rows=rows)
        if packing is None or self._stays_packed(x, packing):
            return projected
        return packing.pad(projected)

    def _stays_packed(self, x: Tensor, packing: Packing) -> bool:
        """Whether x need not be padded for attention: where `varlen_attention` serves.

        Its kernel knows no additive attention, no dropout of weights, and keeps none.
        """
        return (
            packing.offsets is not None
            and self.kind != "additive"
            and not (self.training and self.dropout)
            and not self.keep_weights
            and varlen_attention.serves(x.device, product_type(x), max(self.d_k, self.d_v))
        )

    def _by_head(self, x: Tensor) -> Tensor:
        """[B, n, h * d] to [B, h, n, d], and rows [R, h * d] to [R, h, d]."""
        split: Tensor = x.unflatten(-1, (self.heads, -1))
        return split if x.dim() == 2 else split.transpose(1, 2)


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to scores: 0 where allowed (bool), minus infinity elsewhere."""
    zeros = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return zeros.masked_fill_(~allowed, -math.inf)


def may_pad_nothing(config: ModelConfig) -> bool:
    """Whether the model in training attends packed sentences alone where `varlen_attention` serves.

    Asks for no device, as a plan has none.
    """
    return (
        isinstance(config, TransformerConfig)
        and config.encoder_mixer == config.decoder_mixer == "self_attention"
        and config.attention != "additive"
        and not config.attention_dropout
        and max(config.d_k, config.d_v) <= varlen_attention.LARGEST
    )


def pads_nothing(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether it does so on this device, with products of this type."""
    if not may_pad_nothing(config):
        return False
    assert isinstance(config, TransformerConfig)
    return varlen_attention.serves(device, dtype, max(config.d_k, config.d_v))


def parameter_count(config: TransformerConfig) -> int:
    """Trainable numbers of one: W^Q, W^K, W^V and W^O; additive attention has u besides."""
    count = config.d_model * config.heads * (2 * config.d_k + 2 * config.d_v)
    return count + config.heads * config.d_k * (config.attention == "additive")


def projections(config: TransformerConfig) -> int:
    """Operations of Q, K, V and the output, for each piece."""
    return 2 * config.d_model * config.heads * (2 * config.d_k + 2 * config.d_v)


def pairwise(config: TransformerConfig) -> int:
    """Operations of a score and its part of the weighted sum, for each query and key.

    Additive scores are a product of d_k numbers too, u . tanh(q + k); their sum and tanh are
    element-wise.
    """
    return 2 * config.heads * (config.d_k + config.d_v)


def kept_bytes(config: TransformerConfig, size: int) -> int:
    """What the backward pass needs for each piece, scores left out: the input, queries, keys,
    values, heads and the softmax's sums; `size`: bytes of a number that goes into a product."""
    return size * (config.d_model + config.heads * (2 * config.d_k + 2 * config.d_v)) + (
        4 * config.heads
    )


def kept_of_scores(config: TransformerConfig, size: int, plain: bool) -> int:
    """What the backward pass needs for each query, key and head; plain: without a fused kernel.

    The softmax in float32, and its copy where products are in bf16; which weights dropout hit, and
    what it left of them; additive scores keep tanh of each query with each key, and are always
    plain.
    """
    dropped = 2 * size * (config.attention_dropout > 0)
    if config.attention == "additive":
        return 4 + size + size * config.d_k + dropped
    return (4 + size * (size == 2) + dropped) * plain
