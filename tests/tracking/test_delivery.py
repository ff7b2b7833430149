"""Outboxes reach MLflow: all of it, once, whatever fails or dies in between."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from seq2sweep.tracking import delivered, delivery
from seq2sweep.tracking.delivered import Delivered
from seq2sweep.tracking.delivery import Away, Courier
from seq2sweep.tracking.outbox import Outbox, outboxes
from seq2sweep.tracking.runs import KEY, Tracker
from seq2sweep.tracking.writer import Writer
from tests.tracking import scenario
from tests.tracking.couriers import Killed, runs, steps
from tests.tracking.scenario import STEPS

# --- once ----------------------------------------------------------------------------------------


def test_all_of_it_once_and_nothing_is_left(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    courier = new()
    total, seen = courier.steps_left(), []
    courier.on_step = seen.append
    assert courier.deliver()
    scenario.check(tracker, recorded)
    assert len(seen) == total
    assert max(seen) == 7000
    assert courier.steps_left() == 0
    # What may go on is kept without its files, the rest is gone.
    (box,) = outboxes(tmp_path / "tracking")
    assert box.name == recorded.train
    assert not (box.folder / "files").exists()
    before = courier.applied
    assert courier.deliver()
    assert new().deliver()
    assert courier.applied == before


def test_killed_at_any_point(
    tracker: Tracker,
    tmp_path: Path,
    new: Callable[..., Courier],
    monkeypatch: pytest.MonkeyPatch,
    thorough: bool,
) -> None:
    """At every point where a delivery can end, or, without --thorough, at every second one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power fails here
    kills: list[str] = []
    point = 0
    write = delivered.write_whole

    def noted(path: Path, text: str) -> None:
        fate("note")
        write(path, text)
        fate("note")

    def fate(call: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            kills.append(call)
            raise Killed

    while True:
        recorded = scenario.record(tmp_path)
        left = point
        with monkeypatch.context() as patch:
            patch.setattr(delivered, "write_whole", noted)
            try:
                new(fate=fate).deliver()
            except Killed:
                pass
            else:
                break
        assert new().deliver()
        scenario.check(tracker, recorded)
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
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier], seed: int
) -> None:
    draw = random.Random(seed)

    def fate(call: str) -> None:
        # Like an outage: the check whether the store is there fails as well.
        if call == "get_experiment" or draw.random() < 0.1:
            raise MlflowException("http://ada:hunter2@host is away")

    recorded = scenario.record(tmp_path)
    courier = new(fate=fate)
    failures: list[str] = []
    for _ in range(500):
        try:
            if courier.deliver():
                break
        except Away as error:
            failures.append(str(error))
    assert len(failures) > 1
    assert "hunter2" not in "".join(failures)
    scenario.check(tracker, recorded)


def test_one_at_a_time(tmp_path: Path, new: Callable[..., Courier]) -> None:
    recorded = scenario.record(tmp_path)
    box = Outbox(tmp_path / "tracking" / recorded.train)
    with box.delivering() as ours:
        assert ours
        courier = new()
        assert not courier.deliver()
        # Not even its child, which would have no parent.
        assert courier.applied == 0
    assert courier.deliver()


