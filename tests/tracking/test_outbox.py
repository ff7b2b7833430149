"""What a stage says is on disk, whole, whatever happens to its process."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.config import ClusterConfig
from seq2sweep.errors import UserError
from seq2sweep.tracking import outbox, writer
from seq2sweep.tracking.outbox import RECORDS, Damaged, Outbox, outboxes, outboxes_folder
from seq2sweep.tracking.writer import Writer


def records(run: Writer) -> list[dict[str, Any]]:
    return [record.content for record in Outbox(run.folder).records()]


def last(run: Writer) -> dict[str, Any]:
    return records(run)[-1]


# --- what is recorded ----------------------------------------------------------------------------


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    with Writer(tmp_path, "a title", kind="sweep", params={"a": [1]}, tags={"b": "c"}) as run:
        run.log({"loss": 1.5}, 3, time=1000.0)
        run.tag({"best": "base"}, on_parent=True)
        run.dataset("phrasebook", "d" * 64, "train")
    start, params, log, tag, dataset, end = records(run)
    assert start["do"] == "start"
    assert start["title"] == "a title"
    assert start["key"].startswith(f"{run.name}.")
    assert start["tags"]["kind"] == "sweep"
    assert start["tags"]["b"] == "c"
    assert start["tags"]["process.id"] == str(os.getpid())
    assert params["values"] == {"a": "[1]"}
    assert (log["metrics"], log["step"], log["at"]) == ({"loss": 1.5}, 3, 1000.0)
    assert tag["on_parent"]
    assert dataset["digest"] == "d" * 36
    assert (end["do"], end["status"], end["error"]) == ("end", "FINISHED", None)


@pytest.mark.parametrize(
    ("error", "status", "tag"),
    [
        (ValueError("two\nlines"), "FAILED", "ValueError: two lines"),
        (KeyboardInterrupt(), "KILLED", None),
        (SystemExit(75), "KILLED", None),
    ],
)
def test_an_exception_ends_the_run_and_goes_on(
    tmp_path: Path, error: BaseException, status: str, tag: str | None
) -> None:
    def work() -> None:
        with run:
            raise error

    run = Writer(tmp_path, "t", kind="test")
    with pytest.raises(type(error)):
        work()
    assert (last(run)["status"], last(run)["error"]) == (status, tag)


def test_the_first_end_counts_and_records_may_follow(tmp_path: Path) -> None:
    with Writer(tmp_path, "t", kind="test") as run:
        run.finish("FAILED", "out of memory")
        run.log({"bleu": 1.0}, 1)
    assert [r["do"] for r in records(run)] == ["start", "end", "log"]
    assert records(run)[1]["status"] == "FAILED"
    with pytest.raises(ValueError, match="closed"):
        run.log({"bleu": 1.0}, 2)


def test_a_metric_must_be_a_number(tmp_path: Path) -> None:
    with Writer(tmp_path, "t", kind="test") as run:
        run.log({"loss": math.nan, "perplexity": math.inf}, 1)
        assert last(run)["metrics"] == {"loss": None, "perplexity": None}
        with pytest.raises(TypeError, match="metric loss must be a number, not 'high'"):
            run.log({"loss": "high"}, 1)  # type: ignore[dict-item]


def test_passwords_reach_no_file(tmp_path: Path) -> None:
    secret = "http://ada:hunter2@host:5000"

    def work() -> None:
        with Writer(tmp_path, "t", kind="t", params={"uri": secret}, tags={"uri": secret}) as run:
            run.params({"more": [secret]})
            run.tag({"uri": secret})
            raise ValueError(f"cannot reach {secret}")

    with pytest.raises(ValueError, match="cannot reach"):
        work()
    text = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert text.count("http://***@host:5000") == 5
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no room in {project}/runs.", "no room in ./runs."),
        ("'{project}' file://{project}/x, in {home}.", "'.' file://./x, in ~."),
        ("{project}2 {project}.old", "~/project2 ~/project.old"),
        ("/data{home}/x a{project} {home}s", "/data{home}/x a{project} {home}s"),
    ],
)
def test_folders_of_this_machine_are_relative_in_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    project = tmp_path / "ada" / "project"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project.parent))
    text, shown = (one.format(project=project, home=project.parent) for one in (text, shown))

    def work() -> None:
        with run:
            run.tag({"a": text})
            raise ValueError(text)

    run = Writer(tmp_path, "t", kind="t", tags={"a": text})
    with pytest.raises(ValueError, match=re.escape(text)):
        work()
    start, tag, end = records(run)
    assert start["tags"]["a"] == tag["tags"]["a"] == shown
    assert end["error"] == f"ValueError: {shown}"


@pytest.mark.parametrize("home", ["/", "~"])
def test_a_home_that_is_no_folder_of_its_own_is_replaced_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    with Writer(tmp_path, "t", kind="t", tags={"a": "/data / ~/x"}) as run:
        assert last(run)["tags"]["a"] == "/data / ~/x"


def test_files_are_kept_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "COPIED_BYTES", 10)
    small, big, folder = tmp_path / "small", tmp_path / "big", tmp_path / "folder"
    small.write_text("before")
    big.write_text("before, and long")
    folder.mkdir()
    (folder / "inside").write_text("before")
    (tmp_path / "link").symlink_to(big)
    with Writer(tmp_path / "runs", "t", kind="test") as run:
        run.artifact(small)
        run.artifact(big, "reports")
        run.artifact(folder)
        run.artifact(tmp_path / "link")
        kept = [run.folder / r["files"][0] for r in records(run) if r["do"] == "artifact"]
    small.write_text("after")  # in place
    big.unlink()  # replaced, as stages do
    big.write_text("after")
    (folder / "inside").write_text("after")
    assert [path.name for path in kept] == ["small", "big", "folder", "link"]
    assert kept[0].read_text() == "before"
    assert kept[1].read_text() == "before, and long"
    assert (kept[2] / "inside").read_text() == "before"
    assert kept[3].read_text() == "before, and long"
    assert kept[1].samefile(kept[3])  # no second copy of weights
    assert not kept[3].is_symlink()


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*args: Any) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(writer, "COPIED_BYTES", 0)
    monkeypatch.setattr(writer.os, "link", cannot)
    (tmp_path / "weights").write_text("bytes")
    with Writer(tmp_path / "runs", "t", kind="test") as run:
        run.artifact(tmp_path / "weights")
        assert (run.folder / last(run)["files"][0]).read_text() == "bytes"


def test_a_journal_is_followed_or_copied(tmp_path: Path) -> None:
    journal = tmp_path / "sweep" / "journal.jsonl"
    with Writer(tmp_path / "tracking", "t", kind="test") as run:
        run.curves(journal, copy=True)  # a trial that never came to a first line
        assert last(run)["do"] == "start"
        journal.parent.mkdir()
        journal.write_text("{}\n")
        run.curves(journal)
        assert (run.folder / last(run)["journal"]).samefile(journal)
        assert not Path(last(run)["journal"]).is_absolute()
        run.curves(journal, copy=True)
        assert not (run.folder / last(run)["journal"]).samefile(journal)


# --- going on ------------------------------------------------------------------------------------


def test_a_named_run_goes_on_under_its_key_or_anew(tmp_path: Path) -> None:
    keys = []
    for anew in (False, False, True, False):
        with Writer(tmp_path, "t", kind="experiment", name="train-1", anew=anew) as run:
            keys.append(run.key)
    first, second, third, fourth = keys
    assert first == second
    assert third == fourth != first
    assert [r["key"] for r in records(run) if r["do"] == "start"] == keys
    assert [box.name for box in outboxes(tmp_path)] == ["train-1"]


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    with Writer(tmp_path, "t", kind="experiment", name="train-1") as run:
        pass
    whole = (run.folder / RECORDS).read_bytes()
    (run.folder / RECORDS).write_bytes(whole + b'{"do": "log", "metr')
    assert len(records(run)) == 2  # a reader passes it over
    with Writer(tmp_path, "t", kind="experiment", name="train-1"):
        pass
    assert (run.folder / RECORDS).read_bytes().startswith(whole + b'{"do": "start"')
    assert len(records(run)) == 4


@pytest.mark.parametrize("line", [b"\xff\xfe", b"\0\0", b'{"do": "en', b"[]", b"3", b"{}"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    with Writer(tmp_path, "t", kind="test", name="train-1") as run:
        pass
    path = run.folder / RECORDS
    begin = path.stat().st_size
    path.write_bytes(path.read_bytes() + line + b"\n")
    damaged = rf"train-1/records\.jsonl is damaged at byte {begin}: remove that line"
    with pytest.raises(Damaged, match=damaged):
        Outbox(run.folder).records()
    with pytest.raises(UserError, match=damaged):
        Writer(tmp_path, "t", kind="test", name="train-1")


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_LOCK_SECONDS", 0.1)
    with (
        Writer(tmp_path, "t", kind="experiment", name="train-1") as run,
        pytest.raises(UserError, match=r"another process records in .*train-1"),
    ):
        Writer(tmp_path, "t", kind="experiment", name="train-1")
    assert len(records(run)) == 2


def test_oldest_first_and_leftovers_are_cleaned(tmp_path: Path) -> None:
    assert outboxes(tmp_path / "nothing") == []
    names = []
    for kind in ("z", "a", "m"):
        with Writer(tmp_path, "t", kind=kind) as run:
            names.append(run.name)
    (tmp_path / ".a-1.removed" / "files").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert [box.name for box in outboxes(tmp_path)] == names
    assert not (tmp_path / ".a-1.removed").exists()


def test_outboxes_are_on_this_machine(tmp_path: Path) -> None:
    assert outboxes_folder(_storage("s3://b/x"), tmp_path) == tmp_path / "runs" / "tracking"
    assert outboxes_folder(_storage("here"), tmp_path) == tmp_path / "here" / "tracking"
    assert outboxes_folder(_storage("runs"), tmp_path) == tmp_path / "runs" / "tracking"


def _storage(place: str) -> ClusterConfig:
    config = ClusterConfig.__new__(ClusterConfig)
    object.__setattr__(config, "storage", place)
    return config


# --- a process that dies -------------------------------------------------------------------------

DIES = """
import os, signal, sys
from pathlib import Path
from seq2sweep.tracking.writer import Writer
run = Writer(Path(sys.argv[1]), "t", kind="experiment", name="train-1")
run.log({"loss": 1.0}, 1)
if sys.argv[2] == "ended":
    run.finish()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("ended", "count"), [("", 3), ("ended", 3)])
