"""Ray Tune asks `Rungs` which trials go on."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from seq2sweep.cluster.rungs import Rungs
from seq2sweep.cluster.trial import METRIC


class OrderedScheduler(FIFOScheduler):  # type: ignore[misc]
    """Trials run in their order; one whose fate depends on others' figures makes room for them.

    It goes on from its checkpoint when they have shown theirs. The first trial that has not ended
    never waits, so there is always one that runs.
    """

    def __init__(self, rungs: Rungs) -> None:
        super().__init__()
        self.rungs = rungs

    def on_trial_result(self, controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Called for each validation that a trial reports."""
        if METRIC not in result:
            return str(TrialScheduler.CONTINUE)
        index = trial.config["index"]
        self.rungs.report(index, result["step"], result[METRIC])
        verdicts = {
            True: TrialScheduler.CONTINUE,
            False: TrialScheduler.STOP,
            None: TrialScheduler.PAUSE,
        }
        return str(verdicts[self.rungs.goes_on(index)])

    def on_trial_complete(self, controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Called for trials that were stopped as well."""
        self.rungs.end(trial.config["index"])

    def on_trial_error(self, controller: Any, trial: Trial) -> None:
        """Called for a trial that is not tried again."""
        self.rungs.end(trial.config["index"])

    def on_trial_remove(self, controller: Any, trial: Trial) -> None:
        """Called for a trial that ends while it does not run."""
        self.rungs.end(trial.config["index"])

    def choose_trial_to_run(self, controller: Any) -> Trial | None:
        """The next one in order that has not begun, or whose waiting is over."""
        for trial in controller.get_trials():
            if trial.status == Trial.PENDING:
                return trial
            if (
                trial.status == Trial.PAUSED
                and self.rungs.goes_on(trial.config["index"]) is not None
            ):
                return trial
        return None
