"""What a training worker keeps in the memory of its device, and how large a pass that leaves."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import torch

from seq2sweep.config import Config, ModelConfig, TransformerConfig, target_size
from seq2sweep.data.bitext import Bitext
from seq2sweep.hardware import Precision
from seq2sweep.model import flops
from seq2sweep.model.products import onednn_is_faster
from seq2sweep.train.loss import BLOCK, logits_at_once
from seq2sweep.train.updates import records_passes

CONTEXT_BYTES = {"cpu": 0.56e9, "gpu": 1.0e9}
"""Of libraries, Ray's among them, kernels and what they work in, before there is any tensor; on a
CPU measured on the demo's workers and trials in float32."""
KERNELS_BYTES = {"float32": 0.12e9, "bf16": 0.7e9}
"""Of products on a CPU, which oneDNN makes for each shape: as many as `train.allocator` lets its
caches hold, and what making them leaves in between; in bf16 by the peaks of `benchmarks.train` on a
Xeon with AMX, whose kernels take a megabyte each; those of float32, on AMD's processors, a fifth of
that."""
COMPILED_BYTES = 0.13e9
"""Of `train.compile` on a CPU, measured there too."""
FRAGMENTS = {"cpu": 0.4, "gpu": 0.1}
"""Of activations and logits: what the allocator holds and cannot use, and what the backward pass
works in; on a CPU as `benchmarks.memory` has shown."""
MARGIN = 0.1
"""Of the memory that is free, what `largest_pass` leaves so."""
STEP = 100
"""Tokens: sizes of passes are multiples, so that a little more free memory gives the same."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one worker at its peak, at the loss of the largest pass.

    weights, gradients and optimizer (Adam's two moments, nesterov's one) are float32; exchange:
    what other workers get of the gradients, where those of several passes are added up beside it,
    or with cluster.fsdp what is whole at a moment; graphs: where passes are CUDA graphs
    (`train.step.Passes`), what those of them need; casts: weights as bf16, with cluster.fsdp those
    of the projection alone where layers are gathered so, and in float32 what oneDNN needs for the
    projection; snapshot: the first worker's copy of weights and moments while a checkpoint is
    written, of a GPU's in other memory; activations: kept for the backward pass; logits: with the
    loss; other: libraries, kernels and fragments.
    """

    weights: float
    gradients: float
    optimizer: float
    exchange: float
    casts: float
    snapshot: float
    activations: float
    logits: float
    graphs: float
    other: float
    tokens: int

    @property
    def needed(self) -> float:
        """All of it, in bytes."""
        of_model = self.weights + self.gradients + self.optimizer + self.exchange + self.casts
        of_model += self.snapshot
        return of_model + self.activations + self.logits + self.graphs + self.other


def memory(
    config: Config,
    size: int,
    per_token: float,
    tokens: int,
    *,
    longest: int,
    workers: int,
    precision: Precision,
    gpu: bool,
) -> Memory:
    """What one of so many workers needs for `config` with passes of at most `tokens`.

    size: of the vocabulary. per_token: as `most_per_token` has it. longest: tokens of the longest
    sentence, of which a pass is one at least.
    """
    count = flops.parameter_count(config.model, size)
    sharded = config.cluster.fsdp and workers > 1
    held = 4 * count / (workers if sharded else 1)
    share = share_of(config, workers, longest)
    tokens = max(min(tokens, share), longest)
    recorded = gpu and precision == "bf16" and not sharded and records_passes(config)
    activations = tokens * per_token
    kind = "gpu" if gpu else "cpu"
    # Some rows at a time as products give them; of these some in float32, with probabilities.
    numbers = tokens * target_size(config.model, size)
    width, dtype = (2, torch.bfloat16) if precision == "bf16" else (4, torch.float32)
    at_once = logits_at_once(not gpu, dtype)
    logits = float(min(numbers, at_once) * width + min(numbers, BLOCK[not gpu]) * 12)
    # CUDA graphs have added passes up in place before they are exchanged.
    copied = workers > 1 and share > tokens and not recorded
    return Memory(
        weights=held,
        # Between passes gradients are not sent, and stay whole.
        gradients=4 * count if share > tokens else held,
        optimizer=config.moments * held,
        exchange=_whole(config, size, count) if sharded else held * copied,
        snapshot=0.0 if gpu else 4 * (1 + config.moments) * count,
        casts=_casts(config, size, count, precision, sharded, gpu),
        activations=activations,
        logits=logits,
        graphs=(activations + logits) * recorded,
        other=CONTEXT_BYTES[kind]
        + (KERNELS_BYTES[precision] + COMPILED_BYTES * config.train.compile) * (not gpu)
        + FRAGMENTS[kind] * (activations + logits),
        tokens=tokens,
    )


