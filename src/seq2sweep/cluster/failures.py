"""What went wrong, in one line: the one place that knows how Ray reports deaths and lack of memory.

How Ray 2.60 reports what happened to a process, as tried:

killed by Ray's memory monitor   OutOfMemoryError, which is no RayActorError
killed by the system or by hand  ActorDiedError, WorkerCrashedError of a task
its node is lost                 ActorDiedError, NodeDiedError; LocalRayletDiedError on the node
memory refused to it             MemoryError, or torch's RuntimeError "can't allocate memory"
"""

from __future__ import annotations

import re
from pathlib import Path

import ray

from seq2sweep.errors import (
    NO_MEMORY,
    OperationalError,
    UserError,
    first_line,
    is_refused_memory,
    kind_and_line,
)

CHANGES_NO_RESULT = "how a failure is told"

AGAIN = "run `dvc repro` again to resume"
LOWER = (
    "lower train.tokens_per_pass, which changes no update, or run fewer processes at once (lower "
    "cluster.workers; in a sweep raise sweep.cpus_per_trial, of a GPU sweep.gpus_per_trial)"
)
LOWER_SEARCH = "lower evaluate.tokens_per_batch, or evaluate.beam where one sentence has no room"
LOW = "low on memory"
"""Words of Ray."""
VMSTAT = Path("/proc/vmstat")
_OF_DEVICE = (
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "unspecified launch failure",
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "No CUDA GPUs are available",
    "CUDA driver initialization failed",
    "GPU is lost",
    "fallen off the bus",
    "unhandled cuda error",
)
_OF_PROGRAM = ("out of memory", "device-side assert triggered", "illegal memory access")
"""Words of CUDA, its driver, torch and NCCL: what a broken GPU is told by, and what a program that
is wrong is told by as well. Torch ends each text of CUDA's with how to have device-side assertions.
"""

_DEATHS = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.OwnerDiedError,
)
_WRAPPINGS = ("_base_exc", "cause", "controller_failure", "health_check_failure")
_NEVER_BEGAN = "worker actors failed to initialize"
"""How Ray Train says that a worker died as it started."""


def describe(error: BaseException, system_killed: int = 0, lower: str = LOWER) -> str:
    """What happened, in one line, and what to do where that is known.

    system_killed: how many processes the system has killed on this machine meanwhile for lack of
    memory (`system_kills`). lower: what helps where memory is refused.
    """
    error = raised(error)
    if isinstance(error, OperationalError):
        return first_line(error)
    if is_lack_of_memory(error):
        return f"out of memory ({_memory(error)}): {lower}"
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        return f"Ray could not give its worker the code ({code_fault(error)})"
    if _is_node_lost(error):
        return "its node was lost, or Ray ended there"
    if is_death(error):
        if system_killed:
            return (
                f"out of memory (its process was killed, and the system killed {system_killed} on "
                f"this machine meanwhile for lack of memory): {lower}"
            )
        return "its process was killed, by hand or by the system (out of memory?)"
    return kind_and_line(error)


def code_fault(error: ray.exceptions.RuntimeEnvSetupError) -> str:
    """Why workers cannot have the code (`local_cluster.own_code`): the last thing that Ray says."""
    return (error.error_message or first_line(error)).strip().splitlines()[-1].strip()


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether a process was refused memory, or killed by Ray for lack of it."""
    ended = isinstance(error, ray.exceptions.OutOfMemoryError) or LOW in str(error)
    return ended or is_refused_memory(error)


def is_of_device(error: BaseException) -> bool:
    """Whether a GPU failed, or its driver, by no fault of the program as far as it says."""
    if isinstance(error, UserError) or is_lack_of_memory(error):
        return False
    text = str(error)
    return any(w in text for w in _OF_DEVICE) and not any(w in text for w in _OF_PROGRAM)


def is_death(error: BaseException) -> bool:
    """Whether a process ended without raising anything."""
    if getattr(error, "actor_init_failed", False):  # it raised something
        return False
    return isinstance(error, _DEATHS) or _NEVER_BEGAN in str(error)


def raised(failure: BaseException) -> BaseException:
    """The exception that was raised there, out of Ray's wrappings."""
    for wrapping in _WRAPPINGS:
        inner = getattr(failure, wrapping, None)
        if isinstance(inner, BaseException) and inner is not failure:
            return raised(inner)
    return failure


def as_actor_error(error: Exception) -> Exception:
    """As one of the kinds that Tune counts as a failure of a trial, which `raised` undoes."""
    counted: Exception = error
    if not isinstance(error, ray.exceptions.RayActorError | ray.exceptions.RayTaskError):
        counted = ray.exceptions.RayActorError(error_msg=str(error))
        counted.cause = error  # type: ignore[attr-defined]
    return counted


def is_echo(error: BaseException) -> bool:
    """Whether it only says that another process of the group is gone."""
    text = str(error)
    if is_refused_memory(error):
        return False
    return any(word in text for word in ("gloo", "NCCL", "Connection closed by peer"))


def system_kills() -> int:
    """Processes that the system of this machine has killed for lack of memory since it started.

    0 where it does not say (other systems than Linux).
    """
    try:
        found = re.search(r"^oom_kill (\d+)$", VMSTAT.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _memory(error: BaseException) -> str:
    """Who refused memory; of Ray's page, how much was in use."""
    used = re.search(r"was ([\d.]+[KMGT]?B) used / ([\d.]+[KMGT]?B) limit", str(error))
    if used:
        return f"Ray killed its process, as its node had {used[1]} of {used[2]} in use"
    lines = [line for line in str(error).splitlines() if any(w in line for w in (LOW, *NO_MEMORY))]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else kind_and_line(error)


def _is_node_lost(error: BaseException) -> bool:
    kinds = (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError)
    return isinstance(error, kinds) or (is_death(error) and "node has died" in str(error))


class DeviceFailures:
    """Tells a broken GPU from a trial that fails on one: it is free again at once, and takes all
    trials that are left one by one, while other GPUs still train their first.

    It is one of a host on which MOST different trials failed, each in a try that began after the
    first of them had failed, so not at once with it, and none that began since has got further.
    """

    MOST = 3

    def __init__(self) -> None:
        self.began: dict[str, float] = {}  # the newest try of each trial
        self.failed: dict[str, dict[str, float]] = {}  # by host, when each trial first failed there

    def begin(self, trial: str, at: float) -> None:
        """A try of a trial begins."""
        self.began[trial] = at

    def get_further(self, trial: str, host: str) -> None:
        """A trial shows that it has trained on a host; '': not known, as of one of several."""
        for name in (host, ""):
            if name in self.failed and self.began[trial] > max(self.failed[name].values()):
                del self.failed[name]

    def fail(self, trial: str, host: str, at: float) -> bool:
        """A try failed with an error of the device; gives whether that is broken."""
        failed = self.failed.setdefault(host, {})
        if not failed or self.began.get(trial, at) > min(failed.values()):
            failed.setdefault(trial, at)
        return len(failed) >= self.MOST


def broken_gpu(host: str) -> str:
    """What to say of it; host: '' where that is not known."""
    return (
        f"{host or 'a machine'} has a GPU on which {DeviceFailures.MOST} trials in a row failed "
        "with an error of the device: restart the machine, or take it or that GPU "
        "(CUDA_VISIBLE_DEVICES) out of the cluster"
    )
