"""Locks of files: held by an open descriptor, and gone with the process however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from seq2sweep import console
from seq2sweep.errors import UserError

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def try_lock(descriptor: int, path: Path, setting: str) -> bool:
    """Lock an open file without waiting; False while another descriptor has it.

    path: of the file. setting: the key of params.yaml that puts it there, for the UserError about
    a file system that knows no locks, as those of some clusters do not.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise UserError(
            f"{path.parent} is on a file system without locks ({error.strerror}), which keep two "
            f"processes from writing at once: mount it with flock, or set {setting} to another"
        ) from None
    return True


def leads_to(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the one at a path: whoever had the lock may have moved it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


OLD_WRITER_SECONDS = 240.0
"""NFS gives the locks of a machine that is gone away after 90 s; then some."""


@contextlib.contextmanager
def only_user(folder: Path, name: str = "lock", patience: float = 0.0) -> Iterator[None]:
    """Hold a run's folder for this process, as long as it lives; UserError when another one does.

    name: of the lock; patience: seconds to wait for it, which is said.
    """
    with _lock(folder / name, patience) as ours:
        if not ours:
            raise UserError(_at_work(folder))
        yield


def _at_work(folder: Path) -> str:
    return f"another process is working in {folder}: wait for its end, or end it"


@contextlib.contextmanager
def only_writer(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Be the only one to write a run's checkpoints and journal.

    The worker of a driver that was killed, or on a node that was lost, may hold on for a while: it
    is waited for, if that is wanted, then a TimeoutError says so.
    """
    path = folder / "writer.lock"
    with _lock(path, OLD_WRITER_SECONDS if wait else 0.0) as ours:
        if not ours:
            raise TimeoutError(f"another worker holds {path}: end it, or wait for its node's lease")
        yield


@contextlib.contextmanager
def _lock(path: Path, patience: float) -> Iterator[bool]:
    give_up = time.monotonic() + patience
    with path.open("w") as stream:
        ours = try_lock(stream.fileno(), path, "cluster.storage")
        if patience and not ours:
            console.say(f"waiting for another process, which holds {path}")
        while not ours and time.monotonic() < give_up:
            time.sleep(0.2)
            ours = try_lock(stream.fileno(), path, "cluster.storage")
        yield ours


def only_export(folder: Path) -> AbstractContextManager[None]:
    """Be the only process to write a folder that is not there yet; UserError when another one is.

    The lock, `.NAME.lock` beside the folder, is removed when the block ends.
    """
    taken = f"another process is writing {folder}: wait for its end, or name another folder"
    return _lock_for_now(folder.parent / f".{folder.name}.lock", taken, "FOLDER")


def only_maker(
    folder: Path, lock: Path, setting: str = "cluster.storage"
) -> AbstractContextManager[None]:
    """Hold a folder that may not be there yet by a lock elsewhere, which is removed when the block
    ends; UserError when another process does.

    setting: what names a folder on another disk, where this one knows no locks.
    """
    return _lock_for_now(lock, _at_work(folder), setting)


@contextlib.contextmanager
def _lock_for_now(path: Path, taken: str, setting: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as stream:
            if not try_lock(stream.fileno(), path, setting):
                raise UserError(taken)
            if leads_to(path, stream.fileno()):  # else who had it has removed it in between
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
