"""Recurrent layers with attention: GNMT (Wu et al. 2016, arXiv 1609.08144).

The lowest encoder layer reads in both directions, the others from left to right. The lowest decoder
layer reads each token with the attention of the token before; its output asks for attention to the
encoder by a network with one hidden layer. The layers above read the layer below and that
attention: of this token (`context: current`, the second form, whose upper layers run over a whole
sentence at once) or of the one before (`previous`, the paper's). From the third layer on, a layer
adds its input to its output.

What the paper leaves open: all states, and the first attention, are zeros at the start; dropout is
on what a layer reads of the layer below; weights start as elsewhere here (Xavier), where the paper
draws from +-0.04. Tied embeddings are scaled as the Transformer's (section 3.4).

Shapes: B sentences, n source tokens, m target tokens, K hypotheses a sentence, d = d_model, V
tokens in the vocabulary.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2sweep.config import RecurrentConfig, target_size
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import lstm
from seq2sweep.model.architecture import Architecture, Lengths
from seq2sweep.model.attention import additive
from seq2sweep.model.dropout import dropout
from seq2sweep.model.layers import embedding, projection
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import Linear

FIRST_RESIDUAL = 2
"""The number, from 0, of the first layer that adds its input to its output."""


class Recurrent(Architecture):
    """GNMT; every size and choice is a key of the `model` section of params.yaml."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size)
        d = config.d_model
        self.source_embedding = embedding(vocabulary_size, d)
        self.target_embedding = (
            self.source_embedding
            if config.tie_embeddings
            else embedding(target_size(config, vocabulary_size), d)
        )
        self.rightwards, self.leftwards = lstm.made(d, d), lstm.made(d, d)
        self.encoder = nn.ModuleList(
            lstm.made(2 * d if i == 0 else d, d) for i in range(config.layers - 1)
        )
        self.bottom = AttendingLayer(d)
        self.decoder = nn.ModuleList(lstm.made(2 * d, d) for _ in range(config.layers - 1))
        tied = self.source_embedding if config.tie_embeddings else None
        self.projection = projection(target_size(config, vocabulary_size), d, tied)

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None = None,
        head: Callable[[Tensor, Tensor], Any] = F.linear,
    ) -> Any:
        """Logits [B, m, V] of the next token after each of target_in [B, m]; see Architecture."""
        source_packing, target_packing = packings or (None, None)
        memory = self.encode(source)
        keys = self.bottom.keys(memory, source_packing)
        x = self._embed(self.target_embedding, target_in)
        x, contexts, _ = self.bottom(x, keys, memory, _mask(source, memory.dtype))
        if self.config.context == "previous":
            contexts = F.pad(contexts[:, :-1], (0, 0, 1, 0))
        for number, layer in enumerate(self.decoder, 1):
            read = torch.cat((self._dropped(x), contexts.to(x.dtype)), dim=-1)
            x = _above(x, lstm.run(layer, read)[0], number)
        x = self._dropped(x)
        return head(x if target_packing is None else target_packing.pack(x), self.projection.weight)

    def encode(self, source: Tensor, packing: Packing | None = None) -> Tensor:
        """The encoder's output for source [B, n]: [B, n, d], or packed."""
        x = self._embed(self.source_embedding, source)
        places = lstm.turned(x, source.ne(PAD)[:, None, None, :])
        back, _ = lstm.run(self.leftwards, lstm.arranged(x, places))
        x = torch.cat((lstm.run(self.rightwards, x)[0], lstm.arranged(back, places)), dim=-1)
        for number, layer in enumerate(self.encoder, 1):
            x = _above(x, lstm.run(layer, self._dropped(x))[0], number)
        return x if packing is None else packing.pack(x)

    def start(self, source: Tensor) -> RecurrentCache:
        """Encode source [B, n] and prepare to decode it step by step."""
        memory = self.encode(source)
        zeros = memory.new_zeros(len(source), self.config.d_model)
        mask = _mask(source, memory.dtype)
        states = [(zeros, zeros) for _ in range(self.config.layers)]
        return RecurrentCache(self.bottom.keys(memory), memory, mask, states, zeros)

    def step(self, pieces: Tensor, cache: RecurrentCache) -> Tensor:
        """Logits [B, K, V] after appending tokens [B, K] to each hypothesis."""
        before = cache.context
        x = self._embed(self.target_embedding, pieces.flatten())
        x, cell, cache.context = self.bottom.step(x, *cache.states[0], before, cache)
        cache.states[0] = x, cell
        context = before if self.config.context == "previous" else cache.context
        for number, layer in enumerate(self.decoder, 1):
            state = tuple(numbers.unsqueeze(0) for numbers in cache.states[number])
            read = torch.cat((x, context), dim=-1).unsqueeze(1)
            out, (output, cell) = lstm.run(layer, read, state)
            cache.states[number] = output.squeeze(0), cell.squeeze(0)
            x = _above(x, out.squeeze(1), number)
        logits: Tensor = self.projection(x)
        return logits.view(*pieces.shape, -1)

    @torch.no_grad()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """The attention over the source that the logits after each token have read:
        `decoder.0.memory_attention` [B, 1, m, n]; each row sums to 1. With `context: previous`
        that is of the token before; the first row, which has none, is even."""
        was_training = self.training
        try:
            self.eval()
            memory = self.encode(source)
            x = self._embed(self.target_embedding, target_in)
            keys, mask = self.bottom.keys(memory), _mask(source, memory.dtype)
            weights = self.bottom(x, keys, memory, mask)[2]
            if self.config.context == "previous":
                even = torch.softmax(mask, dim=-1)
                weights = torch.cat((even, weights[:, :-1]), dim=1)
            return {"decoder.0.memory_attention": weights.unsqueeze(1)}
        finally:
            self.train(was_training)

    @property
    def max_length(self) -> int:
        """Most tokens a side may have: there are no positions."""
        return sys.maxsize

    def blocks(self) -> Iterator[nn.Module]:
        """The layers, of encoder and decoder, but the lowest of the decoder, which makes its keys
        before it runs."""
        yield from (self.rightwards, self.leftwards, *self.encoder, *self.decoder)

    @staticmethod
    def parameter_count(config: RecurrentConfig, vocabulary_size: int) -> int:
        """Trainable numbers; LSTMs have two biases a gate, attention and projection none."""
        d, layers = config.d_model, config.layers
        encoder = 2 * lstm.parameter_count(d, d) + lstm.parameter_count(2 * d, d)
        encoder += (layers - 2) * lstm.parameter_count(d, d)
        decoder = layers * lstm.parameter_count(2 * d, d) + 2 * d * d + d
        untied = 0 if config.tie_embeddings else 2 * target_size(config, vocabulary_size)
        return encoder + decoder + (vocabulary_size + untied) * d

    @staticmethod
    def forward_flops(
        config: RecurrentConfig,
        vocabulary_size: int,
        source_lengths: Lengths,
        target_lengths: Lengths,
        widths: tuple[Lengths, Lengths] | None = None,
    ) -> float:
        """Operations of one forward pass over sentence pairs: see `model.flops.forward_flops`.
        Recurrent layers and attention compute padding."""
        d, layers = config.d_model, config.layers
        own = [lengths.astype(np.float64) for lengths in (source_lengths, target_lengths)]
        n, m = own if widths is None else [w.astype(np.float64) for w in widths]
        encoder = 2 * lstm.flops(d, d) + lstm.flops(2 * d, d) + (layers - 2) * lstm.flops(d, d)
        decoder = layers * lstm.flops(2 * d, d) + 2 * d * d  # with the query
        pairs = n * encoder + own[0] * 2 * d * d + m * decoder + n * m * 4 * d
        projected = 2 * own[1] * d * target_size(config, vocabulary_size)
        return float((pairs + projected).sum())

    @staticmethod
    def kept_bytes(
        config: RecurrentConfig, lengths: tuple[float, float], size: int, gpu: bool
    ) -> tuple[float, float]:
        """Bytes for each source and each target token: see `model.flops.kept_bytes`. In float32,
        but for the projection's input; of attention the weights."""
        d, layers = config.d_model, config.layers
        mask = 4.0 * d * (config.dropout > 0)
        source = 16 + mask + 2 * lstm.kept_bytes(d, d) + 8 * d  # lowest layer; memory and its keys
        source += 2 * mask + lstm.kept_bytes(2 * d, d)
        source += (layers - 2) * (mask + lstm.kept_bytes(d, d))
        target = 16 + mask + 4 * (9 * d + lengths[0])
        target += (layers - 1) * (mask + lstm.kept_bytes(2 * d, d)) + size * d + mask
        return source, target

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        return self._dropped(embedding(tokens) * math.sqrt(self.config.d_model))

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)


