"""Training on several workers: Ray Train around the training loop."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.train import (
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import gcs, session
from seq2sweep.cluster.failures import (
    describe,
    is_death,
    is_echo,
    is_lack_of_memory,
    raised,
    system_kills,
)
from seq2sweep.cluster.place import Place, place_of
from seq2sweep.cluster.ray_trainer import RayTrainer
from seq2sweep.cluster.torch_backend import NodeToNode
from seq2sweep.cluster.train_worker import train_worker
from seq2sweep.cluster.workers_start import NeverStarted, Start
from seq2sweep.config import Config
from seq2sweep.errors import NO_ROOM, Failure, UserError
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, run_folder
from seq2sweep.runs.status import Standing, from_storage

FAILURE_LOG_NAME = "failure.log"
AGAIN = "run `dvc repro` again to resume"


class TrainingFailed(Failure):
    """Workers failed too often without getting on; the message is one line.

    cause: the error that ended it; final: starting the workers again would be in vain; step: that
    it would go on after.
    """

    def __init__(self, cause: str, further: str, *, final: bool = False, step: int = 0) -> None:
        super().__init__(f"training failed: {cause}; {further}")
        self.cause = cause
        self.final = final
        self.step = step


@dataclass(frozen=True)
class TrainOutcome:
    """checkpoints: all that were kept, verified, oldest first; summary: figures of the loop's
    Finished."""

    checkpoints: list[Path]
    summary: dict[str, Any]


def run_training(
    config: Config,
    *,
    encoded: Path,
    project: Path,
    name: str,
    on_event: Callable[[dict[str, Any]], None],
) -> TrainOutcome:
    """Train to the end inside a `ray_session`, from where the run of this name stands.

    name: of the run in cluster.storage; it must change with whatever changes the result, since a
    run that is found there goes on, and one that is finished is not trained again.
    Failures are met by starting the workers again; after cluster.max_failures of them without a
    new checkpoint it is given up.
    on_event: gets each entry that the journal receives meanwhile, in order, in this thread.

    Raises UserError when the workers do not fit the cluster or one of them raised it,
    TrainingFailed for any other end.
    """
    folder = run_folder(config.cluster, project, name)
    folder.mkdir(parents=True, exist_ok=True)
    place = place_of(config.cluster, folder)
    with place.held():
        outcome = _train(config, encoded.resolve(), place, on_event)
    assert outcome is not None
    return outcome


def train_until(
    config: Config,
    step: int,
    *,
    encoded: Path,
    folder: Path,
    on_event: Callable[[dict[str, Any]], None],
    asked: Callable[[], bool],
) -> None:
    """As `run_training`, in a given folder, to a step with a checkpoint: no worker trains beyond.

    Whoever calls this sees to it that nobody else works in the folder. Returns when the workers
    have left; at once when training has got there before.
    asked: whether they are to save and leave; then KeyboardInterrupt is raised when they have.
    """
    _train(config, encoded, Place(folder), on_event, step, asked)


def _train(
    config: Config,
    encoded: Path,
    place: Place,
    on_event: Callable[[dict[str, Any]], None],
    until: int | None = None,
    asked: Callable[[], bool] = lambda: False,
) -> TrainOutcome | None:
    """None: not at the end, but at step `until`."""
    standing = place.look(config, until)
    if _is_done(standing, until):
        return _outcome(standing)
    cpus = session.cpus_per_worker(config.cluster, session.nodes())
    path = place.folder / JOURNAL_NAME
    offset = from_storage(place.folder, lambda: journal.end(path))
    meanwhile = _Meanwhile(config, cpus, place, offset, on_event, asked)
    data = place.data(encoded)
    failures = 0
    while not _is_done(standing, until):
        before = standing
        if before.lost is not None:
            lost = f"{place.address}/{checkpoint_name(before.lost)}"
            console.say(
                f"{lost} is wanted and not there: the steps after {before.reached} are done again"
            )
        trainer = functools.partial(_trainer, config, data, place, cpus, until, before)
        failure = _attempt(place, trainer, meanwhile, before)
        if failure is not None:
            # It got on between its failures, so it may fail as often again.
            failures = 0 if failure.step > before.reached else failures + 1
            most = config.cluster.max_failures
            if failure.final or failures > most:
                raise failure
            again = f" ({failures} of {most}: cluster.max_failures)" if failures else ""
            console.say(f"{failure.cause}; workers start again after step {failure.step}{again}")
        standing = place.look(config, until, again=True)
        stuck = (standing.lost, standing.reached) == (before.lost, before.reached)
        if stuck and failure is None:
            raise RuntimeError(f"training ended without its last checkpoint in {place.address}")
        # Not at its end, where a node was about to be taken away: the workers saved and left.
    return _outcome(standing)


def _attempt(
    place: Place,
    make_trainer: Callable[[str], RayTrainer],
    meanwhile: _Meanwhile,
    before: Standing,
) -> TrainingFailed | None:
    """Train on once; gives how it failed, None when it did not."""
    attempt = uuid.uuid4().hex
    place.begin(attempt)
    gcs.remove_orphans()
    trainer = make_trainer(attempt)
    killed = system_kills()

    def work() -> None:
        try:
            trainer.fit()
        finally:
            place.catch_up()

    try:
        meanwhile.begin(trainer)
        session.while_waiting(work, meanwhile, place.ask, last_words=place.last_words)
    except (TrainingFailedError, RayError) as error:
        _raise_user_error(place, error)
        step = place.reached(before.lost)
        return _failure(error, place, step, system_kills() - killed)
    except NeverStarted as hung:
        trainer.give_up()
        return TrainingFailed(str(hung), AGAIN, step=place.reached(before.lost))
    else:
        _raise_user_error(place)
    finally:
        place.end()
    return None


def _is_done(standing: Standing, until: int | None) -> bool:
    return standing.is_done or (until is not None and standing.reached >= until)


def _outcome(standing: Standing) -> TrainOutcome | None:
    """What a run that is at its end, with all that it should have, left behind."""
    if not standing.is_done:
        return None
    assert standing.summary is not None
    return TrainOutcome(standing.checkpoints, standing.summary)


class _Meanwhile:
    """What the driver does while the workers train: hand each journal entry to a listener, once,
    and watch over their start."""

    def __init__(
        self,
        config: Config,
        cpus: int,
        place: Place,
        offset: int,
        on_event: Callable[[dict[str, Any]], None],
        asked: Callable[[], bool],
    ) -> None:
        """offset: where in the journal the entries begin that are news.

        asked: whether this is to be interrupted, which is done once.
        """
        self.config, self.cpus, self.place, self.on_event = config, cpus, place, on_event
        self.asked, self.interrupted = asked, False
        self.path, self.offset = place.folder / JOURNAL_NAME, offset
        self.start: Start | None = None
        self.told = ""

    def begin(self, trainer: RayTrainer) -> None:
        """Before each attempt."""
        self.start = Start(self.config.cluster, self.cpus, trainer, self.place.has_begun)
        console.doing("waiting for the workers to start")

    def __call__(self) -> None:
        if not self.interrupted and self.asked():
            self.interrupted = True
            raise KeyboardInterrupt
        for entry in self._news():
            self.on_event(entry)
            if entry["kind"] in ("logged", "validated"):
                self.told = f", last told of step {entry['step']}"
        if self.start is not None and self.start():
            console.doing(f"training{self.told}")

    def _news(self) -> Iterator[dict[str, Any]]:
        # The workers, who need the storage, say so when it fails for long; a line that another
        # machine has half written may look damaged from here.
        with contextlib.suppress(OSError, UserError):
            for entry, offset in journal.follow(self.path, self.offset):
                self.offset = offset
                yield entry


def _trainer(
    config: Config,
    data: dict[str, str],
    place: Place,
    cpus: int,
    until: int | None,
    standing: Standing,
    attempt: str,
) -> RayTrainer:
    cluster = config.cluster
    gpus = cluster.gpus_per_worker
    return RayTrainer(
        cluster,
        train_worker,
        train_loop_config={
            "config": configuration.to_dict(config),
            "folder": place.address,
            **data,
            "cpus": cpus,
            "attempt": attempt,
            "lost": standing.lost,
            "until": standing.lost or until,
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
            name=place.folder.name,
            storage_path=str(place.folder.parent),
            # Failures are counted by the driver, which also sees those of Ray's own processes.
            failure_config=FailureConfig(max_failures=0),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _raise_user_error(place: Place, error: Exception | None = None) -> None:
    cause = _cause(error)[1] if error else None
    # Where it could not be told otherwise, as when a bucket may not be written.
    message = str(cause) if isinstance(cause, UserError) else place.user_error()
    if message is not None:
        raise UserError(message) from None


def _failure(error: Exception, place: Place, step: int, killed: int = 0) -> TrainingFailed:
    """Ray's wall of frames as the one error that started it; the wall is kept in a file.

    killed: as of `describe`.
    """
    who, cause = _cause(error)
    if isinstance(cause, OSError) and cause.errno in NO_ROOM:
        # Its log would find no room either.
        return TrainingFailed(
            place.no_room(cause),
            f"run `dvc repro` again, which goes on after step {step}",
            final=True,
            step=step,
        )
    hung = place.hung() if is_death(cause) else []
    if hung:
        logs = ", ".join(map(str, hung))
        what = f"workers got no update done in cluster.hang_seconds; where they stood is in {logs}"
    elif isinstance(cause, OSError) and cause.strerror and not is_lack_of_memory(cause):
        what = f"{who}{cause.filename or place.address} failed ({cause.strerror}): fix the storage"
    else:
        what = f"{who}{describe(cause, killed)}"
    log = place.folder / FAILURE_LOG_NAME
    try:
        log.write_text(f"{error}\n", encoding="utf-8")
    except OSError as failure:
        further = f"{log} could not be written ({failure.strerror})"
        return TrainingFailed(what, further, step=step)
    return TrainingFailed(what, f"tracebacks are in {log}; {AGAIN}", step=step)


def plain_cause(error: BaseException, killed: int = 0) -> str:
    """An error of a training in one line, with what to do where that is known; as `describe`."""
    return error.cause if isinstance(error, TrainingFailed) else describe(error, killed)


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
