"""The store is opened, made if missing, and told of in one line if it cannot be used."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    BAD_REQUEST,
    INVALID_PARAMETER_VALUE,
    RESOURCE_DOES_NOT_EXIST,
)

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.redaction import redact
from seq2sweep.tracking import mlflow_store
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment, reason, refuses, resolve_uri
from tests.tracking.servers import free_port


def test_unreachable_server_is_one_line_without_its_password(
    tmp_path: Path,
) -> None:
    port = free_port()
    with pytest.raises(UserError) as caught:
        Experiment(f"http://ada:hunter2@127.0.0.1:{port}", "tests", tmp_path)
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
        Experiment(f"sqlite:///{tmp_path}/mlflow.db", "tests", tmp_path)


def test_missing_database_driver_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri: .*load plugin") as caught:
        Experiment("mysql+nosuchdriver://ada:hunter2@host/db", "tests", tmp_path)
    assert "hunter2" not in str(caught.value)


def test_broken_database_is_a_user_error(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as half_made:
        half_made.execute("create table experiments (experiment_id integer)")
        half_made.commit()
    with pytest.raises(UserError, match=r"tracking\.uri: .*mlflow\.db.*move it away"):
        Experiment(f"sqlite:///{tmp_path}/mlflow.db", "tests", tmp_path)


# Imports once; then a process for each run.
TOGETHER = """
import os, sys
from pathlib import Path
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment

