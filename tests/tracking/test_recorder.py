"""What a stage records is on disk when a call returns, as MLflow takes it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from seq2sweep import config as configuration
from seq2sweep.errors import UserError
from seq2sweep.tracking import outbox, recorder
from seq2sweep.tracking.outbox import Outbox, outboxes
from seq2sweep.tracking.recorder import LONGEST_PARAM, LONGEST_TAG, Recorder


def records(run: Recorder) -> list[dict[str, Any]]:
    return [record.content for record in Outbox(run.folder).records()]


def last(run: Recorder) -> dict[str, Any]:
    return records(run)[-1]


# --- what is recorded ----------------------------------------------------------------------------


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    with Recorder(tmp_path, "a title", kind="sweep", params={"a": [1]}, tags={"b": "c"}) as run:
        run.log({"loss": 1.5}, 3)
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
    assert (log["metrics"], log["step"]) == ({"loss": 1.5}, 3)
    assert start["time"] <= log["time"] <= end["time"]
    assert tag["on_parent"]
    assert dataset["digest"] == "d" * 36
    assert (end["do"], end["status"], end["error"]) == ("end", "finished", None)


@pytest.mark.parametrize(
    ("error", "status", "tag"),
    [
        (ValueError("two\nlines"), "failed", "ValueError: two lines"),
        (KeyboardInterrupt(), "interrupted", None),
        (SystemExit(75), "interrupted", None),
    ],
)
def test_an_exception_ends_the_run_and_goes_on(
    tmp_path: Path, error: BaseException, status: str, tag: str | None
) -> None:
    def work() -> None:
        with run:
            raise error

    run = Recorder(tmp_path, "t", kind="test")
    with pytest.raises(type(error)):
        work()
    assert (last(run)["status"], last(run)["error"]) == (status, tag)


def test_a_name_that_is_no_text_is_recorded_as_one(tmp_path: Path) -> None:
    """Half of a surrogate pair, as of a file's name that is no UTF-8, goes into no database."""
    run = Recorder(tmp_path, "t", kind="test", tags={"file": "größe \udcff"})
    with pytest.raises(OSError, match="lost"), run:
        raise OSError("lost /data/\udcff")
    start = Outbox(run.folder).last("start")
    assert start is not None
    assert start["tags"]["file"] == "größe ?"
    # Not a name by which something is found.
    (tmp_path / "r\udcff.txt").write_text("x")
    other = Recorder(tmp_path, "t", kind="test")
    other.artifact(tmp_path / "r\udcff.txt")
    assert all((other.folder / name).exists() for name in last(other)["files"])
    other.finish()
    assert last(run)["error"] == "OSError: lost /data/?"


def test_the_first_end_counts_and_records_may_follow(tmp_path: Path) -> None:
    with Recorder(tmp_path, "t", kind="test") as run:
        run.finish("failed", "out of memory")
        run.log({"bleu": 1.0}, 1)
    assert [r["do"] for r in records(run)] == ["start", "end", "log"]
    assert records(run)[1]["status"] == "failed"
    with pytest.raises(ValueError, match="closed"):
        run.log({"bleu": 1.0}, 2)


def test_a_metric_must_be_a_number(tmp_path: Path) -> None:
    with Recorder(tmp_path, "t", kind="test") as run:
        run.log({"loss": math.nan, "perplexity": math.inf}, 1)
        assert last(run)["metrics"] == {"loss": None, "perplexity": None}
        with pytest.raises(TypeError, match="metric loss must be a number, not 'high'"):
            run.log({"loss": "high"}, 1)  # type: ignore[dict-item]


def test_parameters_of_a_whole_configuration(tmp_path: Path, example: configuration.Config) -> None:
    values = configuration.flatten(example)
    with Recorder(tmp_path, "t", kind="test", params=values) as run:
        params = last(run)["values"]
    assert params.keys() == values.keys()
    assert params["model.heads"] == "4"
    assert params["prepare.lowercase"] == "false"
    assert params["tracking.uri"] == "null"
    assert params["data.dataset"] == "phrasebook"


