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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from seq2sweep.errors import UserError
from seq2sweep.paths import open_regular

BUFFER = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
_MAGICS = {
    GZIP_MAGIC: "gzip",
    b"PK\3\4": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
BOMB_BYTES, BOMB_RATIO = 64 << 20, 100
"""Gzip data may decompress to the greater of so many bytes and so many times its own size.

Text shrinks to a third or a quarter; only runs of one character shrink a hundredfold.
"""
LONGEST_LINE = 16 << 20
"""Bytes of the longest line that is still taken for a sentence."""
LONGEST_HEADER = 1 << 20
"""Bytes of the tar header extensions (a long name, say) of an entry that are read into memory."""
SHOWN_MEMBERS = 5
TAR = "a tar archive"
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a folder",
    tarfile.FIFOTYPE: "a named pipe",
}
"""Entries without content, whatever their size says."""
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
    than its name says, no regular file, or a decompression bomb.
    """
    name = str(text)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(text.path))
        stream = _buffered(_Checked(file, name))
        if text.path.name.endswith((".gz", ".tgz")):
            stream = _decompressed(stream, name, os.fstat(file.fileno()).st_size)
        if text.path.name.endswith((".tar", ".tgz", ".tar.gz")):
            if text.member is None:
                raise UserError(
                    f"{name} is an archive, of which only a registry's data sets name members: "
                    "unpack it, and name the file that is the text"
                )
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
                "a decompression bomb: it decompresses to more than text does, over "
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
            "make or download it again, or drop .gz from its name if it is plain text"
        )
    most = max(BOMB_BYTES, BOMB_RATIO * size)
    return _buffered(_Checked(gzip.GzipFile(fileobj=stream), name, most=most))


def compression(head: bytes) -> str | None:
    """What a file that begins so is compressed by; None where that is not known."""
    return next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)


def _looks_like(head: bytes) -> str:
    """What the first bytes of a file belong to."""
    if not head:
        return "an empty file"
    start = head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, perhaps the error page of a server"
    if kind := compression(head):
        return kind
    if head[257:262] == b"ustar":
        return TAR
    return "binary data" if b"\0" in head[:512] else "plain text"


# --- tar ---------------------------------------------------------------------------------------


def _find(stream: io.BufferedReader, path: Path, member: str) -> int:
    """Read on to the content of the member; its size in bytes."""
    kind, before = _looks_like(stream.peek(tarfile.BLOCKSIZE)), ""
    others: list[str] = []
    count = 0
    try:
        for entry in _entries(stream):
            name = entry.name.removeprefix("./")
            if entry.type == tarfile.GNUTYPE_SPARSE:
                raise UserError(
                    f"{path} has the sparse file {entry.name[:100]!r}, which cannot be read; "
                    "make the archive again without sparse files"
                )
            if name == member:
                if entry.type not in _REGULAR:
                    odd = _KINDS.get(entry.type, "of an unknown kind")
                    raise UserError(f"{path} ({member}) is {odd}, not a regular file")
                return entry.size
            if entry.type in _REGULAR:
                count += 1
                others += [repr(name[:100])] if len(others) < SHOWN_MEMBERS else []
            before = f"after {entry.name[:100]!r}"
    except tarfile.TarError as error:
        if not before and kind != TAR:
            raise UserError(
                f"{path} is no tar archive, it looks like {kind}; download it again"
            ) from None
        raise UserError(
            f"{path}: the archive is damaged {before or 'at its start'} ({error}); copy it again"
        ) from None
    more = f" and {count - len(others)} more" if count > len(others) else ""
    raise UserError(f"{path} has no member {member}; it has {', '.join(others) or 'none'}{more}")


def _entries(stream: io.BufferedReader) -> Iterator[tarfile.TarInfo]:
    """Entries of a tar archive; when one is yielded the stream stands at its content.

    Raises tarfile.TarError where it is damaged.
    """
    records: dict[str, str] = {}
    extended = 0
    while (block := stream.read(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if entry.size < 0:
            raise tarfile.ReadError("negative size")
        if entry.type in _EXTENSIONS:  # it only says more of the next entry
            extended += entry.size
            if extended > LONGEST_HEADER:
                raise tarfile.ReadError(f"a header of {extended:,} bytes")
            content = stream.read(_padded(entry.size))[: entry.size]
            if len(content) < entry.size:
                raise tarfile.ReadError("truncated header")
            if entry.type == tarfile.GNUTYPE_LONGNAME:
                records["path"] = _text(content.rstrip(b"\0"))
            elif entry.type in _PAX:
                records |= _pax_records(content)
            continue
        entry.name = records.get("path", entry.name)
        if any(key.startswith("GNU.sparse.") for key in records):
            entry.name = records.get("GNU.sparse.name", entry.name)
            entry.type = tarfile.GNUTYPE_SPARSE
        size = records.get("size", str(entry.size))
        if not (size.isascii() and size.isdigit() and len(size) < 20):
            raise tarfile.ReadError("bad size in a pax header")
        entry.size = int(size)
        records, extended = {}, 0
        yield entry
        # An archive that ends in here shows at the header that does not follow.
        left = 0 if entry.type in _KINDS else _padded(entry.size)
        while left > 0 and (block := stream.read(min(left, BUFFER))):
            left -= len(block)


def _pax_records(content: bytes) -> dict[str, str]:
    """Records `LENGTH KEY=VALUE\\n` of a pax header; the length counts all of the record."""
    records = {}
    start = 0
    while start < len(content):
        digits = content[start : start + 20].partition(b" ")[0]
        end = start + int(digits) if digits.isdigit() else 0
        key, equals, value = content[start + len(digits) + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise tarfile.ReadError("bad pax header")
        records[_text(key)] = _text(value[:-1])
        start = end
    return records


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
