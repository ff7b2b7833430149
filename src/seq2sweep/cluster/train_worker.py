"""What each training worker runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import contextlib
import functools
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
from seq2sweep.cluster.watchdog import Watchdog
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import mirror
from seq2sweep.runs.async_writer import CheckpointWriter
from seq2sweep.runs.journal import Recorder
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, interrupted_name
from seq2sweep.runs.messages import HANG_LOG_NAME, stop_file
from seq2sweep.runs.mirror import SharedFolder
from seq2sweep.runs.retention import prune
from seq2sweep.storage.locks import OLD_WRITER_SECONDS
from seq2sweep.storage.retry import PAUSES, with_retries
from seq2sweep.train.allocator import keep_memory
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted
from seq2sweep.train.loop import train

STOP_SECONDS = 0.5
"""How often the first worker looks whether it is to stop: storage may be far away."""
START_SECONDS = OLD_WRITER_SECONDS + 3 * sum(PAUSES)
"""How long the first worker may take until it knows where to begin: then none is waited for."""


def train_worker(settings: dict[str, Any]) -> None:
    """Train as one of several workers, from the newest checkpoint if there is one.

    settings: `config` (nested dictionaries), `encoded` (absolute path of the folder), `folder` (the
    run's: an absolute path, or an address, and then `encoded_address` as well), `cpus`
    (of this worker), `attempt` (differs for every call of `run_training`), `lost` (a step to go on
    from below, or None), `until` (as of `seq2sweep.train.loop.train`).
    """
    run = mirror.of(settings)
    try:
        _train(settings, run)
    except UserError as error:
        message = str(error)
        with_retries(lambda: run.tell_user_error(message))
        raise


def use_threads(cpus: float) -> None:
    """Compute with as many threads as CPUs were assigned, where Ray leaves torch with one, and
    with memory that is kept."""
    keep_memory()
    torch.set_num_threads(max(1, int(cpus)))


def _train(settings: dict[str, Any], run: SharedFolder) -> None:
    use_threads(settings["cpus"])
    config = configuration.from_dict(settings["config"])
    context = ray.train.get_context()
    rank = context.get_world_rank()
    stop = stop_file(run.folder, settings["attempt"])
    hang_log = run.logs / HANG_LOG_NAME.format(rank=rank)
    with contextlib.ExitStack() as stack:
        with with_retries(lambda: Watchdog(START_SECONDS + run.start_seconds, hang_log)):
            start = _first(settings, run, stack) if rank == 0 else None
            # All do what the first one says: on a network file system they may see different files.
            start = ray.train.collective.broadcast_from_rank_zero(start)
            if start is None:
                return
            resume = _fetch(run, start["resume"])
            data = with_retries(lambda: run.data(settings))
            if run.start_seconds:
                ray.train.collective.barrier()  # or those who train wait for those who fetch
        watchdog = stack.enter_context(
            with_retries(lambda: Watchdog(config.cluster.hang_seconds, hang_log))
        )
        keeper = stack.enter_context(Keeper(run, config)) if rank == 0 else None

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
            data,
            rank=rank,
            world_size=context.get_world_size(),
            device=ray.train.torch.get_device(),
            resume=resume,
            stop=should_stop,
            until=settings["until"],
        ):
            if keeper:
                keeper.keep(event)
            watchdog.feed()


def _first(
    settings: dict[str, Any], run: SharedFolder, stack: contextlib.ExitStack
) -> dict[str, str | None] | None:
    """What the first worker decides for all: the name of the checkpoint to `resume` from.

    None: they are to end, since what the user must mend fails again, however often Ray starts them.
    The folder is its own until the stack is closed.
    """
    if with_retries(run.user_error) is not None:
        return None
    with_retries(lambda: stack.enter_context(run.writing()))
    # Not ray.train.get_checkpoint(): that one may be damaged, and then the one before will do.
    resume = with_retries(lambda: run.resume_point(settings["lost"]))
    return {"resume": resume.name if resume else None}


def _fetch(run: SharedFolder, name: str | None) -> Path | None:
    """The checkpoint of a name, which is on this node then."""
    if name is None:
        return None
    with_retries(lambda: run.fetch(name))
    return run.folder / name


class Keeper:
    """What one worker of all does with the events: journal and checkpoints."""

    def __init__(self, run: SharedFolder, config: Config) -> None:
        self.run, self.folder, self.config = run, run.folder, config
        for torn in self.folder.glob(".*.partial"):  # of a process that was killed as it wrote
            if torn.is_dir():
                shutil.rmtree(torn)
            else:
                torn.unlink()
        self.recorder = Recorder(self.folder / JOURNAL_NAME)
        self.writer = CheckpointWriter()
        self.submitted = -1

    def keep(self, event: Event) -> None:
        if isinstance(event, Interrupted):
            if event.step == self.submitted:
                return  # this very state is being written, and waited for at the end
            self.recorder.journal.sync()
            place = self.folder / interrupted_name(event.step)
            self.writer.submit(event.capture, place, functools.partial(self.run.keep, place))
            return
        if isinstance(event, Finished):
            self.writer.wait()  # a run that says so has its last checkpoint
        self.recorder.append(event)
        if isinstance(event, CheckpointDue):
            place, self.submitted = self.folder / checkpoint_name(event.step), event.step
            self.writer.submit(event.capture, place, functools.partial(self._written, place))
        if isinstance(event, Finished):
            with_retries(self.run.finish)

    def _written(self, newest: Path) -> None:
        self.run.keep(newest)
        prune(self.folder, self.config.train, self.config.evaluate.checkpoint_steps, newest)
        self.run.prune(self.config, newest)

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
