"""One Ray for one command: started on this machine or joined, and left without a trace."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import ray
from ray._private.authentication import authentication_token_setup as authentication
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import canonicalize_bootstrap_address

from seq2sweep import console
from seq2sweep.cluster import failures
from seq2sweep.cluster.local_cluster import NAMESPACE, WORKER_ENVIRONMENT, local_ray
from seq2sweep.cluster.private import check_version, wants_token
from seq2sweep.cluster.signals import interrupts, signals_as_interrupts, undisturbed
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import OperationalError, UserError

CHANGES_NO_RESULT = "how Ray is started"

T = TypeVar("T")

CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster offers in all, whether busy or free."""

    cpus: float
    gpus: float


@contextlib.contextmanager
def ray_session(config: ClusterConfig) -> Iterator[None]:
    """Ray, up for the time of a `with` block.

    `cluster.address` null starts one on this machine that nobody else sees, and ends all its
    processes however the block is left, by SIGKILL as well (local.py); SIGTERM and a closed
    terminal become KeyboardInterrupt.
    An address, or RAY_ADDRESS (set in every job that `ray job submit` starts), joins a running
    cluster. A Ray that this process is connected to already is used as it is.

    Raises UserError when the cluster cannot be reached, OperationalError when none can be started
    here, or when Ray reports something that nobody in the block expected.
    """
    try:
        with _session(config):
            yield
    except ray.exceptions.RayError as error:
        raise OperationalError(
            f"{failures.describe(error)}; run `dvc repro` again to resume"
        ) from error


@contextlib.contextmanager
def _session(config: ClusterConfig) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    check_version(ray.__version__)
    address = address_of(config)
    with _quiet(), signals_as_interrupts() as set_handlers, contextlib.ExitStack() as stack:
        try:
            if address is None:
                stack.enter_context(local_ray())
            else:
                _join(address, stack)
        except SystemExit:
            # Ray's own answer to a SIGTERM while it starts.
            raise KeyboardInterrupt from None
        # Ray has put a handler of its own for SIGTERM, which ends the process with a stack dump.
        set_handlers()
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the pages that Ray prints here of each node and process that it has lost.

    `log_to_driver=False` leaves them. What was lost is said in a line by whoever needed it.
    """
    before = ray._private.worker.print_to_stdstream
    ray._private.worker.print_to_stdstream = lambda *data, **how: None
    try:
        yield
    finally:
        ray._private.worker.print_to_stdstream = before


def nodes() -> list[Node]:
    """The live machines of the cluster."""
    return [
        Node(float(node["Resources"].get("CPU", 0)), float(node["Resources"].get("GPU", 0)))
        for node in ray.nodes()
        if node["Alive"]
    ]


def free_nodes() -> list[Node]:
    """What the live machines of the cluster have left at the moment."""
    free = ray._private.state.available_resources_per_node().values()
    return [Node(float(node.get("CPU", 0)), float(node.get("GPU", 0))) for node in free]


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


ALIVE_SECONDS = 1.0
"""How often it is looked whether Ray lives."""
HEAD_SECONDS = 20.0
"""How long the head of a cluster may be away. Ray would end this process, without a word that a
reader understands, when it has been away for a minute."""


class _Alive:
    def __init__(self) -> None:
        self.looked = self.answered = -math.inf

    def __call__(self) -> None:
        if time.monotonic() - self.looked >= ALIVE_SECONDS and ray.is_initialized():
            self.answers()

    def answers(self) -> bool:
        """Whether Ray's head does, now. To be asked before anything is asked of Ray itself, which
        would wait for a minute, and then end this process."""
        now = time.monotonic()
        if now - self.looked > HEAD_SECONDS:  # nobody has asked for long: begin anew
            self.answered = now
        self.looked = now
        node = ray._private.worker._global_node
        for name, process in node.dead_processes() if node is not None else ():
            if name in ("gcs_server", "raylet"):
                raise RayDiedError(
                    f"Ray's {name} on this machine ended ({_ended(process.returncode)})"
                )
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
                self.answered = now
                return True
        except OSError as error:
            if now - self.answered > HEAD_SECONDS:
                raise RayDiedError(
                    f"Ray's head at {host}:{port} has not answered for "
                    f"{console.duration(now - self.answered)} ({error})"
                ) from None
        return False


class RayDiedError(OperationalError):
    """Ray itself, without which nothing goes on, has ended."""

    # Ray's threads in this process crash it (SIGSEGV) when they end after what they talked to.
    unclean = True

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; run `dvc repro` again to resume")


def _ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return "killed, by hand or by the system for lack of memory"
    return f"status {status}"


require_alive = _Alive()
"""Raises RayDiedError when the Ray of this process has ended; looks once in ALIVE_SECONDS."""


LAST_WORDS_SECONDS = 90.0
"""How long work may take to end by itself when it was asked to: a node may learn late of a new file
on a network file system."""


def while_waiting(
    work: Callable[[], T],
    tick: Callable[[], None],
    on_interrupt: Callable[[], bool] | None = None,
    every: float = 0.2,
    last_words: float = LAST_WORDS_SECONDS,
) -> T:
    """Run `work` in a thread; call `tick` here every so many seconds and once after the end.

    Ray's blocking calls take over Ctrl-C when they run in the main thread, so they do not.

    on_interrupt: asks the work to end by itself, and says whether it can have heard; then a
    KeyboardInterrupt goes on its way when it has ended, after `last_words` seconds, or with the
    next KeyboardInterrupt.
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
            require_alive()
            tick()

    try:
        wait_until(math.inf)
    except KeyboardInterrupt:
        if on_interrupt is not None and on_interrupt():
            interrupts.listen()
            wait_until(time.monotonic() + last_words)
            interrupts.ignore()
        raise
    tick()
    return outcome.result()


# --- joining ------------------------------------------------------------------------------------


def address_of(config: ClusterConfig) -> str | None:
    """Of the running cluster that is meant; None: a Ray of this process's own."""
    return config.address or os.environ.get("RAY_ADDRESS")


def _join(address: str, stack: contextlib.ExitStack) -> None:
    _check_reachable(address)
    stack.callback(undisturbed, ray.shutdown)
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
            interrupts.listen()
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Whoever shows one asks for it as well: a cluster without could not call back, and every
        # actor that this process makes would be gone before it began.
        if wants_token(init_grpc_channel(str(resolved)), CONNECT_SECONDS):
            # The one that lies in the user's folder, if any, as ray.init finds it.
            authentication.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
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
        f"cluster.address: no Ray cluster can be reached at {address} ({reason}); start it, fix "
        "the address (host:6379), or set null to use this machine"
    ) from None
