"""One way to train a model of some size: `python -m benchmarks.contenders NAME FOLDER ...`.

It answers questions, as `benchmarks.processes` has them: [first, count] trains on so many batches
from that one on, and gives seconds, real target tokens and the peak of memory so far.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from benchmarks.processes import serve
from benchmarks.sizes import LEARNING_RATE, SIZES, SMOOTHING, Size

Precision = Literal["float32", "bf16"]
Update = Callable[[Any], None]

MAKERS = {
    "ours": "benchmarks.contenders", "ours_compiled": "benchmarks.contenders",
    "products": "benchmarks.contenders", "plain": "benchmarks.handwritten",
    "hand": "benchmarks.handwritten", "hand_compiled": "benchmarks.handwritten",
    "marian": "benchmarks.toolkits", "joey": "benchmarks.toolkits",
    "eole": "benchmarks.toolkits", "sockeye": "benchmarks.toolkits",
    "ours_recurrent": "benchmarks.rivals", "joey_recurrent": "benchmarks.rivals",
    "ours_convolutional": "benchmarks.rivals", "fairseq_convolutional": "benchmarks.rivals",
}  # fmt: skip
"""Where the function of that name is: (size, precision) -> an update on a batch."""
ONEDNN_DEFAULT = "1024"
"""Entries of each of oneDNN's caches by shape, where nobody limits them: the others are faster with
so many, and need half a gigabyte more."""


def main() -> None:
    """Build the model, then answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("folder", type=Path, help="the encoded text")
    parser.add_argument("--size", choices=SIZES, default="4x256")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    serve(trainer(options))


def trainer(options: argparse.Namespace) -> Callable[[Any], dict[str, Any]]:
    """What answers."""
    import torch

    from benchmarks import corpus
    from seq2sweep.data.batching import collate
    from seq2sweep.train.allocator import CACHES, PROCESS_ENVIRONMENT, keep_memory

    own = options.name.startswith("ours")
    os.environ.update({k: PROCESS_ENVIRONMENT[k] if own else ONEDNN_DEFAULT for k in CACHES})
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    size = SIZES[options.size]
    data, groups = corpus.batches(options.folder, size.tokens)
    make = getattr(importlib.import_module(MAKERS[options.name]), options.name)
    update: Update = make(size, options.precision)

    def answer(question: tuple[int, int]) -> dict[str, Any]:
        first, count = question
        seconds, tokens = 0.0, 0
        for i in range(first, first + count):
            batch = collate(data, groups[i % len(groups)])
            if options.name == "products":
                update(batch)  # oneDNN makes a kernel for each new shape
            before = time.perf_counter()
            update(batch)
            seconds += time.perf_counter() - before
            tokens += int(batch.target_out.ne(0).sum())
        return {"seconds": seconds, "tokens": tokens, "peak_megabytes": peak_megabytes()}

    return answer


def told_by(command: list[str]) -> dict[str, Any]:
    """The JSON that a turn in a process of its own prints, or why there is none, as `absent`."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing said"]
        return {"absent": f"failed: {lines[-1]}"}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def peak_megabytes() -> float:
    """Of memory that this process had at most."""
    import torch

    from seq2sweep.hardware import memory_of_process

    return memory_of_process(torch.device("cpu"))["peak_rss_bytes"] / 1e6


def ours(
    size: Size,
    precision: Precision,
    architecture: str = "transformer",
    compiled: bool = False,
) -> Update:
    """The core's own update. compiled: with `train.compile`."""
    import torch

    from seq2sweep.model.building import build
    from seq2sweep.train import optimizers, step, updates
    from seq2sweep.train.compiled import compile_layers

    model = build(size.config(architecture), size.vocabulary).train()
    optimizer, device = optimizers.make_adam(model), torch.device("cpu")
    if compiled:
        compile_layers(model, device)

    def update(batch: Any) -> None:
        if precision == "bf16":
            batch = updates.filled(batch, updates.capacity(size.tokens))
        step.accumulate(
            model,
            [batch],
            update_target_tokens=int(batch.target_out.ne(0).sum()),
            smoothing=SMOOTHING,
            world_size=1,
            precision=precision,
            device=device,
            compiled=compiled,
        )
        step.apply(model, optimizer, LEARNING_RATE)

    return update


def ours_compiled(size: Size, precision: Precision) -> Update:
    """The same with compiled layers."""
    return ours(size, precision, compiled=True)


def products_of(size: Size) -> list[tuple[str, int, int]]:
    """The products of a token with the weights: which side's tokens, from and to which width."""
    model, heads = size.d_model, size.heads * size.head
    wide = [(model, size.d_ff), (size.d_ff, model)]
    own = [(model, 3 * heads), (heads, model)]
    encoder = [("source", *each) for each in own + wide]
    decoder = [("target", *each) for each in [*own, (model, heads), (heads, model), *wide]]
    decoder += [("source", model, 2 * heads)]
    return size.layers * (encoder + decoder) + [("target", model, size.vocabulary)]


def products(size: Size, precision: Precision) -> Update:
    """The floor: for each real token the products alone, forward and the two of the backward pass.

    Those of attention, between tokens, are left out. By the faster library, as ours are.
    """
    import torch

    from seq2sweep.model.products import multiply, weight_gradient

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    weights = [
        (side, torch.randn(width, inner, dtype=dtype)) for side, inner, width in products_of(size)
    ]
    made: dict[int, Any] = {}

    def numbers(rows: int, width: int) -> Any:
        if width not in made or len(made[width]) < rows:
            made[width] = torch.randn(rows, width, dtype=dtype)
        return made[width][:rows]

    def update(batch: Any) -> None:
        tokens = {"source": batch.source, "target": batch.target_in}
        for side, weight in weights:
            rows = int(tokens[side].ne(0).sum())
            states, gradient = (numbers(rows, width) for width in reversed(weight.shape))
            multiply(states, weight)
            multiply(gradient, weight.T)
            weight_gradient(gradient, states)

    return update


if __name__ == "__main__":
    main()
