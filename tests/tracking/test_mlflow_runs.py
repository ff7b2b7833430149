"""Runs are found or made, nested, filled, ended and set going again; twice is as good as once."""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, PERMISSION_DENIED

from seq2sweep import tracking
from seq2sweep.config.scores import SCORES
from seq2sweep.tracking.delivery import ATTEMPTS, UnavailableError
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment, RefusedError
from seq2sweep.tracking.relay import Relay
from seq2sweep.tracking.sweep_runs import compared
from tests.artifacts import artifact_text
from tests.tracking import scenario
from tests.tracking.unreliable import Unreliable, failing, runs

Stored = Callable[[str], Any]


def begin(experiment: Experiment, title: str, **how: Any) -> Run:
    return Run.begin(experiment, f"test.{uuid.uuid4().hex}", title, started=time.time(), **how)


def history(run: Run, key: str) -> list[tuple[int, float, int]]:
    return [(e.step, e.value, e.timestamp) for e in run.client.get_metric_history(run.id, key)]


def test_children_nest_under_their_parent(experiment: Experiment, stored: Stored) -> None:
    parent = begin(experiment, "sweep")
    child = begin(experiment, "heads=8", parent=parent.id, tags={"kind": "trial"})
    found = experiment.client.search_runs(
        [experiment.id], filter_string=f"tags.`mlflow.parentRunId` = '{parent.id}'"
    )
    assert [run.info.run_id for run in found] == [child.id]
    assert found[0].info.run_name == "heads=8"
    assert found[0].data.tags["kind"] == "trial"
    assert "mlflow.parentRunId" not in stored(parent.id).data.tags


def test_parameters_keep_what_is_there(run: Run, stored: Stored) -> None:
    run.params({f"a.key{i}": str(i) for i in range(250)})
    run.params({"a.key249": "another", "b": "2"})
    params = stored(run.id).data.params
    assert len(params) == 251
    assert (params["a.key249"], params["b"]) == ("249", "2")


def test_points_keep_step_and_time_and_are_stored_once(run: Run) -> None:
    first = (1_700_000_000.25, 10, {"loss": 2.5, "perplexity": 12.0})
    for _ in range(2):
        run.points([first, (1_700_000_001.0, 20, {"loss": 2.0})])
    assert history(run, "loss") == [(10, 2.5, 1_700_000_000_250), (20, 2.0, 1_700_000_001_000)]
    assert history(run, "perplexity") == [(10, 12.0, 1_700_000_000_250)]


def test_numbers_that_are_not_finite(run: Run, stored: Stored) -> None:
    run.points([(1.0, 1, {"loss": 1.0, "perplexity": math.inf}), (2.0, 2, {"loss": None})])
    run.points([(3.0, 3, {"loss": 3.0}), (4.0, 4, {"loss": -math.inf})])
    assert history(run, "perplexity") == []
    assert [entry[:2] for entry in history(run, "loss")] == [(1, 1.0), (3, 3.0)]
    assert stored(run.id).data.tags["non_finite"] == "perplexity at step 1"


# --- going on ------------------------------------------------------------------------------------


def test_a_run_is_made_once_and_set_going_again(experiment: Experiment, stored: Stored) -> None:
    run = Run.begin(
        experiment, "train-1.a", "first title", started=1_700_000_000.5, tags={"a": "1"}
    )
    begun = stored(run.id)
    assert begun.info.start_time == 1_700_000_000_500
    run.end("failed", 1_700_000_001.5, "ValueError")
    ended = stored(run.id)
    assert (ended.info.status, ended.info.end_time) == ("FAILED", 1_700_000_001_500)
    assert ended.data.tags["error"] == "ValueError"
    again = Run.begin(experiment, "train-1.a", "second title", started=time.time(), tags={"a": "2"})
    assert again.id == run.id
    running = stored(run.id)
    assert running.info.status == "RUNNING"
    assert running.info.run_name == "first title"
    assert running.info.start_time == begun.info.start_time
    assert running.data.tags["a"] == "2"
    assert "error" not in running.data.tags


