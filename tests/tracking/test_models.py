"""Models are found by their scores and linked to run and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seq2sweep.tracking.models import log_model
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.tracking.values import LONGEST_DIGEST

DIGEST = "0123456789abcdef" * 4
LAST = ("finalize_logged_model", "lost")


@pytest.fixture
def tracker(uri: str, folder: Path) -> Tracker:
    """An experiment without the models of other tests."""
    return Tracker(uri, "models", folder / "artifacts")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    weights = tmp_path / "averaged.safetensors"
    weights.write_bytes(b"weights" * 1000)
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    (vocabulary / "vocabulary.json").write_text("{}")
    return [weights, vocabulary]


def log(run: Run, files: list[Path], bleu: float) -> str:
    return log_model(
        run,
        name="transformer",
        files=files,
        params={f"model.key{i}": i for i in range(120)},
        metrics={"bleu": bleu, "chrf": 2 * bleu},
        time=1_700_000_000.0,
        dataset_name="phrasebook en-de",
        dataset_digest=DIGEST,
        step=1000,
        tags={"git.commit": "abc", "server": "http://ada:hunter2@host"},
    )


def search(tracker: Tracker, filter_string: str, **how: Any) -> list[str]:
    found = tracker.client.search_logged_models(
        [tracker.experiment_id], filter_string=filter_string, **how
    )
    return [model.model_id for model in found]


def test_search_by_score_and_links(tracker: Tracker, files: list[Path]) -> None:
    good = tracker.begin("good.1", "good", started=1.0)
    better = log(good, files, 27.3)
    worse = log(tracker.begin("poor.1", "poor", started=1.0), files, 12.0)

    assert search(tracker, "metrics.bleu > 20") == [better]
    best_first = [{"field_name": "metrics.bleu", "ascending": False}]
    assert search(tracker, "name = 'transformer'", order_by=best_first) == [better, worse]
    digest = DIGEST[:LONGEST_DIGEST]
    same_data = [{"dataset_name": "phrasebook en-de", "dataset_digest": digest}]
    assert search(tracker, "metrics.bleu > 20", datasets=same_data) == [better]
    other_data = [{"dataset_name": "phrasebook en-de", "dataset_digest": "another"}]
    assert search(tracker, "metrics.bleu > 20", datasets=other_data) == []

    model = tracker.client.get_logged_model(better)
    assert str(model.status) == "READY"
    assert model.source_run_id == good.id
    assert model.params["model.key119"] == "119"
    assert model.tags["git.commit"] == "abc"
    assert model.tags["server"] == "http://***@host"
    assert {(m.key, m.value, m.step, m.dataset_digest) for m in model.metrics} == {
        ("bleu", 27.3, 1000, digest),
        ("chrf", 54.6, 1000, digest),
    }

    run = tracker.client.get_run(good.id)
    assert [(out.model_id, out.step) for out in run.outputs.model_outputs] == [(better, 1000)]
    assert run.data.metrics == {"bleu": 27.3, "chrf": 54.6}
    datasets = [(used.dataset.name, used.dataset.digest) for used in run.inputs.dataset_inputs]
    assert datasets == [("phrasebook en-de", digest)]


def test_files_of_a_model_are_complete(run: Run, files: list[Path], folder: Path) -> None:
    model_id = log(run, files, 1.0)
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


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", ["refused", "lost"])
def test_a_model_that_failed_once_goes_on(
    run: Run,
    tracker: Tracker,
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
            log(run, files, 50.0)
    begun = search(tracker, f"source_run_id = '{run.id}'")
    states = [str(tracker.client.get_logged_model(model).status) for model in begun]
    assert "READY" not in states or (call, answer) == LAST
    model_id = log(run, files, 50.0)
    assert search(tracker, f"source_run_id = '{run.id}'") == [model_id]
    model = tracker.client.get_logged_model(model_id)
    assert str(model.status) == "READY"
    assert len(model.params) == 120
    assert sorted(metric.key for metric in model.metrics) == ["bleu", "chrf"]
    outputs = tracker.client.get_run(run.id).outputs.model_outputs
    assert [output.model_id for output in outputs] == [model_id]
    assert len(tracker.client.get_metric_history(run.id, "bleu")) == 1
    tracker.client.delete_logged_model(model_id)


def test_a_model_that_was_made_twice_is_one_in_the_end(
    run: Run, tracker: Tracker, files: list[Path]
) -> None:
    model_id = log(run, files, 1.0)
    tracker.client.create_logged_model(run.experiment_id, name="transformer", source_run_id=run.id)
    assert log(run, files, 1.0) == model_id
    assert search(tracker, f"source_run_id = '{run.id}'") == [model_id]
