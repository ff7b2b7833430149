"""A file that grows until it is complete, over any number of runs, in one process at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.locks import leads_to, try_lock

LOCK_POLL = 0.2
"""Seconds between two looks at whether another process is done."""


class StoppedError(Exception):
    pass


class Partial:
    """The first bytes of a file at `path`; in `path`.json, what they are the bytes of.

    size: bytes there now. furthest: the most there were at any time.
    """

    def __init__(self, path: Path, stream: FileIO, advance: Callable[[int], None]) -> None:
        self.path = path
        self.size = self.furthest = os.fstat(stream.fileno()).st_size
        self._stream = stream
        self._advance = advance
        self._origin_path = path.with_name(path.name + ".json")

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
            self._advance(written)

    def restart(self) -> None:
        """Throw all of it away."""
        self._stream.truncate(0)
        self._advance(-self.size)
        self.size = 0

    def flush_to_disk(self) -> None:
        os.fsync(self._stream.fileno())

    def rename(self, path: Path) -> None:
        """Give the file its final name in the same folder, for good."""
        self.path.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
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
        """From which byte to go on at an address, and the validator of what is there.

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
def partial_file(
    path: Path, advance: Callable[[int], None], stop: threading.Event
) -> Iterator[Partial]:
    """The file at `path`, made if need be, for this process alone until the block ends.

    Waits for another process that has it. `advance` is told of bytes won and (below 0) lost.
    """
    told = False
    while True:
        with path.open("ab", buffering=0) as stream:
            if not try_lock(stream.fileno(), path, "download.folder"):
                if not told:
                    console.say(f"{path.name}: another process is at it; waiting")
                told = True
                if stop.wait(LOCK_POLL):
                    raise StoppedError
                continue
            if not leads_to(path, stream.fileno()):
                continue
            partial = Partial(path, stream, advance)
            try:
                yield partial
            finally:
                partial.remove_if_empty()
            return
