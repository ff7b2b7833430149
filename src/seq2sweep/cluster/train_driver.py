"""Training on several workers: Ray Train around the training loop."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError
from ray.train import (
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import ray_internals, session
from seq2sweep.cluster.failures import (
    AGAIN,
    code_fault,
    describe,
    is_death,
    is_echo,
    is_lack_of_memory,
    raised,
    system_kills,
)
from seq2sweep.cluster.local_cluster import MORE_ROOM
from seq2sweep.cluster.tasks import on_all_nodes
from seq2sweep.cluster.train_worker import train_worker
from seq2sweep.cluster.worker_group import (
    NodeToNode,
    RayTrainer,
    Start,
    WorkersNotStartedError,
)
from seq2sweep.config import Config
from seq2sweep.errors import NO_ROOM, NodeError, OperationalError, UserError
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.runs.run_store import RunStatus, RunStore
from seq2sweep.storage.atomic import begins_a_line
from seq2sweep.train.events import CheckpointDue

FAILURE_LOG_NAME = "failure.log"


class TrainingError(OperationalError):
    """Workers failed too often without getting on; the message is one line.

    cause: the error that ended it; final: starting the workers again would be in vain; step: that
    it would resume after.
    """

    def __init__(self, cause: str, further: str, *, final: bool = False, step: int = 0) -> None:
        super().__init__(f"training failed: {cause}; {further}")
        self.cause = cause
        self.final = final
        self.step = step


def run_training(
    config: Config,
    store: RunStore,
    *,
    encoded: Path,
    data: str | None = None,
    on_event: Callable[[dict[str, Any]], None],
) -> RunStatus:
    """Train to the end inside a `ray_session`, from where the run stands.

    store: of a run whose name changes with whatever changes the result, since a run that is found
    there resumes, and one that is finished is not trained again.
    After a failure the workers restart, cluster.max_failures times without a new checkpoint.
    data: as of `RunStore.publish`.
    on_event: gets each entry that the journal receives meanwhile, in order, in this thread.

    Raises UserError when the workers do not fit the cluster or one of them raised it, or when a
    checkpoint that is to be kept is gone, before a step is trained. TrainingError for any other
    end.
    """
    with store.driving():
        whole = encoded.resolve()
        status = train_until(config, store, encoded=whole, data=data, on_event=on_event)
    store.check_kept(status)
    return status


def train_until(
    config: Config,
    store: RunStore,
    until: int | None = None,
    *,
    encoded: Path,
    data: str | None = None,
    on_event: Callable[[dict[str, Any]], None],
    sharers: int = 0,
    asked: Callable[[], bool] = lambda: False,
) -> RunStatus:
    """As `run_training`, to a step with a checkpoint, where there is one: no worker trains beyond.

    Whoever calls this sees to it that nobody else drives the run. Returns when the workers
    have left; at once when training has got there before.
    sharers: workers of all such trainings that a node has at once.
    asked: whether they are to save and leave; then KeyboardInterrupt is raised when they have.
    """
    status = store.status()
    if _is_done(status, until):
        return status
    if until is None:  # else it would be told after the last step, and of a trial by the sweep
        store.check_kept(status)
        _say_what_is_lost(store, status)
    cpus = session.cpus_per_worker(config.cluster, session.nodes())
    idle = session.idle_in_training(config.cluster)
    if idle and until is None:
        console.say(idle)
    offset = store.retried(lambda: journal.end(store.folder / JOURNAL_NAME))
    meanwhile = _Meanwhile(config, cpus, store, offset, on_event, asked)
    published = store.publish(encoded, data) | {"sharers": sharers}
    failures = 0
    while not _is_done(status, until):
        before = status
        trainer = functools.partial(_trainer, config, published, store, cpus, until)
        failure = _attempt(store, trainer, meanwhile)
        if failure is not None:
            # It made progress between its failures, so it may fail as often again.
            failures = 0 if failure.step > before.step else failures + 1
            most = config.cluster.max_failures
            if failure.final or failures > most:
                raise failure
            retry = f" (retry {failures} of {most}: cluster.max_failures)" if failures else ""
            console.say(f"{failure.cause}; workers restart after step {failure.step}{retry}")
        status = store.status(newest_only=True)
        # Workers that died between last checkpoint and end have no step left, and end the run.
        if failure is None and status.step == before.step and not _is_done(status, until):
            raise RuntimeError(f"training ended without its last checkpoint in {store.location}")
        # Not at its end, where a node was about to be taken away: the workers saved and left.
    return status


def _say_what_is_lost(store: RunStore, status: RunStatus) -> None:
    """Say where checkpoints are gone that the journal tells of, as where `cluster.storage` was
    changed: what it has told of their steps is not told again, and hours would pass in silence."""
    path = store.folder / JOURNAL_NAME
    due = store.retried(lambda: [e["step"] for e in journal.entries(path, CheckpointDue.kind)])
    lost = {step for step in due if step > status.step}
    # A kill comes before the newest is whole, and perhaps the one that it waits for, unless the run
    # has finished since.
    if len(lost) > 2 or (lost and status.summary):
        console.say(
            f"checkpoints up to step {max(lost)} are not in {store.location}: training goes on "
            f"after step {status.step}, and what it repeats is not told again; if they are "
            "elsewhere, stop it, and restore them or cluster.storage"
        )


def _attempt(
    store: RunStore, make_trainer: Callable[[], RayTrainer], meanwhile: _Meanwhile
) -> TrainingError | None:
    """Start the workers once; gives how they failed, None when they did not."""
    store.begin_attempt(uuid.uuid4().hex)
    ray_internals.remove_orphans()
    trainer = make_trainer()
    killed = system_kills()

    def work() -> None:
        try:
            trainer.fit()
        finally:
            store.follow_journal()

    try:
        meanwhile.begin(trainer)
        session.while_waiting(
            work,
            meanwhile,
            store.request_stop,
            store.has_begun,
            last_words=store.save_seconds,
        )
    except (TrainingFailedError, RayError) as error:
        return _failure(error, store, store.step(), system_kills() - killed)
    except WorkersNotStartedError as hung:
        trainer.give_up()
        return TrainingError(str(hung), AGAIN, step=store.step())
    finally:
        store.end_attempt()
    return None


def _is_done(status: RunStatus, until: int | None) -> bool:
    """Whether the workers have got there; at the run's own end, with what they say of it."""
    if until is None or until >= status.last_step:
        return status.finished
    return status.finished or status.step >= until


