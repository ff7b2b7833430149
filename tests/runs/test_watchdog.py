"""Workers that hang end themselves."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

from seq2sweep.runs.watchdog import Watchdog


def _hang(log: Path, feeds: int) -> None:
    with Watchdog(0.5, log):
        pass
    time.sleep(1.0)  # one that is left bites nobody
    with Watchdog(1.5, log) as watchdog:
        for count in range(1, feeds + 1):
            time.sleep(0.3)
            watchdog.feed()
            log.with_name("fed").write_text(str(count))
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def test_a_process_that_hangs_ends_itself_then_and_says_where(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_hang, args=(tmp_path / "hang.log", 6)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 1
    assert (tmp_path / "fed").read_text() == "6"
    said = (tmp_path / "hang.log").read_text()
    assert "Timeout" in said
    assert "in _hang" in said


def test_what_a_watchdog_has_said_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "hang-0.log"
    for said in ("first", "second"):
        log.write_text(said)
        with Watchdog(1000, log):
            assert log.read_text() == ""
    with Watchdog(1000, log):
        pass  # that of one who had nothing to say is used again
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "hang-0.log": "",
        "hang-0.1.log": "first",
        "hang-0.2.log": "second",
    }
