"""`make install`: what it says of an environment that cannot work, and that it leaves others."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import silver
from tests.clone import ROOT

REMEDY = "call: rm -r .venv; make install"


def install(folder: Path) -> subprocess.CompletedProcess[str]:
    # Those that a `make test` around this hands on.
    handed = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {key: value for key, value in os.environ.items() if key not in handed}
    command = ["make", "--file", str(ROOT / "Makefile"), f"PYTHON={sys.executable}", "install"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that `make install` was called in; its Python installs nothing."""
    folder = tmp_path / "a project"
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    python = folder / ".venv/bin/python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert install(folder).returncode == 0
    return folder


def test_an_environment_is_installed_once(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    for folder in (project, tmp_path / "link"):
        again = install(folder)
        assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.parametrize("take", [shutil.copytree, shutil.move])
def test_an_environment_of_another_folder_is_told(
    project: Path, tmp_path: Path, take: Callable[[Path, Path], object]
) -> None:
    take(project, tmp_path / "elsewhere")
    refused = install(tmp_path / "elsewhere")
    assert refused.returncode == 2
    assert refused.stdout.strip().endswith(REMEDY)
    assert (tmp_path / "elsewhere/.venv").exists()


@pytest.mark.parametrize("installed", [True, False])
def test_an_environment_whose_python_has_gone_is_told(project: Path, installed: bool) -> None:
    if not installed:  # or no more, as pyproject.toml is newer
        (project / ".venv/installed").unlink()
    python = project / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/usr/bin/python3.0")
    refused = install(project)
    assert refused.returncode == 2
    assert refused.stdout.strip().endswith(REMEDY)


def test_clean_leaves_texts_and_models_of_the_users_own(tmp_path: Path) -> None:
    made = ["data/raw", "data/.clean.partial", "models/train", "models/.silver.parsed", "runs"]
    own = ["data/mine", "models/exported", "corpora"]
    for name in (*made, *own):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    command = ["make", "--file", str(ROOT / "Makefile"), "clean"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert [name for name in (*made, *own) if (tmp_path / name).exists()] == own


@pytest.mark.parametrize(
    "held",
    [
        "runs/train-1/lock",
        "runs/train-1/writer.lock",
        "runs/tracking/1/records.jsonl",
        str(silver.LOCK),
    ],
)
def test_clean_removes_nothing_under_a_process_that_works(tmp_path: Path, held: str) -> None:
    lock = tmp_path / held
    lock.parent.mkdir(parents=True)
    lock.touch()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/seq2sweep").symlink_to("/bin/true")
    command = ["make", "--file", str(ROOT / "Makefile"), "clean"]
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode == 2
        said = "a process is working in runs or models: wait for its end, or end it"
        assert said in refused.stdout
        assert lock.exists()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert not lock.exists()
    assert not (tmp_path / "runs").exists()