def test_long_values_are_cut_with_a_note(tmp_path: Path) -> None:
    with Recorder(tmp_path, "t" * 300, kind="test", params={"long": "x" * 10_000}) as run:
        title, param = records(run)[0]["title"], last(run)["values"]["long"]
        run.tag({"long": "y" * 9000, "short": "z"})
        tags = last(run)["tags"]
        run.finish("failed", "e" * 9000)
        error = last(run)["error"]
    assert len(title) == 250  # as a database takes
    assert title.endswith("ttt... [cut, 300 characters in all]")
    assert len(param) == LONGEST_PARAM
    assert param.endswith("xxx... [cut, 10000 characters in all]")
    assert len(tags["long"]) == len(error) == LONGEST_TAG
    assert tags["long"].endswith("[cut, 9000 characters in all]")
    assert tags["short"] == "z"


def test_a_model_and_its_registration_are_as_mlflow_takes_them(tmp_path: Path) -> None:
    secret = "http://ada:hunter2@host"
    (tmp_path / "weights").write_text("bytes")
    with Recorder(tmp_path / "runs", "t", kind="test") as run:
        run.model(
            "m",
            files=[tmp_path / "weights"],
            params={"heads": 4, "uri": secret},
            metrics={"bleu": 27, "chrf": math.nan},
            dataset=("d", "f" * 64),
            tags={"server": secret},
        )
        model = last(run)
        run.register("m", "name", "alias", {"server": secret})
        registered = last(run)
    assert model["params"] == {"heads": "4", "uri": "http://***@host"}
    assert model["metrics"] == {"bleu": 27.0}
    assert model["dataset"] == ["d", "f" * 36]
    assert model["tags"] == registered["tags"] == {"server": "http://***@host"}


def test_passwords_reach_no_file(tmp_path: Path) -> None:
    secret = "http://ada:hunter2@host:5000"

    def work() -> None:
        with Recorder(
            tmp_path, "t", kind="t", params={"uri": [secret]}, tags={"uri": secret}
        ) as run:
            run.tag({"uri": secret})
            raise ValueError(f"cannot reach {secret}")

    with pytest.raises(ValueError, match="cannot reach"):
        work()
    text = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert text.count("http://***@host:5000") == 4
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

    run = Recorder(tmp_path, "t", kind="t", tags={"a": text})
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
    with Recorder(tmp_path, "t", kind="t", tags={"a": "/data / ~/x"}) as run:
        assert last(run)["tags"]["a"] == "/data / ~/x"


def test_files_are_kept_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "COPIED_BYTES", 10)
    small, big, folder = tmp_path / "small", tmp_path / "big", tmp_path / "folder"
    small.write_text("before")
    big.write_text("before, and long")
    folder.mkdir()
    (folder / "inside").write_text("before")
    (tmp_path / "link").symlink_to(big)
    with Recorder(tmp_path / "runs", "t", kind="test") as run:
        run.artifact(small)
        run.artifact(big)
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

    monkeypatch.setattr(outbox, "COPIED_BYTES", 0)
    monkeypatch.setattr(recorder.os, "link", cannot)
    (tmp_path / "weights").write_text("bytes")
    with Recorder(tmp_path / "runs", "t", kind="test") as run:
        run.artifact(tmp_path / "weights")
        assert (run.folder / last(run)["files"][0]).read_text() == "bytes"


def test_a_journal_is_followed_or_copied(tmp_path: Path) -> None:
    journal = tmp_path / "sweep" / "journal.jsonl"
    with Recorder(tmp_path / "tracking", "t", kind="test") as run:
        run.curves(journal)  # a trial that never came to a first line
        assert last(run)["do"] == "start"
        journal.parent.mkdir()
        journal.write_text("{}\n")
        run.curves(journal)
        (kept,) = last(run)["files"]
        assert not (run.folder / kept).samefile(journal)
        assert (run.folder / kept).read_text() == "{}\n"
    with Recorder(tmp_path / "tracking", "t", kind="test", journal=journal) as run:
        assert (run.folder / last(run)["journal"]).samefile(journal)
        assert not Path(last(run)["journal"]).is_absolute()


