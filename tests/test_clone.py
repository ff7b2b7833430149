"""Tests take the project as git tracks it, not as the clone was left by what ran in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import clone


def test_only_what_git_tracks_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, copy = tmp_path / "clone", tmp_path / "copy"
    (root / "src").mkdir(parents=True)
    for name in ("src/a.py", "gone.py", "dvc.lock"):
        (root / name).write_text("as committed")
    for command in ("git init -q", "git add -A"):
        subprocess.run(command.split(), cwd=root, check=True)
    (root / "src/a.py").write_text("edited")
    (root / "gone.py").unlink()
    (root / "models/train").mkdir(parents=True)
    (root / "models/train/weights").write_text("left by a run")
    monkeypatch.setattr(clone, "ROOT", root)
    clone.copy_project(copy)
    assert [path for path in copy.rglob("*") if path.is_file()] == [copy / "src/a.py"]
    assert (copy / "src/a.py").read_text() == "edited"


def test_no_test_copies_the_clone_by_itself() -> None:
    own = re.compile(r"(copytree|copyfile|copy2?)\(\s*ROOT\b(?! / \"infra/prices)")
    found = [path.name for path in clone.tracked("tests") if own.search(path.read_text("utf-8"))]
    assert found == []
