"""What each training worker runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import contextlib
from typing import Any

import ray.train
import ray.train.collective
import ray.train.torch
import torch
from torch import distributed as dist

from seq2sweep import config as configuration
from seq2sweep.cluster.ray_internals import get_train_context
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import pass_size
from seq2sweep.runs.event_writer import EventWriter
from seq2sweep.runs.layout import Retention, checkpoint_step
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import worker_store
from seq2sweep.runs.warm_start import precision_of
from seq2sweep.runs.watchdog import HANG_LOG_NAME, Watchdog, feed
from seq2sweep.storage.locks import OLD_WRITER_SECONDS
from seq2sweep.storage.retry import PAUSES, with_retries
from seq2sweep.train.allocator import keep_memory
from seq2sweep.train.distributed import all_reduce
from seq2sweep.train.events import CheckpointDue, Interrupted
from seq2sweep.train.loop import train
from seq2sweep.train.step import choose_precision

START_SECONDS = OLD_WRITER_SECONDS + 3 * sum(PAUSES)
"""How long the first worker may take until it knows where to begin: then none is waited for."""


def train_worker(settings: dict[str, Any]) -> None:
    """Train as one of several workers, from the newest checkpoint if there is one.

    settings: `config` (nested dictionaries), `location` (of the run: an absolute path or an
    address), `attempt` (differs for each start of the workers), `encoded` (absolute path of the
    folder; of a run at an address `encoded_address` as well), `cpus` (of this worker), `sharers`
    (workers of a sweep on a node at once; 0: those of this training), `until` (as of
    `seq2sweep.train.loop.train`).
    """
    use_threads(settings["cpus"])
    config = configuration.from_dict(settings["config"])
    store = worker_store(settings["location"], settings["attempt"], Retention.of(config))
    context = ray.train.get_context()
    rank, device = context.get_world_rank(), ray.train.torch.get_device()
    hang_log = store.logs / HANG_LOG_NAME.format(rank=rank)
    with contextlib.ExitStack() as stack:
        with with_retries(lambda: Watchdog(start_seconds(config, store), hang_log)):
            start = _start(config, store, stack) if rank == 0 else None
            # All do what the first one says: on a network file system they may see different files.
            start = ray.train.collective.broadcast_from_rank_zero(start)
            name = start["resume"]
            resume = None if name is None else with_retries(lambda: store.fetch(name))
            data = with_retries(lambda: store.data(settings))
            if store.start_seconds:
                ray.train.collective.barrier()  # or those who train wait for those who fetch
            gpu = device.type == "cuda"
            config = _in_one_precision(config, device, context.get_world_size(), start["precision"])
            config, sized = pass_size.decide(
                config,
                data,
                device,
                world_size=context.get_world_size(),
                sharers=1 if gpu else settings["sharers"] or context.get_local_world_size(),
                known=start["tokens_per_pass"],
                step=checkpoint_step(resume) if resume else 0,
            )
        watchdog = stack.enter_context(
            with_retries(lambda: Watchdog(config.cluster.hang_seconds, hang_log))
        )
        writer = stack.enter_context(EventWriter(store)) if rank == 0 else None
        if writer is not None and sized is not None:
            writer.write(sized)

        def should_stop() -> bool:
            if writer is not None:
                writer.check()
            return _node_goes_away() or (writer is not None and store.stop_requested())

        for event in train(
            config,
            data,
            rank=rank,
            world_size=context.get_world_size(),
            device=device,
            resume=resume,
            stop=should_stop,
            alive=watchdog.feed,
            until=settings["until"],
        ):
            # Not an interruption of what each has whole: a worker may be gone already.
            shared_out = config.cluster.fsdp
            if isinstance(event, CheckpointDue) or (isinstance(event, Interrupted) and shared_out):
                _save_together(writer, event, shared_out)
            elif writer is not None:
                writer.write(event)
            watchdog.feed()
        if rank > 0:  # of the first one nothing goes that may not be kept yet
            store.clear()


def use_threads(cpus: float) -> None:
    """Compute with as many threads as CPUs were assigned, where Ray leaves torch with one, and
    with memory that is kept."""
    keep_memory()
    torch.set_num_threads(max(1, int(cpus)))


def start_seconds(config: Config, store: RunStore) -> float:
    """How long a start may take: not less than an update, or the remedy for a slow storage would
    not reach it."""
    return max(START_SECONDS, config.cluster.hang_seconds) + store.start_seconds


def _start(config: Config, store: RunStore, stack: contextlib.ExitStack) -> dict[str, Any]:
    """What the first worker says to all: the name of the checkpoint to `resume` from, the
    `precision` of that, and the `tokens_per_pass` of a run that has begun.

    The run is its own to write until the stack is closed.
    """
    with_retries(lambda: stack.enter_context(store.writing()))
    # Not ray.train.get_checkpoint(): that one may be damaged, and then the one before will do.
    resume = with_retries(store.resume_point)
    known = with_retries(lambda: pass_size.recorded(config, store.folder))
    return {
        "resume": resume.name if resume else None,
        "precision": with_retries(lambda: precision_of(resume)) if resume else None,
        "tokens_per_pass": known,
    }


def _in_one_precision(
    config: Config, device: torch.device, world_size: int, resumed: str | None
) -> Config:
    """With a `train.precision` of auto resolved once for all workers, whose machines may differ:
    bf16 where each of them would choose it, unless the checkpoint that is `resumed` is in float32.
    Every worker must call this. Raises UserError where that is in bf16, and one of them would not
    choose it: it may be a hundred times slower there, so that is for the user to decide."""
    if config.train.precision != "auto":
        return config
    own = choose_precision("auto", device, config.model.d_model)
    willing = torch.tensor(float(own == "bf16"), device=device)
    if world_size > 1:
        all_reduce(willing, dist.ReduceOp.MIN)
    if resumed == "bf16" and not willing:
        raise UserError(
            "the run is in bf16, and train.precision auto takes float32 on a device of its workers "
            "now: keep that device out, or set train.precision to bf16, slow as it may be there, "
            "which resumes from the same checkpoints where cluster.storage is no bucket"
        )
    bf16 = bool(willing) and resumed != "float32"
    return configuration.with_changes(config, {"train.precision": "bf16" if bf16 else "float32"})


def _save_together(
    writer: EventWriter | None, event: CheckpointDue | Interrupted, shared_out: bool
) -> None:
    """Have the first worker, which has the writer, save a checkpoint.

    While it waits until the checkpoint before is kept, it says so to the others again and again:
    that is no hang. A worker that says or hears nothing meanwhile does hang, and is noticed. Of a
    model that is shared out the others send their parts then, when there is no other copy.
    """
    tell = ray.train.collective.broadcast_from_rank_zero
    if writer is not None:
        writer.write(event, waiting=lambda: tell(True), ready=lambda: tell(False))
        return
    while tell(None):
        feed()
    if shared_out:
        event.capture()


def _node_goes_away() -> bool:
    """Whether Ray was told that a node of this group is about to be taken away.

    Not ray.train.get_preemption_info(): there all workers would wait for each other, at every
    update. The training loop tells the others.
    """
    return get_train_context().preemption_context.preemption_info is not None
