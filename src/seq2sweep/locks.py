"""Locks of files: held by an open descriptor, and gone with the process however that ends."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "who waits for whom"

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
