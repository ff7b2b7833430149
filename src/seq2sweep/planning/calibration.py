"""How fast the CPUs of this machine train: tried for some seconds, in processes as of a training.

What a training takes is asked as if the CPUs were free. Other work makes it slower for moments, so
the best of several short windows counts; and where the processes had to wait for a CPU much of
the time, the CPU time that they used in it. (A demo trained beside so much other work that its
workers had half of a CPU each: 0.248 s of CPU an update, 0.251 s as planned before.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import Failure
from seq2sweep.planning.workload import Training, Workload, training

SECONDS = 3.0
WINDOW = 0.6
"""Seconds of a window, at least."""
BUSY = 0.1
"""Share of the time that processes wait for a CPU, above which the machine is called busy."""
APART = 1.1
"""How much longer an update takes than its CPU time: workers wait for each other."""
PAIRS = 20_000
"""Of which sentences are made up."""
FLOPS_PER_CPU = 30e9
"""An update that is tried takes about as much; longer ones are tried with fewer tokens."""
FEWEST_TOKENS = 200
PATIENCE = 300.0

Update = tuple[float, float, float, float]
"""FLOPs, seconds, seconds of CPU and seconds of waiting for one, as `measure` gives them."""


@dataclass(frozen=True)
class Task:
    """Trainings side by side, as many as `copies`, each of so many workers of so many threads."""

    config: Config
    copies: int
    workers: int
    threads: int


@dataclass(frozen=True)
class Rate:
    """FLOPs a second of one of a task's trainings, all its workers together.

    tokens_per_update: with which it was tried; busy: whether other work held the CPUs, so that
    this follows from CPU time.
    """

    flops_per_second: float
    tokens_per_update: int
    busy: bool


def calibrate(tasks: Sequence[Task], load: Workload) -> list[Rate]:
    """Try each task in turn, with nothing of it left behind.

    Raises Failure when the processes fail or do not come to an end.
    """
    tasks = [dataclasses.replace(task, config=_shortened(task, load)) for task in tasks]
    with tempfile.TemporaryDirectory(prefix="seq2sweep-plan-") as folder:
        answers = _run(_orders(tasks, load, Path(folder)), Path(folder))
    return [_rate(task, [answer[n] for answer in answers]) for n, task in enumerate(tasks)]


def _rate(task: Task, answers: Sequence[Sequence[Update]]) -> Rate:
    """answers: the updates of each process, copy by copy."""
    every = [answers[i * task.workers : (i + 1) * task.workers] for i in range(task.copies)]
    used, waited = (
        sum(update[field] for updates in answers for update in updates) for field in (2, 3)
    )
    busy = waited > BUSY * (used + waited)
    if busy:
        rates = [min(_by_cpu_time(updates, task.threads) for updates in copy) for copy in every]
    else:
        rates = [_by_the_clock(copy[0]) for copy in every]
    return Rate(float(np.mean(rates)), task.config.train.tokens_per_update, busy)


def _shortened(task: Task, load: Workload) -> Config:
    """The task's configuration with updates that take about a second."""
    whole: Training = training(task.config, load)
    share = FLOPS_PER_CPU * task.workers * task.threads / whole.flops_per_update
    settings = task.config.train
    tokens = max(FEWEST_TOKENS, int(settings.tokens_per_update * min(1.0, share)))
    tokens = min(tokens, settings.tokens_per_update)
    return dataclasses.replace(
        task.config, train=dataclasses.replace(settings, tokens_per_update=tokens)
    )


def _orders(tasks: Sequence[Task], load: Workload, folder: Path) -> list[dict[str, Any]]:
    """What each process is to do: a phase a task, or None where it has no part."""
    train = load.train
    every = -(-len(train) // PAIRS)
    source, target = train.source_lengths[::every], train.target_lengths[::every]
    np.savez(folder / "lengths.npz", source=source, target=target)
    orders: list[dict[str, Any]] = [
        {"lengths": str(folder / "lengths.npz"), "phases": []}
        for _ in range(max(task.copies * task.workers for task in tasks))
    ]
    for number, task in enumerate(tasks):
        values = configuration.to_dict(task.config)
        for index, order in enumerate(orders):
            copy, rank = divmod(index, task.workers)
            phase = {
                "config": values,
                "rank": rank,
                "world_size": task.workers,
                "threads": task.threads,
                "store": str(folder / f"store-{number}-{copy}"),
                "seconds": SECONDS,
                "vocabulary_size": load.vocabulary_size,
            }
            order["phases"].append(phase if copy < task.copies else None)
    return orders


def _run(orders: list[dict[str, Any]], folder: Path) -> list[Any]:
    """The answers of one process an order; none of them is left running."""
    with contextlib.ExitStack() as stack:
        processes = []
        for number, order in enumerate(orders):
            asked, said = folder / f"order-{number}.json", folder / f"said-{number}.txt"
            asked.write_text(json.dumps(order), encoding="utf-8")
            process = subprocess.Popen(
                [sys.executable, "-m", "seq2sweep.planning.measure"],
                stdin=stack.enter_context(asked.open()),
                stdout=stack.enter_context((folder / f"answer-{number}.json").open("w")),
                stderr=stack.enter_context(said.open("w")),
                # As in training; and a thread that waits by spinning would use CPU time.
                env={"OMP_WAIT_POLICY": "passive"} | os.environ,
            )
            stack.callback(_end, process)
            processes.append(process)
        for number, process in enumerate(processes):
            try:
                status = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failure(
                    "measuring this machine's CPUs takes too long: plan for other devices with --on"
                ) from None
            if status:
                words = (folder / f"said-{number}.txt").read_text(encoding="utf-8").strip()
                last = words.splitlines()[-1] if words else f"status {status}"
                raise Failure(f"measuring this machine's CPUs failed: {last}")
        return [
            json.loads((folder / f"answer-{number}.json").read_text(encoding="utf-8"))
            for number in range(len(orders))
        ]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _by_cpu_time(updates: Sequence[Update], threads: int) -> float:
    """FLOPs a second of the best window, had every thread a CPU of its own."""
    return _best([(flops, APART * used / threads) for flops, _, used, _ in updates])


def _by_the_clock(updates: Sequence[Update]) -> float:
    """FLOPs a second of the best window, as it was."""
    return _best([(flops, seconds) for flops, seconds, _, _ in updates])


def _best(updates: Sequence[tuple[float, float]]) -> float:
    """FLOPs a second of the best window of whole updates in a row, each its FLOPs and seconds."""
    rates = []
    for start in range(len(updates)):
        flops = seconds = 0.0
        for more_flops, more_seconds in updates[start:]:
            flops, seconds = flops + more_flops, seconds + more_seconds
            if seconds >= WINDOW:
                rates.append(flops / seconds)
                break
    whole = sum(flops for flops, _ in updates) / sum(seconds for _, seconds in updates)
    return max([whole, *rates])
