"""Outboxes reach MLflow: all of it, once, whatever fails or dies in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, NoCredentialsError
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from seq2sweep.tracking import outbox
from seq2sweep.tracking.addressee import Addressee, named
from seq2sweep.tracking.delivery import ATTEMPTS, UnavailableError, new_points
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import KEY, PARENT, Experiment
from seq2sweep.tracking.outbox import Cursor, Outbox, outboxes
from seq2sweep.tracking.recorder import CURVES, Recorder, attach
from seq2sweep.tracking.relay import Relay
from tests.artifacts import artifact_text
from tests.tracking import scenario
from tests.tracking.scenario import STEPS
from tests.tracking.unreliable import READS, Killed, failing, runs, steps

REFUSED = MlflowException("no", INVALID_PARAMETER_VALUE)

# --- once ----------------------------------------------------------------------------------------


def test_all_of_it_once_and_nothing_is_left(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    relay = new()
    total, seen = relay.records_left(), []
    relay.on_record = seen.append
    assert relay.deliver()
    scenario.check(experiment, recorded)
    assert len(seen) == total
    assert max(seen) == 7000 + len("written over by a later stage")
    assert relay.records_left() == 0
    # What may be resumed is kept without its files, the rest is gone.
    (box,) = outboxes(tmp_path / "tracking")
    assert box.name == recorded.train
    assert not (box.folder / "files").exists()
    before = relay.applied
    assert relay.deliver()
    assert new().deliver()
    assert relay.applied == before


def test_killed_at_any_point(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
    thorough: bool,
) -> None:
    """At every point where a delivery can end, or, without --thorough, once in every state that
    the store and the notes can be left in: before each write, which is after the one before it
    (files that are removed aside)."""
    kills: list[str] = []
    point = 0
    write = outbox.write_whole

    def noted(path: Path, text: str) -> None:
        fate("note")
        write(path, text)
        fate("note")

    def fate(call: str) -> None:
        nonlocal left
        if not thorough and call.startswith(READS):
            return
        left -= 1
        if left < 0:
            kills.append(call)
            raise Killed

    while True:
        recorded = scenario.record(tmp_path)
        left = point
        with monkeypatch.context() as patch:
            patch.setattr(outbox, "write_whole", noted)
            try:
                new(fate=fate).deliver()
            except Killed:
                pass
            else:
                break
        assert new().deliver()
        scenario.check(experiment, recorded)
        shutil.rmtree(tmp_path / "tracking")
        point += 1 if thorough else 2
    assert {"create_run", "create_logged_model", "log_artifact", "set_terminated", "note"} <= {
        *kills
    }
    assert {"create_model_version", "set_registered_model_alias", "set_logged_model_tags"} <= {
        *kills
    }
    assert point > 50


@pytest.mark.parametrize("seed", range(3))
def test_an_unreliable_store_loses_and_repeats_nothing(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], seed: int
) -> None:
    draw = random.Random(seed)

    def fate(call: str) -> None:
        # Like an outage: the check whether the store is there fails as well.
        if call == "get_experiment" or draw.random() < 0.1:
            raise MlflowException("http://ada:hunter2@host is away")

    recorded = scenario.record(tmp_path)
    relay = new(fate=fate)
    failures: list[str] = []
    for _ in range(500):
        try:
            if relay.deliver():
                break
        except UnavailableError as error:
            failures.append(str(error))
    assert len(failures) > 1
    assert "hunter2" not in "".join(failures)
    scenario.check(experiment, recorded)


def test_what_mlflow_has_is_noted_once_a_record(
    tmp_path: Path, new: Callable[..., Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "noted" / "journal.jsonl"
    with Recorder(tmp_path / "tracking", "t", kind="test", journal=journal) as run:
        run.log({"train/loss": 1.0}, 1)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    assert new().deliver()
    # Each of the three, and that all of it is whole.
    assert len(flushed) == 4


# --- going on ------------------------------------------------------------------------------------


def test_a_resumed_training_is_one_run(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    journal = tmp_path / "train-r" / "journal.jsonl"
    scenario.write_journal(journal, 1, 13)
    died = scenario.start(tmp_path, "train-r")
    assert new().deliver()
    (run,) = runs(experiment, "train-r")
    assert run.info.status == "RUNNING"
    assert steps(experiment, run) == list(range(1, 14))
    died.close()  # as a process that is killed
    assert new().deliver()
    (run,) = runs(experiment, "train-r")
    assert run.info.status == "KILLED"
    assert "was gone" in run.data.tags["error"]

    scenario.write_journal(journal, 11, 15)  # a journal that repeats steps
    with scenario.start(tmp_path, "train-r", workers=4) as again:
        relay = new()
        assert relay.deliver()
        (run,) = runs(experiment, "train-r")
        assert run.info.status == "RUNNING"
        assert "error" not in run.data.tags
        assert relay.run_id(again) == run.info.run_id
        scenario.write_journal(journal, 16, STEPS)
        scenario.end(tmp_path, again)
    assert relay.deliver()
    (run,) = runs(experiment, "train-r")
    assert run.info.status == "FINISHED"
    assert steps(experiment, run) == list(range(1, STEPS + 1))
    assert run.data.params["cluster.workers"] == "2"  # as it began; no conflict
    assert relay.refused == {}


def test_a_finished_training_that_is_asked_for_again_keeps_its_lineage_and_its_end(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    (before,) = runs(experiment, recorded.train)
    with scenario.start(tmp_path, recorded.train, tags={"git.commit": "later"}) as again:
        scenario.end(tmp_path, again)
        relay = new()
        assert relay.deliver()
        assert relay.run_id(again) == before.info.run_id
        assert runs(experiment, recorded.train)[0].info.status == "FINISHED"
    assert relay.deliver()
    (after,) = runs(experiment, recorded.train)
    assert after.info.end_time == before.info.end_time
    assert after.data.tags == before.data.tags
    scenario.check(experiment, recorded)


@pytest.mark.parametrize("refused", [False, True])
def test_folders_of_a_finished_training_that_is_asked_for_again_stay(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], refused: bool
) -> None:
    """They say what it was trained with; what the store refused of them is completed."""
    folder, name = tmp_path / "reproduce", f"train-kept-{refused}"
    folder.mkdir()
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    relay = new(fate=failing("log_artifact", REFUSED) if refused else None)
    for patch in ("first", "of later changes"):
        (folder / "changes.patch").write_text(patch)
        with scenario.start(tmp_path, name) as run:
            run.artifact(folder)
            scenario.end(tmp_path, run)
        assert relay.deliver()
    run_id = runs(experiment, name)[0].info.run_id
    if refused:
        (tmp_path / "changes.patch").write_text("fi")  # of a transfer that was cut
        experiment.client.log_artifact(run_id, str(tmp_path / "changes.patch"), "reproduce")
        assert new().deliver()
    assert artifact_text(experiment.client, run_id, "reproduce/changes.patch") == "first"


def test_a_finished_training_that_is_trained_again_has_the_files_of_that(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    """Also those that the store refused at first, and took after the others."""
    name, refused = f"train-again-{tmp_path.name}", list[str]()

    def fate(call: str) -> None:
        if call == "log_artifact" and not refused:
            refused.append(call)
            raise REFUSED

    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    for at, text in ((1.0, "first"), (2.0, "second")):
        scenario.finish(tmp_path, name, scenario.CLOCK + at)
        with scenario.start(tmp_path, name) as run:
            run.replaces = True
            for file in ("lineage.json", "environment.txt"):
                run.text(file, text)
        assert new(fate=fate if text == "second" else None).deliver()
    assert refused
    assert new().deliver()
    (found,) = runs(experiment, name)
    for file in ("lineage.json", "environment.txt"):
        assert artifact_text(experiment.client, found.info.run_id, file) == "second"


def test_a_training_that_was_killed_after_its_work_ended_when_that_was_done(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    name = "train-killed-late"
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    scenario.start(tmp_path, name).close()  # as a process that is killed
    scenario.finish(tmp_path, name, 4e9)
    assert new().deliver()
    assert runs(experiment, name)[0].info.status == "KILLED"
    with scenario.start(tmp_path, name) as again:
        scenario.end(tmp_path, again)
    assert new().deliver()
    (run,) = runs(experiment, name)
    assert (run.info.status, run.info.end_time) == ("FINISHED", 4_000_000_000_000)
    assert "error" not in run.data.tags


def test_a_run_never_ends_before_it_begins(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    """Though a training whose record was lost is recorded long after it finished."""
    name = "train-lost"
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    scenario.finish(tmp_path, name, 1.0)
    with scenario.start(tmp_path, name) as run:
        scenario.end(tmp_path, run)
    assert new().deliver()
    (found,) = runs(experiment, name)
    assert found.info.end_time == found.info.start_time


def test_a_child_belongs_to_the_run_that_was_there_when_it_began(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    """Not to the newest of that name by the clock when MLflow hears of it."""
    name = "train-of-children"
    with scenario.start(tmp_path, name) as first:
        child = Recorder(tmp_path / "tracking", "child", kind="test", parent=name)
    with scenario.start(tmp_path, name) as second:  # there is no journal: another run
        sibling = Recorder(tmp_path / "tracking", "sibling", kind="test", parent=name)
    for each in (child, sibling):
        each.finish()
        each.close()
    assert new().deliver()
    by_key = {run.data.tags[KEY]: run.info.run_id for run in runs(experiment, name)}
    for each, parent in ((child, first), (sibling, second)):
        (run,) = runs(experiment, each.name)
        assert run.data.tags["mlflow.parentRunId"] == by_key[parent.key]


def test_a_run_that_was_taken_for_dead_has_its_own_end(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    with Recorder(tmp_path / "tracking", "t", kind="test") as run:
        relay = new()
        assert relay.deliver()
        found = Run(experiment, runs(experiment, run.name)[0].info.run_id)
        found.end("interrupted", time.time(), "its process 1 was gone")
        assert runs(experiment, run.name)[0].info.status == "KILLED"
    assert relay.deliver()
    (ended,) = runs(experiment, run.name)
    assert ended.info.status == "FINISHED"
    assert "error" not in ended.data.tags


def test_a_training_that_begins_anew_is_another_run(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    journal = tmp_path / recorded.train / "journal.jsonl"
    journal.unlink()
    with scenario.start(tmp_path, recorded.train) as again:
        relay = new()
        assert relay.run_id(again) is None
        scenario.write_journal(journal, 1, STEPS)
        assert relay.deliver()
        assert relay.run_id(again) is not None
    assert relay.deliver()
    found = runs(experiment, recorded.train)
    assert len(found) == 2
    assert [steps(experiment, run) for run in found] == [list(range(1, STEPS + 1))] * 2


@pytest.mark.parametrize("how", ["killed", "seen", "told", "failed"])
def test_a_training_that_died_before_its_journal_has_not_that_of_the_one_after(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], how: str
) -> None:
    name = f"train-died-{how}"  # all tests of this file have one store
    died = scenario.start(tmp_path, name)
    if how == "failed":
        died.finish("failed", "its process was gone")
    if how == "seen":
        assert new().deliver()
    died.close()  # as a process that is killed
    if how == "told":
        Outbox(died.folder).end_if_dead()  # while MLflow is away
    with scenario.start(tmp_path, name) as again:
        scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
        scenario.end(tmp_path, again)
    relay = new()
    assert relay.deliver()
    found = {run.data.tags[KEY]: run for run in runs(experiment, name)}
    assert len(found) == 2
    assert found[died.key].info.status == ("FAILED" if how == "failed" else "KILLED")
    assert "was gone" in found[died.key].data.tags["error"]
    assert steps(experiment, found[died.key]) == []
    assert found[again.key].info.status == "FINISHED"
    assert steps(experiment, found[again.key]) == list(range(1, STEPS + 1))
    assert relay.refused == {}


def deliver_half(new: Callable[..., Relay]) -> None:
    """Up to the first end of a run."""
    with pytest.raises(Killed):
        new(fate=failing("set_terminated", Killed())).deliver()


def test_another_store_gets_the_whole_of_what_was_not_complete(
    experiment: Experiment, tmp_path: Path, folder: Path, uri: str, new: Callable[..., Relay]
) -> None:
    complete = scenario.record(tmp_path)
    assert new().deliver()
    half = scenario.record(tmp_path)
    deliver_half(new)
    moved = new("elsewhere")
    assert moved.deliver()
    elsewhere = Experiment(uri, "elsewhere", folder / "artifacts")
    scenario.check(elsewhere, half)
    assert runs(elsewhere, complete.train) == []
    # A training that was delivered goes on in the new place, with all of its curves.
    with scenario.start(tmp_path, complete.train) as again:
        scenario.end(tmp_path, again)
    assert moved.deliver()
    (run,) = runs(elsewhere, complete.train)
    assert steps(elsewhere, run) == list(range(1, STEPS + 1))
    scenario.check(experiment, complete)


THEIRS = {"store": "http://theirs:5000", "experiment": "theirs", "project": "/home/them/clone"}


@pytest.mark.parametrize(
    ("own", "delivered"),
    [
        ((), False),
        (("project",), True),  # whose tracking.uri is another by now
        (("store", "experiment"), True),  # such as another job's copy
        (("store",), False),
        (("experiment",), False),
    ],
)
def test_projects_that_share_a_storage_deliver_to_their_own_stores(
    tmp_path: Path, uri: str, own: tuple[str, ...], delivered: bool
) -> None:
    root, name = tmp_path / "tracking", f"shared-{uuid.uuid4().hex}"
    relay = Relay(root, uri, name, tmp_path / "artifacts")
    ours = dataclasses.asdict(relay.to)
    identity = Path(f"{uri.removeprefix('sqlite:///')}.id").read_text()
    assert ours == {
        "store": f"{identity} {uri}",
        "experiment": name,
        "project": str(Path.cwd()),
    }
    to = Addressee(**THEIRS | {key: ours[key] for key in own})
    (tmp_path / "index.html").write_text("a page")
    with Recorder(root, "a run", kind="test", name="a-run", to=to) as run:
        run.log({"score/bleu": 2.0})
    if delivered:  # as of a training that others have asked for since
        with Recorder(root, "a run", kind="test", name="a-run", to=Addressee(**THEIRS)):
            pass
    attach(root, "a-run", [tmp_path / "index.html"], "text", None, to)
    before = relay.records_left()
    assert relay.deliver()
    assert (before > 0) is delivered
    # What others have asked for too waits for them.
    assert [box.name for box in outboxes(root)][:1] == ["a-run"]
    assert len(outboxes(root)) == (1 if delivered else 2)
    theirs = Relay(root, uri, name, tmp_path / "artifacts")
    theirs.to = to
    assert theirs.records_left() == (0 if delivered else 6)


def of_two_projects(new: Callable[..., Relay], name: str) -> tuple[Relay, Relay]:
    """The relays of two projects that share a storage, but no experiment."""
    relays = new(), new(name)
    for relay in relays:
        relay.to = dataclasses.replace(relay.to, project=f"/home/{relay.experiment}")
    return relays


@pytest.mark.parametrize("earlier_version", [False, True])
def test_a_finished_training_that_another_project_asks_for_goes_to_its_store(
    tmp_path: Path, new: Callable[..., Relay], earlier_version: bool
) -> None:
    name = f"train-asked-{earlier_version}"
    first, second = of_two_projects(new, name)
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    with scenario.start(tmp_path, name, to=first.to) as run:
        scenario.end(tmp_path, run)
    assert first.deliver()
    delivered, applied = run.folder / "delivered.json", first.applied
    if earlier_version:  # it noted one store
        noted = json.loads(delivered.read_text())
        del noted["others"]
        delivered.write_text(json.dumps(noted))
    with scenario.start(tmp_path, name, to=second.to) as again:
        scenario.end(tmp_path, again)
    assert first.deliver()
    assert first.applied == applied
    # The newest run of that name is not always that of who evaluates.
    (tmp_path / name / "journal.jsonl").rename(tmp_path / "journal.jsonl")
    with scenario.start(tmp_path, name, to=first.to):
        pass
    with Recorder(tmp_path / "tracking", "e", kind="t", parent=name, to=second.to) as evaluation:
        pass
    (tmp_path / "journal.jsonl").rename(tmp_path / name / "journal.jsonl")
    assert second.deliver()
    experiment = second.open()
    (found,) = experiment.find(again.key)
    assert found.info.status == "FINISHED"
    assert steps(experiment, found) == list(range(1, STEPS + 1))
    (below,) = experiment.find(evaluation.key)
    assert below.data.tags[PARENT] == found.info.run_id
    assert (run.folder / "files").exists()  # of what the first has not delivered
    assert first.deliver()
    assert not (run.folder / "files").exists()
    assert [relay.records_left() for relay in (first, second)] == [0, 0]
    assert (first.refused, second.refused) == ({}, {})


def test_a_training_that_another_project_finishes_ends_in_the_stores_of_both(
    tmp_path: Path, new: Callable[..., Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "train-of-both"
    first, second = of_two_projects(new, name)
    sent, real = list[int](), Run.points

    def points(run: Run, some: Any) -> None:
        sent.append(len(some))
        real(run, some)

    monkeypatch.setattr(Run, "points", points)
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, 13)
    died = scenario.start(tmp_path, name, to=second.to)
    assert second.deliver()
    died.close()  # as a process that is killed
    with scenario.start(tmp_path, name, to=first.to) as run:
        for _ in range(2):  # no curve goes to a store again while both are delivered
            assert first.deliver()
            assert second.deliver()
        assert sum(sent) == 2 * 15
        scenario.write_journal(tmp_path / name / "journal.jsonl", 14, STEPS)
        scenario.end(tmp_path, run)
    for relay, kept in ((first, True), (second, False)):
        assert relay.deliver()
        assert (run.folder / "files").exists() is kept
        (found,) = relay.open().find(run.key)
        assert found.info.status == "FINISHED"
        assert steps(relay.open(), found) == list(range(1, STEPS + 1))
        assert relay.refused == {}
    assert sum(sent) > 2 * 15


def test_a_clone_on_another_machine_has_another_store_of_the_same_address(
    tmp_path: Path, folder: Path, uri: str, experiment: Experiment, new: Callable[..., Relay]
) -> None:
    """Where both share a storage, and each has mlflow.db in the same place."""
    here, name = new(), "train-of-two-machines"
    shutil.copy(folder / "mlflow.db", tmp_path / "mlflow.db")
    there = Relay(here.root, f"sqlite:///{tmp_path / 'mlflow.db'}", "tests", tmp_path / "files")
    other = named(there.uri, tmp_path / "mlflow.db").partition(" ")[0]
    there.store = f"{other} {uri}"
    there.to = Addressee.of(there.store, "tests", Path.cwd())
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, 10)
    with scenario.start(tmp_path, name, to=here.to) as run:
        assert there.records_left() == 0  # also before it is in its own store
        assert here.deliver()
        found = here.run_id(run)
        assert there.deliver()
        scenario.write_journal(tmp_path / name / "journal.jsonl", 11, STEPS)
        scenario.end(tmp_path, run)
        assert there.deliver()
        assert here.deliver()
        assert (here.run_id(run), there.applied) == (found, 0)
    assert here.deliver()
    assert steps(experiment, runs(experiment, name)[0]) == list(range(1, STEPS + 1))
    # Asked for there too it goes to both, as of any other project.
    with scenario.start(tmp_path, name, to=there.to) as again:
        scenario.end(tmp_path, again)
    assert there.deliver()
    (copy,) = runs(there.open(), name)
    assert steps(there.open(), copy) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_version_without_ids_began_goes_on(
    tmp_path: Path, experiment: Experiment, new: Callable[..., Relay], elsewhere: bool
) -> None:
    """Of this project, and of one whose folder went, as of a job."""
    relay, name = new(), f"train-without-ids-{elsewhere}"
    to = dataclasses.replace(relay.to, store=relay.uri)
    if elsewhere:
        to = dataclasses.replace(to, project="/home/job")
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    with scenario.start(tmp_path, name, to=to) as run:
        relay.store = relay.uri
        assert relay.deliver()
        noted = json.loads((run.folder / "delivered.json").read_text())
        assert noted["store"] == relay.uri
        later = new()
        assert later.records_left() == 0
        scenario.end(tmp_path, run)
        left = later.records_left()
        assert later.deliver()
        assert later.applied == left > 0
    assert later.deliver()
    (found,) = runs(experiment, name)
    assert (found.info.run_id, found.info.status) == (noted["run_id"], "FINISHED")
    noted = json.loads((run.folder / "delivered.json").read_text())
    assert (noted["store"], noted["others"]) == (later.store, [])
    assert not (run.folder / "files").exists()


def test_a_parent_that_goes_to_another_store_is_not_waited_for(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    root, relay, name = tmp_path / "tracking", new(), "train-of-theirs"
    with Recorder(root, "theirs", kind="test", name=name, to=Addressee(**THEIRS)):
        pass
    with Recorder(root, "ours", kind="test", parent=name, to=relay.to) as run:
        pass
    assert relay.deliver()
    assert relay.waiting == {}
    (found,) = experiment.find(run.key)
    assert found.info.status == "FINISHED"
    assert PARENT not in found.data.tags


@pytest.mark.parametrize("refused", [False, True])
def test_a_store_begun_anew_in_the_place_of_another_gets_the_whole_too(
    tmp_path: Path, folder: Path, uri: str, new: Callable[..., Relay], refused: bool
) -> None:
    """Also if it has refused, before, what is of a run that it does not know."""
    name = f"anew-{refused}"
    recorded = scenario.record(tmp_path)
    deliver_half(new)
    begun = 0
    for box in outboxes(tmp_path / "tracking"):
        with contextlib.suppress(FileNotFoundError):
            noted = json.loads((box.folder / "delivered.json").read_text("utf-8"))
            noted |= {"experiment": name, "run_id": uuid.uuid4().hex}
            if refused:
                last = box.records()[-1]
                noted |= {"position": last.end, "refused": {str(last.begin): "no such run"}}
            (box.folder / "delivered.json").write_text(json.dumps(noted))
            begun += 1
    assert begun > 0
    relay = new(name)
    assert relay.deliver()
    assert relay.refused == {}
    scenario.check(Experiment(uri, name, folder / "artifacts"), recorded)


def test_children_wait_for_their_parent_or_do_without(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    # Its outbox is gone, but MLflow has it.
    Outbox(tmp_path / "tracking" / recorded.train).remove()
    child = scenario.evaluate(tmp_path, recorded.train)
    orphan = scenario.evaluate(tmp_path, "train-of-nobody")
    relay = new()
    assert relay.deliver()
    assert relay.refused == {}
    (parent,), (run,), (alone,) = (
        runs(experiment, name) for name in (recorded.train, child.name, orphan.name)
    )
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert "mlflow.parentRunId" not in alone.data.tags
    assert alone.info.status == "FINISHED"


# --- what MLflow does not take -------------------------------------------------------------------


def test_what_is_refused_is_kept_and_holds_up_nothing_else(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    with Recorder(tmp_path / "tracking", "bad", kind="test") as bad:
        bad.log({"no$name": 2.0}, 1)
        bad.log({"train/loss": 1.0}, 1)
    with Recorder(tmp_path / "tracking", "good", kind="test") as good:
        pass
    relay = new()
    assert relay.deliver()
    assert list(relay.refused) == [bad.name]
    assert "no$name" in relay.refused[bad.name]
    (run,), (other,) = runs(experiment, bad.name), runs(experiment, good.name)
    assert (run.info.status, other.info.status) == ("FINISHED", "FINISHED")
    assert steps(experiment, run) == [1]
    # Kept, and tried again by the next process; in vain, and then with success.
    assert [box.name for box in outboxes(tmp_path / "tracking")] == [bad.name]
    again = new()
    assert again.deliver()
    assert list(again.refused) == [bad.name]
    assert again.applied == 0
    path = bad.folder / "records.jsonl"
    path.write_text(path.read_text().replace("no$name", "no name"))
    mended = new()
    assert mended.deliver()
    assert mended.refused == {}
    assert mended.applied == 1  # what came after it is not sent again
    assert outboxes(tmp_path / "tracking") == []


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_refused_comes_to_its_own_run_when_another_has_begun(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], gone: bool
) -> None:
    """As of an evaluation that is run again, both in an outbox of one name."""
    name, page, ids = f"again-{gone}", tmp_path / "page.html", list[str]()
    for text in ("first", "second"):
        page.write_text(text)
        with Recorder(tmp_path / "tracking", text, kind="test", name=name) as run:
            run.artifact(page)
        relay = new(fate=failing("log_artifact", REFUSED))
        assert relay.deliver()
        assert relay.refused == {name: "no"}
        ids.append(experiment.find(run.key)[0].info.run_id)
    if gone:
        experiment.client.delete_run(ids[0])
    relay = new()
    assert relay.deliver()
    assert relay.refused == ({name: "its run is not in MLflow any more"} if gone else {})
    texts = [artifact_text(experiment.client, run_id, page.name) for run_id in ids[gone:]]
    assert texts == ["first", "second"][gone:]


def test_an_end_that_was_refused_comes_to_its_own_run_while_another_goes_on(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    fate, name = failing("set_terminated", REFUSED), f"train-{uuid.uuid4().hex}"
    journal = tmp_path / name / "journal.jsonl"
    with scenario.start(tmp_path, name) as first:
        first.finish("failed", "no room")
    assert new(fate=fate).deliver()
    with scenario.start(tmp_path, name) as second:  # there is no journal: another run
        scenario.write_journal(journal, 1, 5)
        for relay, refused in ((new(fate=fate), {name: "no"}), (new(), {})):
            assert relay.deliver()
            assert relay.refused == refused
        scenario.write_journal(journal, 6, STEPS)
        assert new().deliver()
        (ended,), (goes_on,) = (experiment.find(run.key) for run in (first, second))
        assert (ended.info.status, ended.data.tags["error"]) == ("FAILED", "no room")
        assert ended.info.end_time >= ended.info.start_time
        assert goes_on.info.status == "RUNNING"
        assert [len(steps(experiment, run)) for run in (ended, goes_on)] == [0, STEPS]


def test_a_refused_end_of_a_run_that_is_deleted_is_waited_for_no_more(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    name = f"evaluate-{uuid.uuid4().hex}"
    with scenario.start(tmp_path, name) as first:
        assert new().deliver()
        (found,) = experiment.find(first.key)
        experiment.client.delete_run(found.info.run_id)
        first.finish()
    relay = new()
    assert relay.deliver()
    assert "active" in relay.refused[name]
    with scenario.start(tmp_path, name) as second:
        second.finish()
    assert new().deliver()  # asks once more before the other run has begun
    again = new()
    assert again.deliver()
    assert again.refused == {}
    (ended,) = experiment.find(second.key)
    assert ended.info.status == "FINISHED"


def test_a_run_that_cannot_be_made_holds_up_nothing_else(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    with Recorder(tmp_path / "tracking", "bad", kind="test") as bad:
        pass
    with Recorder(tmp_path / "tracking", "good", kind="test") as good:
        pass

    def fate(call: str) -> None:
        if call == "create_run" and not runs(experiment, bad.name) and not made:
            made.append(call)
            raise MlflowException("experiment is deleted", INVALID_PARAMETER_VALUE)

    made: list[str] = []
    relay = new(fate=fate)
    assert relay.deliver()
    assert relay.refused == {bad.name: "experiment is deleted"}
    assert len(runs(experiment, good.name)) == 1
    assert relay.deliver()
    assert relay.refused == {}
    assert len(runs(experiment, bad.name)) == 1


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ModuleNotFoundError("No module named 'boto3'"), "No module named 'boto3'"),
        (NoCredentialsError(), "Unable to locate credentials"),
        (ClientError({"Error": {"Code": "AccessDenied"}}, "PutObject"), "AccessDenied"),
        (S3UploadFailedError("Failed to upload a to b: AccessDenied"), "AccessDenied"),
        (OSError("413 too large for http://ada:hunter2@host"), r"413 .* http://\*\*\*@host"),
    ],
)
def test_a_file_at_which_the_store_always_fails_is_refused_and_holds_up_nothing_else(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], error: Exception, why: str
) -> None:
    with Recorder(tmp_path / "tracking", "files", kind="test") as files:
        files.artifact(Path(__file__))
        files.log({"train/loss": 1.0}, 1)
    with Recorder(tmp_path / "tracking", "none", kind="test") as none:
        pass
    relay = new(fate=failing("log_artifact", error))
    for _ in range(ATTEMPTS - 1):
        with pytest.raises(UnavailableError, match=why):
            relay.deliver()
    assert relay.deliver()
    assert list(relay.refused) == [files.name]
    assert re.search(why, relay.refused[files.name])
    (run,), (other,) = runs(experiment, files.name), runs(experiment, none.name)
    assert (run.info.status, other.info.status) == ("FINISHED", "FINISHED")
    assert steps(experiment, run) == [1]
    assert new().deliver()
    assert len(experiment.client.list_artifacts(run.info.run_id)) == 1


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_refused_does_not_undo_what_was_recorded_later(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], dies: bool
) -> None:
    """Also where who tries it again dies between the two."""
    page, states = tmp_path / "page.html", ("first", "last")
    with Recorder(tmp_path / "tracking", "undone", kind="test") as run:
        for state in states:
            run.describe(state)
            run.tag({"outcome": state, state: "there"})
            page.write_text(state)
            run.artifact(page)
            run.log({"train/loss": 1.0}, 1)
        run.finish("failed", "no room")  # files of a FINISHED run stay anyway
    left = 3

    def refuses_three(call: str) -> None:
        nonlocal left
        if call in ("log_batch", "log_artifact") and left:
            left -= 1
            raise REFUSED

    relay = new(fate=refuses_three)
    assert relay.deliver()
    assert run.name in relay.refused

    def check() -> None:
        (found,) = runs(experiment, run.name)
        tags = found.data.tags
        assert (tags["outcome"], tags["mlflow.note.content"]) == ("last", "last")
        assert artifact_text(experiment.client, found.info.run_id, page.name) == "last"

    check()
    calls = 0

    def dies_later(call: str) -> None:
        nonlocal calls
        calls += call in ("log_batch", "log_artifact")
        if calls == 2 * 3:  # before and after: the three that were refused
            raise Killed

    if dies:
        with pytest.raises(Killed):
            new(fate=dies_later).deliver()
    mended = new()
    assert mended.deliver()
    assert mended.refused == {}
    check()
    assert "first" in runs(experiment, run.name)[0].data.tags
    assert dies or mended.applied == 3 * 2  # the numbers are not sent again
    assert outboxes(tmp_path / "tracking") == []


def test_failures_with_successes_between_them_refuse_nothing(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    """A training has one cursor for hours, in which many a request may fail once."""
    path = tmp_path / "train-h" / "journal.jsonl"
    away = True

    def fate(call: str) -> None:
        if call == "log_batch" and away:
            raise OSError("connection reset by peer")

    relay = new(fate=fate)
    with scenario.start(tmp_path, "train-h") as run:
        away = False
        assert relay.deliver()
        for step in range(1, 2 * ATTEMPTS):
            scenario.write_journal(path, step, step)
            away = True
            with pytest.raises(UnavailableError):
                relay.deliver()
            away = False
            assert relay.deliver()
            assert relay.refused == {}
        scenario.end(tmp_path, run)
    assert relay.deliver()
    assert steps(experiment, runs(experiment, run.name)[0]) == [*range(1, 2 * ATTEMPTS)]


def test_an_end_that_the_store_always_fails_at_is_refused_though_its_curves_are_not(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    scenario.write_journal(tmp_path / "train-e" / "journal.jsonl", 1, 5)
    with scenario.start(tmp_path, "train-e") as run:
        scenario.end(tmp_path, run)
    relay = new(fate=failing("set_terminated", OSError("413 too large")))
    for _ in range(ATTEMPTS - 1):
        with pytest.raises(UnavailableError, match="413 too large"):
            relay.deliver()
    assert relay.deliver()
    assert "413 too large" in relay.refused[run.name]


def test_a_deleted_run_is_refused_and_a_resumed_one_begins_anew(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    scenario.write_journal(tmp_path / "train-d" / "journal.jsonl", 1, 5)
    with scenario.start(tmp_path, "train-d") as run:
        relay = new()
        assert relay.deliver()
        first = relay.run_id(run)
        experiment.client.delete_run(first)
        scenario.end(tmp_path, run)
    assert relay.deliver()
    assert "active" in relay.refused["train-d"]
    with scenario.start(tmp_path, "train-d") as run:
        assert relay.deliver()
        assert relay.run_id(run) != first
        scenario.end(tmp_path, run)
    again = new()
    assert again.deliver()
    assert again.refused == {}
    (found,) = runs(experiment, "train-d")
    assert found.info.status == "FINISHED"
    assert steps(experiment, found) == [1, 2, 3, 4, 5]


def test_a_run_that_is_restored_does_not_take_the_place_of_the_newer_one(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    name, ids = "train-restored", list[str]()
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, 5)
    for _ in range(2):
        with scenario.start(tmp_path, name) as run:
            scenario.end(tmp_path, run)
        assert new().deliver()
        (found,) = runs(experiment, name)
        ids.append(found.info.run_id)
        experiment.client.delete_run(found.info.run_id)
    for run_id in ids:
        experiment.client.restore_run(run_id)
    with scenario.start(tmp_path, name) as run:
        scenario.end(tmp_path, run)
    relay = new()
    assert relay.deliver()
    assert relay.run_id(run) == ids[1]
    assert {found.info.run_id for found in runs(experiment, name)} == {*ids}


def test_damage_is_named_and_holds_up_nothing_else(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    for name in ("lost-file", "no-json", "bad-journal"):
        journal = tmp_path / name / "journal"
        journal.parent.mkdir()
        journal.write_text("no json\n" if name == "bad-journal" else "")
        with Recorder(tmp_path / "tracking", "t", kind="t", journal=journal) as run:
            run.artifact(Path(__file__))
    box = tmp_path / "tracking"
    next((box / "lost-file" / "files").glob("*/*.py")).unlink()
    (box / "no-json" / "records.jsonl").write_bytes(b"\xff\xfe\n")
    # Noted again from the start, which changes nothing.
    (box / recorded.train / "delivered.json").write_text("{")
    with Recorder(box, "t", kind="newer") as newer:
        newer._append("paint", colour="red")
    relay = new()
    assert relay.deliver()
    assert "is missing" in relay.refused["lost-file"]
    assert "no-json/records.jsonl is damaged at byte 0" in relay.refused["no-json"]
    assert "has a damaged line" in relay.refused["bad-journal"]
    assert relay.refused[newer.name] == (
        f"{newer.folder} holds a record 'paint' of another version (none that this version knows)"
    )
    assert relay.refused.keys() == {"lost-file", "no-json", "bad-journal", newer.name}
    for name in ("lost-file", "bad-journal"):
        assert runs(experiment, name)[0].info.status == "FINISHED"
    scenario.check(experiment, recorded)


START = {"do": "start", "time": 1.7e9, "key": "old.1", "title": "old", "parent": None}
LOG = {"do": "log", "time": 1.7e9, "metrics": {"bleu": 27.5}, "step": 20}
END = {"do": "end", "time": 1.7e9, "status": "finished", "error": None, "curves": False}
AS_WRITTEN = {
    "a30695d": [  # 2026-11-22
        {**START, "goes_on": True, "tags": {"kind": "experiment"}},
        {"do": "params", "time": 1.7e9, "values": {"beam": "4"}, "only_new": True},
        {**LOG, "at": None, "on_parent": False},
        {"do": "end", "time": 1.7e9, "status": "FINISHED", "error": None},
    ],
    "d9d28b4": [  # 2026-11-24
        {**START, "journal": None, "tags": {"kind": "experiment"}},
        {"do": "params", "values": {"beam": "4"}},
        {**LOG, "on_parent": False},
        END,
    ],
}
"""Records of a run as earlier commits wrote them."""


def write_records(root: Path, name: str, records: list[Any]) -> None:
    (root / "tracking" / name).mkdir(parents=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (root / "tracking" / name / "records.jsonl").write_text(text)


def test_records_of_an_earlier_version_are_delivered(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    write_records(tmp_path, "old", AS_WRITTEN["d9d28b4"])
    relay = new()
    assert relay.deliver()
    assert relay.refused == {}
    (run,) = runs(experiment, "old")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "old")
    assert run.data.metrics == {"bleu": 27.5}
    assert run.data.params == {"beam": "4"}


def test_records_of_an_older_version_are_refused_in_one_line(
    tmp_path: Path, new: Callable[..., Relay]
) -> None:
    write_records(tmp_path, "old", AS_WRITTEN["a30695d"])
    relay = new()
    assert relay.deliver()
    folder = tmp_path / "tracking" / "old"
    assert relay.refused["old"].startswith(f"{folder} holds a record 'start' of another version (")
    assert "goes_on" in relay.refused["old"]
    assert folder.exists()


def test_records_of_any_other_shape_are_refused_in_one_line_each(
    tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path / "of this version")
    begun = {**START, "journal": None, "tags": {"kind": "experiment"}}
    boxes = tmp_path / "of this version" / "tracking"
    written = [
        json.loads(line)
        for name in (recorded.train, recorded.evaluation)
        for line in (boxes / name / "records.jsonl").read_text().splitlines()
    ]
    shapes = []
    for record in {record["do"]: record for record in written}.values():
        for key in record.keys() - {"do"}:
            shapes.append({k: value for k, value in record.items() if k != key})
            shapes += [record | {key: 7}, record | {key: [7]}, record | {key: {"a": [7]}}]
    assert len(shapes) > 60
    for i, record in enumerate(shapes):
        name = f"odd-{i}"
        before = [] if record["do"] == "start" else [begun | {"key": f"{name}.1"}]
        write_records(tmp_path, name, [*before, record, END])
    relay = new()
    for _ in range(ATTEMPTS * len(shapes)):
        try:
            relay.deliver()
            break
        except UnavailableError:  # for MLflow itself fails at some, and is asked again
            pass
    else:
        pytest.fail("never all delivered or refused")
    refused = [reason for name, reason in relay.refused.items() if name.startswith("odd-")]
    assert len(refused) > len(shapes) / 2
    assert all("\n" not in reason and len(reason) < 400 for reason in refused)


def test_a_full_disk_stops_delivery_and_loses_nothing(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, os.strerror(28), str(path))

    recorded = scenario.record(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "write_whole", full)
        with pytest.raises(UnavailableError, match=r"No space left on device: .*delivered\.json"):
            new().deliver()
    assert new().deliver()
    scenario.check(experiment, recorded)


def test_no_password_is_noted(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    Cursor.load(box, "http://ada:hunter2@host:5000", "e").save(box)
    noted = (tmp_path / "delivered.json").read_text()
    assert json.loads(noted)["store"] == "http://***@host:5000"
    # Another password is no other store.
    Cursor("http://***@host:5000", "e", run_id="1").save(box)
    assert Cursor.load(box, "http://ada:other@host:5000", "e").run_id == "1"
    assert Cursor.load(box, "http://ada:other@host:6000", "e").run_id is None


# --- what a later stage adds ----------------------------------------------------------------------


def test_a_report_comes_to_the_newest_run_of_its_evaluation(
    tmp_path: Path, experiment: Experiment, new: Callable[[], Relay]
) -> None:
    root, page = tmp_path / "tracking", tmp_path / "index.html"
    name = f"evaluation-{uuid.uuid4().hex}"

    def record(text: str) -> str:
        with Recorder(root, "test", kind="evaluation", name=name) as run:
            run.log({"score/bleu": 1.0})
        page.write_text(text)
        attach(root, name, [page], f"{text} RUN_PAGE/artifacts/index.html")
        return run.key

    experiment.client.set_experiment_tag(experiment.id, "mlflow.note.content", "")
    # Both are there when the first is delivered; and the outbox is gone when the third comes.
    keys = [record("first"), record("second")]
    assert new().deliver()
    page.write_text("delivered late")
    attach(root, name, [page], "delivered late")
    (late,) = root.iterdir()
    late.rename(tmp_path / late.name)
    page.write_text("third")
    attach(root, name, [page], "third RUN_PAGE")
    assert new().deliver()
    (tmp_path / late.name).rename(late)
    assert new().deliver()
    first, second = (experiment.find(key)[0].info.run_id for key in keys)
    texts = [artifact_text(experiment.client, run, "index.html") for run in (first, second)]
    assert texts == ["first", "third"]
    note = experiment.client.get_experiment(experiment.id).tags["mlflow.note.content"]
    assert note == f"third #/experiments/{experiment.id}/runs/{second}"
    assert list(root.iterdir()) == []


def test_a_report_goes_to_the_run_that_the_stage_knew(
    tmp_path: Path, experiment: Experiment, new: Callable[[], Relay]
) -> None:
    """Who evaluates the same training, data and code elsewhere has a run of the same name."""
    root, page, name = tmp_path / "tracking", tmp_path / "index.html", f"e-{uuid.uuid4().hex}"
    ids = []
    for _ in range(2):
        with Recorder(root, "test", kind="evaluation", name=name) as run:
            run.log({"score/bleu": 1.0})
        assert new().deliver()
        ids.append(experiment.find(run.key)[0].info.run_id)
    page.write_text("page")

    def files(run_id: str) -> list[str]:
        return [file.path for file in experiment.client.list_artifacts(run_id)]

    attach(root, name, [page], "text", ids[0])
    assert new().deliver()
    assert [files(run_id) for run_id in ids] == [["index.html"], []]
    # One that is gone, or never was, leaves it nowhere.
    experiment.client.delete_run(ids[0])
    page.write_text("another")
    nobodys = f"nobody-{uuid.uuid4().hex}"
    for whose, run_id in ((name, ids[0]), (name, uuid.uuid4().hex), (nobodys, None)):
        attach(root, whose, [page], "text", run_id)
        relay = new()
        assert relay.deliver()
        assert (relay.refused, list(root.iterdir()), files(ids[1])) == ({}, [], [])
    assert artifact_text(experiment.client, ids[0], "index.html") == "page"
    # What is still here tells more than an id, which another store does not know.
    with Recorder(root, "test", kind="evaluation", name=name) as run:
        attach(root, name, [page], "text", ids[1])
    assert new().deliver()
    assert files(experiment.find(run.key)[0].info.run_id) == ["index.html"]


def test_scores_go_to_the_training_that_the_stage_knew(
    tmp_path: Path, experiment: Experiment, new: Callable[[], Relay]
) -> None:
    """Another clone that trains the same has a run of the same name, and perhaps a newer one."""
    root, name, ids = tmp_path / "tracking", f"train-{uuid.uuid4().hex}", []
    for _ in range(2):
        with Recorder(root, "train", kind="training", name=name) as run:
            pass
        assert new().deliver()
        ids.append(experiment.find(run.key)[0].info.run_id)
    ours, theirs = ids

    def scored(known: str | None) -> str | None:
        with Recorder(root, "test", kind="test", parent=name, parent_id=known) as run:
            run.log({"score/bleu": 1.0}, on_parent=True)
        relay = new()
        assert (relay.deliver(), relay.refused) == (True, {})
        (found,) = experiment.find(run.key)
        above: str | None = found.data.tags.get(PARENT)
        return above

    def scores(run_id: str) -> dict[str, float]:
        return dict(experiment.client.get_run(run_id).data.metrics)

    assert scored(ours) == ours
    assert [scores(run_id) for run_id in ids] == [{"score/bleu": 1.0}, {}]
    # Its training is gone: nobody else's has these scores.
    assert scored(uuid.uuid4().hex) is None
    assert scores(theirs) == {}
    # It is not known, as MLflow was away.
    assert scored(None) == theirs


def test_a_report_that_cannot_be_kept_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        attach(tmp_path / "tracking", "name", [tmp_path / "missing"], "text")
    assert list((tmp_path / "tracking").iterdir()) == []


def test_which_process_recorded_a_run_is_no_tag_of_it(
    tmp_path: Path, experiment: Experiment, new: Callable[[], Relay]
) -> None:
    with Recorder(tmp_path / "tracking", "t", kind="test") as run:
        run.describe("see RUN_PAGE/artifacts/a")
    assert new().deliver()
    (found,) = experiment.find(run.key)
    assert not [key for key in found.data.tags if key.startswith("process.")]
    page = f"#/experiments/{experiment.id}/runs/{found.info.run_id}"
    assert found.data.tags["mlflow.note.content"] == f"see {page}/artifacts/a"


# --- which points of a journal become curves ------------------------------------------------------


def entry(kind: str, step: int, **figures: float | None) -> dict[str, Any]:
    return {"kind": kind, "step": step, "time": 1000.0 + step, **figures}


def test_curves_and_nothing_else() -> None:
    entries = [
        entry("logged", 1, loss=None, perplexity=4.0, seconds_left=3.0, epoch=1),
        entry("validated", 1, valid_loss=1.0, valid_perplexity=2.0),
        entry("checkpoint", 1, loss=99.0, valid_loss=99.0),
        entry("finished", 1, wall_seconds=3.0, loss=99.0),
    ]
    points, last = new_points(entries, {})
    assert points == [
        (1001.0, 1, {"train/loss": None, "train/perplexity": 4.0}),
        (1001.0, 1, {"train/valid_loss": 1.0, "train/valid_perplexity": 2.0}),
    ]
    assert last == {"logged": 1, "validated": 1}


def test_steps_that_are_repeated_are_passed_over() -> None:
    first = [entry("logged", step, loss=1.0) for step in (1, 2, 3)]
    again = [entry("logged", step, loss=1.0) for step in (2, 3, 4)]
    before = {"logged": 2}
    points, last = new_points([*first, *again], before)
    assert [step for _, step, _ in points] == [3, 4]
    assert last == {"logged": 4}
    assert before == {"logged": 2}


def test_names_of_the_curves() -> None:
    """By section, as MLflow's charts come."""
    assert [name for names in CURVES.values() for name in names.values()] == [
        "train/loss",
        "train/perplexity",
        "train/gradient_norm",
        "train/learning_rate",
        "train/tokens_per_second",
        "system/rss_bytes",
        "system/peak_rss_bytes",
        "system/peak_gpu_bytes",
        "system/cpu_utilization_percentage",
        "system/system_memory_usage_percentage",
        "system/gpu_memory_usage_percentage",
        "train/valid_loss",
        "train/valid_perplexity",
    ]
