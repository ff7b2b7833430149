"""What loads nothing that it does not need starts at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.clone import ROOT

SLOW = ("torch", "torch._dynamo", "ray", "mlflow", "pandas", "matplotlib", "scipy")
"""Each takes half a second or more to load."""
NEEDS = {
    "seq2sweep.cli": [],
    "pipeline.download": [],
    "pipeline.prepare": [],
    "pipeline.vocabulary": [],
    "pipeline.encode": [],
    "pipeline.teacher": [],
    "pipeline.silver": [],
    "pipeline.student": [],
    "seq2sweep.stages.summary": [],
    "pipeline.report": ["matplotlib", "scipy"],
    "seq2sweep.compare.runs": ["scipy"],
    "seq2sweep.train.loop": ["torch"],
    "seq2sweep.cluster.job_client": ["ray"],
    "seq2sweep.sweep.trial_score": ["torch"],  # what a process imports that scores a trial
}


LOADED = f"""
import importlib, os, sys

loaded = lambda: [name for name in {SLOW} if name in sys.modules]
# Once, what most of them need.
import numpy, seq2sweep.config, yaml

assert not loaded(), loaded()
for module in sys.argv[1:]:
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{{module}} cannot be imported")
        continue
    importlib.import_module(module)
    print(module, *loaded(), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """The slow libraries that each module loads, in a process of its own."""
    code = [sys.executable, "-c", LOADED]
    done = subprocess.run([*code, *NEEDS], stdout=subprocess.PIPE, text=True, check=True)
    return {module: names for module, *names in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize("module", NEEDS)
def test_no_slow_library_is_loaded_in_vain(module: str, loaded: dict[str, list[str]]) -> None:
    assert loaded[module] == NEEDS[module]


def test_a_python_without_the_packages_is_told() -> None:
    """As where DVC is of another environment than the project."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pipeline.prepare"],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "has no module numpy: call `make install`, then `. .venv/bin/activate`" in line


@pytest.mark.parametrize(("started_as", "enabled"), [("-m", "False"), ("pytest", "True")])
def test_garbage_is_not_looked_for_while_a_stage_is_loaded(started_as: str, enabled: str) -> None:
    code = f"import gc, sys; sys.argv = ['{started_as}']; import pipeline; print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [enabled]
