"""Average the newest or best checkpoints, decode the test set with beam search and score it.

Writes metrics/evaluate.json and reports/translations.tsv; records a child run and the model with
its scores in MLflow.
"""

from __future__ import annotations

from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.stages import stage
from seq2sweep.stages.scoring import score_model


def work(config: Config) -> None:
    score_model(config, project_files.MODEL, "evaluate", project_files.TRANSLATIONS)


if __name__ == "__main__":
    stage.run("evaluate", "average, translate, score", work)
