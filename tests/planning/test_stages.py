"""Which stages will run and why, as DVC says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.planning.stages import stages

DVC_YAML = """
stages:
  first:
    cmd: cp params.yaml first.txt
    params: [model, model.heads]
    outs: [first.txt]
  second:
    cmd: cp first.txt second.txt
    deps: [first.txt]
    outs: [second.txt]
  third:
    cmd: echo third > third.txt
    outs: [third.txt]
"""


def dvc(project: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project,
        env=os.environ | {"DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def said(project: Path) -> list[tuple[str, bool, str]]:
    return [(stage.name, stage.runs, stage.why) for stage in stages(project) or ()]


def test_stages_of_a_real_project(tmp_path: Path) -> None:
    assert stages(tmp_path) is None
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    config = presets.load("phrasebook").config
    (tmp_path / "params.yaml").write_text(configuration.dump(config))
    dvc(tmp_path, "init", "--no-scm", "-q")
    never = "has not run yet"
    assert said(tmp_path) == [
        ("first", True, never),
        ("second", True, never),
        ("third", True, never),
    ]
    dvc(tmp_path, "repro", "-q")
    changed = configuration.with_changes(config, {"model.heads": 8, "model.d_k": 16})
    (tmp_path / "params.yaml").write_text(configuration.dump(changed))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert said(tmp_path) == [
        ("first", True, "model.heads 4 -> 8, model.d_k 32 -> 16"),
        ("second", True, "follows first"),
        ("third", False, ""),
    ]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_reasons_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    lock = "schema: '2.0'\nstages:\n"
    for name in ("first", "second", "third"):
        lock += f"  {name}: {{outs: [{{path: {name}.txt, hash: md5, md5: 0a}}]}}\n"
    (tmp_path / "dvc.lock").write_text(lock)
    changed: dict[str, list[Any]] = {
        "first": [
            {"changed deps": {"params.yaml": {"model.heads": "modified", "model.d_k": "new"}}},
            {"changed outs": {"first.txt": "deleted", "more.txt": "not in cache"}},
        ],
        "third": ["changed command"],
    }
    monkeypatch.setattr("seq2sweep.jobs.dvc_stages.changes", lambda _: changed)
    assert said(tmp_path) == [
        ("first", True, "model.heads modified, model.d_k new, first.txt deleted and 1 more"),
        ("second", True, "follows first"),
        ("third", True, "changed command"),
    ]
