"""What it costs to lose nothing: `python -m benchmarks.safety`.

Trains the model of the demo (preset phrasebook) on the demo's data at the demo's intervals, one
worker on all CPUs, in three ways by turns: `bare` keeps nothing; `beside` has the journal, and
checkpoints written beside the training, as workers do; `waiting` has the same, and waits for each
checkpoint. Then the pieces of which a checkpoint is made, one by one. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.parallel import available_cpus
from seq2sweep.runs.event_writer import EventWriter
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import JOURNAL_NAME, Retention, checkpoint_name, prune
from seq2sweep.runs.run_store import RunStore
from seq2sweep.storage import atomic
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Event, Logged
from seq2sweep.train.loop import train

ROOT = Path(__file__).parents[1]
PIECES = {"_save_tensors": checkpointing, "sha256": checkpointing, "flush": atomic}
"""Functions in which a checkpoint's writing spends its time, and where it finds them."""

Keep = Callable[[Event], None]


def main() -> None:
    """Measure, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200, help="updates of a run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each way, in turns")
    parser.add_argument("--folder", type=Path, help="where to work (a temporary folder)")
    options = parser.parse_args()
    torch.set_num_threads(available_cpus())
    config = configuration.with_changes(
        presets.load("phrasebook").config, {"train.steps": options.steps}
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        encoded = encode(folder, config)
        warm_up = configuration.with_changes(config, {"train.steps": 10})
        measure("bare", warm_up, encoded, folder)
        runs = [turn(number, config, encoded, folder) for number in range(options.runs)]
        result = {
            "machine": f"{platform.machine()}, {available_cpus()} CPUs",
            "torch": torch.__version__,
            "steps": options.steps,
            "seconds": {way: [run[way].seconds for run in runs] for way in WAYS},
            **{way: against_bare(way, runs) for way in ("beside", "waiting")},
            "microseconds": pieces(config, encoded, folder),
        }
    print(json.dumps(result, indent=2))


def encode(folder: Path, config: Config) -> Path:
    """The demo's data, by the stages that make it."""
    (folder / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    for stage in ("download", "prepare", "vocabulary", "encode"):
        subprocess.run(
            [sys.executable, "-m", f"pipeline.{stage}"],
            cwd=folder,
            env=environment,
            stdout=sys.stderr,
            check=True,
        )
    return folder / "data/encoded"


# --- ways ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def bare(folder: Path, config: Config) -> Iterator[Keep]:
    yield lambda event: None


@contextlib.contextmanager
def beside(folder: Path, config: Config) -> Iterator[Keep]:
    with EventWriter(RunStore(folder, retention=Retention.of(config))) as writer:
        yield writer.write


@contextlib.contextmanager
def waiting(folder: Path, config: Config) -> Iterator[Keep]:
    journal = Journal(folder / JOURNAL_NAME)

    def keep(event: Event) -> None:
        journal.append(event)
        if isinstance(event, CheckpointDue):
            path = folder / checkpoint_name(event.step)
            event.capture().write(path)
            prune(folder, Retention.of(config), path)

    yield keep
    journal.close()


WAYS = {"bare": bare, "beside": beside, "waiting": waiting}


@dataclass(frozen=True)
class Taken:
    """What a run took: `cpu` is CPU seconds, of all threads.

    waited: seconds in which training stood still for an event to be handled; spent: CPU seconds
    that its handling took, there and in the thread that writes.
    """

    seconds: float
    cpu: float
    waited: float
    spent: float


def turn(number: int, config: Config, encoded: Path, folder: Path) -> dict[str, Taken]:
    """A run of each way, each turn beginning with another one."""
    first = number % len(WAYS)
    found = {}
    for way in [*WAYS][first:] + [*WAYS][:first]:
        place = folder / f"{way}-{number}"
        place.mkdir()
        found[way] = measure(way, config, encoded, place)
        print(f"run {number + 1}, {way}: {found[way]}", file=sys.stderr)
    return found


def measure(way: str, config: Config, encoded: Path, folder: Path) -> Taken:
    if way == "bare":  # not even the look at the weights before a checkpoint
        config = configuration.with_changes(config, {"train.checkpoint_every": config.train.steps})
    waited = spent = 0.0
    started, cpu = time.perf_counter(), time.process_time()
    with WAYS[way](folder, config) as keep:
        for event in train(config, encoded, device=torch.device("cpu")):
            before, cpu_before = time.perf_counter(), time.thread_time()
            keep(event)
            waited += time.perf_counter() - before
            spent += time.thread_time() - cpu_before
        spent += sum(map(cpu_time, threading.enumerate())) - cpu_time(threading.main_thread())
    return Taken(time.perf_counter() - started, time.process_time() - cpu, waited, spent)


def cpu_time(thread: threading.Thread) -> float:
    """CPU seconds of one of Python's threads; torch's are none."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def against_bare(way: str, runs: list[dict[str, Taken]]) -> dict[str, Any]:
    """Percent: how much longer than the bare run of its turn, and what safety has of its own run.

    The first is the truth on a quiet machine, and noise on another; the others hold on both.
    """
    pairs = [(run[way], run["bare"]) for run in runs]
    return {
        "percent_longer": spread([a.seconds / b.seconds - 1 for a, b in pairs]),
        "percent_of_time_waited": spread([a.waited / a.seconds for a, _ in pairs]),
        "percent_of_cpu_spent": spread([a.spent / a.cpu for a, _ in pairs]),
    }


# --- pieces --------------------------------------------------------------------------------------


def pieces(config: Config, encoded: Path, folder: Path, count: int = 20) -> dict[str, float]:
    """Microseconds of each step of a checkpoint and of a journal line, medians."""
    events = train(
        configuration.with_changes(config, {"train.steps": 2, "train.checkpoint_every": 1}),
        encoded,
        device=torch.device("cpu"),
    )
    due = next(event for event in events if isinstance(event, CheckpointDue))
    place = folder / "pieces"
    place.mkdir()
    journal = Journal(place / JOURNAL_NAME)
    taken: dict[str, list[float]] = {}
    figures = {key: value for key, value in due.metrics.items() if isinstance(value, float | int)}
    for step in range(count):
        with clock(taken, "capture"):
            snapshot = due.capture()
        with contextlib.ExitStack() as patches:
            spent = {name: patches.enter_context(timed(name)) for name in PIECES}
            with clock(taken, "write"):
                snapshot.write(place / checkpoint_name(step))
        for name in PIECES:
            taken.setdefault(f"write: {name.strip('_')}", []).append(sum(spent[name]))
        with clock(taken, "prune"):
            prune(place, Retention.of(config), place / checkpoint_name(step))
        with clock(taken, "journal line"):
            journal.append(Logged(step, figures))
        with clock(taken, "journal line of a checkpoint"):
            journal.append(CheckpointDue(step, due.metrics, due.capture))
    journal.close()
    return {name: round(1e6 * statistics.median(values), 1) for name, values in taken.items()}


@contextlib.contextmanager
def clock(taken: dict[str, list[float]], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    taken.setdefault(name, []).append(time.perf_counter() - started)


@contextlib.contextmanager
def timed(name: str) -> Iterator[list[float]]:
    """Seconds of each call of one of the PIECES meanwhile."""
    function, spent = getattr(PIECES[name], name), list[float]()

    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            spent.append(time.perf_counter() - started)

    with mock.patch.object(PIECES[name], name, call):
        yield spent


def spread(shares: list[float]) -> dict[str, float | list[float]]:
    """Percent: the median, and all of them."""
    percents = [round(100 * share, 2) for share in shares]
    return {"median": round(statistics.median(percents), 2), "all": percents}


if __name__ == "__main__":
    main()
