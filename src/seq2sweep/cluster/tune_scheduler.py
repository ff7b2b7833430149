"""What Ray Tune asks and tells while it works: which trials run, and what became of them."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from seq2sweep import console
from seq2sweep.cluster import ray_internals
from seq2sweep.cluster.failures import (
    DeviceFailures,
    broken_gpu,
    is_death,
    is_of_device,
    raised,
    system_kills,
)
from seq2sweep.cluster.local_cluster import MORE_ROOM
from seq2sweep.cluster.tasks import on_all_nodes
from seq2sweep.cluster.train_driver import hang_in_words, no_room, plain_cause
from seq2sweep.cluster.tune_trial import METRIC, NO_PLACE, validations
from seq2sweep.config import SweepConfig
from seq2sweep.errors import NodeError, UserError
from seq2sweep.runs.layout import FAILURE_NAME
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import TrialRecord, nodes_of


def schedule_of(sweep: SweepConfig) -> str:
    """What decides whether a trial is stopped, as text."""
    if sweep.scheduler == "none":
        return "none"
    rungs = f"from {sweep.grace_steps} by {sweep.reduction_factor}"
    return f"{sweep.scheduler} {rungs}, in order, after warm-up, base to its end"


def rungs_of(sweep: SweepConfig, records: list[TrialRecord]) -> Rungs | None:
    """What stops trials, told of all that earlier sweeps have seen of them; None: nothing does.

    A trial that an earlier sweep stopped resumes if it would not be stopped in this one.
    """
    ended = {i: record.earlier["status"] for i, record in enumerate(records) if record.earlier}
    stopped = [index for index, status in ended.items() if status == "stopped early"]
    if sweep.scheduler == "none":
        for index in stopped:
            records[index].earlier = None
        return None
    rungs = Rungs(
        sweep.scheduler,
        len(records),
        grace_steps=sweep.grace_steps,
        reduction_factor=sweep.reduction_factor,
        longest=max(record.variant.config.train.steps for record in records),
        warmup_steps=[record.variant.config.warmup_steps for record in records],
        base=sum(not record.variant.changes for record in records),
    )
    for index, record in enumerate(records):
        # What a failed one had seen last, it may not have told.
        counts = ended.get(index) in ("stopped early", "failed")
        told = record.told_before() if counts else None
        for step, perplexity in validations(record.folder):
            if told is None or step <= told:
                rungs.report(index, step, perplexity)
        if record.earlier:  # what failed and is tried again may yet be a peer
            rungs.end(index)
    for index in stopped:
        if rungs.goes_on(index) is not False:
            records[index].earlier = None
            rungs.retry(index)  # those after it may depend on what it has yet to show
    for index, record in enumerate(records):
        if record.earlier is None:
            rungs.begin_again(index)
    return rungs


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
        if index in self.known:
            if self.rungs is not None:
                self.rungs.retry(index)
            ray_internals.pause_failed_trial(controller, trial)
        else:  # the controller books it by its status when this returns
            trial.set_status(Trial.PAUSED)
            self.known.add(index)

    def on_trial_result(self, controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Called for each validation that a trial reports, and when there is no room for it."""
        if METRIC not in result:
            return str(TrialScheduler.PAUSE if NO_PLACE in result else TrialScheduler.CONTINUE)
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

    def on_trial_remove(self, controller: Any, trial: Trial) -> None:
        """Called for a trial that ends while it does not run."""
        if self.rungs is not None:
            self.rungs.end(_index(trial))

    def on_trial_complete(self, controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Called for trials that were stopped as well."""
        self.on_trial_remove(controller, trial)

    def on_trial_error(self, controller: Any, trial: Trial) -> None:
        """Called whether the trial is tried again or not."""
        self.on_trial_remove(controller, trial)

    def choose_trial_to_run(self, controller: Any) -> Trial | None:
        """The first one in order that waits for its process, or for nothing but to be chosen."""
        if self.halted():
            return None
        trials = controller.get_trials()
        busy = sum(trial.status in (Trial.PENDING, Trial.RUNNING) for trial in trials)
        for trial in sorted(trials, key=lambda trial: self.place[_index(trial)]):
            if trial.status == Trial.PENDING:
                return trial
            if trial.status != Trial.PAUSED:
                continue
            if self.rungs is None or self.rungs.goes_on(_index(trial)) is not None:
                return trial if self.room is None or busy < self.room() else None
        return None


def _index(trial: Trial) -> int:
    return int(trial.config["index"])


TMP_FULL = f"no space left in the folder for temporary files: {MORE_ROOM}"


class Failure(NamedTuple):
    """Of a trial: the cause in a line, and whether it was a full disk, or as bad (`no_room`).

    of_node: it was the machine's, which may not let the trial say anything of it. of_device: it may
    be the GPU's (`DeviceFailures`).
    """

    cause: str
    disk_full: bool = False
    of_node: bool = False
    of_device: bool = False


class TuneHooks(tune.Callback, tune.Stopper):  # type: ignore[misc]
    """Takes what Tune tells of trials to the main thread, and an interruption to Tune.

    The hooks are called for trials that the scheduler stops too, where nothing runs any more in the
    trial itself. asked: whether trials are to save and return, and Tune to end when all have;
    running: whether any trial runs. Both threads read and write them. in_vain: None, or
    why each further trial would train in vain (a full disk, `no_room`; a broken GPU), for which
    they are asked until they have heard. errors: the last one of each trial, by Tune's id.
    """

    def __init__(self, records: list[TrialRecord], sweep: RunStore) -> None:
        """sweep: by which trials are told of an interruption."""
        self.records, self.sweep = records, sweep
        self.asked = self.running = False
        self.in_vain: str | None = None
        self.devices = DeviceFailures()
        self.trained: dict[str, int] = {}  # the last validation of each trial that began
        self.errors: dict[str, Exception] = {}
        self.killed = system_kills()
        self.hangs: set[str] = set()  # the traces of those that were told
        self.told: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps a pickle of its settings, never read by us; a queue does not go into one."""
        return {}

    # --- called by the main thread ---------------------------------------------------------------

    def interrupt(self) -> bool:
        """Have trials save and return, and Tune end; False where they cannot have heard of it."""
        self.asked = True
        return self.sweep.request_stop()

    def catch_up(self) -> None:
        """Act on all that Tune has told."""
        while not self.told.empty():
            self.told.get()()
        if self.in_vain is not None:
            self.interrupt()  # a full disk may not take the request at once

    def _complete(self, record: TrialRecord, at: float) -> None:
        ended = record.ended_as()
        # Whether it was stopped early the next sweep decides again, when it knows all metrics.
        if ended == "finished" or not self.asked:
            record.end(ended, None, at)

    def _start(self, record: TrialRecord, at: float) -> None:
        name = record.variant.name
        if name not in self.trained:  # a trial that resumes tells again what it told before
            self.trained[name] = max((step for step, _ in validations(record.folder)), default=0)
        self.devices.begin(name, at)
        record.start(at)

    def _report(self, record: TrialRecord, metrics: dict[str, Any], host: str) -> None:
        if metrics["step"] > self.trained[record.variant.name]:
            self.trained[record.variant.name] = metrics["step"]
            self.devices.get_further(record.variant.name, host)
        record.report(metrics)

    def _fail(self, record: TrialRecord, otherwise: Failure, at: float) -> None:
        failure = _failure(record, otherwise)
        if not self._ends_sweep(record, failure, at):
            record.end("failed", failure.cause, at)

    def _say_retry(self, record: TrialRecord, otherwise: Failure, failures: int, at: float) -> None:
        failure, most = _failure(record, otherwise), record.variant.config.sweep.max_failures
        if not self._ends_sweep(record, failure, at):
            console.say(
                f"{record.variant.name}: {failure.cause} "
                f"(retry {failures} of {most}: sweep.max_failures)"
            )

    def _ends_sweep(self, record: TrialRecord, failure: Failure, at: float) -> bool:
        """Whether a disk was full, or a GPU is broken, or as bad: each further trial, or try, would
        train in vain to its next checkpoint. So all are to save and return, and this one has not
        ended: it resumes. Nor do those that the GPU has failed before in this call of
        `run_sweep`: only `TrialRecord.settle` keeps a failure, and it is not called then.
        """
        told = f"{record.variant.name}: {failure.cause}"
        if failure.disk_full:
            self._end_for(told)
            return True
        if not failure.of_device:
            return False
        # The name of its node, as `tune_trial` left it there when this try of one worker began.
        alone = record.variant.config.sweep.workers_per_trial == 1
        host = "".join(nodes_of(record.folder)[-1:] * alone).rpartition("-")[0]
        broken = self.devices.fail(record.variant.name, host, at)
        if broken:
            self._end_for(f"{told}; {broken_gpu(host)}")
        return broken

    def _end_for(self, in_vain: str) -> None:
        self.in_vain = self.in_vain or in_vain

    # --- called by Tune's thread -----------------------------------------------------------------

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.asked and not self.running

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.running = any(trial.status == Trial.RUNNING for trial in trials)

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._tell(self._start, self._record(trial), time.monotonic())

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if METRIC in result:
            metrics = {key: result[key] for key in ("step", METRIC)}
            self._tell(self._report, self._record(trial), metrics, result.get(HOSTNAME, ""))

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._tell(self._complete, self._record(trial), time.monotonic())

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        failures, at = trial.run_metadata.num_failures, time.monotonic()
        self._tell(self._say_retry, self._record(trial), self._error(trial), failures, at)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._tell(self._fail, self._record(trial), self._error(trial), time.monotonic())

    def no_room_for_tune(self) -> None:
        """A file of Tune's own found no room."""
        self._tell(self._end_for, TMP_FULL)

    def _tell(self, act: Callable[..., None], *about: Any) -> None:
        self.told.put(functools.partial(act, *about))

    def _record(self, trial: Any) -> TrialRecord:
        return self.records[_index(trial)]

    def _error(self, trial: Any) -> Failure:
        """What Tune knows of a trial's failure.

        Not trial.get_error(), which gives a text, and none before Tune has copied its files.
        """
        error = self.errors.get(trial.trial_id)
        if error is None:
            return Failure("its process ended without an error")
        full = no_room(error, self._record(trial).store)
        if full is not None:
            return Failure(full, disk_full=True, of_node=isinstance(raised(error), NodeError))
        if is_death(raised(error)) and (hung := self._hung(self._record(trial))):
            return Failure(hang_in_words(hung))
        cause = plain_cause(error, system_kills() - self.killed)
        return Failure(cause, of_device=is_of_device(raised(error)))

    def _hung(self, record: TrialRecord) -> list[Path]:
        """The logs of a trial's process that hung and ended itself, each once.

        Now, as the next process renames them. With a bucket that may be on another node, and they
        stay on this one.
        """
        with contextlib.suppress(OSError):
            logs = {log.read_text("utf-8"): log for log in record.store.stack_traces(on_all_nodes)}
            news = [log for text, log in logs.items() if text not in self.hangs]
            self.hangs |= logs.keys()
            return news
        return []


def _failure(record: TrialRecord, otherwise: Failure) -> Failure:
    """What the trial wrote of its exception; Tune's word when its process died without one, or may
    have left that of an earlier try."""
    if otherwise.of_node:
        return otherwise
    with contextlib.suppress(OSError, UserError):
        record.store.refresh()
    try:
        written = json.loads((record.folder / FAILURE_NAME).read_text(encoding="utf-8"))
        full = bool(written.get("disk_full"))
        return otherwise._replace(cause=str(written["cause"]), disk_full=full)
    except (FileNotFoundError, ValueError):
        return otherwise