def test_what_mlflow_has_is_noted_once_a_record(
    tmp_path: Path, new: Callable[..., Courier], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(tmp_path / "tracking", "t", kind="test", name="noted") as run:
        run.log({"loss": 1.0}, 1)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    assert new().deliver()
    # Each of the three, and that all of it is whole.
    assert len(flushed) == 4


# --- going on ------------------------------------------------------------------------------------


def test_a_resumed_training_is_one_run(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    journal = tmp_path / "train-r" / "journal.jsonl"
    scenario.write_journal(journal, 1, 13)
    died = scenario.start(tmp_path, "train-r")
    assert new().deliver()
    (run,) = runs(tracker, "train-r")
    assert run.info.status == "RUNNING"
    assert steps(tracker, run) == list(range(1, 14))
    died.close()  # as a process that is killed
    assert new().deliver()
    (run,) = runs(tracker, "train-r")
    assert run.info.status == "KILLED"
    assert "was gone" in run.data.tags["closed"]

    scenario.write_journal(journal, 11, 15)  # a journal that repeats steps
    with scenario.start(tmp_path, "train-r", workers=4) as again:
        courier = new()
        assert courier.deliver()
        (run,) = runs(tracker, "train-r")
        assert run.info.status == "RUNNING"
        assert "closed" not in run.data.tags
        assert courier.run_id(again) == run.info.run_id
        scenario.write_journal(journal, 16, STEPS)
        scenario.end(tmp_path, again)
    assert courier.deliver()
    (run,) = runs(tracker, "train-r")
    assert run.info.status == "FINISHED"
    assert steps(tracker, run) == list(range(1, STEPS + 1))
    assert run.data.params["cluster.workers"] == "2"  # as it began; no conflict
    assert courier.refused == {}


def test_a_finished_training_that_is_run_again_repeats_nothing(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    with scenario.start(tmp_path, recorded.train) as again:
        scenario.end(tmp_path, again)
    assert new().deliver()
    scenario.check(tracker, recorded)


def test_a_finished_training_that_is_asked_for_again_keeps_its_lineage_and_its_end(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    (before,) = runs(tracker, recorded.train)
    with scenario.start(tmp_path, recorded.train, done=1.0, tags={"git.commit": "later"}) as again:
        scenario.end(tmp_path, again)
        courier = new()
        assert courier.deliver()
        assert courier.run_id(again) == before.info.run_id
        assert runs(tracker, recorded.train)[0].info.status == "FINISHED"
    assert courier.deliver()
    (after,) = runs(tracker, recorded.train)
    assert after.info.end_time == before.info.end_time
    assert after.data.tags == before.data.tags
    scenario.check(tracker, recorded)


def test_a_training_that_was_killed_after_its_work_ended_when_that_was_done(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    name = "train-killed-late"
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
    scenario.start(tmp_path, name).close()  # as a process that is killed
    assert new().deliver()
    with scenario.start(tmp_path, name, done=1.7e9) as again:
        scenario.end(tmp_path, again)
    assert new().deliver()
    (run,) = runs(tracker, name)
    assert (run.info.status, run.info.end_time) == ("FINISHED", 1_700_000_000_000)
    assert "closed" not in run.data.tags


def test_a_child_belongs_to_the_run_that_was_there_when_it_began(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    """Not to the newest of that name by the clock when MLflow hears of it."""
    name = "train-of-children"
    with scenario.start(tmp_path, name) as first:
        child = Writer(tmp_path / "tracking", "child", kind="test", parent=name)
    with scenario.start(tmp_path, name, anew=True) as second:
        sibling = Writer(tmp_path / "tracking", "sibling", kind="test", parent=name)
    for each in (child, sibling):
        each.finish()
        each.close()
    assert new().deliver()
    by_key = {run.data.tags[KEY]: run.info.run_id for run in runs(tracker, name)}
    for each, parent in ((child, first), (sibling, second)):
        (run,) = runs(tracker, each.name)
        assert run.data.tags["mlflow.parentRunId"] == by_key[parent.key]


def test_a_run_that_was_taken_for_dead_has_its_own_end(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    with Writer(tmp_path / "tracking", "t", kind="test") as run:
        courier = new()
        assert courier.deliver()
        found = tracker.run(runs(tracker, run.name)[0].info.run_id)
        found.tag({"closed": "its process 1 was gone"})
        found.end("KILLED")
    assert courier.deliver()
    (ended,) = runs(tracker, run.name)
    assert ended.info.status == "FINISHED"
    assert "closed" not in ended.data.tags


def test_a_training_that_begins_anew_is_another_run(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    with scenario.start(tmp_path, recorded.train, anew=True) as again:
        courier = new()
        assert courier.run_id(again) is None
        assert courier.deliver()
        assert courier.run_id(again) is not None
    assert courier.deliver()
    found = runs(tracker, recorded.train)
    assert len(found) == 2
    assert [steps(tracker, run) for run in found] == [list(range(1, STEPS + 1))] * 2


@pytest.mark.parametrize("seen", [True, False])
def test_a_training_that_died_before_its_journal_is_ended_by_the_one_after(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier], seen: bool
) -> None:
    name = f"train-died-{seen}"  # all tests of this file have one store
    died = scenario.start(tmp_path, name)
    if seen:
        assert new().deliver()
    died.close()  # as a process that is killed
    with scenario.start(tmp_path, name, anew=True) as again:
        scenario.write_journal(tmp_path / name / "journal.jsonl", 1, STEPS)
        scenario.end(tmp_path, again)
    courier = new()
    assert courier.deliver()
    found = {run.data.tags[KEY]: run for run in runs(tracker, name)}
    assert len(found) == 2
    assert found[died.key].info.status == "KILLED"
    assert "was gone" in found[died.key].data.tags["closed"]
    assert steps(tracker, found[died.key]) == []
    assert found[again.key].info.status == "FINISHED"
    assert steps(tracker, found[again.key]) == list(range(1, STEPS + 1))
    assert courier.refused == {}


def test_another_store_gets_the_whole_of_what_was_not_complete(
    tracker: Tracker, tmp_path: Path, folder: Path, uri: str, new: Callable[..., Courier]
) -> None:
    complete = scenario.record(tmp_path)
    assert new().deliver()
    half = scenario.record(tmp_path)

    def fate(call: str) -> None:
        if call == "set_terminated":
            raise Killed

    with pytest.raises(Killed):
        new(fate=fate).deliver()
    moved = new("elsewhere")
    assert moved.deliver()
    elsewhere = Tracker(uri, "elsewhere", folder / "artifacts")
    scenario.check(elsewhere, half)
    assert runs(elsewhere, complete.train) == []
    # A training that was delivered goes on in the new place, with all of its curves.
    with scenario.start(tmp_path, complete.train) as again:
        scenario.end(tmp_path, again)
    assert moved.deliver()
    (run,) = runs(elsewhere, complete.train)
    assert steps(elsewhere, run) == list(range(1, STEPS + 1))
    scenario.check(tracker, complete)


def test_children_wait_for_their_parent_or_do_without(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    # Its outbox is gone, but MLflow has it.
    Outbox(tmp_path / "tracking" / recorded.train).remove()
    child = scenario.evaluate(tmp_path, recorded.train)
    orphan = scenario.evaluate(tmp_path, "train-of-nobody")
    courier = new()
    assert courier.deliver()
    assert courier.refused == {}
    (parent,), (run,), (alone,) = (
        runs(tracker, name) for name in (recorded.train, child.name, orphan.name)
    )
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert "mlflow.parentRunId" not in alone.data.tags
    assert alone.info.status == "FINISHED"


# --- what MLflow does not take -------------------------------------------------------------------


def test_what_is_refused_is_kept_and_holds_up_nothing_else(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    with Writer(tmp_path / "tracking", "conflict", kind="test", params={"a": 1}) as bad:
        bad.params({"a": 2})
        bad.log({"loss": 1.0}, 1)
    with Writer(tmp_path / "tracking", "good", kind="test") as good:
        pass
    courier = new()
    assert courier.deliver()
    assert list(courier.refused) == [bad.name]
    assert "Changing param values" in courier.refused[bad.name]
    (run,), (other,) = runs(tracker, bad.name), runs(tracker, good.name)
    assert (run.info.status, other.info.status) == ("FINISHED", "FINISHED")
    assert steps(tracker, run) == [1]
    # Kept, and tried again by the next process; in vain, and then with success.
    assert [box.name for box in outboxes(tmp_path / "tracking")] == [bad.name]
    again = new()
    assert again.deliver()
    assert list(again.refused) == [bad.name]
    path = bad.folder / "records.jsonl"
    path.write_text(path.read_text().replace('{"a": "2"}', '{"a": "1"}'))
    mended = new()
    assert mended.deliver()
    assert mended.refused == {}
    assert outboxes(tmp_path / "tracking") == []


def test_a_run_that_cannot_be_made_holds_up_nothing_else(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    with Writer(tmp_path / "tracking", "bad", kind="test", name="bad") as bad:
        pass
    with Writer(tmp_path / "tracking", "good", kind="test") as good:
        pass

    def fate(call: str) -> None:
        if call == "create_run" and not runs(tracker, "bad") and not made:
            made.append(call)
            raise MlflowException("experiment is deleted", INVALID_PARAMETER_VALUE)

    made: list[str] = []
    courier = new(fate=fate)
    assert courier.deliver()
    assert courier.refused == {"bad": "experiment is deleted"}
    assert len(runs(tracker, good.name)) == 1
    assert courier.deliver()
    assert courier.refused == {}
    assert len(runs(tracker, bad.name)) == 1


def test_a_record_at_which_the_store_always_fails_is_refused_in_the_end(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    with Writer(tmp_path / "tracking", "big", kind="test") as run:
        run.tag({"a": "b"})
        run.artifact(Path(__file__))

    def fate(call: str) -> None:
        if call == "log_artifact":
            raise OSError("413 too large for http://ada:hunter2@host")

    courier = new(fate=fate)
    for _ in range(delivery.ATTEMPTS - 1):
        with pytest.raises(Away, match="413 too large"):
            courier.deliver()
    assert courier.deliver()
    assert courier.refused == {run.name: "413 too large for http://***@host"}
    assert runs(tracker, run.name)[0].info.status == "FINISHED"
    assert new().deliver()
    assert len(tracker.client.list_artifacts(runs(tracker, run.name)[0].info.run_id)) == 1


def test_a_deleted_run_is_refused_and_a_resumed_one_begins_anew(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    scenario.write_journal(tmp_path / "train-d" / "journal.jsonl", 1, 5)
    with scenario.start(tmp_path, "train-d") as run:
        courier = new()
        assert courier.deliver()
        first = courier.run_id(run)
        tracker.client.delete_run(first)
        scenario.end(tmp_path, run)
    assert courier.deliver()
    assert "active" in courier.refused["train-d"]
    with scenario.start(tmp_path, "train-d") as run:
        assert courier.deliver()
        assert courier.run_id(run) != first
        scenario.end(tmp_path, run)
    again = new()
    assert again.deliver()
    assert again.refused == {}
    (found,) = runs(tracker, "train-d")
    assert found.info.status == "FINISHED"
    assert steps(tracker, found) == [1, 2, 3, 4, 5]


def test_damage_is_named_and_holds_up_nothing_else(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    for name in ("lost-file", "no-json", "bad-journal"):
        with Writer(tmp_path / "tracking", "t", kind="t", name=name) as run:
            run.artifact(Path(__file__))
            if name == "bad-journal":
                run.curves(tmp_path / "journal")
    (tmp_path / "journal").write_text("no json\n")
    box = tmp_path / "tracking"
    next((box / "lost-file" / "files").glob("*/*.py")).unlink()
    (box / "no-json" / "records.jsonl").write_bytes(b"\xff\xfe\n")
    # Noted again from the start, which changes nothing.
    (box / recorded.train / "delivered.json").write_text("{")
    courier = new()
    assert courier.deliver()
    assert "is gone" in courier.refused["lost-file"]
    assert "no-json/records.jsonl is damaged at byte 0" in courier.refused["no-json"]
    assert "has a damaged line" in courier.refused["bad-journal"]
    assert courier.refused.keys() == {"lost-file", "no-json", "bad-journal"}
    for name in ("lost-file", "bad-journal"):
        assert runs(tracker, name)[0].info.status == "FINISHED"
    scenario.check(tracker, recorded)


def test_a_full_disk_stops_delivery_and_loses_nothing(
    tracker: Tracker,
    tmp_path: Path,
    new: Callable[..., Courier],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, os.strerror(28), str(path))

    recorded = scenario.record(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(delivered, "write_whole", full)
        with pytest.raises(Away, match=r"No space left on device: .*delivered\.json"):
            new().deliver()
    assert new().deliver()
    scenario.check(tracker, recorded)


def test_no_password_is_noted(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    Delivered.of(box, "http://ada:hunter2@host:5000", "e").save(box)
    noted = (tmp_path / "delivered.json").read_text()
    assert json.loads(noted)["store"] == "http://***@host:5000"
    # Another password is no other store.
    Delivered("http://***@host:5000", "e", run_id="1").save(box)
    assert Delivered.of(box, "http://ada:other@host:5000", "e").run_id == "1"
    assert Delivered.of(box, "http://ada:other@host:6000", "e").run_id is None
