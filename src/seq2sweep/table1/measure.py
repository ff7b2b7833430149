"""All of Table 1 measured on this machine, as one record that the report reads."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import Table1Config
from seq2sweep.errors import UserError
from seq2sweep.hardware import cpu_features, own_groups
from seq2sweep.model import products
from seq2sweep.table1 import path_length
from seq2sweep.table1.exponents import fit
from seq2sweep.table1.layer_types import build
from seq2sweep.table1.operations import counted_flops, longest_chain, saved_bytes
from seq2sweep.table1.rows import BOTH, FORWARD, Row, chosen
from seq2sweep.table1.timing import CLOCKS, clock_of, interleaved

FULL: Mapping[str, Any] = {
    "lengths": (32, 64, 128, 256, 512, 1024, 2048),
    "widths": (64, 128, 256, 512),
    "repeats": 7,
}
"""What `seq2sweep table1` measures, where the stage, which is part of every `dvc repro`, measures
less."""
BOTH_WAYS = (4, 8, 16, 32)
"""Lengths whose longest paths are found in both ways."""
CHAIN_LENGTHS = (8, 16, 32, 64)
LONGEST_SEARCH = 512
"""Beyond it a layer's closed form says how long paths are, where it has one: a search takes more
than four times as long for twice the length, and minutes at 4096."""
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One layer at one size, with its input x [1, n, d]."""

    row: Row
    n: int
    d: int
    layer: nn.Module
    x: Tensor

    def forward(self) -> None:
        """As for inference: nothing is kept."""
        with torch.no_grad():
            self.layer(self.x)

    def both(self) -> None:
        """As in training: with the gradients of the input and of all weights."""
        out = self.layer(self.x)
        torch.autograd.grad(out, [self.x, *self.layer.parameters()], torch.ones_like(out))


def measure(settings: Table1Config, about: Mapping[str, str]) -> dict[str, Any]:
    """The record of reports/table1.json. about: of the machine and the code, as it is shown.

    Keys: format, settings, about, measurements (one a layer, n and d), chains, paths, exponents.
    Raises UserError for sizes that this machine has no memory for.
    """
    check_memory(settings)
    rows = chosen(settings.layers)
    started, load = time.perf_counter(), os.getloadavg()[0]
    clock = clock_of(settings.threads)
    cases = list(_cases(settings, rows))
    with _threads(settings.threads), _one_library():
        structure = {
            row.name: _structure(row, settings)
            for row in console.progress(rows, "paths and chains", "layers")
        }
        counts = [
            _counted(case, settings)
            for case in console.progress(cases, "operations and memory", "sizes")
        ]
        works = {
            (place, what): work
            for place, case in enumerate(cases)
            for what, work in ((FORWARD, case.forward), (BOTH, case.both))
        }
        total = len(works) * (1 + settings.repeats)
        with tqdm(total=total, **console.bar("times", "timings")) as bar:
            begun, used = time.perf_counter(), time.process_time()
            seconds = interleaved(works, settings.repeats, bar.update, CLOCKS[clock])
            share = (time.process_time() - used) / (time.perf_counter() - begun)
    measurements = [
        counted | {what: _summary(seconds[place, what]) for what in (FORWARD, BOTH)}
        for place, counted in enumerate(counts)
    ]
    return {
        "settings": dataclasses.asdict(settings),
        "about": {
            **about,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "seconds": round(time.perf_counter() - started, 1),
            "load": round(load, 2),
            # With several threads some wait for each other, whatever else runs.
            "cpu_share": round(share, 3) if settings.threads == 1 else None,
            "threads": settings.threads,
            "clock": clock,
            "precision": settings.precision,
            "torch": torch.__version__,
            "kernels": cpu_features(),
        },
        "measurements": measurements,
        "chains": {name: found["chain"] for name, found in structure.items()},
        "paths": {name: found["paths"] for name, found in structure.items()},
        "exponents": {row.name: _exponents(row, measurements) for row in rows},
    }


