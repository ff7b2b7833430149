"""What a stage records is enough to make a run again, and holds no secret."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.reproduce import run_record
from seq2sweep.reproduce.run_record import Source
from seq2sweep.reproduce.stored_record import FILES, StoredRecord
from seq2sweep.tracking import lineage
from tests.reproduce.repository import git

TRAINED = {"precision": "float32", "workers": 2, "threads": 1, "device": "CPU", "cpu_features": "x"}
TRAINED |= {"tokens_per_pass": 300}
WEIGHTS = [{"step": 4, "sha256": "a" * 64, "file": "x"}, {"step": 8, "sha256": "b" * 64}]


class Run:
    """Stands in for a run of the outbox: keeps the folder that it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def artifact(self, path: Path) -> None:
        path.rename(self.folder / path.name)


def recorded(project: Path, config: Config, to: Path, **more: Any) -> StoredRecord:
    source = Source.of(project, "train", {"data": "d", "vocabulary": "v", "code": "c"})
    to.mkdir()
    run: Any = Run(to)
    source.record(run, config, trained=TRAINED, weights=WEIGHTS, **more)
    return StoredRecord.read("0" * 32, to / "reproduce")


def test_all_of_it_is_recorded_and_read(project: Path, tiny_config: Config, tmp_path: Path) -> None:
    (project / "dvc.lock").write_text("schema: '2.0'\n")
    (project / "src/code.py").write_text("one = 2\n")
    git(project, "remote", "add", "origin", "https://me:hunter2@host/project.git")
    journal = tmp_path / "journal.jsonl"
    lines: list[dict[str, Any]] = [
        {"kind": "logged", "step": 2, "loss": 6.610524094125214, "gradient_norm": None, "x": 1},
        {"kind": "validated", "step": 4, "valid_loss": 5.5},
        {"kind": "logged", "step": 4, "loss": 6.0, "gradient_norm": 0.25},
        {"kind": "checkpoint", "step": 4, "loss": 7.0},
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = recorded(
        project, tiny_config, tmp_path / "run", curves=journal, scores={"bleu": 12.5, "t": "e" * 64}
    )
    assert sorted(path.name for path in record.folder.iterdir()) == sorted(FILES)
    content = record.content
    assert content["commit"] == git(project, "rev-parse", "HEAD")
    assert content["origin"] == "https://***@host/project.git"
    assert content["identity"] == {"data": "d", "vocabulary": "v", "code": "c"}
    assert content["trained"] == TRAINED
    assert content["machine"]["processor"] == lineage.hardware()["hardware.cpu"]
    assert content["outcome"] == {
        "weights": {"4": "a" * 64, "8": "b" * 64},
        "curves": {
            "loss": [[2, 6.610524094125214], [4, 6.0]],
            "gradient_norm": [[2, None], [4, 0.25]],
            "valid_loss": [[4, 5.5]],
        },
        "scores": {"bleu": 12.5, "t": "e" * 64},
        "stopped_early": False,
    }
    assert (record.folder / "dvc.lock").read_text() == "schema: '2.0'\n"
    assert b"+one = 2" in (record.folder / "changes.patch").read_bytes()
    assert (record.folder / "constraints.txt").read_text() == lineage.environment()
    assert content["packages"]["torch"]
    assert configuration.load(record.folder / "params.yaml") == tiny_config


@pytest.mark.parametrize("asked", ["auto", 70])
def test_the_size_of_a_pass_that_it_was_trained_with_is_recorded(
    project: Path, tiny_config: Config, tmp_path: Path, asked: Any
) -> None:
    """A trial that was trained before is not trained again for another number."""
    config = configuration.with_changes(tiny_config, {"train.tokens_per_pass": asked})
    record = recorded(project, config, tmp_path / "run")
    trained = configuration.with_changes(config, {"train.tokens_per_pass": 300})
    assert configuration.load(record.folder / "params.yaml") == trained


def test_its_losses_are_means_over_the_steps_that_it_was_trained_with(
    project: Path, tiny_config: Config, tmp_path: Path
) -> None:
    """A finished training, or a trial that is reused, keeps the curves that it has."""
    config = configuration.with_changes(tiny_config, {"train.log_every": 3})
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"kind": "logged", "step": 2, "loss": 6.5}\n')
    record = recorded(project, config, tmp_path / "run", curves=journal)
    assert configuration.load(record.folder / "params.yaml").train.log_every == 2


@pytest.mark.parametrize(
    ("steps", "logged", "kept"),
    [
        (8, [2, 4, 8], [2, 4]),  # resumed with another train.log_every
        (8, [4, 6, 8], [4]),
        (8, [3, 6, 8], [3, 6, 8]),  # the last mean is over the steps that are left
        (12, [3, 6, 8, 9, 12], [3, 6, 12]),  # it had ended at step 8
        (2, [2], [2]),
    ],
)
def test_its_curve_has_the_means_that_another_training_has_as_well(
    project: Path,
    tiny_config: Config,
    tmp_path: Path,
    steps: int,
    logged: list[int],
    kept: list[int],
) -> None:
    config = configuration.with_changes(
        tiny_config, {"train.steps": steps, "train.warmup_steps": 1}
    )
    journal = tmp_path / "journal.jsonl"
    entries = [{"kind": "logged", "step": step, "loss": step + 0.5} for step in logged]
    journal.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    record = recorded(project, config, tmp_path / "run", curves=journal)
    assert record.content["outcome"]["curves"] == {"loss": [[step, step + 0.5] for step in kept]}


