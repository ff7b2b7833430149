"""The README's way, timed: `python -m benchmarks.demo`.

`dvc repro` and the summary in a fresh clone of the committed project, with the packages of this
Python. Prints JSON: the lines of the console, seconds of each stage and of all, what
metrics/*.json and reports/sweep.json say, the findings of the report, and what `seq2sweep plan`
says before and `seq2sweep compare` afterwards.

    --sweep PRESET     the sweep of a preset instead, and nothing but what it needs
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.findings import findings

ROOT = Path(__file__).parents[1]
DATA = ("fingerprint", "download", "prepare", "vocabulary", "encode")
COMPARED = ("base", "heads=1 d_k=64 d_v=64")
STAGES = (
    *(*DATA, "train", "evaluate", "attention", "teacher", "silver", "student", "sweep", "table1"),
    "report",
)


def main() -> None:
    """Run it, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sweep", metavar="PRESET")
    preset = parser.parse_args().sweep
    with tempfile.TemporaryDirectory(prefix="seq2sweep-demo-") as name:
        folder = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        print(json.dumps(measure(folder, preset), indent=2, ensure_ascii=False))


def measure(folder: Path, preset: str | None = None) -> dict[str, Any]:
    """What comes of `dvc repro` in a clone, or of the sweep of a preset."""
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
    command = str(binaries / "seq2sweep")
    lines: list[str] = []
    seconds = {}
    said = {}
    if preset is None:
        said["plan"] = _lines([command, "plan"], folder, environment)
    else:
        _lines([command, "preset", preset, "--force"], folder, environment)
    for stage in STAGES if preset is None else (*DATA, "sweep"):
        started = time.perf_counter()
        lines += _lines(["dvc", "repro", "--single-item", stage], folder, environment)
        seconds[stage] = round(time.perf_counter() - started, 1)
    if preset is None:
        started = time.perf_counter()
        lines += _lines(
            [str(binaries / "python"), "-m", "seq2sweep.stages.summary"], folder, environment
        )
        seconds["summary"] = round(time.perf_counter() - started, 1)
        said["compare"] = _lines([command, "compare", *COMPARED], folder, environment)

    def load(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    sweep = load("reports/sweep.json")
    ended = () if preset else ("train", "evaluate")
    trained = {name: load(f"metrics/{name}.json") for name in ended}
    return {
        "console": lines,
        **said,
        "seconds": seconds,
        "minutes": {"all": sum(seconds.values()) / 60}
        | {stage: seconds[stage] / 60 for stage in ("train", "sweep") if stage in seconds},
        **trained,
        "trials": [
            {k: trial[k] for k in ("name", "status", "steps", "bleu", "valid_perplexity", "curve")}
            for trial in sweep["trials"]
        ],
        "findings": [dataclasses.asdict(found) for found in findings(aggregate(sweep))],
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
