"""Lineage says which code, data, parameters and machine a result has, and nothing private."""

from __future__ import annotations

import dataclasses
import getpass
import hashlib
import json
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from mlflow.utils.validation import _validate_model_name

from seq2sweep import config as configuration
from seq2sweep.tracking import lineage as lineage_module
from seq2sweep.tracking.lineage import (
    EXPERIMENT,
    code,
    document,
    environment,
    lineage_tags,
    parameters,
    registered_name,
)
from seq2sweep.tracking.recorder import clean_params
from tests import rebuild
from tests.reproduce.repository import git

ENVIRONMENT = "environment.sha256"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit."""
    monkeypatch.delenv("SEQ2SWEEP_COMMIT", raising=False)
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "model.py").write_text("d_model = 512\n")
    (project / "params.yaml").write_text("model: {}\n")
    (project / "README.md").write_text("hello\n")
    (project / ".gitignore").write_text("__pycache__/\n")
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "first")
    return project


def lineage(project: Path, config: configuration.Config) -> dict[str, str]:
    inputs = {"raw": "22ee.dir"}
    return lineage_tags(project, config, inputs=inputs, data={"vocabulary": "abc"})


def test_clean_tree(project: Path) -> None:
    tags = code(project)
    assert tags["git.commit"] == git(project, "rev-parse", "HEAD")
    assert re.fullmatch("[0-9a-f]{40}", tags["git.commit"])
    assert tags["git.dirty"] == "false"


@pytest.mark.parametrize(
    ("path", "dirty"),
    [
        ("src/model.py", "true"),
        ("src/new/module.py", "true"),
        ("params.yaml", "true"),
        ("pipeline/train.py", "true"),
        ("constraints.txt", "true"),
        ("README.md", "false"),
        ("notes.txt", "false"),
        ("src/__pycache__/model.pyc", "false"),
    ],
)
def test_only_what_determines_a_result_makes_the_tree_dirty(
    project: Path, path: str, dirty: str
) -> None:
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text("changed\n")
    assert code(project)["git.dirty"] == dirty


def test_staged_and_deleted_files_are_changes(project: Path) -> None:
    (project / "src" / "model.py").unlink()
    assert code(project)["git.dirty"] == "true"
    git(project, "add", "--all")
    assert code(project)["git.dirty"] == "true"


@pytest.mark.parametrize(
    ("variable", "commit", "dirty"),
    [
        (None, "unknown", "unknown"),
        ("0123abcd", "0123abcd", "unknown"),
        ("0123abcd-dirty", "0123abcd", "true"),
    ],
)
@pytest.mark.parametrize("installed", [True, False])
def test_without_a_repository_or_git(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    commit: str,
    dirty: str,
    installed: bool,
) -> None:
    monkeypatch.delenv("SEQ2SWEEP_COMMIT", raising=False)
    if variable is not None:
        monkeypatch.setenv("SEQ2SWEEP_COMMIT", variable)
    if not installed:
        monkeypatch.setenv("PATH", str(tmp_path))
    assert code(tmp_path) == {"git.commit": commit, "git.dirty": dirty}


@pytest.mark.parametrize("variable", [None, "5" * 40])
def test_a_repository_around_the_project_that_ignores_it_has_no_commit_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    """As one of a home folder, where the project came as an archive, or is a job's copy."""
    monkeypatch.delenv("SEQ2SWEEP_COMMIT", raising=False)
    if variable is not None:
        monkeypatch.setenv("SEQ2SWEEP_COMMIT", variable)
    (tmp_path / ".gitignore").write_text("*\n!.gitignore\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "dotfiles")
    project = tmp_path / "project"
    project.mkdir()
    (project / "params.yaml").write_text("a: 1\n")
    assert code(project)["git.commit"] == (variable or "unknown")
    (tmp_path / ".gitignore").unlink()
    assert code(project)["git.dirty"] == "true"  # not ignored, but new
    assert len(code(project)["git.commit"]) == 40 != code(project)["git.commit"].count("5")


def test_repository_without_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQ2SWEEP_COMMIT", raising=False)
    git(tmp_path, "init", "--quiet")
    assert code(tmp_path)["git.commit"] == "unknown"


def test_parameters_data_libraries_and_machine(
    project: Path, example: configuration.Config
) -> None:
    tags = lineage(project, example)
    assert tags.items() >= code(project).items()
    assert tags["params.sha256"] == configuration.fingerprint(example)
    changed = configuration.with_changes(example, {"model.heads": 8})
    assert lineage(project, changed)["params.sha256"] != tags["params.sha256"]
    assert (tags["data.vocabulary"], tags["input.raw"]) == ("abc", "22ee.dir")
    assert tags["version.python"] == ".".join(map(str, sys.version_info[:3]))
    for name in ("torch", "ray", "mlflow", "dvc", "sentencepiece", "sacrebleu", "numpy"):
        assert tags[f"version.{name}"] == metadata.version(name)
    assert int(tags["hardware.cores"]) >= 1
    assert re.fullmatch(r"\d+\.\d GiB", tags["hardware.memory"])
    assert all(tags.values())


def test_the_environment_is_what_pip_would_install_again(
    project: Path, example: configuration.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = environment()
    assert hashlib.sha256(text.encode()).hexdigest() == lineage(project, example)[ENVIRONMENT]
    names = [line.partition("==")[0] for line in text.splitlines()]
    assert names == sorted(set(names))
    assert "seq2sweep" not in names
    assert f"torch=={metadata.version('torch')}\n" in text
    assert not rebuild.missing(text)
    assert rebuild.missing(text.replace("torch==", "torch==0.")) == ["torch"]
    # Another version of whatever package is another environment.
    folder = tmp_path / "sp_ecial.Package-1.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sp_ecial.Package\nVersion: 1.5\n"
    )
    (tmp_path / "half-1.0.dist-info").mkdir()  # what a pip that was killed leaves
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(environment().splitlines()) - set(text.splitlines()) == {"sp-ecial-package==1.5"}
    assert hashlib.sha256(text.encode()).hexdigest() != lineage(project, example)[ENVIRONMENT]


def test_of_a_package_that_is_there_twice_the_one_that_is_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "numpy-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert metadata.version("numpy") == "0.1"
    assert "numpy==0.1\n" in environment()


@pytest.mark.parametrize(
    ("dataset", "experiment", "name"),
    [
        ("multi30k", "patents", "multi30k-en-de"),
        ("eu/law: l'état", "seq2sweep", "eu-law- l-état-en-de"),
        ("files", "seq2sweep", "files-en-de"),
        ("files", "eu/patents", "eu-patents-files-en-de"),
        ("ptb", "parsers", "parsers-ptb-en-de"),
    ],
)
def test_a_model_is_registered_by_a_name_that_mlflow_takes(
    example: configuration.Config, dataset: str, experiment: str, name: str
) -> None:
    assert example.tracking.experiment == EXPERIMENT
    data = dataclasses.replace(example.data, dataset=dataset, source="en", target="de")
    tracking = dataclasses.replace(example.tracking, experiment=experiment)
    config = dataclasses.replace(example, data=data, tracking=tracking)
    assert registered_name(config) == name
    _validate_model_name(name)


def test_nothing_private(
    project: Path, example: configuration.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    private_values = {
        "tracking.uri": "postgresql://ada:hunter2@host/db",
        "cluster.storage": str(Path.home() / "runs"),
        "data.folder": str(project / "texts"),
        "self_training.files": [str(Path.home() / "trees"), "more"],
    }
    config = configuration.with_changes(example, private_values)
    tags = lineage(project, config)
    params = json.loads(document(tags, config))["params"]
    beside = clean_params(parameters(config))
    for shown in (params, beside):
        assert (shown["cluster.storage"], shown["data.folder"]) == ("~/runs", "./texts")
        assert json.loads(shown["self_training.files"]) == ["~/trees", "more"]
    values = [*tags.values(), *params.values(), *beside.values(), document(tags, config)]
    for private in (str(project), str(Path.home()), getpass.getuser(), "hunter2"):
        if private == "root" or len(private) < 3:
            continue
        assert not any(private in value for value in values), private
    assert not any(value.startswith("/") for value in values)


def test_lineage_needs_no_mlflow_or_ray() -> None:
    program = (
        "import sys, seq2sweep.tracking.lineage\n"
        "print([name for name in ('mlflow', 'ray', 'dvc', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (
            "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\ncpu family\t: 25\n\n"
            "processor\t: 1\nmodel\t\t: 2\nmodel name\t: another\n",
            "AMD EPYC (family 25, model 17)",
        ),
        ("processor\t: 0\nmodel name\t: POWER9\n", "POWER9"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "aarch64"),
    ],
)
def test_a_processor_is_named_with_its_generation(
    told: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(told, encoding="utf-8")
    monkeypatch.setattr(lineage_module, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert lineage_module.processor() == name
