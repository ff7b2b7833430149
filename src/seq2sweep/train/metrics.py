"""What a training says of itself: sums of the curves' next line, and totals of the whole run."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seq2sweep import hardware
from seq2sweep.train.distributed import add_up, all_gather


@dataclass
class Window:
    """Sums since the last console line, as `OpenWindow` keeps them.

    sums: of each worker. flops_before: the run's total when the window was opened.
    """

    sums: list[list[float]] = field(default_factory=list)
    updates: int = 0
    seconds: float = 0.0
    flops_before: float = 0.0


@dataclass
class Progress:
    """Where training stands: `epoch` and `update` name the next update's place in the data.

    Totals count from the very first step, over all resumed parts, each with its own workers.
    `skipped_updates` had no finite gradient and changed nothing; `skipped_in_a_row` of them came
    last. `newest` is the last value of each metric of the curves, those of a validation from step
    `validated`. `stalls` counts validations from the first one on whose loss was not below
    `lowest_valid_loss`. `flops` are those of the real tokens; `padded_flops` count what was
    computed, padding and all. `train_seconds` is time spent on updates, `device_seconds` the same
    summed over workers; `wall_seconds` and `energy_joules` have validation and checkpoints in them.
    `peak_flops` is what the devices could have done in that time at their peak,
    `paper_rule_flops` what they did by the paper's rule. None: unknown of some part.
    """

    step: int = 0
    epoch: int = 0
    update: int = 0
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    flops: float = 0.0
    padded_flops: float = 0.0
    peak_flops: float | None = 0.0
    paper_rule_flops: float | None = 0.0
    train_seconds: float = 0.0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    energy_joules: float | None = 0.0
    newest: dict[str, float] = field(default_factory=dict)
    validated: int = 0
    lowest_valid_loss: float | None = None
    stalls: int = 0
    window: Window = field(default_factory=Window)

    def add_validation(self, metrics: dict[str, float]) -> None:
        """Take in the metrics of a validation at this very step."""
        self.newest.update(metrics)
        self.validated = self.step
        loss, lowest = metrics["valid_loss"], self.lowest_valid_loss
        fell = math.isfinite(loss) and (lowest is None or loss < lowest)
        # Once it has stalled every validation counts.
        self.stalls += bool(self.stalls) or not fell
        if fell:
            self.lowest_valid_loss = loss

    @property
    def valid_loss(self) -> float | None:
        """Of a validation at this very step; None if there was none, or it is not finite."""
        loss = self.newest.get("valid_loss", math.nan)
        return loss if self.validated == self.step and math.isfinite(loss) else None


class OpenWindow:
    """Sums since the last console line, kept on the device so that no step waits for them.

    A checkpoint in between keeps them, so that the next line says what it would have said.
    sums [5]: this worker's smoothed loss and likelihood, target pieces, gradient norms and updates
    that counted; updates: all of them, also those that were skipped;
    seconds: time spent on updates alone, without validation and checkpoints; flops_before: the
    run's total when the window was opened.
    """

    def __init__(
        self, device: torch.device, progress: Progress, rank: int, world_size: int
    ) -> None:
        before = progress.window
        self.flops_before = before.flops_before
        self.updates = before.updates
        self.seconds = before.seconds
        sums = torch.tensor(before.sums or [[0.0] * 5], dtype=torch.float32, device=device)
        if len(sums) == world_size:
            self.sums = sums[rank]
        else:
            # Of another number of workers. What is spread over workers is the first one's now; the
            # others' target pieces, norms and updates are the same on each.
            self.sums = sums[0].clone()
            self.sums[:2] = sums[:, :2].sum(dim=0) if rank == 0 else 0.0

    def add(self, update: Tensor) -> None:
        """Add an update's own `sums`, zeros if it was skipped."""
        self.sums += update
        self.updates += 1

    def state(self, world_size: int) -> Window:
        """What a checkpoint keeps of it; every worker must call this."""
        every = [torch.zeros_like(self.sums) for _ in range(world_size)]
        if world_size > 1:
            all_gather(every, self.sums)
        else:
            every = [self.sums]
        sums = [worker.tolist() for worker in every]
        return Window(sums, self.updates, self.seconds, self.flops_before)

    def synchronise(self) -> None:
        """Wait for a GPU's queue, so that the clock tells the truth."""
        if self.sums.is_cuda:
            torch.cuda.synchronize(self.sums.device)


