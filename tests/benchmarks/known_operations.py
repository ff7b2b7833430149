"""Operations whose counts are known by hand, faults planted in an update, and updates of models:
counted as JSON.

Runs where `benchmarks.fake_cuda` is loaded: by `tests/benchmarks/test_count.py`.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes

from benchmarks import fake_cuda
from benchmarks.count import VOCABULARY, Counter, Counts, count
from benchmarks.count import main as main_of_count
from benchmarks.gpu_run import made_up
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.train import checkpointing, loop
from seq2sweep.train.metrics import Progress

GPU = torch.device("cuda", 0)


def product() -> None:
    """[64, 32] x [32, 16] in bf16, and the gradient of one side."""
    a = torch.ones(64, 32, device=GPU, dtype=torch.bfloat16)
    b = torch.ones(32, 16, device=GPU, dtype=torch.bfloat16, requires_grad=True)
    (a @ b).backward(torch.ones(64, 16, device=GPU, dtype=torch.bfloat16))


def expanded() -> None:
    """One row of 8 numbers, seen as 100, made into 100."""
    torch.ones(8, device=GPU).expand(100, 8).clone()


def on_the_cpu() -> None:
    """Nothing of a GPU."""
    (torch.ones(3) + 1).sum()


def number() -> None:
    """A number is read back."""
    if torch.ones(3, device=GPU).sum() > 2:
        torch.ones(3, device=GPU).cpu()


def from_python() -> None:
    """A number goes there from memory that is not pinned."""
    torch.tensor(3.0, device=GPU)


def pinned() -> None:
    """Half of a pinned tensor goes there."""
    with _disable_current_modes():  # as in the thread that makes batches
        half = torch.empty(8, pin_memory=True)[4:]
    half.to(GPU, non_blocking=True)


def out() -> None:
    """To the CPU, for which it waits unless what it goes to is pinned."""
    there = torch.ones(8, device=GPU)
    with _disable_current_modes():
        plain, pinned = torch.empty(8), torch.empty(8, pin_memory=True)
    plain.copy_(there, non_blocking=True)
    pinned.copy_(there)
    pinned.copy_(there, non_blocking=True)


def checkpoint() -> None:
    """Weights and moments come to the CPU."""
    model = torch.nn.Linear(4, 3, device=GPU)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    checkpointing.capture(model, optimizer, Progress(), {})


def sizes() -> None:
    """How many there are is known on the GPU alone."""
    torch.ones(4, 3, device=GPU).nonzero()


def logits() -> None:
    """Float32 logits, which their softmax makes once more; bf16 ones; a row of the vocabulary."""
    torch.ones(5, VOCABULARY, device=GPU).softmax(-1)
    torch.ones(5, VOCABULARY, device=GPU, dtype=torch.bfloat16).exp()
    torch.ones(VOCABULARY, device=GPU).exp()


def sliced() -> None:
    """The gradient of a slice."""
    torch.ones(6, 2, device=GPU, requires_grad=True)[2:4].sum().backward()


KNOWN: list[Callable[[], None]] = [
    product, expanded, on_the_cpu, number, from_python, pinned, out, checkpoint, sizes, logits,
    sliced,
]  # fmt: skip


def planted() -> dict[str, Any]:
    """An update of a model of one layer as it is, and with faults."""
    config = configuration.with_changes(
        presets.load("wmt14-en-de-base").config, {"model.layers": 1}
    )
    accumulate = loop.accumulate

    def waiting(*arguments: Any, **options: Any) -> Any:
        loss, likelihood = accumulate(*arguments, **options)
        return loss * bool(loss > 0), likelihood

    def copying(*arguments: Any, **options: Any) -> Any:
        loss, likelihood = accumulate(*arguments, **options)
        return loss, likelihood + torch.tensor(0.0, device=GPU)

    def widening(*arguments: Any, **options: Any) -> Any:
        loss, likelihood = accumulate(*arguments, **options)
        return loss + torch.zeros(100, VOCABULARY, device=GPU).sum(), likelihood

    found = {}
    for change in (accumulate, waiting, copying, widening):
        with mock.patch.object(loop, "accumulate", change), fake_cuda.gpu():
            found[change.__name__] = count(config, updates=1, warm_up=1).per_update()
    return found


def main() -> None:
    """Write what is counted to the file that is named; the rest is `benchmarks.count`'s arguments,
    which names a file of its own."""
    found: dict[str, Any] = {}
    for operation in KNOWN:
        counts = Counts()
        with fake_cuda.gpu(), Counter(VOCABULARY, counts):
            operation()
        parts = {name: vars(part) for name, part in counts.parts.items()}
        found[operation.__name__] = vars(counts) | {"parts": parts}
    # All of it on the same pairs, whose making takes longer than an update.
    with mock.patch("benchmarks.count.made_up", functools.cache(made_up)):
        found["planted"] = planted()
        file = Path(sys.argv.pop(1))
        assert main_of_count() == 0
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
