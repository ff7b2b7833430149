"""The encoder-decoder Transformer (section 3.1, figure 1).

Shapes: B sentences, n source pieces, m target pieces, K hypotheses a sentence, V pieces in the
vocabulary.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig, target_size
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import attention, components
from seq2sweep.model.architecture import Architecture, Lengths
from seq2sweep.model.attention import MultiHeadAttention, additive
from seq2sweep.model.dropout import dropout
from seq2sweep.model.layers import (
    LEARNED_POSITIONS,
    DecoderLayer,
    EncoderLayer,
    LayerCache,
    Positions,
    embedding,
    projection,
    summed,
)
from seq2sweep.model.packing import Packing

STEPS_TO_DROP = 8
SHARE_TO_DROP = 0.7
"""How often a cache looks for pieces to drop, and up to which share must be left for it to pay."""


class Transformer(Architecture):
    """The Transformer; every size and choice is a key of the `model` section of params.yaml."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size)
        self.source_embedding = embedding(vocabulary_size, config.d_model)
        self.target_embedding = (
            self.source_embedding
            if config.tie_embeddings
            else embedding(target_size(config, vocabulary_size), config.d_model)
        )
        self.source_positions = Positions(config.positions, config.d_model)
        self.target_positions = Positions(config.positions, config.d_model)
        self.encoder = nn.ModuleList(EncoderLayer(config, i) for i in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, i) for i in range(config.layers))
        # Pre-norm layers leave their sums as they are; the norm comes once, at the end.
        pre = config.norm == "pre"
        norm = components.norm(config.norm_kind)
        self.encoder_norm = norm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = norm(config.d_model) if pre else nn.Identity()
        tied = self.source_embedding if config.tie_embeddings else None
        self.projection = projection(target_size(config, vocabulary_size), config.d_model, tied)

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None = None,
        head: Callable[[Tensor, Tensor], Any] = F.linear,
    ) -> Any:
        """Logits [B, m, V] of the next piece after each of target_in [B, m].

        source [B, n] and target_in hold piece ids, padded at the end with PAD.
        packings: of source and target_in; with them no padding is computed outside of attention,
        and the result has one row for each real piece of target_in. Where sentences are attended
        packed, source [S] and target_in [R] may be their real pieces alone.
        head: what to make of the decoder's last states and the projection's weights [V, d_model]
        instead of logits; here, so that the weights are at hand however the model is spread out.
        """
        source_packing, target_packing = packings or (None, None)
        mask = self._mask(source) if source.dim() > 1 else None
        memory = self.encode(source, source_packing)
        x = self._embed(self.target_embedding, self.target_positions, target_in, 0, target_packing)
        for layer in self.decoder:
            x = layer(x, memory, mask, target_packing, source_packing)
        return head(self.decoder_norm(summed(x)), self.projection.weight)

    def encode(self, source: Tensor, packing: Packing | None = None) -> Tensor:
        """The encoder's output [B, n, d_model], or packed, for source [B, n] or packed."""
        mask = self._mask(source) if source.dim() > 1 else None
        x = self._embed(self.source_embedding, self.source_positions, source, 0, packing)
        for layer in self.encoder:
            x = layer(x, mask, packing)
        memory: Tensor = self.encoder_norm(summed(x))
        return memory

    def start(self, source: Tensor) -> DecoderCache:
        """Encode source [B, n] and prepare to decode it step by step."""
        memory = self.encode(source)
        layers = []
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            layers.append(layer.start(memory))
        nothing = torch.ones(source.size(0), 0, dtype=torch.bool, device=source.device)
        reach = components.mixer(self.config.decoder_mixer).reach(self.config)
        return DecoderCache(self._mask(source), layers, nothing, reach)

    def step(self, pieces: Tensor, cache: DecoderCache) -> Tensor:
        """Logits [B, K, V] after appending pieces [B, K] to each hypothesis.

        K may differ from step to step only as `DecoderCache.select` has arranged the rows.
        """
        x = self._embed(
            self.target_embedding, self.target_positions, pieces.unsqueeze(-1), cache.steps
        ).squeeze(2)
        past = additive(cache.extend(*pieces.shape), x.dtype)
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = layer.step(x, layer_cache, past, cache.source_mask)
        cache.steps += 1
        logits: Tensor = self.projection(self.decoder_norm(x))
        return logits

    @torch.no_grad()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """How each query spreads its attention, for inspection (the paper's figures 3 to 5).

        Returns, for layer i from 0: `encoder.i.attention` [B, h, n, n], `decoder.i.attention`
        [B, h, m, m] and `decoder.i.memory_attention` [B, h, m, n]. Each row sums to 1. A mixer that
        is no attention has none.
        """
        modules = {
            name: module
            for name, module in self.named_modules()
            if isinstance(module, MultiHeadAttention)
        }
        was_training = self.training
        try:
            self.eval()
            for module in modules.values():
                module.keep_weights = True
            self(source, target_in)
            return {name: _taken(module) for name, module in modules.items()}
        finally:
            self.train(was_training)
            for module in modules.values():
                module.keep_weights, module.kept_weights = False, None

    @property
    def max_length(self) -> int:
        """Most pieces a side may have: what a learned table of positions holds."""
        return LEARNED_POSITIONS if self.config.positions == "learned" else sys.maxsize

    def blocks(self) -> Iterator[nn.Module]:
        """The layers, of encoder and decoder."""
        yield from self.encoder
        yield from self.decoder

    @staticmethod
    def parameter_count(config: TransformerConfig, vocabulary_size: int) -> int:
        """Trainable numbers; attention has no biases."""
        d = config.d_model
        encoder_mixer, decoder_mixer = (
            components.mixer(kind).parameter_count(config, causal)
            for kind, causal in ((config.encoder_mixer, False), (config.decoder_mixer, True))
        )
        memory_attention = attention.parameter_count(config)
        feed_forward = components.feed_forward(config.feed_forward).parameter_count(d, config.d_ff)
        norm = components.norm(config.norm_kind).parameter_count(d)
        encoder_layer = encoder_mixer + feed_forward + 2 * norm
        decoder_layer = decoder_mixer + memory_attention + feed_forward + 3 * norm
        untied = 0 if config.tie_embeddings else 2 * target_size(config, vocabulary_size)
        embeddings = (vocabulary_size + untied) * d
        positions = 2 * LEARNED_POSITIONS * d if config.positions == "learned" else 0
        last_norms = 2 * norm if config.norm == "pre" else 0
        layers = config.layers * (encoder_layer + decoder_layer)
        return int(layers + last_norms + embeddings + positions)

    @staticmethod
    def forward_flops(
        config: TransformerConfig,
        vocabulary_size: int,
        source_lengths: Lengths,
        target_lengths: Lengths,
        widths: tuple[Lengths, Lengths] | None = None,
    ) -> float:
        """Operations of one forward pass over sentence pairs: see `model.flops.forward_flops`."""
        n = source_lengths.astype(np.float64)
        m = target_lengths.astype(np.float64)
        keys, queries = (n, m) if widths is None else (w.astype(np.float64) for w in widths)
        sides = (config.encoder_mixer, False, n, keys), (config.decoder_mixer, True, m, queries)
        encoder_mixer, decoder_mixer = (
            components.mixer(kind).flops(config, causal, own, None if widths is None else wide)
            for kind, causal, own, wide in sides
        )
        d, h, d_k, d_v = config.d_model, config.heads, config.d_k, config.d_v
        feed_forward = components.feed_forward(config.feed_forward).flops(d, config.d_ff)
        encoder_layer = n * feed_forward + encoder_mixer
        decoder_layer = (
            m * feed_forward
            + decoder_mixer
            + m * 2 * d * h * (d_k + d_v)  # cross-attention: queries and output ...
            + n * 2 * d * h * (d_k + d_v)  # ... and keys and values of the memory
            + queries * keys * attention.pairwise(config)
        )
        projected = 2 * m * d * target_size(config, vocabulary_size)
        per_pair = config.layers * (encoder_layer + decoder_layer) + projected
        return float(per_pair.sum())

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, lengths: tuple[float, float], size: int, gpu: bool
    ) -> tuple[float, float]:
        """Bytes for each source and each target token: see `model.flops.kept_bytes`.

        The residual stream, which sums and LayerNorm keep, is float32; what goes into a matrix
        product is kept in its precision, in bf16 as a copy. A GPU keeps a byte for a unit that
        dropout may hit, a CPU a number. Fused attention, on a CPU for long sentences in float32
        without dropout of weights, keeps no weights.
        """
        d, h, d_k, d_v = config.d_model, config.heads, config.d_k, config.d_v
        norm = components.norm(config.norm_kind).kept_bytes(d)
        mask = 1 if gpu else size
        residual = norm + mask * d * (config.dropout > 0)  # and which units dropout hit
        inner = components.feed_forward(config.feed_forward).KEPT
        feed_forward = size * (d + inner * config.d_ff) + residual
        feed_forward += (size + mask) * config.d_ff * (config.feed_forward_dropout > 0)
        memory_source: float = size * h * (d_k + d_v) + d * size * (size == 2)
        memory_target: float = size * (d + h * (d_k + d_v)) + 4 * h + residual
        source_keys, target_keys = lengths
        few = source_keys * target_keys <= attention.FEW_SCORES
        plain = not gpu and (size == 2 or few or config.attention_dropout > 0)
        memory_target += h * source_keys * attention.kept_of_scores(config, size, plain)
        encoder_mixer, decoder_mixer = (
            components.mixer(kind).kept_bytes(config, causal, length, size, plain) + residual
            for kind, causal, length in (
                (config.encoder_mixer, False, source_keys),
                (config.decoder_mixer, True, target_keys),
            )
        )
        embedding = 16 + (1 if gpu else 4) * d * (config.dropout > 0)
        source = config.layers * (encoder_mixer + feed_forward + memory_source) + embedding
        target = config.layers * (decoder_mixer + memory_target + feed_forward) + embedding
        return source, target + size * d

    def _mask(self, source: Tensor) -> Tensor:
        """What attention over source [B, n] adds to its scores: [B, 1, 1, n]."""
        return additive(source.ne(PAD), self.projection.weight.dtype)[:, None, None, :]

    def _embed(
        self,
        embedding: nn.Embedding,
        positions: Positions,
        pieces: Tensor,
        start: int,
        packing: Packing | None = None,
    ) -> Tensor:
        """Embeddings times sqrt(d_model) (section 3.4) plus positions, with dropout (5.4)."""
        rows = positions(start, pieces.size(-1) if packing is None else packing.width)
        if packing is not None:
            rows = rows[packing.columns()]
            if pieces.dim() > 1:
                pieces = pieces.flatten()[packing.places]
        x = embedding(pieces) * math.sqrt(self.config.d_model) + rows
        return dropout(x, self.config.dropout, self.training)


