"""What variants have alike: tokens or FLOPs of a training, and the size of architectures."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep import config as configuration
from seq2sweep.config import Config, ModelConfig
from seq2sweep.config.datasets import BYTES
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.presets import rivals

SHORT = np.array([10])
"""Tokens of a sentence so short that its cost is that of weights, not of pairs of tokens."""
MOST_LAYERS = 64
PAIRS_AT_ONCE = 1_000_000
"""Whose lengths are sorted together: memory stays flat."""
STEP_OF_WIDTH = 8
"""Of ByteNet's width: as processors and GPUs like products best."""


class Budget:
    """What the base variant's training takes, to be spent by every variant.

    data: the training split, whose lengths `flops` needs. Before there is any, all variants have
    the base variant's steps under that budget.
    """

    def __init__(self, base: Config, data: Bitext | None) -> None:
        self.kind, self.data = base.sweep.budget, data
        self.total = base.train.steps * self._cost_of_update(base)

    def steps(self, config: Config, share: float = 1.0) -> int:
        """Updates, at least one, that take this variant as near to the budget, or a share of it, as
        whole ones can."""
        if self.kind == "steps":
            return config.train.steps
        return max(1, round(share * self.total / self._cost_of_update(config)))

    def _cost_of_update(self, config: Config) -> float:
        if self.kind == "tokens":
            return config.train.tokens_per_update
        if self.kind == "flops" and self.data is not None:
            updates = updates_per_epoch(
                self.data, config.train.tokens_per_update, config.train.seed
            )
            return epoch_flops(self.data, _without_dropout(config.model)) / updates
        return 1


def _without_dropout(model: ModelConfig) -> ModelConfig:
    """What costs the same: variants that differ in dropout alone are counted once."""
    rates = [field.name for field in dataclasses.fields(model) if field.name.endswith("dropout")]
    none: dict[str, Any] = dict.fromkeys(rates, 0.0)
    return dataclasses.replace(model, **none)


@functools.lru_cache(maxsize=2_048)
def epoch_flops(data: Bitext, model: ModelConfig) -> float:
    """Of training on each pair once."""
    vocabulary_size = int(data.header["vocabulary"]["size"])
    source, target, counts = _kinds(data)
    total = 0.0
    # A count is a sum of powers of two: for each power the pairs whose count has it, once.
    for power in range(int(counts.max()).bit_length()):
        has = (counts >> power & 1).astype(bool)
        total += 2**power * flops.training_flops(model, vocabulary_size, source[has], target[has])
    return total


@functools.lru_cache(maxsize=4)
def _kinds(data: Bitext) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Lengths of source and target that occur together, and how often.

    Millions of pairs are of some thousand kinds, which all variants have alike.
    """
    source, target = data.source_lengths, data.target_lengths
    wide = int(target.max()) + 1
    codes, counts = [], []
    for start in range(0, len(source), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        found = np.unique(source[part].astype(np.int64) * wide + target[part], return_counts=True)
        codes.append(found[0])
        counts.append(found[1])
    kinds, places = np.unique(np.concatenate(codes), return_inverse=True)
    totals = np.zeros(len(kinds), np.int64)
    np.add.at(totals, places, np.concatenate(counts))
    return kinds // wide, kinds % wide, totals


@functools.lru_cache(maxsize=16)
def updates_per_epoch(data: Bitext, tokens_per_update: int, seed: int) -> int:
    """How many updates the first epoch has."""
    lengths = data.source_lengths, data.target_lengths
    return len(plan_epoch(*lengths, tokens_per_update=tokens_per_update, seed=seed, epoch=0))


def rivals_of(
    names: Sequence[str], base: Config, data: Bitext | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The other architectures of Table 2 that `names` select (`rivals.select`), each with what it
    changes to cost as much a token as the base model, as near as whole layers come: nearly all of
    their weights are used once a token, so that they have about as many.

    Recurrent and convolutional ones have the base's width. ByteNet has five blocks for each of
    its layers, as the paper's 30 beside the base model's 6, and a width that fits. What both have,
    such as dropout, stays the base's. Raises UserError where the base is one of them.

    data: the training split, which has as many pieces as there are: characters may be fewer than
    the vocabulary is to have at most.
    """
    if base.model.architecture != "transformer":
        raise UserError(
            "params.yaml: sweep.method table2 compares other architectures with the Transformer, "
            f"and model.architecture of the base variant is {base.model.architecture}: set it to "
            "transformer, or sweep model.architecture by another method, such as one_at_a_time"
        )

    pieces = BYTES if base.vocabulary.kind == "bytes" else base.vocabulary.size
    if data is not None:
        pieces = int(data.header["vocabulary"]["size"])

    def cost(model: ModelConfig) -> float:
        return flops.forward_flops(model, pieces, SHORT, SHORT)

    wanted = cost(base.model)
    for name in rivals.select(names):
        sizes = list(_sizes(name, base))
        first = {f"model.{key}": size for key, size in sizes[0].items()}
        changes = {"model.architecture": name} | first
        asked = f"params.yaml: sweep.method table2: {name}"
        model: Any = configuration.with_changes(base, changes, asked).model
        costs = [abs(cost(dataclasses.replace(model, **size)) - wanted) for size in sizes]
        best = sizes[costs.index(min(costs))]
        yield name, {"model.architecture": name} | {f"model.{k}": v for k, v in best.items()}


def _sizes(name: str, base: Config) -> Iterator[dict[str, int]]:
    """What may be chosen: keys of the section `model`."""
    if name != "bytenet":
        yield from ({"layers": layers} for layers in range(2, MOST_LAYERS))
        return
    widest = max(STEP_OF_WIDTH, 4 * base.model.d_model)
    widths = range(STEP_OF_WIDTH, widest + 1, STEP_OF_WIDTH)
    yield from ({"layers": 5 * base.model.layers, "d_model": width} for width in widths)
