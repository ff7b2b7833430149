"""What a training worker needs of a device's memory, and what to change where that is too much."""

from __future__ import annotations

import bisect

from seq2sweep.config import Config
from seq2sweep.planning.machine import Device
from seq2sweep.planning.workload import Workload
from seq2sweep.train import footprint
from seq2sweep.train.footprint import Memory

FEWEST_TOKENS = 500
"""Of a pass that is worth its time."""


def memory(
    config: Config, load: Workload, device: Device, workers: int, tokens: int | None = None
) -> Memory:
    """What one of so many workers needs for `config`. tokens: of a pass, instead of its own."""
    return footprint.memory(
        config,
        load.vocabulary_size,
        footprint.most_per_token(config.model, load.longest, device.precision, gpu=device.gpu),
        config.train.pass_tokens if tokens is None else tokens,
        longest=load.longest,
        workers=workers,
        precision=device.precision,
        gpu=device.gpu,
    )


def sized(
    config: Config, load: Workload, device: Device, workers: int, available: float | None
) -> tuple[Config, str | None]:
    """With a number where train.tokens_per_pass is auto, and why it is that one.

    available: bytes of one of so many workers; where they are not known its whole share is taken.
    """
    if config.train.tokens_per_pass != "auto":
        return config, None
    if available is None:
        tokens = footprint.share_of(config, workers, load.longest)
        return config.sized(tokens), "all of a worker's share of an update, memory unknown"
    found = footprint.largest_pass(
        config,
        load.vocabulary_size,
        load.longest,
        available,
        workers=workers,
        precision=device.precision,
        gpu=device.gpu,
    )
    return config.sized(found.tokens), found.why


def advice(config: Config, load: Workload, device: Device, workers: int, available: float) -> str:
    """What to change where one of so many workers does not fit into so many bytes."""

    def fits(hundreds: int) -> bool:
        return memory(config, load, device, workers, 100 * hundreds).needed <= available

    fewest = max(FEWEST_TOKENS, load.longest)  # fewer than that change no pass
    most = range(-(-fewest // 100), config.train.pass_tokens // 100 + 1)
    if fitting := bisect.bisect(most, False, key=lambda hundreds: not fits(hundreds)):
        return f"set train.tokens_per_pass to {100 * most[fitting - 1]} (it changes no update)"
    if not config.cluster.fsdp and workers > 1:
        return "set cluster.fsdp to true, which shards the model over the workers"
    return "the model itself is too large: take devices with more memory" + (
        ", or several with cluster.fsdp true" if workers == 1 else ""
    )
