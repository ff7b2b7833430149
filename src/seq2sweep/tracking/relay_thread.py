"""Delivery beside the work of a stage, and on demand (`seq2sweep sync`)."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from traceback import format_exception
from typing import Any, Self

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking import SLOWEST_UPLOAD
from seq2sweep.tracking.delivery import ATTEMPTS, FailedRequestError, UnavailableError
from seq2sweep.tracking.lineage import LINEAGE, document, tags
from seq2sweep.tracking.mlflow_store import destination, reason
from seq2sweep.tracking.outbox import address_of, outboxes
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay import BUSY, Relay

EVERY = 5.0
LONGEST_PAUSE = 60.0
# What the end of a stage waits for a store that does not answer, besides SLOWEST_UPLOAD.
PATIENCE = 10.0
# For one that did not answer before either, and for a stage that was told to end.
SHORT_PATIENCE = 2.0
POLL = 0.02
# Between two tries of `sync` at a request that has failed more than once.
PAUSE = 1.0

FAILURE = "failure.log"
LATER = 'the work continues, and "seq2sweep sync" records later what MLflow misses'


class RelayThread:
    """Deliver every few seconds from a thread, for as long as the context manager's block runs.

    Nothing of MLflow reaches the block: what fails is said in one line on stderr, and tried again
    unless it is a bug. At the end delivery is finished, unless the store does not answer: then the
    rest stays where it is, for whoever delivers next.
    """

    def __init__(
        self, root: Path, uri: str, experiment: str, artifacts: Path, every: float = EVERY
    ) -> None:
        """The first four as `destination` gives them. every: seconds between two looks for news."""
        self.relay = Relay(root, uri, experiment, artifacts)
        self.relay.on_record = self._before_record
        self.relay.on_progress = self._after_part
        self.root, self.to, self.every = root, self.relay.to, every
        self._wake = threading.Event()
        self._begun = self._done = 0  # passes over all outboxes; the last one that did not fail
        self._failing = self._closing = self._given_up = False
        self._records = 0
        self._applied = 0  # when the store began to fail
        self._patience, self._deadline = PATIENCE, 0.0
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="mlflow-delivery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._close(interrupted=isinstance(error, KeyboardInterrupt | SystemExit))
        except Exception as bug:
            self._breaks(bug)

    def flush(self, patience: float = PATIENCE) -> bool:
        """Wait until MLflow has all recorded so far; False if it fails.

        patience: seconds to wait for a store that gets nothing done; one that gets on has as long
        as it takes.
        """
        # The pass that is under way may have been where the news is already.
        wanted = self._begun + 1
        self._wake.set()
        ended = self._wait(patience, lambda: self._done >= wanted or self._failing)
        return ended and not self._failing

    def run_id(self, run: Recorder) -> str | None:
        """The id that MLflow gave a run, as far as it is known."""
        return self.relay.run_id(run)

    def say_page(self, run: Recorder) -> None:
        """Say where MLflow shows a run, as far as it is known."""
        with contextlib.suppress(UnavailableError):
            if (page := self.relay.page(run)) is not None:
                console.say(f"in MLflow: {page}")

    # --- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        pause, tried_again = 0.0, False
        try:
            while True:
                self._wake.wait(min(pause, 1.0) if self._closing else pause)
                self._wake.clear()
                if self._given_up:
                    return
                self._begun += 1
                last = self._closing
                try:
                    self.relay.deliver()
                except UnavailableError as error:
                    # A server may close a connection just when a request is sent over it.
                    if isinstance(error, FailedRequestError) and not tried_again:
                        pause, tried_again = 0.0, True
                        continue
                    if not self._failing and not self._given_up:
                        _say(f"{error}; {LATER}")
                    self._failing, self._applied = True, self.relay.applied
                    pause = min(2 * max(pause, self.every), LONGEST_PAUSE)
                    continue
                for name, why in self.relay.refused.items():
                    if name not in self._told:
                        self._told.add(name)
                        _say(_refusal(self.root / name, why))
                self._failing, pause, tried_again = False, self.every, False
                self._done = self._begun
                if last and BUSY not in self.relay.waiting.values():
                    return
                if last:
                    pause = 0.2
        except Exception as bug:
            self._breaks(bug)

    def _breaks(self, bug: Exception) -> None:
        """Say what must not happen, but is no reason to fail a stage that did its work."""
        self._failing = True
        path = self.root / FAILURE
        try:
            write_whole(path, redact("".join(format_exception(bug))))
            where = f"the traceback is in {path}"
        except OSError as error:
            where = f"the traceback cannot be kept: {error}"
        _say(f"delivery to MLflow failed: {type(bug).__name__}: {reason(bug)} ({where}); {LATER}")

    def _before_record(self, size: int) -> None:
        self._records += 1
        # Trying alone is not getting on.
        if not self._failing or self.relay.applied > self._applied:
            self._deadline = time.monotonic() + self._patience + size / SLOWEST_UPLOAD

    def _after_part(self) -> None:
        self._deadline = max(self._deadline, time.monotonic() + self._patience)

    # --- who waits for it ------------------------------------------------------------------------

    def _wait(
        self,
        patience: float,
        done: Callable[[], bool],
        at_most: float = math.inf,
        on_poll: Callable[[], object] = lambda: None,
    ) -> bool:
        """Wait until `done`; False after `patience` seconds without a record, or `at_most`."""
        begun = time.monotonic()
        self._patience, self._deadline = patience, begun + patience
        while not done():
            # Each record moves the deadline, and each part of a curve.
            if time.monotonic() > min(self._deadline, begun + at_most):
                return False
            time.sleep(POLL)
            on_poll()
        return True

    def _close(self, interrupted: bool) -> None:
        patience = SHORT_PATIENCE if interrupted or self._failing else PATIENCE
        before, total = self._records, self.relay.records_left()
        self._closing = True
        self._wake.set()
        with tqdm(total=total, disable=self._failing, **_bar()) as bar:
            self._given_up = not self._wait(
                patience,
                lambda: not self._thread.is_alive(),
                patience if interrupted else math.inf,
                lambda: bar.update(min(self._records - before, total) - bar.n),
            )
        left = self.relay.records_left()
        if left:
            _say(f'{left} record(s) are not in MLflow yet: "seq2sweep sync" records them')


@contextlib.contextmanager
def recorded_run(
    config: Config, title: str, *, lineage: Mapping[str, str], **about: Any
) -> Iterator[tuple[RelayThread, Recorder]]:
    """Record a run, and where it comes from; it is delivered beside the block.

    lineage: as `lineage_tags` has it; about: further arguments of `Recorder`, which says what a
    journal and a parent are for.
    """
    with (
        RelayThread(*destination(config, Path.cwd())) as relay,
        Recorder(relay.root, title, tags=tags(lineage), to=relay.to, **about) as run,
    ):
        run.text(LINEAGE, document(lineage, config))
        yield relay, run


def sync(root: Path, uri: str, experiment: str, artifacts: Path) -> str:
    """Deliver all there is, and say what was done in a line; OperationalError if something is left.

    The arguments are as `destination` gives them.
    """
    relay = Relay(root, uri, experiment, artifacts)
    total = relay.records_left()
    with tqdm(total=total, **_bar()) as bar:
        relay.on_record = lambda size: bar.update(int(bar.n < total))
        try:
            whole = _deliver(relay)
        except UnavailableError as error:
            left = relay.records_left()
            raise OperationalError(f"{error}; {left} record(s) wait in {root}") from None
    if relay.refused:
        (name, why), *others = relay.refused.items()
        more = f"; and so for {len(others)} more" if others else ""
        raise OperationalError(_refusal(root / name, why) + more)
    done = f"recorded in MLflow: {relay.applied} record(s)" if relay.applied else ""
    if foreign := _left_to_others(relay):
        done = f"{done or 'nothing is left to record'}; {len(foreign)} run(s) in {root} were "
        done += "recorded elsewhere, for other stores: set tracking.uri and tracking.experiment to "
        done += "theirs"
        here = address_of(relay.store)
        alike = sorted(one for one in {*foreign} - {relay.store} if address_of(one) == here)
        if alike:
            done += f"; one has this address and the id {alike[0].partition(' ')[0]}: if it is "
            done += "gone, make that the content of mlflow.db.id"
    if whole:
        return done or "nothing is left to record"
    counts = Counter(relay.waiting.values())
    why = "; ".join(f"{count} run(s) wait: {what}" for what, count in counts.items())
    return f"{done or 'nothing recorded'}; {why}"


def _left_to_others(relay: Relay) -> list[str]:
    """For each outbox that other stores do not hold whole one of these; a training's stays when
    they do."""
    stores = []
    for box in outboxes(relay.root):
        # Removed in between, or another user's.
        with contextlib.suppress(OSError):
            have = relay.cursor(box).holders(box.path.stat().st_size)
            if others := relay.to.awaiting(box) - have - {relay.to.place}:
                stores.append(min(others)[0])
    return stores


def _deliver(relay: Relay) -> bool:
    """As `Relay.deliver`, again after a request that failed once, as one of a closed connection."""
    before, failures = -1, 0
    while True:
        try:
            return relay.deliver()
        except FailedRequestError:
            failures = failures + 1 if relay.applied == before else 1
            before = relay.applied
            if failures > ATTEMPTS:  # by then the relay has refused the record
                raise
            time.sleep(PAUSE * (failures > 1))


def _refusal(folder: Path, why: str) -> str:
    """A line that says what became of a record that could not be delivered to MLflow."""
    return (
        f"not all of the record in {folder} can be delivered to MLflow ({why}); it is "
        'kept, "seq2sweep sync" retries it, and removing that folder discards it'
    )


def _bar() -> dict[str, Any]:
    return console.bar("record in MLflow", "records")


def _say(line: str) -> None:
    console.say(f"seq2sweep: {line}", file=sys.stderr)
