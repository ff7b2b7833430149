"""Models are found by their scores and linked to run and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seq2sweep.tracking.models import log_model
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.tracking.store import LONGEST_DIGEST

DIGEST = "0123456789abcdef" * 4


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
    with tracker.start("good", kind="evaluate") as good:
        better = log(good, files, 27.3)
    with tracker.start("poor", kind="evaluate") as poor:
        worse = log(poor, files, 12.0)

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


def test_files_of_a_model_are_complete(tracker: Tracker, files: list[Path], folder: Path) -> None:
    with tracker.start("files", kind="evaluate") as run:
        model_id = log(run, files, 1.0)
    stored = folder / "artifacts" / "models" / model_id / "artifacts"
    assert (stored / "averaged.safetensors").read_bytes() == b"weights" * 1000
    assert (stored / "vocabulary" / "vocabulary.json").read_text() == "{}"


def test_model_that_cannot_be_stored_is_failed(tracker: Tracker, files: list[Path]) -> None:
    def work() -> None:
        with run:
            log(run, [*files, files[0].with_name("missing")], 99.0)

    run = tracker.start("half", kind="evaluate")
    with pytest.raises(OSError, match="missing"):
        work()
    assert tracker.client.get_run(run.id).info.status == "FAILED"
    models = tracker.client.search_logged_models(
        [tracker.experiment_id], filter_string=f"source_run_id = '{run.id}'"
    )
    assert [str(model.status) for model in models] == ["FAILED"]
    assert search(tracker, "metrics.bleu > 90") == []