# --- going on ------------------------------------------------------------------------------------


def test_a_named_run_goes_on_under_its_key_or_anew(tmp_path: Path) -> None:
    keys, journal = [], tmp_path / "train-1" / "journal.jsonl"
    journal.parent.mkdir()
    for anew in (True, False, True, False):
        if anew:
            journal.unlink(missing_ok=True)
        with Recorder(tmp_path / "box", "t", kind="experiment", journal=journal) as run:
            keys.append(run.key)
            journal.touch()
    first, second, third, fourth = keys
    assert first == second
    assert third == fourth != first
    assert [r["key"] for r in records(run) if r["do"] == "start"] == keys
    assert [box.name for box in outboxes(tmp_path / "box")] == ["train-1"]


def test_a_finished_training_has_one_end(tmp_path: Path) -> None:
    """So that MLflow has one point of each metric, however often it is asked for again."""
    journal = tmp_path / "train-1" / "journal.jsonl"
    journal.parent.mkdir()
    with Recorder(tmp_path / "box", "t", kind="experiment", journal=journal) as run:
        journal.write_text('{"kind": "finished", "step": 1, "time": 5.0}\n')
        run.log({"flops": 1.0}, 1)
    log, end = records(run)[-2:]
    assert (log["time"], end["time"]) == (5.0, 5.0)
    with journal.open("a") as stream:  # its checkpoints were lost, and it was trained again
        stream.write('{"kind": "finished", "step": 1, "time": 7.0}\n')
    with Recorder(tmp_path / "box", "t", kind="experiment", journal=journal) as run:
        pass
    assert last(run)["time"] == 7.0
    with Recorder(tmp_path / "box", "t", kind="experiment", journal=journal) as run:
        run.finish("failed", "no room")
    assert last(run)["time"] > 5.0


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_LOCK_SECONDS", 0.1)
    journal = Path("train-1/journal.jsonl")
    with (
        Recorder(tmp_path, "t", kind="experiment", journal=journal) as run,
        pytest.raises(UserError, match=r"another process records in .*train-1"),
    ):
        Recorder(tmp_path, "t", kind="experiment", journal=journal)
    assert len(records(run)) == 2


# --- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        Path(target).write_text("hal")
        raise OSError(errno.ENOSPC, "No space left on device", target)

    (tmp_path / "file").write_text("half of it")
    monkeypatch.setattr(outbox.shutil, "copyfile", full)
    with Recorder(tmp_path / "runs", "t", kind="test") as run:
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

    run, journal = Recorder(tmp_path, "t", kind="test"), Path("train-1/journal.jsonl")
    monkeypatch.setattr(recorder.os, "write", full)
    with pytest.raises(ValueError, match="the first error") as caught:
        work()
    assert "could not be recorded: [Errno 28]" in caught.value.__notes__[0]
    with pytest.raises(OSError, match="No space left"):
        Recorder(tmp_path, "t", kind="experiment", journal=journal)
    monkeypatch.undo()
    # The lock of the one that failed is free.
    with contextlib.closing(Recorder(tmp_path, "t", kind="experiment", journal=journal)):
        pass


def test_recording_needs_neither_mlflow_nor_ray(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from seq2sweep.tracking.recorder import Recorder\n"
        "with Recorder(Path(sys.argv[1]), 't', kind='test') as run: run.log({'loss': 1.0}, 1)\n"
        "print([name for name in ('mlflow', 'ray', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_a_full_folder_for_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage ends with the error, and the project's own disk would be told as full."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with Recorder(tmp_path, "t", kind="experiment") as run:
        monkeypatch.setattr(Path, "write_text", Mock(side_effect=full))
        with pytest.raises(OSError, match="No space left") as caught:
            run.text("environment.txt", "torch")
    assert caught.value.filename == tempfile.gettempdir()
