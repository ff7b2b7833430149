"""A session is ended also where its reaper cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from seq2sweep.cluster import reaper


def test_a_session_whose_reaper_was_killed_is_ended_by_its_driver(tmp_path: Path) -> None:
    folder = tmp_path / "s2s"
    (folder / "r").mkdir(parents=True)
    watching = reaper.start(str(folder))
    waits = [sys.executable, "-c", "input()"]
    marked = os.environ | {reaper.MARK: str(folder)}
    with subprocess.Popen(waits, env=marked, stdin=subprocess.PIPE) as child:
        watching.kill()
        reaper.finish(watching, str(folder))
        assert child.poll() == -signal.SIGKILL
    assert not folder.exists()
