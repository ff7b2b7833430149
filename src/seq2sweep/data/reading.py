"""Aligned texts, read with care.

Line i of the source file and line i of the target file are one sentence pair. A line ends at
"\\n" (or "\\r\\n") and nowhere else: characters that Python's `str.splitlines` would also cut at,
such as U+2028 or a form feed, occur inside sentences of real corpora, and cutting there would
shift one side against the other without an error.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from seq2sweep.data import sgml, tables
from seq2sweep.data.archives import GZIP_MAGIC, LONGEST_LINE, Text, compression, open_text
from seq2sweep.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK = 1 << 16
PAIRS_IN_CHUNK = 5_000
CHARACTERS_IN_CHUNK = 8_000_000
"""Bounds memory where lines are of a hostile length; five times what 5 000 pairs have."""


def read_lines(text: Path | Text) -> Iterator[str]:
    """Lines of a UTF-8 text without their ends; `archives.open_text` says what can be opened.

    A byte order mark at the start is dropped. One line at a time is in memory. Of an SGML test
    set (.sgm, .sgm.gz) the segments are read instead, in the order of the file. Raises UserError,
    naming file and line, for a missing, unreadable or empty text, wrong UTF-8, a line of more
    than LONGEST_LINE bytes and broken archives.
    """
    text = _as_text(text)
    lines = iter(_segments(text).values()) if _is_sgml(text) else _lines(text)
    first = next(lines, None)
    if first is None:
        none = "has no segment (<seg id=...>): it is no test set"
        empty = "is empty: it must hold one sentence a line"
        raise UserError(f"{text} {none if _is_sgml(text) else empty}")
    yield first
    yield from lines


def lines_of(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 text as `read_lines` gives them; `name` is what error messages call it."""
    for number, block in _blocks(stream, name):
        if number == 1 and block.startswith(BYTE_ORDER_MARK):
            del block[: len(BYTE_ORDER_MARK)]
            if not block:  # a file of nothing but the mark has no line
                return
        if number == 1 and block.startswith(GZIP_MAGIC):
            raise UserError(f"{name} is gzip: decompress it, or let its name end in .gz")
        halves = block[:16:2], block[1:16:2]  # of Latin text in UTF-16, which is UTF-8, one is NULs
        if number == 1 and bytes(8) in halves and not all(0 in half for half in halves):
            raise UserError(f"{name} seems to be UTF-16: convert the file to UTF-8")
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            if number == 1 and (kind := compression(bytes(block[:8]))):
                raise UserError(f"{name} is {kind}, which is not read: decompress it") from None
            start = block.rfind(b"\n", 0, error.start) + 1
            number += block.count(b"\n", 0, start)
            raise UserError(
                f"{name} line {number}: "
                f"not UTF-8 at byte {error.start - start + 1} of the line "
                f"(0x{block[error.start]:02x}); convert the file to UTF-8"
            ) from None
        yield from text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_pairs(source: Path | Text, target: Path | Text) -> Iterator[tuple[str, str]]:
    """Pairs of two aligned texts; UserError with both counts when they differ in lines.

    Two SGML test sets are aligned by document and segment id, in the order of the source. Of a
    Parquet or Arrow file the members are columns (`tables`).
    """
    source, target = _as_text(source), _as_text(target)
    if tables.is_table(source.path) or tables.is_table(target.path):
        yield from tables.read_pairs(source, target)
        return
    if _is_sgml(source) and _is_sgml(target):
        yield from sgml.aligned(_segments(source), str(source), _segments(target), str(target))
        return
    for pair in itertools.zip_longest(read_lines(source), read_lines(target)):
        if None in pair:
            counts = (sum(1 for _ in read_lines(text)) for text in (source, target))
            raise UserError(
                f"{source} has {next(counts)} lines but {target} has {next(counts)} lines: "
                "line i of both must be the same sentence"
            )
        yield pair


def chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The pairs, many at a time, so that other processes can work on them."""
    chunk: list[tuple[str, str]] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == PAIRS_IN_CHUNK or characters > CHARACTERS_IN_CHUNK:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


class TextSum:
    """Number and sha256 of lines, each taken as UTF-8 and ended by "\\n"."""

    def __init__(self) -> None:
        self.lines = 0
        self._held: list[str] = []
        self._held_characters = 0
        self._hash = hashlib.sha256()

    def add(self, line: str) -> None:
        """Count a line."""
        self.lines += 1
        self._held.append(line)
        self._held_characters += len(line) + 1
        if self._held_characters > 1 << 16:  # many lines at once cost a fraction of each by itself
            self._flush()

    def sha256(self) -> str:
        """sha256 (hex) of the lines so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._held.append("")
        self._hash.update("\n".join(self._held).encode())
        self._held = []
        self._held_characters = 0


def summed(
    pairs: Iterable[tuple[str, str]], sums: tuple[TextSum, TextSum]
) -> Iterator[tuple[str, str]]:
    """The pairs, each side added to its sum as it passes."""
    source_sum, target_sum = sums
    for pair in pairs:
        source_sum.add(pair[0])
        target_sum.add(pair[1])
        yield pair


def _as_text(text: Path | Text) -> Text:
    return text if isinstance(text, Text) else Text(text)


def _is_sgml(text: Text) -> bool:
    return (text.member or text.path.name).endswith((".sgm", ".sgm.gz"))


def _lines(text: Text) -> Iterator[str]:
    with open_text(text) as stream:
        yield from lines_of(stream, str(text))


def _blocks(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytearray]]:
    """The text in blocks that end where a line ends, each with the number of its first line.

    Cutting lines out of a block costs half of what asking the stream for each of them does.
    """
    # read1 takes what is there, so that one Ctrl-D ends the input on a terminal.
    read1 = cast(BufferedReader, stream).read1
    number, rest = 1, bytearray()
    while block := read1(BLOCK):
        end = block.find(b"\n")
        if len(rest) + (end if end >= 0 else len(block)) > LONGEST_LINE:
            raise UserError(
                f"{name} line {number} is longer than {LONGEST_LINE >> 20} MiB: "
                "it must hold one sentence a line"
            )
        cut = block.rfind(b"\n") + 1
        rest += block[:cut] if cut else block
        if cut:
            lines = rest.count(b"\n")
            yield number, rest
            number += lines
            rest = bytearray(block[cut:])
    if rest:
        yield number, rest


def _segments(text: Text) -> dict[sgml.Id, str]:
    return sgml.segments(_lines(text), str(text))
