"""One Ray for one command: started on this machine or joined, and left without a trace."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import ray

from seq2sweep import console
from seq2sweep.cluster import failures, ray_internals
from seq2sweep.cluster.local_cluster import (
    NAMESPACE,
    REPLY_SECONDS,
    WHOLE_CODE,
    WORKER_ENVIRONMENT,
    check_own_code,
    check_version,
    environment,
    local_ray,
    own_code,
)
from seq2sweep.cluster.ray_internals import CONNECT_SECONDS
from seq2sweep.cluster.signals import interrupts, signals_as_interrupts, undisturbed
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import OperationalError, UserError, first_line
from seq2sweep.parallel import processes_on_gpus
from seq2sweep.storage.retry import in_thread

CHANGES_NO_RESULT = "how Ray is started"

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster offers in all, whether busy or free."""

    cpus: float
    gpus: float


@contextlib.contextmanager
def ray_session(config: ClusterConfig) -> Iterator[None]:
    """Ray, up for the time of a `with` block.

    `cluster.address` null starts one on this machine that nobody else sees, and ends all its
    processes however the block is left, by SIGKILL as well (reaper.py); SIGTERM and a closed
    terminal become KeyboardInterrupt.
    An address, or RAY_ADDRESS (set in every job that `ray job submit` starts), joins a running
    cluster. A Ray that this process is connected to already is used as it is.
    Workers run the code of seq2sweep as it is when the session begins, whatever their nodes have.

    Raises UserError when the cluster cannot be reached, OperationalError when none can be started
    here, or when Ray reports something that nobody in the block expected.
    """
    try:
        with _session(config):
            yield
    except ray.exceptions.RayError as error:
        raise OperationalError(f"{failures.describe(error)}; {failures.AGAIN}") from error


@contextlib.contextmanager
def _session(config: ClusterConfig) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    check_version(ray.__version__)
    address = config.running_address
    named_by = "cluster.address" if config.address else "RAY_ADDRESS"
    with (
        ray_internals.losses_not_printed(),
        signals_as_interrupts() as set_handlers,
        contextlib.ExitStack() as stack,
    ):
        try:
            if address is None:
                stack.enter_context(local_ray())
            else:
                _join(address, named_by, stack)
        except SystemExit:
            # Ray's own answer to a SIGTERM while it starts.
            raise KeyboardInterrupt from None
        # Ray has put a handler of its own for SIGTERM, which ends the process with a stack dump.
        set_handlers()
        yield


# --- what fits -----------------------------------------------------------------------------------


