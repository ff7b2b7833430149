"""Likelihood of held-out text under a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from seq2sweep.data.batching import collate, plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.model.architecture import Architecture
from seq2sweep.train.distributed import give_back
from seq2sweep.train.step import autocast, sums_of


def negative_log_likelihood(
    model: Architecture,
    bitext: Bitext,
    *,
    tokens_per_pass: int,
    precision: Literal["float32", "bf16"],
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
    after_batch: Callable[[], object] = lambda: None,
) -> tuple[float, int]:
    """Sum in nats over the target pieces of this worker's share of a bitext, and their number.

    Without dropout and smoothing; EOS counts as a piece, as in training. after_batch: called after
    each batch.
    """
    model.eval()
    plan = plan_epoch(
        bitext.source_lengths,
        bitext.target_lengths,
        tokens_per_update=tokens_per_pass,
        seed=0,
        epoch=0,
    )
    total = torch.zeros((), dtype=torch.float64, device=device)
    pieces = 0
    rounds = -(-len(plan) // world_size)
    for update in range(rank, rounds * world_size, world_size):
        # Who has no batch left computes one again, uncounted: where the model is shared out, the
        # others cannot do theirs without it.
        ids = plan[min(update, len(plan) - 1)]
        with torch.no_grad(), autocast(precision, device):
            _, likelihood = sums_of(model, collate(bitext, ids), 0.0, device)
        if update < len(plan):
            total += likelihood
            pieces += int(bitext.target_lengths[ids].sum())
        after_batch()
    give_back(model)
    return float(total), pieces
