"""Retries for storage that fails for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from seq2sweep.errors import NO_RIGHT, NO_ROOM

T = TypeVar("T")


PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds between the tries: two minutes in all, as a file server takes to start again."""


def with_retries(work: Callable[[], T], pauses: Sequence[float] = PAUSES) -> T:
    """Do what storage may refuse for a while, again after each pause.

    `work` must be safe to repeat. A full disk or a missing right is raised at once, as waiting
    mends neither, and so is an error without a number, which is not the storage's; another OSError
    when the last try has failed as well.
    """
    for pause in pauses:
        try:
            return work()
        except OSError as error:
            if error.errno is None or error.errno in NO_ROOM + NO_RIGHT:
                raise
        time.sleep(pause)
    return work()
