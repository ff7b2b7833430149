"""What Ray Tune costs: `python -m benchmarks.orchestration`.

A sweep of equal short trials (the demo's base variant with another seed each, one thread a trial,
as many at once as there are CPUs) against the same trainings in plain processes, as many at once,
by turns. A sweep keeps its journals and a checkpoint at each validation, as it always does; the
plain processes keep nothing (benchmarks/bare.py). Nothing is decoded on either side: scoring is a
task a trial that returns at once. No run is recorded in MLflow.

`ratio` is the sweep's time, from the moment its first trial's process has loaded everything to the
moment Ray has ended, by the sum of the bare trainings' times divided by how many run at once. What
comes before is `start_up`: Ray itself, and the first processes of trials. The start of the plain
processes is not counted.

Prints JSON, and a table to standard error. Other work on the machine is noise: look at `load`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.safety import ROOT, encode
from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.cluster.session import Node, places, ray_session
from seq2sweep.cluster.tune_runner import run_sweep
from seq2sweep.config import Config
from seq2sweep.parallel import available_cpus
from seq2sweep.runs import journal
from seq2sweep.sweep.variants import Variant, variants
from seq2sweep.train.allocator import PROCESS_ENVIRONMENT

PARTS = ("start_up", "in_trials", "between_trials", "scoring", "end")


@dataclass(frozen=True)
class Sweep:
    """Seconds of one sweep.

    start_up: until the first trial trains; in_trials: from the start of each to its end, summed
    and divided by how many run at once; between_trials: the rest of the time until the last has
    ended; scoring: until all was scored; end: until Ray was gone.
    """

    load: float
    start_up: float
    in_trials: float
    between_trials: float
    scoring: float
    end: float

    @property
    def seconds(self) -> float:
        """All but the start-up."""
        return self.in_trials + self.between_trials + self.scoring + self.end


@dataclass(frozen=True)
class Bare:
    """seconds: of all trainings, summed and divided by how many run at once."""

    load: float
    seconds: float


def main() -> None:
    """Measure, print one JSON object."""
    console.quiet_environment()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=12, help="of a sweep")
    parser.add_argument("--steps", type=int, default=300, help="updates of a trial")
    parser.add_argument("--runs", type=int, default=3, help="sweeps, and as many of the other")
    parser.add_argument("--folder", type=Path, help="where to work (a temporary folder)")
    options = parser.parse_args()
    config = demo(options.steps, options.trials)
    at_once = places([Node(available_cpus(), 0)], config.sweep.cpus_per_trial, 0)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        encoded = encode(folder, config)
        total = 2 * options.trials * options.runs
        with tqdm(total=total, **console.bar("train", "trainings")) as bar:
            runs = [
                turn(number, config, encoded, folder, at_once, bar)
                for number in range(options.runs)
            ]
    result = summary(runs) | {
        "machine": f"{platform.machine()}, {available_cpus()} CPUs",
        "trials": options.trials,
        "at_once": at_once,
        "steps": options.steps,
        "sweeps": [dataclasses.asdict(swept) for swept, _ in runs],
        "bare": [dataclasses.asdict(bare) for _, bare in runs],
    }
    print(table(result), file=sys.stderr)
    print(json.dumps(result, indent=2))


def demo(steps: int, trials: int) -> Config:
    """The demo's base variant, with so many seeds and nothing that stops a trial."""
    config = presets.load("phrasebook").config
    changes = {
        "sweep.method": "grid",
        "sweep.space": {},
        "sweep.base": config.sweep.base | {"train.steps": steps},
        "sweep.seeds": trials,
        "sweep.scheduler": "none",
    }
    return configuration.with_changes(config, changes)


def turn(
    number: int, config: Config, encoded: Path, folder: Path, at_once: int, bar: Any
) -> tuple[Sweep, Bare]:
    """One of each, the other one first every time."""
    trials, _ = variants(config)
    place = folder / f"turn-{number}"
    place.mkdir()
    if number % 2:
        bare = train_bare(trials, encoded, place, at_once, bar)
        return sweep(config, trials, encoded, place, at_once, bar), bare
    swept = sweep(config, trials, encoded, place, at_once, bar)
    return swept, train_bare(trials, encoded, place, at_once, bar)


