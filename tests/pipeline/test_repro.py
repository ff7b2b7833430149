"""The whole way by `dvc repro`, tiny: what runs, what does not run again, what comes out."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
import torch
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep import hardware, presets
from seq2sweep.cli import main
from seq2sweep.data.bitext import read_training_header
from seq2sweep.parallel import available_cpus
from tests import rebuild
from tests.artifacts import artifact_text
from tests.clone import copy_project

TINY: dict[str, Any] = {
    "data.phrasebook.train": 1500,
    "data.phrasebook.valid": 40,
    "data.phrasebook.test": 60,
    "vocabulary.size": 600,
    "model.layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.heads": 2,
    "model.d_k": 16,
    "model.d_v": 16,
    "train.precision": "auto",
    "train.steps": 24,
    "train.tokens_per_update": 1000,
    "train.warmup_steps": 20,
    "train.log_every": 6,
    "train.validate_every": 12,
    "train.checkpoint_every": 12,
    "train.keep_checkpoints": 2,
    "evaluate.average_checkpoints": 2,
    "evaluate.beam": 2,
    "evaluate.max_extra_tokens": 5,
    "sweep.base": {
        "train.steps": 18,
        "train.warmup_steps": 6,
        "train.validate_every": 6,
        "train.checkpoint_every": 6,
    },
    "sweep.space": {"model.heads": [1], "model.dropout": [0.9], "model.d_model": [33]},
    "sweep.scheduler": "asha",
    "sweep.grace_steps": 6,
    "sweep.reduction_factor": 2,
    # One after the other: each process that trains or scores loads all that one needs.
    "sweep.cpus_per_trial": min(2, available_cpus()),
    "table1.lengths": [8, 16, 32],
    "table1.widths": [8, 16],
    "table1.repeats": 3,
    "attention.measured": 20,
    "attention.sentences": 3,
}


pytestmark = pytest.mark.timeout(1200)  # the whole way takes 140 s, and 560 s on a busy machine


class Project:
    """A copy of the project in a folder and a git repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "RAY_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "src"),
            "DVC_NO_ANALYTICS": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.org",
        }
        self.set({})
        for command in ("git init -q", "git add -A", "git commit -qm start"):
            subprocess.run(command.split(), cwd=folder, env=self.environment, check=True)

    def set(self, changes: Mapping[str, Any]) -> None:
        config = configuration.with_changes(presets.load("phrasebook").config, TINY | changes)
        (self.folder / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")

    def repro(self, *arguments: str) -> tuple[list[str], str]:
        """Stages that ran, and the whole output of `dvc repro`."""
        done = subprocess.run(
            ["dvc", "repro", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1100,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return re.findall(r"Running stage '(\w+)'", done.stdout), done.stdout

    def call(
        self, *command: str, given: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Another command in the project; given: its standard input."""
        return subprocess.run(
            command,
            input=given,
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def json(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("project") / "clone")
    ran, made.output = made.repro()  # type: ignore[attr-defined]
    assert ran == [
        *("fingerprint", "download", "prepare", "vocabulary", "encode"),
        *("train", "evaluate", "attention", "teacher", "silver", "student", "sweep", "table1"),
        "report",
    ]
    return made


def enter(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands in this process, which has torch, and the same code from another folder."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr("seq2sweep.cli.require_own_code", lambda folder: None)


def test_every_promised_figure_is_there(project: Project) -> None:
    prepare = project.json("metrics/prepare.json")["train"]
    assert prepare["read"] == prepare["kept"] + sum(prepare["dropped"].values()) == 1500
    train = project.json("metrics/train.json")
    assert train["steps"] == 24
    assert train["workers"] == 2
    assert train["flops"]["model"] > 0
    assert train["flops"]["padded"] > train["flops"]["model"]
    assert 0 < train["device_hours"] * 3600 < train["workers"] * train["wall_seconds"]
    assert train["flops"]["paper_rule"] is train["mfu"] is train["energy_kwh"] is None
    assert 0 < train["padding_share"] < 0.5
    assert train["vocabulary_size"] == 600
    evaluation = project.json("metrics/evaluate.json")
    assert evaluation["averaged_checkpoints"] == [12, 24]
    assert 0 <= evaluation["bleu"]["sacrebleu"]["score"] <= 100
    assert "tok:13a" in evaluation["bleu"]["sacrebleu"]["signature"]
    assert "score" in evaluation["bleu"]["paper"]
    assert "score" in evaluation["chrf"]
    assert evaluation["perplexity"] > 1
    assert evaluation["sentences"] == 60
    assert evaluation["beam"] == 2
    assert evaluation["phenomena"]
    rows = (project.folder / "reports/translations.tsv").read_text(encoding="utf-8").split("\n")
    assert rows[0] == "source\treference\ttranslation\tphenomena"
    assert len(rows) == 62
    assert "valid_perplexity" in (project.folder / "metrics/curves.csv").read_text()
    assert "BLEU" in (project.folder / "reports/table3.md").read_text(encoding="utf-8")
    page = (project.folder / "reports/index.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=.https?:", page)


def test_receipt_leads_back_to_code_and_data(project: Project) -> None:
    receipt = project.json("models/train/receipt.json")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=project.folder, capture_output=True, text=True, check=True
    ).stdout.strip()
    lineage = receipt["lineage"]
    assert commit in lineage.values()
    encoded = read_training_header(project.folder / "data/encoded")
    assert lineage["data.dataset"] == encoded["fingerprint"]
    assert lineage["data.vocabulary"] == encoded["vocabulary"]["fingerprint"]
    assert str(project.folder) not in json.dumps(receipt)
    assert [entry["step"] for entry in receipt["checkpoints"]] == [12, 24]
    curves = csv.DictReader((project.folder / "metrics/curves.csv").open(encoding="utf-8"))
    losses = {int(row["step"]): float(row["valid_loss"] or "nan") for row in curves}
    for entry in receipt["checkpoints"]:
        assert entry["valid_loss"] == losses[entry["step"]]


def test_sweep_trains_each_variant_and_says_what_became_of_it(project: Project) -> None:
    sweep = project.json("reports/sweep.json")
    *trials, refused = sweep["trials"]
    assert trials[0]["name"] == "base"
    assert len(trials) == 3
    for trial in trials:
        assert trial["status"] in ("finished", "stopped early")
        assert None not in (trial["bleu"], trial["bleu_paper"], trial["chrf"])
        assert trial["steps"] == 18 or trial["status"] == "stopped early"
    assert (refused["status"], refused["bleu"], refused["mlflow_run_id"]) == ("refused", None, None)
    assert refused["cause"] == "model.d_model must be even for sinusoidal positions, not 33"
    assert "d_model=33: refused (model.d_model must be even" in project.output  # type: ignore[attr-defined]
    assert (sweep["budget"], sweep["seeds"]) == ("steps", 1)
    finished = {trial["name"] for trial in trials if trial["status"] == "finished"}
    compared = finished - {"base"} if "base" in finished else set()
    assert set(sweep["significance"] or {}) == compared
    summary = project.json("metrics/sweep.json")
    assert summary["refused"] == 1
    assert summary["best"]["name"] in {trial["name"] for trial in trials}


def test_runs_are_compared_by_what_the_stages_left(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(project, monkeypatch)
    finished = [t for t in project.json("reports/sweep.json")["trials"] if t["bleu"] is not None]
    for names in (("base", finished[1]["name"]), ("models/train", ".")):
        assert main(["compare", *names, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["code"] == found["data"] == {}
        assert None not in (found["a"]["scores"], found["b"]["scores"])
        assert bool(found["parameters"]) is (names[0] == "base")
        if found["not_tested"] is None:
            assert 0 < found["difference"]["p"] <= 1
        else:
            assert "stopped early" in found["not_tested"]
            assert names[0] == "base"


def test_mlflow_nests_runs_and_leaves_none_running(project: Project) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{project.folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "seq2sweep"]
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    kinds = {kind: [r for r in runs.values() if r.data.tags["kind"] == kind] for kind in
             ("experiment", "evaluation", "sweep", "variant", "trial")}  # fmt: skip
    assert [len(kinds[kind]) for kind in kinds] == [1, 1, 1, 3, 0]  # with one seed, no trials
    parent = kinds["experiment"][0]
    assert project.json("metrics/train.json")["mlflow_run_id"] == parent.info.run_id
    for kind, path in (("evaluation", "metrics/evaluate.json"), ("sweep", "reports/sweep.json")):
        assert project.json(path)["mlflow_run_id"] == kinds[kind][0].info.run_id
    trained = project.json("reports/sweep.json")["trials"][:3]
    assert {trial["mlflow_run_id"] for trial in trained} == {
        variant.info.run_id for variant in kinds["variant"]
    }
    assert kinds["evaluation"][0].data.tags["mlflow.parentRunId"] == parent.info.run_id
    sweep = kinds["sweep"][0]
    for variant in kinds["variant"]:
        assert variant.data.tags["mlflow.parentRunId"] == sweep.info.run_id
    assert parent.data.metrics["score/bleu"] == pytest.approx(
        project.json("metrics/evaluate.json")["bleu"]["sacrebleu"]["score"]
    )
    found = parent.data.metrics.keys()
    assert {"cost/parameters", "cost/flops", "train/loss", "train/valid_perplexity"} <= found
    assert {"cost/padded_flops", "cost/flops_per_second", "cost/device_hours"} <= found
    assert {"system/rss_bytes", "system/system_memory_usage_percentage"} <= found
    assert not {"cost/mfu", "cost/energy_kwh", "cost/paper_rule_flops"} & found
    assert "bleu.signature" in parent.data.tags
    assert_rebuilt(project, client, [parent, kinds["evaluation"][0], sweep])
    assert_described(project, client, experiment, kinds)
    steps = [m.step for m in client.get_metric_history(parent.info.run_id, "train/loss")]
    assert steps == [6, 12, 18, 24]
    for variant in kinds["variant"]:
        found = variant.data.metrics.keys()
        assert {"score/valid_bleu", "cost/flops", "cost/device_hours"} <= found
        assert "model.heads" in variant.data.params
    assert (sweep.data.metrics["sweep/trials"], sweep.data.metrics["sweep/refused"]) == (4, 1)
    files = {file.path for file in client.list_artifacts(sweep.info.run_id)}
    tables = {f"table3.{kind}" for kind in ("csv", "html", "md", "tex")}
    assert files == {"sweep.json", "environment.txt", "lineage.json"} | tables
    for name in tables:
        table = artifact_text(client, sweep.info.run_id, name)
        assert table == (project.folder / "reports" / name).read_text()
    models = client.search_logged_models(
        [experiment.experiment_id],
        filter_string=f"source_run_id = '{kinds['evaluation'][0].info.run_id}'",
    )
    assert len(models) == 1
    assert {metric.key for metric in models[0].metrics} >= {"score/bleu", "score/chrf"}


def lineage(client: Any, run: Any) -> dict[str, Any]:
    """What a run's lineage.json says."""
    found: dict[str, Any] = json.loads(artifact_text(client, run.info.run_id, "lineage.json"))
    return found


def assert_described(
    project: Project, client: Any, experiment: Any, kinds: dict[str, list[Any]]
) -> None:
    """A person finds what each run is, the report and the translations in MLflow."""
    evaluation = kinds["evaluation"][0]
    address = f"#/experiments/{experiment.experiment_id}/runs/{evaluation.info.run_id}"
    notes = [run.data.tags["mlflow.note.content"] for runs in kinds.values() for run in runs]
    for note in (*notes, experiment.tags["mlflow.note.content"]):
        assert "RUN_PAGE" not in note
        assert re.search(r"\]\(#/experiments/\d+/runs/[0-9a-f]{32}/artifacts/", note), note
    assert f"[The report]({address}/artifacts/index.html)" in experiment.tags["mlflow.note.content"]
    assert (
        f"[Report]({address}/artifacts/index.html)" in evaluation.data.tags["mlflow.note.content"]
    )
    page = artifact_text(client, evaluation.info.run_id, "index.html")
    assert page == (project.folder / "reports/index.html").read_text("utf-8")
    shown = json.loads(artifact_text(client, evaluation.info.run_id, "translations.json"))
    tsv = (project.folder / "reports/translations.tsv").read_text(encoding="utf-8").splitlines()
    assert [shown["columns"], *shown["data"]] == [line.split("\t") for line in tsv]
    for run in (run for runs in kinds.values() for run in runs):
        seen = [key for key in run.data.tags if not key.startswith("mlflow.")]
        assert len(seen) <= 13, seen
        assert run.data.tags["mlflow.source.name"].startswith("pipeline.")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def assert_rebuilt(project: Project, client: Any, runs: list[Any]) -> None:
    """Records of these runs, and those of the trials, lead back to their params.yaml."""
    config = configuration.load(project.folder / "params.yaml")
    told = [lineage(client, run) for run in runs]
    for one in told:
        assert rebuild.from_params(one["params"]) == config
        assert one["params.sha256"] == configuration.fingerprint(config)
    train, receipt = project.json("metrics/train.json"), project.json("models/train/receipt.json")
    origin = {key: train[key] for key in hardware.ORIGIN}
    assert receipt["trained"] == origin
    cost = {"flops": train["flops"]["model"]}
    assert receipt["cost"] == cost | {key: train[key] for key in ("device_hours", "energy_kwh")}
    assert (origin["workers"], origin["device"]) == (2, "CPU")
    assert origin["cpu_features"] == hardware.cpu_features()
    for record in (runs[0], client.get_run(project.json("reports/sweep.json")["mlflow_run_id"])):
        environment = artifact_text(client, record.info.run_id, "environment.txt")
        hashed = hashlib.sha256(environment.encode()).hexdigest()
        assert lineage(client, record)["environment.sha256"] == hashed
        assert not rebuild.missing(environment)
    computed = {"hardware.cpu_features": origin.pop("cpu_features")}
    computed |= {f"run.{key}": str(value) for key, value in origin.items()}
    assert computed.items() <= told[0].items()
    report = project.json("reports/sweep.json")
    assert config.train.precision == "auto"
    (precision,) = {trial["train"]["precision"] for trial in report["trials"]}
    assert precision in ("bf16", "float32")
    table = (project.folder / "reports/table3.md").read_text(encoding="utf-8")
    assert f"All rows are trained in {precision}" in table
    for trial in report["trials"][:3]:
        run = client.get_run(trial["mlflow_run_id"])
        own = lineage(client, run)
        rebuilt = rebuild.from_params(own["params"])
        # A trial is not trained by as many as the training.
        assert (trial["workers"], config.cluster.workers) == (1, 2)
        shown = [own[f"run.{key}"] for key in ("workers", "precision", "threads")]
        assert shown == ["1", precision, str(trial["threads"])]
        marked = run.data.tags["run.shared_device"]
        assert marked == str(trial["shared_device"]).lower()
        assert marked in ("true", "false")
        assert rebuilt == rebuild.from_sweep(report, trial)
        assert trial["params_sha256"] == configuration.fingerprint(rebuilt)


@pytest.mark.thorough
@pytest.mark.parametrize("stage", ["sweep", "train"])
def test_a_run_is_made_again_from_its_id(project: Project, tmp_path: Path, stage: str) -> None:
    trials = project.json("reports/sweep.json")["trials"]
    (*_, trial) = [one for one in trials if one["status"] == "finished"]
    training = project.json("metrics/train.json")
    run_id = {"sweep": trial, "train": training}[stage]["mlflow_run_id"]
    command = (sys.executable, "-m", "seq2sweep.cli", "reproduce", run_id[:12], "--json")
    done = project.call(*command, "--folder", str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run"] == run_id
    assert found["identical"]
    assert (found["causes"], found["remarks"]) == ([], [])
    parts = set(found["parts"])
    names = {"loss", "gradient_norm", "valid_loss"}
    assert {name.split()[0] for name in parts} >= {*names, "weights", "translations", "chrf"}
    # It was trained there, of code and parameters there, and nothing of the project is another.
    (journal,) = (tmp_path / "again" / "runs").glob(
        "train-*/journal.jsonl" if stage == "train" else "sweep-*/trials/*/journal.jsonl"
    )
    assert journal.stat().st_size > 0
    assert project.call("git", "status", "--porcelain").stdout == "?? dvc.lock\n"


def test_the_best_variant_translates_by_its_alias(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project.folder}/mlflow.db")
    best = project.json("metrics/sweep.json")["best"]
    found = mlflow.MlflowClient().get_model_version_by_alias("phrasebook-en-de", "best-of-sweep")
    score = f"{best['bleu']:.2f}"  # of its one seed, and so of all
    tags = [found.tags[key] for key in ("variant", "valid_bleu", "valid_bleu_mean")]
    assert tags == [best["variant"], score, score]
    model = mlflow.artifacts.download_artifacts(
        "models:/phrasebook-en-de@best-of-sweep", dst_path=str(tmp_path)
    )
    enter(project, monkeypatch)
    said = translated(model, tmp_path, capsys)
    assert said.count("\n") == 1
    assert translated("models:/phrasebook-en-de@best-of-sweep", tmp_path, capsys) == said


def translated(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A sentence by a downloaded model, in this process, which has torch."""
    (folder / "text").write_text("two beers\n")
    capsys.readouterr()
    assert main(["translate", str(folder / "text"), "--model", model]) == 0
    return capsys.readouterr().out


def test_the_models_files_are_the_weights_that_were_scored(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project.folder}/mlflow.db")
    evaluation = project.json("metrics/evaluate.json")
    (model,) = mlflow.MlflowClient().get_run(evaluation["mlflow_run_id"]).outputs.model_outputs
    downloaded = Path(
        mlflow.artifacts.download_artifacts(f"models:/{model.model_id}", dst_path=str(tmp_path))
    )
    chosen = sorted((project.folder / "models/train/checkpoints").iterdir())
    parts = [load_file(path) for path in chosen]
    assert len(parts) == 2 == len(evaluation["averaged_checkpoints"])
    for name, tensor in load_file(downloaded / "model.safetensors").items():
        assert torch.equal(tensor, ((parts[0][name].double() + parts[1][name]) / 2).float())
    enter(project, monkeypatch)
    done = project.call("seq2sweep", "translate", given="two beers\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == translated(str(downloaded), tmp_path, capsys)
    # By how the id of the evaluation begins, and by that of the training above it.
    store = mlflow.MlflowClient().get_run(evaluation["mlflow_run_id"])
    for run_id in (store.info.run_id[:12], store.data.tags["mlflow.parentRunId"]):
        assert translated(run_id, tmp_path, capsys) == done.stdout


def test_no_process_is_left(project: Project) -> None:
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] and Path(process.info["cwd"]).is_relative_to(project.folder)
    ]
    assert left == []


def test_the_output_is_for_people(project: Project) -> None:
    output: str = project.output  # type: ignore[attr-defined]
    assert re.search(r"step +6/24  loss \d.*tok/s +left", output)
    assert "Traceback" not in output
    for noise in ("INFO ", "FutureWarning", "raylet", "(pid="):
        assert noise not in output, output


def test_what_the_model_attends_to_is_a_page(project: Project) -> None:
    found = project.json("metrics/attention.json")
    assert (found["measured"], found["heads"], len(found["of_heads"])) == (20, 6, 6)
    assert len(found["sentences"]) == 3
    text = (project.folder / "reports/attention.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=.https?:", text)
    page = (project.folder / "reports/index.html").read_text(encoding="utf-8")
    assert '<a href="attention.html">' in page
    client = mlflow.MlflowClient(f"sqlite:///{project.folder}/mlflow.db")
    run = client.get_run(found["mlflow_run_id"])
    parent = project.json("metrics/train.json")["mlflow_run_id"]
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert artifact_text(client, run.info.run_id, "attention/index.html") == text
    assert run.data.metrics["heads/removable"] == pytest.approx(found["removable"])
    of_training = client.get_run(parent).data.metrics
    assert of_training["heads/positional"] == found["positional"]
    for trial in project.json("reports/sweep.json")["trials"][:-1]:
        of_trial = client.get_run(trial["mlflow_run_id"]).data.metrics
        assert of_trial["heads/removable"] == pytest.approx(trial["heads"]["removable"])
        assert trial["heads"]["heads"] == 3 * trial["model"]["heads"]


def test_nothing_runs_again_without_a_reason(project: Project) -> None:
    assert project.repro()[0] == []
    project.set({"evaluate.beam": 3})
    assert project.repro("fingerprint")[0] == ["fingerprint"]
    # Silver sentences are parsed with a beam of their own.
    assert project.repro("--dry")[0] == ["evaluate", "attention", "student", "sweep"]


def test_settings_run_what_reads_them_and_are_taken_back_without_a_run(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once seen, nothing is ever computed again, as DVC's run cache brings it back."""
    first = project.json("reports/table1.json")
    measured = f"Measured {first['about']['date']}"
    # The beam is as before: the test set is not translated and scored again. A cluster that would
    # have to be asked is not there, and is not asked to do nothing.
    changes = {"table1.kernel": 5, "attention.sentences": 0, "sweep.method": "none"}
    project.set(changes | {"cluster.job_server": "http://127.0.0.1:9"})
    ran, output = project.repro()
    assert ran == ["fingerprint", "attention", "sweep", "table1", "report"]
    assert "sweep.method is none: no variant is trained" in output
    assert project.json("metrics/evaluate.json")["beam"] == 2
    assert project.json("reports/table1.json")["settings"]["kernel"] == 5
    assert "k = 5" in (project.folder / "reports/table1.md").read_text(encoding="utf-8")
    said = "No attention maps: <code>attention.sentences</code> is 0."
    index = project.folder / "reports/index.html"
    for page in (index, index.with_name("attention.html")):
        assert said in page.read_text(encoding="utf-8")
    assert_without_variants(project)
    enter(project, monkeypatch)
    assert main(["compare", "base", "models/train"]) == 2
    assert "trial of reports/sweep.json; it has none" in capsys.readouterr().err
    assert project.repro("--dry")[0] == []
    # All is taken back, but for what no stage reads.
    project.set({"cluster.max_failures": 1, "tracking.experiment": "other"})
    assert project.repro()[0] == ["fingerprint"]
    # Times never come out alike: these are the ones of before.
    assert project.json("reports/table1.json") == first
    assert measured in index.read_text(encoding="utf-8")


def assert_without_variants(project: Project) -> None:
    """What a sweep of the method none leaves, and what people are told."""
    report, summary = project.json("reports/sweep.json"), project.json("metrics/sweep.json")
    assert (report["method"], report["trials"], report["mlflow_run_id"]) == ("none", [], None)
    assert report["base"]["train"]["steps"] == 18
    assert summary == {
        **dict.fromkeys(("trials", "finished", "stopped_early", "failed", "refused"), 0),
        "best": None,
        "bleu": {},
    }
    for name in ("table3.md", "table3.html", "index.html"):
        text = (project.folder / "reports" / name).read_text(encoding="utf-8")
        assert "No variants have been trained. To train some, set" in text
    for command, said in (
        ("dvc metrics show", ""),
        ("python -m seq2sweep.stages.summary", "No variants have been trained"),
    ):
        done = project.call(*command.split())
        assert done.returncode == 0, done.stderr
        assert said in done.stdout + done.stderr


def test_a_params_file_without_the_section_is_measured_too(project: Project) -> None:
    params = project.folder / "params.yaml"
    whole = params.read_text(encoding="utf-8")
    start = whole.index("# TYPES OF LAYER")
    end = whole.index("# ATTENTION MAPS")
    params.write_text(whole[:start] + whole[end:], encoding="utf-8")
    assert project.repro("fingerprint")[0] == ["fingerprint"]
    assert project.repro("--dry", "table1")[0] == ["table1"]
    params.write_text(whole, encoding="utf-8")


def test_dropout_tokenises_nothing_again(project: Project) -> None:
    project.set({"model.dropout": 0.3, "cluster.workers": 1})
    ran, _ = project.repro("--dry", "train")
    assert ran == ["fingerprint", "train"]


@pytest.mark.thorough
def test_other_normalisers_of_the_same_text_are_in_receipts_and_train_nothing(
    project: Project,
) -> None:
    """`translate` and `serve` normalise as the receipt says."""
    trained, before = project.json("metrics/train.json"), project.json("models/train/receipt.json")
    other = [*reversed(before["config"]["prepare"]["normalise"])]
    project.set({"prepare.normalise": other})
    ran, _ = project.repro("evaluate")
    assert ran == ["fingerprint", "prepare", "train", "evaluate"]
    after = project.json("models/train/receipt.json")
    assert after["config"]["prepare"]["normalise"] == other
    assert after["checkpoints"] == before["checkpoints"]
    assert project.json("metrics/train.json") == trained
    later = ["attention", "teacher", "silver", "student", "sweep", "report"]
    assert project.repro("--dry")[0] == later
    project.set({})
    assert project.repro()[0] == ["fingerprint"]


def test_another_test_set_trains_nothing_again(project: Project) -> None:
    project.set({"data.phrasebook.test": 50})
    ran, _ = project.repro("evaluate")
    assert ran == ["fingerprint", "download", "prepare", "encode", "evaluate"]
    # What self-training parses must not be in it: that is looked at again, in a second.
    assert project.repro("--dry")[0] == ["attention", "silver", "student", "report"]
    assert project.json("metrics/evaluate.json")["sentences"] == 50


def test_another_vocabulary_leaves_the_clean_text_alone(project: Project) -> None:
    project.set({"vocabulary.size": 500})
    ran, _ = project.repro("encode")
    assert ran == ["fingerprint", "vocabulary", "encode"]


def test_dvc_shows_metrics_and_plots(project: Project) -> None:
    for command in ("dvc exp show --json", "dvc plots show --json", "dvc dag"):
        done = project.call(*command.split())
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_the_metrics_of_dvc_fit_a_screen(project: Project) -> None:
    done = project.call("dvc", "metrics", "show", COLUMNS="400")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 200
    # A row for each file, and under its heading the number of the whole file.
    bleu = lines[0].split().index("bleu")
    (row,) = [line.split() for line in lines if line.startswith("metrics/dvc/evaluate.json")]
    score = project.json("metrics/evaluate.json")["bleu"]["sacrebleu"]["score"]
    assert float(row[bleu]) == pytest.approx(score, rel=1e-3)
