"""What trains the same model without a toolkit: a loop written by hand; torch.nn.Transformer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.contenders import Precision, Update
from benchmarks.sizes import DROPOUT, LEARNING_RATE, LONGEST, SMOOTHING, Size
from seq2sweep.model.layers import sinusoids


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """PyTorch's own, of logits [B, m, V] and target [B, m]."""
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=SMOOTHING
    )


def loop(model: nn.Module, logits: Callable[[Any], Tensor], precision: Precision) -> Update:
    """Forward, cross-entropy, backward, Adam: as in any tutorial, at their fastest, which on a
    Xeon is 3 to 6 % faster with a compiled cross-entropy."""
    import torch._inductor.config as inductor

    inductor.cpp.dynamic_threads = True
    compiled = torch.compile(cross_entropy, dynamic=True)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    def update(batch: Any) -> None:
        with autocast(precision):
            loss = compiled(logits(batch), batch.target_out)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


@contextlib.contextmanager
def autocast(precision: Precision) -> Iterator[None]:
    """Products in bf16, if that is the precision."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        yield


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """`scaled_dot_product_attention` as products and a softmax: the gradient of its fused kernel in
    bf16 takes ten times as long on a CPU."""
    # Or the products would be in float32.
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with sdpa_kernel(SDPBackend.MATH):
        yield


class Embedding(nn.Module):
    """One matrix for both sides and the logits, and the sum with positions."""

    positions: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = math.sqrt(size.d_model)
        self.pieces = nn.Embedding(size.vocabulary, size.d_model)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("positions", sinusoids(LONGEST, size.d_model))
        nn.init.normal_(self.pieces.weight, std=size.d_model**-0.5)

    def forward(self, pieces: Tensor) -> Tensor:
        """States [B, n, d_model] of pieces [B, n]."""
        out: Tensor = self.dropout(
            self.pieces(pieces) * self.scale + self.positions[: pieces.size(1)]
        )
        return out

    def logits(self, states: Tensor) -> Tensor:
        """[B, n, V] of states [B, n, d_model]."""
        return F.linear(states, self.pieces.weight)


class Attention(nn.Module):
    """Self-attention, or attention over a memory."""

    def __init__(self, size: Size, over_memory: bool = False) -> None:
        super().__init__()
        self.heads, self.scale = size.heads, 1 / math.sqrt(size.head)
        width = size.heads * size.head
        if over_memory:
            self.queries = nn.Linear(size.d_model, width, bias=False)
            self.memory = nn.Linear(size.d_model, 2 * width, bias=False)
        else:
            self.projection = nn.Linear(size.d_model, 3 * width, bias=False)
        self.output = nn.Linear(width, size.d_model, bias=False)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None) -> Tensor:
        """Of x [B, n, d_model]. mask: what to add to scores [B, h, n, m]."""
        if memory is None:
            parts = self.projection(x).chunk(3, dim=-1)
        else:
            parts = self.queries(x), *self.memory(memory).chunk(2, dim=-1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in parts)
        # The mask is float32, and so the softmax, which takes a third of bf16's time on a CPU.
        scores = (q * self.scale) @ k.transpose(-2, -1) + mask
        mixed = scores.softmax(dim=-1) @ v
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """Of the encoder; with attention over a memory, of the decoder."""

    def __init__(self, size: Size, decoder: bool) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.memory_attention = Attention(size, over_memory=True) if decoder else None
        self.feed_forward = nn.Sequential(
            nn.Linear(size.d_model, size.d_ff), nn.ReLU(), nn.Linear(size.d_ff, size.d_model)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size.d_model) for _ in range(3 if decoder else 2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, blank: Tensor | None = None
    ) -> Tensor:
        """x [B, n, d_model]; mask of the attention to itself, blank of that over the memory."""
        x = self.norms[0](x + self.dropout(self.attention(x, mask)))
        if self.memory_attention is not None:
            x = self.norms[1](x + self.dropout(self.memory_attention(x, blank, memory)))
        out: Tensor = self.norms[-1](x + self.dropout(self.feed_forward(x)))
        return out


class Handwritten(nn.Module):
    """The Transformer as one would write it, of padded batches."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = Embedding(size)
        self.encoder = nn.ModuleList(Layer(size, decoder=False) for _ in range(size.layers))
        self.decoder = nn.ModuleList(Layer(size, decoder=True) for _ in range(size.layers))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [B, m, V] of source [B, n] and target [B, m]."""
        blank = torch.zeros(source.shape).masked_fill(source.eq(0), -math.inf)[:, None, None]
        memory = self.embedding(source)
        for layer in self.encoder:
            memory = layer(memory, blank)
        future = torch.full((target.size(1),) * 2, -math.inf).triu(1)
        x = self.embedding(target)
        for layer in self.decoder:
            x = layer(x, future, memory, blank)
        return self.embedding.logits(x)

    def blocks(self) -> Iterator[nn.Module]:
        """The layers."""
        yield from (*self.encoder, *self.decoder)


def hand(size: Size, precision: Precision) -> Update:
    """Attention in three lines, queries, keys and values in one product."""
    model = Handwritten(size).train()
    return loop(model, lambda batch: model(batch.source, batch.target_in), precision)


def hand_compiled(size: Size, precision: Precision) -> Update:
    """The same with its layers compiled as ours are: all of it as one graph is slower."""
    from seq2sweep.train.compiled import compile_layers

    model: Any = Handwritten(size).train()
    compile_layers(model, torch.device("cpu"))
    return loop(model, lambda batch: model(batch.source, batch.target_in), precision)


def plain(size: Size, precision: Precision) -> Update:
    """torch.nn.Transformer, without dropout of attention's weights and inside feed-forward."""
    embedding = Embedding(size)
    transformer = nn.Transformer(
        size.d_model, size.heads, size.layers, size.layers, size.d_ff, DROPOUT, batch_first=True
    )
    transformer.encoder.norm = transformer.decoder.norm = None
    for layer in (*transformer.encoder.layers, *transformer.decoder.layers):
        layer.dropout.p = 0.0
        for part in layer.children():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
    model = nn.ModuleList([embedding, transformer]).train()

    def logits(batch: Any) -> Tensor:
        source, target = batch.source, batch.target_in
        future = nn.Transformer.generate_square_subsequent_mask(target.size(1)).isinf()
        with plain_attention():
            states = transformer(
                embedding(source), embedding(target), tgt_mask=future, tgt_is_causal=True,
                src_key_padding_mask=source.eq(0), memory_key_padding_mask=source.eq(0),
            )  # fmt: skip
        return embedding.logits(states)

    return loop(model, logits, precision)
