"""What a search of runs costs in SQLite: `python -m benchmarks.runs`.

Fills a new store with runs as a sweep records them (90 parameters, 25 tags, 15 metrics at 24 steps
each) and asks it for 100 of them, as MLflow's page does: the newest, those with the best metric,
those of one variant, and one run by its key. First alone, then beside two processes that record
further runs without a pause.

Prints JSON: for each count of runs, median seconds of each question, alone and beside the writers,
seconds that recording one run took, and the megabytes of the file.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import KEY, Experiment

PAGE = 100
WRITERS = 2
PARAMETERS, TAGS, METRICS, STEPS = 90, 25, 15, range(0, 600, 25)
QUESTIONS: dict[str, dict[str, Any]] = {
    "newest": {},
    "best": {"order_by": ["metrics.metric3 DESC"]},
    "one_variant": {"filter_string": f"tags.`{KEY}` LIKE 'run.%7'"},
    "by_key": {"filter_string": f"tags.`{KEY}` = 'run.7'"},
}


def main() -> None:
    """Measure, print one JSON object."""
    console.quiet_environment()
    logging.disable(logging.INFO)  # the steps of each new database
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1020, 5000])
    parser.add_argument("--times", type=int, default=5, help="that each question is asked")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "mlflow.db"
        experiment = open_store(store)
        done = 0
        for count in sorted(options.runs):
            started = time.perf_counter()
            for number in tqdm(range(done, count), unit="run", mininterval=1.0):
                record(experiment, f"run.{number}", number)
            seconds = (time.perf_counter() - started) / max(count - done, 1)
            done = count
            found[str(count)] = {
                "load": os.getloadavg()[0],
                "megabytes": store.stat().st_size / 1e6,
                "seconds_to_record_a_run": seconds,
                "alone": asked(experiment, options.times),
            }
            with writers(store):
                found[str(count)]["beside_writers"] = asked(experiment, options.times)
    print(json.dumps(found, indent=2))


def open_store(path: Path) -> Experiment:
    return Experiment(f"sqlite:///{path}", "runs", path.parent / "artifacts")


def record(experiment: Experiment, key: str, number: int) -> None:
    """One finished run."""
    run = Run.begin(
        experiment, key, key, started=time.time(), tags={f"tag{k}": "v" * 60 for k in range(TAGS)}
    )
    run.params({f"section.parameter{k}": str(k * number) for k in range(PARAMETERS)})
    points = [(time.time(), s, {f"metric{k}": s + k / 7 for k in range(METRICS)}) for s in STEPS]
    run.points(points)
    run.end("finished", time.time())


def asked(experiment: Experiment, times: int) -> dict[str, float]:
    """Median seconds of each question."""

    def seconds(ask: Callable[[], object]) -> float:
        started = time.perf_counter()
        ask()
        return time.perf_counter() - started

    def question(search: dict[str, Any]) -> Callable[[], object]:
        return lambda: experiment.client.search_runs([experiment.id], max_results=PAGE, **search)

    return {
        name: statistics.median(seconds(question(search)) for _ in range(times))
        for name, search in QUESTIONS.items()
    }


@contextmanager
def writers(store: Path) -> Iterator[None]:
    """Processes that record runs, for the time of a `with` block."""
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Barrier(WRITERS + 1)
    processes = [
        context.Process(target=_write, args=(store, number, stop, ready))
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    try:
        ready.wait()
        yield
    finally:
        stop.set()
        for process in processes:
            process.join()


def _write(store: Path, writer: int, stop: Event, ready: Any) -> None:
    logging.disable(logging.INFO)
    experiment = open_store(store)
    ready.wait()
    number = 0
    while not stop.is_set():
        # Each time other runs: those of before would be found, not made.
        record(experiment, f"writer{writer}.{time.time_ns()}", number)
        number += 1


if __name__ == "__main__":
    main()
