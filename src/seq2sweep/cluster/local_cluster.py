"""A Ray of our own on this machine: its user's alone, and it ends with its driver (reaper.py).

It takes a token of its own, listens on the loopback interface and has no exporters. A busy machine
may take long to start it: it is waited for, and what it writes to the terminal goes to a log.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import ray

import seq2sweep
from seq2sweep import console
from seq2sweep.cluster import failures, ray_internals, reaper
from seq2sweep.cluster.signals import ENDINGS, held_back, undisturbed
from seq2sweep.errors import OperationalError, UserError, first_line
from seq2sweep.parallel import available_cpus
from seq2sweep.redaction import is_secret_by_name, secret_in
from seq2sweep.storage.object_store import user_folder
from seq2sweep.storage.retry import repeating
from seq2sweep.train.allocator import PROCESS_ENVIRONMENT

NAMESPACE = "seq2sweep"
LEAST_RAY = (2, 60)
"""Token authentication and the servers' addresses are known of this version and later ones."""
# Nothing large goes through Ray's object store: data and checkpoints are files.
OBJECT_STORE_BYTES = 200 * 2**20
# Ray opens its folder to everybody: it lies in one that only this user enters.
INNER = "r"
# Bytes: Ray's sockets lie 79 deeper, and a socket's path has 107 at most.
LONGEST_TEMPORARY_FOLDER = 28
MORE_ROOM = (
    "free some, or move to another disk: set TMPDIR before Ray starts here to a path of at most "
    f"{LONGEST_TEMPORARY_FOLDER} bytes, or start a cluster's head with --temp-dir (in a Slurm job: "
    "NODE_FOLDER)"
)
"""What to do where Ray's folder is full; that of a running cluster is as its head has it."""
_COMPILED = "__pycache__"
TOKEN = "token"
"""File in a session's folder."""
REPLY_SECONDS = 30.0
PATIENCE_SECONDS = 900.0
RETRIES = 3
"""Of a start: whatever its patience, Ray's raylet gives up on its agents after some 20 seconds."""
SAY_SECONDS = 30.0
LOOK_SECONDS = 0.2

# Compute threads that wait by spinning starve any other process of the machine.
WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"} | PROCESS_ENVIRONMENT
# By themselves Ray's processes wait for one another for half a minute or less.
PATIENT = {
    "RAY_agent_register_timeout_ms": f"{PATIENCE_SECONDS * 1000:.0f}",
    "RAY_gcs_server_port_wait_time_s": f"{PATIENCE_SECONDS:.0f}",
    "RAY_raylet_client_num_connect_attempts": f"{PATIENCE_SECONDS:.0f}",
    # One look for the raylet, which `_until` repeats: not all patience for one that is gone.
    "RAY_raylet_start_wait_time_s": "1",
    "RAY_worker_register_timeout_seconds": f"{PATIENCE_SECONDS:.0f}",
}
# A .gitignore among the code is none of Ray's business.
WHOLE_CODE = {"RAY_RUNTIME_ENV_IGNORE_GITIGNORE": "1"}
LOCAL_ENVIRONMENT = (
    PATIENT
    | WHOLE_CODE
    | {
        # No machine is taken away from a Ray that has only this one: a process less to start.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        # Ray would start a worker for each CPU at once, without `own_code`: none could be used.
        "RAY_prestart_worker_first_driver": "0",
    }
)
# Ray's exporters for Prometheus ask for no token. The agent's is switched off; the other two have
# no switch, but do not start on a port that there cannot be.
WITHOUT_EXPORTERS = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}

KEPT_STARTS = 3
KEPT_FILES = 30
KEPT_BYTES = 1 << 20
"""Of the end of each log of a start that failed."""
NOISE = "terminal.log"


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray that nobody else sees, connected to, for the time of a `with` block.

    A busy machine has PATIENCE_SECONDS to start it; a start that fails before is tried again, up to
    RETRIES times. Raises OperationalError, with the folder of Ray's logs, when the last fails too.
    """
    since = time.monotonic()
    with environment(LOCAL_ENVIRONMENT), contextlib.ExitStack() as stack:
        for retry in range(1, RETRIES + 2):
            try:
                stack.enter_context(_session(since))
                break
            except _NotStartedError as error:
                if retry > RETRIES or time.monotonic() - since > PATIENCE_SECONDS:
                    raise OperationalError(
                        f"{error}; its logs are in {error.logs}; free the machine and run again"
                    ) from None
                console.say(f"{error}; retry {retry} of {RETRIES}")
                shutil.rmtree(error.logs, ignore_errors=True)
        yield


class _NotStartedError(Exception):
    """Ray did not start; logs: a folder with what its processes wrote."""

    def __init__(self, error: Exception, since: float, logs: Path) -> None:
        super().__init__(f"Ray did not start in {_so_far(since)}: {first_line(error)}")
        self.logs = logs


@contextlib.contextmanager
def _session(since: float) -> Iterator[None]:
    """Ray in a new folder; none of its processes outlives the block."""
    folder = tempfile.mkdtemp(prefix="s2s-", dir=_temporary_folder())
    with contextlib.ExitStack() as stack:
        # systemd and Slurm may end each process of a job, whatever its group: not the reaper.
        with held_back(signal.SIGINT, *ENDINGS):
            watching = reaper.start(folder)
            stack.callback(undisturbed, lambda: reaper.finish(watching, folder))
        stack.enter_context(own_token(folder))
        stack.callback(undisturbed, _shut_down)
        try:
            with (
                environment(WORKER_ENVIRONMENT),
                # What is in a job's own upload the Ray here does not have.
                forced({reaper.MARK: folder, "RAY_JOB_CONFIG_JSON_ENV_VAR": None}),
                held_back(*ENDINGS),
                noise_to(folder),
                waiting(since),
            ):
                _init(folder)
        except OperationalError:
            raise
        except ray.exceptions.RuntimeEnvSetupError as error:
            raise OperationalError(
                f"the code cannot be given to Ray's workers: {failures.code_fault(error)}"
            ) from None
        # Ray raises a plain Exception for a node that is not up in time.
        except Exception as error:
            raise _NotStartedError(error, since, keep_logs(Path(folder))) from error
        yield


def _temporary_folder() -> str:
    """The one that the user has set if Ray can use it, else /tmp, which is said."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_TEMPORARY_FOLDER:
        return folder
    if sys.platform != "darwin":  # where everybody's is as long
        console.say(
            f"Ray's files are in /tmp: TMPDIR {folder} has more than "
            f"{LONGEST_TEMPORARY_FOLDER} bytes"
        )
    return "/tmp"


