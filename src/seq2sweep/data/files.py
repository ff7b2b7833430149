"""Aligned text files: reading them with care, writing them whole.

Line i of the source file and line i of the target file are one sentence pair. A line ends at
"\\n" (or "\\r\\n") and nowhere else: characters that Python's `str.splitlines` would also cut at,
such as U+2028 or a form feed, occur inside sentences of real corpora, and cutting there would
shift one side against the other without an error.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from seq2sweep.errors import UserError

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
PHENOMENA = "test.phenomena.txt"
RECEIPT = "receipt.json"
"""What training says of the weights it leaves, beside them."""
CHECKPOINTS = "checkpoints"
"""The folder of those weights, one safetensors file a checkpoint."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def text_name(split: str, side: str) -> str:
    """Name of one side of one split inside data/raw and data/clean."""
    return f"{split}.{side}.txt"


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file without their ends; a name ending in .gz is read as gzip.

    A byte order mark at the start is dropped. One line at a time is in memory. Raises UserError,
    naming file and line, for a missing, unreadable or empty file, wrong UTF-8 and broken gzip.
    """
    number = 0
    try:
        with _open(path) as stream:
            for line in lines_of(stream, str(path)):
                number += 1
                yield line
    except FileNotFoundError:
        raise UserError(f"{path} is missing: check its name and folder") from None
    except gzip.BadGzipFile as error:
        raise UserError(
            f"{path} after line {number}: not valid gzip ({error}); "
            "make it anew, or drop .gz from its name if it is plain text"
        ) from None
    except (EOFError, zlib.error):
        raise UserError(
            f"{path} after line {number}: the gzip data is truncated or damaged; copy it again"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if number == 0:
        raise UserError(f"{path} is empty: it must hold one sentence a line")


def lines_of(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8 text as `read_lines` gives them; `name` is what error messages call it."""
    for number, raw in enumerate(stream, start=1):
        if number == 1 and raw.startswith(BYTE_ORDER_MARK):
            raw = raw[len(BYTE_ORDER_MARK) :]
            if not raw:  # a file of nothing but the mark has no line
                return
        yield _decode(raw, name, number)


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Pairs of two aligned files; UserError with both counts when they differ in lines."""
    source_lines, target_lines = read_lines(source), read_lines(target)
    pairs = 0
    for source_line in source_lines:
        target_line = next(target_lines, None)
        if target_line is None:
            raise _unequal(source, pairs + 1 + _count(source_lines), target, pairs)
        yield source_line, target_line
        pairs += 1
    if next(target_lines, None) is not None:
        raise _unequal(source, pairs, target, pairs + 1 + _count(target_lines))


def count_lines(path: Path) -> int:
    """Lines of a plain file as fast as it can be read; 0 where it is missing."""
    if not path.exists():
        return 0  # reading it will say so
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def write_whole(path: Path, text: str) -> None:
    """Write text beside its place and rename it: never half a file under the final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    with beside.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)


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
    """sha256 (hex) of a file's bytes."""
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


def _open(path: Path) -> BinaryIO:
    if path.name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _decode(raw: bytes, name: str, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} line {number}: not UTF-8 at byte {error.start + 1} of the line "
            f"(0x{raw[error.start]:02x}); convert the file to UTF-8"
        ) from None
    if text.endswith("\r\n"):
        return text[:-2]
    return text.removesuffix("\n")


def _count(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


def _unequal(source: Path, source_count: int, target: Path, target_count: int) -> UserError:
    return UserError(
        f"{source} has {source_count} lines but {target} has {target_count} lines: "
        "line i of both must be the same sentence"
    )


def _flush_to_disk(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