def test_what_is_finished_stays_as_it_is(experiment: Experiment, stored: Stored) -> None:
    run = Run.begin(experiment, "train-5.a", "title", started=1.0, tags={"a": "1"})
    run.end("interrupted", 2.0, "gone")
    run.end("finished", 3.0)
    before = stored(run.id)
    assert (before.info.status, before.info.end_time) == ("FINISHED", 3000)
    assert "error" not in before.data.tags
    again = Run.begin(experiment, "train-5.a", "title", started=4.0, tags={"a": "2"})
    assert again.id == run.id
    again.end("failed", 5.0, "no room for its weights")
    after = stored(run.id)
    assert (after.info.status, after.info.end_time) == ("FINISHED", 3000)
    assert after.data.tags == before.data.tags


def test_what_is_not_there_is_not_found(experiment: Experiment, uri: str, folder: Path) -> None:
    run = Run.begin(experiment, "train-2.a", "deleted", started=1.0)
    assert [found.info.run_id for found in experiment.find("train-2.a")] == [run.id]
    experiment.client.delete_run(run.id)
    assert experiment.find("train-2.a") == []
    assert experiment.newest("train-2.") is None
    other = Experiment(uri, "other", folder / "artifacts")
    Run.begin(other, "train-2.b", "elsewhere", started=1.0)
    assert experiment.find("train-2.b") == []
    assert experiment.newest("train-2.") is None


def test_newest_run_of_a_name(experiment: Experiment) -> None:
    old = Run.begin(experiment, "train-3.a", "old", started=1.0)
    newest = Run.begin(experiment, "train-3.b", "new", started=2.0)
    Run.begin(experiment, "train-33.a", "another", started=3.0)
    assert experiment.newest("train-3.") == newest.id
    assert experiment.newest("train-3.a") == old.id


def test_a_run_that_was_made_twice_is_one_in_the_end(
    experiment: Experiment, stored: Stored
) -> None:
    run = Run.begin(experiment, "train-4.a", "first", started=1.0)
    late = experiment.client.create_run(
        experiment.id, start_time=2000, tags={"seq2sweep.key": "train-4.a"}
    )
    assert Run.begin(experiment, "train-4.a", "again", started=3.0).id == run.id
    experiment.delete_duplicates("train-4.a", run.id)
    assert stored(late.info.run_id).info.lifecycle_stage == "deleted"
    assert stored(run.id).info.lifecycle_stage == "active"


# --- models ---------------------------------------------------------------------------------------

DIGEST = "0123456789abcdef" * 2
LAST = ("finalize_logged_model", "lost")


@pytest.fixture
def models(uri: str, folder: Path) -> Experiment:
    """An experiment without the models of other tests."""
    return Experiment(uri, "models", folder / "artifacts")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    weights = tmp_path / "averaged.safetensors"
    weights.write_bytes(b"weights" * 1000)
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    (vocabulary / "vocabulary.json").write_text("{}")
    return [weights, vocabulary]


def log_a_model(run: Run, files: list[Path], bleu: float) -> str:
    return run.model(
        "transformer",
        files,
        params={f"model.key{i}": str(i) for i in range(120)},
        metrics={"bleu": bleu, "chrf": 2 * bleu},
        time=1_700_000_000.0,
        dataset=("phrasebook en-de", DIGEST),
        step=1000,
        tags={"git.commit": "abc"},
    )


def search(experiment: Experiment, filter_string: str, **how: Any) -> list[str]:
    found = experiment.client.search_logged_models(
        [experiment.id], filter_string=filter_string, **how
    )
    return [model.model_id for model in found]


def test_search_by_score_and_links(models: Experiment, files: list[Path]) -> None:
    good = Run.begin(models, "good.1", "good", started=1.0)
    better = log_a_model(good, files, 27.3)
    worse = log_a_model(Run.begin(models, "poor.1", "poor", started=1.0), files, 12.0)

    assert search(models, "metrics.bleu > 20") == [better]
    best_first = [{"field_name": "metrics.bleu", "ascending": False}]
    assert search(models, "name = 'transformer'", order_by=best_first) == [better, worse]
    same_data = [{"dataset_name": "phrasebook en-de", "dataset_digest": DIGEST}]
    assert search(models, "metrics.bleu > 20", datasets=same_data) == [better]
    other_data = [{"dataset_name": "phrasebook en-de", "dataset_digest": "another"}]
    assert search(models, "metrics.bleu > 20", datasets=other_data) == []

    model = models.client.get_logged_model(better)
    assert str(model.status) == "READY"
    assert model.source_run_id == good.id
    assert model.params["model.key119"] == "119"
    assert model.tags["git.commit"] == "abc"
    assert {(m.key, m.value, m.step, m.dataset_digest) for m in model.metrics} == {
        ("bleu", 27.3, 0, DIGEST),
        ("chrf", 54.6, 0, DIGEST),
    }

    run = models.client.get_run(good.id)
    assert [(out.model_id, out.step) for out in run.outputs.model_outputs] == [(better, 1000)]
    assert run.data.metrics == {"bleu": 27.3, "chrf": 54.6}
    datasets = [(used.dataset.name, used.dataset.digest) for used in run.inputs.dataset_inputs]
    assert datasets == [("phrasebook en-de", DIGEST)]


