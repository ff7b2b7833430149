"""ByteNet: dilated convolutions without attention (Kalchbrenner et al. 2016, arXiv 1610.10099).

The paper's, section 3: embeddings and the stream between blocks are 2d wide, which is `d_model`,
and blocks are d wide inside; residual blocks with ReLU, for translation (figure 3, left); dilations
that repeat, 1, 2, 4, 8, 16; an encoder that looks both ways and a masked decoder, which is stacked
on the encoder and unfolded over it: the source is padded to a |s| + b positions, and position t of
the decoder sees column t of the encoder, or zeros where there is no such column.

The choices here, of what the paper leaves open or this project has once for all its models:
- Column t is added to the embedding of target token t. Tensor2Tensor joins the two and has a
  convolution make one of them; adding needs no weights of its own.
- Both stacks end with a layer norm, as those of a pre-norm Transformer: a column has the scale of
  the embedding that it is added to, however many blocks there are.
- The last states are projected as they are: neither ReLU nor 1x1 convolution between, so that the
  projection's weights can be those of the embeddings.
- No product has a bias: a layer norm with biases follows each, sooner or later.
- |s| counts all tokens of a sentence, its EOS too; a |s| is rounded up.

Through N blocks with kernels of k an output sees 1 + (k - 1) (s_1 + ... + s_N) positions, for
dilations s: a decoder's itself and those before, an encoder's as many on each side.

Shapes: B sentences, n source tokens, w columns of the longest, m target tokens, K hypotheses a
sentence, V tokens in the vocabulary; C columns and R target tokens of all sentences.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import BytenetConfig, target_size
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.architecture import Architecture, Lengths
from seq2sweep.model.dropout import dropout
from seq2sweep.model.layers import embedding, projection
from seq2sweep.model.mixer.convolutional import offsets_of, sum_of_shifted
from seq2sweep.model.norm.layernorm import Norm
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import Linear, linear

Whole = TypeVar("Whole", int, Tensor, Lengths)


class Bytenet(Architecture):
    """ByteNet; every size and choice is a key of the `model` section of params.yaml."""

    config: BytenetConfig

    def __init__(self, config: BytenetConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size)
        d = config.d_model
        self.source_embedding = embedding(vocabulary_size, d)
        self.target_embedding = (
            self.source_embedding
            if config.tie_embeddings
            else embedding(target_size(config, vocabulary_size), d)
        )
        self.encoder = nn.ModuleList(Block(config, False, i) for i in range(config.layers))
        self.decoder = nn.ModuleList(Block(config, True, i) for i in range(config.layers))
        self.encoder_norm, self.decoder_norm = Norm(d), Norm(d)
        tied = self.source_embedding if config.tie_embeddings else None
        self.projection = projection(target_size(config, vocabulary_size), d, tied)

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None = None,
        head: Callable[[Tensor, Tensor], Any] = F.linear,
    ) -> Any:
        """Logits [B, m, V] of the next token after each of target_in [B, m].

        source [B, n] and target_in hold token ids, padded at the end with PAD.
        packings: of source and target_in; with them the result has one row for each real token of
        target_in, and no other is computed. Of the source only the columns matter: see `encode`.
        head: as in `Transformer.forward`.
        """
        packing = None if packings is None else packings[1]
        columns = self.encode(source)
        # As many as there are target tokens: cut, or with zeros at the end.
        columns = F.pad(columns, (0, 0, 0, target_in.size(1) - columns.size(1)))
        if packing is not None:
            columns, target_in = packing.pack(columns), target_in.flatten()[packing.places]
        x = self._embed(self.target_embedding, target_in) + columns
        for block in self.decoder:
            x = block(x, packing)
        return head(self.decoder_norm(x), self.projection.weight)

    def encode(self, source: Tensor, packing: Packing | None = None) -> Tensor:
        """The columns [B, w, d_model] of source [B, n], zeros beyond those of a sentence.

        Computed are the columns of each sentence and no others, whatever packing says: it knows the
        tokens, of which there are fewer. On a GPU this waits for the device, once.
        """
        beyond = unfolded(self.config, source.size(1)) - source.size(1)
        tokens = F.pad(source, (0, beyond), value=PAD)
        ends = unfolded(self.config, source.ne(PAD).sum(dim=1, keepdim=True))
        inside = torch.arange(tokens.size(1), device=source.device) < ends
        packing = Packing(inside.flatten().nonzero().squeeze(1), *tokens.shape)
        x = self._embed(self.source_embedding, tokens.flatten()[packing.places])
        for block in self.encoder:
            x = block(x, packing)
        return packing.pad(self.encoder_norm(x))

    def start(self, source: Tensor) -> BytenetCache:
        """Encode source [B, n] and prepare to decode it step by step."""
        columns = self.encode(source)
        ahead = sum(_ahead(self.config, i) for i in range(self.config.layers))
        coming = columns.new_zeros(len(source), ahead, self.config.d_model // 2)
        return BytenetCache(columns, coming)

    def step(self, pieces: Tensor, cache: BytenetCache) -> Tensor:
        """Logits [B, K, V] after appending pieces [B, K] to each hypothesis.

        K may differ from step to step only as `BytenetCache.select` has arranged the rows.
        """
        x = self._embed(self.target_embedding, pieces)
        if cache.steps < cache.columns.size(1):
            x = x + cache.columns[:, cache.steps, None]
        x, begin = x.flatten(0, 1), 0
        for number, block in enumerate(self.decoder):
            assert isinstance(block, Block)
            end = begin + _ahead(self.config, number)
            x = block.step(x, cache.coming[:, begin:end], cache.steps)
            begin = end
        cache.steps += 1
        logits: Tensor = self.projection(self.decoder_norm(x)).unflatten(0, pieces.shape)
        return logits

    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """None: there is no attention."""
        return {}

    @property
    def max_length(self) -> int:
        """Most tokens a side may have: any number."""
        return sys.maxsize

    def blocks(self) -> Iterator[nn.Module]:
        """The residual blocks, of encoder and decoder."""
        yield from self.encoder
        yield from self.decoder

    @staticmethod
    def parameter_count(config: BytenetConfig, vocabulary_size: int) -> int:
        """Trainable numbers: 7 d^2 of products a block for a kernel of 3, gains and biases."""
        d = config.d_model // 2
        block = _weights(config) + Norm.parameter_count(2 * d) + 2 * Norm.parameter_count(d)
        untied = 0 if config.tie_embeddings else 2 * target_size(config, vocabulary_size)
        embeddings = (vocabulary_size + untied) * config.d_model
        return 2 * (config.layers * block + Norm.parameter_count(2 * d)) + embeddings

    @staticmethod
    def forward_flops(
        config: BytenetConfig,
        vocabulary_size: int,
        source_lengths: Lengths,
        target_lengths: Lengths,
        widths: tuple[Lengths, Lengths] | None = None,
    ) -> float:
        """Operations of one forward pass over sentence pairs: see `model.flops.forward_flops`.

        Padding is not multiplied, so that widths change nothing; the columns beyond a sentence's
        tokens belong to the model.
        """
        columns = unfolded(config, source_lengths.astype(np.int64)).astype(np.float64)
        m = target_lengths.astype(np.float64)
        stacks = config.layers * 2 * _weights(config) * (columns + m)
        projected = 2 * m * config.d_model * target_size(config, vocabulary_size)
        return float((stacks + projected).sum())

    @staticmethod
    def kept_bytes(
        config: BytenetConfig, lengths: tuple[float, float], size: int, gpu: bool
    ) -> tuple[float, float]:
        """Bytes for each source and each target token: see `model.flops.kept_bytes`.

        A block's three norms keep their inputs, mean and deviation, its three ReLUs what they give,
        and products in bf16 a copy of that. The stream is float32; inside of a block a GPU's norms
        take float32 and give it, a CPU's what comes. A source token has its part of the columns
        beyond the tokens.
        """
        d = config.d_model // 2
        copy = size == 2
        stream = 2 * d * (4 + 4 + 2 * copy)
        inside = 2 * d * (4 + 4 + 2 if gpu and copy else 2 * size)
        mask = 2 * d * (config.dropout > 0)
        block = stream + inside + 24 + (1 if gpu else size) * mask
        around = 16 + (1 if gpu else 4) * mask + Norm.kept_bytes(2 * d)
        token = config.layers * block + around
        columns = config.unfolding + config.unfolding_extra / max(lengths[0], 1)
        return columns * token, token + size * 2 * d

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Embeddings times sqrt(d_model), as the Transformer's, with dropout; PAD is zeros."""
        x = embedding(tokens) * math.sqrt(self.config.d_model)
        x = x.masked_fill(tokens.eq(PAD).unsqueeze(-1), 0.0)
        return dropout(x, self.config.dropout, self.training)


