"""Training on several workers: Ray Train around the training loop."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.train import (
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from ray.train.torch import TorchTrainer

from seq2sweep import config as configuration
from seq2sweep.cluster import session
from seq2sweep.cluster.storage import (
    JOURNAL_NAME,
    checkpoint_step,
    newest_checkpoints,
    only_user,
    remove_damaged,
    resume_point,
    run_folder,
)
from seq2sweep.cluster.worker import one_line, read_user_error, stop_file, train_worker
from seq2sweep.config import Config
from seq2sweep.errors import NO_ROOM, Failure, UserError
from seq2sweep.train import journal

FAILURE_LOG_NAME = "failure.log"
# Ray's own list of a run's checkpoints.
SNAPSHOT_NAME = "checkpoint_manager_snapshot.json"


class TrainingFailed(Failure):
    """Workers failed more often than cluster.max_failures; the message is one line.

    cause: the error that ended it; log: the file with every worker's traceback.
    """

    def __init__(self, cause: str, log: Path) -> None:
        super().__init__(f"training failed: {cause}; tracebacks are in {log}")
        self.cause = cause
        self.log = log


@dataclass(frozen=True)
class TrainOutcome:
    """checkpoints: the newest train.keep_checkpoints, verified, oldest first; summary: figures
    of the loop's Finished."""

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
    on_event: gets each entry that the journal receives meanwhile, in order, in this thread.

    Raises UserError when the workers do not fit the cluster or one of them raised it,
    TrainingFailed for any other end.
    """
    folder = run_folder(config.cluster, project, name)
    with only_user(folder):
        return _train(config, encoded.resolve(), folder, on_event)


def _train(
    config: Config, encoded: Path, folder: Path, on_event: Callable[[dict[str, Any]], None]
) -> TrainOutcome:
    outcome = _outcome(config, folder)
    if outcome is not None:
        return outcome
    remove_damaged(folder)
    cpus = session.cpus_per_worker(config.cluster, session.nodes())
    path = folder / JOURNAL_NAME
    offset = journal.read(path)[1]

    def follow() -> None:
        nonlocal offset
        entries, offset = journal.read(path, offset)
        for entry in entries:
            on_event(entry)

    attempt = uuid.uuid4().hex
    # Where to go on from is ours to find (worker.py); Ray would refuse to start where a checkpoint
    # on its list is gone.
    (folder / SNAPSHOT_NAME).unlink(missing_ok=True)
    trainer = _trainer(config, encoded, folder, cpus, attempt)
    stop = stop_file(folder, attempt)
    try:
        session.while_waiting(trainer.fit, follow, on_interrupt=stop.touch)
    except TrainingFailedError as error:
        _raise_cause(error, folder, attempt)
    finally:
        stop.unlink(missing_ok=True)
    message = read_user_error(folder, attempt)
    if message is not None:
        raise UserError(message)
    outcome = _outcome(config, folder)
    if outcome is None:
        raise RuntimeError(f"training ended without its last checkpoint in {folder}")
    return outcome


def _trainer(config: Config, encoded: Path, folder: Path, cpus: int, attempt: str) -> TorchTrainer:
    gpus = config.cluster.gpus_per_worker
    return TorchTrainer(
        train_worker,
        train_loop_config={
            "config": configuration.to_dict(config),
            "encoded": str(encoded),
            "folder": str(folder),
            "cpus": cpus,
            "attempt": attempt,
        },
        scaling_config=ScalingConfig(
            num_workers=config.cluster.workers,
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": cpus} | ({"GPU": gpus} if gpus else {}),
        ),
        run_config=RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            failure_config=FailureConfig(max_failures=config.cluster.max_failures),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _outcome(config: Config, folder: Path) -> TrainOutcome | None:
    """What a run that has reached its last step left behind; None if it has not."""
    entries, _ = journal.read(folder / JOURNAL_NAME)
    finished = [entry for entry in entries if entry["kind"] == "finished"]
    if not finished:
        return None
    checkpoints = newest_checkpoints(folder, config.train.keep_checkpoints)
    if not checkpoints:
        return None
    if checkpoint_step(checkpoints[-1]) != finished[-1]["step"]:
        # The last one was lost or damaged since: the steps to it are done again.
        return None
    summary = {key: value for key, value in finished[-1].items() if key not in ("kind", "time")}
    return TrainOutcome(checkpoints, summary)


def _raise_cause(error: TrainingFailedError, folder: Path, attempt: str) -> None:
    """Turn Ray's wall of frames into the one error that started it, and keep the wall in a file."""
    message = read_user_error(folder, attempt)
    if message is not None:
        raise UserError(message) from None
    who, cause = _cause(error)
    if isinstance(cause, OSError) and cause.errno in NO_ROOM:
        kept = resume_point(folder)
        step = checkpoint_step(kept) if kept else 0
        raise Failure(
            f"no room left in {folder} ({shutil.disk_usage(folder).free / 1e6:.1f} MB free): free "
            "some, or set cluster.storage to another disk, and run `dvc repro` again, which goes "
            f"on after step {step}"
        ) from None
    log = folder / FAILURE_LOG_NAME
    log.write_text(f"{error}\n", encoding="utf-8")
    raise TrainingFailed(f"{who}{one_line(cause)}", log) from None


def _cause(error: TrainingFailedError) -> tuple[str, BaseException]:
    """Who failed first, and what was raised there."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        return "", getattr(error, "controller_failure", error)
    # When one worker fails, the others complain of a lost connection: those come last.
    causes = {rank: _raised(failure) for rank, failure in sorted(failures.items())}
    rank, cause = min(causes.items(), key=lambda item: _is_echo(item[1]))
    return f"worker {rank}: ", cause


def _raised(failure: Exception) -> BaseException:
    """The exception that the worker raised, out of Ray's wrapping."""
    inner = getattr(failure, "_base_exc", None)
    return inner if isinstance(inner, BaseException) else failure


def _is_echo(error: BaseException) -> bool:
    text = str(error)
    return any(word in text for word in ("gloo", "NCCL", "Connection closed by peer"))
