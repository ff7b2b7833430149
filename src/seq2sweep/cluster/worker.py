"""What each training worker runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray.train
import ray.train.collective
import ray.train.torch
import torch
from ray.train.v2._internal.execution.context import get_train_context

from seq2sweep import config as configuration
from seq2sweep.cluster.retention import prune
from seq2sweep.cluster.storage import (
    JOURNAL_NAME,
    OLD_WRITER_SECONDS,
    Recorder,
    checkpoint_name,
    interrupted_name,
    only_writer,
    resume_point,
    write_json,
)
from seq2sweep.cluster.watchdog import Watchdog
from seq2sweep.cluster.writer import PAUSES, CheckpointWriter, patiently
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted
from seq2sweep.train.loop import train

USER_ERROR_NAME = "user-error.json"
HANG_LOG_NAME = "hang-{rank}.log"
STOP_SECONDS = 0.5
"""How often the first worker looks whether it is to stop: storage may be far away."""
START_SECONDS = OLD_WRITER_SECONDS + 3 * sum(PAUSES)
"""How long the first worker may take until it knows where to begin: then none is waited for."""


def train_worker(settings: dict[str, Any]) -> None:
    """Train as one of several workers, from the newest checkpoint if there is one.

    settings: `config` (nested dictionaries), `encoded` and `folder` (absolute paths), `cpus`
    (of this worker), `attempt` (differs for every call of `run_training`), `lost` (a step to go on
    from below, or None), `until` (as of `seq2sweep.train.loop.train`).
    """
    folder = Path(settings["folder"])
    try:
        _train(settings, folder)
    except UserError as error:
        content = {"attempt": settings["attempt"], "message": str(error)}
        patiently(lambda: write_json(folder / USER_ERROR_NAME, content))
        raise


def read_user_error(folder: Path, attempt: str) -> str | None:
    """The message of a UserError that a worker of this attempt raised."""
    try:
        content = json.loads((folder / USER_ERROR_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return str(content["message"]) if content["attempt"] == attempt else None


def stop_file(folder: Path, attempt: str) -> Path:
    """Appears when the workers of an attempt are to save and end."""
    return folder / f"stop-{attempt}"


def use_threads(cpus: float) -> None:
    """Compute with as many threads as CPUs were assigned; Ray leaves torch with one."""
    torch.set_num_threads(max(1, int(cpus)))


def one_line(error: BaseException) -> str:
    """`ValueError: what it says`, without further lines."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _train(settings: dict[str, Any], folder: Path) -> None:
    use_threads(settings["cpus"])
    config = configuration.from_dict(settings["config"])
    context = ray.train.get_context()
    rank = context.get_world_rank()
    stop = stop_file(folder, settings["attempt"])
    hang_log = folder / HANG_LOG_NAME.format(rank=rank)
    with contextlib.ExitStack() as stack:
        with patiently(lambda: Watchdog(START_SECONDS, hang_log)):
            start = _first(settings, folder, stack) if rank == 0 else None
            # All do what the first one says: on a network file system they may see different files.
            start = ray.train.collective.broadcast_from_rank_zero(start)
        if start is None:
            return
        watchdog = stack.enter_context(
            patiently(lambda: Watchdog(config.cluster.hang_seconds, hang_log))
        )
        keeper = stack.enter_context(Keeper(folder, config)) if rank == 0 else None

        looked = 0.0

        def should_stop() -> bool:
            nonlocal looked
            watchdog.feed()
            if _node_goes_away():
                return True
            if keeper is None:
                return False
            keeper.writer.check()
            if time.monotonic() - looked < STOP_SECONDS:
                return False
            looked = time.monotonic()
            # Not Path.exists(), which raises when the storage fails.
            return os.path.exists(stop)

        for event in train(
            config,
            Path(settings["encoded"]),
            rank=rank,
            world_size=context.get_world_size(),
            device=ray.train.torch.get_device(),
            resume=folder / start["resume"] if start["resume"] else None,
            stop=should_stop,
            until=settings["until"],
        ):
            if keeper:
                keeper.keep(event)
            watchdog.feed()


def _first(
    settings: dict[str, Any], folder: Path, stack: contextlib.ExitStack
) -> dict[str, str | None] | None:
    """What the first worker decides for all: the name of the checkpoint to `resume` from.

    None: they are to end, since what the user must mend fails again, however often Ray starts them.
    The folder is its own until the stack is closed.
    """
    if patiently(lambda: read_user_error(folder, settings["attempt"])) is not None:
        return None
    patiently(lambda: stack.enter_context(only_writer(folder)))
    # Not ray.train.get_checkpoint(): that one may be damaged, and then the one before will do.
    resume = patiently(lambda: resume_point(folder, settings["lost"]))
    return {"resume": resume.name if resume else None}


class Keeper:
    """What one worker of all does with the events: journal and checkpoints."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        for torn in folder.glob(".*.partial"):  # of a process that was killed as it wrote
            if torn.is_dir():
                shutil.rmtree(torn)
            else:
                torn.unlink()
        self.recorder = Recorder(folder / JOURNAL_NAME)
        self.writer = CheckpointWriter()
        self.submitted = -1

    def keep(self, event: Event) -> None:
        if isinstance(event, Interrupted):
            if event.step == self.submitted:
                return  # this very state is being written, and waited for at the end
            self.recorder.journal.sync()
            self.writer.submit(event.capture, self.folder / interrupted_name(event.step))
            return
        if isinstance(event, Finished):
            self.writer.wait()  # a run that says so has its last checkpoint
        self.recorder.append(event)
        if isinstance(event, CheckpointDue):
            place, self.submitted = self.folder / checkpoint_name(event.step), event.step
            self.writer.submit(event.capture, place, functools.partial(self._prune, place))

    def _prune(self, newest: Path) -> None:
        prune(self.folder, self.config.train, self.config.evaluate.checkpoint_steps, newest)

    def __enter__(self) -> Self:
        self.writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.recorder.close()
        self.writer.__exit__(kind, error, traceback)


def _node_goes_away() -> bool:
    """Whether Ray was told that a node of this group is about to be taken away.

    Not ray.train.get_preemption_info(): there all workers would wait for each other, at every
    update. The training loop tells the others.
    """
    return get_train_context().preemption_context.preemption_info is not None
