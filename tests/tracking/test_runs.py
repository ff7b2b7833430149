"""Runs are found or made, nested, filled, ended and set going again; twice is as good as once."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.tracking.values import LONGEST_PARAM, LONGEST_TAG

Stored = Callable[[str], Any]


def begin(tracker: Tracker, title: str, **how: Any) -> Run:
    return tracker.begin(f"test.{uuid.uuid4().hex}", title, started=time.time(), **how)


def history(run: Run, key: str) -> list[tuple[int, float, int]]:
    return [(e.step, e.value, e.timestamp) for e in run.client.get_metric_history(run.id, key)]


def test_children_nest_under_their_parent(tracker: Tracker, stored: Stored) -> None:
    parent = begin(tracker, "sweep")
    child = begin(tracker, "heads=8", parent=parent.id, tags={"kind": "trial"})
    found = tracker.client.search_runs(
        [tracker.experiment_id], filter_string=f"tags.`mlflow.parentRunId` = '{parent.id}'"
    )
    assert [run.info.run_id for run in found] == [child.id]
    assert found[0].info.run_name == "heads=8"
    assert found[0].data.tags["kind"] == "trial"
    assert "mlflow.parentRunId" not in stored(parent.id).data.tags


def test_parameters_of_a_whole_configuration(
    run: Run, stored: Stored, example: configuration.Config
) -> None:
    values = configuration.flatten(example)
    run.params(values)
    params = stored(run.id).data.params
    assert params.keys() == values.keys()
    assert params["model.heads"] == "4"
    assert params["prepare.lowercase"] == "false"
    assert params["tracking.uri"] == "null"
    assert params["data.dataset"] == "phrasebook"


def test_many_and_long_parameters(run: Run, stored: Stored) -> None:
    values = {f"a.key{i}": i for i in range(250)} | {"long": "x" * 10_000}
    run.params(values)
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
    run.params({"model.heads": 4, "model.layers": 2}, only_new=True)
    assert stored(run.id).data.params == {"model.heads": "8", "model.layers": "2"}


def test_long_tags_are_cut_with_a_note(run: Run, stored: Stored) -> None:
    run.tag({"long": "y" * 9000, "short": "z"})
    tags = stored(run.id).data.tags
    assert len(tags["long"]) == LONGEST_TAG
    assert tags["long"].endswith("[cut, 9000 characters in all]")
    assert tags["short"] == "z"


def test_points_keep_step_and_time(run: Run) -> None:
    first = (1_700_000_000.25, 10, {"loss": 2.5, "perplexity": 12.0})
    run.log_many([first, (1_700_000_001.0, 20, {"loss": 2.0})])
    assert history(run, "loss") == [(10, 2.5, 1_700_000_000_250), (20, 2.0, 1_700_000_001_000)]
    assert history(run, "perplexity") == [(10, 12.0, 1_700_000_000_250)]


def test_many_points_in_few_batches(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    send = run.client.log_batch

    def counted(*args: Any, **kwargs: Any) -> None:
        sizes.append([metric.step for metric in kwargs["metrics"]])
        send(*args, **kwargs)

    monkeypatch.setattr(run.client, "log_batch", counted)
    run.log_many([(float(i), i, {"a": i, "b": 2 * i, "c": 3 * i}) for i in range(700)])
    # 2100 metrics; a point's three are never in two batches.
    assert [len(steps) for steps in sizes] == [999, 999, 102]
    assert all(steps.count(step) == 3 for steps in sizes for step in steps)
    assert [entry[:2] for entry in history(run, "c")] == [(i, 3.0 * i) for i in range(700)]


def test_same_point_twice_is_stored_once(run: Run) -> None:
    points = [(float(i), i, {"loss": 1.0 / (i + 1)}) for i in range(5)]
    run.log_many(points)
    run.log_many(points)
    assert [entry[0] for entry in history(run, "loss")] == [0, 1, 2, 3, 4]


def test_numbers_that_are_not_finite(run: Run, stored: Stored) -> None:
    run.log_many([(1.0, 1, {"loss": 1.0, "perplexity": math.inf}), (2.0, 2, {"loss": math.nan})])
    run.log_many([(3.0, 3, {"loss": 3.0}), (4.0, 4, {"loss": -math.inf})])
    assert history(run, "perplexity") == []
    assert [entry[:2] for entry in history(run, "loss")] == [(1, 1.0), (3, 3.0)]
    assert stored(run.id).data.tags["non_finite"] == "perplexity at step 1"


def test_files_and_folders(run: Run, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "table3.md").write_text("| a |")
    (tmp_path / "params.yaml").write_text("model: {}")
    run.artifact(tmp_path / "params.yaml")
    run.artifact(tmp_path / "reports", "all")
    assert [f.path for f in run.client.list_artifacts(run.id)] == ["all", "params.yaml"]
    found = [f.path for f in run.client.list_artifacts(run.id, "all/reports")]
    assert found == ["all/reports/table3.md"]


# --- going on ------------------------------------------------------------------------------------


def test_a_run_is_made_once_and_set_going_again(tracker: Tracker, stored: Stored) -> None:
    run = tracker.begin("train-1.a", "first title", started=1_700_000_000.5, tags={"a": "1"})
    begun = stored(run.id)
    assert begun.info.start_time == 1_700_000_000_500
    run.tag({"error": "ValueError", "closed": "gone"})
    run.end("FAILED", 1_700_000_001.5)
    ended = stored(run.id)
    assert (ended.info.status, ended.info.end_time) == ("FAILED", 1_700_000_001_500)
    again = tracker.begin("train-1.a", "second title", started=time.time(), tags={"a": "2"})
    assert again.id == run.id
    running = stored(run.id)
    assert running.info.status == "RUNNING"
    assert running.info.run_name == "first title"
    assert running.info.start_time == begun.info.start_time
    assert running.data.tags["a"] == "2"
    assert not {"error", "closed"} & running.data.tags.keys()
    # Without a time it ends now.
    again.end("FINISHED")
    assert abs(stored(run.id).info.end_time / 1000 - time.time()) < 60


def test_tags_are_removed_where_they_are(run: Run, stored: Stored) -> None:
    run.tag({"a": "1", "b": "2"})
    run.remove_tags("a", "nothing")
    assert stored(run.id).data.tags.keys() & {"a", "b"} == {"b"}


def test_what_is_not_there_is_not_found(tracker: Tracker, folder: Path) -> None:
    run = tracker.begin("train-2.a", "deleted", started=1.0)
    found = tracker.find("train-2.a")
    assert found is not None
    assert found.info.run_id == run.id
    tracker.client.delete_run(run.id)
    assert tracker.find("train-2.a") is None
    assert tracker.newest("train-2") is None
    other = Tracker(tracker.uri, "other", folder / "artifacts")
    other.begin("train-2.b", "elsewhere", started=1.0)
    assert tracker.find("train-2.b") is None
    assert tracker.newest("train-2") is None


def test_newest_run_of_a_name(tracker: Tracker) -> None:
    tracker.begin("train-3.a", "old", started=1.0)
    newest = tracker.begin("train-3.b", "new", started=2.0)
    tracker.begin("train-33.a", "another", started=3.0)
    assert tracker.newest("train-3") == newest.id


def test_a_run_that_was_made_twice_is_one_in_the_end(tracker: Tracker, stored: Stored) -> None:
    run = tracker.begin("train-4.a", "first", started=1.0)
    late = tracker.client.create_run(
        tracker.experiment_id, start_time=2000, tags={"seq2sweep.key": "train-4.a"}
    )
    assert tracker.begin("train-4.a", "again", started=3.0).id == run.id
    tracker.remove_twins("train-4.a", run.id)
    assert stored(late.info.run_id).info.lifecycle_stage == "deleted"
    assert stored(run.id).info.lifecycle_stage == "active"
