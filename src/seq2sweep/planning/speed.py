"""How long a device takes for updates, decoding and what is around them.

Every constant here is stated, not measured on the devices at hand; `how` says so to the reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from seq2sweep.config import Config
from seq2sweep.planning.workload import Lengths, Training, Workload, decoding_flops

LAUNCH_SECONDS = 1e-3
"""Least time of a layer in a pass, forward and back, on a GPU: some dozens of kernels, started one
by one. It is what small updates take, as those of base on eight fast GPUs."""
DECODING_STEP = 3e-3
"""The same of a step of beam search, beside the layers' share of a third."""
DECODING_SHARE = 0.5
"""Of the rate of training, in decoding: its products are smaller."""
COPY_BYTES_PER_SECOND = 1.4e9
"""Of weights and moments for a checkpoint, for which training waits (docs/performance.md)."""
SCORING_SECONDS = 3e-3
"""Of a sentence, BLEU and its bootstrap."""
START_SECONDS = {
    "download": 3.0,
    "prepare": 3.0,
    "vocabulary": 3.0,
    "encode": 3.0,
    "train": 25.0,
    "evaluate": 10.0,
    "sweep": 22.0,
    "report": 5.0,
}
"""Of a stage, its end and DVC's part included: Python, torch, Ray and its workers, MLflow; on 2
cores of 2.6 GHz."""
BETWEEN_TRIALS = 0.3
"""Seconds from a trial to the next in the same place."""


@dataclass(frozen=True)
class Speed:
    """FLOPs a second of a training, all its workers together; launch: seconds of a layer's pass
    that are not gone below; how: where the rate is from."""

    flops_per_second: float
    launch: float
    how: str


@dataclass(frozen=True)
class Part:
    """A line of a stage's time; None: not known."""

    part: str
    seconds: float | None
    how: str


def update_seconds(config: Config, found: Training, speed: Speed, workers: int) -> float:
    """Of one update, shared by so many workers."""
    computing = found.flops_per_update / speed.flops_per_second
    return max(computing, _launching(config, speed, workers))


def _launching(config: Config, speed: Speed, workers: int) -> float:
    """Seconds of an update in which a worker starts kernels."""
    share = -(-config.train.tokens_per_update // workers)
    passes = -(-share // config.train.tokens_per_pass)
    return passes * 2 * config.model.layers * speed.launch


def training_parts(
    config: Config, found: Training, speed: Speed, workers: int, parameters: int
) -> list[Part]:
    """Updates, validation and checkpoints of one training."""
    update = update_seconds(config, found, speed, workers)
    copied = 12 * parameters * found.checkpoints
    how = f"{found.steps:,} of {_seconds(update)}"
    if update == _launching(config, speed, workers):
        how += f", by the kernels to start: {1000 * speed.launch:g} ms a layer, assumed"
    return [
        Part("updates", found.steps * update, how),
        Part("validation", found.validation_flops / speed.flops_per_second, "at the same rate"),
        Part(
            "checkpoints",
            copied / COPY_BYTES_PER_SECOND,
            f"{found.checkpoints} copies at {COPY_BYTES_PER_SECOND / 1e9:g} GB/s, stated",
        ),
    ]


def decoding_seconds(
    config: Config, load: Workload, lengths: tuple[Lengths, Lengths], speed: Speed
) -> float:
    """Of beam search over a test set and of its scores."""
    source, target = lengths
    flops = decoding_flops(config, load.vocabulary_size, lengths)
    batches = -(-int(source.sum()) * config.evaluate.beam // config.evaluate.tokens_per_batch)
    # Sentences of a batch are alike in length, so their mean is about its number of steps.
    steps = batches * float(target.mean())
    waiting = steps * (config.model.layers * speed.launch / 3 + DECODING_STEP)
    decoding = flops / (DECODING_SHARE * speed.flops_per_second)
    return (max(decoding, waiting) if speed.launch else decoding) + SCORING_SECONDS * len(source)


def _seconds(value: float) -> str:
    return f"{1000 * value:,.0f} ms" if value < 10 else f"{value:,.0f} s"
