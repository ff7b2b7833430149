"""Keep what a benchmark printed for the pages that quote it: `python -m benchmarks.record NAME`.

Runs the command of that name (MEASURED) and writes docs/figures/NAME.json: what it printed, the
command, the commit, the date, the machine, and a fingerprint by meaning of the code that it
measures. `tests/test_figures_in_docs.py` compares the pages with these files, and fails when that
code has changed since: then measure again, or take the figure out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sizes import SIZES
from seq2sweep import presets
from seq2sweep.code_fingerprint import of_code
from seq2sweep.errors import UserError
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking import lineage

ROOT = Path(__file__).parents[1]
FIGURES = Path("docs/figures")
CORE = ("src/seq2sweep/model", "src/seq2sweep/train")
OTHERS = tuple(
    Path(f"src/seq2sweep/model/architecture/{name}.py")
    for name in ("bytenet", "convolutional", "recurrent")
)
"""Architectures of Table 2's other models: all that is measured here is of Transformers."""
UNUSED = tuple(
    Path(f"src/seq2sweep/train/{name}.py")
    for name in ("checkpointing", "events", "footprint", "loop", "validation")
)
"""What an update of `benchmarks.contenders` does not import."""
NOT_RUN = (Path("src/seq2sweep/model/caching.py"),)
"""What it imports, and runs nothing of: caches are a search's."""
TRAINING = (
    *CORE,
    *(f"benchmarks/{name}.py" for name in ("contenders", "handwritten", "sizes", "toolkits")),
)
LESS = dict.fromkeys(
    ("long", "base_8k", "base_37k"),
    ("--precisions", "bf16", "--only", "hand", "marian", "eole"),
)
"""An update of these takes seconds, in float32 up to ten: against those opponents alone that were
the best at some size when all were measured."""
SEARCH = (
    "src/seq2sweep/decode",
    *(
        f"src/seq2sweep/data/{name}.py"
        for name in ("batching", "bitext", "vocabulary", "word_piece")
    ),
)
"""What turns encoded sentences into others: how text comes to be encoded is not timed."""
TEXT = ("src/seq2sweep/data", "src/seq2sweep/decode", "src/seq2sweep/evaluate")
NOT_THE_PHRASEBOOK = tuple(
    Path(f"src/seq2sweep/{name}")
    for name in (
        *("data/download", "data/own", "data/tables.py", "data/treebank"),
        *("evaluate/brackets.py", "evaluate/check.py", "evaluate/parsing.py"),
    )
)
"""Text that is fetched or a user's own, and trees, of which the demo has none; and what `evaluate
--check` alone runs."""


@dataclass(frozen=True)
class Measured:
    """command: prints one JSON object; code: files and folders that its figures depend on, but for
    the files and folders `without`.

    preset: whose settings they depend on.
    """

    command: tuple[str, ...]
    code: tuple[str, ...]
    preset: str = "phrasebook"
    without: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """Of the code as it is now, and of those settings."""
        left_out = {ROOT / file for file in (*OTHERS, *self.without)}
        code = of_code(file for name in self.code for file in _files(ROOT / name, left_out))
        return f"{code} {presets.load(self.preset).settings}"


MEASURED = {
    "demo": Measured(
        ("python", "-m", "benchmarks.demo"),
        (*CORE, *TEXT, "src/seq2sweep/cluster/tune_trial.py"),
        without=NOT_THE_PHRASEBOOK,
    ),
    **{
        name: Measured(
            ("python", "-m", "benchmarks.demo", "--sweep", f"phrasebook-{name}"),
            (
                *CORE,
                *TEXT,
                "src/seq2sweep/cluster/tune_trial.py",
                "src/seq2sweep/report/findings.py",
            ),
            preset=f"phrasebook-{name}",
        )
        for name in ("search", "table3")
    },
    "memory_of_updates": Measured(
        ("python", "-m", "benchmarks.memory", "--updates", "2000"),
        (*CORE, "src/seq2sweep/cluster/train_worker.py", "src/seq2sweep/train/footprint.py"),
    ),
    "memory_of_trials": Measured(
        ("python", "-m", "benchmarks.memory", "--trials", "100"),
        (*CORE, "src/seq2sweep/cluster/tune_trial.py", "src/seq2sweep/train/footprint.py"),
    ),
    "on_paper": Measured(
        ("python", "-m", "benchmarks.scaling", "--on-paper"),
        (
            "benchmarks/scaling.py",
            "src/seq2sweep/planning/exchange.py",
            "src/seq2sweep/planning/roofline.py",
        ),
    ),
    "table1": Measured(
        ("python", "-m", "benchmarks.table1"),
        (
            "src/seq2sweep/table1",
            "src/seq2sweep/model",
            "src/seq2sweep/report/paper_tables/table1.py",
        ),
    ),
    "decode": Measured(
        ("python", "-m", "benchmarks.decode", "--updates", "700", "--lengths", "30", "0"),
        # Without train/: it made the weights, and changes of it lead to others that are searched at
        # the same speed. `keep_memory` is in all contenders' processes.
        (
            "src/seq2sweep/model",
            *SEARCH,
            *(f"benchmarks/{name}.py" for name in ("decoders", "sizes", "toolkits")),
        ),
    ),
    **{
        f"train_{size}": Measured(
            ("python", "-m", "benchmarks.train", "--sizes", size, *LESS.get(size, ())),
            TRAINING,
            without=(*UNUSED, *NOT_RUN),
        )
        for size in SIZES
    },
    "verdicts": Measured(
        ("python", "-m", "benchmarks.verdicts"),
        (*CORE, *TEXT, "src/seq2sweep/cluster/tune_trial.py", "src/seq2sweep/report/findings.py"),
    ),
}


def main() -> None:
    """Measure and keep it; an exit with 2 where it would lead back to no commit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=sorted(MEASURED))
    try:
        print(record(parser.parse_args().name))
    except UserError as error:
        sys.exit(_refuse(error))


def _refuse(error: UserError) -> int:
    print(f"benchmarks.record: {error}", file=sys.stderr)
    return 2


def record(name: str) -> Path:
    """Run the command of this name and write its file; returns where."""
    code = lineage.code(ROOT)
    if code["git.dirty"] != "false":
        raise UserError("files differ from the commit: commit them first, then measure")
    measured = MEASURED[name]
    fingerprint = measured.fingerprint()
    python, *arguments = measured.command
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    content = {
        "command": " ".join((python, *arguments)),
        "commit": code["git.commit"][:7],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {k.removeprefix("hardware."): v for k, v in lineage.hardware().items()},
        "code": fingerprint,
        "figures": json.loads(done.stdout),
    }
    path = FIGURES / f"{name}.json"
    (ROOT / FIGURES).mkdir(exist_ok=True)
    write_whole(ROOT / path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def _files(place: Path, left_out: set[Path]) -> list[Path]:
    inside = [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    found = [file for file in inside if left_out.isdisjoint((file, *file.parents))]
    assert found, f"{place} has no code"
    return found


def read(name: str) -> dict[str, Any]:
    """The file of this name."""
    content: dict[str, Any] = json.loads((ROOT / FIGURES / f"{name}.json").read_text("utf-8"))
    return content


if __name__ == "__main__":
    main()
