"""The training loop: a generator of events that knows neither Ray nor MLflow.

Every worker runs it and yields the same events in the same order. What happens at a step is a
function of (configuration, data, step, worker): random numbers are seeded anew at every step, so
a run that goes on from a checkpoint does what it would have done anyway.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import Batch, EpochPlan, collate, passes, plan_epoch, share
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model.flops import training_flops
from seq2sweep.model.layers import LEARNED_POSITIONS
from seq2sweep.model.transformer import Transformer
from seq2sweep.train import state
from seq2sweep.train.events import CheckpointDue, Event, Finished, Logged, Validated
from seq2sweep.train.loss import perplexity
from seq2sweep.train.schedule import learning_rate
from seq2sweep.train.step import accumulate, apply, choose_precision, make_optimizer
from seq2sweep.train.validation import negative_log_likelihood


def train(
    config: Config,
    encoded: Path,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device,
    resume: Path | None = None,
) -> Iterator[Event]:
    """Train on the encoded bitext to `train.steps`, from the start or a checkpoint folder.

    Uses the initialised torch.distributed process group when world_size > 1. Raises
    state.CheckpointError when the checkpoint is damaged or belongs to something else.
    """
    return _Training(config, encoded, rank, world_size, device, resume).events()


class _Training:
    def __init__(
        self,
        config: Config,
        encoded: Path,
        rank: int,
        world_size: int,
        device: torch.device,
        resume: Path | None,
    ) -> None:
        self.config, self.settings = config, config.train
        self.rank, self.world_size, self.device = rank, world_size, device
        self.bitext = Bitext.open(encoded, "train")
        self.valid = Bitext.open(encoded, "valid")
        _check_lengths(config, *(Bitext.open(encoded, s) for s in self.bitext.header["splits"]))
        self.precision = choose_precision(self.settings.precision, device)
        torch.manual_seed(self.settings.seed)
        self.vocabulary_size = int(self.bitext.header["vocabulary"]["size"])
        self.model = Transformer(config.model, self.vocabulary_size).to(device)
        self.optimizer = make_optimizer(self.model)
        self.progress = state.Progress()
        if resume is not None:
            self.progress = state.load(resume, self.model, self.optimizer, self.identity())
        self.parallel: nn.Module = (
            # The only buffers are tables of positions, which grow as each worker needs.
            DistributedDataParallel(self.model, broadcast_buffers=False)
            if world_size > 1
            else self.model
        )
        self.newest: dict[str, float] = {}

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on with the run that goes on from it."""
        return {
            "model": configuration.fingerprint(self.config, "model"),
            "vocabulary": self.bitext.header["vocabulary"]["fingerprint"],
            "data": self.bitext.header["fingerprint"],
        }

    def events(self) -> Iterator[Event]:
        settings, progress = self.settings, self.progress
        window = _Window(self.device)
        training = wall = time.perf_counter()
        for plan, update in self._updates():
            window.add(self._update(plan[update]))
            progress.step += 1
            progress.update = update + 1
            if progress.update == len(plan):
                progress.epoch, progress.update = progress.epoch + 1, 0
            last = progress.step == settings.steps
            log = progress.step % settings.log_every == 0 or last
            validate = progress.step % settings.validate_every == 0 or last
            checkpoint = progress.step % settings.checkpoint_every == 0 or last
            if not (log or validate or checkpoint):
                continue
            window.synchronise()
            seconds = time.perf_counter() - training
            progress.train_seconds += seconds
            window.seconds += seconds
            if log:
                yield Logged(progress.step, self._curves(window))
                window = _Window(self.device)
            if validate:
                metrics = self._validate()
                self.newest.update(metrics)
                yield Validated(progress.step, metrics)
            progress.wall_seconds += time.perf_counter() - wall
            wall = time.perf_counter()
            if checkpoint:
                yield CheckpointDue(progress.step, self.newest | self._totals(), self._write)
            training = time.perf_counter()
        progress.wall_seconds += time.perf_counter() - wall
        yield Finished(progress.step, self._summary())

    def _updates(self) -> Iterator[tuple[EpochPlan, int]]:
        """The updates from where training stands to the last step, epoch after epoch."""
        while self.progress.step < self.settings.steps:
            plan = plan_epoch(
                self.bitext.source_lengths,
                self.bitext.target_lengths,
                tokens_per_update=self.settings.tokens_per_update,
                seed=self.settings.seed,
                epoch=self.progress.epoch,
            )
            for update in range(self.progress.update, len(plan)):
                if self.progress.step >= self.settings.steps:
                    return
                yield plan, update

    def _update(self, ids: NDArray[np.int64]) -> Tensor:
        """One update on the sentences `ids`.

        Returns [this worker's smoothed loss and likelihood sums, target pieces of the whole
        update, gradient norm].
        """
        step = self.progress.step + 1
        # A different dropout for every step and worker, the same after a resume.
        torch.manual_seed((self.settings.seed * 1_000_003 + step) * 1_009 + self.rank)
        source_lengths = self.bitext.source_lengths
        target_lengths = self.bitext.target_lengths
        target_tokens = int(target_lengths[ids].sum())
        own = share(ids, self.rank, self.world_size)
        chunks = passes(own, source_lengths, target_lengths, self.settings.tokens_per_pass)
        batches = [collate(self.bitext, chunk) for chunk in chunks]
        if not batches:
            batches = [_blank(collate(self.bitext, ids[:1]))]
        self.model.train()
        loss, likelihood = accumulate(
            self.parallel,
            batches,
            update_target_tokens=target_tokens,
            smoothing=self.settings.label_smoothing,
            world_size=self.world_size,
            precision=self.precision,
            device=self.device,
        )
        norm = apply(self.model, self.optimizer, self._learning_rate(step))
        progress = self.progress
        progress.source_tokens += int(source_lengths[ids].sum())
        progress.target_tokens += target_tokens
        progress.padded_tokens += self._padded_tokens(ids)
        progress.flops += training_flops(
            self.config.model, self.vocabulary_size, source_lengths[ids], target_lengths[ids]
        )
        count = torch.tensor(float(target_tokens), device=self.device)
        return torch.stack((loss, likelihood, count, norm))

    def _padded_tokens(self, ids: NDArray[np.int64]) -> int:
        """Pieces of both sides that all workers together compute for these sentences."""
        source_lengths, target_lengths = self.bitext.source_lengths, self.bitext.target_lengths
        return sum(
            len(chunk) * int(source_lengths[chunk].max() + target_lengths[chunk].max())
            for rank in range(self.world_size)
            for chunk in passes(
                share(ids, rank, self.world_size),
                source_lengths,
                target_lengths,
                self.settings.tokens_per_pass,
            )
        )

    def _learning_rate(self, step: int) -> float:
        return learning_rate(
            step,
            self.config.model.d_model,
            self.settings.warmup_steps,
            self.settings.learning_rate_scale,
        )

    def _curves(self, window: _Window) -> dict[str, float]:
        sums = window.sums.clone()
        # The loss is spread over workers; count and norm are the same on each.
        shared = sums[:2].clone()
        self._add_up(shared)
        loss, likelihood = (float(x) for x in shared)
        tokens, norms = float(sums[2]), float(sums[3])
        rate = window.updates / window.seconds
        metrics = {
            "loss": loss / tokens,
            "perplexity": perplexity(likelihood / tokens),
            "gradient_norm": norms / window.updates,
            "learning_rate": self._learning_rate(self.progress.step),
            "tokens_per_second": tokens / window.seconds,
            "seconds_left": (self.settings.steps - self.progress.step) / rate,
            "epoch": float(self.progress.epoch),
        }
        if not math.isfinite(metrics["loss"]) or not math.isfinite(metrics["gradient_norm"]):
            raise UserError(
                f"loss {metrics['loss']} and gradient norm {metrics['gradient_norm']} at step "
                f"{self.progress.step}: the run diverged; lower train.learning_rate_scale or "
                "raise train.warmup_steps"
            )
        self.newest.update({key: metrics[key] for key in ("loss", "perplexity")})
        return metrics

    def _validate(self) -> dict[str, float]:
        """Loss and perplexity per piece on the validation set, without smoothing or dropout."""
        likelihood, pieces = negative_log_likelihood(
            self.model,
            self.valid,
            tokens_per_pass=self.settings.tokens_per_pass,
            precision=self.precision,
            device=self.device,
            rank=self.rank,
            world_size=self.world_size,
        )
        sums = torch.tensor([likelihood, pieces], dtype=torch.float64, device=self.device)
        self._add_up(sums)
        loss = float(sums[0] / sums[1])
        return {"valid_loss": loss, "valid_perplexity": perplexity(loss)}

    def _add_up(self, sums: Tensor) -> None:
        if self.world_size > 1:
            dist.all_reduce(sums)

    def _write(self, folder: Path) -> None:
        state.save(folder, self.model, self.optimizer, self.progress, self.identity())

    def _totals(self) -> dict[str, float]:
        progress = self.progress
        return {
            "step": progress.step,
            "target_tokens": progress.target_tokens,
            "flops": progress.flops,
        }

    def _summary(self) -> dict[str, float | str]:
        progress = self.progress
        real = progress.source_tokens + progress.target_tokens
        return self._totals() | {
            "epochs": progress.epoch,
            "source_tokens": progress.source_tokens,
            "train_seconds": progress.train_seconds,
            "wall_seconds": progress.wall_seconds,
            "tokens_per_second": progress.target_tokens / max(progress.train_seconds, 1e-9),
            "padding_share": 1 - real / max(progress.padded_tokens, 1),
            "precision": self.precision,
            "workers": self.world_size,
            "device": (
                torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"
            ),
        }


class _Window:
    """Sums since the last console line, kept on the device so that no step waits for them.

    seconds: time spent on updates alone, without validation and checkpoints.
    """

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(4, device=device)
        self.updates = 0
        self.seconds = 0.0

    def add(self, update: Tensor) -> None:
        self.sums += update
        self.updates += 1

    def synchronise(self) -> None:
        """Wait for a GPU's queue, so that the clock tells the truth."""
        if self.sums.is_cuda:
            torch.cuda.synchronize(self.sums.device)


def _blank(batch: Batch) -> Batch:
    """The same batch with nothing to learn: for a worker that an update has no sentence for.

    It must still take part, since the others wait for its gradients.
    """
    return Batch(batch.source, batch.target_in, torch.zeros_like(batch.target_out))


def _check_lengths(config: Config, *bitexts: Bitext) -> None:
    if config.model.positions == "learned":
        longest = max(
            int(lengths.max()) for b in bitexts for lengths in (b.source_lengths, b.target_lengths)
        )
        if longest > LEARNED_POSITIONS:
            raise UserError(
                f"model.positions is learned, for sentences of at most {LEARNED_POSITIONS} "
                f"pieces, but the data has one of {longest}: lower prepare.max_words or use "
                "sinusoidal"
            )