class Meter:
    """Books time, energy and operations of a run into its `Progress`; every worker has one.

    peak_flops_per_second: what the devices of all workers could do; paper_flops_per_second: what
    they do by the paper's rule; None: not known of one of them. origin: hardware.origin.
    """

    def __init__(
        self,
        progress: Progress,
        device: torch.device,
        precision: hardware.Precision,
        world_size: int,
        tokens_per_pass: int,
    ) -> None:
        """Every worker must call this."""
        self.progress, self.device, self.world_size = progress, device, world_size
        name = hardware.device_name(device)
        self.origin = hardware.origin(name, precision, world_size, tokens_per_pass)
        self.peak_flops_per_second = self._sum(hardware.peak_flops(name, precision))
        self.paper_flops_per_second = self._sum(hardware.paper_rule(1.0, 1, name))
        self._energy = hardware.energy_counter(device)
        self._wall: tuple[float, float | None] = (0.0, None)

    def start(self) -> None:
        """Time and energy count from here on."""
        self._wall = time.perf_counter(), self._energy()

    def book_training(self, seconds: float) -> None:
        """Add time that was spent on updates."""
        progress = self.progress
        progress.train_seconds += seconds
        progress.device_seconds += seconds * self.world_size
        peak, paper = self.peak_flops_per_second, self.paper_flops_per_second
        progress.peak_flops = _add(progress.peak_flops, peak and peak * seconds)
        progress.paper_rule_flops = _add(progress.paper_rule_flops, paper and paper * seconds)

    def book_wall(self) -> None:
        """Add time and energy since the last call or `start`. Every worker must call this."""
        progress, before = self.progress, self._wall
        self.start()
        now = self._wall
        progress.wall_seconds += now[0] - before[0]
        used = None if now[1] is None or before[1] is None else now[1] - before[1]
        progress.energy_joules = _add(progress.energy_joules, self._sum(used))

    def totals(self) -> dict[str, float | None]:
        """What the run has cost so far."""
        progress = self.progress
        joules, peak = progress.energy_joules, progress.peak_flops
        return {
            "step": progress.step,
            "target_tokens": progress.target_tokens,
            "flops": progress.flops,
            "padded_flops": progress.padded_flops,
            "paper_rule_flops": progress.paper_rule_flops,
            "flops_per_second": progress.flops / max(progress.device_seconds, 1e-9),
            "mfu": progress.flops / peak if peak else None,
            "wall_seconds": progress.wall_seconds,
            "device_hours": progress.device_seconds / 3600,
            "energy_kwh": None if joules is None else joules / 3.6e6,
        }

    def summary(self) -> dict[str, float | str | None]:
        """`totals` and more, at the end of the run."""
        progress = self.progress
        return self.totals() | {
            "epochs": progress.epoch,
            "skipped_updates": progress.skipped_updates,
            "source_tokens": progress.source_tokens,
            "train_seconds": progress.train_seconds,
            "tokens_per_second": progress.target_tokens / max(progress.train_seconds, 1e-9),
            "padding_share": 1 - progress.flops / max(progress.padded_flops, 1.0),
            **self.origin,
            **hardware.memory_of_process(self.device),
        }

    def _sum(self, value: float | None) -> float | None:
        """Over all workers, each of which must call this; None if one of them has None."""
        value = math.nan if value is None else value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        add_up(total, self.world_size)
        return None if total.isnan() else float(total)


def _add(total: float | None, amount: float | None) -> float | None:
    """The sum, which is unknown for ever as soon as one part is."""
    return None if total is None or amount is None else total + amount