def test_a_curve_of_other_intervals_is_thinned_as_that_of_another_training(
    project: Path, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "MOST_POINTS", 4)
    config = configuration.with_changes(tiny_config, {"train.steps": 24, "train.warmup_steps": 1})
    found = []
    for name, logged in (
        ("whole", [*range(2, 25, 2)]),
        ("ended", [*range(2, 12, 2), 11, *range(12, 25, 2)]),
    ):
        path = tmp_path / f"{name}.jsonl"
        entries = [{"kind": "logged", "step": step, "loss": step + 0.5} for step in logged]
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        record = recorded(project, config, tmp_path / name, curves=path)
        found.append([step for step, _ in record.content["outcome"]["curves"]["loss"]])
    assert set(found[1]) <= set(found[0])
    assert len(found[1]) >= len(found[0]) - 1


def test_the_changes_are_those_of_the_beginning(
    project: Path, tiny_config: Config, tmp_path: Path
) -> None:
    source = Source.of(project, "train", {})
    (project / "src/code.py").write_text("edited while it trains\n")
    run: Any = Run(tmp_path)
    source.record(run, tiny_config, trained=TRAINED, weights=WEIGHTS)
    assert (tmp_path / "reproduce/changes.patch").read_bytes() == b""


def test_no_address_is_recorded(project: Path, tiny_config: Config, tmp_path: Path) -> None:
    secrets = {
        "tracking.uri": "postgresql://me:hunter2@host/db",
        "download.mirrors": {"https://a/": "https://hunter2/"},
        "cluster.storage": "s3://hunter2/x",
        "cluster.job_server": "http://hunter2:8265",
    }
    config = configuration.with_changes(tiny_config, secrets)
    record = recorded(project, config, tmp_path / "run")
    for name in FILES:
        assert b"hunter2" not in (record.folder / name).read_bytes()
    found = configuration.load(record.folder / "params.yaml")
    sections = ("data", "prepare", "vocabulary", "model", "train", "evaluate", "sweep")
    for section in sections:
        assert getattr(found, section) == getattr(config, section)
    assert dataclasses.asdict(found.cluster) | {"storage": ""} == dataclasses.asdict(
        config.cluster
    ) | {"storage": "", "job_server": None}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("src/a.py", 'KEY = "AKIA' + "A" * 16 + '"\n', "an AWS key in line 7"),
        ("src/a.py", "get('https://me:hunter2@host')\n", "an address with a user or password"),
        # git compresses it, and so no pattern finds what it holds
        ("src/a.db", "\0" + 'KEY = "AKIA' + "A" * 16 + '"\n', "a file among them is no text"),
        ("src/id_rsa", "x\n", "src/id_rsa looks like a secret by its name"),
        ("src/large.bin", "\n".join(map(str, range(300_000))), "MiB of changes, and at most 1.0"),
    ],
)
def test_changes_with_a_secret_or_too_large_are_told_and_left_out(
    project: Path,
    tiny_config: Config,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    said: str,
) -> None:
    (project / name).write_text(text)
    record = recorded(project, tiny_config, tmp_path / "run")
    assert (record.folder / "changes.patch").read_bytes() == b""
    assert said in record.content["changes_missing"]
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("commit", "missing"), [("a" * 40, False), ("a" * 40 + "-dirty", True), (None, True)]
)
def test_a_job_without_git_knows_its_commit_alone(
    tmp_path: Path,
    tiny_config: Config,
    monkeypatch: pytest.MonkeyPatch,
    commit: str | None,
    missing: bool,
) -> None:
    monkeypatch.delenv("SEQ2SWEEP_COMMIT", raising=False)
    if commit:
        monkeypatch.setenv("SEQ2SWEEP_COMMIT", commit)
    (tmp_path / "job").mkdir()
    record = recorded(tmp_path / "job", tiny_config, tmp_path / "run")
    assert record.content["commit"] == ("a" * 40 if commit else "unknown")
    why = "git failed: fatal: not a git repository" if missing else "None"
    assert str(record.content["changes_missing"]).startswith(why)


def test_a_jobs_copy_in_a_repository_that_ignores_it_has_no_patch_of_that(
    tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taken for the clean commit."""
    monkeypatch.setenv("SEQ2SWEEP_COMMIT", f"{'c' * 40}-dirty")
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*\n")
    git(tmp_path, "commit", "--allow-empty", "-qm", "of others")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "params.yaml").write_text("a: 1\n")
    record = recorded(copy, tiny_config, tmp_path / "run")
    assert record.content["commit"] == "c" * 40
    assert record.content["changes_missing"] == "git failed: it knows no file of this project"


def test_variables_that_change_sums_are_recorded_without_folders_of_this_machine(
    project: Path, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("TORCH_HOME", str(Path.home() / "torch"))
    monkeypatch.setenv("HUNTER2", "hunter2")
    machine = recorded(project, tiny_config, tmp_path / "run").content["machine"]
    assert machine["MKL_CBWR"] == "COMPATIBLE"
    assert machine["TORCH_HOME"] == "~/torch"
    assert "HUNTER2" not in machine


def test_long_curves_are_thinned(tmp_path: Path, project: Path, tiny_config: Config) -> None:
    journal = tmp_path / "journal.jsonl"
    most = 3 * run_record.MOST_POINTS
    entries = ({"kind": "logged", "step": i, "loss": i / 7} for i in range(1, most + 1))
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    curve = recorded(project, tiny_config, tmp_path / "run", curves=journal).content["outcome"][
        "curves"
    ]["loss"]
    assert len(curve) <= run_record.MOST_POINTS + 1
    assert curve[0] == [1, 1 / 7]
    assert curve[-1] == [most, most / 7]


def test_a_full_folder_for_temporary_files_is_named(
    project: Path, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(Path, "write_bytes", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left") as caught:
        recorded(project, tiny_config, tmp_path / "run")
    assert caught.value.filename == tempfile.gettempdir()
