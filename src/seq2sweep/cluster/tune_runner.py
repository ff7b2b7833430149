"""Sweeps: Ray Tune runs the trials, as many at once as there is room for; then they are scored.

Each variant has a folder `<cluster.storage>/<name>/trials/<slug>/` with its journal, its
checkpoints and, once it has ended, result.json. A sweep that is run again under the same name
reads those, so it owes nothing to the state of the Tune run before.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import ray_internals, session
from seq2sweep.cluster.failures import AGAIN, LOWER_SEARCH, describe
from seq2sweep.cluster.train_driver import no_room
from seq2sweep.cluster.tune_scheduler import OrderedScheduler, TuneHooks, rungs_of, schedule_of
from seq2sweep.cluster.tune_trial import run_trial
from seq2sweep.cluster.worker_group import StartWatch, WorkersNotStartedError
from seq2sweep.config import Config, SweepConfig
from seq2sweep.decode.beam import NO_NUMBERS
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.parallel import sharers_of_gpu
from seq2sweep.runs.layout import FAILURE_NAME, run_folder
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import driver_store
from seq2sweep.storage.retry import briefly
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import INTERRUPTED, OnTrial, TrialRecord, TrialResult
from seq2sweep.sweep.trial_score import Score, score_one
from seq2sweep.sweep.variants import Variant, folder_names

SCORING_LOG_NAME = "scoring.failure.log"


def run_sweep(
    config: Config,
    variants: Sequence[Variant],
    *,
    encoded: Path,
    data: str | None = None,
    project: Path,
    name: str,
    score: Score,
    scorer: str = "",
    final: bool = False,
    made_by: Mapping[str, str] | None = None,
    on_trial: OnTrial,
    on_end: Callable[[list[TrialResult]], None] = lambda results: None,
) -> list[TrialResult]:
    """Train all variants inside a `ray_session`, then score their checkpoints.

    config: whose `sweep` made the variants, all of different fingerprints.
    data: as of `RunStore.publish`.
    name: of the sweep in cluster.storage; trials that ended under it are not trained again.
    score: `score(config, checkpoint, encoded)` of an importable module; it runs in Ray's
    processes, several at once, on nodes that may see no other file of the project, and gives
    figures of a checkpoint on the validation set; its `translations`, one a line, are kept in the
    trial's folder.
    scorer: names the code behind `score`; scores that other code gave are not used again.
    final: a trial that failed, or whose scoring did, is not tried again by the next call that says
    so too, unless it is given other room: what follows from it must stay as it is.
    made_by: what trains them here, `lineage.made_by`, which is kept with them.
    on_trial: called in this thread with an event, its variant and figures. Each variant has one
    "started" and one "finished", "stopped early" or "failed", whatever happens, with "result" for
    every validation between them; then "scored" if it has a checkpoint and is to be scored.
    on_end: called at most once, with the trials that have ended: all of them, unless this is
    interrupted or fails.

    Results come in the order of the variants. A failed trial is a result, not an error.
    Raises UserError when a trial does not fit the cluster.
    """
    require_room(config)
    store = driver_store(config.cluster.storage, run_folder(config.cluster, project, name))
    schedule = schedule_of(config.sweep)
    with store.driving():
        trials = store.child("trials")
        names = folder_names(variants, store.retried(trials.children))
        asked = list(zip(variants, map(trials.child, names), strict=True))
        records = TrialRecord.open_all(asked, schedule, scorer, final, made_by, on_trial)
        rungs = rungs_of(config.sweep, records)
        published = store.publish(encoded.resolve(), data)
        # Once for all trials: it may have files in it.
        sweep = _Sweep(config, store, records, rungs, published, ray.put(score))
        try:
            sweep.train_all()
            sweep.score_all()
        except BaseException:
            ended = [one for one in records if one.status and one.cause != INTERRUPTED]
            found, each = list[TrialResult](), (record.result() for record in ended)
            briefly(found.extend, each, seconds=store.last_answer_seconds)
            with contextlib.suppress(OSError, OperationalError, UserError):  # why it ends is known
                on_end([*found])
            raise
        store.check_lease()  # what is final is for whoever drives the sweep now
        for record in records:
            record.settle()
    on_end(results := [record.result() for record in records])
    return results


def require_room(config: Config) -> None:
    """Raise UserError where a trial fits the cluster nowhere, so that Ray would wait for ever."""
    sweep, machines = config.sweep, session.nodes()
    if _trials_at_once(sweep, machines) == 0:
        raise UserError(
            f"{_describe_trial(sweep)} does not fit the cluster, {session.describe(machines)}: "
            "lower them"
        )


def idle_gpus(sweep: SweepConfig) -> str | None:
    """A line where the cluster has more GPUs than trials can take."""
    machines, gpus = session.nodes(), sweep.gpus_per_trial
    used = _trials_at_once(sweep, machines) * sweep.workers_per_trial * gpus
    if 0 < gpus < 1:
        on_each = (session.places([node], sweep.cpus_per_trial, gpus) for node in machines)
        used = sum(-(-count // _sharers(sweep, machines)) for count in on_each)
    return session.idle_gpus(used, "sweep.gpus_per_trial and sweep.cpus_per_trial")


def _trials_at_once(sweep: SweepConfig, machines: list[session.Node]) -> int:
    places = session.places(machines, sweep.cpus_per_trial, sweep.gpus_per_trial)
    return places // sweep.workers_per_trial


def _sharers(sweep: SweepConfig, machines: list[session.Node]) -> int:
    """Workers that have the memory of a node's CPUs together, or that of a GPU."""
    if sweep.gpus_per_trial:
        return sharers_of_gpu(sweep.gpus_per_trial)
    return max(session.places([each], sweep.cpus_per_trial, 0) for each in machines)


