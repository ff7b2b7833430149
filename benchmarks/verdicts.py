"""Do the findings of the demo's report hold with other seeds? `python -m benchmarks.verdicts`.

The demo's sweep in a fresh clone, trained with `train.seed` 1 to 5 (or `--seeds N`), one sweep
after the other. Prints JSON: for each seed the verdict of each finding with its evidence, and in
how many of them the most frequent verdict came out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.findings import findings

ROOT = Path(__file__).parents[1]
DATA = ("download", "prepare", "vocabulary", "encode")


def main() -> None:
    """Run the sweeps, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seq2sweep-verdicts-") as name:
        folder = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        for stage in DATA:
            _stage(stage, folder)
        seeds = {str(seed): of_seed(folder, seed) for seed in range(1, options.seeds + 1)}
    claims = {found["claim"] for of_one in seeds.values() for found in of_one}
    same = {
        claim: Counter(
            found["verdict"] for each in seeds.values() for found in each if found["claim"] == claim
        ).most_common(1)[0]
        for claim in sorted(claims)
    }
    print(json.dumps({"seeds": seeds, "most_frequent": same}, indent=2, ensure_ascii=False))


def of_seed(folder: Path, seed: int) -> list[dict[str, Any]]:
    """The findings of the sweep with this train.seed, which it leaves in the clone's params."""
    params = folder / "params.yaml"
    config = configuration.with_changes(configuration.load(params), {"train.seed": seed})
    params.write_text(configuration.dump(config), encoding="utf-8")
    _stage("sweep", folder)
    sweep = json.loads((folder / "reports/sweep.json").read_text(encoding="utf-8"))
    return [
        {"claim": found.claim, "verdict": found.verdict, "evidence": found.evidence}
        for found in findings(aggregate(sweep))
    ]


def _stage(name: str, folder: Path) -> None:
    """Run a stage of the clone, its console on standard error."""
    paths = os.pathsep.join((str(folder / "src"), str(folder)))
    subprocess.run(
        [sys.executable, "-m", f"pipeline.{name}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=sys.stderr,
        check=True,
    )


if __name__ == "__main__":
    main()
