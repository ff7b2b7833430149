"""What is printed of an error, and which status it ends with."""

from __future__ import annotations

import errno
import os
from unittest.mock import Mock

import pytest

from seq2sweep.errors import OperationalError, UserError, ending


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ENOENT, 2),
        (errno.ELOOP, 2),
        (errno.ENOTDIR, 2),
        (errno.EISDIR, 2),
        (errno.ENAMETOOLONG, 2),
        (errno.EACCES, 2),
        (errno.EROFS, 2),
        (errno.ENOSPC, 1),
        (errno.EIO, 1),
    ],
)
def test_a_path_is_the_users_and_a_broken_disk_is_a_failure(number: int, status: int) -> None:
    line, found = ending(OSError(number, os.strerror(number), "a\nb" * 2000))
    assert found == status
    assert "\n" not in line
    assert len(line) < 600
    assert os.strerror(number) in line


def test_an_error_without_a_path_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(OSError(errno.ENOENT, "gone"))[1] == 1
    assert ending(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))[1] == 1
    assert "in /" in ending(OSError(errno.ENOSPC, "full"))[0]
    with monkeypatch.context() as patch:  # of a folder that was removed
        patch.setattr(os, "getcwd", Mock(side_effect=FileNotFoundError))
        assert ending(ConnectionRefusedError(111, "refused")) == ("refused; run it again", 1)
    assert "or where the output goes)" in ending(OSError(errno.ENOSPC, "full"))[0]


def test_of_a_copy_the_disk_that_is_full_is_named() -> None:
    full = OSError(errno.ENOSPC, "full", "/large/weights", None, "/small/weights")
    assert ending(full) == ("full: /small/weights; make room there and run it again", 1)
    gone = OSError(errno.ENOENT, "gone", "/large/weights", None, "/small/weights")
    assert "gone: /large/weights; " in ending(gone)[0]


def test_lines_are_those_that_are_meant() -> None:
    assert ending(OperationalError("a\nb")) == ("a\\nb", 1)
    listed = UserError("one:\n  \x1b[31m")
    assert ending(listed) == ("one:\\n  \\x1b[31m", 2)
    listed.lines = True
    assert ending(listed) == ("one:\n  \\x1b[31m", 2)