def sweep(
    config: Config, trials: list[Variant], encoded: Path, folder: Path, at_once: int, bar: Any
) -> Sweep:
    """A sweep in a Ray of its own."""
    load, begun = os.getloadavg()[0], time.time()

    def hear(event: str, variant: Variant, figures: dict[str, Any]) -> None:
        bar.update(event == "finished")

    with ray_session(config.cluster):
        results = run_sweep(
            config,
            trials,
            encoded=encoded,
            project=folder,
            name="sweep",
            score=no_score,
            on_trial=hear,
        )
        scored = time.time()
    ended = time.time()
    failed = [f"{r.variant.name}: {r.status}, {r.cause}" for r in results if r.status != "finished"]
    if failed:
        raise RuntimeError("; ".join(failed))
    # A trial takes its lock when its process has loaded all it needs.
    starts = [(result.journal.parent / "writer.lock").stat().st_mtime for result in results]
    ends = [[*journal.entries(result.journal)][-1]["time"] for result in results]
    in_trials = (sum(ends) - sum(starts)) / at_once
    return Sweep(
        load=load,
        start_up=min(starts) - begun,
        in_trials=in_trials,
        between_trials=max(ends) - min(starts) - in_trials,
        scoring=scored - max(ends),
        end=ended - scored,
    )


def no_score(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """In the place of a decode."""
    return {"translations": []}


def train_bare(trials: list[Variant], encoded: Path, folder: Path, at_once: int, bar: Any) -> Bare:
    """The same trainings in plain processes that begin at the same moment."""
    params = folder / "params.yaml"
    params.write_text(configuration.dump(trials[0].config), encoding="utf-8")
    seeds = [str(trial.seed) for trial in trials]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bare", params, encoded, *seeds[first::at_once]],
            env=PROCESS_ENVIRONMENT
            | os.environ
            | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(at_once)
    ]
    try:
        for process in processes:
            line(process)
        load = os.getloadavg()[0]
        with ThreadPoolExecutor(at_once) as pool:
            taken = pool.map(lambda process: follow(process, bar.update), processes)
            return Bare(load, sum(map(sum, taken)) / at_once)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def follow(process: subprocess.Popen[str], on_done: Callable[[], object]) -> list[float]:
    """Let a plain process begin; the seconds of each of its trainings."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    taken = []
    for text in process.stdout:
        taken.append(float(text))
        on_done()
    if process.wait():
        raise RuntimeError(f"benchmarks.bare ended with status {process.returncode}")
    return taken


def line(process: subprocess.Popen[str]) -> str:
    """The next line of a process that must not have ended."""
    assert process.stdout is not None
    found = process.stdout.readline()
    if not found:
        raise RuntimeError(f"benchmarks.bare ended with status {process.wait()}")
    return found


# --- what it comes to ---------------------------------------------------------------------------


def summary(runs: list[tuple[Sweep, Bare]]) -> dict[str, Any]:
    """Ratios of each turn, and where a sweep's time beyond the bare trainings goes, medians."""
    ratios = [swept.seconds / bare.seconds for swept, bare in runs]
    beyond = {part: [getattr(swept, part) for swept, _ in runs] for part in PARTS}
    beyond["in_trials"] = [swept.in_trials - bare.seconds for swept, bare in runs]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "bare_seconds": round(statistics.median(bare.seconds for _, bare in runs), 2),
        "seconds_beyond": {
            part: round(statistics.median(found), 2) for part, found in beyond.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """For people."""
    bare = result["bare_seconds"]
    rows = [
        f"{result['trials']} trials of {result['steps']} steps, {result['at_once']} at once",
        f"bare trainings, their sum by {result['at_once']}: {bare:.1f} s",
        f"sweep: {result['ratio']:.3f} times that, beyond the start-up "
        f"(each turn: {', '.join(map(str, result['ratios']))})",
        "seconds of a sweep beyond the bare trainings, medians:",
    ]
    rows += [f"  {part:<15} {taken:6.2f}" for part, taken in result["seconds_beyond"].items()]
    loads = [run["load"] for way in ("sweeps", "bare") for run in result[way]]
    rows.append(f"load average before each: {', '.join(f'{load:.1f}' for load in loads)}")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
