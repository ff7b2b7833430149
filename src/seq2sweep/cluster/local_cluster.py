"""A Ray of our own on this machine; it ends with its driver, however that ends (guard.py)."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ray

from seq2sweep import console
from seq2sweep.cluster import private, reaper, starting
from seq2sweep.cluster.signals import ENDINGS, held_back, undisturbed
from seq2sweep.errors import OperationalError
from seq2sweep.train.allocator import PROCESS_ENVIRONMENT

NAMESPACE = "seq2sweep"
# Nothing large goes through Ray's object store: data and checkpoints are files.
OBJECT_STORE_BYTES = 200 * 2**20
# Ray opens its folder to everybody: it lies in one that only this user enters.
INNER = "r"
# Ray's sockets lie 79 characters deeper, and a socket's path has 107 at most.
LONGEST_TEMPORARY_FOLDER = 28
# Compute threads that wait by spinning starve any other process of the machine.
WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"} | PROCESS_ENVIRONMENT
# No machine is taken away from a Ray that has only this one: a process less to start.
LOCAL_ENVIRONMENT = {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray that nobody else sees, connected to, for the time of a `with` block.

    A busy machine has time to start it (starting.py); a start that fails before is tried once more.
    Raises OperationalError, with the folder of Ray's logs, when that fails too.
    """
    since = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(LOCAL_ENVIRONMENT | starting.PATIENT))
        try:
            stack.enter_context(_session(since))
        except _NotStartedError as first:
            if time.monotonic() - since > starting.PATIENCE_SECONDS:
                raise _failure(first) from None
            console.say(f"{first}; once more")
            shutil.rmtree(first.logs, ignore_errors=True)
            try:
                stack.enter_context(_session(since))
            except _NotStartedError as error:
                raise _failure(error) from None
        yield


class _NotStartedError(Exception):
    """Ray did not start; logs: a folder with what its processes wrote."""

    def __init__(self, reason: str, logs: Path) -> None:
        super().__init__(reason)
        self.logs = logs


def _failure(error: _NotStartedError) -> OperationalError:
    return OperationalError(
        f"{error}; its logs are in {error.logs}; free the machine and run again"
    )


@contextlib.contextmanager
def _session(since: float) -> Iterator[None]:
    """Ray in a new folder; none of its processes outlives the block."""
    parent = tempfile.gettempdir()
    folder = tempfile.mkdtemp(
        prefix="s2s-", dir=parent if len(parent) <= LONGEST_TEMPORARY_FOLDER else "/tmp"
    )
    watching = reaper.start(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(undisturbed, lambda: reaper.finish(watching))
        stack.enter_context(private.own_token(folder))
        stack.callback(undisturbed, _shut_down)
        try:
            with (
                environment(WORKER_ENVIRONMENT),
                reaper.marked(folder),
                held_back(*ENDINGS),
                starting.noise_to(folder),
                starting.waiting(since),
            ):
                _init(folder)
        except OperationalError:
            raise
        # Ray raises a plain Exception for a node that is not up in time.
        except Exception as error:
            logs = starting.keep_logs(Path(folder))
            raise _NotStartedError(starting.reason(error, since), logs) from error
        yield


def _init(folder: str) -> None:
    with private.on_loopback() as address:
        ray.init(
            address="local",
            namespace=NAMESPACE,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            logging_level="ERROR",
            log_to_driver=False,
            _temp_dir=str(Path(folder) / INNER),
            _node_ip_address=address,
        )
    private.check_private(ray.get_runtime_context().gcs_address)


def _shut_down() -> None:
    """Shut Ray down; the guard sees to it that none of its processes outlives us."""
    node = ray._private.worker._global_node
    if node is not None:
        kill = node.kill_all_processes
        # By a SIGTERM first, as Ray would, costs a second for each: they hold it back.
        node.kill_all_processes = lambda **how: kill(check_alive=False)
    ray.shutdown()


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the processes started inside; those the user set stay."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]
