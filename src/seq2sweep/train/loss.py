"""Label-smoothed cross-entropy (section 5.4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seq2sweep.data.vocabulary import PAD


def smoothed_cross_entropy(
    logits: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sums over the real pieces of target: (smoothed loss, negative log-likelihood), in nats.

    logits [..., V]; target [...] with PAD where nothing counts. The smoothed target gives
    1 - eps to the right piece and spreads eps evenly over all V pieces, the right one included
    (Szegedy et al. 2016). The negative log-likelihood knows no smoothing: its exponential, per
    piece, is the perplexity of Table 3.
    """
    log_probabilities = torch.log_softmax(logits.float(), dim=-1)
    real = target.ne(PAD)
    right = log_probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    likelihood = -(right * real).sum()
    if smoothing == 0:
        return likelihood, likelihood
    uniform = -(log_probabilities.mean(dim=-1) * real).sum()
    return (1 - smoothing) * likelihood + smoothing * uniform, likelihood


def perplexity(loss: float) -> float:
    """exp(loss): loss is nats per piece. Infinite where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf
