"""The scores of a trial's checkpoint, as a process of a cluster finds them.

It imports this module alone: what trains and tunes on a cluster takes as long to load as torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seq2sweep.config import Config
from seq2sweep.runs.stores import worker_store
from seq2sweep.storage.atomic import naming_temporary
from seq2sweep.storage.retry import with_retries
from seq2sweep.train.allocator import keep_memory

Score = Callable[[Config, Path, Path], dict[str, Any]]
"""`score(config, checkpoint, encoded)`: metrics of a checkpoint."""


def score_one(
    score: Score, config: Config, place: tuple[str, str, str], data: dict[str, str], cpus: float
) -> dict[str, Any]:
    """What `score` says of a checkpoint, whose copy does not stay on this machine.

    place: location of the trial, attempt, and name of the checkpoint; data: as of
    `RunStore.publish`; cpus: that were assigned to this process.
    """
    location, attempt, checkpoint = place
    store = worker_store(location, attempt)
    keep_memory()
    torch.set_num_threads(max(1, int(cpus)))  # Ray leaves torch with one
    try:
        with naming_temporary():
            fetched = with_retries(lambda: store.fetch(checkpoint))
            return score(config, fetched, with_retries(lambda: store.data(data)))
    finally:
        store.clear()
