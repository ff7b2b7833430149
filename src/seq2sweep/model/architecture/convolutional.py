"""The convolutional encoder-decoder ConvS2S (Gehring et al. 2017, arXiv 1705.03122).

Where the paper leaves a choice, it is that of its authors' code (fairseq): padding, which gradients
are scaled, what the attention's output is scaled with, initial weights.

Shapes: B sentences, n source tokens, m target tokens, K hypotheses a sentence, V tokens in the
vocabulary; e = d_model. Inside, the real tokens of a batch are packed: R rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2sweep.config import ConvolutionalConfig, target_size
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.architecture import Architecture, Lengths
from seq2sweep.model.attention import additive
from seq2sweep.model.caching import StateCache
from seq2sweep.model.dropout import dropout
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import linear

POSITIONS = 1024
"""Tokens a side that have a position embedding."""
HALF = math.sqrt(0.5)
"""Keeps the variance of a sum of two, were they independent (section 3.4)."""


class Normalised(nn.Module):
    """x W^T + b with weight normalisation: row i of W is gain_i * direction_i / |direction_i|.

    With PyTorch's parametrization a model could not be pickled for another machine, and a search
    would make W anew at each step. Averaged checkpoints average gains and directions, as fairseq's.
    """

    def __init__(self, inputs: int, outputs: int, variance: float, bias: bool = True) -> None:
        """variance: of W at the start."""
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.normal_(self.direction, std=math.sqrt(variance))
        # At the norm, so that W starts as the direction.
        self.gain = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self._fixed: Tensor | None = None

    def forward(self, x: Tensor, fixed: dict[Normalised, Tensor] | None = None) -> Tensor:
        """[..., in] to [..., out]; in a search not `linear` of a new W, which `laid_out` keeps."""
        weight = fixed[self] if fixed else self.weight()
        once = torch.compiler.is_compiling() or (not fixed and torch.is_inference_mode_enabled())
        return (F.linear if once else linear)(x, weight, self.bias)

    def weight(self) -> Tensor:
        """W: [out, in], by a kernel that takes a third of the time of plain operations."""
        return torch._weight_norm(self.direction, self.gain.unsqueeze(1), 0)

    def fixed(self) -> Tensor:
        """W for a search; the same tensor while it has the same numbers, because
        `products.laid_out` keeps whatever weights it has met."""
        weight, known = self.weight(), self._fixed
        if known is None or known.device != weight.device or not torch.equal(known, weight):
            self._fixed = known = weight
        return known

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_fixed": None}


class Memory(NamedTuple):
    """What the decoder's attention reads, shared by a sentence's hypotheses. keys: z [B, n, e];
    values: (z + source embedding) sqrt(0.5) sqrt(s) [B, n, e], for a sentence of s tokens; mask:
    added to the scores, [B, 1, n]."""

    keys: Tensor
    values: Tensor
    mask: Tensor


class Shared(NamedTuple):
    """What all blocks of a stack are given. embedded: what it begins with, [R, e], or in a search,
    where nothing is packed, [B, K, e]; fixed: weights that are normalised once a search, not at
    each step; kept: takes the attention's weights [B, m, n]."""

    embedded: Tensor
    packing: Packing | None = None
    memory: Memory | None = None
    fixed: dict[Normalised, Tensor] | None = None
    kept: list[Tensor] | None = None


