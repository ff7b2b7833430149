"""Training on two workers, through failures of all kinds."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch
from ray.exceptions import ActorDiedError, RayTaskError
from ray.train import ControllerError, TrainingFailedError, WorkerGroupError

from seq2sweep import config as configuration
from seq2sweep.cluster import train_driver
from seq2sweep.cluster.train_driver import TrainingError
from seq2sweep.config import Config
from seq2sweep.errors import NodeError, OperationalError, UserError
from seq2sweep.runs import journal, pass_size
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    Retention,
    checkpoint_name,
    checkpoint_step,
    checkpoints,
)
from seq2sweep.runs.run_store import RunStatus, RunStore
from seq2sweep.storage.lease import LeaseLostError
from seq2sweep.train.events import Logged
from tests.cluster import driver
from tests.cluster.chaos import LONGEST_WAIT, trainers
from tests.cluster.checkpoints import save
from tests.cluster.driver import events, start
from tests.conftest import Corpus
from tests.runs.test_pass_size import longest_of
from tests.train.test_interruption import go_on

STEPS = 60
ALONE = {"cluster.workers": 1, "cluster.cpus_per_worker": 1}


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": STEPS,
            "train.log_every": 5,
            "train.validate_every": 10,
            "train.checkpoint_every": 20,
            "cluster.max_failures": 1,
        },
    )


def train(config: Config, corpus: Corpus, project: Path, on_event: Any) -> RunStatus:
    return driver.train(config, corpus.encoded, project, on_event)


@pytest.mark.parametrize(("until", "done"), [(None, False), (8, True), (12, False), (16, False)])
def test_the_end_is_reached_once_the_journal_says_so(until: int | None, done: bool) -> None:
    """A kill may come after the last checkpoint and before that."""
    saved = RunStatus([Path(checkpoint_name(12))], {}, 12)
    assert train_driver._is_done(saved, until) == done
    assert train_driver._is_done(RunStatus(saved.checkpoints, {"step": 12}, 12), until)


def expected_events() -> list[tuple[str, int]]:
    """Of an undisturbed run."""
    events = []
    for step in range(5, STEPS + 1, 5):
        events.append(("logged", step))
        events += [("validated", step)] if step % 10 == 0 else []
        events += [("checkpoint", step)] if step % 20 == 0 else []
    return [*events, ("finished", STEPS)]


def kill_a_worker() -> None:
    """SIGKILL for one of the training workers of this process's Ray."""
    trainers()[0].kill()


