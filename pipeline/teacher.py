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
    if not stage.self_trains(config):
        stage.write_metrics("teacher", {}, {})
        stage.leave_unused(project_files.TEACHER)
        return
    if not entrypoint.is_inside():  # a job has no texts that it does not read
        unlabelled.check(config)  # not when this has been trained
    from seq2sweep.stages.training import train_on  # here: it loads Ray, which takes seconds

    seeds = {"train.seed": config.self_training.seed, "self_training.seed": config.train.seed}
    other = configuration.with_changes(config, seeds)
    train_on(project_files.ENCODED, other, "teacher", project_files.TEACHER, "second parser")


if __name__ == "__main__":
    stage.run("teacher", "a second parser, with another seed", work, as_job=stage.self_trains)