@dataclass
class RecurrentCache:
    """What a decoding step needs of the steps before.

    keys, memory: [B, n, d], and mask: [B, 1, n], shared by a sentence's hypotheses. states: output
    and cell of each layer, and context: the newest attention, [B * K, d] each.
    """

    keys: Tensor
    memory: Tensor
    mask: Tensor
    states: list[tuple[Tensor, Tensor]]
    context: Tensor

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""
        self.states = [
            (output.index_select(0, hypotheses), cell.index_select(0, hypotheses))
            for output, cell in self.states
        ]
        self.context = self.context.index_select(0, hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices) from what hypotheses share."""
        for name in ("keys", "memory", "mask"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))


class AttendingLayer(nn.Module):
    """The lowest decoder layer and its attention: what one step finds the next one reads.

    h_t, s_t = LSTM([x_t; c_{t-1}], h_{t-1}, s_{t-1}); the context c_t = sum_j a_tj memory_j with
    a_t = softmax_j(v . tanh(W_q h_t + W_k memory_j)) (Bahdanau et al. 2015, without biases).
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.cell = lstm.made(2 * d, d)
        self.query, self.key = Linear(d, d, bias=False), Linear(d, d, bias=False)
        self.score = nn.Parameter(torch.empty(d, 1))
        for weight in (self.query.weight, self.key.weight, self.score):
            nn.init.xavier_uniform_(weight)

    def keys(self, memory: Tensor, packing: Packing | None = None) -> Tensor:
        """W_k memory: [B, n, d] of [B, n, d]; padding, if packed, is not computed."""
        if packing is None:
            found: Tensor = self.key(memory)
            return found
        return packing.pad(self.key(packing.pack(memory)))

    def forward(
        self, x: Tensor, keys: Tensor, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs h [B, m, d], contexts c [B, m, d] and weights a [B, m, n] for x [B, m, d].

        keys, memory: [B, n, d]; mask [B, 1, n]: 0, or minus infinity at padding. As precise as
        x: sums over so many steps are no place for bf16.
        """
        d, weights = x.size(-1), cast(Any, self.cell)
        with torch.autocast(x.device.type, enabled=False):
            tokens = F.linear(x, weights.weight_ih_l0[:, :d], weights.bias_ih_l0)
            tokens = tokens + weights.bias_hh_l0
            both = torch.cat((weights.weight_ih_l0[:, d:], weights.weight_hh_l0), dim=1)
            found: tuple[Tensor, Tensor, Tensor] = _Loop.apply(  # type: ignore[no-untyped-call]
                tokens, both, self.query.weight, self.score, keys.to(x.dtype),
                memory.to(x.dtype), mask.to(x.dtype),
            )  # fmt: skip
        return found

    def step(
        self, x: Tensor, output: Tensor, cell: Tensor, context: Tensor, cache: RecurrentCache
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Output, cell and context, [B * K, d] each, after one token of each hypothesis, x
        [B * K, d]."""
        read = torch.cat((x, context), dim=-1).unsqueeze(1)
        state = output.unsqueeze(0), cell.unsqueeze(0)
        _, (outputs, cells) = lstm.run(self.cell, read, state)
        # [B, K, n, d]: a sentence's hypotheses ask the same keys.
        queries = self.query(outputs[0]).view(len(cache.keys), -1, 1, x.size(-1))
        scores = (torch.tanh(queries + cache.keys.unsqueeze(1)) @ self.score).squeeze(-1)
        weights = torch.softmax(scores + cache.mask, dim=-1)
        return outputs[0], cells[0], (weights @ cache.memory).flatten(0, 1)


class _Loop(torch.autograd.Function):
    """All steps of an `AttendingLayer`, with a gradient written out: what PyTorch would note for
    each of a step's twenty operations takes several times as long, and the memory of all tanh.

    tokens [B, m, 4d]: what the gates i, f, g, o get of the tokens; both [4d, 2d]: weights of
    [c_{t-1}; h_{t-1}]; query [d, d]; score [d, 1]; keys, memory [B, n, d]; mask [B, 1, n].
    """

    @staticmethod
    def forward(context: Any, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tokens, both, query, score, keys, memory, mask = given
        sentences, m, d = len(tokens), tokens.size(1), memory.size(-1)
        # Step by step first, so that a step's numbers lie together.
        read = tokens.new_zeros(m + 1, sentences, 2 * d)
        gates = tokens.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        cells = tokens.new_zeros(m + 1, sentences, d)
        weights = tokens.new_empty(m, sentences, 1, keys.size(1))
        for t in range(m):
            gate = gates[t].addmm_(read[t], both.T)
            gate[:, : 2 * d].sigmoid_()
            gate[:, 2 * d : 3 * d].tanh_()
            gate[:, 3 * d :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=1)
            torch.addcmul(f * cells[t], i, g, out=cells[t + 1])
            output = torch.mul(o, cells[t + 1].tanh(), out=read[t + 1, :, d:])
            asked = torch.tanh(keys + (output @ query.T).unsqueeze(1))
            scores = (asked.flatten(0, 1) @ score).view(sentences, 1, -1)
            weights[t] = torch.softmax(scores + mask, dim=-1)
            read[t + 1, :, :d] = (weights[t] @ memory).squeeze(1)
        context.save_for_backward(read, gates, cells, weights, both, query, score, keys, memory)
        contexts, outputs = read[1:].transpose(0, 1).split(d, dim=-1)
        shown = weights.squeeze(2).transpose(0, 1)
        context.mark_non_differentiable(shown)
        return outputs.contiguous(), contexts.contiguous(), shown

    @staticmethod
    @once_differentiable
    def backward(context: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        read, gates, cells, weights, both, query, score, keys, memory = context.saved_tensors
        d_outputs, d_contexts, _ = above
        m, d = len(gates), memory.size(-1)
        d_read, d_cell = torch.zeros_like(read[0]), torch.zeros_like(cells[0])
        d_gates, d_queries = torch.empty_like(gates), torch.empty_like(cells[1:])
        d_keys, d_memory = torch.zeros_like(keys), torch.zeros_like(memory)
        d_score = torch.zeros_like(score)
        for t in reversed(range(m)):
            d_context = (d_contexts[:, t] + d_read[:, :d]).unsqueeze(1)
            weight = weights[t]
            d_memory.baddbmm_(weight.transpose(1, 2), d_context)
            d_weight = d_context @ memory.transpose(1, 2)
            d_scores = weight * (d_weight - (weight * d_weight).sum(dim=-1, keepdim=True))
            output = read[t + 1, :, d:]
            asked = torch.tanh(keys + (output @ query.T).unsqueeze(1))
            d_score.addmm_(asked.flatten(0, 1).T, d_scores.view(-1, 1))
            inside = asked.square_().neg_().add_(1).mul_(score.T).mul_(d_scores.transpose(1, 2))
            d_keys += inside
            torch.sum(inside, dim=1, out=d_queries[t])
            d_output = d_outputs[:, t] + d_read[:, d:] + d_queries[t] @ query
            i, f, g, o = gates[t].chunk(4, dim=1)
            squashed = cells[t + 1].tanh()
            d_cell = d_cell + d_output * o * (1 - squashed.square())
            d_i, d_f, d_g, d_o = d_gates[t].chunk(4, dim=1)
            torch.mul(d_cell * g, i * (1 - i), out=d_i)
            torch.mul(d_cell * cells[t], f * (1 - f), out=d_f)
            torch.mul(d_cell * i, 1 - g.square(), out=d_g)
            torch.mul(d_output * squashed, o * (1 - o), out=d_o)
            d_cell = d_cell * f
            d_read = d_gates[t] @ both
        rows = d_gates.flatten(0, 1)
        d_both = rows.T @ read[:-1].flatten(0, 1)
        d_query = d_queries.flatten(0, 1).T @ read[1:, :, d:].flatten(0, 1)
        return d_gates.transpose(0, 1), d_both, d_query, d_score, d_keys, d_memory, None


def _above(x: Tensor, out: Tensor, number: int) -> Tensor:
    """What a layer gives, by its number from 0: from the third one on with its input."""
    return x + out if number >= FIRST_RESIDUAL else out


def _mask(source: Tensor, dtype: torch.dtype) -> Tensor:
    """What attention over source [B, n] adds to its scores: [B, 1, n]."""
    return additive(source.ne(PAD), dtype)[:, None, :]
