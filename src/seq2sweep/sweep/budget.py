"""How long a variant trains when all variants get the same number of tokens or of FLOPs."""

from __future__ import annotations

from typing import Literal

from seq2sweep.config import Config
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.model import flops


class Budget:
    """What the base variant's training takes, to be spent by every variant.

    data: the training split, whose lengths `flops` needs. Before there is any, all variants have
    the base variant's steps under that budget.
    """

    def __init__(
        self, kind: Literal["steps", "tokens", "flops"], base: Config, data: Bitext | None
    ) -> None:
        self.kind, self.data = kind, data
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
            return flops_per_update(config, self.data)
        return 1


def flops_per_update(config: Config, data: Bitext) -> float:
    """Mean over an epoch of the model's FLOPs (`seq2sweep.model.flops`) in one update."""
    source, target = data.source_lengths, data.target_lengths
    updates = plan_epoch(
        source,
        target,
        tokens_per_update=config.train.tokens_per_update,
        seed=config.train.seed,
        epoch=0,
    )
    vocabulary_size = int(data.header["vocabulary"]["size"])
    return flops.training_flops(config.model, vocabulary_size, source, target) / len(updates)