def test_files_of_a_model_are_complete(run: Run, files: list[Path], folder: Path) -> None:
    model_id = log_a_model(run, files, 1.0)
    stored = folder / "artifacts" / "models" / model_id / "artifacts"
    assert (stored / "averaged.safetensors").read_bytes() == b"weights" * 1000
    assert (stored / "vocabulary" / "vocabulary.json").read_text() == "{}"


CALLS = (
    "create_logged_model",
    "log_model_artifact",
    "log_model_artifacts",
    "log_inputs",
    "log_batch",
    "log_outputs",
    "finalize_logged_model",
)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        *((call, "lost") for call in CALLS),
        # All is stored before the last call alone; else refused is as lost a call earlier.
        *(pytest.param(call, "refused", marks=pytest.mark.thorough) for call in CALLS[:-1]),
        (CALLS[-1], "refused"),
    ],
)
def test_a_model_that_failed_once_goes_on(
    run: Run,
    experiment: Experiment,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    answer: str,
) -> None:
    real = getattr(run.client, call)

    def fails(*args: Any, **kwargs: Any) -> None:
        if answer == "lost":
            real(*args, **kwargs)
        raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr(run.client, call, fails)
        with pytest.raises(OSError, match="away"):
            log_a_model(run, files, 50.0)
    begun = search(experiment, f"source_run_id = '{run.id}'")
    states = [str(experiment.client.get_logged_model(model).status) for model in begun]
    assert "READY" not in states or (call, answer) == LAST
    model_id = log_a_model(run, files, 50.0)
    assert search(experiment, f"source_run_id = '{run.id}'") == [model_id]
    model = experiment.client.get_logged_model(model_id)
    assert str(model.status) == "READY"
    assert len(model.params) == 120
    assert sorted(metric.key for metric in model.metrics) == ["bleu", "chrf"]
    outputs = experiment.client.get_run(run.id).outputs.model_outputs
    assert [output.model_id for output in outputs] == [model_id]
    assert len(experiment.client.get_metric_history(run.id, "bleu")) == 1
    experiment.client.delete_logged_model(model_id)


def test_a_model_that_was_made_twice_is_one_in_the_end(
    run: Run, experiment: Experiment, files: list[Path]
) -> None:
    model_id = log_a_model(run, files, 1.0)
    experiment.client.create_logged_model(
        run.experiment_id, name="transformer", source_run_id=run.id
    )
    assert log_a_model(run, files, 1.0) == model_id
    assert search(experiment, f"source_run_id = '{run.id}'") == [model_id]


# --- registered models ----------------------------------------------------------------------------

ALIAS = "best-of-sweep"


@pytest.fixture
def name() -> str:
    return f"phrasebook-{uuid.uuid4().hex}"


@pytest.fixture
def begin_with_model(experiment: Experiment, tmp_path: Path) -> Callable[[], Run]:
    """Makes runs with a model each."""

    def make() -> Run:
        run = Run.begin(experiment, f"test.{uuid.uuid4().hex}", "seed=1", started=1.0)
        weights = tmp_path / "weights"
        weights.write_bytes(run.id.encode())
        run.model("transformer", [weights], {}, {}, ("d", "e"), step=0, tags={}, time=1.0)
        return run

    return make


def register(run: Run, name: str, time: float, tags: dict[str, str] | None = None) -> str:
    return run.register("transformer", name, ALIAS, tags or {}, time)


