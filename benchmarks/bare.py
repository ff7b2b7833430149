"""Trainings one after another in this plain process, with nothing around them.

What `benchmarks.orchestration` holds a sweep against: the loop of the core, without Ray, journal or
checkpoints. Says `ready` when torch is loaded and warm, waits for a line, then says how many
seconds each training took, a line each.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.train.allocator import keep_memory
from seq2sweep.train.loop import train

WARM_UP_STEPS = 10


def main() -> None:
    """Train with each seed, on one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("params", type=Path)
    parser.add_argument("encoded", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    config = configuration.load(options.params)
    seconds(configuration.with_changes(config, {"train.steps": WARM_UP_STEPS}), options.encoded)
    print("ready", flush=True)
    sys.stdin.readline()
    for seed in options.seeds:
        taken = seconds(configuration.with_changes(config, {"train.seed": seed}), options.encoded)
        print(taken, flush=True)


def seconds(config: Config, encoded: Path) -> float:
    """How long a training takes, from opening the data to the last update and validation."""
    # Not even the look at the weights that comes before a checkpoint.
    last = {"train.checkpoint_every": config.train.steps}
    started = time.perf_counter()
    for _ in train(configuration.with_changes(config, last), encoded, device=torch.device("cpu")):
        pass
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