def most_per_token(model: ModelConfig, longest: int, precision: Precision, *, gpu: bool) -> float:
    """Bytes kept for the backward pass for a source and a target token, logits left out.

    Updates are of sentences of about one length, and one of them of that, up to `longest` tokens,
    of which a token takes the most.
    """
    size = 2 if precision == "bf16" else 4
    return max(
        sum(flops.kept_bytes(model, (length, length), size, gpu))
        for length in range(1, longest + 1)
    )


@dataclass(frozen=True)
class LargestPass:
    """tokens: train.tokens_per_pass; share: as `share_of` says; fits: whether a pass does,
    of one sentence at least; available: bytes."""

    tokens: int
    share: int
    fits: bool
    available: float

    @property
    def why(self) -> str:
        """In words."""
        free = f"{1 - MARGIN:.0%} of {self.available / 1e9:,.1f} GB"
        if not self.fits:
            return f"the longest sentence, which does not fit into {free}"
        if self.tokens == self.share:
            return f"all of a worker's share of an update, which fits into {free}"
        return f"the largest that fits into {free}"


def largest_pass(
    config: Config,
    size: int,
    longest: int,
    available: float,
    *,
    workers: int,
    precision: Precision,
    gpu: bool,
) -> LargestPass:
    """What `train.tokens_per_pass: auto` is for one of so many workers with so many free bytes.

    size: of the vocabulary; longest: tokens of the longest sentence.
    """
    per_token = most_per_token(config.model, longest, precision, gpu=gpu)

    def fits(tokens: int) -> bool:
        found = memory(
            *(config, size, per_token, tokens),
            longest=longest,
            workers=workers,
            precision=precision,
            gpu=gpu,
        )
        return found.needed <= (1 - MARGIN) * available

    share = share_of(config, workers, longest)
    if fits(share):
        return LargestPass(share, share, True, available)
    # A token takes a byte at least.
    steps = range(1, min(share, int(available)) // STEP + 1)
    found = STEP * bisect.bisect(steps, False, key=lambda step: not fits(STEP * step))
    tokens = min(max(found, longest), share)
    return LargestPass(tokens, share, found >= longest or fits(longest), available)


def share_of(config: Config, workers: int, longest: int) -> int:
    """Tokens of a side of an update that one of so many workers has at most.

    longest: tokens of the longest sentence. Sentences are dealt out one by one
    (`data.batching.share`), so some workers have one more than others. One that is all of its
    worker's may be longer than this: it is one pass nevertheless.
    """
    tokens = config.train.tokens_per_update
    equal = -(-tokens // workers)
    # No sentence is longer than an equal share where a worker has several.
    return -(-(tokens + (workers - 1) * min(longest, equal)) // workers)


def longest(bitext: Bitext) -> int:
    """Most tokens of a side of a sentence."""
    return max(int(each.max(initial=0)) for each in (bitext.source_lengths, bitext.target_lengths))


def _casts(
    config: Config, size: int, parameters: int, precision: Precision, sharded: bool, gpu: bool
) -> int:
    """Bytes of copies of weights. In bf16 they are held until the backward pass is done: of all,
    but for those that `train.distributed` gathers in bf16. In float32 there are two while oneDNN
    multiplies by the projection, in its layout and as a gradient that is added to another."""
    model = config.model
    projection = target_size(model, size) * model.d_model
    if precision != "bf16":
        return 2 * 4 * projection * (not gpu and onednn_is_faster())
    if not (
        sharded
        and isinstance(model, TransformerConfig)
        and model.encoder_mixer == model.decoder_mixer == "self_attention"
    ):
        return 2 * parameters
    return 2 * projection


def _whole(config: Config, size: int, parameters: int) -> float:
    """Bytes of what a worker has whole with cluster.fsdp: embeddings, the projection and two
    layers, with their gradients."""
    untied = 0 if config.model.tie_embeddings else 2 * target_size(config.model, size)
    embedding = (size + untied) * config.model.d_model
    # A decoder layer is the larger one, by an attention.
    layer = 1.2 * (parameters - embedding) / (2 * config.model.layers)
    return 4.0 * 2 * (embedding + 2 * layer)
