"""Processes of tests that train, forked from one that has loaded what takes seconds to load."""

from __future__ import annotations

import faulthandler
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

# An optimizer loads torch._dynamo, and sharded weights torch.distributed.fsdp.
LOADED = ["tests.conftest", "seq2sweep.train.loop", "torch._dynamo", "torch.distributed.fsdp"]


def forking() -> ForkServerContext:
    """Where such processes are made; the one that forks them is started with the first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context


def run_together(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """One process for each tuple of arguments, all at once, to their ends."""
    context = forking()
    workers: list[ForkServerProcess] = [
        context.Process(target=_call, args=(target, *each)) for each in arguments
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    # All are told: where one dies by a signal, the others fail for want of it.
    assert [worker.exitcode for worker in workers] == [0] * len(workers)


def _call(target: Callable[..., None], *arguments: Any) -> None:
    # So that a segmentation fault, of gloo's threads for one, tells where it was.
    faulthandler.enable()
    target(*arguments)