def nodes() -> list[Node]:
    """The live machines of the cluster."""
    return [_node(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def free_nodes() -> list[Node]:
    """What the live machines of the cluster that stay have left at the moment."""
    return [_node(resources) for resources in ray_internals.free_resources()]


def _node(resources: Mapping[str, float]) -> Node:
    return Node(float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))


def places(machines: list[Node], cpus: float, gpus: float) -> int:
    """How many processes of so many CPUs and GPUs the machines hold at once."""

    def fit(machine: Node) -> int:
        rooms = []
        if cpus > 0:  # the tiny number mends 0.3 / 0.1 = 2.9999...
            rooms.append(int(machine.cpus / cpus + 1e-9))
        if gpus > 0:
            rooms.append(processes_on_gpus(machine.gpus, gpus))
        return min(rooms)

    return sum(fit(machine) for machine in machines)


class NoPlaceError(UserError):
    """The workers of a training do not fit the cluster."""


def cpus_per_worker(config: ClusterConfig, machines: list[Node]) -> int:
    """CPUs for each training worker: as configured, or the most with which all of them fit.

    With GPUs no more than a machine has for each of them, or they would be spread over machines.
    With cluster.min_workers so many workers are enough, on GPUs as many as fit. Raises NoPlaceError
    when they do not fit, because Ray would wait for ever.
    """
    gpus = config.gpus_per_worker
    shares = (node.cpus / node.gpus if gpus and node.gpus else node.cpus for node in machines)
    of_use = [s for s, node in zip(shares, machines, strict=True) if places([node], 1, gpus)]
    choices = list(range(int(max(of_use, default=1)) or 1, 0, -1))
    if config.cpus_per_worker is not None:
        choices = [config.cpus_per_worker]
    room = {cpus: places(machines, cpus, gpus) for cpus in choices}
    as_fit = max(room.values()) if gpus else 1
    for enough in (config.workers, max(as_fit, config.min_workers or config.workers)):
        for cpus in choices:
            if room[cpus] >= enough:
                return cpus
    least = choices[-1]
    raise NoPlaceError(
        f"cluster.workers is {config.workers}, each with {least} CPU (cluster.cpus_per_worker) "
        f"and {gpus} GPU (cluster.gpus_per_worker), but the cluster, {describe(machines)}, has "
        f"room for {room[least]} of them: lower one of the three"
    )


def describe(machines: list[Node]) -> str:
    """`1 node of 8 CPUs, 0 GPUs`."""
    kinds = Counter(f"{node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in machines)
    return " and ".join(f"{n} node{'s' * (n > 1)} of {kind}" for kind, n in kinds.items())


def idle_gpus(used: float, keys: str) -> str | None:
    """A line where the cluster has more GPUs than are used, as these keys say."""
    there = sum(node.gpus for node in nodes())
    idle = int(there - used)
    return f"{idle} of the cluster's {there:g} GPUs will be idle: see {keys}" if idle > 0 else None


def idle_in_training(config: ClusterConfig) -> str | None:
    """`idle_gpus` beside the workers of a training."""
    used = config.workers * config.gpus_per_worker
    return idle_gpus(used, "cluster.workers and cluster.gpus_per_worker")


def lack_of_room(
    what: str, count: int, cpus: float, gpus: float, config: ClusterConfig | None
) -> str | None:
    """A line where the cluster has no room for so many processes; None where it has, or where it
    is full of this command's own.

    what: the processes, such as `2 workers of 1 CPUs and 0 GPUs`. config: None where others may
    have taken room there, whatever cluster it is.
    """
    found = lack_in_all(what, count, cpus, gpus)
    if found is None and (config is None or config.running_address is not None):
        # Others may work there as well.
        found = _lack(what, count, cpus, gpus, "free", free_nodes())
    return found


def lack_in_all(what: str, count: int, cpus: float, gpus: float) -> str | None:
    """As `lack_of_room`, of a cluster in which nothing runs."""
    return _lack(what, count, cpus, gpus, "the cluster", nodes())


def _lack(
    what: str, count: int, cpus: float, gpus: float, kind: str, machines: list[Node]
) -> str | None:
    if places(machines, cpus, gpus) >= count:
        return None
    return f"waiting for resources for {what}; {kind} is {describe(machines)}"


# --- whether Ray lives ---------------------------------------------------------------------------

ALIVE_SECONDS = 1.0
"""How often it is looked whether Ray lives."""
HEAD_SECONDS = 20.0
"""How long a head may be away. After a minute Ray would end this process without a clear word."""


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
        for name, status in ray_internals.dead_servers():
            if name in ("gcs_server", "raylet"):
                how = f"status {status}"
                if status == -signal.SIGKILL:
                    how = "killed, by hand or by the system for lack of memory"
                raise RayDiedError(f"Ray's {name} on this machine ended ({how})")
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
        super().__init__(f"{what}; {failures.AGAIN}")


require_alive = _Alive()
"""Raises RayDiedError when the Ray of this process has ended; looks once in ALIVE_SECONDS."""


LAST_WORDS_SECONDS = 90.0
"""How long work may take to end when it was asked to: a node may learn late of a file on NFS."""

UNHEARD = (
    "the workers could not be asked to save, as the storage failed: fix it; steps since their last "
    "checkpoint are trained again"
)
UNSAVED = "the workers may not have saved in time: what no checkpoint has is trained again"


def while_waiting(
    work: Callable[[], T],
    tick: Callable[[], None],
    ask: Callable[[], bool] = lambda: True,
    can_hear: Callable[[], bool] = lambda: False,
    every: float = 0.2,
    last_words: float = LAST_WORDS_SECONDS,
) -> T:
    """Run `work` in a thread; call `tick` here every so many seconds and once after the end.

    Ray's blocking calls take over Ctrl-C when they run in the main thread, so they do not.

    ask: asks the work to end by itself, in a thread as well; False when the storage fails, and then
    it is called again and again. can_hear: whether there is somebody to ask. Then what ends this, a
    KeyboardInterrupt or an error of `tick` that is foreseen, goes on its way when the work has
    ended, `last_words` seconds after it was asked or could not be, or with the next one.
    """
    outcome = in_thread(work, "ray-call")

    def wait_until(
        done: Callable[[], bool], seconds: float = math.inf, tick: Callable[[], None] = tick
    ) -> None:
        give_up = time.monotonic() + seconds
        while not outcome.done() and not done() and time.monotonic() < give_up:
            wait([outcome], timeout=every)
            require_alive()
            tick()

    def try_tick() -> None:
        # What ends the work is known: another error would only cut its last words.
        with contextlib.suppress(OSError, OperationalError, UserError):
            tick()

    asking: Future[bool] | None = None
    asked = False

    def is_asked() -> bool:
        nonlocal asking, asked
        asking = asking or in_thread(ask, "ask")
        wait([asking], timeout=every)
        if asking.done():
            asked = asking.result()
            asking = asking if asked else None
        return asked

    try:
        wait_until(lambda: False)
    except RayDiedError:  # nobody hears any more
        raise
    except (KeyboardInterrupt, OSError, OperationalError, UserError):
        is_asked()
        if can_hear():
            interrupts.listen()
            try:
                wait_until(is_asked, last_words, try_tick)
                if asked:
                    wait_until(lambda: False, last_words, try_tick)
            finally:
                interrupts.ignore()
                if not outcome.done():
                    console.say(UNSAVED if asked else UNHEARD)
        raise
    tick()
    return outcome.result()


# --- joining ------------------------------------------------------------------------------------


WITHOUT = {
    "cluster.address": "set null to use this machine or, in a submitted job, its cluster",
    "RAY_ADDRESS": "unset it to use this machine",
}
"""What to do where no cluster is to be joined, by what names one."""
ONE_VERSION = "have the same Python, and the packages of constraints.txt, here and on all nodes"


def _join(address: str, named_by: str, stack: contextlib.ExitStack) -> None:
    _check_reachable(address, named_by)
    check_own_code()
    stack.callback(undisturbed, ray.shutdown)
    # Those that the user set stay, also for a job.
    variables = {name: os.environ.get(name, value) for name, value in WORKER_ENVIRONMENT.items()}
    try:
        # A job that was submitted with `excludes` is no conflict: its files are uploaded already.
        with environment(WHOLE_CODE | {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}):
            ray_internals.init(
                address=address,
                namespace=NAMESPACE,
                logging_level="ERROR",
                log_to_driver=False,
                runtime_env={"env_vars": variables} | own_code(),
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        _unreachable(address, named_by, error)


def _check_reachable(address: str, named_by: str) -> None:
    """Fail at once where `ray.init` would try for minutes."""
    if "://" in address:
        raise UserError(
            f"{named_by} {address} is not of the form host:6379: give the head's address, or "
            f"{WITHOUT[named_by]}"
        )
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray_internals.check_head(address, CONNECT_SECONDS, REPLY_SECONDS)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"{named_by}: the Ray cluster at {address} does not take this user's token: put "
            "the cluster's into ~/.ray/auth_token or $RAY_AUTH_TOKEN, and set RAY_AUTH_MODE=token"
        ) from None
    except (OSError, ValueError, OverflowError, ray.exceptions.RpcError) as error:
        _unreachable(address, named_by, error)


def _unreachable(address: str, named_by: str, error: Exception) -> NoReturn:
    said = " ".join(str(error).split())
    if said.startswith("Version mismatch"):
        raise UserError(f"{named_by}: {said}: {ONE_VERSION}") from None
    raise UserError(
        f"{named_by}: no Ray cluster can be reached at {address} ({first_line(error)}); start it, "
        f"fix the address (host:6379), or {WITHOUT[named_by]}"
    ) from None