def test_a_run_whose_process_died_is_ended_once(tmp_path: Path, ended: str, count: int) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path), ended]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        (box,) = outboxes(tmp_path)
        before = box.records()
        box.end_if_dead()
        assert box.records() == before  # it lives
        child.send_signal(signal.SIGKILL)
    with (box.folder / RECORDS).open("ab") as torn:
        torn.write(b'{"do": "log"')
    box.end_if_dead()
    box.end_if_dead()
    found = [record.content for record in box.records()]
    assert len(found) == count
    if ended:
        assert found[-1]["status"] == "FINISHED"
    else:
        assert found[-1]["status"] == "KILLED"
        assert found[-1]["closed"] == (
            f"its process {child.pid} was gone without having ended the run"
        )


# --- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_nothing_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(descriptor: int, line: bytes) -> int:
        return real(descriptor, line[:10])

    with Writer(tmp_path, "t", kind="test") as run:
        before = (run.folder / RECORDS).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(writer.os, "write", full)
            with pytest.raises(OSError, match=r"No space left on device: .*records\.jsonl"):
                run.log({"loss": 1.0}, 1)
        assert (run.folder / RECORDS).read_bytes() == before
        run.log({"loss": 1.0}, 1)
    assert [r["do"] for r in records(run)] == ["start", "log", "end"]


