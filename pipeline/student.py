"""Stage student: train a parser on the treebank and on what two parsers agreed on, and score it.

Writes models/student and metrics/student.json as the stage train does; metrics/semi_supervised.json
and reports/semi_supervised.tsv as evaluate does, with the gain over the parser of the stage train.
Nothing of a parser without `self_training.sentences`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seq2sweep import console, project_files
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translations_table import read_table, translations_table
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import write_whole

if TYPE_CHECKING:
    from seq2sweep.evaluate.evaluation import Evaluation

NAME = "semi_supervised"


def work(config: Config) -> None:
    table = project_files.REPORTS / f"{NAME}.tsv"
    if not stage.self_trains(config):
        stage.write_metrics("student", {}, {})
        stage.write_metrics(NAME, {}, {})
        write_whole(table, translations_table([], [], [], None))
        stage.leave_unused(project_files.STUDENT)
        return
    from seq2sweep.stages.scoring import score_model  # here: torch and Ray take seconds to load
    from seq2sweep.stages.training import train_on

    train_on(
        project_files.SILVER_ENCODED, config, "student", project_files.STUDENT, "semi-supervised"
    )
    console.doing("scoring")
    score_model(config, project_files.STUDENT, NAME, table, gain, "-semi-supervised")


def gain(result: Evaluation) -> dict[str, object]:
    """What F1 has gained over the first parser, by paired bootstrap on the test set."""
    from seq2sweep.evaluate.scorers import TreeScorer
    from seq2sweep.evaluate.significance import against_base

    path = project_files.TRANSLATIONS
    rows = read_table(path)
    if len(rows) != len(result.translations):
        raise UserError(f"{path} is damaged: remove it and run `dvc repro evaluate`")
    _, gold, first, _ = zip(*rows, strict=True)
    found = against_base([first], [result.translations], TreeScorer(gold))
    return {"gain": found}


if __name__ == "__main__":
    stage.run("student", "a third parser, on all of that", work, as_job=stage.self_trains)