class Block(nn.Module):
    """Convolution, gated linear unit and, in a decoder, attention (sections 3.2 and 3.3)."""

    def __init__(self, config: ConvolutionalConfig, number: int, causal: bool) -> None:
        super().__init__()
        inputs, outputs, self.kernel = shapes(config)[number]
        self.causal, self.dropout = causal, config.dropout
        e, joined = config.d_model, self.kernel * inputs
        # The gate halves what comes in, hence the 4; dropout in front scales it up (section 3.5).
        self.convolution = Normalised(joined, 2 * outputs, 4 * (1 - config.dropout) / joined)
        self.residual = Normalised(inputs, outputs, 1 / inputs) if inputs != outputs else None
        self.query = Normalised(outputs, e, 1 / outputs) if causal else None
        self.context = Normalised(e, outputs, 1 / e) if causal else None

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        """x [R, d_in] to [R, d_out]."""
        seen = dropout(x, self.dropout, self.training)
        if self.kernel > 1:
            options = shared.packing, self.kernel, self.causal
            seen = _Join.apply(seen, *options)  # type: ignore[no-untyped-call]
        return self._rest(x, seen, shared)

    def step(self, x: Tensor, state: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
        """One token of each hypothesis, x [B, K, d_in]; state [B * K, k - 1, d_in] and the next."""
        seen = torch.cat((state, x.flatten(0, 1).unsqueeze(1)), dim=1)
        return self._rest(x, seen.flatten(1).view(*x.shape[:2], -1), shared), seen[:, 1:]

    def _rest(self, x: Tensor, seen: Tensor, shared: Shared) -> Tensor:
        """Sums are in the precision of the embeddings, whatever that of the products.

        Attention is by plain products: a head of width e is wider than fused kernels take.
        """
        embedded, packing, memory, fixed, kept = shared
        hidden = F.glu(self.convolution(seen, fixed), dim=-1)
        if memory is not None and self.query is not None and self.context is not None:
            queries = (self.query(hidden, fixed).to(x.dtype) + embedded) * HALF
            queries = queries if packing is None else packing.pad(queries)
            weights = torch.softmax(queries @ memory.keys.transpose(1, 2) + memory.mask, dim=-1)
            if kept is not None:
                kept.append(weights)
            context = weights.to(memory.values.dtype) @ memory.values
            context = context if packing is None else packing.pack(context)
            hidden = (self.context(context, fixed).to(x.dtype) + hidden) * HALF
        residual: Tensor = x if self.residual is None else self.residual(x, fixed).to(x.dtype)
        return (hidden + residual) * HALF


class Convolutional(Architecture):
    """ConvS2S; every size and choice is a key of the `model` section of params.yaml."""

    config: ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size)
        e, d_out, kept = config.d_model, config.d_out or config.d_model, 1 - config.dropout
        first, last = shapes(config)[0][0], shapes(config)[-1][1]
        tied, v, t = config.tie_embeddings, vocabulary_size, target_size(config, vocabulary_size)
        self.source_embedding = nn.Embedding(v, e)
        self.target_embedding = self.source_embedding if tied else nn.Embedding(t, e)
        self.source_positions, self.target_positions = (nn.Embedding(POSITIONS, e) for _ in "st")
        for table in list(self.parameters()):
            nn.init.normal_(table, std=0.1)
        # These two and the projection follow dropout.
        self.encoder_input = Normalised(e, first, kept / e)
        self.decoder_input = Normalised(e, first, kept / e)
        self.encoder = nn.ModuleList(Block(config, i, False) for i in range(config.layers))
        self.decoder = nn.ModuleList(Block(config, i, True) for i in range(config.layers))
        self.encoder_output = Normalised(last, e, 1 / last)
        self.decoder_output = Normalised(last, d_out, 1 / last)
        # No bias, which fairseq has: a loss that projects by itself gets states and weights only.
        self.projection = None if tied else Normalised(d_out, t, kept / d_out, bias=False)

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None = None,
        head: Callable[[Tensor, Tensor], Any] = F.linear,
    ) -> Any:
        """Logits [B, m, V]; arguments and packed results as those of `Transformer.forward`."""
        tied = self.target_embedding.weight
        states = self._states(source, target_in, packings)
        return head(states, tied if self.projection is None else self.projection.weight())

    def encode(self, source: Tensor, packing: Packing | None = None) -> Tensor:
        """The encoder's output z, [B, n, e] or packed [R, e], for source [B, n]."""
        memory = self._memory(source, packing)
        return memory.keys if packing is None else packing.pack(memory.keys)

    @torch.no_grad()
    def start(self, source: Tensor) -> DecoderCache:
        """Encode source [B, n] and prepare to decode it step by step."""
        memory = self._memory(source)
        states = tuple(
            memory.keys.new_zeros(len(source), kernel - 1, inputs)
            for inputs, _, kernel in shapes(self.config)
        )
        parts = (self.decoder_input, self.decoder, self.decoder_output, self.projection)
        layers = [layer for part in parts if part is not None for layer in part.modules()]
        fixed = {layer: layer.fixed() for layer in layers if isinstance(layer, Normalised)}
        return DecoderCache(memory, StateCache(states), fixed)

    @torch.no_grad()
    def step(self, pieces: Tensor, cache: DecoderCache) -> Tensor:
        """Logits [B, K, V] after appending pieces [B, K] to each hypothesis."""
        place = torch.full_like(pieces, _within(cache.steps + 1) - 1)
        embedded = self.target_embedding(pieces) + self.target_positions(place)
        shared = Shared(embedded, memory=cache.memory, fixed=cache.fixed)
        x, states = self.decoder_input(embedded, cache.fixed), []
        for block, state in zip(self.decoder, cache.states.states, strict=True):
            assert isinstance(block, Block)
            x, state = block.step(x, state, shared)
            states.append(state)
        cache.states.states = tuple(states)
        cache.steps += 1
        x = self.decoder_output(x, cache.fixed)
        tied = self.target_embedding.weight
        return linear(x, tied) if self.projection is None else self.projection(x, cache.fixed)

    @torch.no_grad()
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """`decoder.i.memory_attention` [B, 1, m, n] of each block i from 0; each row sums to 1."""
        was_training, kept = self.training, list[Tensor]()
        try:
            self.eval()._states(source, target_in, None, kept)
        finally:
            self.train(was_training)
        return {f"decoder.{i}.memory_attention": w[:, None] for i, w in enumerate(kept)}

    @property
    def max_length(self) -> int:
        """Most tokens a side may have: those with a position embedding."""
        return POSITIONS

    def blocks(self) -> Iterator[nn.Module]:
        """The blocks of encoder and decoder."""
        yield from (*self.encoder, *self.decoder)

    @staticmethod
    def parameter_count(config: ConvolutionalConfig, vocabulary_size: int) -> int:
        """Trainable numbers; each product has a gain and, but for the projection, a bias a row."""
        e, d_out, blocks = config.d_model, config.d_out or config.d_model, shapes(config)
        v, first, last = vocabulary_size, blocks[0][0], blocks[-1][1]
        stack = sum(2 * d * (k * c + 2) + (c != d) * d * (c + 2) for c, d, k in blocks)
        attention = sum(e * (d + 2) + d * (e + 2) for _, d, _ in blocks)
        ends = 2 * first * (e + 2) + (e + d_out) * (last + 2)
        own = 0 if config.tie_embeddings else target_size(config, v) * (e + d_out + 1)
        return 2 * stack + attention + ends + v * e + own + 2 * POSITIONS * e

    @staticmethod
    def forward_flops(
        config: ConvolutionalConfig,
        vocabulary_size: int,
        source_lengths: Lengths,
        target_lengths: Lengths,
        widths: tuple[Lengths, Lengths] | None = None,
    ) -> float:
        """Operations of one forward pass over sentence pairs: see `model.flops.forward_flops`.

        Zeros beside a sentence count in its convolutions; of padding only the attention's does.
        """
        n, m = (lengths.astype(np.float64) for lengths in (source_lengths, target_lengths))
        keys, queries = (n, m) if widths is None else (w.astype(np.float64) for w in widths)
        e, d_out, blocks = config.d_model, config.d_out or config.d_model, shapes(config)
        stack = e * blocks[0][0] + sum(c * d * (2 * k + (c != d)) for c, d, k in blocks)
        attention, t = sum(2 * e * d for _, d, _ in blocks), target_size(config, vocabulary_size)
        source = n * (stack + blocks[-1][1] * e)
        target = m * (stack + attention + d_out * (blocks[-1][1] + t))
        return 2 * float((source + target + config.layers * 2 * e * queries * keys).sum())

    @staticmethod
    def kept_bytes(
        config: ConvolutionalConfig, lengths: tuple[float, float], size: int, gpu: bool
    ) -> tuple[float, float]:
        """Bytes for each source and each target token: see `model.flops.kept_bytes`.

        A product keeps its input, k rows of a convolution, in its own precision; the gate what it
        halves; attention queries and weights, of these in bf16 two copies; dropout as that of
        `Transformer`, on numbers in float32. Sums keep nothing. Normalised weights are not counted.
        """
        e, d_out, blocks = config.d_model, config.d_out or config.d_model, shapes(config)
        noise = (1 if gpu else 4) * (config.dropout > 0)
        stack = 24 + 16 * sum(k > 1 for _, _, k in blocks)  # which tokens, and places
        stack += (noise + size) * e + size * blocks[-1][1]
        stack += sum(noise * c + size * (c * (k + (c != d)) + 2 * d) for c, d, k in blocks)
        attention: float = sum(size * (d + 2 * e) for _, d, _ in blocks)
        attention += config.layers * lengths[0] * (4 + size * (size == 2))
        return stack + size * 2 * e, stack + attention + (noise + size) * d_out

    def _states(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """What is projected: [B, m, d_out], or packed. kept: takes the attentions' weights."""
        source_packing, target_packing = packings or (None, None)
        memory = self._memory(source, source_packing)
        packing = _packed(target_in, target_packing)
        embedded = self.target_embedding(target_in.flatten()[packing.places])
        embedded = self._dropout(embedded + self.target_positions(packing.columns()))
        x = self.decoder_input(embedded).to(embedded.dtype)
        for block in self.decoder:
            x = block(x, Shared(embedded, packing, memory, kept=kept))
        states = self._dropout(self.decoder_output(x).to(embedded.dtype))
        return states if packings is not None else packing.pad(states)

    def _memory(self, source: Tensor, packing: Packing | None = None) -> Memory:
        """What attention over source [B, n] reads: the encoder's output."""
        packing = _packed(source, packing)
        embedded = self.source_embedding(source.flatten()[packing.places])
        embedded = self._dropout(embedded + self.source_positions(packing.columns()))
        x = self.encoder_input(embedded).to(embedded.dtype)
        for block in self.encoder:
            x = block(x, Shared(embedded, packing))
        z = self.encoder_output(x)
        # Each block of the decoder sends a gradient back; the embeddings get all of it.
        if z.requires_grad:
            z.register_hook(lambda gradient: gradient / (2 * self.config.layers))
        real = source.ne(PAD)
        mask = additive(real, embedded.dtype).unsqueeze(1)
        # The mean of s values has the variance of one divided by s, were they independent, which
        # this makes up for (section 3.4): here once, not in each block.
        scale = real.sum(dim=1).to(embedded.dtype).sqrt()[:, None, None]
        values = packing.pad((z + embedded) * HALF) * scale
        return Memory(packing.pad(z), values.to(z.dtype), mask)

    def _dropout(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)


@dataclass
class DecoderCache:
    """states: of each block the last k - 1 inputs of each hypothesis, [B * K, k - 1, d_in]; steps:
    target positions decoded so far."""

    memory: Memory
    states: StateCache
    fixed: dict[Normalised, Tensor]
    steps: int = 0

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""
        self.states.select(hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices)."""
        self.memory = Memory(*(shared.index_select(0, sentences) for shared in self.memory))


def shapes(config: ConvolutionalConfig) -> list[tuple[int, int, int]]:
    """Of each block: width in, width out and kernel."""
    widths, kernels = (
        [*given, *[given[-1]] * (config.layers - len(given))]
        for given in (config.widths or (config.d_model,), config.kernels)
    )
    return list(zip([widths[0], *widths[:-1]], widths, kernels, strict=True))


def _within(length: int) -> int:
    """The length itself. Raises ValueError when there is no position for its last token."""
    if length > POSITIONS:
        raise ValueError(f"a sentence of {length} tokens is longer than the {POSITIONS} positions")
    return length


def _packed(pieces: Tensor, packing: Packing | None) -> Packing:
    """Which tokens [B, n] are real; all on the meta device, where nobody knows."""
    _within(pieces.size(1))
    if pieces.is_meta:
        return Packing(torch.arange(pieces.numel(), device="meta"), *pieces.shape)
    return packing or Packing.of(pieces)


class _Join(torch.autograd.Function):
    """What each output of a convolution is made of, side by side: [R, d] to [R, k * d].

    That is the token and k - 1 before it, or as many on each side; zeros outside of the sentence.
    One product with it takes less time than PyTorch's convolutions, of padded sentences; and rows
    are taken, not added up one by one, in the backward pass too.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, packing: Packing, kernel: int, causal: bool) -> Tensor:
        # Each sentence has zeros around it, so that what an output sees lies together.
        starts = packing.places + packing.places // packing.width * (kernel - 1)
        own = starts + (kernel - 1 if causal else (kernel - 1) // 2)
        context.starts, context.own, context.kernel = starts, own, kernel
        context.rows = packing.sentences * (packing.width + kernel - 1)
        spread = x.new_zeros(context.rows, d := x.size(1)).index_copy_(0, own, x)
        return spread.as_strided((len(spread) - kernel + 1, kernel * d), (d, 1))[starts]

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        spread = gradient.new_zeros(context.rows, gradient.size(1))
        taps = spread.index_copy_(0, context.starts, gradient).chunk(context.kernel, dim=1)
        out = torch.zeros_like(taps[0], memory_format=torch.contiguous_format)
        for t, tap in enumerate(taps):
            out[t:] += tap[: context.rows - t]
        return out.index_select(0, context.own), None, None, None
