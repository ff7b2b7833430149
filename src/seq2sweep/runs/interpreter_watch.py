"""A process beside a worker that ends it where its interpreter has stopped.

Who holds the interpreter lock and does not let go stops every thread of Python, the watchdog's as
well. This counts its own sleeps since it last heard of the watchdog. A suspension of both, as by
`scontrol suspend`, `docker pause` or Ctrl-Z, is one sleep, however long: a timer inside of the
worker would have run on, and ended it before a thread of Python could set it again. This file is
run as a program: it imports neither the package nor what takes a moment.
"""

from __future__ import annotations

import os
import select
import signal
import sys

CHANGES_NO_RESULT = "how a hang is noticed"

SIGNAL = signal.SIGALRM
"""Asks the worker for its stacks, and ends it: nobody else sends it."""
HELD_BACK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""To be blocked where this is started: they go to the whole group, and a worker that hears them may
take a while to save."""
WORDS = 16
"""Bytes of a message: in how many seconds another one comes at the latest, as text."""
TIMEOUT = "Timeout: the interpreter lock was not let go!\n"


def watch(parent: int, tick: float, left: float) -> None:
    """Read messages from standard input, and end the parent when none comes in time.

    parent: its process id; tick: seconds that one sleep counts; left: seconds until the first
    message at the latest. Returns when the parent has ended, or closed its end. TIMEOUT goes to
    standard output, the parent's hang log.
    """
    while os.getppid() == parent:
        if select.select([0], [], [], tick)[0]:
            said = os.read(0, WORDS)
            if not said:
                return
            left = float(said)
        elif (left := left - tick) <= 0:
            try:
                os.write(1, TIMEOUT.encode())
            finally:  # a full disk is no reason to hang
                os.kill(parent, SIGNAL)
            return


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
