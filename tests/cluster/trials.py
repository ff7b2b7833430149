"""Importable in Ray's processes: trials that something happens to."""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from ray.tune.trainable import function_trainable

from seq2sweep.cluster.tune_trial import run_trial
from seq2sweep.runs import pass_size
from seq2sweep.runs.layout import newest_checkpoint
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import worker_store
from seq2sweep.runs.watchdog import HANG_LOG_NAME, Watchdog

ECC = "CUDA error: uncorrectable ECC error encountered"


def after_checkpoints(wait: Callable[[], None]) -> mock._patch[Any]:
    """Training stands still after each checkpoint until `wait` returns: at the next one its process
    waits for the thread that has kept this one."""
    prune = RunStore.prune

    def waiting(store: RunStore, newest: Path) -> None:
        wait()
        prune(store, newest)

    return mock.patch.object(RunStore, "prune", waiting)


def rests(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """Training that is there to be interrupted, which it hears at each step, leaves the CPUs to
    others most of the time."""
    with after_checkpoints(lambda: time.sleep(0.2)):
        run_trial(assignment, trials)


def last_waits_for_score(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """The last one trains until the first one has been scored."""
    scored = Path(trials[0]["location"]) / "scored.txt"
    give_up = time.monotonic() + 300

    def wait() -> None:
        while not scored.exists():
            assert time.monotonic() < give_up, "the first one was not scored meanwhile"
            time.sleep(0.05)

    if assignment["index"] == len(trials) - 1:
        with after_checkpoints(wait):
            run_trial(assignment, trials)
    else:
        run_trial(assignment, trials)


def of_torch(error: str) -> RuntimeError:
    """An error of CUDA as torch raises it."""
    return RuntimeError(
        f"{error}\nCUDA kernel errors might be asynchronously reported at some other API call, so "
        "the stacktrace below might be incorrect.\nFor debugging consider passing "
        "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side "
        "assertions.\n"
    )


def fails_at_8(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """As where a node is lost, but that the checkpoint of this step is whole."""

    def prune(store: RunStore, newest: Path) -> None:
        if newest.name == "step-00000008":
            raise RuntimeError("lost")

    with mock.patch.object(RunStore, "prune", prune):
        run_trial(assignment, trials)


def dies_when_reset(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """The process of the first is killed when Tune has it take the second."""
    if assignment["index"] == 0:
        kill = functools.partial(os.kill, os.getpid(), signal.SIGKILL)
        function_trainable.get_session().finish = lambda timeout: kill()
    run_trial(assignment, trials)


def one_is_lost(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """The second fails when the first has got a checkpoint.

    A trial that returns leaves `returned-<index>` in the sweep's folder.
    """
    if assignment["index"] == 1:
        while newest_checkpoint(Path(trials[0]["location"])) is None:
            time.sleep(0.05)
        raise RuntimeError("lost")
    rests(assignment, trials)
    (Path(trials[0]["sweep"]) / f"returned-{assignment['index']}").touch()


def full_disk(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """The second finds no room for its checkpoint, when the first has got one.

    A trial that returns leaves `returned-<index>` in the sweep's folder.
    """

    def keep(store: RunStore, checkpoint: Path) -> None:
        while newest_checkpoint(Path(trials[0]["location"])) is None:
            time.sleep(0.05)
        raise OSError(errno.ENOSPC, "No space left on device", str(checkpoint))

    if assignment["index"] == 1:
        with mock.patch.object(RunStore, "keep", keep):
            run_trial(assignment, trials)
    else:
        rests(assignment, trials)
        (Path(trials[0]["sweep"]) / f"returned-{assignment['index']}").touch()


def broken_gpu(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """All but the first are on the one that is broken.

    A trial that returns leaves `returned-<index>` in the sweep's folder.
    """
    if assignment["index"]:
        with mock.patch.object(pass_size, "decide", side_effect=of_torch(ECC)):
            run_trial(assignment, trials)
    rests(assignment, trials)
    (Path(trials[0]["sweep"]) / f"returned-{assignment['index']}").touch()


def hangs(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """The next one dies before it has a log of its own."""
    settings = trials[assignment["index"]]
    log = worker_store(settings["location"], settings["attempt"]).logs / HANG_LOG_NAME.format(
        rank=0
    )
    if not log.exists():
        with Watchdog(0.2, log):
            time.sleep(600)
    dies(assignment, trials)


def dies(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
