"""The part of a sweep that Ray Tune does: run the trials, as many at once as there is room for."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import pickle
import queue
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.execution import tune_controller
from ray.tune.experiment import Trial

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import session
from seq2sweep.cluster.failures import system_kills
from seq2sweep.cluster.train_driver import plain_cause
from seq2sweep.cluster.tune_scheduler import OrderedScheduler
from seq2sweep.cluster.tune_trial import FAILURE_NAME, METRIC, run_trial
from seq2sweep.cluster.workers_start import START_SECONDS
from seq2sweep.config import Config, SweepConfig
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import OnTrial, TrialRecord

LOOK_SECONDS = 1.0
"""How often the cluster is looked at."""


class Room:
    """For how many trials the cluster has room in all, as it is at the moment.

    Used by two threads.
    """

    def __init__(self, sweep: SweepConfig, *, shared: bool = False) -> None:
        """shared: others may work in the cluster as well."""
        self.sweep, self.shared = sweep, shared
        self.looked, self.count = -math.inf, 0

    def __call__(self) -> int:
        """Looks at the cluster once in LOOK_SECONDS."""
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self.count = self._count(session.nodes())
            self.looked = time.monotonic()
        return self.count

    def _count(self, machines: list[session.Node]) -> int:
        sweep = self.sweep
        places = session.places(machines, sweep.cpus_per_trial, sweep.gpus_per_trial)
        return places // sweep.workers_per_trial

    def require(self) -> None:
        """UserError when there is none, because Ray would wait for ever."""
        machines = session.nodes()
        if self._count(machines) == 0:
            raise UserError(
                f"{self._trial()} does not fit the cluster, {session.describe(machines)}: lower "
                "them"
            )

    def lack(self) -> str | None:
        """What trials wait for; None where there is room for one, or others hold it."""
        machines = session.nodes()
        if self._count(machines) == 0:
            return f"waiting for resources for {self._trial()}; the cluster is " + session.describe(
                machines
            )
        free = session.free_nodes()
        if self._count(free) == 0 and self.shared:
            return f"waiting for resources for {self._trial()}; free is {session.describe(free)}"
        return None

    def _trial(self) -> str:
        sweep = self.sweep
        each = (
            f"{sweep.cpus_per_trial:g} CPUs (sweep.cpus_per_trial) and "
            f"{sweep.gpus_per_trial:g} GPUs (sweep.gpus_per_trial)"
        )
        if sweep.workers_per_trial == 1:
            return f"a trial of {each}"
        return f"a trial of {sweep.workers_per_trial} workers (sweep.workers_per_trial) of {each}"


class _Waiting:
    """Called again and again while Tune works: says what it waits for, and does not wait for ever
    for trials that do not start."""

    def __init__(self, records: list[TrialRecord], interruption: Interruption, room: Room) -> None:
        self.records, self.interruption, self.room = records, interruption, room
        self.looked = self.busy = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS or not session.require_alive.answers():
            return
        before, self.looked = self.looked, now
        left = sum(not record.status for record in self.records)
        if left == 0 or self.interruption.running:
            self.busy = now
            console.doing(f"training, {left} of {len(self.records)} trials to go")
            return
        lack = self.room.lack()
        if lack:
            self.busy += now - before
        console.doing(lack or "waiting for a trial to start")
        if now - self.busy > START_SECONDS:
            raise OperationalError(
                f"no trial started within {console.duration(now - self.busy)}, though there was "
                "room for one; run `dvc repro` again to resume"
            )


class Interruption(tune.Stopper):  # type: ignore[misc]
    """Has running trials save and return, and Tune end when all of them have.

    running: whether any trial runs, which `_Events` says. Used by two threads.
    """

    def __init__(self, sweep: RunStore) -> None:
        """sweep: by which the trials are told."""
        self.sweep = sweep
        self.asked = self.running = False

    def ask(self) -> bool:
        """Tell the trials; False where none runs."""
        self.asked = True
        self.sweep.request_stop()
        return self.running

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps a pickle of its settings, never read by us; a lock does not go into one."""
        return {}

    def is_asked(self) -> bool:
        return self.asked

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.asked and not self.running


class _Events(tune.Callback):  # type: ignore[misc]
    """Puts what Tune tells into a queue, for the main thread to act on.

    These hooks are called for trials that the scheduler stops too, where nothing runs any more
    in the trial itself.
    """

    def __init__(self, interruption: Interruption) -> None:
        self.interruption = interruption
        self.killed = system_kills()
        self.events: queue.SimpleQueue[tuple[str, int, Any, float]] = queue.SimpleQueue()

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps a pickle of its settings, never read by us; a queue does not go into one."""
        return {}

    def put(self, kind: str, trial: Any, content: Any = None) -> None:
        self.events.put((kind, trial.config["index"], content, time.monotonic()))

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.interruption.running = any(trial.status == Trial.RUNNING for trial in trials)

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.put("start", trial)

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if METRIC in result:
            self.put("result", trial, {key: result[key] for key in ("step", METRIC)})

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.put("complete", trial)

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        failures = trial.run_metadata.num_failures
        self.put("again", trial, (_error(trial, self.killed), failures))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.put("error", trial, _error(trial, self.killed))


def _error(trial: Any, killed: int) -> str:
    """What Tune knows of a trial's failure, in one line; killed: `system_kills` at the start.

    Not trial.get_error(), which gives a text, and none before Tune has copied its files.
    """
    file = trial.pickled_error_file
    if file is None:
        return "its process ended without a word"
    error = pickle.loads(Path(file).read_bytes())
    return plain_cause(error, system_kills() - killed)


class _Actors(RayActorManager):  # type: ignore[misc]
    """Tune's own, for which a process that Ray's memory monitor killed is the death of a trial.

    Ray says OutOfMemoryError then, where Tune knows RayActorError and RayTaskError only, and ends
    the whole sweep with "Caught unexpected exception".
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        super()._actor_task_failed(tracked_actor_task, _known(exception))

    def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
        super()._actor_start_failed(tracked_actor, _known(exception))


