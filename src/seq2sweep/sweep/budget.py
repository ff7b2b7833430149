"""How long a variant trains when all variants get the same number of tokens or of FLOPs."""

from __future__ import annotations

import functools

from seq2sweep.config import Config
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.model import flops


class Budget:
    """What the base variant's training takes, to be spent by every variant.

    data: the training split, whose lengths `flops` needs. Before there is any, all variants have
    the base variant's steps under that budget.
    """

    def __init__(self, base: Config, data: Bitext | None) -> None:
        self.kind, self.data = base.sweep.budget, data
        self.total = base.train.steps * self._cost_of_update(base)

    def steps(self, config: Config) -> int:
        """Updates, at least one, that take this variant as near to the budget as whole ones can."""
        if self.kind == "steps":
            return config.train.steps
        return max(1, round(self.total / self._cost_of_update(config)))

    def _cost_of_update(self, config: Config) -> float:
        if self.kind == "tokens":
            return config.train.tokens_per_update
        if self.kind == "flops" and self.data is not None:
            lengths = self.data.source_lengths, self.data.target_lengths
            vocabulary_size = int(self.data.header["vocabulary"]["size"])
            updates = updates_per_epoch(
                self.data, config.train.tokens_per_update, config.train.seed
            )
            return flops.training_flops(config.model, vocabulary_size, *lengths) / updates
        return 1


@functools.lru_cache(maxsize=16)
def updates_per_epoch(data: Bitext, tokens_per_update: int, seed: int) -> int:
    """How many updates the first epoch has."""
    lengths = data.source_lengths, data.target_lengths
    return len(plan_epoch(*lengths, tokens_per_update=tokens_per_update, seed=seed, epoch=0))