@pytest.mark.thorough
def test_a_killed_worker_costs_no_result(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of 20, 40 and 60 the last and one for averaging.
    config = configuration.with_changes(
        config,
        {
            "train.keep_checkpoints": 1,
            "train.keep_every": 40,
            "evaluate.average_checkpoints": 1,
        },
    )
    heard: list[tuple[str, int]] = []

    def on_event(entry: dict[str, Any]) -> None:
        heard.append((entry["kind"], entry["step"]))
        if heard[-1] == ("checkpoint", 20):
            kill_a_worker()

    outcome = train(config, tiny_corpus, project, on_event)
    folder = project / "runs" / "run"
    assert heard == expected_events()
    assert [path.name for path in outcome.checkpoints] == ["step-00000040", "step-00000060"]
    assert all(path.parent == folder for path in outcome.checkpoints)
    assert outcome.summary["step"] == STEPS
    assert outcome.summary["target_tokens"] > 0
    entries = list(journal.entries(folder / "journal.jsonl"))
    assert [(entry["kind"], entry["step"]) for entry in entries] == expected_events()
    assert [path.name for path in sorted(folder.glob("step-*"))] == [
        path.name for path in outcome.checkpoints
    ], "older checkpoints are removed"
    written = {path.name for path in outcome.checkpoints[-1].iterdir()}
    assert written == {
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }

    # Once more under the same name: nothing is left to do.
    with monkeypatch.context() as patch:
        patch.setattr(train_driver, "_trainer", pytest.fail)
        assert train(config, tiny_corpus, project, pytest.fail) == outcome

    # Unless the last checkpoint was lost since: then the steps to it are done again.
    last = outcome.checkpoints[-1] / "model.safetensors"
    content = last.read_bytes()
    last.write_bytes(content[:-1])
    assert train(config, tiny_corpus, project, pytest.fail).checkpoints == outcome.checkpoints
    assert last.read_bytes() == content
    first = outcome.checkpoints[0] / "model.safetensors"
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{first.parent.name} is missing"):
        train(config, tiny_corpus, project, pytest.fail)


@pytest.mark.thorough
def test_all_workers_take_the_largest_pass_that_fits(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    changes = {"train.tokens_per_pass": "auto", "train.steps": 10, "train.checkpoint_every": 10}
    auto = configuration.with_changes(config, changes)
    heard: list[dict[str, Any]] = []
    outcome = train(auto, tiny_corpus, project, heard.append)
    assert heard[0]["kind"] == "sized"
    # All that a worker has of 300 tokens, as the model is tiny: half, and where it has a sentence
    # more than the other up to half of the longest.
    share = -(-(300 + longest_of(tiny_corpus.encoded)) // 2)
    assert outcome.summary["tokens_per_pass"] == heard[0]["tokens_per_pass"] == share
    free = pass_size.free_bytes(torch.device("cpu"), 2)
    assert 0.3 * free < heard[0]["free_bytes"] < 3 * free  # of a machine where others work


def test_sigterm_ends_all_and_the_next_call_goes_on(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    """A driver of its own is ended in mid-training; this process takes the run over."""
    config = configuration.with_changes(config, ALONE)
    endless = configuration.with_changes(
        config, {"train.steps": 100_000, "train.keep_checkpoints": 2}
    )
    process = start(endless, tiny_corpus.encoded, project)
    for event in events(process):
        if event == ("checkpoint", 60):  # said when it begins; two before it are whole
            break
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LONGEST_WAIT) == -signal.SIGINT
    assert process.stderr is not None
    assert process.stderr.read().rstrip().endswith("KeyboardInterrupt")
    assert len(children) > 5
    assert psutil.wait_procs(children, timeout=30)[1] == []

    folder = project / "runs" / "run"
    before = list(journal.entries(folder / "journal.jsonl"))
    # The newest is one of the interruption, unless that came when a checkpoint was due.
    _, *newer = checkpoints(folder)
    assert not list(folder.glob("stop-*"))
    reached = checkpoint_step(newer[-1])
    assert reached > 60
    assert reached >= before[-1]["step"]
    steps = (before[-1]["step"] // 20 + 1) * 20
    # Those after it are damaged: the oldest will do.
    for one in newer:
        damaged = one / "optimizer.safetensors"
        damaged.write_bytes(damaged.read_bytes()[:-1])
    heard: list[int] = []
    outcome = train(
        configuration.with_changes(config, {"train.steps": steps}),
        tiny_corpus,
        project,
        lambda entry: heard.append(entry["step"]),
    )
    assert outcome.summary["step"] == steps
    # What the first driver's workers wrote is not told again.
    assert min(heard) >= before[-1]["step"]


def test_a_full_disk_is_said_and_training_goes_on_when_there_is_room(
    cluster: None, config: Config, tiny_corpus: Corpus, tmp_path: Path, small_disk: Path
) -> None:
    config = configuration.with_changes(config, ALONE)
    undisturbed = tmp_path / "undisturbed"
    go_on(config, tiny_corpus.encoded, undisturbed)
    full = configuration.with_changes(
        config, {"cluster.storage": str(small_disk), "cluster.max_failures": 0}
    )
    with pytest.raises(OperationalError) as caught:
        train(full, tiny_corpus, tmp_path, lambda entry: None)
    message = str(caught.value)
    assert f"no space left in {small_disk / 'run'}" in message
    assert "to resume after step 20" in message
    assert "\n" not in message
    assert [p.name for p in (small_disk / "run").glob("*step-*")] == ["step-00000020"]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    outcome = train(full, tiny_corpus, tmp_path, lambda entry: None)
    for here in outcome.checkpoints:
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (here / name).read_bytes() == (undisturbed / here.name / name).read_bytes()
    entries = list(journal.entries(small_disk / "run" / "journal.jsonl"))
    assert [(entry["kind"], entry["step"]) for entry in entries] == expected_events()


def test_workers_that_do_not_fit_are_an_error_at_once(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train_driver, "_trainer", pytest.fail)
    many = configuration.with_changes(config, {"cluster.workers": 5})
    with pytest.raises(UserError, match=r"cluster\.workers is 5.*2 CPUs"):
        train(many, tiny_corpus, project, pytest.fail)


def test_the_true_cause_of_a_failure_is_told(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    changes = {"model.d_ff": 10**13, "cluster.max_failures": 0, "cluster.workers": 1}
    huge = configuration.with_changes(config, changes)
    with pytest.raises(TrainingError) as caught:
        train(huge, tiny_corpus, project, pytest.fail)
    assert "out of memory" in caught.value.cause
    assert "can't allocate memory" in caught.value.cause
    assert "lower train.tokens_per_pass" in caught.value.cause
    assert "\n" not in str(caught.value)
    log = project / "runs" / "run" / "failure.log"
    assert f"stack traces are in {log}" in str(caught.value)
    assert "Traceback" in log.read_text()


def test_what_the_user_must_mend_is_not_tried_three_times(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data that is missing: it fails again however often workers start, so they do not."""
    attempts: list[int] = []

    class Lacks(Fails):
        def fit(self) -> None:
            attempts.append(1)
            cause = UserError("train.json is missing")
            raised = RayTaskError("run", "a traceback", cause).as_instanceof_cause()
            raise WorkerGroupError("no worker lives", {0: raised})

    config = configuration.with_changes(config, {"cluster.max_failures": 3})
    monkeypatch.setattr(train_driver, "_trainer", Lacks)
    with pytest.raises(UserError, match=r"^train\.json is missing$"):
        train(config, tiny_corpus, project, pytest.fail)
    assert len(attempts) == 1


def test_a_worker_that_only_lost_another_is_not_the_cause(tmp_path: Path) -> None:
    """The first in order complains of the second one's end."""
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "step"))
    lost = RuntimeError("gloo/transport/tcp/pair.cc: Connection closed by peer [127.0.0.1]")
    for failures in ({0: lost, 1: full}, {0: full, 1: lost}):
        failure = train_driver._failure(WorkerGroupError("two", failures), RunStore(tmp_path), 20)
        assert failure.final
        assert "no space left" in failure.cause


def test_a_hang_is_the_cause_of_a_death_only(tmp_path: Path) -> None:
    """The log is of another worker, which hung before."""
    log = tmp_path / "hang-1.log"
    log.write_text("Timeout (0:10:00)!")
    (tmp_path / "hang-0.log").touch()

    def cause(error: Exception) -> str:
        failure = TrainingFailedError("failed")
        failure.worker_failures = {0: error}
        return train_driver._failure(failure, RunStore(tmp_path), 0).cause

    assert cause(ActorDiedError()).endswith(f"stack traces are in {log}")
    assert cause(MemoryError("no memory")).startswith("worker 0: out of memory")
    log.unlink()
    assert "its process was killed" in cause(ActorDiedError())


def test_a_driver_whose_lease_was_taken_over_ends_its_workers(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    monkeypatch.setattr(store, "check_lease", Mock(side_effect=LeaseLostError("taken over")))
    meanwhile = train_driver._Meanwhile(config, 1, store, 0, lambda entry: None, lambda: False)
    with pytest.raises(LeaseLostError, match="taken over"):
        meanwhile()


@pytest.mark.parametrize("left", [0, 3, None])
def test_a_driver_hears_what_is_trained_after_the_journal_was_cut(
    config: Config, tmp_path: Path, left: int | None
) -> None:
    """Left: whole lines; None: the file is gone."""
    path, heard = tmp_path / JOURNAL_NAME, list[int]()
    tell = lambda entry: heard.append(entry["step"])  # noqa: E731
    meanwhile = train_driver._Meanwhile(config, 1, RunStore(tmp_path), 0, tell, lambda: False)
    with contextlib.closing(Journal(path)) as written:
        for step in range(1, 8):
            written.append(Logged(step, {"loss": 0.1 * step}))
    meanwhile()
    assert heard == [*range(1, 8)]
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    if left is not None:
        path.write_bytes(b"".join(lines[:left]))
    meanwhile()
    with contextlib.closing(Journal(path)) as written:
        # Longer lines than those before: none of these ends where one of them did.
        for step in range(100, 120):
            written.append(Logged(step, {"loss": 0.123456789 * step}))
            meanwhile()
    assert heard == [*range(1, 8), *range(100, 120)]
    assert meanwhile.told == ", last reported step 119"


def test_what_a_machine_lacks_stays_what_it_is(tmp_path: Path) -> None:
    """A sweep ends for it: `no_room`."""
    failure = TrainingFailedError("failed")
    failure.worker_failures = {0: NodeError("keys have expired")}
    with pytest.raises(NodeError, match=r"^keys have expired$") as caught:
        train_driver._failure(failure, RunStore(tmp_path), 0)
    assert train_driver.no_room(caught.value, RunStore(tmp_path)) == "keys have expired"
    assert train_driver.no_room(UserError("wrong"), RunStore(tmp_path)) is None


def test_the_cause_of_workers_that_could_not_start_is_told_in_a_line(tmp_path: Path) -> None:
    """Which Ray hands on in two wrappings, with the frames of all before it."""
    raised = RuntimeError("no route to host")
    task = RayTaskError("_setup", "Traceback: frames upon frames", raised).as_instanceof_cause()
    told = train_driver._failure(ControllerError(task), RunStore(tmp_path), 0)
    assert told.cause == "RuntimeError: no route to host"
    assert "frames upon frames" in (tmp_path / train_driver.FAILURE_LOG_NAME).read_text()


class Fails:
    """A trainer whose workers fail at once."""

    def __init__(self, *arguments: Any) -> None:
        pass

    def fit(self) -> None:
        raise TrainingFailedError("no worker lives")


def test_storage_that_goes_away_has_not_got_on(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failure its folder is gone: that is neither step 0 nor progress."""
    folder = project / "runs" / "run"
    save(folder / checkpoint_name(20), 20)
    attempts: list[int] = []

    class Vanishes(Fails):
        def fit(self) -> None:
            attempts.append(1)
            folder.rename(project / "away")
            super().fit()

    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    monkeypatch.setattr(train_driver, "_trainer", Vanishes)
    with pytest.raises(OperationalError, match=r"run cannot be used \(No such file"):
        train(config, tiny_corpus, project, pytest.fail)
    assert len(attempts) == 1


@pytest.mark.parametrize("ends", [True, False])
def test_a_worker_that_died_between_last_checkpoint_and_end_costs_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The next one has no step left: it says that the run has finished."""
    store = RunStore(tmp_path, retention=Retention.of(config))
    for step in range(20, STEPS + 1, 20):
        save(tmp_path / checkpoint_name(step), step)

    def attempt(*about: Any) -> None:
        if ends:
            (tmp_path / JOURNAL_NAME).write_text('{"kind": "finished", "step": 60, "loss": 1.0}\n')

    monkeypatch.setattr(train_driver, "_attempt", attempt)
    monkeypatch.setattr(train_driver.session, "nodes", list)
    monkeypatch.setattr(train_driver.session, "cpus_per_worker", lambda *about: 1)
    if ends:
        done = train_driver.train_until(config, store, encoded=tmp_path, on_event=pytest.fail)
        assert done.finished
    else:
        with pytest.raises(RuntimeError, match="ended without its last checkpoint"):
            train_driver.train_until(config, store, encoded=tmp_path, on_event=lambda event: None)


def test_no_worker_starts_on_other_data_than_the_run_is_named_by(
    config: Config, tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path, retention=Retention.of(config))
    monkeypatch.setattr(train_driver, "_attempt", lambda *about: pytest.fail("it trains"))
    monkeypatch.setattr(train_driver.session, "nodes", list)
    monkeypatch.setattr(train_driver.session, "cpus_per_worker", lambda *about: 1)
    with pytest.raises(NodeError, match="has changed since this began"):
        train_driver.run_training(
            config, store, encoded=tiny_corpus.encoded, data="other", on_event=pytest.fail
        )


@pytest.mark.parametrize(
    ("journal_of", "there", "said"),
    [
        (
            [20, 40, 60],
            [],
            "checkpoints up to step 60 are not in {}: training goes on after step 0",
        ),
        (
            [20, 40, 60, 80],
            [20],
            "checkpoints up to step 80 are not in {}: training goes on after ",
        ),
        # As a kill leaves them while one is written, and the next waits for it.
        ([20, 40, 60], [20], None),
        ([20], [], None),
        ([], [], None),
        ([20, 40, 60, "finished"], [40], "checkpoints up to step 60 are not in {}"),
        # It is trained again, and was killed.
        ([20, 40, "finished", 20, 40], [20], None),
    ],
)
@pytest.mark.parametrize("until", [None, 60])
def test_lost_checkpoints_that_the_journal_tells_of_are_told(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    journal_of: list[int | str],
    there: list[int],
    said: str | None,
    until: int | None,
) -> None:
    """Else training would be silent up to there. Of a trial the sweep says it."""
    store = RunStore(tmp_path, retention=Retention.of(config))
    for step in there:
        save(tmp_path / checkpoint_name(step), step)
    lines = [
        {"kind": "checkpoint", "step": entry}
        if entry != "finished"
        else {"kind": entry, "step": 60}
        for entry in journal_of
    ]
    journal_text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / JOURNAL_NAME).write_text(journal_text)
    ended = TrainingError("ended", "by the test", final=True)
    monkeypatch.setattr(train_driver, "_attempt", lambda *about: ended)
    monkeypatch.setattr(train_driver.session, "nodes", list)
    monkeypatch.setattr(train_driver.session, "cpus_per_worker", lambda *about: 1)
    with pytest.raises(TrainingError, match="ended"):
        train_driver.train_until(config, store, until, encoded=tmp_path, on_event=pytest.fail)
    told = capsys.readouterr().out
    if said is None or until is not None:
        assert told == ""
    else:
        assert told.startswith(said.format(tmp_path))
        assert told.count("\n") == 1


def test_what_is_to_be_kept_and_is_gone_is_told_before_a_step_is_trained(
    config: Config, tmp_path: Path
) -> None:
    kept = configuration.with_changes(config, {"train.keep_every": 20})
    store = RunStore(tmp_path, retention=Retention.of(kept))
    save(tmp_path / checkpoint_name(40), 40)
    with pytest.raises(UserError, match=r"step-00000020 is missing, and train\.keep_every"):
        train_driver.run_training(kept, store, encoded=tmp_path, on_event=pytest.fail)
