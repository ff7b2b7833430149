"""Stage teacher: train the same parser with another seed, so that two can agree (self-training).

Writes models/teacher and metrics/teacher.json; without `self_training.sentences` no parser.
"""

from __future__ import annotations

from seq2sweep import config as configuration
from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.data.treebank import unlabelled
from seq2sweep.jobs import entrypoint
from seq2sweep.stages import stage


def work(config: Config) -> None:
    if not trains(config):
        stage.write_metrics("teacher", {}, {})
        stage.leave_unused(project_files.TEACHER)
        return
    from seq2sweep.stages.training import train_on  # here: it loads Ray, which takes seconds

    seeds = {"train.seed": config.self_training.seed, "self_training.seed": config.train.seed}
    other = configuration.with_changes(config, seeds)
    train_on(project_files.ENCODED, other, "teacher", project_files.TEACHER, "second parser")


def trains(config: Config) -> bool:
    """Whether there is a parser to train.

    Raises UserError where the texts that it is to parse are missing, or are none: before it is
    trained. A job has none that it does not read.
    """
    if stage.self_trains(config) and not entrypoint.is_inside():
        unlabelled.check(config)
    return stage.self_trains(config)


if __name__ == "__main__":
    stage.run("teacher", "a second parser, with another seed", work, as_job=trains)
