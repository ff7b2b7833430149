"""Bytes and kernels of `planning.roofline`, counted anew: `python -m tests.planning.recount`.

Prints COUNTED and LAUNCHES: the numbers by which bytes and kernels of updates of many sizes, as
`benchmarks.count` counts them, are linear. With names of models and a file it writes what it counts
of them, for `tests/planning/test_roofline.py`. Runs where `benchmarks.fake_cuda` is loaded.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import count, fake_cuda
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config, TransformerConfig
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import PAD
from seq2sweep.planning import roofline
from seq2sweep.planning.roofline import Share
from seq2sweep.train import loop, updates
from seq2sweep.train.loss import CHUNK

PAIRS = 20_000
DESIGNS = 45


def counted(config: Config, means: tuple[float, float], size: int, spread: float) -> dict[str, Any]:
    """Of one update on made-up pairs of such mean lengths: its share, and the parts' counts.

    spread: 0 for pairs that are all alike, of which nothing is padded; 1 for usual ones.
    """
    seen: list[Any] = []
    made = loop.updates

    def noted(*arguments: Any) -> Iterator[Any]:
        for update in made(*arguments):
            seen.append(update)
            yield update

    with (
        fake_cuda.gpu(),
        mock.patch.object(count, "made_up", return_value=_pairs(means, size, spread)),
        mock.patch.object(count, "VOCABULARY", size),
        mock.patch.object(loop, "updates", noted),
    ):
        found = count.count(config, updates=1, warm_up=1)
    update = seen[1]
    rows = CHUNK[False] // size
    return {
        "share": (update.source_tokens, update.target_tokens, update.flops, len(update.batches)),
        "size": size,
        "chunks": sum(-(-len(batch.target) // rows) for batch in update.batches),
        "parts": {k: vars(v) for k, v in found.parts.items()},
    }


@functools.lru_cache(maxsize=1)
def _pairs(means: tuple[float, float], size: int, spread: float) -> Bitext:
    random = np.random.default_rng(0)
    shared = 1 + spread * (random.gamma(2.5, 0.4, PAIRS) - 1)
    sides = []
    for mean in means:
        drawn = shared * mean * random.normal(1.0, 0.1 * spread, PAIRS)
        lengths = np.clip(drawn, 2, 250).astype(np.int32)
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        pieces = random.integers(PAD + 1, size, int(offsets[-1]), dtype=np.int64)
        sides.append(Side(pieces, offsets, lengths))
    header = {"vocabulary": {"size": size, "fingerprint": "made up"}, "fingerprint": "made up"}
    return Bitext(header, *sides)


def print_anew(precision: Any) -> None:
    """COUNTED and LAUNCHES of a precision, by least squares over updates of random sizes."""
    random = np.random.default_rng(1)
    rows, kernels, bytes_of = [], [], []
    for _ in range(DESIGNS):
        changes = {
            "model.layers": int(random.integers(1, 4)),
            **{f"model.{k}": 64 * int(random.integers(4, 11)) for k in ("d_model", "d_ff")},
            "model.heads": int(random.integers(2, 9)),
            **{f"model.{k}": 16 * int(random.integers(2, 7)) for k in ("d_k", "d_v")},
            "train.tokens_per_update": int(random.integers(6000, 12000)),
            "train.tokens_per_pass": int(random.integers(3000, 13000)),
            "train.precision": precision,
        }
        config = configuration.with_changes(presets.load("wmt14-en-de-base").config, changes)
        means = float(random.integers(10, 30)), float(random.integers(10, 30))
        # Without the blank sentences that round a pass up: bytes are linear in what is there. With
        # less at a time, so that a pass has several chunks of logits.
        few = {False: 1 << int(random.integers(22, 26))}
        with (
            mock.patch.object(updates, "filled", lambda batch, _: batch),
            mock.patch.dict(CHUNK, few),
        ):
            found = counted(config, means, int(random.integers(2000, 16000)), 0.0)
        model, share = config.model, Share(*found["share"])
        assert isinstance(model, TransformerConfig)
        # Of an update whose passes are not all alike the formula has about so many.
        with mock.patch.object(roofline, "chunks", return_value=found["chunks"]):
            rows.append(roofline.numbers(model, found["size"], share))
            kernels.append(roofline.kernel_numbers(model, found["size"], share))
        bytes_of.append(found["parts"])
    for part in roofline.COUNTED[precision]:
        total = [each[part]["read"] + each[part]["written"] for each in bytes_of]
        print(f'"{part}":', _solved(rows, total))
    total = [sum(part["launches"] for part in each.values()) for each in bytes_of]
    print(f'"{precision}":', _solved(kernels, total))


def _solved(rows: list[Any], total: list[float]) -> tuple[int, ...]:
    """By relative errors."""
    scaled = np.array(rows, float) / np.array(total)[:, None]
    widths = np.linalg.norm(scaled, axis=0)
    found = np.linalg.lstsq(scaled / widths, np.ones(len(total)), rcond=None)[0]
    return tuple(int(each) for each in np.rint(found / widths))


def main() -> int:
    if not fake_cuda.is_loaded():
        return fake_cuda.run_with_it("tests.planning.recount", sys.argv[1:])
    *names, file = sys.argv[1:] or [""]
    if not names:
        for precision in roofline.COUNTED:
            print_anew(precision)
        return 0
    result = {}
    configs = dict(count.configurations(["base", "big", "rows"]))
    for name in names:
        row, _, precision = name.partition(":")
        changes = {"train.precision": precision or "bf16", "train.tokens_per_pass": 13_000}
        known = configs.get(row) or configs[f"row {row}"]
        of_row = configuration.with_changes(known, changes)
        result[name] = counted(of_row, (28.0, 29.0), count.VOCABULARY, 1.0)
    Path(file).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
