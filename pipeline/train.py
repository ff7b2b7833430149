"""Train the Transformer of params.yaml on Ray Train workers; export the checkpoints it kept.

Writes models/train (weights and a receipt), metrics/train.json and metrics/curves.csv. A run that
was interrupted resumes from its newest checkpoint in `cluster.storage`.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.stages import stage
from seq2sweep.stages.training import train_on
from seq2sweep.storage.atomic import write_whole

MOST_POINTS = 10_000
"""Of a curve in metrics/curves.csv; more are thinned out evenly."""
CURVES = (
    "step loss perplexity learning_rate gradient_norm tokens_per_second valid_loss valid_perplexity"
).split()


def work(config: Config) -> None:
    folder = train_on(project_files.ENCODED, config, "train", project_files.MODEL)
    write_curves(folder / JOURNAL_NAME, project_files.METRICS / "curves.csv")


def write_curves(journal_path: Path, path: Path) -> None:
    """metrics/curves.csv: a row a step that was logged or validated, of many an even choice."""
    rows: dict[int, dict[str, Any]] = {}
    for kind in ("logged", "validated"):
        for entry in journal.thinned(journal.entries(journal_path, kind), MOST_POINTS):
            rows.setdefault(entry["step"], {}).update(entry)
    table = io.StringIO()
    writer = csv.DictWriter(table, CURVES, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for _, row in sorted(rows.items()))
    write_whole(path, table.getvalue())


if __name__ == "__main__":
    stage.run("train", "the Transformer, on Ray Train workers", work, as_job=lambda config: True)
