"""One process of a calibration: real updates on made-up sentences of the right lengths, timed.

Started by `seq2sweep.planning.calibration` with an order as JSON on standard input; answers with
JSON on standard output. Reads and writes nothing else but the store where its peers meet.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import Ids, collate, passes, plan_epoch, share
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.building import build
from seq2sweep.model.flops import training_flops
from seq2sweep.train.allocator import keep_memory
from seq2sweep.train.collective import all_reduce
from seq2sweep.train.sharding import shard
from seq2sweep.train.step import accumulate, apply, choose_precision, make_optimizer

WARM_UP = 2
"""Updates that are not timed: memory is allocated and buckets of gradients are made."""
Update = tuple[float, float, float, float]
"""Its FLOPs, the seconds that it took, the seconds of CPU of this process in it, and the seconds
that its threads were ready and found no CPU."""
LEARNING_RATE = 1e-4
PATIENCE = datetime.timedelta(seconds=120)


def main() -> None:
    """Do each phase of the order in turn."""
    order = json.load(sys.stdin)
    lengths = np.load(order["lengths"])
    print(json.dumps([_phase(phase, lengths) for phase in order["phases"]]))


def _phase(phase: dict[str, Any] | None, lengths: Any) -> list[Update]:
    """Each update of a phase; nothing where this process sits it out."""
    if phase is None:
        return []
    keep_memory()
    torch.set_num_threads(phase["threads"])
    rank, world_size = phase["rank"], phase["world_size"]
    if world_size > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{phase['store']}",
            rank=rank,
            world_size=world_size,
            timeout=PATIENCE,
        )
    try:
        config = configuration.from_dict(phase["config"])
        data = random_bitext(lengths["source"], lengths["target"], phase["vocabulary_size"])
        return _updates(config, data, rank, world_size, phase["seconds"])
    finally:
        if world_size > 1:
            dist.destroy_process_group()


def _updates(
    config: Config, data: Bitext, rank: int, world_size: int, seconds: float
) -> list[Update]:
    """Train for so many seconds and at least one update after the warm-up."""
    settings, size = config.train, int(data.header["vocabulary"]["size"])
    train = _trainer(config, size, rank, world_size)
    plan = plan_epoch(
        data.source_lengths,
        data.target_lengths,
        tokens_per_update=settings.tokens_per_update,
        seed=settings.seed,
        epoch=0,
    )
    found: list[Update] = []
    began = time.perf_counter()
    for number in itertools.count():
        ids = plan[number % len(plan)]
        before, busy, kept = time.perf_counter(), time.process_time(), _kept_waiting()
        train(data, ids)
        now = time.perf_counter()
        if number < WARM_UP:
            began = now
        else:
            flops = training_flops(
                config.model, size, data.source_lengths[ids], data.target_lengths[ids]
            )
            used, waited = time.process_time() - busy, _kept_waiting() - kept
            found.append((flops, now - before, used, waited))
        if _any_says(bool(found) and now - began > seconds, world_size):
            break
    return found


def _trainer(
    config: Config, size: int, rank: int, world_size: int
) -> Callable[[Bitext, Ids], None]:
    """A new model, and what updates it on some sentences, as `seq2sweep.train.loop` does."""
    device, settings = torch.device("cpu"), config.train
    model = build(config.model, size)
    sharded = config.cluster.fsdp and world_size > 1
    if sharded:
        model = shard(model, device, world_size)
    optimizer = make_optimizer(model)
    parallel: nn.Module = (
        DistributedDataParallel(model, broadcast_buffers=False)
        if world_size > 1 and not sharded
        else model
    )
    precision = choose_precision(settings.precision, device, config.model.d_model)

    def train(data: Bitext, ids: Ids) -> None:
        own = share(ids, rank, world_size)
        lengths = data.source_lengths, data.target_lengths
        chunks = passes(own if len(own) else ids[:1], *lengths, settings.tokens_per_pass)
        accumulate(
            parallel,
            [collate(data, chunk) for chunk in chunks],
            update_target_tokens=int(data.target_lengths[ids].sum()),
            smoothing=settings.label_smoothing,
            world_size=world_size,
            precision=precision,
            device=device,
        )
        apply(model, optimizer, LEARNING_RATE)

    return train


def _kept_waiting() -> float:
    """Seconds that all threads so far were ready to run and did not; 0 where no one counts it."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            total += int(path.read_text(encoding="ascii").split()[1])
    return total / 1e9


def _any_says(mine: bool, world_size: int) -> bool:
    said = torch.tensor(float(mine))
    if world_size > 1:
        all_reduce(said, dist.ReduceOp.MAX)
    return bool(said)


def random_bitext(source: NDArray[np.int32], target: NDArray[np.int32], size: int) -> Bitext:
    """Sentences of these lengths, of random pieces."""
    random = np.random.default_rng(0)
    sides = []
    for lengths in (source, target):
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        pieces = random.integers(PAD + 1, size, int(offsets[-1]), dtype=np.int64)
        sides.append(Side(pieces, offsets, lengths))
    return Bitext({"vocabulary": {"size": size}}, *sides)


if __name__ == "__main__":
    main()
