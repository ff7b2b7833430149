"""How probable given translations are, by forced decoding: one pass over each batch, no search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2sweep.data.batching import Batch, collate, passes
from seq2sweep.data.bitext import Bitext
from seq2sweep.decode.ensemble import log_mean, members_of
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.products import multiply
from seq2sweep.train.loss import CHUNK
from seq2sweep.train.step import Staged


@dataclass(frozen=True)
class PairScore:
    """log_probability: of a target given its source, in nats, the sum over its `tokens`, the end
    of the sentence included; no length penalty."""

    log_probability: float
    tokens: int

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.log_probability / self.tokens


@torch.inference_mode()
def score_pairs(
    model: Architecture, bitext: Bitext, *, tokens_per_batch: int, device: torch.device
) -> Iterator[tuple[int, PairScore]]:
    """Each pair's index and score, pairs of similar length after each other.

    tokens_per_batch: with padding, on each side; a longer pair is a batch of its own. In float32,
    as a search. The model is on the device.
    """
    model.eval()
    lengths = bitext.source_lengths, bitext.target_lengths
    for ids in passes(np.arange(len(bitext)), *lengths, tokens_per_batch):
        sums = _log_probabilities(model, collate(bitext, ids), device)
        for i, found in zip(ids.tolist(), sums.tolist(), strict=True):
            yield i, PairScore(found, int(bitext.target_lengths[i]))


def _log_probabilities(model: Architecture, batch: Batch, device: torch.device) -> Tensor:
    """Of each target, in nats: float64 [B]."""
    staged = Staged.of(batch, device)
    target = staged.packings[1]
    given = staged.to(device)

    def found_by(one: Architecture) -> Tensor:
        def head(states: Tensor, weight: Tensor) -> Tensor:
            return _of_tokens(states, weight, given.target)

        found: Tensor = one(given.source, given.target_in, given.packings, head)
        return found.double()

    # The mean of members' probabilities can be had token by token: no step needs the others.
    found = log_mean([found_by(one) for one in members_of(model)])
    sums = torch.zeros(len(batch.source), dtype=torch.float64)
    return sums.index_add_(0, target.places // target.width, found.cpu())


def _of_tokens(states: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """The log-probability [N] of each target token [N] by states [N, d_model] and the projection
    weight [V, d_model], whose logits are never all in memory."""
    rows = max(1, CHUNK[states.device.type == "cpu"] // weight.size(0))
    parts = zip(states.split(rows), target.split(rows), strict=True)
    wide = torch.promote_types(states.dtype, torch.float32)
    found = [F.cross_entropy(multiply(x, weight).to(wide), y, reduction="none") for x, y in parts]
    return -torch.cat(found)
