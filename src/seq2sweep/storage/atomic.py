"""Files and folders that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from seq2sweep.errors import NO_RIGHT, NO_ROOM, OperationalError, first_line


def write_whole(path: Path, text: str) -> None:
    """Write text beside its place and rename it: never half a file under the final name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own, as two processes may write the same file at once; hidden, like all that a
    # kill may leave.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with naming(path, NO_ROOM), beside.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename, error.filename2 = str(path), None  # the one that the user knows
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def first_of_processes(path: Path) -> Iterator[Path]:
    """A file beside `path` for the block to make, which gets its name unless another process has
    made one meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        yield beside
        try:
            path.hardlink_to(beside)
        except FileExistsError:
            pass
        except OSError:
            beside.rename(path)  # a file system without hard links


@contextlib.contextmanager
def naming(path: Path, numbers: Collection[int] | None = None) -> Iterator[None]:
    """Let an OSError of the block that names no file, as one of a full disk, name this one.

    numbers: of such errors; None: all.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and (numbers is None or error.errno in numbers):
            error.filename = str(path)
        raise


def naming_temporary() -> contextlib.AbstractContextManager[None]:
    """`naming` the folder for temporary files where a disk is full, for a block that writes nowhere
    else."""
    return naming(Path(gettempdir()), NO_ROOM)


def begins_a_line(path: Path, position: int) -> bool:
    """Whether a line begins, or may be appended, at this byte of a file."""
    if position == 0:
        return True
    with path.open("rb") as stream:
        stream.seek(position - 1)
        return stream.read(1) == b"\n"


def sha256(path: Path) -> str:
    """sha256 (hex) of a file's bytes. Raises OSError, which callers tell apart: a checkpoint that
    is removed meanwhile is no user's mistake. For a path that a user named: `paths` first."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def whole_folder(folder: Path, *, parents: bool = True) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block ends well.

    A block that raises leaves nothing. What a killed process leaves is hidden, `.*.partial`, and
    goes with the next call. Of a link, as to a larger disk, the folder that it names is replaced.
    parents: make the folder above if it is missing.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    partial, old = (folder.with_name(f".{folder.name}{part}.partial") for part in ("", ".old"))
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir(parents=parents)
    try:
        with naming(folder, NO_ROOM):
            yield partial
            share_weights(partial)
            flush(*partial.rglob("*"), partial)
    except BaseException:
        # What lies there would take the room that the next try needs.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if folder.exists():
        # Renamed before it is deleted: a kill in between must not leave half of it in place.
        folder.rename(old)
    partial.rename(folder)
    flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def share_weights(folder: Path) -> None:
    """Give weights the rights of a new file: safetensors leaves them to their owner alone.

    Where that can be done: they may be linked here from another user's run, or lie where there are
    no rights.
    """
    rights = folder.stat().st_mode & 0o666
    for path in folder.rglob("*.safetensors"):
        try:
            path.chmod(rights)
        except OSError as error:
            if error.errno not in (*NO_RIGHT, errno.ENOTSUP, errno.ENOSYS):
                raise


@contextlib.contextmanager
def disk_errors(path: Path | None = None) -> Iterator[None]:
    """Let what safetensors says of a disk be an OSError, of the file `path`: it has no error of its
    own for that."""
    from safetensors import SafetensorError  # here, as most that use this module need none of it

    try:
        yield
    except SafetensorError as error:
        if (number := re.search(r"os error (\d+)", str(error))) is None:
            raise OperationalError(f"weights cannot be written: {first_line(error)}") from None
        name = None if path is None else str(path)
        raise OSError(int(number[1]), os.strerror(int(number[1])), name) from None


def remove(path: Path) -> None:
    """A folder with all in it, a file, or nothing; of a link, as to a larger disk, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def flush(*paths: Path) -> None:
    """Have files, or the names in folders, on the disk itself."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems cannot do it for folders, and need not.
            if not path.is_dir() or error.errno not in (errno.EINVAL, errno.EBADF):
                raise
        finally:
            os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
