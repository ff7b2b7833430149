"""A driver of its own, which trains as the stage does and can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.cluster.run import run_training
from seq2sweep.cluster.session import ray_session
from seq2sweep.config import Config

# Ray writes to standard output as well, of nodes that it has lost.
MARK = "event"


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
    with ray_session(config.cluster):
        run_training(
            config,
            encoded=Path(encoded),
            project=Path(project),
            name="run",
            on_event=_tell,
        )


if __name__ == "__main__":
    _main(*sys.argv[1:])
