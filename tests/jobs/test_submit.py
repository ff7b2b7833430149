"""What makes two jobs the same, what a job reads and leaves, and how one is followed: without Ray's
server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import Mock

import aiohttp
import pytest
import requests
import yaml
from ray.dashboard.utils import get_address_for_submission_client
from ray.exceptions import AuthenticationError
from ray.job_submission import JobErrorType, JobStatus

from seq2sweep import cli, console
from seq2sweep import config as configuration
from seq2sweep.cluster import job_client
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.jobs import bundle, dvc_stages, entrypoint, results
from seq2sweep.jobs import submit as jobs
from seq2sweep.jobs.results import SharedFolder, Storage, storage_at
from tests.jobs.job_cluster import ROOT, Head, Project

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def stub(tmp_path: Path) -> Project:
    return Project(tmp_path, Head(NOBODY, tmp_path, {}))


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return storage_at(str(tmp_path / "storage"))
    return storage_at(request.getfixturevalue("bucket"))


def load(stub: Project) -> configuration.Config:
    return configuration.load(stub.folder / "params.yaml")


def order(stub: Project, stage: str = "train") -> jobs.Order:
    return jobs.order(stub.folder, load(stub), stage, current=True)


def make_data(stub: Project, text: str) -> None:
    """What `dvc repro encode` would leave."""
    (stub.folder / "data/encoded").mkdir(parents=True, exist_ok=True)
    (stub.folder / "data/encoded/train.json").write_text(text)
    total = dvc_stages.sum_of(stub.folder / "data/encoded")
    outs = [{"path": "data/encoded", "hash": "md5", "md5": total}]
    stages = {"encode": {"cmd": "a", "outs": outs}, "train": {"cmd": "b"}}
    (stub.folder / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))


# --- the id --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"tracking.uri": "http://elsewhere:5000"},
        {"cluster.workers": 1},
        {"cluster.job_server": None},
        {"download.parallel": 1},
    ],
    ids=str,
)
def test_where_it_runs_is_recorded_and_fetched_from_makes_no_other_job(
    stub: Project, change: dict[str, object]
) -> None:
    before = order(stub).job
    stub.set(change)
    assert order(stub).job == before


def test_parameters_code_data_and_stage_make_another_job(stub: Project) -> None:
    found = [order(stub).job, order(stub, "encode").job, order(stub, dvc_stages.ALL).job]
    stub.set({"model.dropout": 0.2})
    found.append(order(stub).job)
    (stub.folder / "new.py").write_text("")
    found.append(order(stub).job)
    for text in ("aaaa", "bbbb"):
        make_data(stub, text)
        found.append(order(stub).job)
    assert len(set(found)) == len(found)
    assert all(job.startswith(("train-", "encode-", "all-")) for job in found)


def test_an_unknown_stage_is_one_line(stub: Project) -> None:
    with pytest.raises(UserError, match="no stage trian: give one of encode, train, or all"):
        order(stub, "trian")


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:hunter2@db/runs",
        "postgresql://me:hun/ter2@db/runs",
        "postgresql://me:12/hunter2@db/runs",
        "https://hunter2@host",
        *(f"https://host/?{key}=hunter2" for key in ("pwd", "sig", "password", "X-Amz-Signature")),
    ],
)
def test_a_password_does_not_go_along(stub: Project, uri: str) -> None:
    stub.set({"tracking.uri": uri})
    with pytest.raises(UserError, match=r"tracking\.uri holds a .*MLFLOW_TRACKING_URI") as caught:
        order(stub)
    assert "ter2" not in str(caught.value)


def test_a_password_with_a_space_does_not_go_along_and_is_not_shown(
    stub: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both halves of it look like something else."""
    uri = "postgresql://me:hunter2 hunter2@db/runs"
    stub.set({"tracking.uri": uri})
    with pytest.raises(UserError, match=r"^tracking\.uri: the address of the server or ") as caught:
        order(stub)
    assert "hunter2" not in str(caught.value)
    stub.set({"tracking.uri": None, "cluster.job_environment": ["MLFLOW_TRACKING_URI"]})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError, match=r"^\$MLFLOW_TRACKING_URI: the address of ") as caught:
        jobs.check_records_stay(load(stub))
    assert "hunter2" not in str(caught.value)


def test_data_that_was_made_without_dvc_is_refused(stub: Project) -> None:
    """Of a stage that DVC has called, or somebody by hand."""
    make_data(stub, "aaaa")
    assert list(order(stub).inputs) == ["data/encoded"]
    (stub.folder / "data/encoded/train.json").write_text("bbbb")
    with pytest.raises(UserError, match=r"^data/encoded is not what dvc\.lock has: run `dvc"):
        order(stub)


def test_the_overview_names_files_sizes_and_the_job(stub: Project) -> None:
    wanted = order(stub)
    text = jobs.overview(wanted)
    size = (stub.folder / "dvc.yaml").stat().st_size
    assert f"{size:>10,}  dvc.yaml" in text
    assert text.splitlines()[-1] == f"job {wanted.job}"
    assert "the stages before it would run in the cluster too" in text
    make_data(stub, "aaaa")
    assert "from here, by cluster.storage: data/encoded" in jobs.overview(order(stub))


