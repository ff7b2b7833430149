"""Journal and checkpoints of a training, written as its events come."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Self

from seq2sweep.errors import NO_RIGHT, NO_ROOM
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, interrupted_name
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.watchdog import allowing, feed
from seq2sweep.storage.atomic import remove
from seq2sweep.storage.retry import with_retries
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted

SAVE_SECONDS = 3600.0
"""How long training waits for a checkpoint, which is no hang: before that a bucket that answers
nothing has failed with all retries, which takes 50 minutes."""
PATIENT_SECONDS = 2400.0
"""How long a storage that refuses to take one, or to remove older ones, is asked again while
training goes on: it is whole on this machine's disk."""
PULSE_SECONDS = 1.0
"""Between two signs of life of who waits for a checkpoint."""
NOT_SAVED = "a checkpoint was not saved within an hour"


class EventWriter:
    """What one worker of all does with the events of a run, while it is `store.writing`.

    A checkpoint is written by a thread, one at a time, while training continues. As a context
    manager it waits for the one under way, however the block ends.
    """

    def __init__(self, store: RunStore) -> None:
        self.store = store
        for torn in store.folder.glob(".*.partial"):  # of a process that was killed as it wrote
            remove(torn)
        self.journal = Journal(store.folder / JOURNAL_NAME)
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._under_way: futures.Future[None] | None = None
        self._last_checkpoint = -1
        self._ends = threading.Event()

    def write(
        self,
        event: Event,
        waiting: Callable[[], object] = lambda: None,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        """Write it; returns when a checkpoint is copied, not when it is on disk.

        waiting: called again and again while it waits for the checkpoint before; ready: called
        when that is kept, before another is copied.
        """
        if isinstance(event, Interrupted):
            self._ends.set()
            if event.step != self._last_checkpoint:  # else this very state is there, or soon
                with_retries(self.journal.sync)
                self._save(event, interrupted_name(event.step), waiting, ready)
            else:
                ready()
            return
        if isinstance(event, Finished):
            self.wait(waiting)  # a run that says so has its last checkpoint
        self.journal.append(event)
        if isinstance(event, CheckpointDue):
            self._last_checkpoint = event.step
            self._save(event, checkpoint_name(event.step), waiting, ready)
        if isinstance(event, Finished):
            with allowing(SAVE_SECONDS):
                with_retries(self.store.finish)

    def check(self) -> None:
        """Raise what has stopped the checkpoint under way, if anything has; never waits."""
        if self._under_way is not None and self._under_way.done():
            self.wait()

    def wait(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Wait until the checkpoint under way is kept; raises what stopped it.

        An OSError that names the storage after SAVE_SECONDS: then it is left alone. waiting: as of
        `write`.
        """
        if self._under_way is None:
            return
        under_way, self._under_way = self._under_way, None
        waited = 0.0  # not by a clock, which runs on while a job is suspended
        while futures.wait([under_way], PULSE_SECONDS).not_done:
            waited += PULSE_SECONDS
            if waited >= SAVE_SECONDS:
                raise OSError(errno.EIO, NOT_SAVED, self.store.location)
            feed()
            waiting()
        under_way.result()

    def _save(
        self,
        event: CheckpointDue | Interrupted,
        name: str,
        waiting: Callable[[], object],
        ready: Callable[[], object],
    ) -> None:
        self.wait(waiting)  # before there is a second copy in memory
        ready()
        snapshot, path = event.capture(), self.store.folder / name

        def save() -> None:
            with_retries(lambda: snapshot.write(path))
            self._patiently(lambda: self.store.keep(path))
            self._patiently(lambda: self.store.prune(path))

        self._under_way = self._thread.submit(save)

    def _patiently(self, work: Callable[[], None]) -> None:
        """`with_retries`, again and again until PATIENT_SECONDS are over, or training ends."""
        until = time.monotonic() + PATIENT_SECONDS
        while True:
            try:
                return with_retries(work)
            except OSError as error:
                lasting = error.errno in (None, errno.ENOENT, *NO_ROOM, *NO_RIGHT)
                if lasting or self._ends.is_set() or time.monotonic() > until:
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._ends.set()
        self.journal.close()
        self._thread.shutdown(wait=False)
        try:
            self.wait()
        except Exception:
            if error is None:  # else that one came first
                raise