def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        Path(target).write_text("hal")
        raise OSError(errno.ENOSPC, "No space left on device", target)

    (tmp_path / "file").write_text("half of it")
    monkeypatch.setattr(writer.shutil, "copyfile", full)
    with Writer(tmp_path / "runs", "t", kind="test") as run:
        with pytest.raises(OSError, match="No space left"):
            run.artifact(tmp_path / "file")
        assert list((run.folder / "files").iterdir()) == []
    assert [r["do"] for r in records(run)] == ["start", "end"]


def test_an_end_that_cannot_be_recorded_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def work() -> None:
        with run:
            raise ValueError("the first error")

    run = Writer(tmp_path, "t", kind="test")
    monkeypatch.setattr(writer.os, "write", full)
    with pytest.raises(ValueError, match="the first error") as caught:
        work()
    assert "could not be recorded: [Errno 28]" in caught.value.__notes__[0]
    with pytest.raises(OSError, match="No space left"):
        Writer(tmp_path, "t", kind="experiment", name="train-1")
    monkeypatch.undo()
    # The lock of the one that failed is free.
    with contextlib.closing(Writer(tmp_path, "t", kind="experiment", name="train-1")):
        pass


def test_recording_needs_neither_mlflow_nor_ray(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from seq2sweep.tracking.writer import Writer\n"
        "with Writer(Path(sys.argv[1]), 't', kind='test') as run: run.log({'loss': 1.0}, 1)\n"
        "print([name for name in ('mlflow', 'ray', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == []
