"""The best ways in which hypotheses of a beam search can go on.

Shapes: B sentences still open, K hypotheses each, V pieces in the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.decode.well_formed import WellFormed

BLOCK = 64
"""Neighbouring pieces of which only the best is looked at first."""


def continuations(
    logits: Tensor,
    log_probabilities: Tensor,
    count: int,
    well_formed: WellFormed | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best `count` ways to go on, of each sentence: log-probability, hypothesis and piece.

    logits [B, K, V]; log_probabilities [B, K]; all three [B, count or fewer], best first, none of
    them PAD or BOS; with well_formed only what it allows has a probability.

    None is more probable than what it continues, whatever the rounding.
    """
    # In float32, or float64 for a model in float64. With all that is masked below, so that a score
    # is the probability that training's loss sees.
    logs = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    logs[..., PAD] = logs[..., BOS] = -torch.inf
    if well_formed:
        well_formed.mask(logs)
    scores, places = _top(logs, log_probabilities, count)
    return scores, places // logits.size(-1), places % logits.size(-1)


def to_cpu(scores: Tensor, *counts: Tensor) -> list[Tensor]:
    """Tensors [B, n] of float32 or float64, and of int64 below 2 ** 53, by one copy."""
    wide = [tensor.double() for tensor in (scores, *counts)]
    found = torch.cat(wide, dim=1).cpu().split([tensor.size(1) for tensor in wide], dim=1)
    return [found[0], *(tensor.long() for tensor in found[1:])]


def extended(history: Tensor, rows: Tensor, pieces: Tensor, ranks: Tensor) -> Tensor:
    """Of the continuations of these ranks [B, K], the history [B, K, 1 + pieces]."""
    sentences = torch.arange(len(history)).unsqueeze(1)
    begun = history[sentences, rows.gather(1, ranks)]
    return torch.cat((begun, pieces.gather(1, ranks).unsqueeze(-1)), dim=2)


def _top(x: Tensor, sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The greatest `count` (or all) of x [B, K, V] + sums [B, K], of each b, and their places.

    Both [B, count], greatest first, places from 0 to K * V. As topk, which copies whole rows: here
    only blocks of a row with the greatest maxima, in which the greatest numbers must be.
    """
    rows, size = sums.size(1), x.size(-1)
    blocks = size // BLOCK
    end = blocks * BLOCK
    if rows * blocks <= count:
        x = (x + sums.unsqueeze(-1)).flatten(1)
        values, places = x.topk(min(count, rows * size), dim=1)
        return values, places
    maxima = x[..., :end].unflatten(-1, (blocks, BLOCK)).amax(dim=-1) + sums.unsqueeze(-1)
    chosen = maxima.flatten(1).topk(count, dim=1, sorted=False).indices
    columns = torch.arange(size, device=x.device)
    starts = chosen // blocks * size + chosen % blocks * BLOCK
    inside = (starts.unsqueeze(-1) + columns[:BLOCK]).flatten(1)
    # What no block has, of each row.
    begins = torch.arange(0, rows * size, size, device=x.device)
    rest = (begins[:, None] + columns[end:]).flatten().expand(len(sums), -1)
    places = torch.cat((inside, rest), dim=1)
    scores = x.flatten(1).gather(1, places) + sums.gather(1, places // size)
    values, order = scores.topk(count, dim=1)
    return values, places.gather(1, order)