def _describe_trial(sweep: SweepConfig) -> str:
    each = (
        f"{sweep.cpus_per_trial:g} CPUs (sweep.cpus_per_trial) and "
        f"{sweep.gpus_per_trial:g} GPUs (sweep.gpus_per_trial)"
    )
    several = f"{sweep.workers_per_trial} workers (sweep.workers_per_trial) of "
    return f"a trial of {several * (sweep.workers_per_trial > 1)}{each}"


@dataclass
class _Sweep:
    """One call of `run_sweep`.

    store: of the sweep; data: as `RunStore.publish` gives it; score: a reference to it.
    """

    config: Config
    store: RunStore
    records: list[TrialRecord]
    rungs: Rungs | None
    data: dict[str, str]
    score: ray.ObjectRef[Score]
    asked: set[str] = field(default_factory=set)
    """Slugs of the trials that have been looked at for their scores."""
    scoring: dict[Any, TrialRecord] = field(default_factory=dict)
    """The trials whose scores are still to come, by the reference to them."""

    def train_all(self) -> None:
        """Train what no earlier sweep has; when this returns or raises, each record has an end."""
        try:
            for record in self.records:
                if earlier := record.earlier:
                    cause = earlier["cause"] if earlier["status"] == "failed" else None
                    record.end(earlier["status"], cause, time.monotonic())
                else:  # else a trial whose process dies at once would have failed as it did before
                    record.store.retried(functools.partial(record.store.delete, FAILURE_NAME))
            if not all(record.status for record in self.records):
                self._run_tune()
            for record in self.records:
                record.end("failed", "Tune ended before this trial", time.monotonic())
        finally:
            for record in self.records:
                if record.started:
                    record.end("failed", INTERRUPTED, time.monotonic())

    def _run_tune(self) -> None:
        """Train what is not done, and keep `records` up to date."""
        sweep = self.config.sweep
        scratch = self.store.folder / "tune"  # for Tune's own files
        hooks = TuneHooks(self.records, self.store)

        def at_work() -> bool:
            left = sum(not record.status for record in self.records)
            if left and not hooks.running and not self._scores_are_made():
                return False
            console.doing(f"training, {left} of {len(self.records)} trials to go")
            return True

        def lack() -> str | None:
            return session.lack_of_room(
                _describe_trial(sweep),
                sweep.workers_per_trial,
                sweep.cpus_per_trial,
                sweep.gpus_per_trial,
                self.config.cluster,
            )

        watch = StartWatch("a trial", at_work, lack)

        def follow() -> None:
            watch()
            hooks.catch_up()
            self.store.check_lease()
            # Those that are left all train: what others leave free is for scores. Trials of several
            # workers, which leave in between, would not get it back.
            if sweep.workers_per_trial == 1 and all(record.started for record in self.records):
                for record in self.records:
                    self._begin_to_score(record)

        self.store.begin_attempt(uuid.uuid4().hex)
        for record in self.records:
            record.store.begin_attempt(self.store.attempt)
        tuner = self._tuner(hooks, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        # It complains of failed trials, which are results here.
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        try:
            with ray_internals.trials_fail_alone(hooks.errors, hooks.no_room_for_tune):
                session.while_waiting(
                    tuner.fit,
                    follow,
                    hooks.interrupt,
                    lambda: hooks.running,
                    last_words=self.store.save_seconds,
                )
        except WorkersNotStartedError as error:
            raise OperationalError(f"{error}; {AGAIN}") from None
        except (OSError, RuntimeError, ValueError):  # Tune wants its own files in the end
            if hooks.in_vain is None:
                raise
        finally:
            self.store.end_attempt()
        if hooks.in_vain is not None:
            raise OperationalError(f"{hooks.in_vain}; {AGAIN}")
        shutil.rmtree(scratch, ignore_errors=True)

    def _tuner(self, hooks: TuneHooks, scratch: Path) -> tune.Tuner:
        sweep = self.config.sweep
        left = [index for index, record in enumerate(self.records) if not record.earlier]
        if self.rungs is None:
            # The longest first, or it would train alone in the end.
            left.sort(key=lambda index: -self.records[index].variant.config.train.steps)
        common = {
            "data": self.data,
            "sweep": self.store.location,
            "attempt": self.store.attempt,
            "workers": sweep.workers_per_trial,
            "cpus": sweep.cpus_per_trial,
            "gpus": sweep.gpus_per_trial,
            "sharers": _sharers(sweep, session.nodes()),
            "rungs": self.rungs.steps if self.rungs else [],
        }
        # Workers have no RAY_ADDRESS, and must know as well whether others may use the cluster.
        address = self.config.cluster.running_address
        trials = [
            {
                "config": configuration.to_dict(
                    replace(
                        record.variant.alone,
                        cluster=replace(record.variant.config.cluster, address=address),
                    )
                ),
                "location": record.store.location,
                **common,
            }
            for record in self.records
        ]
        several = sweep.workers_per_trial > 1
        reserved = {"cpu": sweep.cpus_per_trial, "gpu": sweep.gpus_per_trial}
        if several:  # the trial's process only waits for them: Ray Train asks for what they need
            reserved = {"cpu": 0, "memory": 1}
        scheduler = OrderedScheduler(
            left,
            self.rungs,
            (lambda: _trials_at_once(sweep, session.nodes())) if several else None,
            lambda: hooks.asked,
        )
        return tune.Tuner(
            tune.with_resources(tune.with_parameters(run_trial, trials=trials), reserved),
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
                failure_config=tune.FailureConfig(max_failures=sweep.max_failures),
                callbacks=[hooks],
                stop=hooks,
                verbose=0,
            ),
        )

    def _scores_are_made(self) -> bool:
        """Whether scores have the room that a trial, which begins again, waits for."""
        asked = list(self.scoring)
        return bool(asked and ray.wait(asked, num_returns=len(asked), timeout=0)[1])

    def score_all(self) -> None:
        """Have the scores of each newest checkpoint."""
        for record in self.records:
            self._begin_to_score(record)
        with tqdm(total=len(self.scoring), **console.bar("score", "trials")) as bar:
            while self.scoring:
                if session.require_alive.answers():
                    console.doing(self._score_all_waits_for())
                for scored in ray.wait(list(self.scoring), timeout=1.0)[0]:
                    self._take_scores(self.scoring.pop(scored), scored)
                    bar.update()

    def _score_all_waits_for(self) -> str:
        ray_internals.remove_orphans()  # of trials that were killed: nobody else looks any more
        cpus, gpus = self.config.sweep.cpus_per_trial, self.config.sweep.gpus_per_trial
        what = f"a score of {cpus:g} CPUs and {gpus:g} GPUs"
        # Not what is free: that is full of the other scores.
        lack = session.lack_in_all(what, 1, cpus, gpus)
        return lack or f"scoring, {len(self.scoring)} trials to go"

    def _begin_to_score(self, record: TrialRecord) -> None:
        """Score a trial that has ended in a Ray task; what was scored so before is read."""
        if not record.status or record.variant.slug in self.asked:
            return
        self.asked.add(record.variant.slug)
        if record.status == "failed" or not record.variant.scored or record.reuse_cause():
            return
        checkpoint = record.checkpoint()
        if checkpoint is None:
            record.cause = "ended before its first checkpoint: lower train.validate_every"
            console.say(f"{record.variant.name}: not scored ({record.cause})")
        elif record.reuse_scores():
            record.on_trial("scored", record.variant, record.scores)
        else:
            cpus, gpus = self.config.sweep.cpus_per_trial, self.config.sweep.gpus_per_trial
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=1)(score_one)
            place = (record.store.location, record.store.attempt, checkpoint.name)
            config = record.variant.config.sized(record.figures().get("tokens_per_pass"))
            asked = task.remote(self.score, config, place, self.data, cpus)
            self.scoring[asked] = record

    def _take_scores(self, record: TrialRecord, scored: Any) -> None:
        try:
            record.keep_scores(dict(ray.get(scored)))
        except ray.exceptions.RayError as error:
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
            # A user's mistake concerns every trial, training that has diverged this one alone.
            if isinstance(cause, UserError) and str(cause) != NO_NUMBERS:
                raise cause from None
            if (full := no_room(cause, record.store)) is not None:
                raise OperationalError(f"{record.variant.name}: {full}; {AGAIN}") from None
            # The others' scores are not lost for this one.
            why, traces = describe(error, lower=LOWER_SEARCH), _keep_traces(record, error)
            record.cause = f"not scored: {why}"
            console.say(f"{record.variant.name}: not scored ({why}{traces})")
            return
        record.on_trial("scored", record.variant, record.scores)


def _keep_traces(record: TrialRecord, error: Exception) -> str:
    """Keep where scoring raised an error in the trial's folder; gives where that is, for a line."""
    if isinstance(error, ray.exceptions.RayTaskError):
        with contextlib.suppress(OSError, UserError):
            record.store.write(SCORING_LOG_NAME, f"{error}\n")
            return f"; stack traces are in {record.folder / SCORING_LOG_NAME}"
    return ""
