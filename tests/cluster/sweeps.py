"""The sweep stage in a process of its own, with a count of what its trials train, and what it is
compared with: its variants trained without Ray."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient

from seq2sweep.cluster.tune_trial import validations
from seq2sweep.config import Config
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import RESULT_NAME
from seq2sweep.sweep.variants import variants
from tests.cluster.chaos import StageProcess
from tests.conftest import Corpus
from tests.train.test_interruption import go_on

COUNTING = Path(__file__).parent / "counting"


@dataclass(frozen=True)
class Update:
    """By which trial (its learning rate scale), and of which step."""

    scale: float
    step: int


class SweepStage(StageProcess):
    """The sweep stage, with a count of all updates that its trials have ever begun."""

    def __init__(self, project: Path, config: Config, corpus: Corpus, temporary: Path) -> None:
        super().__init__("sweep", project, config, temporary)
        for folder in (corpus.clean, corpus.vocabulary, corpus.encoded):
            shutil.copytree(folder, project / "data" / folder.name)
        self.counts = project / "updates.txt"
        self.environment["COUNT_UPDATES"] = str(self.counts)
        self.environment["PYTHONPATH"] += f"{os.pathsep}{COUNTING}"

    def updates(self) -> list[Update]:
        """All that were ever begun, in order."""
        found = []
        for line in self.counts.read_text().splitlines() if self.counts.exists() else []:
            scale, step = line.split()
            found.append(Update(float(scale), int(step)))
        return found

    def steps(self) -> set[tuple[float, int]]:
        """What was trained, by trial, whether once or several times."""
        return {(update.scale, update.step) for update in self.updates()}

    def trials(self) -> dict[str, Path]:
        return {path.name: path for path in self.project.glob("runs/sweep-*/trials/*")}

    def statuses(self) -> dict[str, str]:
        """How each trial ended that has ended."""
        ended = {
            name: json.loads((folder / RESULT_NAME).read_text())["status"]
            for name, folder in self.trials().items()
            if (folder / RESULT_NAME).exists()
        }
        return dict(sorted(ended.items()))

    def run_statuses(self) -> dict[str, Counter[str]]:
        """Of the runs in MLflow, by kind."""
        client = MlflowClient(f"sqlite:///{self.project / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("seq2sweep")
        found: dict[str, Counter[str]] = {kind: Counter() for kind in ("sweep", "variant", "trial")}
        for run in client.search_runs([experiment.experiment_id], max_results=1000):
            found[run.data.tags["kind"]][run.info.status] += 1
        return found


def scale_of(slug: str, config: Config) -> float:
    """The learning rate scale of a trial, by its folder's name."""
    name = slug.rpartition("-")[0]
    value = name.removeprefix("learning_rate_scale=")
    return config.train.learning_rate_scale if name == "base" else float(value)


def alone(config: Config, corpus: Corpus, folder: Path) -> dict[str, Path]:
    """Each variant trained to its end by one worker without Ray; by the name of its folder."""
    folder.mkdir()
    found = {}
    for variant in variants(config)[0]:
        often = variant.config.train.validate_every
        train = dataclasses.replace(variant.config.train, checkpoint_every=often)
        found[variant.slug] = folder / variant.slug
        go_on(
            dataclasses.replace(variant.config, train=train),
            corpus.encoded,
            folder / found[variant.slug],
        )
    return found


def last_steps(config: Config, trials: dict[str, Path]) -> dict[str, int]:
    """Where ASHA stops each, one after the other; their last step where it does not."""
    sweep, last = config.sweep, config.train.steps
    rungs = Rungs(
        "asha",
        len(trials),
        grace_steps=sweep.grace_steps,
        reduction_factor=sweep.reduction_factor,
        longest=last,
        warmup_steps=[variant.config.train.warmup_steps for variant in variants(config)[0]],
    )
    found = {}
    for index, (name, folder) in enumerate(trials.items()):
        found[name] = last
        for step, perplexity in validations(folder):
            rungs.report(index, step, perplexity)
            if rungs.goes_on(index) is False:
                found[name] = step
                break
        rungs.end(index)
    return found
