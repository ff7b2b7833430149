"""The run's journal: one JSON line an event, appended as training goes.

The trainer never waits for a tracking server or a terminal: whoever wants to know follows this
file. A line is written with one call, so a reader sees whole lines only; a line torn by a crash
is cut off when the journal is opened for writing again.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from pathlib import Path
from typing import Any

from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted


class Journal:
    """Append events to a file; one writer at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        end = os.lseek(self.descriptor, 0, os.SEEK_END)
        whole = _last_line_end(self.descriptor, end)
        os.ftruncate(self.descriptor, whole)
        os.lseek(self.descriptor, whole, os.SEEK_SET)

    def append(self, event: Event) -> None:
        """Write one event as `{"kind", "step", "time", its figures...}`."""
        if isinstance(event, Interrupted):
            raise ValueError("an interruption is no part of what happened to the run")
        figures = event.summary if isinstance(event, Finished) else event.metrics
        entry = {"kind": event.kind, "step": event.step, "time": time.time(), **figures}
        line = (json.dumps({key: _finite(value) for key, value in entry.items()}) + "\n").encode()
        if os.write(self.descriptor, line) != len(line):
            # The rest is cut off when the journal is opened again.
            raise OSError(errno.ENOSPC, "no space left for the run's journal")
        if isinstance(event, CheckpointDue | Finished):
            os.fsync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Whole entries from byte `offset` on, and the offset to go on from."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            content = stream.read()
    except FileNotFoundError:
        return [], offset
    whole = content.rfind(b"\n") + 1
    return [json.loads(line) for line in content[:whole].splitlines()], offset + whole


def _finite(value: Any) -> Any:
    """JSON knows no NaN; null says that there is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _last_line_end(descriptor: int, end: int) -> int:
    position = end
    while position > 0:
        start = max(0, position - 4096)
        found = os.pread(descriptor, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0
