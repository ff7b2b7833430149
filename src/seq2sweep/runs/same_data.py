"""Whether a folder of encoded data still has the data that a run is of.

Whoever names a run by its data has verified these once. A worker that starts again, or a trial that
begins hours later, opens the folder by its path, and `dvc checkout` may have put others there.
"""

from __future__ import annotations

from pathlib import Path

from seq2sweep.data.bitext import read_training_header
from seq2sweep.errors import NodeError, UserError

CHANGES_NO_RESULT = "that data are those asked for"


def fingerprint_of(encoded: Path) -> str | None:
    """Of what training reads, as its headers have it; None where these are not there, or not whole,
    as for a moment while a folder is checked out. Raises OSError where the storage fails."""
    try:
        return str(read_training_header(encoded)["fingerprint"])
    except UserError:
        return None


def require_data(encoded: Path, wanted: str | None) -> None:
    """Raise NodeError where a folder has other data than `wanted`, a fingerprint; None: any will
    do. It is no fault of a trial: each one that begins would train on them.

    Raises UserError where the headers are not there, or cannot be read: that may be this node
    alone, or this moment, so that a trial is tried again.
    """
    if wanted is not None and read_training_header(encoded)["fingerprint"] != wanted:
        raise NodeError(
            f"{encoded} has changed since this began: check out the dvc.lock of then, and its data "
            "(`dvc checkout`)"
        )
