"""Text where it lies: a file, a compressed file, or a member of an archive that is never unpacked.

Nothing is ever written, and no more than a few buffers are in memory, whatever an archive says of
itself. Python's tarfile reads headers here, but does not walk the archive: it keeps every entry,
holds header extensions of any size and takes a damaged header for the end.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from seq2sweep.errors import UserError
from seq2sweep.paths import open_regular

BUFFER = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
BOMB_BYTES, BOMB_RATIO = 64 << 20, 100
"""Gzip data may decompress to the greater of so many bytes and so many times its own size.

Text shrinks to a third or a quarter; only runs of one character shrink a hundredfold.
"""
LONGEST_HEADER = 1 << 20
"""Bytes of a tar header extension (a long name, say) that are read into memory."""
SHOWN_MEMBERS = 5
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a folder",
    tarfile.FIFOTYPE: "a named pipe",
}
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = (*_PAX, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


@dataclass(frozen=True)
class Text:
    """A text of one sentence a line: a file, or a member of an archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path} ({self.member})"


@contextlib.contextmanager
def open_text(text: Text) -> Iterator[BinaryIO]:
    """The bytes of a text, decompressed, as a buffered stream that can only be read on.

    Names say what is what: .tar, .tar.gz and .tgz are archives, anything else ending in .gz (a
    member too) is gzip. An archive is read only as far as needed: of several members with the
    name the first is taken, and gzip's check sum at the end of a .tgz is not reached. Raises
    UserError, here or while the stream is read, for what is missing, damaged, of another format
    than its name says, no regular file, or a bomb.
    """
    name = str(text)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(text.path))
        stream = _buffered(_Checked(file, name))
        if text.path.name.endswith((".gz", ".tgz")):
            stream = _decompressed(stream, name, os.fstat(file.fileno()).st_size)
        if text.path.name.endswith((".tar", ".tgz", ".tar.gz")):
            if text.member is None:
                raise UserError(f"{name} is an archive: name the member that is the text")
            size = _find(stream, text.path, text.member)
            stream = _buffered(_Checked(stream, name, size=size))
            if text.member.endswith(".gz"):
                stream = _decompressed(stream, name, size)
        elif text.member is not None:
            raise UserError(f"{name}: only .tar, .tar.gz and .tgz have members, by their names")
        yield cast(BinaryIO, stream)


class _Checked(io.RawIOBase):
    """Reads on from a stream; what goes wrong is a UserError that names the text.

    A stream of a known `size` ends there, and not before; more than `most` bytes are refused.
    """

    def __init__(
        self,
        stream: io.BufferedIOBase | BinaryIO,
        name: str,
        size: int | None = None,
        most: int | None = None,
    ) -> None:
        self._stream, self._name, self._size, self._most = stream, name, size, most
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = len(buffer)
        if self._size is not None:
            wanted = min(wanted, self._size - self._count)
        try:
            block = self._stream.read(wanted)
        except (EOFError, zlib.error):
            raise self._wrong("the gzip data is truncated or damaged; copy it again") from None
        except gzip.BadGzipFile as error:
            raise self._wrong(f"not valid gzip ({error}); copy it again") from None
        except OSError as error:
            raise UserError(f"{self._name} cannot be read: {error.strerror or error}") from None
        if self._size is not None and len(block) < wanted:
            raise self._wrong("the archive is truncated; copy it again")
        self._count += len(block)
        if self._most is not None and self._count > self._most:
            raise self._wrong(
                "a bomb: it decompresses to more than text does, over "
                f"{BOMB_RATIO} times its size; take it from elsewhere, or decompress it yourself"
            )
        buffer[: len(block)] = block
        return len(block)

    def _wrong(self, problem: str) -> UserError:
        return UserError(f"{self._name} after {self._count:,} bytes: {problem}")


def _buffered(stream: _Checked) -> io.BufferedReader:
    return io.BufferedReader(stream, BUFFER)


def _decompressed(stream: io.BufferedReader, name: str, size: int) -> io.BufferedReader:
    """The stream gunzipped; `size` is that of the compressed bytes."""
    head = stream.peek(1)
    if head and not head.startswith(GZIP_MAGIC):
        raise UserError(
            f"{name}: not valid gzip, it looks like {_looks_like(head)}; "
            "make or fetch it anew, or drop .gz from its name if it is plain text"
        )
    most = max(BOMB_BYTES, BOMB_RATIO * size)
    return _buffered(_Checked(gzip.GzipFile(fileobj=stream), name, most=most))


def _looks_like(head: bytes) -> str:
    """What the first bytes of a file belong to."""
    if not head:
        return "an empty file"
    start = head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, perhaps the error page of a server"
    magics = {GZIP_MAGIC: "gzip", b"PK\3\4": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
    for magic, kind in magics.items():
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive"
    return "binary data" if b"\0" in head[:512] else "plain text"


# --- tar ---------------------------------------------------------------------------------------


def _find(stream: io.BufferedReader, path: Path, member: str) -> int:
    """Read on to the content of the member; its size in bytes."""
    others: list[str] = []
    count = 0
    for entry in _entries(stream, path):
        name = entry.name.removeprefix("./")
        if name == member:
            if entry.type not in _REGULAR:
                kind = _KINDS.get(entry.type, "of an unknown kind")
                raise UserError(f"{path} ({member}) is {kind}, not a regular file")
            return entry.size
        if entry.type in _REGULAR:
            count += 1
            others += [repr(name[:100])] if len(others) < SHOWN_MEMBERS else []
    more = f" and {count - len(others)} more" if count > len(others) else ""
    raise UserError(f"{path} has no member {member}; it has {', '.join(others) or 'none'}{more}")


def _entries(stream: io.BufferedReader, path: Path) -> Iterator[tarfile.TarInfo]:
    """Entries of a tar archive; when one is yielded the stream stands at its content."""
    before = "at its start"
    replaced: dict[str, str] = {}
    while (block := stream.read(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if before == "at its start":
                raise UserError(
                    f"{path} is no tar archive, it looks like {_looks_like(block)}; fetch it anew"
                ) from None
            raise _damaged(path, before, str(error)) from None
        if entry.size < 0:
            raise _damaged(path, before, "negative size")
        if entry.type in _EXTENSIONS:
            content = _extension(stream, entry.size, path, before)
            if entry.type == tarfile.GNUTYPE_LONGNAME:
                replaced["path"] = _text(content.rstrip(b"\0"))
            elif entry.type in _PAX:
                replaced |= _pax_records(content, path, before)
            continue
        _replace(entry, replaced, path, before)
        replaced = {}
        yield entry
        before = f"after {entry.name[:100]!r}"
        if entry.type not in _KINDS:  # those have no content, whatever their size says
            _skip(stream, _padded(entry.size))


def _extension(stream: io.BufferedReader, size: int, path: Path, before: str) -> bytes:
    """The content of a header that only says more of the next entry."""
    if size > LONGEST_HEADER:
        raise _damaged(path, before, f"a header of {size:,} bytes")
    content = stream.read(_padded(size))
    if len(content) < size:
        raise _damaged(path, before, "truncated header")
    return content[:size]


def _pax_records(content: bytes, path: Path, before: str) -> dict[str, str]:
    """Records `LENGTH KEY=VALUE\\n` of a pax header; the length counts all of the record."""
    records = {}
    start = 0
    while start < len(content):
        digits = content[start : start + 20].partition(b" ")[0]
        end = start + int(digits) if digits.isdigit() else 0
        key, equals, value = content[start + len(digits) + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise _damaged(path, before, "bad pax header")
        records[_text(key)] = _text(value[:-1])
        start = end
    return records


def _replace(entry: tarfile.TarInfo, records: Mapping[str, str], path: Path, before: str) -> None:
    """Put the name and the size of header extensions in place of those of an entry."""
    entry.name = records.get("path", entry.name)
    in_records = any(key.startswith("GNU.sparse.") for key in records)
    if in_records or entry.type == tarfile.GNUTYPE_SPARSE:
        name = records.get("GNU.sparse.name", entry.name)
        raise UserError(
            f"{path} has the sparse file {name[:100]!r}, which cannot be read; "
            "make the archive anew without sparse files"
        )
    size = records.get("size", str(entry.size))
    if not (size.isascii() and size.isdigit() and len(size) < 20):
        raise _damaged(path, before, "bad size in a pax header")
    entry.size = int(size)


def _skip(stream: io.BufferedReader, size: int) -> None:
    """Read on; an archive that ends before shows at the header that does not follow."""
    while size > 0 and (block := stream.read(min(size, BUFFER))):
        size -= len(block)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _damaged(path: Path, before: str, problem: str) -> UserError:
    return UserError(f"{path}: the archive is damaged {before} ({problem}); copy it again")
