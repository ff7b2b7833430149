"""One Ray for one command: started on this machine or joined, and left without a trace."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, TypeVar

import ray
from ray._private.authentication.authentication_token_setup import (
    maybe_enable_token_auth_if_token_available,
)
from ray._private.services import canonicalize_bootstrap_address

from seq2sweep.cluster import guard
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import UserError

T = TypeVar("T")

NAMESPACE = "seq2sweep"
# Nothing large goes through Ray's object store: data and checkpoints are files.
OBJECT_STORE_BYTES = 200 * 2**20
CONNECT_SECONDS = 5.0
# Ray's sockets lie 62 characters deeper than its folder, and a socket's path has 107 at most.
LONGEST_TEMPORARY_FOLDER = 40
# Compute threads that wait by spinning starve any other process of the machine.
WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
# No machine is taken away from a Ray that has only this one: a process less to start.
LOCAL_ENVIRONMENT = {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster offers in all, whether busy or free."""

    cpus: float
    gpus: float


@contextlib.contextmanager
def ray_session(config: ClusterConfig) -> Iterator[None]:
    """Ray, up for the time of a `with` block.

    `cluster.address` null starts one on this machine that nobody else sees, and ends all its
    processes however the block is left, by SIGKILL as well (guard.py); SIGTERM and a closed
    terminal become KeyboardInterrupt.
    An address, or RAY_ADDRESS (set in every job that `ray job submit` starts), joins a running
    cluster. A Ray that this process is connected to already is used as it is.

    Raises UserError when the cluster cannot be reached.
    """
    if ray.is_initialized():
        yield
        return
    address = config.address or os.environ.get("RAY_ADDRESS")
    with _signals_as_interrupts() as set_handlers, contextlib.ExitStack() as stack:
        try:
            if address is None:
                _start(stack)
            else:
                _join(address, stack)
        except SystemExit:
            # Ray's own answer to a SIGTERM while it starts.
            raise KeyboardInterrupt from None
        # Ray has put a handler of its own for SIGTERM, which ends the process with a stack dump.
        set_handlers()
        yield


def nodes() -> list[Node]:
    """The live machines of the cluster."""
    return [
        Node(float(node["Resources"].get("CPU", 0)), float(node["Resources"].get("GPU", 0)))
        for node in ray.nodes()
        if node["Alive"]
    ]


def places(machines: list[Node], cpus: float, gpus: float) -> int:
    """How many processes of so many CPUs and GPUs the machines hold at once."""

    def fit(machine: Node) -> int:
        # The tiny number mends 0.3 / 0.1 = 2.9999...
        rooms = [
            int(has / needs + 1e-9)
            for has, needs in ((machine.cpus, cpus), (machine.gpus, gpus))
            if needs > 0
        ]
        return min(rooms)

    return sum(fit(machine) for machine in machines)


def cpus_per_worker(config: ClusterConfig, machines: list[Node]) -> int:
    """CPUs for each training worker: as configured, or the most with which all of them fit.

    With cluster.min_workers so many are enough. Raises UserError when they do not fit, because Ray
    would wait for ever.
    """
    gpus = config.gpus_per_worker
    if config.cpus_per_worker is not None:
        choices = [config.cpus_per_worker]
    else:
        choices = list(range(int(max((node.cpus for node in machines), default=1)), 0, -1))
    for enough in (config.workers, config.min_workers or config.workers):
        for cpus in choices:
            if places(machines, cpus, gpus) >= enough:
                return cpus
    least = choices[-1] if choices else 1
    raise UserError(
        f"cluster.workers is {config.workers}, each with {least} CPU (cluster.cpus_per_worker) "
        f"and {gpus} GPU (cluster.gpus_per_worker), but the cluster, {describe(machines)}, has "
        f"room for {places(machines, least, gpus)} of them: lower one of the three"
    )