children = []
for key in sys.argv[3:]:
    children.append(os.fork())
    if children[-1] == 0:
        experiment = Experiment(sys.argv[1], "tests", Path(sys.argv[2]))
        run = Run.begin(experiment, key, "a", started=1.0)
        run.log({"loss": 1.0}, 1, 1.0)
        run.end("finished", 2.0)
        sys.exit()
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_processes_that_make_the_store_together_say_nothing(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    # From Python 3.12 on it warns who forks beside threads, as libraries have them.
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]
    command = [*python, "-c", TOGETHER, uri, str(tmp_path / "artifacts"), "a.1", "a.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    runs = Experiment(uri, "tests", tmp_path / "artifacts")
    found = runs.search("")
    assert [run.info.status for run in found] == ["FINISHED", "FINISHED"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mlflow.db"]


def test_experiment_is_made_once_and_found_again(
    experiment: Experiment, uri: str, folder: Path
) -> None:
    again = Experiment(uri, "tests", folder / "elsewhere")
    assert again.id == experiment.id
    location = experiment.client.get_experiment(experiment.id).artifact_location
    assert location == (folder / "artifacts").as_uri()


def test_files_that_go_to_another_folder_than_the_projects_are_a_line(
    experiment: Experiment,
    uri: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Experiment(uri, "tests", tmp_path / "artifacts")  # as in a project that was moved or copied
    assert capsys.readouterr().out == (
        f"tracking.experiment: files of 'tests' go to {folder}/artifacts: "
        "name another to have them here\n"
    )
    # The same folder by another path, or one that a link leads on to where it is now.
    (tmp_path / "link").symlink_to(folder)
    Experiment(uri, "tests", tmp_path / "link" / "artifacts")
    Experiment(uri, "moved", tmp_path / "old" / "artifacts")
    (tmp_path / "old").symlink_to(tmp_path / "new")
    Experiment(uri, "moved", tmp_path / "new" / "artifacts")
    # A person has chosen a bucket.
    experiment.client.create_experiment("bucket", artifact_location="s3://bucket/runs")
    Experiment(uri, "bucket", tmp_path / "artifacts")
    assert capsys.readouterr().out == ""


def test_deleted_experiment_is_a_user_error(experiment: Experiment, uri: str, folder: Path) -> None:
    gone = Experiment(uri, "gone", folder / "artifacts")
    experiment.client.delete_experiment(gone.id)
    with pytest.raises(
        UserError, match=r"tracking\.experiment: 'gone' was deleted.*restore"
    ) as caught:
        Experiment(uri, "gone", folder / "artifacts")
    # The command acts on this store, from whichever folder, as a shell reads it.
    command = str(caught.value).split("`")[1]
    restore = ["mlflow", "experiments", "restore", "-x", gone.id]
    assert shlex.split(command) == [f"MLFLOW_TRACKING_URI={uri}", *restore]


def test_the_command_that_restores_an_experiment_shows_no_password() -> None:
    gone = SimpleNamespace(lifecycle_stage="deleted", experiment_id="7")
    server = SimpleNamespace(
        tracking_uri="http://ada:hunter2@host:5000", get_experiment_by_name=lambda name: gone
    )
    with pytest.raises(UserError) as caught:
        mlflow_store._open_experiment(server, "gone", None)
    assert "`mlflow experiments restore -x 7`, with MLFLOW_TRACKING_URI set" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_nothing_is_written_into_the_working_folder(
    uri: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = Experiment(uri, "tests", folder / "artifacts")
    run = Run.begin(experiment, "else.1", "elsewhere", started=1.0)
    run.log({"loss": 1.0}, 1, 1.0)
    (folder / "note.txt").write_text("hello")
    run.artifact([folder / "note.txt"])
    run.end("finished", 2.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (MlflowException("no", INVALID_PARAMETER_VALUE), True),
        (MlflowException("no", RESOURCE_DOES_NOT_EXIST), True),
        (MlflowException("the connection is gone"), False),
        (MlflowException("the database is gone", BAD_REQUEST), False),
        (OSError("refused"), False),
    ],
)
def test_what_a_store_refuses_is_no_outage(error: Exception, refused: bool) -> None:
    assert refuses(error) is refused


# --- its address and its errors -------------------------------------------------------------------


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
    driver = resolve_uri(TrackingConfig("sqlite+pysqlite:///runs/x.db", "e"), tmp_path)
    assert driver == relative


@pytest.mark.parametrize(("name", "unfit"), [("what?", r"\?"), ("feature%2Fx", "%2F")])
def test_a_folder_that_no_address_of_sqlite_can_have_is_refused(
    tmp_path: Path, name: str, unfit: str
) -> None:
    project = tmp_path / name
    for uri in (None, "sqlite:///runs/x.db"):
        with pytest.raises(UserError, match=f"{unfit}.*: no address of SQLite's can have {unfit}"):
            resolve_uri(TrackingConfig(uri, "e"), project)
    for elsewhere in ("http://here:1", "sqlite:////somewhere/x.db"):
        assert resolve_uri(TrackingConfig(elsewhere, "e"), project) == elsewhere
    # What is no escape is read as it stands.
    sure = tmp_path / "100% sure"
    assert resolve_uri(TrackingConfig(None, "e"), sure) == f"sqlite:///{sure}/mlflow.db"


def test_a_driver_is_named_where_there_is_a_choice(tmp_path: Path) -> None:
    for given, used in (
        ("postgresql://ada@host/runs", "postgresql+psycopg2://ada@host/runs"),
        ("postgresql+psycopg://ada@host/runs", "postgresql+psycopg://ada@host/runs"),
        ("mysql://ada@host/runs", "mysql://ada@host/runs"),
    ):
        assert resolve_uri(TrackingConfig(given, "e"), tmp_path) == used


@pytest.mark.parametrize(
    "uri",
    [
        *("mlruns", "file:///tmp/mlruns", "localhost:5000", "htp://host:5000", "://"),
        # Of no file: SQLite would have it in memory, and what is recorded would be gone.
        *("sqlite", "sqlite://", "sqlite:///", "sqlite:///?timeout=9", "sqlite:///:memory:"),
    ],
)
def test_uri_that_is_no_store_is_a_user_error(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri must be a database or a server"):
        resolve_uri(TrackingConfig(uri, "e"), tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        *("postgresql://mlflow@db:PORT/mlflow", "mysql://u@h:33o6/db", "mssql://u@h:33o6/db"),
        "postgresql://mlflow:hunter2",  # its host was forgotten
        "postgresql+psycopg2://mlflow:hunter2",
    ],
)
def test_a_database_address_that_cannot_be_read_shows_no_password(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the database cannot be read: it must be like") as caught:
        resolve_uri(TrackingConfig(uri, "e"), tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        # What reads it takes "hunter2" for the host or port, or a message breaks off before it.
        *("https://me:hun hunter2@host", "htps://me:hun\thunter2@host", "http://me:hunter2"),
        *("http://me:hunter2#x@host", "http://me:hunter2/x@host", "http://me:hunter2?x@host"),
        *("http://me:hunter2\\x@host", "http://me:7/hunter2@host", "http://hunter2/@host"),
        *("postgresql://me:hun@hunter2@host/db", "postgresql://me:hun@hunter2/x@host/db"),
        *("postgresql://me:hun@/hunter2@host/db", "postgresql://me:hun@hunter2?x@host/db"),
        *("postgresql://me:hun hunter2@host/db", "mysql://hunter2/x@host/db"),
        # ValueError of urlsplit.
        *("http://[fe80::1:5000", "http://me:[hunter2@host:1", "http://host:PORT", "http://:5000"),
    ],
)
@pytest.mark.parametrize("named", ["tracking.uri", "MLFLOW_TRACKING_URI"])
def test_an_address_that_is_read_otherwise_than_it_is_meant_is_refused_and_not_shown(
    uri: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    given = TrackingConfig(uri if named == "tracking.uri" else None, "e")
    with pytest.raises(UserError) as caught:
        resolve_uri(given, tmp_path)
    said = str(caught.value)
    assert f"{named}: the address of the server or the database cannot be read" in said
    assert "hunter2" not in said
    assert "\n" not in said
    assert redact(said) == said  # the advice is no secret


@pytest.mark.parametrize(
    "uri",
    [
        *("http://me:a%20%40%23%2F%3F%5B%5Db@host:5000/mlflow", "https://me:hun@ter:2@host"),
        *("http://[::1]:5000", "https://token@host/a?b=c#d", "sqlite:////a b/c@d/mlflow.db"),
        *("mysql://me@server:hun/ter?2#3@host/db", "mysql://me:%40%20@[::1]:3306/db"),
        *("mysql://host/db?charset=utf8", "mssql+pyodbc:///?odbc_connect=PWD%3Da%40b"),
    ],
)
def test_an_address_that_is_read_as_it_is_meant_is_taken(uri: str, tmp_path: Path) -> None:
    assert resolve_uri(TrackingConfig(uri, "e"), tmp_path) == uri


def test_reason_is_one_short_line_without_passwords() -> None:
    assert (
        reason(OSError("http://ada:hunter2@host is away\nTraceback")) == "http://***@host is away"
    )
    assert reason(TimeoutError()) == "TimeoutError"
    assert len(reason(OSError("x" * 1000))) == 200


@pytest.mark.parametrize("address", ["mlflow.db?timeout=30", "mlflow.db/below/mlflow.db"])
def test_a_store_that_cannot_be_read_or_made_is_a_problem(
    tmp_path: Path, example: configuration.Config, address: str
) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    config = configuration.with_changes(example, {"tracking.uri": f"sqlite:///{address}"})
    assert mlflow_store.examine(config, tmp_path).level == "problem"


# --- its pages -----------------------------------------------------------------------------------


def test_the_experiment_is_of_trainings_and_what_a_person_chose_stays(
    uri: str, folder: Path
) -> None:
    first = Experiment(uri, "arranged", folder / "artifacts")
    tags = first.client.get_experiment(first.id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    state = json.loads(json.loads(tags["mlflow.sharedViewState.runs"])["state"])
    assert state["selectedColumns"][0] == "metrics.`score/bleu`"
    first.client.set_experiment_tag(first.id, "mlflow.experimentKind", "regression")
    again = Experiment(uri, "arranged", folder / "artifacts")
    assert again.client.get_experiment(again.id).tags["mlflow.experimentKind"] == "regression"


def test_addresses_open_the_view_of_trainings(uri: str, folder: Path) -> None:
    experiment = Experiment(uri, "addressed", folder / "artifacts")
    runs = f"http://127.0.0.1:5009/#/experiments/{experiment.id}/runs?workflowType=machine_learning"
    assert experiment.page(uri, port="5009") == runs
    views = (mlflow_store.VARIANTS, mlflow_store.RUNS)
    assert experiment.page(uri, *views, port="5009") == f"{runs}&viewStateShareKey=runs"
    view = mlflow_store.saved_view("Variants", 1.0, {})
    experiment.client.set_experiment_tag(experiment.id, "mlflow.sharedViewState.variants", view)
    charts = f"{runs}&viewStateShareKey=variants&compareRunsMode=CHART"
    assert experiment.page(uri, *views, port="5009") == charts
    server = "https://ada:hunter2@host"
    page = mlflow_store.address(server, "1/runs/abc", "5009")
    assert page == "https://***@host/#/experiments/1/runs/abc?workflowType=machine_learning"


def test_without_a_store_there_is_no_page_and_none_is_made(
    tmp_path: Path, example: configuration.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert mlflow_store.compare_page(example, tmp_path) is None
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "runs").symlink_to("not/mounted")  # whose records it does not show
    assert mlflow_store.compare_page(example, tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert mlflow_store.compare_page(example, tmp_path) is None


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (None, "project"),
        ("sqlite:///mlflow.db", "project"),
        ("sqlite:///{tmp}/elsewhere/x.db", "elsewhere"),
        ("postgresql://host/x", "project"),
    ],
)
def test_files_of_runs_lie_beside_sqlites_file(
    uri: str | None, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project may be a job's copy of it, which goes with the job."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    changes = {"tracking.uri": uri and uri.format(tmp=tmp_path)}
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    found = mlflow_store.destination(config, tmp_path / "project")[-1]
    assert found == tmp_path / place / "mlartifacts"
