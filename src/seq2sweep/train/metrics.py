"""What the curves say next: sums over the updates since the last console line."""

from __future__ import annotations

import torch
from torch import Tensor

from seq2sweep.train import checkpointing
from seq2sweep.train.distributed import all_gather


class OpenWindow:
    """Sums since the last console line, kept on the device so that no step waits for them.

    A checkpoint in between keeps them, so that the next line says what it would have said.
    sums [5]: this worker's smoothed loss and likelihood, target pieces, gradient norms and updates
    that counted; updates: all of them, also those that were skipped;
    seconds: time spent on updates alone, without validation and checkpoints; flops_before: the
    run's total when the window was opened.
    """

    def __init__(
        self, device: torch.device, progress: checkpointing.Progress, rank: int, world_size: int
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

    def state(self, world_size: int) -> checkpointing.Window:
        """What a checkpoint keeps of it; every worker must call this."""
        every = [torch.zeros_like(self.sums) for _ in range(world_size)]
        if world_size > 1:
            all_gather(every, self.sums)
        else:
            every = [self.sums]
        sums = [worker.tolist() for worker in every]
        return checkpointing.Window(sums, self.updates, self.seconds, self.flops_before)

    def synchronise(self) -> None:
        """Wait for a GPU's queue, so that the clock tells the truth."""
        if self.sums.is_cuda:
            torch.cuda.synchronize(self.sums.device)
