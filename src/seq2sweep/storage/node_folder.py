"""A node's own folder for what belongs into a bucket; no other user can read it."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from seq2sweep.errors import UserError


def user_folder() -> Path:
    """This user's folder on this node, made if it is missing. Raises UserError if others enter it.

    It lies in the folder for temporary files ($TMPDIR).
    """
    root = Path(tempfile.gettempdir()) / f"seq2sweep-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(
            f"{root} must be a folder of this user that nobody else can enter: remove it, or set "
            "TMPDIR to another disk before Ray starts there"
        )
    return root


def node_folder(address: str) -> Path:
    """This node's folder for an address, made if it is missing: always the same for the same user.

    It lies in `user_folder`.
    """
    folder = user_folder() / hashlib.sha256(address.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder
