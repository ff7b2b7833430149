"""Ray Tune asks here which trials run; `Rungs` says which of them go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from seq2sweep.cluster.tune_trial import METRIC
from seq2sweep.sweep.early_stopping import Rungs


class OrderedScheduler(FIFOScheduler):  # type: ignore[misc]
    """Trials run in their order, as many at once as the cluster holds at that moment.

    Tune starts of itself whatever is pending. So every trial begins paused, and the one that is
    chosen here waits for its process before another is chosen.

    A trial whose fate depends on others' figures makes room for them, and goes on from its
    checkpoint when they have shown theirs. The first one that has not ended never waits for
    another, so there is always one that can run.
    """

    def __init__(
        self,
        order: Sequence[int],
        rungs: Rungs | None,
        room: Callable[[], int] | None = None,
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        """order: of the trials' indices. rungs: stops trials; None: nothing does.

        room: how many trials may run at once, where Tune does not reserve what they need.
        halted: whether none is to begin any more.
        """
        super().__init__()
        self.place = {index: place for place, index in enumerate(order)}
        self.rungs = rungs
        self.room, self.halted = room, halted
        self.known: set[int] = set()
        self.reached: dict[int, int] = {}

    def on_trial_add(self, controller: Any, trial: Trial) -> None:
        """Called for a new trial, and for one that failed and is tried again."""
        index = _index(trial)
        if self.rungs is not None:
            self.rungs.begin_again(index)
        if index in self.known:
            controller._set_trial_status(trial, Trial.PAUSED)
        else:  # the controller books it by its status when this returns
            trial.set_status(Trial.PAUSED)
            self.known.add(index)

    def on_trial_result(self, controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Called for each validation that a trial reports."""
        if METRIC not in result:
            return str(TrialScheduler.CONTINUE)
        if result["step"] > self.reached.get(_index(trial), 0):
            self.reached[_index(trial)] = result["step"]
            # There is a new checkpoint: it may fail as often again.
            trial.run_metadata.num_failures = 0
        if self.rungs is None:
            return str(TrialScheduler.CONTINUE)
        self.rungs.report(_index(trial), result["step"], result[METRIC])
        verdicts = {
            True: TrialScheduler.CONTINUE,
            False: TrialScheduler.STOP,
            None: TrialScheduler.PAUSE,
        }
        return str(verdicts[self.rungs.goes_on(_index(trial))])

    def on_trial_complete(self, controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Called for trials that were stopped as well."""
        self._end(trial)

    def on_trial_error(self, controller: Any, trial: Trial) -> None:
        """Called whether the trial is tried again or not."""
        self._end(trial)

    def on_trial_remove(self, controller: Any, trial: Trial) -> None:
        """Called for a trial that ends while it does not run."""
        self._end(trial)

    def _end(self, trial: Trial) -> None:
        if self.rungs is not None:
            self.rungs.end(_index(trial))

    def choose_trial_to_run(self, controller: Any) -> Trial | None:
        """The first one in order that waits for its process, or for nothing but to be chosen."""
        if self.halted():
            return None
        trials = controller.get_trials()
        busy = sum(trial.status in (Trial.PENDING, Trial.RUNNING) for trial in trials)
        for trial in sorted(trials, key=lambda trial: self.place[_index(trial)]):
            if trial.status == Trial.PENDING:
                return trial
            if trial.status == Trial.PAUSED and self._may_go_on(trial):
                return trial if self.room is None or busy < self.room() else None
        return None

    def _may_go_on(self, trial: Trial) -> bool:
        return self.rungs is None or self.rungs.goes_on(_index(trial)) is not None


def _index(trial: Trial) -> int:
    return int(trial.config["index"])
