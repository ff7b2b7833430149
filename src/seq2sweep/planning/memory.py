"""What a training worker keeps in the memory of its device, and whether that fits."""

from __future__ import annotations

import bisect
import dataclasses
from dataclasses import dataclass

import numpy as np

from seq2sweep.config import Config, TransformerConfig, target_size
from seq2sweep.hardware import Precision
from seq2sweep.model import flops
from seq2sweep.planning.workload import Workload
from seq2sweep.train.loss import BLOCK, CHUNK

CONTEXT_BYTES = {"cpu": 0.56e9, "gpu": 1.0e9}
"""Of libraries, Ray's among them, kernels and what they work in, before there is any tensor; on a
CPU measured on the demo's workers and trials in float32."""
KERNELS_BYTES = 0.08e9
"""Of products in bf16 on a CPU, which oneDNN makes for each shape: as many as `train.allocator`
lets its caches hold, and what making them leaves in between; measured on the demo's workers."""
FEWEST_TOKENS = 500
"""Of a pass that is worth its time."""
FRAGMENTS = {"cpu": 0.4, "gpu": 0.1}
"""Of activations and logits: what the allocator holds and cannot use, and what the backward pass
works in; on a CPU as `benchmarks.memory` has shown."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one worker at its peak, at the loss of the largest pass.

    weights, gradients and optimizer (Adam's two moments, nesterov's one) are float32; exchange:
    what other workers get of the gradients, where those of several passes are added up beside it,
    or with cluster.fsdp what is whole at a moment;
    casts: weights as bf16, with cluster.fsdp those of the projection alone where layers are
    gathered so; activations: kept for the backward pass; logits: with the loss; other: libraries,
    kernels and fragments.
    """

    weights: float
    gradients: float
    optimizer: float
    exchange: float
    casts: float
    activations: float
    logits: float
    other: float
    tokens: int

    @property
    def needed(self) -> float:
        """All of it, in bytes."""
        of_model = self.weights + self.gradients + self.optimizer + self.exchange + self.casts
        return of_model + self.activations + self.logits + self.other


def memory(
    config: Config, load: Workload, *, workers: int, precision: Precision, gpu: bool
) -> Memory:
    """What one of so many workers needs for `config`."""
    count = flops.parameter_count(config.model, load.vocabulary_size)
    sharded = config.cluster.fsdp and workers > 1
    held = 4 * count / (workers if sharded else 1)
    share = -(-config.train.tokens_per_update // workers)
    tokens = min(config.train.tokens_per_pass, share)
    source, target = bytes_per_token(config, load, precision, gpu=gpu)
    activations = tokens * (source + target)
    kind = "gpu" if gpu else "cpu"
    # Some rows at a time as products give them; of these some in float32, with probabilities.
    numbers = tokens * target_size(config.model, load.vocabulary_size)
    size = 2 if precision == "bf16" else 4
    logits = float(min(numbers, CHUNK[not gpu]) * size + min(numbers, BLOCK[not gpu]) * 12)
    copied = workers > 1 and share > tokens
    return Memory(
        weights=held,
        # Between passes gradients are not sent, and stay whole.
        gradients=4 * count if share > tokens else held,
        optimizer=config.moments * held,
        exchange=_whole(config, load, count) if sharded else held * copied,
        casts=2 * _cast(config, load, count, sharded) * (precision == "bf16"),
        activations=activations,
        logits=logits,
        other=CONTEXT_BYTES[kind]
        + KERNELS_BYTES * (precision == "bf16" and not gpu)
        + FRAGMENTS[kind] * (activations + logits),
        tokens=tokens,
    )


def advice(
    config: Config,
    load: Workload,
    available: float,
    *,
    workers: int,
    precision: Precision,
    gpu: bool,
) -> str:
    """What to change where one of so many workers does not fit into so many bytes."""

    def fits(hundreds: int) -> bool:
        train = dataclasses.replace(config.train, tokens_per_pass=100 * hundreds)
        less = dataclasses.replace(config, train=train)
        found = memory(less, load, workers=workers, precision=precision, gpu=gpu)
        return found.needed <= available

    most = range(FEWEST_TOKENS // 100, config.train.tokens_per_pass // 100 + 1)
    if fitting := bisect.bisect(most, False, key=lambda hundreds: not fits(hundreds)):
        return f"set train.tokens_per_pass to {100 * most[fitting - 1]} (it changes no update)"
    if not config.cluster.fsdp and workers > 1:
        return "set cluster.fsdp to true, which shards the model over the workers"
    return "the model itself is too large: take devices with more memory" + (
        ", or several with cluster.fsdp true" if workers == 1 else ""
    )


def bytes_per_token(
    config: Config, load: Workload, precision: Precision, *, gpu: bool
) -> tuple[float, float]:
    """Bytes kept for the backward pass for each source and each target token of a pass, logits
    left out."""
    size = 2 if precision == "bf16" else 4
    return flops.kept_bytes(config.model, _longest(load), size, gpu)


def _longest(load: Workload) -> tuple[float, float]:
    """Mean length of the sentence that a token is in, of both sides."""
    source, target = (
        lengths.astype(np.float64)
        for lengths in (load.train.source_lengths, load.train.target_lengths)
    )
    return float((source**2).sum() / source.sum()), float((target**2).sum() / target.sum())


def _cast(config: Config, load: Workload, parameters: int, sharded: bool) -> int:
    """Weights of which a copy in bf16 is held until the backward pass is done: all, but for those
    that `train.distributed` gathers in bf16."""
    model = config.model
    if not (
        sharded
        and isinstance(model, TransformerConfig)
        and model.encoder_mixer == model.decoder_mixer == "self_attention"
    ):
        return parameters
    return target_size(model, load.vocabulary_size) * model.d_model


def _whole(config: Config, load: Workload, parameters: int) -> float:
    """Bytes of what a worker has whole with cluster.fsdp: the embedding and two layers, with their
    gradients."""
    embedding = load.vocabulary_size * config.model.d_model
    # A decoder layer is the larger one, by an attention.
    layer = 1.2 * (parameters - embedding) / (2 * config.model.layers)
    return 4.0 * 2 * (embedding + 2 * layer)
