"""What the parts of `benchmarks.gpu` share: the device, the time, made-up data, a training on it.

Pieces are random, in sentences of WMT14's lengths; updates of 25 000 tokens a side, vocabulary
37 000.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import PAD
from seq2sweep.train import loop
from seq2sweep.train.updates import Update

VOCABULARY = 37_000
PAIRS = 120_000
WINDOW = 10
"""Updates of a line of the log."""
SETTLED = 300
"""Updates until most shapes of passes were there before, and are CUDA graphs."""
TINY = {"layers": 1, "d_model": 64, "d_ff": 128, "heads": 2, "d_k": 32, "d_v": 32}


@dataclass(frozen=True)
class Run:
    """What a part is told. until: perf_counter() when it should be done. write: keep a result."""

    device: torch.device
    tiny: bool
    until: float
    write: Callable[[Any], None]

    @property
    def on_gpu(self) -> bool:
        """Whether there is a queue to wait for, and memory of its own."""
        return self.device.type == "cuda"

    def left(self) -> float:
        """Seconds."""
        return self.until - time.perf_counter()

    def config(self, name: str, changes: dict[str, Any] | None = None) -> Config:
        """Of a preset, made tiny where that is asked for."""
        config = presets.load(f"wmt14-en-de-{name}").config
        every = dict(changes or {})
        if self.tiny:
            every |= {f"model.{key}": value for key, value in TINY.items()}
            every |= {"train.tokens_per_update": 500, "train.tokens_per_pass": 300}
        return configuration.with_changes(config, every)

    def now(self) -> float:
        """When all that was asked of the device is done."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def made_up(tiny: bool) -> Bitext:
    """Random pieces in sentences of about WMT14's lengths: 28 and 29 pieces, alike in a pair."""
    random = np.random.default_rng(0)
    pairs = PAIRS // 100 if tiny else PAIRS
    drawn = np.clip(random.gamma(2.5, 11.2, pairs), 2, 250)
    other = np.clip(drawn * random.normal(1.04, 0.2, pairs), 2, 250)
    size = 500 if tiny else VOCABULARY
    sides = []
    for lengths in (drawn.astype(np.int32), other.astype(np.int32)):
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        pieces = random.integers(PAD + 1, size, int(offsets[-1]), dtype=np.int64)
        sides.append(Side(pieces, offsets, lengths))
    return Bitext(
        {"vocabulary": {"size": size, "fingerprint": "made up"}, "fingerprint": "made up"}, *sides
    )


@contextlib.contextmanager
def each_update(watch: Callable[[Callable[[], Tensor], Update], Tensor]) -> Iterator[None]:
    """Within, `watch` is given each update of a training, and makes it by calling the first."""
    update = loop._Training._update

    def watched(self: Any, given: Update) -> Tensor:
        return watch(partial(update, self, given), given)

    with mock.patch.object(loop._Training, "_update", watched):
        yield


@contextlib.contextmanager
def training(run: Run, config: Config, steps: int, **options: Any) -> Iterator[Iterator[Any]]:
    """The events of a training on what is made up; without validation before the last step."""
    changes = {"train.steps": steps, "train.validate_every": steps}
    config = configuration.with_changes(config, changes)
    with mock.patch.object(Bitext, "open", return_value=made_up(run.tiny)):
        yield loop.train(config, Path(), device=run.device, **options)
