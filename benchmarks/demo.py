"""The README's way, timed: `python -m benchmarks.demo`.

`dvc repro` and the summary in a fresh clone of the committed project, with the packages of this
Python. Prints JSON: the lines of the console, seconds of each stage and of all, and what
metrics/*.json and reports/sweep.json say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STAGES = ("download", "prepare", "vocabulary", "encode", "train", "evaluate", "sweep", "report")


def main() -> None:
    """Run it, print one JSON object."""
    with tempfile.TemporaryDirectory(prefix="seq2sweep-demo-") as name:
        folder = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        print(json.dumps(measure(folder), indent=2))


def measure(folder: Path) -> dict[str, Any]:
    """What comes of `dvc repro` in a clone."""
    binaries = Path(sys.executable).parent
    path = os.pathsep.join((str(binaries), os.environ["PATH"]))
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(folder))),
        "DVC_NO_ANALYTICS": "1",
    }
    # Stages find the packages where `make install` puts them.
    (folder / ".venv").symlink_to(binaries.parent)
    lines: list[str] = []
    seconds = {}
    for stage in STAGES:
        started = time.perf_counter()
        lines += _lines(["dvc", "repro", "--single-item", stage], folder, environment)
        seconds[stage] = round(time.perf_counter() - started, 1)
    started = time.perf_counter()
    lines += _lines([str(binaries / "python"), "-m", "pipeline.summary"], folder, environment)
    seconds["summary"] = round(time.perf_counter() - started, 1)

    def load(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    sweep = load("reports/sweep.json")
    return {
        "console": lines,
        "seconds": seconds,
        "minutes": {
            "all": sum(seconds.values()) / 60,
            **{stage: seconds[stage] / 60 for stage in ("train", "sweep")},
        },
        "train": load("metrics/train.json"),
        "evaluate": load("metrics/evaluate.json"),
        "trials": [
            {k: trial[k] for k in ("name", "status", "steps", "bleu", "valid_perplexity")}
            for trial in sweep["trials"]
        ],
    }


def _lines(command: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
    """What a command says on standard output, shown here on standard error as it comes."""
    found = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stderr)
            found.append(line.rstrip())
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    return found


if __name__ == "__main__":
    main()
