"""A training with curves, files and an evaluation under it: recorded, and what MLflow must have."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.runs import journal
from seq2sweep.tracking.recorder import Recorder
from tests.artifacts import artifact_text

STEPS = 20
ALIAS = "best-of-sweep"
CLOCK = 1_700_000_000.0


@dataclass
class Recorded:
    """Names of the outboxes of both runs, and the training's key."""

    train: str
    evaluation: str
    key: str


def write_journal(path: Path, first: int, last: int) -> None:
    """Append the lines of these steps, as training does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        for step in range(first, last + 1):
            at = CLOCK + step
            entry = {"kind": "logged", "step": step, "time": at, "loss": 10 / step, "epoch": 1}
            stream.write(json.dumps(entry) + "\n")
            if step % 5 == 0:
                entry = {"kind": "validated", "step": step, "time": at, "valid_loss": 1 / step}
                stream.write(json.dumps(entry) + "\n")


def finish(root: Path, name: str, at: float) -> None:
    """Append the end of the training, as it does once."""
    with (root / name / "journal.jsonl").open("a") as stream:
        stream.write(json.dumps({"kind": "finished", "step": STEPS, "time": at}) + "\n")


def start(root: Path, name: str, **how: Any) -> Recorder:
    """Begin the training of this name, or resume it, as pipeline.train does."""
    run = Recorder(
        root / "tracking",
        "a training",
        kind="experiment",
        journal=root / name / "journal.jsonl",
        params={"model.heads": 4, "cluster.workers": how.pop("workers", 2)},
        **{"tags": {"git.commit": "abc"}} | how,
    )
    run.dataset("phrasebook", "f" * 36, "train")
    return run


def end(root: Path, run: Recorder) -> None:
    """What the end of a training records."""
    if not any(journal.entries(root / run.name / "journal.jsonl", "finished")):
        finish(root, run.name, time.time())
    receipt = root / "receipt.json"
    receipt.write_text('{"run": "receipt"}')
    run.log({"cost/parameters": 1000.0, "cost/flops": 2.0})
    run.artifact(receipt)
    receipt.write_text("written over by a later stage")


def registered_name(train: str) -> str:
    """The registered model of a training: all tests of a file may have one store."""
    return f"models of {train}"


def evaluate(root: Path, train: str) -> Recorder:
    """Record an evaluation under a training."""
    weights = root / "weights"
    weights.write_bytes(b"weights" * 1000)
    with Recorder(
        root / "tracking", "an evaluation", kind="evaluation", parent=train, params={"beam": 4}
    ) as run:
        run.model(
            "transformer",
            files=[weights, root / "receipt.json"],
            params={"model.heads": 4},
            metrics={"score/bleu": 27.5},
            dataset=("phrasebook test", "e" * 36),
            step=STEPS,
        )
        run.register("transformer", registered_name(train), ALIAS, {"variant": "base"})
        run.log({"score/bleu": 27.5}, on_parent=True)
        run.tag({"bleu.signature": "tok:13a"}, on_parent=True)
    return run


def record(root: Path) -> Recorded:
    """All of it, as two stages do."""
    name = f"train-{uuid.uuid4().hex[:12]}"
    write_journal(root / name / "journal.jsonl", 1, STEPS)
    with start(root, name) as run:
        end(root, run)
    return Recorded(name, evaluate(root, name).name, run.key)


def check(experiment: Any, recorded: Recorded) -> None:
    """MLflow has each thing, and each once."""
    client, experiment = experiment.client, experiment.id
    found = {
        name: client.search_runs([experiment], filter_string=f"tags.`seq2sweep.key` LIKE '{name}%'")
        for name in (recorded.train, recorded.evaluation)
    }
    assert {name: len(runs) for name, runs in found.items()} == dict.fromkeys(found, 1)
    ((train,), (evaluation,)) = found.values()

    def history(run: Any, key: str) -> list[tuple[int, float]]:
        return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]

    assert train.info.run_name == "a training"
    assert train.info.status == evaluation.info.status == "FINISHED"
    for run in (train, evaluation):
        assert run.info.start_time <= run.info.end_time
    assert train.data.params == {"model.heads": "4", "cluster.workers": "2"}
    assert train.data.tags["git.commit"] == "abc"
    assert train.data.tags["kind"] == "experiment"
    assert train.data.tags["bleu.signature"] == "tok:13a"
    assert "error" not in train.data.tags
    assert history(train, "train/loss") == [(s, 10 / s) for s in range(1, STEPS + 1)]
    assert history(train, "train/valid_loss") == [(s, 1 / s) for s in range(5, STEPS + 1, 5)]
    for key, value in (("cost/parameters", 1000.0), ("cost/flops", 2.0), ("score/bleu", 27.5)):
        assert history(train, key) == [(0, value)], key
    assert [used.dataset.name for used in train.inputs.dataset_inputs] == ["phrasebook"]
    assert [file.path for file in client.list_artifacts(train.info.run_id)] == ["receipt.json"]
    assert artifact_text(client, train.info.run_id, "receipt.json") == '{"run": "receipt"}'

    assert evaluation.data.tags["mlflow.parentRunId"] == train.info.run_id
    assert evaluation.data.params == {"beam": "4"}
    assert history(evaluation, "score/bleu") == [(0, 27.5)]
    models = client.search_logged_models(
        [experiment], filter_string=f"source_run_id = '{evaluation.info.run_id}'"
    )
    assert [(model.name, str(model.status)) for model in models] == [("transformer", "READY")]
    assert [(m.key, m.value) for m in models[0].metrics] == [("score/bleu", 27.5)]
    files = sorted(f.path for f in client.list_logged_model_artifacts(models[0].model_id))
    assert files == ["receipt.json", "weights"]
    outputs = [output.model_id for output in evaluation.outputs.model_outputs]
    assert outputs == [models[0].model_id]
    name = registered_name(recorded.train)
    (version,) = client.search_model_versions(f"name = '{name}'")
    assert version.run_id == evaluation.info.run_id
    assert (version.source, version.status) == (models[0].artifact_location, "READY")
    assert version.tags["variant"] == "base"
    assert client.get_model_version_by_alias(name, ALIAS).version == version.version
    told = client.get_logged_model(models[0].model_id).tags["mlflow.modelVersions"]
    assert [(v["name"], str(v["version"])) for v in json.loads(told)] == [
        (name, str(version.version))
    ]