def test_a_dry_run_sends_nothing(
    stub: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(stub.folder)
    assert cli.main(["submit", "--dry-run"]) == 0  # nobody is at the address
    assert capsys.readouterr().out.splitlines()[-1] == f"job {order(stub).job}"
    assert cli.main(["submit"]) == 2
    assert f"no job server of Ray answers at {NOBODY}" in capsys.readouterr().err


def test_it_is_not_silent_while_dvc_is_asked(
    stub: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_data(stub, "aaaa")
    monkeypatch.chdir(stub.folder)

    def slow(*about: object) -> list[str]:
        time.sleep(0.2)
        return []

    monkeypatch.setattr(dvc_stages, "changes", slow)
    monkeypatch.setattr(console, "SILENT_SECONDS", 0.05)
    assert cli.main(["submit", "--dry-run"]) == 0
    assert "asking DVC what has changed, " in capsys.readouterr().out


@pytest.mark.parametrize("name", [".env", "big.bin"])
def test_what_must_not_go_is_refused_before_the_network_is_touched(
    stub: Project, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(stub.folder)
    with (stub.folder / name).open("wb") as stream:
        stream.truncate(bundle.LARGEST if name == "big.bin" else 1)
    assert cli.main(["submit"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep submit: ")
    assert name in line
    assert "job server" not in line


@pytest.mark.parametrize("arguments", [["submit"], ["submit", "all"], ["submit", "--dry-run"]])
def test_a_project_that_is_no_repository_is_one_line(
    stub: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    """As of an archive that was unpacked, also inside of a repository that ignores it."""
    shutil.rmtree(stub.folder / ".git")
    monkeypatch.chdir(stub.folder)
    assert cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep submit: git decides what is uploaded, and says `fatal: not a")
    assert "where the project is no repository yet, make it one by `git init`" in line
    (stub.folder.parent / ".gitignore").write_text("*\n")
    subprocess.run(["git", "init", "-q", str(stub.folder.parent)], check=True)
    assert cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep submit: dvc.yaml would not be uploaded, and no job can run")
    # What either line says helps.
    subprocess.run(["git", "init", "-q", str(stub.folder)], check=True)
    assert cli.main(["submit", "--dry-run"]) == 0


@pytest.mark.parametrize("names", [["A=b"], ["a b"], [""]], ids=str)
def test_variables_are_named_without_their_values(stub: Project, names: list[str]) -> None:
    with pytest.raises(UserError, match=r"cluster\.job_environment must be names of variables"):
        stub.set({"cluster.job_environment": names})


# --- what a job reads and leaves -----------------------------------------------------------------


def test_dvc_yaml_says_what_a_stage_reads_and_leaves() -> None:
    data = {"data/clean": "prepare", "data/vocabulary": "vocabulary", "data/encoded": "encode"}
    assert dvc_stages.inputs(ROOT, "train") == {"data/encoded": "encode"}
    assert dvc_stages.inputs(ROOT, "sweep") == data
    assert dvc_stages.inputs(ROOT, "evaluate") == data | {"models/train": "train"}
    assert dvc_stages.inputs(ROOT, "all") == data | {"metrics/prepare.json": "prepare"}
    train = ["models/train", "metrics/train.json", "metrics/dvc/train.json", "metrics/curves.csv"]
    assert dvc_stages.outputs(ROOT, "train") == train
    assert {*train, "metrics/sweep.json", "reports/index.html"} < {*dvc_stages.outputs(ROOT, "all")}
    assert not [out for out in dvc_stages.outputs(ROOT, "all") if out.startswith("data/")]


def with_fingerprint(stub: Project, lock: dict[str, Any], reads_folder: bool) -> None:
    """A stage that says what code means, of which the job gets what is true here."""
    described = yaml.safe_load((stub.folder / "dvc.yaml").read_text())
    (stub.folder / ".gitignore").write_text("/data/\n/texts/\n/code.json\n")
    described["stages"]["fingerprint"] = {"cmd": "c", "deps": ["texts"], "outs": ["code.json"]}
    named = ["train", *["folder"] * reads_folder]
    described["stages"]["train"]["params"] = [{"code.json": named}]
    (stub.folder / "dvc.yaml").write_text(yaml.safe_dump(described))
    stages = yaml.safe_load((stub.folder / "dvc.lock").read_text())["stages"] | lock
    (stub.folder / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))


@pytest.mark.parametrize("there", [None, "{}", '{"train": "of other code"}'])
def test_pulled_data_serve_whatever_code_json_is_here(stub: Project, there: str | None) -> None:
    """As after `git clone; dvc pull`: neither has it. The same command is the same job."""
    make_data(stub, "aaaa")
    with_fingerprint(stub, {}, False)
    before = order(stub)
    if there is not None:
        (stub.folder / "code.json").write_text(there)
    wanted = order(stub)
    assert (wanted.job, wanted.inputs.keys()) == (before.job, {"data/encoded"})
    assert wanted.meaning == dvc_stages.meaning(stub.folder, load(stub))
    fake: Any = FakeServer([None])
    jobs._submit(fake, load(stub), wanted, storage_at(str(stub.storage)), wanted.job)
    assert (stub.folder / "code.json").exists() is (there is not None)
    assert json.loads(fake.files["code.json"]) == wanted.meaning


@pytest.mark.parametrize("reads_folder", [True, False])
def test_other_texts_are_another_job_of_a_stage_that_reads_them(
    stub: Project, reads_folder: bool
) -> None:
    """Those that are not here count as they were."""
    make_data(stub, "aaaa")
    stub.set({"data.folder": "texts"})
    (stub.folder / "texts").mkdir()
    found = []
    for text in ("A = 1\n", "A = 1  # one\n", "A = 2\n"):
        (stub.folder / "texts/a.py").write_text(text)
        with_fingerprint(stub, {}, reads_folder)
        found.append(order(stub).job)
    assert found[0] == found[1]
    assert (found[0] != found[2]) is reads_folder
    folder = dvc_stages.meaning(stub.folder, load(stub))["folder"]
    recorded = {"download": {"cmd": "a", "params": {"code.json": {"folder": folder}}}}
    with_fingerprint(stub, recorded, reads_folder)
    shutil.rmtree(stub.folder / "texts")
    assert order(stub).job == found[2]


@pytest.mark.parametrize("dataset", ["files", "of-a-registry"])
@pytest.mark.parametrize("stage", ["train", "encode", dvc_stages.ALL])
def test_other_texts_that_only_the_nodes_prepare_are_another_job(
    stub: Project, tmp_path: Path, stage: str, dataset: str
) -> None:
    with_texts(stub)
    (stub.folder / "dvc.lock").unlink()  # as in a fresh clone
    described = yaml.safe_load((stub.folder / "dvc.yaml").read_text())
    described["stages"]["download"] = {"cmd": "c", "outs": ["data/raw"]}
    described["stages"]["encode"]["deps"] = ["data/raw"]
    described["stages"]["table1"] = {"cmd": "c", "outs": ["reports/table1.json"]}
    (stub.folder / "dvc.yaml").write_text(yaml.safe_dump(described))
    folder = tmp_path / "corpus"
    folder.mkdir()
    stub.set({"data.folder": str(folder), "data.dataset": dataset})
    found = []
    for text in ("one", "one", "two"):
        (folder / "mine.yaml").write_text(text)
        found.append(order(stub, stage).job)
    assert found[0] == found[1] != found[2]
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=rf"data\.folder, {folder}, is not here, so .* mount it"):
        order(stub, stage)
    order(stub, "table1")  # reads none


def test_a_job_runs_its_stage_alone_where_the_data_come_from_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage `fingerprint` reads texts that git may not have, and params.yaml is another than it
    saw: DVC would run it, and fail."""
    home, copy, place = tmp_path / "home", tmp_path / "copy", tmp_path / "storage"
    (home / "data/encoded").mkdir(parents=True)
    (home / "data/encoded/train.json").write_text("text")
    total, storage = dvc_stages.sum_of(home / "data/encoded"), storage_at(str(place))
    results.put(home, ["data/encoded"], storage, results.of_input(total, "data/encoded"))
    storage.write(results.of_job("train-1", results.ORDER), b"{}")
    outs = [{"path": "code.json", "hash": "md5", "md5": "of home"}]
    deps = [{"path": path, "hash": "md5", "md5": "old"} for path in ("params.yaml", "texts")]
    stages = {"fingerprint": {"cmd": "false", "deps": deps, "outs": outs}}
    for name, text in {
        "dvc.yaml": """
stages:
  fingerprint: {cmd: "false", deps: [params.yaml, texts], outs: [code.json: {cache: false}]}
  encode: {cmd: "false", params: [code.json: [encode]], outs: [data/encoded]}
  train:
    cmd: mkdir -p models && cp data/encoded/train.json models/train && echo once >> ran
    params: [code.json: [train]]
    deps: [data/encoded]
    outs: [models/train]
""",
        "dvc.lock": yaml.safe_dump({"schema": "2.0", "stages": stages}),
        "params.yaml": "a: 1\n",
        "code.json": '{"train": "a", "encode": "b"}',
        ".dvc/config": "[core]\n    analytics = false\n",
    }.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    monkeypatch.chdir(copy)
    monkeypatch.setenv(entrypoint.JOB_CONFIG, json.dumps({"metadata": {}}))
    wanted = entrypoint.Description("train-1", "train", "c", str(place), {"data/encoded": total})
    line, status = entrypoint._work(wanted)
    assert status == 0, line
    assert (place / results.of_job("train-1") / "models/train").read_text() == "text"
    # It runs again in what Ray may have kept of the copy.
    assert entrypoint._work(wanted) == (line, 0)
    assert (copy / "ran").read_text() == "once\nonce\n"


@pytest.mark.parametrize("stage", ["train", "report", dvc_stages.ALL])
@pytest.mark.parametrize("from_home", [True, False])
def test_whoever_removes_a_jobs_results_has_all_but_the_data_made_again(
    stub: Project, monkeypatch: pytest.MonkeyPatch, stage: str, from_home: bool
) -> None:
    """Ray may have kept the copy of the project, where DVC would take it for done."""
    make_data(stub, "aaaa")
    with (stub.folder / "dvc.yaml").open("a") as described:
        described.write("  report: {cmd: c, deps: [models/train], outs: [reports]}\n")
    made = yaml.safe_load((stub.folder / "dvc.lock").read_text())
    made["stages"]["report"] = {"cmd": "c"}
    for folder in ("models/train", "reports"):
        (stub.folder / folder).mkdir(parents=True)
        (stub.folder / folder / "made").write_text("once")
    found: list[list[str]] = []
    ends = [(1, "it failed"), (0, ""), (0, "")]

    def run(*_: object) -> tuple[int, str]:
        found.append([*yaml.safe_load(Path("dvc.lock").read_text())["stages"]])
        Path("dvc.lock").write_text(yaml.safe_dump(made))
        return ends.pop(0)

    monkeypatch.setattr(entrypoint, "_run", run)
    monkeypatch.chdir(stub.folder)
    monkeypatch.setenv(entrypoint.JOB_CONFIG, json.dumps({"metadata": {}}))
    total, storage = dvc_stages.sum_of(Path("data/encoded")), storage_at(str(stub.storage))
    results.put(stub.folder, ["data/encoded"], storage, results.of_input(total, "data/encoded"))
    storage.write(results.of_job("a-1", results.ORDER), b"{}")
    inputs = {"data/encoded": total} if from_home else {}
    wanted = entrypoint.Description("a-1", stage, "c", str(stub.storage), inputs)
    assert [entrypoint._work(wanted)[1] for _ in range(3)] == [1, 0, 0]
    # After a failure it goes on.
    assert found[1] == ["encode", "report", "train"]
    alone = from_home and stage != dvc_stages.ALL
    kept = [name for name in found[1] if name != stage] if alone else ["encode"]
    assert found[2] == kept


@pytest.mark.parametrize("from_home", [True, False])
@pytest.mark.parametrize(
    ("method", "status", "cause", "again"),
    [
        ("grid", "failed", "a worker died", True),
        ("grid", "stopped early", "no score: away", True),
        ("grid", "finished", None, False),
        ("grid", "refused", "too large", False),  # by its values: it would be again
        ("optuna", "failed", "a worker died", False),  # the search has learned from that
    ],
)
def test_who_submits_a_job_that_failed_has_lost_trials_of_its_sweep_tried_again(
    stub: Project,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    status: str,
    cause: str | None,
    again: bool,
    from_home: bool,
) -> None:
    """What ran after the sweep failed; DVC would take the sweep for done. from_home: it was."""
    make_data(stub, "aaaa")
    report = {"method": method, "trials": [{"status": status, "cause": cause}]}
    monkeypatch.chdir(stub.folder)
    Path("reports").mkdir()
    Path("reports/sweep.json").write_text(json.dumps(report))
    stages = {name: {"cmd": "c"} for name in ("train", "sweep")}
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    with Path("dvc.yaml").open("a") as described:
        described.write("  sweep: {cmd: c, outs: [reports/sweep.json]}\n")
        described.write("  report: {cmd: c, deps: [reports/sweep.json], outs: [reports/a]}\n")
    found: list[str] = []

    def run(*_: object) -> tuple[int, str]:
        found.extend(yaml.safe_load(Path("dvc.lock").read_text())["stages"])
        return 1, "it failed"

    monkeypatch.setattr(entrypoint, "_run", run)
    monkeypatch.setenv(entrypoint.JOB_CONFIG, json.dumps({"metadata": {}}))
    storage = storage_at(str(stub.storage))
    storage.write(results.of_job("a-1", results.ORDER), b"{}")
    results.put(
        Path(), ["reports/sweep.json"], storage, results.of_input("a", "reports/sweep.json")
    )
    inputs = {"reports/sweep.json": "a"} if from_home else {}
    stage = "report" if from_home else dvc_stages.ALL
    entrypoint._work(entrypoint.Description("a-1", stage, "c", str(stub.storage), inputs))
    assert found == (["train"] if again and not from_home else ["sweep", "train"])


def with_texts(stub: Project) -> None:
    """Data of texts that git ignores, and a stage that reads one of them as it is."""
    (stub.folder / "texts").mkdir()
    with (stub.folder / ".gitignore").open("a") as ignored:
        ignored.write("/texts/*.gz\n")
    with (stub.folder / "dvc.yaml").open("a") as stages:
        stages.write("  attention: {cmd: 'false', outs: [reports]}\n")
    splits = ("train", "valid", "test")
    named = {f"data.files.{split}": [f"{split}.en.gz", f"{split}.de.gz"] for split in splits}
    stub.set({"data.dataset": "files", "data.folder": "texts"} | named)
    make_data(stub, "aaaa")


@pytest.mark.parametrize("stage", ["train", dvc_stages.ALL])
def test_a_text_that_the_job_would_not_have_is_told_before_it_is_submitted(
    stub: Project, stage: str
) -> None:
    with_texts(stub)
    order(stub, stage)
    stub.set({"attention.alignments": "gold.gz"})
    (stub.folder / "texts/gold.gz").write_text("0-0\n")
    if stage == "train":
        assert order(stub, stage).inputs
        return
    said = r"^attention.alignments: texts/gold.gz is missing, or git"
    with pytest.raises(UserError, match=said):
        order(stub, stage)
    (stub.folder / "dvc.lock").unlink()  # all stages would run there
    with pytest.raises(UserError, match=said):
        order(stub, stage)
    stub.set({"attention.sentences": 0})  # nothing reads it
    order(stub, stage)
    stub.set({"attention.sentences": 10, "data.folder": str(stub.folder / "texts")})
    order(stub, stage)
    stub.set({"data.folder": "texts", "attention.alignments": "gold.txt"})
    (stub.folder / "texts/gold.txt").write_text("0-0\n")
    assert "texts/gold.txt" in order(stub, stage).content.files
    for outside in ("/elsewhere/gold.txt", "../texts/gold.txt"):  # the stage would refuse them
        stub.set({"attention.alignments": outside})
        with pytest.raises(UserError, match=f"^attention.alignments names {outside}, which is out"):
            order(stub, stage)


def test_stages_of_a_job_follow_those_that_they_read() -> None:
    running = dvc_stages.running_in_job(ROOT, dvc_stages.ALL)
    for place, name in enumerate(running):
        makers = {*dvc_stages.inputs(ROOT, name).values()} & {*running}
        assert makers <= {*running[:place]}


def test_the_storage_must_be_one_that_both_see(stub: Project) -> None:
    stub.set({"cluster.storage": "runs"})
    with pytest.raises(UserError, match=r"cluster\.storage is runs: .*full path"):
        jobs.run(load(stub), order(stub))


def test_results_come_home_complete_or_not_at_all(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here, job = tmp_path / "there", tmp_path / "here", results.of_job("train-1")
    for project, text in ((there, "new"), (here, "old")):
        (project / "models/train/deep").mkdir(parents=True)
        (project / "models/train/deep/weights").write_text(text)
    (here / "models/train/older").write_text("older")
    (there / "metrics.json").write_text("{}")
    outputs = ["models/train", "metrics.json", "missing.csv"]
    assert not results.is_complete(storage, job)
    results.put(there, outputs, storage, job)
    assert results.is_complete(storage, job)

    lost = r"weights is missing or differs from what was uploaded: .*manifest\.json"
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    storage.delete("jobs/train-1/models/train/deep/weights")  # by whoever frees room there
    with pytest.raises(OperationalError, match=lost):
        results.get(storage, job, here, outputs)
    storage.write("jobs/train-1/models/train/deep/weights", b"bad")
    with pytest.raises(OperationalError, match=lost):
        results.get(storage, job, here, outputs)
    assert (here / "models/train/deep/weights").read_text() == "old"

    storage.delete("jobs/train-1/manifest.json")  # as the error says
    results.put(there, outputs, storage, job)
    with pytest.raises(
        OperationalError, match=r"names metrics\.json, which its stage does not make"
    ):
        results.get(storage, job, here, outputs[:1])
    assert results.get(storage, job, here, outputs) == ["models/train", "metrics.json"]
    assert [path.name for path in (here / "models/train").rglob("*")] == ["deep", "weights"]
    assert (here / "models/train/deep/weights").read_text() == "new"
    assert not list((here / ".dvc/tmp").iterdir())


@pytest.mark.parametrize("room", [True, False])
def test_results_come_home_to_another_disk(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here, job = tmp_path / "there", tmp_path / "here", results.of_job("train-1")
    for project, text in ((there, "new"), (here, "old")):
        (project / "models/train").mkdir(parents=True)
        (project / "models/train/weights").write_text(text)
        (project / "models/table.json").write_text(text)
    storage = SharedFolder(tmp_path / "storage")
    outputs = ["models/train", "models/table.json"]
    results.put(there, outputs, storage, job)
    rename, copy = os.rename, shutil.copytree

    def within_a_disk(path: Path, target: Path) -> None:
        if path.is_relative_to(here) and path.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(path, target)

    def copytree(source: Path, target: Path, **options: Any) -> None:
        copy(source, target, **options)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", within_a_disk)
    monkeypatch.setattr(shutil, "copytree", copytree)
    with contextlib.nullcontext() if room else pytest.raises(OSError, match="No space left"):
        assert results.get(storage, job, here, outputs) == outputs
    text = "new" if room else "old"
    assert (here / "models/train/weights").read_text() == text
    assert (here / "models/table.json").read_text() == text
    assert sorted(path.name for path in (here / "models").iterdir()) == ["table.json", "train"]


@pytest.mark.parametrize(
    ("outputs", "files"),
    [
        (["../out"], {}),
        (["out"], {"out/../../x": "sum"}),
        (["out"], {"/etc/passwd": "sum"}),
        (["out"], {"outer/x": "sum"}),
    ],
)
def test_nothing_is_written_beside_the_outputs(
    storage: Storage, tmp_path: Path, outputs: list[str], files: dict[str, str]
) -> None:
    manifest = json.dumps({"outputs": outputs, "files": files}).encode()
    storage.write("jobs/train-1/manifest.json", manifest)
    with pytest.raises(OperationalError, match="which its stage does not make"):
        results.get(storage, results.of_job("train-1"), tmp_path / "project", ["out"])
    assert not (tmp_path / "project").exists()


def test_data_is_uploaded_once(storage: Storage, tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    for inner in ("a", "deep/b"):
        (home / "data/encoded" / inner).parent.mkdir(exist_ok=True, parents=True)
        (home / "data/encoded" / inner).write_text("first")
    where = results.of_input("sum", "data/encoded")
    results.put(home, ["data/encoded"], storage, where)
    (home / "data/encoded/a").write_text("second")
    results.put(home, ["data/encoded"], storage, where)
    for _ in range(2):  # an earlier attempt of a job leaves its own there
        results.get_input(storage, "sum", "data/encoded", copy)
        place = (copy / "data/encoded").resolve()  # a link into the storage, or a copy
        found = {path.relative_to(place).as_posix(): path for path in place.rglob("*")}
        assert sorted(found) == ["a", "deep", "deep/b"]
        assert {found[name].read_text() for name in ("a", "deep/b")} == {"first"}


def test_data_of_which_files_are_gone_is_no_jobs_input(storage: Storage, tmp_path: Path) -> None:
    """A scratch file system forgets what nobody has read for long."""
    if not isinstance(storage, SharedFolder):
        pytest.skip("a copy has its sums")
    home, where = tmp_path / "home", results.of_input("sum", "data/encoded")
    (home / "data/encoded").mkdir(parents=True)
    for name in ("a", "b"):
        (home / "data/encoded" / name).write_text(name)
    results.put(home, ["data/encoded"], storage, where)
    (storage.folder / where / "data/encoded/b").unlink()
    with pytest.raises(OperationalError, match=r"missing from .*/inputs/.*: remove it and submit"):
        results.get_input(storage, "sum", "data/encoded", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_upload_that_is_interrupted_is_not_taken_for_complete(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("text")

    def stop(path: Path) -> str:
        if path.name == "b":
            raise KeyboardInterrupt
        return "sum"

    with monkeypatch.context() as patch:
        patch.setattr(results, "sha256", stop)
        with pytest.raises(KeyboardInterrupt):
            results.put(tmp_path, ["a", "b"], storage, "jobs/train-1/")
    assert not results.is_complete(storage, "jobs/train-1/")
    results.put(tmp_path, ["a", "b"], storage, "jobs/train-1/")
    assert results.get(storage, "jobs/train-1/", tmp_path / "home", ["a", "b"]) == ["a", "b"]


def test_a_file_in_a_folder_is_replaced_when_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(str(tmp_path))
    storage.write("jobs/manifest.json", b"old")

    def stop(descriptor: int) -> None:
        # A kill in this moment leaves nothing among a stage's inputs.
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["manifest.json"]
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        storage.write("jobs/manifest.json", b"new")
    assert storage.read("jobs/manifest.json") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["jobs"]


def test_what_a_killed_upload_left_is_removed_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(str(tmp_path / "storage"))

    def dies(*about: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", dies)
        patched.setattr(Path, "unlink", lambda path, **options: None)  # as SIGKILL
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                storage.write("jobs/a", b"half")
    old, new = (tmp_path / "storage").glob(".*.partial")
    of_a_run = tmp_path / "storage/.train-0123.partial"  # whoever trains removes it
    of_a_run.mkdir()
    for path in (old, of_a_run):
        os.utime(path, (0, 0))
    results.put(tmp_path, [], storage, "jobs/train-1/")
    assert {*(tmp_path / "storage").glob(".*.partial")} == {new, of_a_run}


def test_the_disk_that_is_full_is_named(storage: Storage, tmp_path: Path, small_disk: Path) -> None:
    """Mostly it is not the storage's."""
    storage.write("large", bytes(1 << 20))
    here = small_disk / "large"
    with pytest.raises(OperationalError, match=f"^no space left in {here}: free some, and submit"):
        storage.download("large", here)
    here.unlink()
    there = storage_at(str(small_disk))
    with pytest.raises(OperationalError, match=f"^no space left in {small_disk}"):
        there.write("large", bytes(1 << 20))


def test_values_are_for_this_user_and_taken_once(storage: Storage) -> None:
    name = results.values_name("train-1-2")
    storage.write_private(name, b'{"A_SECRET": "value"}')
    if isinstance(storage, SharedFolder):
        assert (storage.folder / name).stat().st_mode & 0o777 == 0o600
    assert results.take_values(storage, name) == {"A_SECRET": "value"}
    with pytest.raises(OperationalError, match="submit again"):
        results.take_values(storage, name)


def test_a_variable_that_is_not_set_is_told_before_anything_is_uploaded(
    stub: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(stub.folder)
    given = {"cluster.job_environment": ["PATH", "NOT_SET"], "tracking.uri": "http://host:5000"}
    stub.set(given)
    server, empty = Mock(), tmp_path / "empty"
    wanted = order(stub)
    with pytest.raises(UserError, match=r"job_environment names NOT_SET, which is not set"):
        jobs._submit(server, load(stub), wanted, storage_at(str(empty)), wanted.job)
    assert [path for path in empty.rglob("*") if path.is_file()] == []
    server.submit.assert_not_called()
    assert cli.main(["submit", "--dry-run"]) == 2
    assert "job_environment names NOT_SET, which is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    "outcome", [KeyboardInterrupt, OperationalError, job_client.JobRefusedError, False, True]
)
def test_values_stay_for_a_job_that_may_have_been_taken(
    stub: Project, storage: Storage, outcome: type[BaseException] | bool
) -> None:
    """The answer to an interrupted submission, or to one that was given up, is not known."""
    stub.set({"cluster.job_environment": ["PATH"]})
    seen: list[str] = []

    class Server:
        def jobs(self) -> list[Attempt]:
            return [Attempt("", JobStatus.FAILED, {"environment": name}) for name in seen]

        def submit(self, *arguments: object, environment: str, **about: str) -> bool:
            seen.append(environment)
            assert storage.read(environment) == results.values_of(["PATH"])
            if isinstance(outcome, bool):
                return outcome
            raise outcome

    wanted, server = order(stub), cast(Any, Server())
    with contextlib.suppress(KeyboardInterrupt, OperationalError):
        jobs._submit(server, load(stub), wanted, storage, wanted.job)
    kept = [f"environment/{name}" for name in storage.values()]
    assert kept == (seen if outcome not in (job_client.JobRefusedError, False) else [])
    # The next submit removes those of an attempt that has ended without them.
    first = [*seen]
    with contextlib.suppress(KeyboardInterrupt, OperationalError):
        jobs._submit(server, load(stub), wanted, storage, f"{wanted.job}-2")
    assert storage.read(first[0]) is None


def test_values_that_no_job_takes_any_more_are_removed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last two are of another cluster, and one of its attempts is named as one of ours.
    attempts = ("train-1", "train-1-2", "sweep-3", "train-1", "unknown-4")
    names = [results.values_name(attempt) for attempt in attempts]
    for name in names:
        storage.write_private(name, b"{}")
    storage.write("environment/readme", b"of somebody else")
    known = dict(zip(names, (True, False, True), strict=False))

    def left() -> list[str]:
        return [name.partition(".")[0] for name in storage.values()]

    results.remove_values(storage, known.get)
    assert left() == ["readme", "train-1-2", "train-1", "unknown-4"]
    # A day later, when the cluster that was to run it has surely forgotten it.
    now = results.time.time()
    monkeypatch.setattr(results.time, "time", lambda: now + 86401)
    results.remove_values(storage, known.get)
    assert left() == ["readme", "train-1-2"]


def test_another_users_values_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_at(str(tmp_path))
    storage.write_private("environment/train-1.1.a", b"{}")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    results.remove_values(storage, lambda attempt: True)
    assert [path.name for path in tmp_path.rglob("train*")] == ["train-1.1.a"]


# --- inside --------------------------------------------------------------------------------------


def test_inside_of_a_job_nothing_is_submitted(
    stub: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(entrypoint.JOB_CONFIG, raising=False)
    assert jobs.runs_as_job(load(stub))
    monkeypatch.setenv(entrypoint.JOB_CONFIG, "{}")
    assert not jobs.runs_as_job(load(stub))


def test_workers_on_other_nodes_see_what_was_made_on_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, storage = tmp_path / "copy" / "encoded", tmp_path / "storage"
    made.mkdir(parents=True)
    (made / "train.json").write_text("made there")
    monkeypatch.delenv(entrypoint.JOB_CONFIG, raising=False)
    assert entrypoint.seen_by_all_nodes(made, storage, "sum") == made
    monkeypatch.setenv(entrypoint.JOB_CONFIG, "{}")
    seen = entrypoint.seen_by_all_nodes(made, storage, "sum")
    assert seen.is_relative_to(storage)
    assert (seen / "train.json").read_text() == "made there"
    # As what cleans a scratch file system does.
    (seen / "train.json").unlink()
    assert entrypoint.seen_by_all_nodes(made, storage, "sum") == seen
    assert (seen / "train.json").read_text() == "made there"
    (tmp_path / "link").symlink_to(seen)
    assert entrypoint.seen_by_all_nodes(tmp_path / "link", storage, "other") == seen


def test_a_job_knows_which_results_would_be_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(stage: str = "sweep", **inputs: str) -> str:
        about = {"job": "sweep-1", "stage": stage, "commit": "c", "storage": str(tmp_path)}
        Path(entrypoint.DESCRIPTION).write_text(json.dumps(about | {"inputs": inputs}))
        return entrypoint.results_of_stage()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(entrypoint.JOB_CONFIG, "{}")
    assert entrypoint.results_of_stage() == ""  # a job that somebody else has made
    assert found(data="sum") == f"{tmp_path}/{results.of_job('sweep-1')}"
    assert found() == found(dvc_stages.ALL) == found(data="sum")
    monkeypatch.delenv(entrypoint.JOB_CONFIG)
    assert found(data="sum") == ""


@pytest.mark.parametrize(
    ("log", "line", "status"),
    [
        ("seq2sweep train: no\nERROR: failed: python, exited with 2\n", "seq2sweep train: no", 2),
        (
            "a\nERROR: failed: python, exited with 75\n\n",
            "ERROR: failed: python, exited with 75",
            75,
        ),
        ("Traceback\nValueError: x\nERROR: exited with 3", "ERROR: exited with 3", 1),
        ("step 50\nERROR: exited with -9", "ERROR: exited with -9", entrypoint.KILLED),
        ("", "no output", 1),
    ],
)
def test_the_reason_and_the_status_of_a_stage(log: str, line: str, status: int) -> None:
    assert entrypoint.reason(log) == line
    assert entrypoint._status_of_stage(log) == status


@pytest.mark.parametrize("denied", ["make", "rename", "write", "delete"])
def test_a_folder_of_another_user_is_told_before_the_stage_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    """Its first file there would be a result, after days."""
    storage = storage_at(str(tmp_path))
    storage.write(results.of_job("train-1", results.ORDER), b"{}")

    def refuse(*named: object, **how: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", *names)

    job = tmp_path / "jobs/train-1"
    partial, place = str(tmp_path / ".a.partial"), str(job / "may-write")
    owner, call, names, folder = {
        "make": (os, "open", (partial,), tmp_path),
        "rename": (Path, "replace", (partial, None, place), job),
        "write": (os, "fsync", (), tmp_path),
        "delete": (SharedFolder, "delete", (place,), job),
    }[denied]
    monkeypatch.setattr(owner, call, results._retried(refuse) if call == "delete" else refuse)
    monkeypatch.setattr(entrypoint, "_run", Mock(side_effect=AssertionError))
    monkeypatch.setenv(entrypoint.JOB_CONFIG, json.dumps({"metadata": {}}))
    wanted = entrypoint.Description("train-1", "train", "c", str(tmp_path), {})
    with pytest.raises(UserError) as caught:
        entrypoint._work(wanted)
    assert str(caught.value).startswith(f"{folder} may not be written by the user that this Ray ")


def test_what_shows_that_a_job_may_write_does_not_stay(storage: Storage) -> None:
    where = results.of_job("train-1")
    storage.write(where + results.ORDER, b"{}")
    results.check_writable(storage, where)
    assert storage.read(where + results.ORDER) == b"{}"
    assert storage.read(where + results.PROBE) is None


def test_a_full_disk_for_the_log_does_not_end_the_job(tmp_path: Path) -> None:
    """Who leaves first has Ray kill dvc and the stage below it."""
    about = dict.fromkeys(("job", "stage", "commit", "storage"), "a") | {"inputs": {}}
    (tmp_path / entrypoint.DESCRIPTION).write_text(json.dumps(about))
    stage = "import time; print('step 1', flush=True); time.sleep(0.1); open('done', 'w')"
    program = (
        "import os, sys\n"
        "from seq2sweep.jobs import entrypoint\n"
        f"stage = [sys.executable, '-c', {stage!r}]\n"
        "entrypoint._work = lambda _: ('the end', entrypoint._run(stage, dict(os.environ))[0])\n"
        "sys.exit(entrypoint.main())\n"
    )
    with open("/dev/full", "w") as full:
        job = [sys.executable, "-c", program]
        ended = subprocess.run(job, cwd=tmp_path, stdout=full, stderr=full)
    assert ended.returncode == 0
    assert (tmp_path / "done").exists()


# --- submit or attach ----------------------------------------------------------------------------


@dataclass
class Attempt:
    """What Ray knows of one."""

    submission_id: str
    status: JobStatus
    metadata: dict[str, str]


@dataclass
class FakeServer:
    """A job server that tells of these attempts, one after another, and takes no job."""

    attempts: list[Attempt | None]
    asked: list[str] = field(default_factory=list)
    address: str = NOBODY
    never_began: list[Attempt] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def newest(self, job: str) -> Attempt | None:
        return self.attempts.pop(0)

    def jobs(self) -> list[Attempt]:
        return self.never_began

    def submit(self, name: str, entry: str, archive: Path, *_: object, **about: str) -> bool:
        self.asked.append(name)
        with zipfile.ZipFile(archive) as content:
            self.files = {path: content.read(path) for path in content.namelist()}
        return False


def test_who_comes_second_in_the_same_moment_attaches(
    stub: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.set({"cluster.job_environment": ["PATH"]})
    wanted, here = order(stub), {"storage": str(stub.storage)}
    fake: Any = FakeServer(
        [
            Attempt(f"{wanted.job}-4", JobStatus.STOPPED, here),
            Attempt(f"{wanted.job}-5", JobStatus.PENDING, here),
        ]
    )
    storage = storage_at(str(stub.storage))
    values = results.values_name(f"{wanted.job}-4")
    storage.write_private(values, b"{}")
    told = {"environment": values}
    fake.never_began = [Attempt(f"{wanted.job}-4", JobStatus.STOPPED, told)]
    found = jobs._submit_or_attach(fake, load(stub), wanted, storage)
    assert found == f"{wanted.job}-5"
    assert fake.asked == [found]
    assert f"{found} is pending: attached" in capsys.readouterr().out
    # Neither the values that it would have got, nor those of an attempt that never began.
    assert storage.values() == []


def test_a_job_that_works_elsewhere_is_not_followed(stub: Project) -> None:
    wanted = order(stub)
    fake: Any = FakeServer([Attempt(wanted.job, JobStatus.RUNNING, {"storage": "/elsewhere"})])
    with pytest.raises(UserError, match=r"is running already, with cluster\.storage /elsewhere"):
        jobs._submit_or_attach(fake, load(stub), wanted, storage_at(str(stub.storage)))


NAMED = {"cluster.job_environment": ["MLFLOW_TRACKING_URI"]}


@pytest.mark.parametrize(
    ("change", "variable", "problem"),
    [
        ({}, None, "tracking.uri is null, and the job gets no $MLFLOW_TRACKING_URI"),
        # It is here, but does not go along.
        ({}, "http://host:5000", "tracking.uri is null, and the job gets no $MLFLOW_TRACKING_URI"),
        (NAMED, None, "tracking.uri is null, and the job gets no $MLFLOW_TRACKING_URI"),
        (NAMED, "sqlite:///x.db", "$MLFLOW_TRACKING_URI is sqlite:///x.db, which is no"),
        ({"tracking.uri": "sqlite:///runs/x.db"}, None, "tracking.uri is sqlite:///runs"),
        ({"tracking.uri": "sqlite+pysqlite:///x.db"}, None, "tracking.uri is sqlite+pysqlite:"),
        # What the file names counts.
        (NAMED | {"tracking.uri": "sqlite://"}, "http://host:5000", "uri is sqlite://, which"),
        ({"tracking.uri": "mlruns"}, None, "tracking.uri is mlruns, which is no server"),
        # Of these the files of runs lie in the project.
        ({"tracking.uri": "postgresql://host/x"}, None, "tracking.uri is postgresql://host/x, whi"),
    ],
    ids=str,
)
def test_records_that_would_be_lost_are_refused_before_anything_is_uploaded(
    stub: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    variable: str | None,
    problem: str,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if variable is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    make_data(stub, "aaaa")
    monkeypatch.setattr(dvc_stages, "changes", lambda *_: {})
    monkeypatch.chdir(stub.folder)
    stub.set({"tracking.uri": None} | change)
    fake = FakeServer([None])
    monkeypatch.setattr(job_client, "JobServer", lambda address: fake)
    assert cli.main(["submit"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep submit: ")
    assert problem in line
    assert "set tracking.uri to a server that the cluster reaches (http://HOST:5000)" in line
    assert "set $MLFLOW_TRACKING_URI to it and name that in cluster.job_environment" in line
    assert fake.asked == []
    assert [path.name for path in stub.storage.rglob("*")] == ["meet"]
    assert cli.main(["submit", "--dry-run"]) == 2
    told = capsys.readouterr()
    assert "would be uploaded" in told.out
    assert told.err.splitlines() == [line]


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("train", {"tracking.uri": "http://host:5000"}),
        # On the disk of a node, or one that all see: it stays.
        ("train", {"tracking.uri": "sqlite:////shared/x.db"}),
        (dvc_stages.ALL, NAMED),
        # These record nothing.
        ("encode", {}),
        ("table1", {}),
        ("silver", {}),
    ],
    ids=str,
)
def test_records_that_stay_are_submitted(
    stub: Project, monkeypatch: pytest.MonkeyPatch, stage: str, change: dict[str, object]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    stub.set({"tracking.uri": None} | change)
    with (stub.folder / "dvc.yaml").open("a") as stages:
        stages.write("  table1: {cmd: 'false', outs: [reports/table1.json]}\n")
        stages.write("  silver: {cmd: 'false', deps: [data/encoded], outs: [models/silver]}\n")
    if stage == "silver":
        make_data(stub, "aaaa")
    fake: Any = FakeServer([None])
    wanted = order(stub, stage)
    jobs._submit(fake, load(stub), wanted, storage_at(str(stub.storage)), wanted.job)
    assert fake.asked == [wanted.job]


def test_records_of_parsers_that_a_job_of_silver_trains_would_be_lost(stub: Project) -> None:
    stub.set({"tracking.uri": None})
    with (stub.folder / "dvc.yaml").open("a") as stages:
        stages.write("  silver: {cmd: 'false', deps: [models/train], outs: [models/silver]}\n")
    wanted = order(stub, "silver")
    assert not wanted.inputs
    with pytest.raises(UserError, match=r"^tracking\.uri is null, and the job gets no"):
        jobs.check_records_stay(load(stub), wanted)


def test_a_job_that_runs_or_has_finished_is_found_whatever_is_recorded_now(stub: Project) -> None:
    stub.set({"tracking.uri": None})
    wanted, here = order(stub), {"storage": str(stub.storage)}
    storage = storage_at(str(stub.storage))
    fake: Any = FakeServer([Attempt(wanted.job, JobStatus.RUNNING, here)])
    assert jobs._submit_or_attach(fake, load(stub), wanted, storage) == wanted.job
    results.put(stub.folder, ["dvc.yaml"], storage, results.of_job(wanted.job))
    fake.attempts = [Attempt(wanted.job, JobStatus.SUCCEEDED, here)]
    assert jobs._submit_or_attach(fake, load(stub), wanted, storage) is None


# --- following -----------------------------------------------------------------------------------


@dataclass
class FakeClient:
    """Ray's client: each connection gives pieces of the log and ends as told."""

    connections: list[list[str | Exception]]
    status: JobStatus = JobStatus.SUCCEEDED
    log: str = ""
    asked: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    refusal: Exception | None = None
    """What the question for the job's status is answered."""
    ended: dict[str, Any] = field(default_factory=dict)

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        self.asked.append(name)
        for piece in self.connections.pop(0):
            if isinstance(piece, Exception):
                raise piece
            if piece == "silence":
                await asyncio.sleep(3600)
            yield piece

    def get_job_info(self, name: str) -> Any:
        if self.refusal is not None:
            raise self.refusal

        @dataclass
        class Details:
            status: JobStatus
            driver_exit_code: int | None = 75
            message: str = "a message"
            metadata: Any = None
            error_type: str | None = None
            driver_node_id: str | None = None

        ended = JobStatus.RUNNING if self.connections else self.status
        return Details(ended, metadata=self.metadata, **self.ended)

    def get_job_logs(self, name: str) -> str:
        return self.log


def job_server(client: FakeClient | FakeTaker) -> job_client.JobServer:
    made = job_client.JobServer.__new__(job_client.JobServer)
    made.address, made._client = NOBODY, client
    return made


@dataclass
class FakeTaker:
    """Ray's client: what happens to each request to submit, and the metadata of the job there."""

    answers: list[Exception | None]
    metadata: dict[str, str]

    def submit_job(self, **job: Any) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    def get_job_info(self, name: str) -> Any:
        @dataclass
        class Details:
            metadata: dict[str, str]

        return Details(self.metadata)


STARTING = RuntimeError("Request failed with status code 500: No available agent to submit job")
TRACE = """Traceback (most recent call last):
  File "job_head.py", line 402, in submit_job
"""


def failing(status: int, raised: str = "RuntimeError: Failed to store.") -> Exception:
    """What Ray's client says of a head that fails itself: it answers with a trace."""
    return RuntimeError(f"Request failed with status code {status}: {TRACE}{raised}\n.")


TAKEN = RuntimeError("Job with submission_id train-1 already exists.")
LOST = requests.ConnectionError("Remote end closed connection without response")
OURS = {"stage": "train", "values": "jobs/values/train-1.7.ab"}


@pytest.mark.parametrize(
    ("answers", "metadata", "taken"),
    [
        ([STARTING, STARTING, None], {}, True),
        ([TAKEN], OURS, False),
        # The answer was lost, not the request.
        ([LOST, TAKEN], OURS, True),
        ([LOST, TAKEN], OURS | {"values": "jobs/values/train-1.7.cd"}, False),
        ([LOST, None], {}, True),
    ],
    ids=str,
)
def test_a_job_is_submitted_until_the_server_has_answered(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[Exception | None],
    metadata: dict[str, str],
    taken: bool,
) -> None:
    monkeypatch.setattr(job_client.time, "sleep", lambda seconds: None)
    client: Any = FakeTaker(list(answers), metadata)
    made = job_server(client).submit("train-1", "true", Path("p.zip"), {}, **OURS)
    assert (made, client.answers) == (taken, [])


@pytest.mark.parametrize(
    ("answers", "said", "refused"),
    [
        ([STARTING] * 9, r"the job server refused the job: .*No available agent", True),
        ([failing(500, str(STARTING))] * 9, r"refused the job: .*No available agent", True),
        ([LOST, *[STARTING] * 9], r"the job server refused the job: .*No available agent", False),
        ([LOST] * 9, r"did not answer \(Remote end closed.*submit again, which attaches", False),
    ],
    ids=["starting", "starting, told by a trace", "lost, then starting", "lost"],
)
def test_a_server_that_takes_no_job_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[Exception | None],
    said: str,
    refused: bool,
) -> None:
    monkeypatch.setattr(job_client, "START_SECONDS", 1.5)
    monkeypatch.setattr(console, "SILENT_SECONDS", 0.2)
    with (
        console.never_silent("submitting train-1"),
        pytest.raises(OperationalError, match=said) as caught,
    ):
        job_server(FakeTaker([*answers], {})).submit("train-1", "true", Path("p.zip"), {})
    # Whether it is certain that the job has not been taken.
    assert isinstance(caught.value, job_client.JobRefusedError) is refused
    assert re.search(
        r"(?m)^waiting .* the (cluster can start jobs|job server), ", capsys.readouterr().out
    )


OF_AGENT = failing(400, "ValueError: no such folder")
AWAY = """grpc.aio.AioRpcError: <AioRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
>"""


@pytest.mark.parametrize(
    ("error", "said", "refused"),
    [
        (failing(500), r"the job server failed \(RuntimeError: Failed to store\): submit", False),
        (failing(500, AWAY), "AioRpcError of .* StatusCode.UNAVAILABLE >.: submit again", False),
        (failing(400), "refused the job: RuntimeError: Failed to store$", True),
        # The head fails as the agent has refused.
        (failing(500, str(OF_AGENT)), "refused the job: ValueError: no such folder$", True),
    ],
    ids=["failing", "several lines", "refusing", "agent refusing"],
)
def test_of_a_server_that_fails_the_reason_is_told(
    error: Exception, said: str, refused: bool
) -> None:
    """It may have taken the job before it failed."""
    with pytest.raises(OperationalError, match=said) as caught:
        job_server(FakeTaker([error], {})).submit("train-1", "true", Path("p.zip"), {})
    assert isinstance(caught.value, job_client.JobRefusedError) is refused
    assert "Traceback" not in str(caught.value)


class SlowTaker(BaseHTTPRequestHandler):
    """Ray's job server behind a slow line: where a package is put it is moved on to first."""

    uploads: ClassVar[list[bytes]] = []

    def answer(self, status: int = 200, **found: str) -> None:
        text = json.dumps(found).encode()
        self.send_response(status)
        if status == 307:
            self.send_header("Location", f"{self.path}.moved")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        known = {"version": "4", "ray_version": "2.50.0"}
        self.answer(**known) if self.path == "/api/version" else self.answer(404)

    def do_PUT(self) -> None:
        body, left = bytearray(), int(self.headers["Content-Length"])
        moved = self.path.endswith(".moved")
        while piece := self.rfile.read(min(left, 1 << 17)):
            body += piece
            left -= len(piece)
            time.sleep(0.02 if moved else 0)
        self.uploads.append(bytes(body))
        self.answer(200 if moved else 307)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(job_id="train-1", submission_id="train-1")

    def log_message(self, *_: object) -> None:
        pass


def test_an_upload_may_take_longer_than_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_client, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(job_client, "START_SECONDS", 0.0)
    monkeypatch.setattr(SlowTaker, "uploads", [])
    archive = tmp_path / "project.zip"
    archive.write_bytes(os.urandom(20 << 20))
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowTaker) as server:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        taker = job_client.JobServer(f"http://127.0.0.1:{server.server_port}")
        began = time.monotonic()
        assert taker.submit("train-1", "true", archive, {})
        server.shutdown()
    assert time.monotonic() - began > 2 * job_client.CONNECT_SECONDS
    assert SlowTaker.uploads == [archive.read_bytes()] * 2


@pytest.mark.parametrize("token", [True, False])
def test_the_command_that_stops_a_job_goes_to_its_cluster(
    monkeypatch: pytest.MonkeyPatch, token: bool
) -> None:
    """Whatever the shell has set, and with the token that was shown here."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)

    def use() -> None:
        if token:  # as Ray does where one lies in the user's folder
            monkeypatch.setenv("RAY_AUTH_MODE", "token")

    monkeypatch.setattr(job_client.ray_internals, "use_token_of_user", use)
    server = SimpleNamespace(address="http://here:8265")
    said = jobs._how_to_attach(cast(Any, server), "train-1", "train")
    *variables, ray, job, stop, name = said.rpartition("Stop it: ")[2].split()
    assert [ray, job, stop, name] == ["ray", "job", "stop", "train-1"]
    given = dict(variable.split("=") for variable in variables)
    assert given.get("RAY_AUTH_MODE") == ("token" if token else None)
    others = dict.fromkeys(job_client.OVERRIDES, "http://there:1")
    for variable, value in (others | given).items():
        monkeypatch.setenv(variable, value)
    assert get_address_for_submission_client(None) == server.address


def test_a_log_is_shown_once_however_often_the_connection_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_client, "SILENCE_SECONDS", 0.05)
    broken = ConnectionResetError("gone")
    client = FakeClient(
        [["one\n", broken], ["one\n", "tw", "silence"], ["one\ntwo\n"]], log="one\ntwo\nthree\n"
    )
    shown: list[str] = []
    ended = job_server(client).follow("train-1", shown.append)
    assert "".join(shown) == "one\ntwo\nthree\n"
    assert ended.status == JobStatus.SUCCEEDED


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_client, "PATIENCE_SECONDS", 0.0)
    gone = ConnectionResetError("gone")
    client = FakeClient([[gone]] * 2)
    monkeypatch.setattr(client, "get_job_info", Mock(side_effect=gone))
    with pytest.raises(job_client.JobServerAwayError):
        job_server(client).follow("train-1", lambda text: None)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", [500, 404])
def test_a_log_that_can_never_be_had_hides_no_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, streams: bool
) -> None:
    """streams: as it does not where a proxy lets no WebSocket through, or the node has gone."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        assert now < 2 * job_client.PATIENCE_SECONDS, "it is followed for ever"

    monkeypatch.setattr(job_client, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    broken = RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
    client = FakeClient([["one\n"] if streams else [broken] for _ in range(2000)])
    refusal = RuntimeError(f"Request failed with status code {status}: no such file")
    monkeypatch.setattr(client, "get_job_logs", Mock(side_effect=refusal))
    ended = client.get_job_info("train-1")
    ended.status = JobStatus.FAILED
    monkeypatch.setattr(client, "get_job_info", lambda name: ended)
    shown: list[str] = []
    assert job_server(client).follow("train-1", shown.append) is ended
    assert shown == ["one\n"] * streams
    assert capsys.readouterr().out == f"the rest of train-1's log cannot be had: {refusal}\n"
    # Another way to ask is tried a second after the stream broke.
    assert (now > (not streams)) == (status == 500), "a job that is forgotten is not waited for"


def test_a_log_that_came_for_hours_is_followed_after_a_broken_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that time came through one connection, and nothing else was asked."""
    now, broken = 0.0, RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
    clock = SimpleNamespace(monotonic=lambda: now, sleep=lambda seconds: None)
    monkeypatch.setattr(job_client, "time", clock)

    def write(text: str) -> None:
        nonlocal now
        now += 2 * job_client.PATIENCE_SECONDS

    client = FakeClient([["one\n", "two\n", broken], ["one\ntwo\n"]], log="one\ntwo\n")
    asked, away = client.get_job_info, [ConnectionResetError("gone")]

    def get_job_info(name: str) -> Any:
        if away:
            raise away.pop()
        return asked(name)

    monkeypatch.setattr(client, "get_job_info", get_job_info)
    assert job_server(client).follow("train-1", write).status == JobStatus.SUCCEEDED
    assert client.connections == []


def handshake(status: int) -> aiohttp.WSServerHandshakeError:
    """What Ray's client raises where a log is asked for and the server refuses that."""
    said = "Invalid response status"
    return aiohttp.WSServerHandshakeError(Mock(), (), status=status, message=said)


@pytest.mark.parametrize(
    ("of_log", "of_job"),
    [(handshake(404), None), (None, RuntimeError("Request failed with status code 404: no job."))],
    ids=["when its log is asked for", "when the job is"],
)
def test_a_job_that_the_cluster_has_forgotten_is_one_line(
    of_log: Exception | None, of_job: Exception | None
) -> None:
    client = FakeClient([[of_log] if of_log else []], refusal=of_job)
    with pytest.raises(OperationalError, match=r"does not know train-1: submit again"):
        job_server(client).follow("train-1", lambda text: None)


@pytest.mark.parametrize(
    ("of_log", "of_job"),
    [(handshake(401), None), (handshake(403), None), (None, AuthenticationError("no token"))],
    ids=["log, 401", "log, 403", "job"],
)
def test_a_server_that_wants_another_token_by_now_is_one_line(
    of_log: Exception | None, of_job: Exception | None
) -> None:
    client = FakeClient([[of_log] if of_log else []], refusal=of_job)
    with pytest.raises(UserError, match=rf"^the job server at {NOBODY} wants this cluster's token"):
        job_server(client).follow("train-1", lambda text: None)


def test_an_interrupted_job_is_told_as_that(
    storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    client = FakeClient([["seq2sweep train: saved\n"]], JobStatus.FAILED)
    client.log = "seq2sweep train: saved\n"
    with pytest.raises(KeyboardInterrupt):
        jobs._follow(job_server(client), "train-1", "train", storage)
    assert capsys.readouterr().out.splitlines()[-1] == "train-1 was interrupted: saved"


def test_a_job_that_did_not_start_is_not_taken_for_a_killed_one(storage: Storage) -> None:
    def follow(kind: JobErrorType | None, node: str | None) -> str | None:
        why = {"message": "no room\nfor 900.0 seconds", "driver_exit_code": None}
        ended = why | {"error_type": kind and kind.value, "driver_node_id": node}
        log = "INFO: Runtime env is setting up.\n"
        client = FakeClient([[]], JobStatus.FAILED, log, ended=ended)
        return jobs._follow(job_server(client), "train-1", "train", storage)

    kinds = JobErrorType
    for kind, node in (
        (kinds.RUNTIME_ENV_SETUP_FAILURE, None),
        (kinds.JOB_SUPERVISOR_ACTOR_START_TIMEOUT, None),
        (kinds.JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE, None),
        (kinds.JOB_SUPERVISOR_ACTOR_START_FAILURE, None),
        (kinds.JOB_ENTRYPOINT_COMMAND_START_ERROR, "ab"),
    ):
        with pytest.raises(OperationalError, match=r"^train-1 did not start: for 900\.0 seconds$"):
            follow(kind, node)
    for kind, node in (
        (kinds.JOB_SUPERVISOR_ACTOR_DIED, "ab"),
        (kinds.JOB_SUPERVISOR_ACTOR_DIED, None),
        (kinds.JOB_SUPERVISOR_ACTOR_START_FAILURE, "ab"),  # when the head was restarted
        (kinds.JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE, "ab"),
        (None, None),
    ):
        said = follow(kind, node)
        assert said is not None
        assert said.startswith("train-1 was killed, by hand or by the system")


def test_a_stopped_job_may_be_submitted_again_and_leaves_no_values(
    storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.write_private("environment/train-1.1.a", b"{}")
    storage.write_private("environment/train-1.2.b", b"{}")  # of its name on another cluster
    stopped = FakeClient(
        [[]], JobStatus.STOPPED, metadata={"environment": "environment/train-1.1.a"}
    )
    with pytest.raises(KeyboardInterrupt):
        jobs._follow(job_server(stopped), "train-1", "train", storage)
    assert storage.values() == ["train-1.2.b"]
    assert capsys.readouterr().out.splitlines()[-1] == "train-1 was stopped"


def test_attempts_have_numbers() -> None:
    names = [job_client.attempt_name("train-a", number) for number in (1, 2, 11)]
    assert names == ["train-a", "train-a-2", "train-a-11"]
    assert [job_client.attempt("train-a", name) for name in names] == [1, 2, 11]
    assert not any(job_client.attempt("train-a", name) for name in ("train-ab", "train", None))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8265", "http://me:hunter2@host:8265", "ftp://host", "http://me:hunter2/a@host:1",
        "http://[::1:8265", "http://[bad]:1",
    ],
)  # fmt: skip
def test_a_wrong_address_is_one_line_without_its_password(stub: Project, address: str) -> None:
    with pytest.raises(UserError, match="must be as http://host:8265") as caught:
        jobs.run(load(stub), order(stub), address)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UserError, match=r"cluster\.job_server"):
        stub.set({"cluster.job_server": address})


@pytest.mark.parametrize(("kind", "status"), [(UserError, 2), (OperationalError, 1), (OSError, 1)])
def test_no_error_shows_a_password(
    stub: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[Exception],
    status: int,
) -> None:
    """Also where the text comes from somebody else: a job's log, a server, a library."""

    def fail(*arguments: object, **options: object) -> None:
        raise kind("no answer from https://me:hunter2@host/x?sig=hunter2")

    monkeypatch.chdir(stub.folder)
    monkeypatch.setattr(jobs, "run", fail)
    assert cli.main(["submit"]) == status
    shown = capsys.readouterr().err.splitlines()[-1]
    # What to do about an OSError is said behind it.
    assert shown.removesuffix(" run it again") == (
        "seq2sweep submit: no answer from https://***@host/x?sig=***"
    )


def test_an_address_is_asked_for(stub: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.set({"cluster.job_server": None})
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(UserError, match="no cluster to submit to"):
        jobs.run(load(stub), order(stub))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", NOBODY)
    with pytest.raises(UserError, match=f"answers at {NOBODY}"):
        jobs.run(load(stub), order(stub))


FOLLOWED = """
import sys
from seq2sweep import cli
from seq2sweep.jobs import submit

def run(*given, **options):
    for number in range(3):
        print("line", number, flush=True)
    raise SystemExit(3)

submit.order, submit.run = lambda *given: None, run
cli.main(["submit"])
"""


def test_a_job_is_followed_to_its_end_though_nobody_reads_its_lines() -> None:
    """As under `| head`: the status is the job's."""
    command = [sys.executable, "-c", FOLLOWED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 3