@dataclass
class DecoderCache:
    """What a decoding step needs of the steps before: one entry a decoder layer.

    Keys and values are not put in another order: which of a sentence's pieces a hypothesis is made
    of is a mask, and only that is arranged anew when a beam search chooses. Pieces that none is
    made of any more are dropped from time to time: hypotheses mostly share how they begin.

    source_mask: added to scores, [B, 1, 1, n]; past: bool [B * K, pieces that the layers hold of a
    sentence], True for those that a hypothesis is made of, without those that lie further back than
    the last `reach` of them; steps: target positions decoded so far.
    """

    source_mask: Tensor
    layers: list[LayerCache]
    past: Tensor
    reach: int
    steps: int = 0

    def extend(self, sentences: int, hypotheses: int) -> Tensor:
        """Note one piece more of each hypothesis: [B, 1, K, pieces held with these]."""
        if self.steps and self.steps % STEPS_TO_DROP == 0:
            self._drop(hypotheses)
        own = torch.eye(hypotheses, dtype=torch.bool, device=self.past.device)
        self.past = torch.cat((self.past, own.repeat(sentences, 1)), dim=1)
        if self.steps >= self.reach:
            later = self.past.flip(1).cumsum(1).flip(1)
            self.past &= later <= self.reach
        return self.past.view(sentences, 1, hypotheses, -1)

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r] of [0, B * K_old).

        hypotheses: int64 [B * K_new], sentence by sentence.
        """
        self.past = self.past.index_select(0, hypotheses)
        for layer in self.layers:
            layer.mixer.select(hypotheses)

    def _drop(self, hypotheses: int) -> None:
        """Hold no more pieces of a sentence than any sentence's hypotheses are made of."""
        past = self.past.unflatten(0, (-1, hypotheses))
        alive = past.any(dim=1)
        width = int(alive.sum(dim=1).max())
        if width > SHARE_TO_DROP * alive.size(1):
            return
        # Stable, so that pieces stay in their order.
        columns = alive.sort(dim=1, descending=True, stable=True).indices[:, :width]
        self.past = past.gather(2, columns.unsqueeze(1).expand(-1, hypotheses, -1)).flatten(0, 1)
        for layer in self.layers:
            layer.mixer.hold(columns)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices) from what hypotheses share."""
        self.source_mask = self.source_mask.index_select(0, sentences)
        for layer in self.layers:
            layer.keep(sentences)


def _taken(module: MultiHeadAttention) -> Tensor:
    assert module.kept_weights is not None
    return module.kept_weights
