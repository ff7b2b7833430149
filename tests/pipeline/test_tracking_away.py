"""All stages with an MLflow server that is away: they end well, and all is recorded later."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from tests.pipeline.test_repro import Project
from tests.tracking.servers import MlflowServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    yield server
    server.kill()


def sync(project: Project) -> tuple[int, str, str]:
    done = subprocess.run(
        ["seq2sweep", "sync"],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
def test_stages_without_a_server_and_sync_with_it(server: MlflowServer, tmp_path: Path) -> None:
    project = Project(tmp_path / "clone")
    address = server.uri.replace("http://", "http://ada:hunter2@")
    project.set({"tracking.uri": address, "sweep.space": {"model.heads": [1]}})
    _, output = project.repro()
    _, *sections = re.split(r"^== (\w+) ·", output, flags=re.MULTILINE)
    said = dict(
        zip(sections[::2], (s.count("cannot be used") for s in sections[1::2]), strict=True)
    )
    # Attention may end before it knows.
    assert said.pop("attention") <= 1
    assert {stage for stage, times in said.items() if times} == {
        "train",
        "evaluate",
        "sweep",
        "report",
    }
    assert max(said.values()) == 1
    assert "hunter2" not in output
    assert "Traceback" not in output
    for path in ("metrics/train.json", "metrics/evaluate.json", "reports/sweep.json"):
        assert project.json(path)["mlflow_run_id"] is None
    recorded = project.folder / "runs" / "tracking"
    assert len(list(recorded.iterdir())) == 7

    status, out, err = sync(project)
    assert status == 1
    assert out == ""
    assert err.startswith("seq2sweep sync: tracking.uri: the MLflow store http://***@127.0.0.1")
    assert err.count("\n") == 1

    server.start()
    status, out, err = sync(project)
    assert status == 0, err
    assert out.startswith("recorded ")
    assert sync(project) == (0, "nothing is left to record\n", "")
    assert [path.name for path in recorded.iterdir()] == [
        project.json("models/train/receipt.json")["run"]
    ]

    client = mlflow.MlflowClient(server.uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "seq2sweep"]
    runs = client.search_runs([experiment.experiment_id])
    kinds = Counter(run.data.tags["kind"] for run in runs)
    assert kinds == {"experiment": 1, "evaluation": 1, "attention": 1, "sweep": 1, "variant": 2}
    assert {run.info.status for run in runs} == {"FINISHED"}
    of_kind = {run.data.tags["kind"]: run for run in runs}
    for child, parent in (("evaluation", "experiment"), ("variant", "sweep")):
        parent_id = of_kind[child].data.tags["mlflow.parentRunId"]
        assert parent_id == of_kind[parent].info.run_id
    training = of_kind["experiment"]
    bleu = project.json("metrics/evaluate.json")["bleu"]["sacrebleu"]["score"]
    assert training.data.metrics["score/bleu"] == pytest.approx(bleu)
    history = client.get_metric_history(training.info.run_id, "train/loss")
    assert [point.step for point in history] == [6, 12, 18, 24]
    found = of_kind["variant"].data.metrics.keys()
    assert {"score/valid_bleu", "train/loss", "cost/flops"} <= found
    version = client.get_model_version_by_alias("phrasebook-en-de", "best-of-sweep")
    best = client.get_run(version.run_id)
    assert best.data.tags["variant"] == project.json("metrics/sweep.json")["best"]["variant"]
    (model,) = client.search_logged_models(
        [experiment.experiment_id],
        filter_string=f"source_run_id = '{of_kind['evaluation'].info.run_id}'",
    )
    files = {Path(f.path).name for f in client.list_logged_model_artifacts(model.model_id)}
    assert {"model.safetensors", "config.json", "manifest.json", "MLmodel", "code"} <= files
    newest = client.get_model_version_by_alias("phrasebook-en-de", "newest")
    assert newest.run_id == of_kind["evaluation"].info.run_id
