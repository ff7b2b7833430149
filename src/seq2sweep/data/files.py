"""Names of the files that stages hand on, and writing that is whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from seq2sweep.paths import open_regular

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
PHENOMENA = "test.phenomena.txt"
RECEIPT = "receipt.json"
"""What training says of the weights it leaves, beside them."""
CHECKPOINTS = "checkpoints"
"""The folder of those weights, one safetensors file a checkpoint."""


def text_name(split: str, side: str) -> str:
    """Name of one side of one split inside data/raw and data/clean."""
    return f"{split}.{side}.txt"


def count_lines(path: Path) -> int:
    """Lines of a plain file as fast as it can be read; 0 where it is missing."""
    if not path.exists():
        return 0  # reading it will say so
    with open_regular(path) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


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


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines as UTF-8, each ended by "\\n"; returns how many."""
    count = 0
    with path.open("wb") as stream:
        for line in lines:
            stream.write(line.encode() + b"\n")
            count += 1
    return count


def write_pairs(source: Path, target: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Write pairs as two aligned files; returns how many."""
    count = 0
    with source.open("wb") as source_stream, target.open("wb") as target_stream:
        for source_line, target_line in pairs:
            source_stream.write(source_line.encode() + b"\n")
            target_stream.write(target_line.encode() + b"\n")
            count += 1
    return count


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
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
