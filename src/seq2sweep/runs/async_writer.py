"""Checkpoints written beside the training, and patience with storage that fails for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from seq2sweep.storage.retry import PAUSES, with_retries

if TYPE_CHECKING:  # it loads torch, which takes a second, and others are here for `with_retries`
    from seq2sweep.train.checkpointing import Snapshot


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread, while training goes on.

    As a context manager it waits for the one under way, however the block ends.
    """

    def __init__(self, pauses: Sequence[float] = PAUSES) -> None:
        self._pauses = pauses
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None

    def submit(
        self, capture: Callable[[], Snapshot], place: Path, then: Callable[[], None] | None = None
    ) -> None:
        """Write what `capture` gives, called here, to `place`; waits while another is under way.

        then: done afterwards, in the thread. Raises what stopped the one before.
        """
        self.wait()  # before there is a second copy in memory
        self._under_way = self._pool.submit(self._write, capture(), place, then)

    def check(self) -> None:
        """Raise what has stopped the one under way, if anything has; never waits."""
        if self._under_way is not None and self._under_way.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the one under way; raises what stopped it."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def _write(self, snapshot: Snapshot, place: Path, then: Callable[[], None] | None) -> None:
        with_retries(lambda: snapshot.write(place), self._pauses)
        if then is not None:
            with_retries(then, self._pauses)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown()
        if error is None:
            self.wait()
