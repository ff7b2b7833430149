"""Training on several workers: Ray Train around the training loop."""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
from ray.train import (
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import (
    PlacementGroupCleanerCallback,
)

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import session
from seq2sweep.cluster.network import NodeToNode
from seq2sweep.cluster.place import Place, place_of
from seq2sweep.cluster.standing import Standing, from_storage
from seq2sweep.cluster.storage import JOURNAL_NAME, checkpoint_name, run_folder
from seq2sweep.cluster.worker import one_line, train_worker
from seq2sweep.config import ClusterConfig, Config
from seq2sweep.errors import NO_ROOM, Failure, UserError
from seq2sweep.train import journal

FAILURE_LOG_NAME = "failure.log"
ROOM_SECONDS = 60.0
"""How often the driver looks whether there is room for the workers."""


class TrainingFailed(Failure):
    """Workers failed too often without getting on; the message is one line.

    cause: the error that ended it; final: starting the workers again would be in vain.
    """

    def __init__(self, cause: str, further: str, *, final: bool = False) -> None:
        super().__init__(f"training failed: {cause}; {further}")
        self.cause = cause
        self.final = final


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
    meanwhile = _Meanwhile(config.cluster, cpus, path, offset, on_event, asked)
    data = place.data(encoded)
    while not _is_done(standing, until):
        before = standing
        if before.lost is not None:
            lost = f"{place.address}/{checkpoint_name(before.lost)}"
            console.say(
                f"{lost} is wanted and not there: the steps after {before.reached} are done again"
            )
        trainer = functools.partial(_trainer, config, data, place, cpus, until, before)
        _attempt(place, trainer, meanwhile, before)
        standing = place.look(config, until, again=True)
        if (standing.lost, standing.reached) == (before.lost, before.reached):
            raise RuntimeError(f"training ended without its last checkpoint in {place.address}")
        # Not at its end, where a node was about to be taken away: the workers saved and left.
    return _outcome(standing)


def _attempt(
    place: Place,
    make_trainer: Callable[[str], TorchTrainer],
    meanwhile: Callable[[], None],
    before: Standing,
) -> None:
    """Train on once, with whatever failures Ray meets itself; raises unless that got on."""
    attempt = uuid.uuid4().hex
    place.begin(attempt)
    trainer = make_trainer(attempt)

    def work() -> None:
        try:
            trainer.fit()
        finally:
            place.catch_up()

    try:
        session.while_waiting(work, meanwhile, place.ask, last_words=place.last_words)
    except (TrainingFailedError, ray.exceptions.RayActorError) as error:
        _raise_user_error(place, error)
        step = place.reached(before.lost)
        failure = _failure(error, place, step)
        if failure.final or step <= before.reached:
            raise failure from None
        # It got on between its failures, so it may fail as often again.
        console.say(f"{failure.cause}; workers start again after step {step}")
    else:
        _raise_user_error(place)
    finally:
        place.end()


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
    and say when there is no room for the workers, who then wait for nodes to come."""

    def __init__(
        self,
        cluster: ClusterConfig,
        cpus: int,
        path: Path,
        offset: int,
        on_event: Callable[[dict[str, Any]], None],
        asked: Callable[[], bool],
    ) -> None:
        """path: of the journal; offset: where in it the entries begin that are news.

        asked: whether this is to be interrupted, which is done once.
        """
        self.cluster, self.cpus, self.on_event = cluster, cpus, on_event
        self.asked, self.interrupted = asked, False
        self.path, self.offset = path, offset
        self.looked = time.monotonic()

    def __call__(self) -> None:
        if not self.interrupted and self.asked():
            self.interrupted = True
            raise KeyboardInterrupt
        for entry in self._news():
            self.on_event(entry)
        if time.monotonic() - self.looked > ROOM_SECONDS:
            self.looked = time.monotonic()
            self._look_for_room()

    def _news(self) -> Iterator[dict[str, Any]]:
        # The workers, who need the storage, say so when it fails for long; a line that another
        # machine has half written may look damaged from here.
        with contextlib.suppress(OSError, UserError):
            for entry, offset in journal.follow(self.path, self.offset):
                self.offset = offset
                yield entry

    def _look_for_room(self) -> None:
        fewest = self.cluster.min_workers or self.cluster.workers
        machines = session.nodes()
        if session.places(machines, self.cpus, self.cluster.gpus_per_worker) < fewest:
            console.say(
                f"waiting for room for {fewest} workers of {self.cpus} CPUs and "
                f"{self.cluster.gpus_per_worker} GPUs; the cluster is {session.describe(machines)}"
            )


class _Trainer(TorchTrainer):  # type: ignore[misc]
    """Without actors that take seconds to start and have nothing to do: the one for Ray's data sets
    and, in a Ray that ends with this process, the one that clears up on a cluster after a driver.
    """

    def __init__(self, cluster: ClusterConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        own = session.address_of(cluster) is None
        self.idle = (DatasetsCallback, *([PlacementGroupCleanerCallback] if own else []))

    def _create_default_callbacks(self) -> list[Any]:
        made: list[Any] = super()._create_default_callbacks()
        return [callback for callback in made if not isinstance(callback, self.idle)]


def _trainer(
    config: Config,
    data: dict[str, str],
    place: Place,
    cpus: int,
    until: int | None,
    standing: Standing,
    attempt: str,
) -> TorchTrainer:
    cluster = config.cluster
    gpus = cluster.gpus_per_worker
    return _Trainer(
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
            failure_config=FailureConfig(max_failures=cluster.max_failures),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _raise_user_error(place: Place, error: Exception | None = None) -> None:
    cause = _cause(error)[1] if error else None
    # Where it could not be told otherwise, as when a bucket may not be written.
    message = str(cause) if isinstance(cause, UserError) else place.user_error()
    if message is not None:
        raise UserError(message) from None


def _failure(error: Exception, place: Place, step: int) -> TrainingFailed:
    """Ray's wall of frames as the one error that started it; the wall is kept in a file."""
    who, cause = _cause(error)
    if isinstance(cause, OSError) and cause.errno in NO_ROOM:
        # Its log would find no room either.
        return TrainingFailed(
            place.no_room(cause),
            f"run `dvc repro` again, which goes on after step {step}",
            final=True,
        )
    hung = place.hung() if isinstance(cause, ray.exceptions.RayActorError) else []
    if hung:
        logs = ", ".join(map(str, hung))
        what = f"workers got no update done in cluster.hang_seconds; where they stood is in {logs}"
    elif _is_lack_of_memory(cause):
        what = f"{who}{plain_cause(cause)}"
    elif isinstance(cause, ray.exceptions.ActorDiedError):
        what = f"{who}its process was killed, by hand or by the system (out of memory?)"
    elif isinstance(cause, OSError) and cause.strerror:
        what = f"{who}{cause.filename or place.address} failed ({cause.strerror}): mend the storage"
    else:
        what = f"{who}{one_line(cause)}"
    log = place.folder / FAILURE_LOG_NAME
    try:
        log.write_text(f"{error}\n", encoding="utf-8")
    except OSError as failure:
        return TrainingFailed(what, f"{log} could not be written ({failure.strerror})")
    return TrainingFailed(what, f"tracebacks are in {log}")


def plain_cause(error: BaseException) -> str:
    """An error of a training in one line, with what to do where that is known."""
    if isinstance(error, TrainingFailed):
        return error.cause
    line = one_line(error)
    if _is_lack_of_memory(error):
        return f"out of memory ({line}): lower train.tokens_per_pass, which changes no update"
    return line


def _is_lack_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | ray.exceptions.OutOfMemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return any(words in text for words in ("can't allocate memory", "low on memory"))


def _cause(error: Exception) -> tuple[str, BaseException]:
    """Who failed first, and what was raised there."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        return "", _raised(getattr(error, "controller_failure", error))
    # When one worker fails, the others complain of a lost connection: those come last.
    causes = {rank: _raised(failure) for rank, failure in sorted(failures.items())}
    rank, cause = min(causes.items(), key=lambda item: _is_echo(item[1]))
    return f"worker {rank}: ", cause


def _raised(failure: Exception) -> BaseException:
    """The exception that the worker raised, out of Ray's wrappings."""
    for wrapping in ("_base_exc", "cause"):
        inner = getattr(failure, wrapping, None)
        if isinstance(inner, Exception):
            return _raised(inner)
    return failure


def _is_echo(error: BaseException) -> bool:
    text = str(error)
    return any(word in text for word in ("gloo", "NCCL", "Connection closed by peer"))