class _Meanwhile:
    """What the driver does while the workers train: hand each journal entry to a listener, once,
    and watch over their start."""

    def __init__(
        self,
        config: Config,
        cpus: int,
        store: RunStore,
        offset: int,
        on_event: Callable[[dict[str, Any]], None],
        asked: Callable[[], bool],
    ) -> None:
        """offset: where in the journal the entries begin that are news.

        asked: whether this is to be interrupted, which is done once.
        """
        self.config, self.cpus, self.store, self.on_event = config, cpus, store, on_event
        self.asked, self.interrupted = asked, False
        self.path, self.offset = store.folder / JOURNAL_NAME, offset
        self.start: Start | None = None
        self.told = ""

    def begin(self, trainer: RayTrainer) -> None:
        """Before each attempt."""
        self.start = Start(self.config.cluster, self.cpus, trainer, self.store.has_begun)
        console.doing("waiting for the workers to start")

    def __call__(self) -> None:
        if not self.interrupted and self.asked():
            self.interrupted = True
            raise KeyboardInterrupt
        self.store.check_lease()
        for entry in self._news():
            self.on_event(entry)
            if entry["kind"] in ("logged", "validated"):
                self.told = f", last reported step {entry['step']}"
        if self.start is not None and self.start():
            console.doing(f"training{self.told}")
            if more := self.start.room_for_more():
                console.say(f"room for {more} more workers: all save and restart")
                self.store.request_stop()

    def _news(self) -> Iterator[dict[str, Any]]:
        # The workers, who need the storage, say so when it fails for long; a line that another
        # machine has half written may look damaged from here.
        with contextlib.suppress(OSError, UserError):
            # Power that failed may have taken the newest lines. Nothing is told of what restarted
            # workers wrote until this is seen.
            if not (self.path.exists() and begins_a_line(self.path, self.offset)):
                self.offset = journal.end(self.path)
            for entry, offset in journal.follow(self.path, self.offset):
                self.offset = offset
                yield entry