def _known(error: Exception) -> Exception:
    """As one of the kinds that Tune counts as a failure of a trial."""
    known = isinstance(error, RayActorError | RayTaskError)
    return error if known else RayActorError(error_msg=str(error))


@contextlib.contextmanager
def _deaths_are_failures_of_trials() -> Iterator[None]:
    before = tune_controller.RayActorManager
    tune_controller.RayActorManager = _Actors
    try:
        yield
    finally:
        tune_controller.RayActorManager = before


def train_all(
    config: Config,
    records: list[TrialRecord],
    data: dict[str, str],
    sweep: RunStore,
    rungs: Rungs | None,
    on_trial: OnTrial,
) -> None:
    """Train what is not done, and keep `records` up to date; sweep: where it is kept."""
    scratch = sweep.folder / "tune"  # for Tune's own files
    left = [index for index, record in enumerate(records) if not record.earlier]
    if rungs is None:
        # The longest first, or it would train alone in the end.
        left.sort(key=lambda index: -records[index].variant.config.train.steps)
    sweep.begin_attempt(uuid.uuid4().hex)
    interruption = Interruption(sweep)
    trials = [_trial(config.sweep, record, data, rungs, sweep) for record in records]
    shared = session.address_of(config.cluster) is not None
    room, callback = Room(config.sweep, shared=shared), _Events(interruption)
    scheduler = OrderedScheduler(
        left,
        rungs,
        room if config.sweep.workers_per_trial > 1 else None,
        interruption.is_asked,
    )
    tuner = _tuner(config.sweep, trials, left, scheduler, scratch, callback)
    waiting = _Waiting(records, interruption, room)

    def follow() -> None:
        waiting()
        while not callback.events.empty():
            kind, index, content, at = callback.events.get()
            unsettled = kind == "complete" and interruption.asked
            # Whether it was stopped early the next sweep decides again, when it knows all figures.
            if not unsettled or records[index].ended_as() == "finished":
                _follow(records, kind, index, content, at, on_trial)

    shutil.rmtree(scratch, ignore_errors=True)
    # It complains of failed trials, which are results here.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        with _deaths_are_failures_of_trials():
            session.while_waiting(tuner.fit, follow, interruption.ask)
    finally:
        sweep.end_attempt()
    for record in records:
        if not record.status:
            record.end("failed", "Tune ended without it", on_trial, time.monotonic())
    shutil.rmtree(scratch, ignore_errors=True)


def _tuner(
    settings: SweepConfig,
    trials: list[dict[str, Any]],
    left: list[int],
    scheduler: OrderedScheduler,
    scratch: Path,
    callback: _Events,
) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(run_trial, trials=trials), _reserved(settings)),
        param_space={"index": tune.grid_search(left)},
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            # A process that trained one variant has torch loaded for the next.
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name=scratch.name,
            storage_path=str(scratch.parent),
            failure_config=tune.FailureConfig(max_failures=settings.max_failures),
            callbacks=[callback],
            stop=callback.interruption,
            verbose=0,
        ),
    )


def _trial(
    settings: SweepConfig,
    record: TrialRecord,
    data: dict[str, str],
    rungs: Rungs | None,
    sweep: RunStore,
) -> dict[str, Any]:
    """What `run_trial` is to know."""
    return {
        "config": configuration.to_dict(record.variant.config),
        "data": data,
        "location": record.store.location,
        "sweep": sweep.location,
        "attempt": sweep.attempt,
        "workers": settings.workers_per_trial,
        "cpus": settings.cpus_per_trial,
        "gpus": settings.gpus_per_trial,
        "rungs": rungs.steps if rungs else [],
    }


def _reserved(sweep: SweepConfig) -> dict[str, float]:
    """What Tune keeps for a trial's process.

    With several workers that is next to nothing, as the process only waits for them, and Ray Train
    asks for theirs.
    """
    if sweep.workers_per_trial > 1:
        return {"cpu": 0, "memory": 1}
    return {"cpu": sweep.cpus_per_trial, "gpu": sweep.gpus_per_trial}


def _follow(
    records: list[TrialRecord], kind: str, index: int, content: Any, at: float, on_trial: OnTrial
) -> None:
    record = records[index]
    if kind == "start":
        record.start(on_trial, at)
    elif kind == "result":
        record.report(content, on_trial)
    elif kind == "again":
        cause, failures = content
        most = record.variant.config.sweep.max_failures
        console.say(
            f"{record.variant.name}: {_cause(record, cause)}; tried again "
            f"({failures} of {most}: sweep.max_failures)"
        )
    elif kind == "complete":
        record.end(record.ended_as(), None, on_trial, at)
    else:
        record.end("failed", _cause(record, content), on_trial, at)


def _cause(record: TrialRecord, otherwise: str) -> str:
    """What the trial wrote of its exception; Tune's word when its process died without one."""
    with contextlib.suppress(OSError, UserError):
        record.store.refresh()
    try:
        return str(json.loads((record.folder / FAILURE_NAME).read_text(encoding="utf-8"))["cause"])
    except (FileNotFoundError, ValueError):
        return otherwise
