"""A small git repository that looks like the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def git(folder: Path, *arguments: str) -> str:
    """What git prints, whatever the settings of this machine's user."""
    usual = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    named = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**usual, **named, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One commit, on a clean tree."""
    folder = tmp_path / "project"
    files = {
        "src/code.py": "one = 1\n",
        "src/gone.py": "",
        "src/latin.txt": "gr\xfcn\n",
        "pipeline/train.py": "",
        "docs/page.md": "a page\n",
        "params.yaml": "tracking: {uri: null}\n",
        "dvc.yaml": "stages: {}\n",
        ".gitignore": "/runs/\n*.secret\n",
        ".dvc/.gitignore": "/config.local\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="latin-1")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        git(folder, *command)
    return folder
