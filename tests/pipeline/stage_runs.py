"""Stages in the folder of a project: as DVC runs them, and in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from tests.clone import ROOT

Run = Callable[[str, Path], subprocess.CompletedProcess[str]]


def command(stage: str) -> list[str]:
    return [sys.executable, "-m", f"pipeline.{stage}"]


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_alone(stage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As DVC does."""
    return subprocess.run(
        command(stage),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def run(stage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has loaded what a new one takes seconds for. What is no
    planned end, a stack trace for a user, fails the test."""
    out, err, status = io.StringIO(), io.StringIO(), None
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(signal, "signal"),
        warnings.catch_warnings(),
    ):
        # Of a module that a test has imported already.
        warnings.filterwarnings("ignore", "'pipeline", RuntimeWarning)
        try:
            runpy.run_module(f"pipeline.{stage}", run_name="__main__")
        except SystemExit as ended:
            status = ended.code
    assert isinstance(status, int), f"{stage} has not ended by itself"
    return subprocess.CompletedProcess(command(stage), status, out.getvalue(), err.getvalue())


def succeed(stage: str, folder: Path, how: Run = run) -> str:
    """What it says."""
    done = how(stage, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