def test_the_alias_leads_to_the_weights(
    experiment: Experiment,
    uri: str,
    begin_with_model: Callable[[], Run],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = begin_with_model()
    assert register(run, name, 5.0, tags={"variant": "C"}) == "1"
    found = experiment.client.get_model_version_by_alias(name, ALIAS)
    assert (found.run_id, found.status) == (run.id, "READY")
    assert found.tags == {"variant": "C", "seq2sweep.time": "5.0"}
    (model,) = experiment.client.search_logged_models(
        [run.experiment_id], filter_string=f"source_run_id = '{run.id}'"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    weights = mlflow.artifacts.load_text(f"models:/{name}@{ALIAS}/weights")
    assert weights == run.id
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": name, "version": 1}]


def test_the_alias_moves_to_the_newest_and_not_back(
    experiment: Experiment, begin_with_model: Callable[[], Run], name: str
) -> None:
    first, second, late = begin_with_model(), begin_with_model(), begin_with_model()
    assert register(first, name, 5.0) == "1"
    assert register(second, name, 6.0) == "2"
    # Recorded before the second, and brought after it: what was refused is tried again.
    assert register(late, name, 5.5) == "3"
    assert register(first, name, 5.0) == "1"
    assert experiment.client.get_registered_model(name).aliases == {ALIAS: 2}
    # Somebody else's version has no time.
    experiment.client.create_model_version(name, "s3://elsewhere/model")
    experiment.client.set_registered_model_alias(name, ALIAS, "4")
    assert register(second, name, 6.0) == "2"
    assert experiment.client.get_registered_model(name).aliases == {ALIAS: 2}


@pytest.mark.parametrize("passed", [0.0, 100.0])
def test_the_alias_leaves_a_version_of_a_clock_that_was_ahead(
    experiment: Experiment,
    begin_with_model: Callable[[], Run],
    name: str,
    passed: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where what was recorded after it is delivered once that time has come."""
    now = time.time()
    assert register(begin_with_model(), name, now + 60) == "1"
    monkeypatch.setattr(tracking, "time", SimpleNamespace(time=lambda: now + passed))
    assert register(begin_with_model(), name, now + 30) == "2"
    assert experiment.client.get_registered_model(name).aliases == {ALIAS: 2}


def test_other_versions_of_the_model_stay_named(
    begin_with_model: Callable[[], Run], name: str
) -> None:
    run = begin_with_model()
    (model,) = run.client.search_logged_models(
        [run.experiment_id], filter_string=f"source_run_id = '{run.id}'"
    )
    other = '[{"name": "by hand", "version": "7"}]'
    run.client.set_logged_model_tags(model.model_id, {"mlflow.modelVersions": other})
    for _ in range(2):
        register(run, name, 1.0)
    told = run.client.get_logged_model(model.model_id).tags["mlflow.modelVersions"]
    assert json.loads(told) == [*json.loads(other), {"name": name, "version": 1}]


def test_a_version_that_was_made_twice_is_one_in_the_end(
    experiment: Experiment, begin_with_model: Callable[[], Run], name: str
) -> None:
    run = begin_with_model()
    assert register(run, name, 1.0) == "1"
    first = experiment.client.get_model_version(name, "1")
    experiment.client.create_model_version(name, first.source, run.id)
    assert register(run, name, 1.0) == "1"
    left = experiment.client.search_model_versions(f"name = '{name}'")
    assert [str(version.version) for version in left] == ["1"]


def test_a_run_without_that_model_has_nothing_to_register(run: Run, name: str) -> None:
    for _ in range(2):
        with pytest.raises(
            RefusedError, match=f"no whole model 'transformer' to register as {name}"
        ):
            register(run, name, 1.0)
        # Begun, but not all of its files are there.
        run.client.create_logged_model(run.experiment_id, name="transformer", source_run_id=run.id)


# --- by delivery ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [INVALID_PARAMETER_VALUE, PERMISSION_DENIED])
@pytest.mark.parametrize("call", ["create_registered_model", "create_model_version"])
def test_a_registry_that_refuses_holds_up_nothing_else(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], call: str, code: int
) -> None:
    recorded = scenario.record(tmp_path)
    relay = new(fate=failing(call, MlflowException("not in this registry", code)))
    for _ in range(ATTEMPTS):
        try:
            assert relay.deliver()
        except UnavailableError:
            assert code == PERMISSION_DENIED  # it might have been an outage
        else:
            break
    assert relay.refused == {recorded.evaluation: "not in this registry"}
    (run,) = runs(experiment, recorded.evaluation)
    assert run.info.status == "FINISHED"
    assert [model.model_id for model in run.outputs.model_outputs]
    assert runs(experiment, recorded.train)[0].data.metrics["score/bleu"] == 27.5
    # The registry has changed its mind.
    again = new()
    assert again.deliver()
    assert again.refused == {}
    scenario.check(experiment, recorded)


def test_a_model_that_was_not_recorded_is_not_registered(
    tmp_path: Path, new: Callable[..., Relay]
) -> None:
    recorded = scenario.record(tmp_path)
    next((tmp_path / "tracking" / recorded.evaluation / "files").glob("*/weights")).unlink()
    relay = new()
    assert relay.deliver()
    assert "is missing" in relay.refused[recorded.evaluation]
    assert list(relay.refused) == [recorded.evaluation]


# --- descriptions --------------------------------------------------------------------------------


@pytest.fixture
def note(run: Run) -> Callable[[], str]:
    """What the experiment's description is; at first none, though other tests describe it too."""
    for tag, nothing in (("mlflow.note.content", ""), ("mlflow.seq2sweep.note.time", "0.0")):
        run.client.set_experiment_tag(run.experiment_id, tag, nothing)

    def get() -> str:
        return str(run.client.get_experiment(run.experiment_id).tags["mlflow.note.content"])

    return get


def test_a_description_that_a_person_has_changed_stays(run: Run, note: Callable[[], str]) -> None:
    run.describe("first", experiment=True)
    run.describe("second", experiment=True)
    assert note() == "second"
    # A kill has come between the text and the tag that says whose it is.
    run.client.set_experiment_tag(run.experiment_id, "mlflow.note.content", "half")
    run.describe("half", experiment=True)
    run.describe("whole", experiment=True)
    assert note() == "whole"
    run.client.set_experiment_tag(run.experiment_id, "mlflow.note.content", "by hand")
    run.describe("third", experiment=True)
    assert note() == "by hand"
    run.describe("of the run " + "x" * 9000)
    own = run.stored().data.tags["mlflow.note.content"]
    assert own.startswith("of the run xxx")
    assert own.endswith("xxx... [cut, 9011 characters in all]")
    assert len(own) == 5000


def test_a_description_that_was_recorded_later_stays(run: Run, note: Callable[[], str]) -> None:
    """A report of another machine may be delivered after."""
    run.describe("of an earlier version", experiment=True)
    run.describe("first", experiment=True, time=5.0)
    run.describe("second", experiment=True, time=6.5)
    run.describe("late", experiment=True, time=6.0)
    run.describe("late, of an earlier version", experiment=True)
    assert note() == "second"
    run.describe("second again", experiment=True, time=6.5)
    assert note() == "second again"


def test_a_view_that_was_saved_later_stays(run: Run, name: str) -> None:
    """A sweep that ended before may be delivered after."""

    def title() -> str:
        tags = run.client.get_experiment(run.experiment_id).tags
        return str(json.loads(tags[f"mlflow.sharedViewState.{name}"])["name"])

    run.client.set_experiment_tag(run.experiment_id, f"mlflow.sharedViewState.{name}", "none")
    run.view(name, "first", {}, 5.0)
    run.view(name, "second", {}, 6.0006)
    run.view(name, "late", {}, 5.5)
    assert title() == "second"
    run.view(name, "second again", {}, 6.0006)
    assert title() == "second again"


def test_a_clock_that_was_ahead_keeps_nothing_out(
    run: Run, name: str, note: Callable[[], str], tmp_path: Path
) -> None:
    """By years, at a machine that has recorded once."""
    page = tmp_path / "page.html"
    for text, at in (("ahead", time.time() + 1e9), ("now", time.time()), ("late", 5.0)):
        page.write_text(text)
        run.describe(text, experiment=True, time=at)
        run.view(name, text, {}, at)
        run.artifact([page], replace=True, time=at)
    tags = run.client.get_experiment(run.experiment_id).tags
    assert json.loads(tags[f"mlflow.sharedViewState.{name}"])["name"] == "now"
    assert note() == "now"
    assert artifact_text(run.client, run.id, "page.html") == "now"


@pytest.mark.parametrize(("number", "own_charts"), [(8, 8), (10, 7), (30, 2)])
def test_a_view_of_many_keys_lacks_their_last_charts(
    run: Run, name: str, number: int, own_charts: int
) -> None:
    """An older MLflow takes 5000 characters of an experiment's tag."""
    keys = [f"train.key_{i:02}" for i in range(number)]
    run.view(name, "Variants: BLEU over FLOPs", compared(SCORES["bleu"], keys), 5.0)
    tag = run.client.get_experiment(run.experiment_id).tags[f"mlflow.sharedViewState.{name}"]
    assert len(tag) <= 5000
    state = json.loads(json.loads(tag)["state"])
    over_costs, bar, over_size, parallel, *rest = state["compareRunCharts"]
    assert [over_costs["xaxis"]["key"], over_size["xaxis"]["key"]] == [
        *("cost/flops", "cost/parameters")
    ]
    assert (bar["type"], parallel["selectedParams"]) == ("BAR", keys)
    assert [chart["xaxis"]["key"] for chart in rest] == keys[:own_charts]
    assert {f"params.`{key}`" for key in keys} <= set(state["selectedColumns"])


@pytest.mark.parametrize(("rows", "left"), [(60, 0), (70, 4), (1000, 934)])
def test_a_description_has_whole_rows_and_says_how_many_it_lacks(
    run: Run, rows: int, left: int
) -> None:
    """Of a table that MLflow would not take; its first row is the base's."""
    head = ["[All figures](#)", "", "| variant | BLEU  |", "| ------- | ----- |"]
    table = [f"| {number:<60} | 31.40 |" for number in range(rows)]
    run.describe("\n".join([*head, *table]))
    own = run.stored().data.tags["mlflow.note.content"].split("\n")
    note = f"Rows left out here: {left}. The link above leads to the whole table."
    assert own == [*head, *table[: rows - left], *(["", note] if left else [])]
    assert len("\n".join(own)) <= 5000


def test_a_folder_that_was_stored_in_part_is_completed(run: Run, tmp_path: Path) -> None:
    """Whoever stored it died in the middle, after the run had ended."""
    folder = tmp_path / "reproduce"
    for name in ("record.json", "deep/patch"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("{}" * 50)
    run.end("finished", 1_700_000_001.0)
    (tmp_path / "record.json").write_text("{}")
    run.client.log_artifact(run.id, str(tmp_path / "record.json"), "reproduce")
    for _ in range(2):
        run.artifact([folder])
        for name in ("record.json", "deep/patch"):
            assert artifact_text(run.client, run.id, f"reproduce/{name}") == "{}" * 50


def test_files_of_a_finished_run_stay_unless_they_are_replaced(run: Run, tmp_path: Path) -> None:
    def text() -> str:
        return artifact_text(run.client, run.id, "page.html")

    page = tmp_path / "page.html"
    page.write_text("first")
    run.artifact([page])
    run.end("finished", 1_700_000_001.0)
    page.write_text("second")
    (tmp_path / "more").write_text("new")
    run.artifact([page, tmp_path / "more"])
    assert text() == "first"
    assert [file.path for file in run.client.list_artifacts(run.id)] == ["more", "page.html"]
    run.artifact([page], replace=True, time=5.0)
    assert text() == "second"
    # Recorded before, and delivered after; then the same again, and what came later.
    for late, time_of, shown in (("x", 4.0, "second"), ("y", 5.0, "y"), ("z", 6.0, "z")):
        page.write_text(late)
        run.artifact([page], replace=True, time=time_of)
        assert text() == shown


def test_an_upload_has_time_by_its_size_and_other_requests_have_not(
    run: Run, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that passes files on to a bucket before it answers."""
    monkeypatch.setattr(tracking, "SLOWEST_UPLOAD", 100.0)  # bytes a second, of 7000 and 2
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    seen: set[tuple[str, int]] = set()

    def fate(call: str) -> None:
        seen.add((call, int(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"])))

    run.client = Unreliable(run.client, fate)
    log_a_model(run, files, 20.0)
    run.artifact(files)
    run.end("finished", 1_700_000_001.0)
    (files[1] / "more").write_text("x" * 500)
    run.artifact(files)
    uploads = {one for one in seen if one[0].startswith(("log_artifact", "log_model_artifact"))}
    assert uploads == {
        *(("log_model_artifact", 100), ("log_model_artifacts", 30)),
        *(("log_artifact", 100), ("log_artifact", 30), ("log_artifact", 35)),
    }
    assert {seconds for _, seconds in seen - uploads} == {30}
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "30"
