"""A process beside the driver that ends its local Ray, also when the driver had no time to.

Whoever is killed by SIGKILL cannot clean up, and Ray's workers and agents would live on for up to
minutes, hold CPUs and write. So each local Ray has a reaper, which sleeps until the driver lets go
of a pipe: at the end of its session, or because it died. This file is run as a program: it
imports neither ray nor the package, and is up in a moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

MARK = "SEQ2SWEEP_RAY"
"""Variable of every process of a session; it names the session's folder."""

GIVE_UP_SECONDS = 60.0
LOOK_SECONDS = 0.05


def start(folder: str) -> subprocess.Popen[bytes]:
    """A reaper for the session in `folder`; to be started before anything that it shall end."""
    # Its own session: a Ctrl-C or a closed terminal is for the driver to answer.
    return subprocess.Popen(
        [sys.executable, "-P", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish(started: subprocess.Popen[bytes], folder: str) -> None:
    """Have the session in `folder` ended now, and wait until it is: here, if the reaper died."""
    started.communicate()
    if started.returncode != 0:
        end(folder)


def processes(folder: str) -> list[Any]:
    """The live processes (psutil's) of the session in `folder`."""
    return [process for process in psutil.process_iter() if _belongs(process, folder)]


def end(folder: str) -> None:
    """Kill the processes of a session, and remove its folder."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    # Again until there is none: the first look may miss what Ray is about to start.
    while (found := processes(folder)) and time.monotonic() < give_up:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # Not psutil's wait: one whose parent never asks for its status stays a zombie.
        time.sleep(LOOK_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def _belongs(process: Any, folder: str) -> bool:
    if process.pid in (os.getpid(), os.getppid()):
        return False
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        environment = process.environ()
        if environment:
            return bool(environment.get(MARK) == folder)
        # Ray's agents write their title over their environment; all of Ray's have a log open.
        place = Path(folder).resolve()
        return any(Path(file.path).is_relative_to(place) for file in process.open_files())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


if __name__ == "__main__":
    sys.stdin.read()
    end(sys.argv[1])
