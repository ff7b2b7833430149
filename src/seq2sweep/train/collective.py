"""Sums over all workers that cannot hang whoever ends."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor
from torch import distributed as dist

_lent: deque[Tensor] = deque(maxlen=64)
"""Views of what was last handed to the process group.

A thread of gloo's lets go of a tensor some time after its sum is known. Were that the last
reference beside Python's own, the thread would have to wait for Python's lock, which whoever
destroys the process group holds while waiting for that thread (torch 2.13): neither would ever get
on. A view holds its tensor in that sense.
"""


def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, **options: Any) -> Any:
    """As torch.distributed's, of a tensor that stays in memory for a while."""
    _lent.append(tensor.view_as(tensor))
    return dist.all_reduce(tensor, op, **options)


def all_gather(tensors: list[Tensor], tensor: Tensor) -> None:
    """As torch.distributed's, of tensors that stay in memory for a while."""
    _lent.extend(each.view_as(each) for each in (*tensors, tensor))
    dist.all_gather(tensors, tensor)
