"""Storage that fails for a while."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from seq2sweep.errors import OperationalError
from seq2sweep.storage import retry
from seq2sweep.storage.retry import storage_serves, with_retries


class Failing:
    """Raises errors with these numbers, one a call, then does its work."""

    def __init__(self, work: Callable[[], object], *numbers: int) -> None:
        self.work, self.numbers, self.calls = work, list(numbers), 0

    def __call__(self) -> object:
        self.calls += 1
        if self.numbers:
            number = self.numbers.pop(0)
            raise OSError(number, os.strerror(number))
        return self.work()


def test_storage_that_fails_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0, 0, 0))
    work = Failing(lambda: "done", errno.EIO, errno.ESTALE, errno.ENOENT)
    assert with_retries(work) == "done"
    assert work.calls == 4
    with pytest.raises(OSError, match="Stale") as caught:
        with_retries(Failing(lambda: "done", *[errno.EIO] * 3, errno.ESTALE))
    assert caught.value.errno == errno.ESTALE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_what_somebody_must_mend_is_not_waited_for(number: int) -> None:
    work = Failing(lambda: "done", number)
    with pytest.raises(OSError, match=r"\[Errno"):
        with_retries(work)
    assert work.calls == 1


def test_waiting_for_a_lock_in_vain_is_not_done_again() -> None:
    """only_writer's TimeoutError is an OSError, but none of the storage."""
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise TimeoutError("another worker holds the lock")

    with pytest.raises(TimeoutError, match="holds the lock"):
        with_retries(work)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.EACCES, "Permission denied", "/a"),
            r"s3://b cannot be used \(Permission den",
        ),
        (
            OSError(errno.ENOSPC, "No space left", "/a", None, "/c"),
            "no space left in /c: free some",
        ),
        (OSError(errno.ENOSPC, "No space left"), "no space left in s3://b: free some"),
        (TimeoutError("another worker holds the lock"), "another worker holds the lock$"),
    ],
)
def test_a_user_is_told_what_does_not_serve(error: OSError, told: str) -> None:
    def work() -> None:
        raise error

    with pytest.raises(OperationalError, match=f"^{told}") as caught:
        storage_serves(work, "s3://b", "run it again")
    assert str(caught.value).endswith(", and run it again") == (error.errno is not None)
