"""What each training worker runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, CheckpointUploadMode

from seq2sweep import config as configuration
from seq2sweep.cluster.storage import (
    JOURNAL_NAME,
    Recorder,
    checkpoint_name,
    interrupted_name,
    remove_all_but_newest,
    resume_point,
)
from seq2sweep.errors import UserError
from seq2sweep.train.events import CheckpointDue, Interrupted
from seq2sweep.train.loop import train

USER_ERROR_NAME = "user-error.json"


def train_worker(settings: dict[str, Any]) -> None:
    """Train as one of several workers, from the newest checkpoint if there is one.

    settings: `config` (nested dictionaries), `encoded` and `folder` (absolute paths), `cpus`
    (of this worker), `attempt` (differs for every call of `run_training`).
    """
    folder = Path(settings["folder"])
    if read_user_error(folder, settings["attempt"]) is not None:
        # Ray starts failed workers again, but what the user must mend fails again.
        return
    try:
        _train(settings, folder)
    except UserError as error:
        content = {"attempt": settings["attempt"], "message": str(error)}
        (folder / USER_ERROR_NAME).write_text(json.dumps(content), encoding="utf-8")
        raise


def read_user_error(folder: Path, attempt: str) -> str | None:
    """The message of a UserError that a worker of this attempt raised."""
    try:
        content = json.loads((folder / USER_ERROR_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return str(content["message"]) if content["attempt"] == attempt else None


def stop_file(folder: Path, attempt: str) -> Path:
    """Appears when the workers of an attempt are to save and end."""
    return folder / f"stop-{attempt}"


def use_threads(cpus: float) -> None:
    """Compute with as many threads as CPUs were assigned; Ray leaves torch with one."""
    torch.set_num_threads(max(1, int(cpus)))


def one_line(error: BaseException) -> str:
    """`ValueError: what it says`, without further lines."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _train(settings: dict[str, Any], folder: Path) -> None:
    use_threads(settings["cpus"])
    context = ray.train.get_context()
    rank = context.get_world_rank()
    # Not ray.train.get_checkpoint(): that one may be damaged, and then the one before it will do.
    # All workers find the same, since none can train, and so write, before all have loaded.
    resume = resume_point(folder)
    recorder = Recorder(folder / JOURNAL_NAME) if rank == 0 else None
    config = configuration.from_dict(settings["config"])
    for event in train(
        config,
        Path(settings["encoded"]),
        rank=rank,
        world_size=context.get_world_size(),
        device=ray.train.torch.get_device(),
        resume=resume,
        stop=stop_file(folder, settings["attempt"]).exists,
    ):
        if isinstance(event, Interrupted):
            if rank == 0:
                event.write(folder / interrupted_name(event.step))
            break
        if recorder:
            recorder.append(event)
        if isinstance(event, CheckpointDue):
            _report(event, folder if rank == 0 else None)
            if rank == 0:
                remove_all_but_newest(folder, config.train.keep_checkpoints)
    if recorder:
        recorder.close()


def _report(event: CheckpointDue, folder: Path | None) -> None:
    """Keep a checkpoint; every worker must call this, one of them with the folder to write to.

    It is written straight to its place under a name of its own and renamed, so there is nothing
    left for Ray to copy, and never half a checkpoint under a final name.
    """
    checkpoint = None
    if folder is not None:
        place = folder / checkpoint_name(event.step)
        event.write(place)
        checkpoint = Checkpoint.from_directory(place)
    ray.train.report(
        dict(event.metrics),
        checkpoint=checkpoint,
        checkpoint_dir_name=checkpoint_name(event.step),
        checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
    )
