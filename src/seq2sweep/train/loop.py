"""The training loop: a generator of events that knows neither Ray nor MLflow.

Every worker runs it and yields the same events in the same order. What happens at a step is a
function of (configuration, data, step, worker): random numbers are seeded anew at every step, so
a run that resumes from a checkpoint does what it would have done anyway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.data.batching import Ids
from seq2sweep.data.bitext import Bitext, require_positions
from seq2sweep.errors import UserError
from seq2sweep.model.building import build
from seq2sweep.train import checkpointing, optimizers
from seq2sweep.train.compiled import compile_layers, eager
from seq2sweep.train.distributed import Agreement, add_up, averaged, same_on_all, shard, whole
from seq2sweep.train.events import (
    CheckpointDue,
    Event,
    Finished,
    Interrupted,
    Logged,
    Validated,
)
from seq2sweep.train.footprint import longest, share_of
from seq2sweep.train.loss import perplexity
from seq2sweep.train.metrics import Meter, OpenWindow, Progress, Window
from seq2sweep.train.step import (
    Passes,
    accumulate,
    apply,
    be_deterministic,
    choose_precision,
)
from seq2sweep.train.updates import Update, packs_all, records_passes, updates
from seq2sweep.train.validation import negative_log_likelihood

MOST_SKIPPED = 10
"""Updates in a row whose gradient is not finite; more say that the run is lost."""


def train(
    config: Config,
    encoded: Path,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device,
    resume: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    alive: Callable[[], object] = lambda: None,
    until: int | None = None,
) -> Iterator[Event]:
    """Train on the encoded bitext to `train.steps`, from the start or a checkpoint folder.

    stop: asked after every update; when it says so on any worker, all of them end with an
    Interrupted, at most an update later.
    alive: called after every update, and after every batch of a validation.
    until: a step with a checkpoint, which is then the last event; the same for all workers.

    Uses the initialised torch.distributed process group when world_size > 1. Raises
    CheckpointError when the checkpoint is damaged, UserError when it is of another run.
    """
    return _Training(config, encoded, rank, world_size, device, resume, stop, alive, until).events()


def _keep_forms(count: int) -> None:
    """Have PyTorch keep so many compiled forms of one place in the code, at least.

    Of eight, as it does by itself, it runs further ones uncompiled: ByteNet's blocks alone have
    ten, one for each dilation and side.
    """
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, count)
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, count)


class _Training:
    def __init__(
        self,
        config: Config,
        encoded: Path,
        rank: int,
        world_size: int,
        device: torch.device,
        resume: Path | None,
        stop: Callable[[], bool],
        alive: Callable[[], object],
        until: int | None,
    ) -> None:
        self.config, self.settings = config, config.train
        self.rank, self.world_size, self.device = rank, world_size, device
        self.bitext = Bitext.open(encoded, "train")
        self.valid = Bitext.open(encoded, "valid")
        self.precision = choose_precision(self.settings.precision, device, config.model.d_model)
        if self.settings.deterministic:
            be_deterministic(device)
        torch.manual_seed(self.settings.seed)
        self.vocabulary_size = int(self.bitext.header["vocabulary"]["size"])
        self.sharded = config.cluster.fsdp and world_size > 1
        model = build(config.model, self.vocabulary_size)
        for split, bitext in (("train", self.bitext), ("valid", self.valid)):
            require_positions(bitext, split, model.max_length)
        if self.settings.compile:
            _keep_forms(4 * len(list(model.blocks())))
            compile_layers(model, device)
        self.model = (
            shard(model, device, world_size, self.precision) if self.sharded else model.to(device)
        )
        self.schedule = optimizers.make(self.model, config)
        self.optimizer = self.schedule.optimizer
        if not getattr(self.optimizer, "_step_supports_amp_scaling", False):
            # Else `apply` neither clips gradients nor leaves out updates that are not finite.
            raise UserError(
                f"train.optimizer {config.optimizer}: torch's optimizer must be made with "
                "fused=True, or read found_inf and grad_scale, and say _step_supports_amp_scaling"
            )
        self.progress = Progress()
        if resume is not None:
            self.progress = checkpointing.load(resume, self.model, self.optimizer, self.identity())
        self.passes = self._passes()
        self.parallel: nn.Module = (
            averaged(self.model)
            if world_size > 1 and not self.sharded and self.passes is None
            else self.model
        )
        # Updates skipped since the last look, and how many of them in a row just now.
        self.skipped = torch.zeros((), device=device)
        self.streak = torch.tensor(float(self.progress.skipped_in_a_row), device=device)
        self.last_ids: Ids = np.empty(0, np.int64)
        self.own_padded_flops = 0.0  # of this worker, not yet added to those of all
        self.checkpoints = [self.progress.step]
        self.meter = Meter(
            self.progress, device, self.precision, world_size, self.settings.pass_tokens
        )
        self.any_says = Agreement(world_size)
        self.stop, self.alive = stop, alive
        self.until = until

    def _passes(self) -> Passes | None:
        """As CUDA graphs, where every worker can have them: they exchange gradients in one way."""
        able = not self.sharded and records_passes(self.config)
        able = able and packs_all(self.config, self.device)
        if self.device.type == "cuda":  # where a kernel may work on some and not on others
            workers = torch.tensor(float(able), device=self.device)
            add_up(workers, self.world_size)
            able = bool(workers == self.world_size)
        if not able:
            return None
        if self.world_size > 1:
            same_on_all(self.model)
        options = self.settings.label_smoothing, self.precision, self.device, self.world_size
        return Passes(self.model, *options)

    def _of_shares(self) -> Config:
        """With passes of no more tokens than a worker's share of an update can have.

        It cuts no pass: but passes are filled up to a 32nd of what they may have
        (`train.updates.capacity`), which would be much of a small share.
        """
        share = share_of(self.config, self.world_size, longest(self.bitext))
        least = min(self.settings.pass_tokens, share)
        settings = dataclasses.replace(self.settings, tokens_per_pass=least)
        return dataclasses.replace(self.config, train=settings)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on with the run that resumes from it."""
        return configuration.identity(self.config, "model") | {
            "vocabulary": self.bitext.header["vocabulary"]["fingerprint"],
            "data": self.bitext.header["fingerprint"],
            "train.precision": self.precision,
            "train.optimizer": self.config.train.optimizer,
        }

    def events(self) -> Iterator[Event]:
        settings, progress = self.settings, self.progress
        window = OpenWindow(self.device, progress, self.rank, self.world_size)
        self.meter.start()
        training = time.perf_counter()
        world = self.rank, self.world_size, self.device
        for update in updates(self._of_shares(), self.bitext, progress, *world):
            window.add(self._update(update))
            progress.step += 1
            self.alive()
            if self.device.type == "cpu":  # on a GPU, looking means waiting for it
                self._look_at_numbers()
            progress.epoch, progress.update = update.after
            last = progress.step == settings.steps
            log = progress.step % settings.log_every == 0 or last
            validate = progress.step % settings.validate_every == 0 or last
            checkpoint = progress.step % settings.checkpoint_every == 0 or last
            interrupted = self.any_says(self.stop()) and not last
            if not (log or validate or checkpoint or interrupted):
                continue
            window.synchronise()
            self._look_at_numbers()
            self._add_up_padding()
            seconds = time.perf_counter() - training
            self.meter.book_training(seconds)
            window.seconds += seconds
            if log:
                yield Logged(progress.step, self._curves(window))
                progress.window = Window(flops_before=progress.flops)
                window = OpenWindow(self.device, progress, self.rank, self.world_size)
            if validate:
                metrics = self._validate()
                progress.add_validation(metrics)
                yield Validated(progress.step, metrics)
            self.meter.book_wall()
            if checkpoint or interrupted:
                progress.window = window.state(self.world_size)
            if checkpoint:
                self._require_finite_weights()
                self.checkpoints.append(progress.step)
                # With their origin, since a trial that is stopped early never has a summary; with
                # what is not known any more, or an older value would be taken for the whole.
                figures = progress.newest | self.meter.totals() | self.meter.origin
                yield CheckpointDue(progress.step, figures, self._capturing())
            if progress.step == self.until and not last:
                self.any_says.settle()
                return
            if interrupted:
                self._require_finite_weights()
                self.any_says.settle()
                yield Interrupted(progress.step, self._capturing(again=checkpoint))
                return
            training = time.perf_counter()
        self.meter.book_wall()
        self.any_says.settle()
        yield Finished(progress.step, self.meter.summary())

    def _update(self, update: Update) -> Tensor:
        """Train on it.

        Returns [this worker's smoothed loss and likelihood sums, target pieces of the whole
        update, gradient norm, 1], or zeros if the update was skipped.
        """
        step = self.progress.step + 1
        # A different dropout for every step and worker, the same after a resume.
        torch.manual_seed((self.settings.seed * 1_000_003 + step) * 1_009 + self.rank)
        self.model.train()
        loss, likelihood = accumulate(
            self.parallel,
            update.batches,
            update_target_tokens=update.target_tokens,
            smoothing=self.settings.label_smoothing,
            world_size=self.world_size,
            precision=self.precision,
            device=self.device,
            graphs=self.passes,
            compiled=self.settings.compile,
        )
        norm, skipped = apply(
            self.model,
            self.schedule.optimizer_of(step),
            self.schedule.learning_rate(step, self.progress.stalls),
            self.schedule.clip_norm,
        )
        self.last_ids = update.ids
        self.skipped += skipped
        self.streak = (self.streak + skipped) * skipped
        progress = self.progress
        progress.source_tokens += update.source_tokens
        progress.target_tokens += update.target_tokens
        progress.flops += update.flops
        self.own_padded_flops += update.padded_flops
        # Filled on the device: a copy of a number would wait for it.
        count = loss.new_full((), float(update.target_tokens))
        sums = torch.stack((loss, likelihood, count, norm, torch.ones_like(norm)))
        return torch.where(skipped.bool(), 0.0, sums)

    def _add_up_padding(self) -> None:
        """Book what all workers computed since the last time; every worker must call this."""
        computed = torch.tensor(self.own_padded_flops, dtype=torch.float64, device=self.device)
        add_up(computed, self.world_size)
        self.progress.padded_flops += float(computed)
        self.own_padded_flops = 0.0

    def _look_at_numbers(self) -> None:
        """Count skipped updates; UserError when there are too many in a row."""
        if not self.skipped:
            return
        self.progress.skipped_updates += int(self.skipped)
        self.skipped.zero_()
        if self.streak < MOST_SKIPPED:
            return
        last = self.progress.step
        first = last - int(self.streak) + 1
        sentences = sorted(int(i) + 1 for i in self.last_ids)
        shown = ", ".join(map(str, sentences[:10])) + (", ..." if len(sentences) > 10 else "")
        raise self._lost(
            f"loss or gradient was not finite in {int(self.streak)} updates in a row, steps "
            f"{first} to {last}; the last of them was of lines {shown} of train.*.txt "
            "in data/clean, of the stage student in models/silver",
            first,
        )

    def _require_finite_weights(self) -> None:
        """A checkpoint must be worth resuming from; all workers have the same weights."""
        finite = [whole(parameter.isfinite().all()) for parameter in self.model.parameters()]
        if not all(map(bool, finite)):
            step = self.progress.step
            raise self._lost(f"weights are not finite after step {step}", step)

    def _lost(self, what: str, since: int) -> UserError:
        """What to tell of a run that has gone wrong at a step."""
        # Within updates that were skipped, which changed nothing, it may have resumed.
        resumed = self.checkpoints[0]
        before = max((step for step in self.checkpoints if step < since), default=resumed)
        good = f"that of step {before}" if before else "none"
        more = " or raise train.warmup_steps" * isinstance(self.schedule, optimizers.Adam)
        return UserError(
            f"the run diverged: {what}. Last good checkpoint: {good}. "
            f"Lower train.learning_rate_scale{more}"
        )

    def _curves(self, window: OpenWindow) -> dict[str, float]:
        sums = window.sums.clone()
        # The loss is spread over workers; count and norm are the same on each.
        shared = sums[:2].clone()
        add_up(shared, self.world_size)
        loss, likelihood = (float(x) for x in shared)
        tokens, norms, updates = (float(x) for x in sums[2:])
        if not updates:
            loss = likelihood = norms = math.nan
        rate = window.updates / window.seconds
        metrics = {
            "loss": loss / max(tokens, 1),
            "perplexity": perplexity(likelihood / max(tokens, 1)),
            "gradient_norm": norms / max(updates, 1),
            "learning_rate": self.schedule.learning_rate(self.progress.step, self.progress.stalls),
            "tokens_per_second": tokens / window.seconds,
            "seconds_left": (self.settings.steps - self.progress.step) / rate,
            "epoch": float(self.progress.epoch),
            "skipped_updates": float(self.progress.skipped_updates),
        }
        metrics |= hardware.memory_of_process(self.device)
        if self.meter.peak_flops_per_second is not None:
            done = self.progress.flops - window.flops_before
            metrics["mfu"] = done / (window.seconds * self.meter.peak_flops_per_second)
        self.progress.newest.update({key: metrics[key] for key in ("loss", "perplexity")})
        return metrics

    def _validate(self) -> dict[str, float]:
        """Loss and perplexity per piece on the validation set, without smoothing or dropout."""
        with eager() if self.settings.compile else contextlib.nullcontext():
            likelihood, pieces = negative_log_likelihood(
                self.model,
                self.valid,
                tokens_per_pass=self.settings.pass_tokens,
                precision=self.precision,
                device=self.device,
                rank=self.rank,
                world_size=self.world_size,
                after_batch=self.alive,
            )
        sums = torch.tensor([likelihood, pieces], dtype=torch.float64, device=self.device)
        add_up(sums, self.world_size)
        loss = float(sums[0] / sums[1])
        return {"valid_loss": loss, "valid_perplexity": perplexity(loss)}

    def _capturing(self, again: bool = False) -> Callable[[], Any]:
        """What an event's consumer calls to copy where training stands.

        again: the event before was of the same state, and the first worker takes no other.
        """
        if not self.sharded or self.rank == 0:
            return self._capture
        take_part = functools.partial(checkpointing.take_part, self.model, self.optimizer)
        return (lambda: None) if again else take_part

    def _capture(self) -> checkpointing.Snapshot:
        self.progress.skipped_in_a_row = int(self.streak)
        return checkpointing.capture(self.model, self.optimizer, self.progress, self.identity())
