"""`seq2sweep sync`: what was missed is recorded, also of processes that were killed anywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.cli import main
from seq2sweep.tracking.addressee import Addressee
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.outbox import Cursor, Outbox, outboxes
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import sync
from tests.tracking import scenario
from tests.tracking.scenario import Recorded
from tests.tracking.servers import free_port


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, experiment: Experiment
) -> Path:
    """A folder with params.yaml, and a store whose tables are made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(folder / "mlflow.db", tmp_path / "mlflow.db")
    set_uri(None)
    return tmp_path


def set_uri(uri: str | None) -> None:
    config = presets.load("phrasebook").config
    changed = configuration.with_changes(config, {"tracking.uri": uri})
    Path("params.yaml").write_text(configuration.dump(changed))


def own_store(project: Path) -> Experiment:
    return Experiment(f"sqlite:///{project}/mlflow.db", "seq2sweep", project / "mlartifacts")


def test_what_is_left_is_recorded_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = scenario.record(project / "runs")
    assert main(["sync"]) == 0
    assert capsys.readouterr().out.startswith("recorded ")
    scenario.check(own_store(project), recorded)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out == "nothing is left to record\n"


def test_what_was_recorded_before_the_storage_was_changed_is_recorded(
    project: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a full disk asks for; `make clean` then removes the folder."""
    recorded = scenario.record(project / "runs")
    storage = tmp_path_factory.mktemp("another disk")
    config = configuration.load(Path("params.yaml"))
    moved = configuration.with_changes(config, {"cluster.storage": str(storage)})
    Path("params.yaml").write_text(configuration.dump(moved))
    assert main(["sync"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert (first, second[:9]) == ("nothing is left to record", "recorded ")
    scenario.check(own_store(project), recorded)


def test_what_is_for_another_store_is_left_alone(
    project: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where projects share `cluster.storage`, but not MLflow."""
    storage = tmp_path_factory.mktemp("shared")
    config = configuration.load(Path("params.yaml"))
    shared = configuration.with_changes(config, {"cluster.storage": str(storage)})
    Path("params.yaml").write_text(configuration.dump(shared))
    to = Addressee("http://theirs:5000", "seq2sweep", "/their/clone")
    for name in ("theirs", "delivered"):
        with Recorder(storage / "tracking", name, kind="test", name=name, to=to):
            pass
    box = Outbox(storage / "tracking" / "delivered")  # as that of a training, which stays
    end = box.path.stat().st_size
    Cursor(to.store, to.experiment, position=end, whole=end).save(box)
    assert main(["sync"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        f"nothing is left to record; 1 run(s) in {storage / 'tracking'} were recorded elsewhere, "
        "for other stores: set tracking.uri and tracking.experiment to theirs"
    )
    assert len(outboxes(storage / "tracking")) == 2
    # A store of this address that is lost left its id there.
    store = f"{'0' * 32} sqlite:///{project / 'mlflow.db'}"
    lost = Addressee(store, "seq2sweep", str(project))
    with Recorder(storage / "tracking", "lost", kind="test", name="lost", to=lost):
        pass
    assert main(["sync"]) == 0
    said = capsys.readouterr().out
    assert f"; one has this address and the id {'0' * 32}: if it is gone, make that" in said
    # With that id it is this store, and so is one of another experiment and project.
    with Recorder(
        storage / "tracking", "other", kind="test", name="other",
        to=Addressee(store, "another", "/their/clone"),
    ):  # fmt: skip
        pass
    Path("mlflow.db.id").write_text("0" * 32)
    assert main(["sync"]) == 0
    said = capsys.readouterr().out
    assert "2 run(s) in" in said
    assert "has this address" not in said
    # In a project's own folder, which may have been moved since, there are no others'.
    Path("runs").mkdir()
    (storage / "tracking").rename("runs/tracking")
    Path("params.yaml").write_text(configuration.dump(config))
    assert main(["sync"]) == 0
    assert outboxes(Path("runs/tracking")) == []


def test_a_dead_server_is_one_line_and_status_1(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_uri(f"http://ada:hunter2@127.0.0.1:{free_port()}")
    scenario.record(project / "runs")
    assert main(["sync"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("seq2sweep sync: tracking.uri: the MLflow store http://***@127.0.0.1:")
    assert "Connection refused" in err
    assert "hunter2" not in err


def test_an_address_that_cannot_be_right_is_status_2(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_uri("htp://host:5000")
    assert main(["sync"]) == 2
    assert "tracking.uri must be a database or a server" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["sync", "ui", "reproduce 0123abcd", "translate --model models:/x@best"]
)
@pytest.mark.parametrize(
    ("name", "given", "form"),
    [
        ("TIMEOUT", "2.5", "whole seconds, such as 30"),
        ("MAX_RETRIES", "no", "a number from 0 to 10"),
        ("MAX_RETRIES", "11", "a number from 0 to 10"),
    ],
)
def test_an_environment_that_mlflow_does_not_take_is_status_2(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    name: str,
    given: str,
    form: str,
) -> None:
    """Each file would be refused as one of another version."""
    monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", given)
    scenario.record(project / "runs")
    assert main(command.split()) == 2
    assert capsys.readouterr().err == (
        f"seq2sweep {command.split()[0]}: environment: MLFLOW_HTTP_REQUEST_{name} must be {form}, "
        f"not {given!r}\n"
    )


def test_what_is_refused_is_status_1_until_it_is_given_up(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / "runs" / "tracking"
    for _ in range(2):
        with Recorder(folder, "t", kind="test") as run:
            run.log({"no$name": 1.0}, 1)
    for _ in range(2):
        assert main(["sync"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "no$name" in line
        assert line.endswith("and so for 1 more")
    shutil.rmtree(folder)
    assert main(["sync"]) == 0


def test_another_process_that_delivers_is_left_to_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = scenario.record(project / "runs")
    boxes = outboxes(project / "runs" / "tracking")
    with boxes[0].delivering() as first, boxes[1].delivering() as second:
        assert first
        assert second
        assert main(["sync"]) == 0
        assert capsys.readouterr().out == (
            "nothing recorded; 2 run(s) wait: another process delivers it right now\n"
        )
    assert main(["sync"]) == 0
    scenario.check(own_store(project), recorded)


def test_a_run_that_waits_for_its_parent_is_told_apart(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = scenario.record(project / "runs")
    parent = Outbox(project / "runs" / "tracking" / recorded.train)
    with parent.delivering() as ours:
        assert ours
        assert main(["sync"]) == 0
        assert capsys.readouterr().out == (
            "nothing recorded; 1 run(s) wait: another process delivers it right now; "
            "1 run(s) wait: the run that it belongs to is not in MLflow yet\n"
        )
    assert main(["sync"]) == 0
    assert "wait" not in capsys.readouterr().out
    scenario.check(own_store(project), recorded)


# --- processes that are killed -------------------------------------------------------------------

# Imports once; then a child that syncs, for what it imports; then a child a kill, each one a little
# later: before a write to disk or a commit.
KILLED = """
import itertools, os, signal, sys
from pathlib import Path
import sqlalchemy
from seq2sweep.cli import main
from seq2sweep.tracking import relay_thread
from tests.tracking import scenario

root, uri, first, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def die_at(number):
    count = itertools.count()
    def tick(*ignored):
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
    def before(real):
        def wrapped(*args, **kwargs):
            tick()
            return real(*args, **kwargs)
        return wrapped
    for name in ("write", "fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
        setattr(os, name, before(getattr(os, name)))
    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "commit", tick)

if os.fork() == 0:
    os.chdir(root)
    main(["sync"])
    print("ray" in sys.modules, flush=True)
    os._exit(0)
os.wait()
for number in itertools.count(first, every):
    name = f"train-{number:012d}"
    scenario.write_journal(root / name / "journal.jsonl", 1, 13)
    child = os.fork()
    if child == 0:
        die_at(number)
        with scenario.start(root, name) as run:
            scenario.end(root, run)
        relay_thread.sync(root / "tracking", uri, "killed", root / "mlartifacts")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(name, status, flush=True)
    if status != -signal.SIGKILL:
        sys.exit(status)
"""


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (4, 8, 12))]
)
def test_killed_before_any_write(project: Path, first: int) -> None:
    """SIGKILL while recording and delivering; then the stage is run again, and the rest synced.

    `seq2sweep sync` needs no Ray.
    """
    uri = f"sqlite:///{project}/mlflow.db"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(project), uri, str(first), "16"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, ray_is_loaded, *lines = done.stdout.splitlines()
    assert (said, ray_is_loaded) == ("nothing is left to record", "False")
    names = [line.split()[0] for line in lines]
    assert len(names) > 8
    recorded = []
    for name in names:
        scenario.write_journal(project / name / "journal.jsonl", 11, scenario.STEPS)
        with scenario.start(project, name) as run:
            scenario.end(project, run)
        recorded.append(Recorded(name, scenario.evaluate(project, name).name, run.key))
    place = (project / "tracking", uri, "killed", project / "mlartifacts")
    sync(*place)
    experiment = Experiment(*place[1:])
    for each in recorded:
        scenario.check(experiment, each)
    assert sync(*place) == "nothing is left to record"
