"""Would the tests notice a wrong number? Every fault of faults.py is planted and must be caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clone import ROOT, copy_project
from tests.faults import FIGURES, Fault, every

FAULTS = list(every())
PYTEST = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
TESTS_FAILED = 1
"""What pytest says when tests were run and one failed; of anything else it gives other numbers."""


def test_each_fault_is_of_a_text_that_is_there_once() -> None:
    assert len(FAULTS) >= 60
    for fault in FAULTS:
        text = (ROOT / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.right) == 1, str(fault)
        assert (ROOT / fault.tests).is_file()


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    if fault.file.endswith("_kernel.py") or "of_gains" in fault.right:
        pytest.importorskip("triton", reason="kernels are tested where Triton is installed")
    clone = tmp_path / "clone"
    copy_project(clone)
    for command in ("git init --quiet", "git add --all"):
        subprocess.run(command.split(), cwd=clone, check=True)
    file = clone / fault.file
    file.write_text(file.read_text("utf-8").replace(fault.right, fault.wrong), encoding="utf-8")
    # As by hand, not as a part of these tests.
    usual = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, [str(clone / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [*PYTEST, *(["--thorough"] if fault.tests == FIGURES else []), fault.tests],
        cwd=clone,
        env=usual | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == TESTS_FAILED, f"it was not noticed\n{done.stdout[-2000:]}"
    assert "Failed: Timeout" not in done.stdout, "it was slow, not noticed"