class Block(nn.Module):
    """x + W_3 relu(norm(conv(relu(norm(W_1 relu(norm(x))))))), figure 3 (left) of the paper.

    W_1: 2d to d, conv: d to d, W_3: d to 2d. What lies outside of the sentence is zero for conv.

    Weights of what a ReLU gives have variance 2 / fan_in (He et al. 2015): that keeps the scale.
    Those of W_3 have 1 / N of it for N blocks, so that the N sums only double the stream's variance
    and the first blocks, and the embeddings, are still seen at the end.
    """

    def __init__(self, config: BytenetConfig, causal: bool, number: int) -> None:
        super().__init__()
        d = config.d_model // 2
        self.kernel, self.dilation = config.kernel, dilation(config, number)
        self.offsets = offsets_of(self.kernel, self.dilation, causal)
        self.dropout = config.dropout
        self.outer_norm, self.norm, self.last_norm = Norm(2 * d), Norm(d), Norm(d)
        self.narrow = Linear(2 * d, d, bias=False)
        self.taps = nn.Parameter(torch.empty(self.kernel * d, d))
        """W of each input position, the earliest first: conv(x)[i] = sum_t W_t x[i + offset_t]."""
        self.widen = Linear(d, 2 * d, bias=False)
        nn.init.normal_(self.narrow.weight, std=(2 / (2 * d)) ** 0.5)
        nn.init.normal_(self.taps, std=(2 / (self.kernel * d)) ** 0.5)
        nn.init.normal_(self.widen.weight, std=(2 / (d * config.layers)) ** 0.5)

    def forward(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """x [rows, d_model] as packing says, or [B, m, d_model] where padding at the end is seen
        by nothing."""
        # One product makes what each input adds to all outputs that see it.
        added = self._added(x)
        if packing is not None:
            added = packing.pad(added)
        taps = added.unflatten(-1, (self.kernel, -1)).unbind(2)
        mixed = sum_of_shifted(taps, self.offsets)
        return self._sum(x, mixed if packing is None else packing.pack(mixed))

    def step(self, x: Tensor, coming: Tensor, steps: int) -> Tensor:
        """One position of each hypothesis, x [B K, d_model], after `steps` others.

        coming [B K, (k - 1) s, d]: what the coming outputs are made of so far, changed in place:
        that of position t is at t modulo (k - 1) s, so that nothing has to move.
        """
        added = self._added(x).unflatten(-1, (self.kernel, -1))
        mixed, ahead = added[:, -1], coming.size(1)
        if ahead:
            own = steps % ahead
            mixed = mixed + coming[:, own]
            coming[:, own] = 0.0
            # The last tap but one is for the output after s steps, the one before it after 2 s ...
            for back in range(1, self.kernel):
                coming[:, (own + back * self.dilation) % ahead] += added[:, -1 - back]
        return self._sum(x, mixed)

    def _added(self, x: Tensor) -> Tensor:
        inside = self.narrow(F.relu(self.outer_norm(x)))
        return linear(F.relu(self.norm(inside)), self.taps)

    def _sum(self, x: Tensor, mixed: Tensor) -> Tensor:
        out = self.widen(F.relu(self.last_norm(mixed)))
        return x + dropout(out, self.dropout, self.training)


@dataclass
class BytenetCache:
    """What a decoding step needs of the steps before.

    columns [B, w, d_model], which the hypotheses of a sentence share; coming [B K, sum of all
    blocks' (k - 1) s, d]: see `Block.step`; steps: target positions decoded so far.
    """

    columns: Tensor
    coming: Tensor
    steps: int = 0

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""
        self.coming = self.coming.index_select(0, hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices) from what hypotheses share."""
        self.columns = self.columns.index_select(0, sentences)


def unfolded(config: BytenetConfig, lengths: Whole) -> Whole:
    """a |s| rounded up, plus b (section 3.2), of one length or int64 of many.

    In whole numbers: 1.1 times 10 is 11, but a little more in floating point.
    """
    a = Fraction(config.unfolding).limit_denominator(1_000_000)
    return -(-lengths * a.numerator // a.denominator) + config.unfolding_extra


def dilation(config: BytenetConfig, number: int) -> int:
    """Of a block, from 0: `dilations`, over and over."""
    return config.dilations[number % len(config.dilations)]


def _ahead(config: BytenetConfig, number: int) -> int:
    """How many coming outputs a position of a decoder's block adds to, at most."""
    return (config.kernel - 1) * dilation(config, number)


def _weights(config: BytenetConfig) -> int:
    """Of a block's products: 2 d^2 to narrow, k d^2 of the convolution, 2 d^2 to widen."""
    return (4 + config.kernel) * (config.d_model // 2) ** 2
