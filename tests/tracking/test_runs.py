"""Runs are nested, filled, resumed and always ended."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.tracking.runs import Run, Tracker, resolve_uri
from seq2sweep.tracking.store import LONGEST_PARAM, LONGEST_TAG, redact

Stored = Callable[[str], Any]


def history(run: Run, key: str) -> list[tuple[int, float, int]]:
    return [(e.step, e.value, e.timestamp) for e in run.client.get_metric_history(run.id, key)]


# --- where ---------------------------------------------------------------------------------------


def test_uri_of_configuration_wins_over_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment:5000")
    assert resolve_uri(TrackingConfig("http://here:1", "e"), tmp_path) == "http://here:1"
    assert resolve_uri(TrackingConfig(None, "e"), tmp_path) == "http://environment:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri(TrackingConfig(None, "e"), tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


def test_relative_sqlite_paths_become_absolute(tmp_path: Path) -> None:
    relative = resolve_uri(TrackingConfig("sqlite:///runs/x.db", "e"), tmp_path)
    assert relative == f"sqlite:///{tmp_path}/runs/x.db"
    absolute = "sqlite:////somewhere/x.db"
    assert resolve_uri(TrackingConfig(absolute, "e"), tmp_path) == absolute


@pytest.mark.parametrize("uri", ["mlruns", "file:///tmp/mlruns", "localhost:5000"])
def test_uri_that_is_no_store_is_a_user_error(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri must be a database or a server"):
        resolve_uri(TrackingConfig(uri, "e"), tmp_path)


def test_unreachable_server_is_one_line_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError) as caught:
        Tracker(f"http://ada:hunter2@127.0.0.1:{port}", "tests", tmp_path)
    text = str(caught.value)
    assert "tracking.uri" in text
    assert f"127.0.0.1:{port}" in text
    assert "refused" in text
    assert "null" in text
    assert "\n" not in text
    assert "hunter2" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_file_that_is_no_database_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is a text file, long enough to be looked at" * 20)
    with pytest.raises(UserError, match=r"tracking\.uri: .*file is not a database.*read and write"):
        Tracker(f"sqlite:///{tmp_path}/mlflow.db", "tests", tmp_path)


def test_missing_database_driver_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri: .*load plugin") as caught:
        Tracker("mysql+nosuchdriver://ada:hunter2@host/db", "tests", tmp_path)
    assert "hunter2" not in str(caught.value)


def test_broken_database_is_a_user_error(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as half_made:
        half_made.execute("create table experiments (experiment_id integer)")
        half_made.commit()
    with pytest.raises(UserError, match=r"tracking\.uri: .*mlflow\.db.*move it away"):
        Tracker(f"sqlite:///{tmp_path}/mlflow.db", "tests", tmp_path)


def test_processes_that_make_the_store_together(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from seq2sweep.tracking.runs import Tracker\n"
        "tracker = Tracker(sys.argv[1], 'tests', Path(sys.argv[2]))\n"
        "with tracker.start('a', kind='test') as run: run.log({'loss': 1.0}, 1)\n"
    )
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    command = [sys.executable, "-c", program, uri, str(tmp_path / "artifacts")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [child.communicate()[1] for child in children] == ["", ""]
    runs = Tracker(uri, "tests", tmp_path / "artifacts")
    found = runs.client.search_runs([runs.experiment_id])
    assert [run.info.status for run in found] == ["FINISHED", "FINISHED"]
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_experiment_is_made_once_and_found_again(tracker: Tracker, folder: Path) -> None:
    again = Tracker(tracker.uri, "tests", folder / "elsewhere")
    assert again.experiment_id == tracker.experiment_id
    location = tracker.client.get_experiment(tracker.experiment_id).artifact_location
    assert location == (folder / "artifacts").as_uri()


def test_deleted_experiment_is_a_user_error(tracker: Tracker, folder: Path) -> None:
    gone = Tracker(tracker.uri, "gone", folder / "artifacts")
    tracker.client.delete_experiment(gone.experiment_id)
    with pytest.raises(UserError, match=r"tracking\.experiment: 'gone' was deleted.*restore"):
        Tracker(tracker.uri, "gone", folder / "artifacts")


def test_nothing_is_written_into_the_working_folder(
    uri: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Tracker(uri, "tests", folder / "artifacts").start("elsewhere", kind="test") as run:
        run.log({"loss": 1.0}, 1)
        (folder / "note.txt").write_text("hello")
        run.artifact(folder / "note.txt")
    assert list(tmp_path.iterdir()) == []


def test_mlflow_is_silent(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from seq2sweep.tracking.runs import Tracker\n"
        "folder = Path(sys.argv[1])\n"
        "tracker = Tracker(f'sqlite:///{folder}/new/mlflow.db', 'first', folder)\n"
        "with tracker.start('a', kind='test') as run: run.log({'loss': 1.0}, 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "new" / "mlflow.db").is_file()


# --- what ----------------------------------------------------------------------------------------


def test_children_nest_under_their_parent(tracker: Tracker, stored: Stored) -> None:
    with (
        tracker.start("sweep", kind="sweep") as parent,
        tracker.start("heads=8", kind="trial", parent=parent.id) as child,
    ):
        pass
    found = tracker.client.search_runs(
        [tracker.experiment_id], filter_string=f"tags.`mlflow.parentRunId` = '{parent.id}'"
    )
    assert [run.info.run_id for run in found] == [child.id]
    assert found[0].info.run_name == "heads=8"
    assert found[0].data.tags["kind"] == "trial"
    assert "mlflow.parentRunId" not in stored(parent.id).data.tags


def test_parameters_of_a_whole_configuration(
    tracker: Tracker, stored: Stored, example: configuration.Config
) -> None:
    values = configuration.flatten(example)
    with tracker.start("all", kind="test", params=values) as run:
        pass
    params = stored(run.id).data.params
    assert params.keys() == values.keys()
    assert params["model.heads"] == "4"
    assert params["prepare.lowercase"] == "false"
    assert params["tracking.uri"] == "null"
    assert params["data.dataset"] == "phrasebook"


def test_many_and_long_parameters(tracker: Tracker, stored: Stored) -> None:
    values = {f"a.key{i}": i for i in range(250)} | {"long": "x" * 10_000}
    with tracker.start("many", kind="test", params=values) as run:
        run.params(values)
    params = stored(run.id).data.params
    assert len(params) == 251
    assert params["a.key249"] == "249"
    assert len(params["long"]) == LONGEST_PARAM
    assert params["long"].endswith("xxx... [cut, 10000 characters in all]")


def test_parameter_may_not_change(run: Run, stored: Stored) -> None:
    run.params({"model.heads": 8})
    with pytest.raises(Exception, match="Changing param values"):
        run.params({"model.heads": 4})
    assert stored(run.id).data.params == {"model.heads": "8"}
    run.finish()


def test_start_that_fails_leaves_no_running_run(tracker: Tracker) -> None:
    with pytest.raises(Exception, match=r"bad/\.\./key"):
        tracker.start("bad-start", kind="test", params={"bad/../key": 1})
    found = tracker.client.search_runs(
        [tracker.experiment_id], filter_string="attributes.run_name = 'bad-start'"
    )
    assert [run.info.status for run in found] == ["FAILED"]


def test_long_tags_are_cut_with_a_note(run: Run, stored: Stored) -> None:
    run.tag({"long": "y" * 9000, "short": "z"})
    run.finish()
    tags = stored(run.id).data.tags
    assert len(tags["long"]) == LONGEST_TAG
    assert tags["long"].endswith("[cut, 9000 characters in all]")
    assert tags["short"] == "z"


def test_points_keep_step_and_time(run: Run) -> None:
    run.log({"loss": 2.5, "perplexity": 12.0}, 10, time=1_700_000_000.25)
    run.log({"loss": 2.0}, 20, time=1_700_000_001.0)
    run.finish()
    assert history(run, "loss") == [(10, 2.5, 1_700_000_000_250), (20, 2.0, 1_700_000_001_000)]
    assert history(run, "perplexity") == [(10, 12.0, 1_700_000_000_250)]
    assert run.last_step(["loss", "perplexity"]) == 20
    assert run.last_step(["nothing"]) is None


def test_many_points_in_few_batches(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    send = run.client.log_batch

    def counted(*args: Any, **kwargs: Any) -> None:
        sizes.append([metric.step for metric in kwargs["metrics"]])
        send(*args, **kwargs)

    monkeypatch.setattr(run.client, "log_batch", counted)
    run.log_many([(float(i), i, {"a": i, "b": 2 * i, "c": 3 * i}) for i in range(700)])
    run.finish()
    # 2100 metrics; a point's three are never in two batches.
    assert [len(steps) for steps in sizes] == [999, 999, 102]
    assert all(steps.count(step) == 3 for steps in sizes for step in steps)
    assert [entry[:2] for entry in history(run, "c")] == [(i, 3.0 * i) for i in range(700)]


def test_same_point_twice_is_stored_once(run: Run) -> None:
    points = [(float(i), i, {"loss": 1.0 / (i + 1)}) for i in range(5)]
    run.log_many(points)
    run.log_many(points)
    run.finish()
    assert [entry[0] for entry in history(run, "loss")] == [0, 1, 2, 3, 4]


def test_numbers_that_are_not_finite(run: Run, stored: Stored) -> None:
    run.log({"loss": 1.0, "perplexity": math.inf}, 1)
    run.log({"loss": math.nan}, 2)
    run.log({"loss": 3.0}, 3)
    run.finish()
    assert history(run, "perplexity") == []
    assert [entry[:2] for entry in history(run, "loss")] == [(1, 1.0), (3, 3.0)]
    assert stored(run.id).data.tags["non_finite"] == "perplexity at step 1"


def test_metric_must_be_a_number(run: Run) -> None:
    with pytest.raises(TypeError, match="metric loss must be a number, not 'high'"):
        run.log({"loss": "high"}, 1)  # type: ignore[dict-item]
    run.finish()


def test_files_and_folders(run: Run, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "table3.md").write_text("| a |")
    (tmp_path / "params.yaml").write_text("model: {}")
    run.artifact(tmp_path / "params.yaml")
    run.artifact(tmp_path / "reports", "all")
    run.finish()
    assert [f.path for f in run.client.list_artifacts(run.id)] == ["all", "params.yaml"]
    found = [f.path for f in run.client.list_artifacts(run.id, "all/reports")]
    assert found == ["all/reports/table3.md"]


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "tag"),
    [
        (None, "FINISHED", None),
        (ValueError("two\nlines"), "FAILED", "ValueError: two lines"),
        (KeyboardInterrupt(), "KILLED", None),
        (SystemExit(75), "KILLED", None),
    ],
)
def test_context_manager_ends_the_run(
    tracker: Tracker,
    stored: Stored,
    error: BaseException | None,
    status: str,
    tag: str | None,
) -> None:
    def work() -> None:
        with run:
            if error is not None:
                raise error

    run = tracker.start("ends", kind="test")
    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    ended = stored(run.id)
    assert ended.info.status == status
    assert ended.info.end_time >= ended.info.start_time
    assert ended.data.tags.get("error") == tag


def test_first_end_counts(run: Run, stored: Stored) -> None:
    with run:
        run.finish("FAILED")
        run.finish("FINISHED")
    assert stored(run.id).info.status == "FAILED"


def test_store_failing_at_the_end_does_not_hide_the_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("http://ada:hunter2@host is away")

    def work() -> None:
        with run:
            raise ValueError("the first error")

    monkeypatch.setattr(run.client, "set_terminated", fail)
    with pytest.raises(ValueError, match="the first error") as caught:
        work()
    assert caught.value.__notes__ == [
        f"the MLflow run {run.id} could not be ended: http://***@host is away"
    ]
    monkeypatch.undo()
    run.finish()


# --- going on ------------------------------------------------------------------------------------


def test_resume_sets_running_and_clears_the_error(tracker: Tracker, stored: Stored) -> None:
    def work() -> None:
        with run:
            run.log({"loss": 2.0}, 1)
            raise ValueError("first try")

    params = {"model.heads": 4}
    run = tracker.start("again", kind="train", params=params)
    with pytest.raises(ValueError, match="first try"):
        work()
    resumed = tracker.resume(run.id)
    assert resumed is not None
    resumed.params(params)
    running = stored(run.id)
    assert running.info.status == "RUNNING"
    assert "error" not in running.data.tags
    with resumed:
        resumed.log({"loss": 1.0}, 2)
    assert stored(run.id).info.status == "FINISHED"
    assert [entry[:2] for entry in history(run, "loss")] == [(1, 2.0), (2, 1.0)]


def test_resume_of_what_is_not_there(tracker: Tracker, folder: Path) -> None:
    assert tracker.resume("0" * 32) is None
    with tracker.start("deleted", kind="test") as run:
        pass
    tracker.client.delete_run(run.id)
    assert tracker.resume(run.id) is None
    other = Tracker(tracker.uri, "other", folder / "artifacts")
    with other.start("elsewhere", kind="test") as stranger:
        pass
    assert tracker.resume(stranger.id) is None


def test_killed_process_is_noticed_and_living_ones_left_alone(
    tracker: Tracker, folder: Path, stored: Stored
) -> None:
    program = (
        "import sys, time; from pathlib import Path; from seq2sweep.tracking.runs import Tracker\n"
        "run = Tracker(sys.argv[1], 'tests', Path(sys.argv[2])).start('doomed', kind='test')\n"
        "print(run.id, flush=True); time.sleep(300)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, tracker.uri, str(folder / "artifacts")],
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        doomed = child.stdout.readline().strip()
        living = tracker.start("living", kind="test")
        assert tracker.close_dead_runs() == []
        assert stored(doomed).info.status == "RUNNING"
        child.send_signal(signal.SIGKILL)
    assert tracker.close_dead_runs() == [doomed]
    assert stored(doomed).info.status == "KILLED"
    assert f"process {child.pid} was gone" in stored(doomed).data.tags["closed"]
    assert stored(living.id).info.status == "RUNNING"
    living.finish()
    resumed = tracker.resume(doomed)
    assert resumed is not None
    assert "closed" not in stored(doomed).data.tags
    assert stored(doomed).data.tags["process.id"] == str(os.getpid())
    resumed.finish()


def test_process_number_used_again_is_not_alive(tracker: Tracker, stored: Stored) -> None:
    recycled = tracker.start("recycled", kind="test")
    started = float(stored(recycled.id).data.tags["process.started"])
    recycled.tag({"process.started": f"{started - 3600:.2f}"})
    elsewhere = tracker.start("elsewhere", kind="test")
    elsewhere.tag({"process.host": "another-host", "process.id": "999999999"})
    assert tracker.close_dead_runs() == [recycled.id]
    assert stored(elsewhere.id).info.status == "RUNNING"
    elsewhere.finish()


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://ada:hunter2@host:5000/x", "http://***@host:5000/x"),
        ("postgresql://ada:hu@nter2@host/db failed", "postgresql://***@host/db failed"),
        ("http://host/x?api_token=hunter2&step=3", "http://host/x?api_token=***&step=3"),
        ("sqlite:////project/mlflow.db", "sqlite:////project/mlflow.db"),
        ("mail ada@host, see http://host/a@b", "mail ada@host, see http://host/a@b"),
    ],
)
def test_redact(text: str, masked: str) -> None:
    assert redact(text) == masked


def test_passwords_reach_no_tag_or_parameter(tracker: Tracker, stored: Stored) -> None:
    secret = "http://ada:hunter2@host:5000"

    def work() -> None:
        with tracker.start("s", kind="t", params={"uri": secret}, tags={"uri": secret}) as run:
            started.append(run.id)
            raise ValueError(f"cannot reach {secret}")

    started: list[str] = []
    with pytest.raises(ValueError, match="cannot reach"):
        work()
    data = stored(started[0]).data
    assert data.tags["error"] == "ValueError: cannot reach http://***@host:5000"
    assert "hunter2" not in repr(data.tags) + repr(data.params)
