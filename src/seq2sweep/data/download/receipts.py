"""Receipts of archives: what a file is, and where it came from, in NAME.json beside it.

Where the registry has no size or check sum of an archive, those of its receipt hold: what was found
at the first download must be found ever after.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from seq2sweep import console
from seq2sweep.data.sources import Archive
from seq2sweep.errors import NO_RIGHT, UserError
from seq2sweep.paths import mismatch, read_json
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import write_json


def receipt(folder: Path, archive: Archive) -> dict[str, Any]:
    """What is recorded: file, bytes, sha256, md5 (if that is the registry's sum), address, fetched.

    `address` is None for a file put there by hand; `source` is the registry's address, of which
    `address` may be a mirror; `texts` is what `note_texts` recorded. UserError if there is no
    receipt, or a damaged one.
    """
    path = _path(folder, archive)
    values = read_json(path)
    if wrong := mismatch(values, {"bytes": int, "sha256": str}):
        raise UserError(f"{path} is damaged ({wrong}): remove it and run `dvc repro`")
    return dict(values)


def complete(archive: Archive, folder: Path) -> Archive:
    """The archive with size and check sum of its receipt where the registry has none.

    UserError where the receipt is another data set's, whose archive has the same name.
    """
    nothing_unknown = archive.bytes is not None and archive.digest is not None
    if nothing_unknown or not _path(folder, archive).exists():
        return archive
    known = receipt(folder, archive)
    algorithm = archive.algorithm or "sha256"
    same_size = archive.bytes in (None, known["bytes"])
    same_sum = archive.digest in (None, known.get(algorithm))
    if not (same_size and same_sum):  # the registry has changed since
        return archive
    source = known.get("source")
    addresses = [*map(shown, archive.addresses)]
    if archive.digest is None and source is not None and shown(str(source)) not in addresses:
        path = folder / archive.file
        raise UserError(
            f"{path} was downloaded from {source}, which is no address of this data set: remove it "
            f"and {path.name}.json, or set another download.folder (if it is the right file, "
            f"remove {path.name}.json alone)"
        )
    digest = archive.digest or known["sha256"]
    return dataclasses.replace(
        archive, bytes=known["bytes"], algorithm=algorithm, digest=digest, by_receipt=True
    )


def measured(
    path: Path, archive: Archive, advance: Callable[[int], object]
) -> tuple[dict[str, Any], str | None]:
    """Size and sums of a file, as a receipt has them, and what is wrong with them (None: nothing).

    A file of the wrong size is not read. `advance` is told of bytes read.
    """
    size = path.stat().st_size
    if archive.bytes not in (None, size):
        return {}, f"{size} bytes instead of {archive.bytes}"
    algorithm = archive.algorithm or "sha256"
    running = {name: hashlib.new(name, usedforsecurity=False) for name in {"sha256", algorithm}}
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            for one in running.values():
                one.update(block)
            advance(len(block))
    sums = {name: running[name].hexdigest() for name in sorted(running, reverse=True)}
    wrong = archive.digest not in (None, sums[algorithm])
    problem = f"{algorithm} {sums[algorithm]} instead of {archive.digest}" if wrong else None
    return {"bytes": size, **sums}, problem


def shown(address: str) -> str:
    """The address without user, password and query, for messages and records."""
    parts = urlsplit(redact(address))  # it knows a password with a slash, and `;token=` in a path
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def write(
    folder: Path,
    archive: Archive,
    found: dict[str, Any],
    address: str | None,
    source: str | None = None,
) -> None:
    """Record what `measured` found; says so where there was no check sum to verify it by.

    address: where it came from, the registry's `source` or a mirror of that.
    """
    if archive.digest is None:
        console.say(f"{archive.file}: not verified, as the registry has no checksum of it")
    values = {
        "file": archive.file,
        **found,
        "address": None if address is None else shown(address),
        "source": None if source is None else shown(source),
        "fetched": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    _write(_path(folder, archive), values)


def write_if_new(folder: Path, archive: Archive, found: dict[str, Any]) -> None:
    """Record a file that lies there, unless it has been recorded."""
    known = _known(folder, archive)
    if any(known.get(key) != value for key, value in found.items()):
        write(folder, archive, found, None)


def texts(folder: Path, archive: Archive) -> dict[str, dict[str, Any]]:
    """What `note_texts` recorded of an archive, nothing where there is no receipt."""
    noted = _known(folder, archive).get("texts")
    return {
        member: entry
        for member, entry in (noted.items() if isinstance(noted, dict) else ())
        # Somebody may have edited it.
        if isinstance(entry, dict) and isinstance(entry.get("lines"), int)
    }


def note_texts(folder: Path, archive: Archive, found: dict[str, dict[str, Any]]) -> None:
    """Record what was read from an archive: by member (or ""), lines and sha256."""
    known = _known(folder, archive)
    noted = known | {"texts": texts(folder, archive) | found}
    if known and noted != known:  # without, none could be written
        _write(_path(folder, archive), noted)


def _known(folder: Path, archive: Archive) -> dict[str, Any]:
    """The receipt, empty where there is none that can be read."""
    try:
        return receipt(folder, archive)
    except UserError:
        return {}


def _write(path: Path, values: dict[str, Any]) -> None:
    """A folder that may only be read, as a shared cache, goes without."""
    try:
        write_json(path, values)
    except OSError as error:
        if error.errno not in NO_RIGHT:
            raise
        console.say(f"{path}: not written, as its folder is read-only")


def _path(folder: Path, archive: Archive) -> Path:
    return folder / f"{archive.file}.json"
