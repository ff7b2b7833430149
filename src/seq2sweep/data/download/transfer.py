"""One file from one address: asked again until it is complete, and verified when it is.

It grows over any number of runs, in one process at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import threading
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2sweep import console
from seq2sweep.data.download import receipts, remote
from seq2sweep.data.download.remote import UnavailableError
from seq2sweep.data.sources import Archive
from seq2sweep.storage.atomic import flush, write_whole
from seq2sweep.storage.locks import leads_to, try_lock

if TYPE_CHECKING:
    from tqdm import tqdm

FIRST_DELAY = 1.0
"""Seconds before the second try; each further one waits twice as long."""
SLOWEST = 1000
"""Bytes a second; what is slower over SLOW_WINDOW seconds counts as a failure."""
SLOW_WINDOW = 60.0
LOCK_POLL = 0.2
"""Seconds between two looks at whether another process is done."""
_WEB_PAGE = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(!doctype\s+html|html|head|script|meta|body)\b",
    re.IGNORECASE | re.DOTALL,
)
"""How one begins, with a byte order mark, a declaration and comments before it, or without."""


_bar_lock = threading.Lock()
"""Held by the thread that moves the bar of all of them."""


class StoppedError(Exception):
    pass


class Partial:
    """The first bytes of a file at `path`; in `path`.json, what they are the bytes of.

    size: bytes there now. furthest: the most there were at any time. Whatever takes time here
    raises StoppedError once `stop` is set.
    """

    def __init__(self, path: Path, stream: FileIO, bar: tqdm[Any], stop: threading.Event) -> None:
        self.path = path
        self.size = self.furthest = os.fstat(stream.fileno()).st_size
        self._stream, self._bar, self._stop = stream, bar, stop
        self._origin_path = path.with_name(path.name + ".json")
        self._expected = 0

    def pause(self, seconds: float = 0.0) -> None:
        if self._stop.wait(seconds):
            raise StoppedError

    def advance(self, count: int) -> None:
        """Count bytes as fetched; below 0 for those that are thrown away."""
        with _bar_lock:
            self._bar.update(count)

    def expect(self, size: int) -> None:
        """Take the size of the file, known only now, into the total of the bar."""
        with _bar_lock:
            self._bar.total = (self._bar.total or 0) + size - self._expected
        self._expected = size

    def append(self, block: bytes) -> None:
        """Write at the end, at once: a kill loses nothing that is written."""
        view = memoryview(block)
        while view:  # a nearly full disk takes a part and refuses the rest
            try:
                written = self._stream.write(view) or 0
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            view = view[written:]
            self.size += written
            self.furthest = max(self.furthest, self.size)
            self.advance(written)

    def restart(self) -> None:
        """Throw all of it away."""
        self._stream.truncate(0)
        self.advance(-self.size)
        self.size = 0

    def finish(self, path: Path) -> None:
        """Give the file its final name in the same folder, for good."""
        os.fsync(self._stream.fileno())
        self.path.replace(path)
        flush(path.parent)
        self._origin_path.unlink(missing_ok=True)

    def remove_if_empty(self) -> None:
        if self.size == 0:
            self.path.unlink(missing_ok=True)
            self._origin_path.unlink(missing_ok=True)

    def note(self, address: str, validator: str | None) -> None:
        """Remember where the bytes are from."""
        origin = {"address": _fingerprint(address), "validator": validator}
        if origin != self._origin():
            write_whole(self._origin_path, json.dumps(origin) + "\n")

    def continuation(self, address: str, has_sum: bool) -> tuple[int, str | None]:
        """From which byte to resume at an address, and the validator of what is there.

        Without a check sum only the same version at the same address will do: nothing would
        tell a mixture of two.
        """
        origin = self._origin()
        same = origin.get("address") == _fingerprint(address)
        validator = origin.get("validator") if same else None
        return (self.size, validator) if has_sum or validator else (0, None)

    def _origin(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._origin_path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return {}  # of unknown origin, which costs at most a fresh start


def _fingerprint(address: str) -> str:
    """Tells addresses apart without keeping the password that one may hold."""
    return hashlib.sha256(address.encode()).hexdigest()


@contextlib.contextmanager
def partial_file(path: Path, bar: tqdm[Any], stop: threading.Event) -> Iterator[Partial]:
    """The file at `path`, made if need be, for this process alone until the block ends.

    Waits for another process that has it.
    """
    told = False
    while True:
        with path.open("ab", buffering=0) as stream:
            locked = try_lock(stream.fileno(), path, "download.folder")
            if locked and leads_to(path, stream.fileno()):
                partial = Partial(path, stream, bar, stop)  # not before: another's still grows
                try:
                    yield partial
                finally:
                    partial.remove_if_empty()
                return
        if not locked:
            if not told:
                console.say(f"{path.name}: another process is downloading it; waiting")
            told = True
            if stop.wait(LOCK_POLL):
                raise StoppedError


def transfer(address: str, archive: Archive, partial: Partial) -> dict[str, Any]:
    """Fetch a file from one address into `partial`; its size and sums, which are right.

    Raises UnavailableError, when the address is given up, and StoppedError.
    """
    problem = None
    for _ in range(2):
        in_one_piece = _complete(address, archive, partial)
        found, problem = receipts.measured(partial.path, archive, lambda count: partial.pause())
        if problem is None:
            return found
        # What is wrong must not be continued, neither by this run nor by the next.
        partial.restart()
        if in_one_piece:
            break
    raise UnavailableError(f"serves {problem}")


def _complete(address: str, archive: Archive, partial: Partial) -> bool:
    """Fetch what the partial file lacks, trying again; whether all of it came in one answer."""
    tries, began, had = 0, time.monotonic(), partial.furthest
    while True:
        before = partial.furthest
        try:
            return _ask(address, archive, partial)
        except UnavailableError as error:
            # A trickle, or an answer that is cut again and again, brings something each time, and
            # would go on for ever: so the window is longer than an answer.
            seconds = time.monotonic() - began
            whole = seconds >= SLOW_WINDOW
            trickle = whole and partial.furthest - had < SLOWEST * seconds
            if whole and not trickle:
                began, had = time.monotonic(), partial.furthest
            # 1: this failure is the first.
            tries = 1 if partial.furthest > before and not trickle else tries + 1
            if tries >= error.tries:
                raise
            delay = FIRST_DELAY * 2 ** (tries - 1) * random.uniform(0.75, 1.25)
            delay = max(delay, error.wait)
            console.say(f"{archive.file}: {error}; retry in {delay:.0f} s")
            partial.pause(delay)


def _ask(address: str, archive: Archive, partial: Partial) -> bool:
    """Ask once for what the partial file lacks; whether the answer was the whole file."""
    if archive.bytes is not None and partial.size > archive.bytes:
        partial.restart()
    if archive.digest is not None and partial.size == archive.bytes:
        return False
    start, validator = partial.continuation(address, archive.digest is not None)
    with contextlib.closing(remote.open_at(address, start, validator)) as body:
        if None not in (archive.bytes, body.total) and body.total != archive.bytes:
            raise UnavailableError(f"serves {body.total} bytes instead of {archive.bytes}", tries=1)
        if archive.bytes is None and archive.digest is None and not body.end_shows:
            raise UnavailableError(
                "does not say how long the file is, nor does the registry", tries=1
            )
        blocks = iter(body.read, b"")
        if body.is_page and body.start == 0:
            first = b""
            while len(first) < 1024 and (more := next(blocks, b"")):
                first += more
            # Before it takes the place of what was downloaded.
            if _WEB_PAGE.match(first) and not archive.file.lower().endswith((".htm", ".html")):
                raise UnavailableError("serves a web page (text/html)", tries=1)
            blocks = itertools.chain([first] * bool(first), blocks)
        if body.start != partial.size:
            partial.restart()
        partial.note(address, body.validator)
        if archive.bytes is None:
            partial.expect(body.total or 0)
        _copy(blocks, partial, body.total if archive.bytes is None else archive.bytes)
    return body.start == 0


def _copy(blocks: Iterable[bytes], partial: Partial, expected: int | None) -> None:
    began, before = time.monotonic(), partial.size
    for block in blocks:
        partial.pause()
        if expected is not None and partial.size + len(block) > expected:
            partial.restart()
            raise UnavailableError(f"serves more than {expected} bytes", tries=1)
        partial.append(block)
        seconds = time.monotonic() - began
        if seconds >= SLOW_WINDOW:
            if partial.size - before < SLOWEST * seconds:
                raise UnavailableError(f"slower than {SLOWEST} bytes a second")
            began, before = time.monotonic(), partial.size
    if expected is not None and partial.size < expected:
        raise UnavailableError(f"ends after {partial.size} of {expected} bytes")
