"""One answer to a question that each worker answers for itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from seq2sweep.train.collective import all_reduce


class Agreement:
    """Whether any worker says yes, known to all of them at the same update, one late.

    Late, because then nobody waits: the answer has been on its way during a whole update.
    """

    def __init__(self, world_size: int) -> None:
        self.alone = world_size == 1
        # Over the CPUs, as asking a GPU would mean to wait for its queue.
        nccl = not self.alone and dist.get_backend() != "gloo"
        self.group = dist.new_group(backend="gloo") if nccl else None
        self.asked: tuple[Tensor, Any] | None = None

    def __call__(self, mine: bool) -> bool:
        """Ask, and get the answer to what was asked the last time."""
        if self.alone:
            return mine
        answer = False
        if self.asked is not None:
            said, under_way = self.asked
            under_way.wait()
            answer = bool(said)
        said = torch.tensor(float(mine))
        under_way = all_reduce(said, dist.ReduceOp.MAX, group=self.group, async_op=True)
        self.asked = said, under_way
        return answer

    def settle(self) -> None:
        """Wait for what is under way: a worker that is gone would be missed by the others."""
        if self.asked is not None:
            self.asked[1].wait()
