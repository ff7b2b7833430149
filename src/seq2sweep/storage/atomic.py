"""Files and folders that are whole or not there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_whole(path: Path, text: str) -> None:
    """Write text beside its place and rename it: never half a file under the final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own, as two processes may write the same file at once; hidden, like all that a
    # kill may leave.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sha256(path: Path) -> str:
    """sha256 (hex) of a file's bytes. Raises OSError, which callers tell apart: a checkpoint that
    is removed meanwhile is no user's mistake. For a path that a user named: `paths` first."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block ends well.

    A block that raises, or a process that is killed, leaves nothing under the final name.
    """
    partial = folder.with_name(folder.name + ".partial")
    replaced = folder.with_name(folder.name + ".replaced")
    for leftover in (partial, replaced):
        if leftover.exists():
            shutil.rmtree(leftover)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial)
        raise
    _flush_to_disk(partial)
    if folder.exists():
        # Renamed before it is deleted: a kill in between must not leave half of it in place.
        folder.rename(replaced)
    partial.rename(folder)
    if replaced.exists():
        shutil.rmtree(replaced)


def _flush_to_disk(folder: Path) -> None:
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