def _cases(settings: Table1Config, rows: list[Row]) -> Iterator[Case]:
    dtype = DTYPES[settings.precision]
    k, r = settings.kernel, settings.neighbourhood
    torch.manual_seed(1)
    inputs = {
        (n, d): torch.randn(1, n, d).to(dtype).requires_grad_()
        for d in settings.widths
        for n in settings.lengths
    }
    for row in rows:
        for d in settings.widths:
            layer = build(row.name, d, k, r).to(dtype)
            for n in settings.lengths:
                yield Case(row, n, d, layer, inputs[n, d])


def _counted(case: Case, settings: Table1Config) -> dict[str, Any]:
    k, r = settings.kernel, settings.neighbourhood
    return {
        "layer": case.row.name,
        "n": case.n,
        "d": case.d,
        "flops": case.row.flops(case.n, case.d, k, r),
        "flops_counted": counted_flops(case.row.name, case.n, case.d, k, r),
        "parameters": sum(parameter.numel() for parameter in case.layer.parameters()),
        "saved_bytes": saved_bytes(case.layer, case.x),
    }


def _structure(row: Row, settings: Table1Config) -> dict[str, Any]:
    """Chains by n, and paths, which are found by derivatives too where n is small."""
    k, r = settings.kernel, settings.neighbourhood
    paths = []
    for n in sorted({*BOTH_WAYS, *settings.lengths}):
        found: dict[str, Any] = {"n": n, "order": row.order(n, k, r)}
        for way, causal in (("both", False), ("causal", True)):
            found[way] = _path(row, n, k, r, causal=causal)
            if n in BOTH_WAYS:
                again = path_length.by_jacobian(row.name, n, k, r, causal=causal)
                found[f"{way}_by_jacobian"] = again
        paths.append(found)
    chain = {str(n): longest_chain(row.name, n, k, r) for n in CHAIN_LENGTHS}
    return {"chain": chain, "paths": paths}


def _path(row: Row, n: int, k: int, r: int, *, causal: bool) -> int | None:
    form = (row.path_causal if causal else row.path_both)(n, k, r)
    if n > LONGEST_SEARCH and form is not None:
        return form
    return path_length.by_graph(row.name, n, k, r, causal=causal)


def _summary(seconds: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return {"seconds": median, "low_quartile": low, "high_quartile": high}


def _exponents(row: Row, measurements: list[dict[str, Any]]) -> dict[str, Any]:
    own = {(m["n"], m["d"]): m for m in measurements if m["layer"] == row.name}
    return {
        "flops": fit({size: m["flops_counted"] for size, m in own.items()}),
        **{what: fit({s: m[what]["seconds"] for s, m in own.items()}) for what in (FORWARD, BOTH)},
    }


def check_memory(settings: Table1Config) -> None:
    """Raise UserError where the largest layer would need more than half of the free memory."""
    size = torch.finfo(DTYPES[settings.precision]).bits // 8
    n, d = settings.lengths[-1], settings.widths[-1]
    # Of forward and backward: gates of an LSTM, windows of restricted attention, what a convolution
    # adds up, weights and their gradients; and, where no fused kernel serves, all scores.
    numbers = sum(settings.lengths) * sum(settings.widths)  # all inputs are there at once
    numbers += n * d * max(40, 4 * settings.kernel) + d * d * (40 + 4 * settings.kernel)
    numbers += 6 * n * (settings.neighbourhood + 16) * max(1, d // 64)
    if settings.precision != "float32":
        numbers += 6 * n * n * max(1, d // 64)
    free = min([psutil.virtual_memory().available, *(left for _, left in own_groups())])
    needed = numbers * size
    if needed > free / 2:
        raise UserError(
            f"table1.lengths up to {n} with table1.widths up to {d} need about "
            f"{needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free, of which "
            "half may be taken: lower one of them"
        )


@contextlib.contextmanager
def _one_library() -> Iterator[None]:
    """Products of all sizes are PyTorch's own: by one that multiplies only large ones, and faster,
    an exponent would be that of the change from one library to the other."""
    before, products.LARGE = products.LARGE, sys.maxsize
    try:
        yield
    finally:
        products.LARGE = before


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
