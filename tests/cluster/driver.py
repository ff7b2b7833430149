"""A driver of its own, which trains as the stage does and can be killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from seq2sweep import config as configuration
from seq2sweep.cluster import worker_group
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.train_driver import run_training
from seq2sweep.cluster.train_worker import train_worker
from seq2sweep.config import Config
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import Retention, run_folder
from seq2sweep.runs.run_store import RunStatus, RunStore
from seq2sweep.runs.stores import driver_store
from seq2sweep.train.checkpointing import Snapshot

# Ray writes to standard output as well, of nodes that it has lost.
MARK = "event"


def train(
    config: Config,
    encoded: Path,
    project: Path,
    on_event: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> RunStatus:
    """Train in this process; its run's folder is `run`."""
    folder = run_folder(config.cluster, project, "run")
    store = driver_store(config.cluster.storage, folder, Retention.of(config))
    return run_training(config, store, encoded=encoded, on_event=on_event)


def start(config: Config, encoded: Path, project: Path) -> subprocess.Popen[str]:
    """Train in a process of its own; its run's folder is `run`."""
    params = project / "params.yaml"
    params.write_text(configuration.dump(config))
    return subprocess.Popen(
        [sys.executable, "-m", __name__, params, encoded, project],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train_where_the_folder_goes(settings: dict[str, Any]) -> None:
    """As a worker whose second checkpoint, or the line of it, is refused as the run's folder is
    away.

    The thread that has written the first one leaves `saved` beside the folder, and waits until that
    is gone; the second one leaves `refused` there.
    """
    folder = Path(settings["location"])
    saved, refused = folder.with_name("saved"), folder.with_name("refused")
    prune = RunStore.prune

    def wait(store: RunStore, newest: Path) -> None:
        prune(store, newest)
        saved.touch()
        while folder.exists() and not refused.exists():
            time.sleep(0.01)

    def noting(work: Callable[..., None]) -> Callable[..., None]:
        def tried(*given: Any) -> None:
            try:
                work(*given)
            except OSError:
                refused.touch()
                raise

        return tried

    with (
        mock.patch.object(RunStore, "prune", wait),
        mock.patch.object(Journal, "sync", noting(Journal.sync)),
        mock.patch.object(Snapshot, "write", noting(Snapshot.write)),
    ):
        train_worker(settings)


def events(driver: subprocess.Popen[str]) -> Iterator[tuple[str, int]]:
    """Kind and step of what it tells, as it tells it."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith(f"{MARK} "):
            _, kind, step = line.split()
            yield kind, int(step)


def _tell(entry: dict[str, Any]) -> None:
    print(MARK, entry["kind"], entry["step"], flush=True)


def _main(params: str, encoded: str, project: str) -> None:
    config = configuration.load(Path(params))
    worker_group.GROW_SECONDS = 3.0
    with ray_session(config.cluster):
        train(config, Path(encoded), Path(project), _tell)


if __name__ == "__main__":
    _main(*sys.argv[1:])
