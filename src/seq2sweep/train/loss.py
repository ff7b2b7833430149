"""Label-smoothed cross-entropy (section 5.4)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2sweep.data.vocabulary import PAD


def smoothed_cross_entropy(
    logits: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sums over the real pieces of target: (smoothed loss, negative log-likelihood), in nats.

    logits [..., V]; target [...] with PAD where nothing counts. The smoothed target gives
    1 - eps to the right piece and spreads eps evenly over all V pieces, the right one included
    (Szegedy et al. 2016). Gradients flow through the smoothed loss alone; the negative
    log-likelihood knows no smoothing: its exponential, per piece, is the perplexity of Table 3.
    """
    flat = logits.flatten(0, -2)
    loss, likelihood = _SmoothedCrossEntropy.apply(flat, target.flatten(), smoothing)  # type: ignore[no-untyped-call]
    return loss, likelihood


class _SmoothedCrossEntropy(torch.autograd.Function):
    """-sum_v q(v) log p(v) with q = (1 - eps) [v is right] + eps / V, whose gradient is p - q.

    Log-probabilities are never stored: with m the greatest logit, -log p(v) = m - logits(v) -
    log p(place of m), so the loss needs one logit and one mean of a row. The probabilities, kept
    for the gradient, are the only V-wide tensor beside the logits.
    """

    @staticmethod
    def forward(
        context: Any, logits: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """logits [N, V], target [N]."""
        wide = torch.promote_types(logits.dtype, torch.float32)
        probabilities = torch.softmax(logits, dim=-1, dtype=wide)
        greatest, place = (x.squeeze(-1) for x in logits.max(dim=-1, keepdim=True))
        # The greatest probability is at least 1 / V: its logarithm is safe.
        surprise = -probabilities.gather(-1, place.unsqueeze(-1)).squeeze(-1).log()
        right = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        real = target.ne(PAD)
        context.save_for_backward(probabilities, target)
        context.smoothing, context.dtype = smoothing, logits.dtype

        def summed(logit: Tensor) -> Tensor:
            """Over real rows: -log of the probability that belongs to a logit of the row."""
            rows = greatest.to(wide) - logit.to(wide) + surprise
            return torch.where(real, rows, 0.0).sum()

        likelihood = summed(right)
        context.mark_non_differentiable(likelihood)
        if smoothing == 0:
            return likelihood.clone(), likelihood
        uniform = summed(logits.mean(dim=-1, dtype=wide))
        return (1 - smoothing) * likelihood + smoothing * uniform, likelihood

    @staticmethod
    @once_differentiable
    def backward(context: Any, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        probabilities, target = context.saved_tensors
        scale = (loss_gradient * target.ne(PAD)).unsqueeze(-1)
        uniform = context.smoothing / probabilities.size(-1)
        # In their own place: a graph of this loss is run backward once.
        gradient = probabilities.sub_(uniform).mul_(scale)
        gradient.scatter_add_(-1, target.unsqueeze(-1), (context.smoothing - 1) * scale)
        return gradient.to(context.dtype), None, None


def perplexity(loss: float) -> float:
    """exp(loss): loss is nats per piece. Infinite where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf
