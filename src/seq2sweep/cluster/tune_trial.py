"""What each trial of a sweep runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import platform
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune

from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.cluster import session
from seq2sweep.cluster.train_driver import no_room, plain_cause, train_until
from seq2sweep.cluster.train_worker import start_seconds, use_threads
from seq2sweep.config import Config, is_address
from seq2sweep.errors import UserError
from seq2sweep.runs import journal, pass_size
from seq2sweep.runs.event_writer import EventWriter
from seq2sweep.runs.layout import FAILURE_NAME, JOURNAL_NAME, Retention, checkpoint_step
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import worker_store
from seq2sweep.runs.watchdog import HANG_LOG_NAME, Watchdog
from seq2sweep.storage.retry import with_retries
from seq2sweep.sweep.trial_record import NODES_NAME
from seq2sweep.sweep.variants import with_trials_checkpoints
from seq2sweep.train.events import CheckpointDue, Event, Finished, Logged, Validated
from seq2sweep.train.loop import train

METRIC = "valid_perplexity"
NO_PLACE = "no_place"
"""Reported by a trial whose workers no longer fit the cluster: it waits until they do."""
MEMORY = ("rss_bytes", "peak_rss_bytes")
"""What a process has of the trials before, too, as their memory is kept to be used again."""

_trained = itertools.count()
"""Trials that this process has begun to train."""


def run_trial(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """Train variant `trials[assignment["index"]]` in this process, reporting validations to Tune.

    A trial is described by `config` (nested dictionaries), `location` and `sweep` (absolute paths
    or addresses of the trial and of the sweep), `attempt` (of the sweep, whose `stop_requested` has
    trials save and return), `data` (as `RunStore.publish` gives it), `workers`, `cpus` and `gpus`
    (of each worker), `sharers` (workers of the sweep on a node at once), and `rungs` (the steps
    after which Tune may stop or pause it). Several workers train in processes of their own.
    """
    settings = trials[assignment["index"]]
    config = with_trials_checkpoints(configuration.from_dict(settings["config"]))
    store = worker_store(settings["location"], settings["attempt"], Retention.of(config))
    try:
        sweep = worker_store(settings["sweep"], settings["attempt"])
        sweep.poll()
        if sweep.stop_requested():
            return
        with_retries(lambda: store.delete(FAILURE_NAME))
        with sweep.polling():
            if settings["workers"] > 1:
                _train_together(config, settings, store, sweep)
            else:
                _train(config, settings, store, sweep)
    except SystemExit:  # in a report, as Tune stops or pauses it: perhaps for another node
        store.clear()
        raise
    except Exception as error:
        # Where it cannot be written, this error is still the one that is raised.
        with contextlib.suppress(OSError, UserError):
            content = json.dumps(_failure(error, store), indent=2)
            with_retries(lambda: store.write(FAILURE_NAME, content))
        store.clear(kept_only=True)  # it may never be tried again, or elsewhere
        raise
    finally:
        store.end_attempt()


def _failure(error: Exception, store: RunStore) -> dict[str, Any]:
    """What the driver is told of it: the cause in a line, and whether a disk was full."""
    full = no_room(error, store)
    # In a folder that all nodes see it is the same disk everywhere.
    node = f"{platform.node()}: " if is_address(store.location) else ""
    return {
        "cause": plain_cause(error) if full is None else f"{node}{full}",
        "disk_full": full is not None,
        "traceback": "".join(traceback.format_exception(error)),
    }


def _note_node(store: RunStore) -> None:
    """Leave the name of this node, `host-1a2b3c4d`, with the trial; the end is Ray's id."""
    name = f"{platform.node()}-{ray.get_runtime_context().get_node_id()[:8]}"
    store.write(f"{NODES_NAME}/{name}", f"{time.time()}\n")


def _train(config: Config, settings: dict[str, Any], store: RunStore, sweep: RunStore) -> None:
    """Train from the newest checkpoint on.

    Tune stops a trial inside a report, and nothing after it runs. So a validation is reported
    when all else of its step, the checkpoint or the end, is on disk.
    """
    use_threads(settings["cpus"])
    with_retries(lambda: _note_node(store))
    hang_log = store.logs / HANG_LOG_NAME.format(rank=0)
    with contextlib.ExitStack() as stack:
        with with_retries(lambda: Watchdog(start_seconds(config, store), hang_log)):
            data = with_retries(lambda: store.data(settings["data"]))
            with_retries(lambda: stack.enter_context(store.writing()))
            resume = with_retries(store.resume_point)
        watchdog = stack.enter_context(
            with_retries(lambda: Watchdog(config.cluster.hang_seconds, hang_log))
        )
        writer = stack.enter_context(EventWriter(store))
        done = checkpoint_step(resume) if resume else 0
        device = torch.device("cuda:0" if settings["gpus"] else "cpu")
        hardware.forget_peak(device)
        not_first = next(_trained) > 0
        torch.use_deterministic_algorithms(False)  # as is the choice of a trial before
        known = with_retries(lambda: pass_size.recorded(config, store.folder))
        config, sized = pass_size.decide(
            config, data, device, sharers=settings["sharers"], known=known, step=done
        )
        if sized is not None:
            writer.write(sized)

        def should_stop() -> bool:
            writer.check()
            return sweep.stop_requested()

        # Tell the scheduler what it was told before, since it keeps no metrics between sweeps.
        unreported: dict[str, float] = {}
        for step, perplexity in validations(store.folder):
            unreported = {"step": step, METRIC: perplexity}
            if step > done or step >= config.train.steps:
                break
            tune.report(unreported)
            watchdog.feed()  # there may be thousands, and Tune busy with other trials
            unreported = {}
        for event in train(
            config,
            data,
            device=device,
            resume=resume,
            stop=should_stop,
            alive=watchdog.feed,
        ):
            if not_first:
                _leave_out_memory(event)
            writer.write(event)
            if isinstance(event, Validated):
                unreported = {"step": event.step, METRIC: event.metrics[METRIC]}
            if unreported and _ends_step(event, config):
                writer.wait()
                tune.report(unreported)
                unreported = {}


def _leave_out_memory(event: Event) -> None:
    if isinstance(event, Logged | CheckpointDue | Finished):
        metrics = event.summary if isinstance(event, Finished) else event.metrics
        for name in MEMORY:
            metrics.pop(name, None)


def _train_together(
    config: Config, settings: dict[str, Any], store: RunStore, sweep: RunStore
) -> None:
    """Train from rung to rung, on workers that have left when Tune may stop or pause the trial."""
    config = dataclasses.replace(
        config,
        cluster=dataclasses.replace(
            config.cluster,
            workers=settings["workers"],
            min_workers=None,
            cpus_per_worker=int(settings["cpus"]),
            gpus_per_worker=int(settings["gpus"]),
            max_failures=0,  # Tune counts them
        ),
    )
    told = 0

    def tell(before: float, entry: dict[str, Any] | None = None) -> None:
        nonlocal told
        if entry is not None and entry["kind"] != "validated":
            return
        for step, perplexity in validations(store.folder):
            if told < step < before:
                told = step
                tune.report({"step": step, METRIC: perplexity})

    for end in segments(config, settings["rungs"]):
        try:
            train_until(
                config,
                store,
                end,
                encoded=store.data(settings["data"]),
                # A decision never depends on metrics between two rungs.
                on_event=functools.partial(tell, end),
                sharers=settings["sharers"],
                asked=sweep.stop_requested,
            )
        except KeyboardInterrupt:
            return
        except session.NoPlaceError:  # a node was lost since Tune chose this trial
            tune.report({NO_PLACE: True})  # Tune pauses it, and begins again when there is room
            raise
        tell(end + 1)


def segments(config: Config, rungs: Sequence[int]) -> list[int]:
    """The steps of the first validations at the rungs or after them, and the last step."""
    often, last = config.train.validate_every, config.train.steps
    return sorted({min(math.ceil(rung / often) * often, last) for rung in [*rungs, last]})


def _ends_step(event: object, config: Config) -> bool:
    """Whether the loop yields nothing more at this step that a stopped trial must have kept."""
    if isinstance(event, Finished):
        return True
    if not isinstance(event, Validated | CheckpointDue) or event.step == config.train.steps:
        return False
    due = event.step % config.train.checkpoint_every == 0
    return isinstance(event, CheckpointDue) == due


def validations(folder: Path) -> list[tuple[int, float]]:
    """Step and perplexity of each in a trial's journal; infinity where it was no number."""
    path = folder / JOURNAL_NAME
    return with_retries(
        lambda: [
            # The journal writes null for what is no number.
            (entry["step"], math.inf if entry[METRIC] is None else entry[METRIC])
            for entry in journal.entries(path, "validated")
        ]
    )
