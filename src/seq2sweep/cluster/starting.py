"""Ray may take long to start on a busy machine: it is waited for, and its noise goes to a log."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from ray._private import node, services

from seq2sweep import console
from seq2sweep.cluster.signals import ENDINGS
from seq2sweep.storage.object_store import user_folder
from seq2sweep.storage.retry import repeating

PATIENCE_SECONDS = 900.0
SAY_SECONDS = 30.0
LOOK_SECONDS = 0.2

# By themselves Ray's processes wait for one another for half a minute or less.
PATIENT = {
    "RAY_agent_register_timeout_ms": f"{PATIENCE_SECONDS * 1000:.0f}",
    "RAY_gcs_server_port_wait_time_s": f"{PATIENCE_SECONDS:.0f}",
    "RAY_raylet_client_num_connect_attempts": f"{PATIENCE_SECONDS:.0f}",
    # One look for the raylet, which `_until` repeats: not all patience for one that is gone.
    "RAY_raylet_start_wait_time_s": "1",
    "RAY_worker_register_timeout_seconds": f"{PATIENCE_SECONDS:.0f}",
}

KEPT_STARTS = 3
KEPT_FILES = 30
KEPT_BYTES = 1 << 20
"""Of the end of each log of a start that failed."""
NOISE = "terminal.log"


class ProcessEndedError(Exception):
    """A process of Ray ended while the others waited for it."""


@contextlib.contextmanager
def waiting(since: float) -> Iterator[None]:
    """Ray starts inside: lines say that it still does, and it has until all patience ends.

    since: when its start began, in time.monotonic().

    Ray's two waits for a process that it has started have no setting: one gives up after 30 s, and
    the other does not notice that the process is gone.
    """

    def say() -> None:
        console.say(f"Ray is still starting after {_so_far(since)}")

    give_up = since + PATIENCE_SECONDS
    port, info = node.wait_for_persisted_port, services.get_node

    def wait_for_port(*named: Any, **how: Any) -> Any:
        once = {**how, "timeout_ms": 1000}
        return _until(give_up, "gcs_server", lambda: port(*named, **once))

    def wait_for_node(*named: Any) -> Any:
        return _until(give_up, "raylet", lambda: info(*named))

    node.wait_for_persisted_port, services.get_node = wait_for_port, wait_for_node
    try:
        with repeating(SAY_SECONDS, say, "ray-start"):
            yield
    finally:
        node.wait_for_persisted_port, services.get_node = port, info


def _until(give_up: float, server: str, look: Callable[[], Any]) -> Any:
    """What `look` gives, once it does.

    Raises ProcessEndedError when the server that makes it so is gone, KeyboardInterrupt when this
    process is asked to end: such signals are held back while Ray starts.
    """
    while True:
        if signal.sigpending() & set(ENDINGS):
            raise KeyboardInterrupt
        # Before: what it did at last is still seen.
        alive = _alive(server)
        try:
            return look()
        except RuntimeError:
            if not alive:
                raise ProcessEndedError(f"its process {server} ended") from None
            if time.monotonic() > give_up:
                raise ProcessEndedError(f"its process {server} did not get ready") from None
        time.sleep(LOOK_SECONDS)


def _alive(name: str) -> bool:
    """Whether this process has such a child."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == name and child.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _so_far(since: float) -> str:
    """`1m30s (load 6.2 on 2 CPUs)`."""
    spent = console.duration(time.monotonic() - since)
    return f"{spent} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs)"


def reason(error: Exception, since: float) -> str:
    """One line on a start that failed."""
    said = (str(error) or type(error).__name__).splitlines()[0]
    return f"Ray did not start in {_so_far(since)}: {said}"


@contextlib.contextmanager
def noise_to(folder: str) -> Iterator[None]:
    """What this process and its new children write to the terminal as errors goes to a file."""
    try:
        before = os.dup(2)
    except OSError:  # whoever started us closed it
        yield
        return
    log = os.open(Path(folder) / NOISE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def keep_logs(folder: Path) -> Path:
    """Copy the end of each log of a start that failed to where the last few are kept."""
    root = user_folder() / "ray-logs"
    root.mkdir(exist_ok=True)
    kept = root / f"{time.strftime('%Y-%m-%d-%H-%M-%S')}-{os.getpid()}-{time.monotonic_ns()}"
    kept.mkdir()
    found = [*folder.glob(NOISE), *folder.glob("*/session_2*/logs/*")]
    files = sorted((path for path in found if path.is_file()), key=lambda p: p.stat().st_mtime)
    for path in files[-KEPT_FILES:]:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - KEPT_BYTES))
            (kept / path.name).write_bytes(log.read(KEPT_BYTES))
    for old in sorted(root.iterdir())[:-KEPT_STARTS]:
        shutil.rmtree(old, ignore_errors=True)
    return kept