def _init(folder: str) -> None:
    ray_internals.start_on_loopback(
        str(Path(folder) / INNER),
        namespace=NAMESPACE,
        include_dashboard=False,
        # By itself Ray counts the machine's, also those outside of a Slurm job or a cpuset.
        num_cpus=available_cpus(),
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env=own_code(),
    )
    check_private(ray.get_runtime_context().gcs_address)


def own_code() -> dict[str, Any]:
    """For a `runtime_env`: this code, as it is now, for all workers of a session.

    A node may have another commit installed, and files may be edited while a stage runs: numbers of
    other code would pass for those of this one.
    """
    return {"py_modules": list(seq2sweep.__path__), "excludes": [_COMPILED]}


def check_version(version: str) -> None:
    """Raises UserError where Ray may know no tokens."""
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_RAY:
        raise UserError(
            f"Ray {version} may let other users in: install Ray "
            f"{'.'.join(map(str, LEAST_RAY))} or newer (pip install -c constraints.txt -e .)"
        )


def check_own_code() -> None:
    """Raises UserError where a file of `own_code` looks like a secret: Ray takes all that lies in
    the folder, whether git knows it or not."""
    # As Ray does, which follows links.
    walks = [os.walk(folder, followlinks=True) for folder in seq2sweep.__path__]
    for folder, inner, names in itertools.chain(*walks):
        inner[:] = [name for name in inner if name != _COMPILED]
        for path in (Path(folder, name) for name in names):
            if not path.is_file():
                continue
            what = "by its name" if is_secret_by_name(path.name) else secret_in(path.read_bytes())
            if what:
                raise UserError(
                    f"what looks like a secret would be uploaded to the cluster: {path} ({what}): "
                    "move it out of this folder"
                )


def _shut_down() -> None:
    """Shut Ray down; the reaper sees to it that none of its processes outlives us."""
    ray_internals.kill_servers_at_shutdown()
    ray.shutdown()


# --- whose it is ---------------------------------------------------------------------------------


@contextlib.contextmanager
def own_token(folder: str) -> Iterator[None]:
    """Ray in this process and its children takes and shows a new token, whatever the user's is.

    256 random bits, in a file of `folder` that only this user reads: a command line could be read
    by all users.
    """
    path = Path(folder) / TOKEN
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None}
    with forced({**settings, **WITHOUT_EXPORTERS}):
        try:
            ray_internals.read_token_again()
            yield
        finally:
            path.unlink(missing_ok=True)
    # Not while it is set: a cluster that is joined next wants the user's token.
    ray_internals.read_token_again()


def check_private(address: str) -> None:
    """Raises OperationalError where the Ray that we started lets anybody in, ConnectionError where
    it cannot be asked."""
    # Not a channel of Ray's, which would show the token; but past a proxy, as those are.
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            asks = ray_internals.wants_token(channel, REPLY_SECONDS)
        except ConnectionError as error:
            raise ConnectionError(
                f"it cannot be asked whether it wants a token ({error})"
            ) from None
    if not asks:
        raise OperationalError(
            f"the Ray that was started at {address} asks for no token, so it was stopped: any user "
            f"of this machine could run programs as you (Ray {ray.__version__})"
        )


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the processes started inside; those the user set stay."""
    with forced({name: value for name, value in values.items() if name not in os.environ}):
        yield


@contextlib.contextmanager
def forced(values: dict[str, Any]) -> Iterator[None]:
    """Variables as given, None for unset, whatever the user has set; and as they were after."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# --- a start that takes long ---------------------------------------------------------------------


class ProcessEndedError(Exception):
    """A process of Ray ended while the others waited for it."""


@contextlib.contextmanager
def waiting(since: float) -> Iterator[None]:
    """Ray starts inside: lines say that it still does, and it has until all patience ends.

    since: when its start began, in time.monotonic().
    """

    def say() -> None:
        console.say(f"Ray is still starting after {_so_far(since)}")

    def wait(server: str, look: Callable[[], Any]) -> Any:
        return _until(since + PATIENCE_SECONDS, server, look)

    with ray_internals.waits_of_start(wait), repeating(SAY_SECONDS, say, "ray-start"):
        yield


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


@contextlib.contextmanager
def noise_to(folder: str) -> Iterator[None]:
    """What this process and its new children write to the terminal as errors goes to a file, but
    for what `console.say` says."""
    try:
        before = os.dup(2)
    except OSError:  # whoever started us closed it
        yield
        return
    log = os.open(Path(folder) / NOISE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    try:
        with console.errors_said_on(before):
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