def _trainer(
    config: Config,
    data: dict[str, Any],
    store: RunStore,
    cpus: int,
    until: int | None,
) -> RayTrainer:
    cluster = config.cluster
    gpus = cluster.gpus_per_worker
    return RayTrainer(
        cluster,
        train_worker,
        train_loop_config={
            "config": configuration.to_dict(config),
            "location": store.location,
            **data,
            "cpus": cpus,
            "attempt": store.attempt,
            "until": until,
        },
        torch_config=NodeToNode(),
        scaling_config=ScalingConfig(
            num_workers=(cluster.min_workers, cluster.workers)
            if cluster.min_workers
            else cluster.workers,
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": cpus} | ({"GPU": gpus} if gpus else {}),
        ),
        run_config=RunConfig(
            # What Ray itself keeps there only its controller reads, which runs beside this driver.
            name=store.folder.name,
            storage_path=str(store.folder.parent),
            # Failures are counted by the driver, which also sees those of Ray's own processes.
            failure_config=FailureConfig(max_failures=0),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _failure(error: Exception, store: RunStore, step: int, killed: int = 0) -> TrainingError:
    """Ray's wall of frames as the one error that started it; the wall is kept in a file.

    killed: as of `describe`. Raises the UserError that a worker raised.
    """
    who, cause = _cause(error)
    if isinstance(cause, UserError):
        raise type(cause)(str(cause)) from None
    full = no_room(cause, store)
    if full is not None:
        # Its log would find no room either.
        return TrainingError(full, f"{AGAIN} after step {step}", final=True, step=step)
    hung = store.stack_traces(on_all_nodes) if is_death(cause) else []
    if hung:
        what = hang_in_words(hung)
    elif isinstance(cause, OSError) and cause.strerror and not is_lack_of_memory(cause):
        what = f"{who}{cause.filename or store.location} failed ({cause.strerror}): fix the storage"
    else:
        what = f"{who}{describe(cause, killed)}"
    log = store.folder / FAILURE_LOG_NAME
    try:
        log.write_text(f"{error}\n", encoding="utf-8")
    except OSError as failure:
        further = f"{log} could not be written ({failure.strerror})"
        return TrainingError(what, further, step=step)
    return TrainingError(what, f"stack traces are in {log}; {AGAIN}", step=step)


def hang_in_words(logs: list[Path]) -> str:
    """Of a worker that ended itself; logs: as of `RunStore.stack_traces`."""
    where = ", ".join(map(str, logs))
    return f"no update in cluster.hang_seconds, worker timeout; stack traces are in {where}"


def plain_cause(error: BaseException, killed: int = 0) -> str:
    """An error of a training in one line, with what to do where that is known; as `describe`."""
    return error.cause if isinstance(error, TrainingError) else describe(error, killed)


def no_room(error: BaseException, store: RunStore) -> str | None:
    """What to say where a full disk ended a training, or what a machine lacks (NodeError), which no
    retry mends; None elsewhere."""
    error = raised(error)
    if isinstance(error, NodeError):
        return str(error)
    if isinstance(error, TrainingError):
        return error.cause if error.final else None
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return store.disk_full(error)
    if isinstance(error, RuntimeEnvSetupError):
        reason = code_fault(error)
        if any(os.strerror(number) in reason for number in NO_ROOM):
            return (
                f"no space left in Ray's folder for temporary files, and workers get no code "
                f"({reason}): {MORE_ROOM}"
            )
    return None


def _cause(error: Exception) -> tuple[str, BaseException]:
    """Who failed first, and what was raised there."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        ray_itself = isinstance(error, RayError) and not isinstance(error, RayTaskError)
        return "Ray's coordinator: " * ray_itself, raised(error)
    # When one worker fails, the others complain of a lost connection: those come last.
    causes = {rank: raised(failure) for rank, failure in sorted(failures.items())}
    rank, cause = min(causes.items(), key=lambda item: is_echo(item[1]))
    return f"worker {rank}: ", cause
