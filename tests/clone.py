"""The project as git has it: what was run or left in the clone before decides no test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = "dvc.lock"
"""What stages ran in the clone, which a user may commit: no part of a fresh project."""


def tracked(*paths: str) -> list[Path]:
    """Files below ROOT that git tracks, of these files and folders alone if any are given."""
    # A hook that runs the tests would have git look into the index that it names.
    environment = {name: value for name, value in os.environ.items() if name != "GIT_INDEX_FILE"}
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--", *paths],
        cwd=ROOT, capture_output=True, env=environment,
    )  # fmt: skip
    if listed.returncode != 0:
        reason = "not a git clone: nothing tells the project's files from others"
        pytest.skip(reason, allow_module_level=True)
    found = [ROOT / name for name in os.fsdecode(listed.stdout).split("\0") if name]
    return [path for path in found if path.is_file()]


def copy_project(folder: Path, *paths: str) -> None:
    """Copy what git tracks, as it is in the working tree, into a folder; without dvc.lock."""
    for path in tracked(*paths):
        name = path.relative_to(ROOT)
        if name != Path(LOCK):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