def describe(machines: list[Node]) -> str:
    """`1 node of 8 CPUs, 0 GPUs`."""
    kinds = [f"{node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in machines]
    return " and ".join(
        f"{kinds.count(kind)} node{'s' if kinds.count(kind) > 1 else ''} of {kind}"
        for kind in dict.fromkeys(kinds)
    )


LAST_WORDS_SECONDS = 90.0
"""How long work may take to end by itself when it was asked to: a node may learn late of a new file
on a network file system."""


def while_waiting(
    work: Callable[[], T],
    tick: Callable[[], None],
    on_interrupt: Callable[[], bool] | None = None,
    every: float = 0.2,
) -> T:
    """Run `work` in a thread; call `tick` here every so many seconds and once after the end.

    Ray's blocking calls take over Ctrl-C when they run in the main thread, so they do not.

    on_interrupt: asks the work to end by itself, and says whether it can have heard; then a
    KeyboardInterrupt goes on its way when it has ended, after LAST_WORDS_SECONDS, or with the next
    KeyboardInterrupt.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="ray-call", daemon=True).start()

    def wait_until(give_up: float) -> None:
        while not outcome.done() and time.monotonic() < give_up:
            wait([outcome], timeout=every)
            tick()

    try:
        wait_until(math.inf)
    except KeyboardInterrupt:
        if on_interrupt is not None and on_interrupt():
            wait_until(time.monotonic() + LAST_WORDS_SECONDS)
        raise
    tick()
    return outcome.result()


# --- starting and joining -----------------------------------------------------------------------


def _start(stack: contextlib.ExitStack) -> None:
    parent = tempfile.gettempdir()
    folder = tempfile.mkdtemp(
        prefix="s2s-", dir=parent if len(parent) <= LONGEST_TEMPORARY_FOLDER else "/tmp"
    )
    watching = guard.start(folder)
    stack.callback(_undisturbed, lambda: _end(watching))
    stack.enter_context(_environment(LOCAL_ENVIRONMENT))
    with _environment(WORKER_ENVIRONMENT), guard.marked(folder), _held_back(*_ENDINGS):
        ray.init(
            address="local",
            namespace=NAMESPACE,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            logging_level="ERROR",
            log_to_driver=False,
            _temp_dir=folder,
        )


def _join(address: str, stack: contextlib.ExitStack) -> None:
    _check_reachable(address)
    stack.callback(_undisturbed, ray.shutdown)
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            logging_level="ERROR",
            log_to_driver=False,
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        _unreachable(address, error)


def _check_reachable(address: str) -> None:
    """Fail at once where `ray.init` would try for minutes."""
    if "://" in address:
        raise UserError(
            f"cluster.address {address} is not of the form host:6379: give the head's address, "
            "or null inside a submitted job"
        )
    try:
        resolved = canonicalize_bootstrap_address(address)
        host, _, port = (resolved or "").rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
        # The token that lies in the user's folder, if any, as ray.init finds it.
        logging.getLogger("ray").setLevel(logging.ERROR)
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        # Something answers; whether it is Ray shows here, after 40 s at the latest.
        ray._raylet.GcsClient(address=resolved)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"cluster.address: the Ray cluster at {address} does not take this user's token: put "
            "the cluster's into ~/.ray/auth_token or $RAY_AUTH_TOKEN, and set RAY_AUTH_MODE=token"
        ) from None
    except (OSError, ValueError, OverflowError, ray.exceptions.RpcError) as error:
        _unreachable(address, error)


def _unreachable(address: str, error: Exception) -> NoReturn:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    raise UserError(
        f"cluster.address: no Ray cluster can be reached at {address} ({reason}); start it, mend "
        "the address (host:6379), or set null to use this machine"
    ) from None


# --- ending --------------------------------------------------------------------------------------


def _end(watching: subprocess.Popen[bytes]) -> None:
    """Shut Ray down; the guard sees to it that none of its processes outlives us."""
    try:
        ray.shutdown()
    finally:
        guard.finish(watching)


def _undisturbed(work: Callable[[], None]) -> None:
    """Do what takes a second or two to the end: a second Ctrl-C must not leave half of it."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTS}
    try:
        work()
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # None stands for one that was not set from Python and cannot be set from there.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTS = (signal.SIGINT, *_ENDINGS)


@contextlib.contextmanager
def _held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Signals wait until the end of the block; for processes started in it, as long as they live.

    A closed terminal, systemd and Slurm send them to the whole group, and the driver, who alone is
    to answer, needs its Ray to save and end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt; gives the function that sets this up again."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # One that is ignored stays so: that is how nohup works.
    before = {
        number: signal.getsignal(number)
        for number in _ENDINGS
        if signal.getsignal(number) is not signal.SIG_IGN
    }

    def set_handlers() -> None:
        for number in before:
            signal.signal(number, interrupt)

    set_handlers()
    try:
        yield set_handlers
    finally:
        _restore(before)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the processes started inside; those the user set stay."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]
