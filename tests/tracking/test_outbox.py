"""What is in an outbox is whole, whatever happens to its process and its disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.config import ClusterConfig
from seq2sweep.errors import UserError
from seq2sweep.tracking import recorder
from seq2sweep.tracking.outbox import RECORDS, DamagedRecordError, Outbox, outboxes, outboxes_folder
from seq2sweep.tracking.recorder import Recorder

JOURNAL = Path("train-1/journal.jsonl")
"""Of a training that never came to its first line."""


def records(run: Recorder) -> list[dict[str, Any]]:
    return [record.content for record in Outbox(run.folder).records()]


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    with Recorder(tmp_path, "t", kind="experiment", journal=JOURNAL) as run:
        pass
    whole = (run.folder / RECORDS).read_bytes()
    (run.folder / RECORDS).write_bytes(whole + b'{"do": "log", "metr')
    assert len(records(run)) == 2  # a reader passes it over
    with Recorder(tmp_path, "t", kind="experiment", journal=JOURNAL):
        pass
    assert (run.folder / RECORDS).read_bytes().startswith(whole + b'{"do": "start"')
    assert len(records(run)) == 4


@pytest.mark.parametrize("line", [b"\xff\xfe", b"\0\0", b'{"do": "en', b"[]", b"3", b"{}"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    with Recorder(tmp_path, "t", kind="test", journal=JOURNAL) as run:
        pass
    path = run.folder / RECORDS
    begin = path.stat().st_size
    path.write_bytes(path.read_bytes() + line + b"\n")
    damaged = rf"train-1/records\.jsonl is damaged at byte {begin}: remove that line"
    with pytest.raises(DamagedRecordError, match=damaged):
        Outbox(run.folder).records()
    with pytest.raises(UserError, match=damaged):
        Recorder(tmp_path, "t", kind="test", journal=JOURNAL)


def test_oldest_first_and_leftovers_are_cleaned(tmp_path: Path) -> None:
    assert outboxes(tmp_path / "nothing") == []
    names = []
    for kind in ("z", "a", "m"):
        with Recorder(tmp_path, "t", kind=kind) as run:
            names.append(run.name)
    (tmp_path / ".a-1.removed" / "files").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert [box.name for box in outboxes(tmp_path)] == names
    assert not (tmp_path / ".a-1.removed").exists()


def test_outboxes_are_on_this_machine(tmp_path: Path) -> None:
    assert outboxes_folder(_storage("s3://b/x"), tmp_path) == tmp_path / "runs" / "tracking"
    assert outboxes_folder(_storage("here"), tmp_path) == tmp_path / "here" / "tracking"
    assert outboxes_folder(_storage("runs"), tmp_path) == tmp_path / "runs" / "tracking"


def test_none_are_made_where_a_disk_is_not_mounted(tmp_path: Path) -> None:
    """Below that place a sweep would train everything anew; `run_folder` comes later, and in
    `evaluate` and `sync` not at all."""
    disk = tmp_path / "disk"
    (tmp_path / "runs").symlink_to(disk / "mine")
    with pytest.raises(UserError, match=f"runs leads to {disk}/mine, which is not there: mount"):
        outboxes_folder(_storage("runs"), tmp_path)
    (disk / "mine").mkdir(parents=True)
    assert outboxes_folder(_storage("runs"), tmp_path) == disk / "mine" / "tracking"


def _storage(place: str) -> ClusterConfig:
    config = ClusterConfig.__new__(ClusterConfig)
    object.__setattr__(config, "storage", place)
    return config


# --- a process that dies -------------------------------------------------------------------------

DIES = """
import os, signal, sys
from pathlib import Path
from seq2sweep.tracking.recorder import Recorder
died, ended = (
    Recorder(Path(folder), "t", kind="experiment", journal=Path("train-1/journal.jsonl"))
    for folder in sys.argv[1:]
)
for run in (died, ended):
    run.log({"loss": 1.0}, 1)
ended.finish()
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_run_whose_process_died_is_ended_once(tmp_path: Path) -> None:
    folders = [tmp_path / "died", tmp_path / "ended"]
    command = [sys.executable, "-c", DIES, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        boxes = [box for folder in folders for box in outboxes(folder)]
        before = [box.records() for box in boxes]
        for box in boxes:
            box.end_if_dead()
        assert [box.records() for box in boxes] == before  # it lives
        child.send_signal(signal.SIGKILL)
    for box in boxes:
        with (box.folder / RECORDS).open("ab") as torn:
            torn.write(b'{"do": "log"')
        box.end_if_dead()
        box.end_if_dead()
    died, ended = ([record.content for record in box.records()] for box in boxes)
    assert len(died) == len(ended) == 3
    assert ended[-1]["status"] == "finished"
    assert died[-1]["status"] == "interrupted"
    assert died[-1]["error"] == f"its process {child.pid} was gone without having ended the run"


def test_a_full_disk_is_said_and_nothing_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(descriptor: int, line: bytes) -> int:
        return real(descriptor, line[:10])

    with Recorder(tmp_path, "t", kind="test") as run:
        before = (run.folder / RECORDS).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(recorder.os, "write", full)
            with pytest.raises(OSError, match=r"No space left on device: .*records\.jsonl"):
                run.log({"loss": 1.0}, 1)
        assert (run.folder / RECORDS).read_bytes() == before
        run.log({"loss": 1.0}, 1)
    assert [r["do"] for r in records(run)] == ["start", "log", "end"]
