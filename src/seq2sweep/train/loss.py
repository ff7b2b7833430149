"""Label-smoothed cross-entropy (section 5.4)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.products import multiply, product_type, weight_gradient
from seq2sweep.train import fused_loss

CHUNK = {True: 1 << 24, False: 1 << 28}
"""Logits of one product, on a CPU and elsewhere: with enough rows it is at its fastest."""
BF16_CHUNK = 1 << 26
"""On a CPU in bf16, whose products take so little time that reading the weights counts."""
BLOCK = {True: 1 << 21, False: 1 << 26}
"""How many of them at a time become loss and gradient, in float32: on a CPU they fit its caches."""


def logits_at_once(on_cpu: bool, dtype: torch.dtype) -> int:
    """Of so many, at most, a product is made: its rows times the vocabulary."""
    return BF16_CHUNK if on_cpu and dtype == torch.bfloat16 else CHUNK[on_cpu]


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


def projected_cross_entropy(
    states: Tensor, weight: Tensor, target: Tensor, smoothing: float, compiled: bool = False
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` of the logits states weight^T, which are never all in memory.

    states [N, d_model], weight [V, d_model], target [N]. Under autocast the products are in its
    type. Gradients are made along with the loss, some rows at a time, and kept for the backward
    pass: the same products as without, none of them twice. compiled: what is between the products
    by torch.compile, as `train.compiled` has set it up.
    """
    dtype = product_type(states)
    with torch.autocast(states.device.type, enabled=False):
        loss, likelihood = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            states, weight, target, smoothing, dtype, torch.is_grad_enabled(), compiled
        )
    return loss, likelihood


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Of logits [N, V] and target [N]."""

    @staticmethod
    def forward(
        context: Any, logits: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        loss, likelihood, probabilities = _sums(logits, target, smoothing)
        context.save_for_backward(_gradient(probabilities, target, smoothing))
        context.dtype = logits.dtype
        context.mark_non_differentiable(likelihood)
        return loss, likelihood

    @staticmethod
    @once_differentiable
    def backward(context: Any, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = context.saved_tensors
        # In its own place: a graph of this loss is run backward once.
        return gradient.mul_(loss_gradient).to(context.dtype), None, None


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        weight: Tensor,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        with_gradients: bool,
        compiled: bool,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(states.dtype, torch.float32)
        sums = states.new_zeros(2, dtype=wide)
        narrow_states, narrow_weight = states.to(dtype), weight.to(dtype)
        state_gradients = torch.empty_like(narrow_states) if with_gradients else None
        of_weight = torch.zeros_like(weight, dtype=wide) if with_gradients else None
        rows = max(1, logits_at_once(states.device.type == "cpu", dtype) // weight.size(0))
        for start in range(0, len(states), rows):
            part = slice(start, start + rows)
            logits = multiply(narrow_states[part], narrow_weight)
            sums += _become_gradient(logits, target[part], smoothing, with_gradients, compiled)
            if state_gradients is None or of_weight is None:
                continue
            state_gradients[part] = multiply(logits, narrow_weight.T)
            weight_gradient(logits, narrow_states[part], of_weight)
            del logits  # or there would be two while the next are made
        if state_gradients is not None and of_weight is not None:
            context.save_for_backward(state_gradients.to(states.dtype), of_weight.to(weight.dtype))
        loss, likelihood = sums
        context.mark_non_differentiable(likelihood)
        return loss, likelihood

    @staticmethod
    @once_differentiable
    def backward(context: Any, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = context.saved_tensors
        return states * loss_gradient, weight * loss_gradient, None, None, None, None, None


def _become_gradient(
    logits: Tensor, target: Tensor, smoothing: float, with_gradient: bool, compiled: bool
) -> Tensor:
    """Sums [2] as `smoothed_cross_entropy` has them, float32 or wider.

    The gradient takes the place of the logits [N, V], where one is asked for.
    """
    if fused_loss.serves(logits.device, logits.dtype):
        return torch.stack(fused_loss.loss_and_gradient(logits, target, smoothing, with_gradient))
    wide = torch.promote_types(logits.dtype, torch.float32)
    sums = logits.new_zeros(2, dtype=wide)
    rows = max(1, BLOCK[logits.device.type == "cpu"] // logits.size(1))
    block = _compiled_block() if compiled else _block
    for x, y in zip(logits.split(rows), target.split(rows), strict=True):
        sums += block(x, y, smoothing, with_gradient)
    return sums


def _block(logits: Tensor, target: Tensor, smoothing: float, with_gradient: bool) -> Tensor:
    """`_become_gradient` of so many rows that what is made of them fits a CPU's caches."""
    loss, likelihood, probabilities = _sums(logits, target, smoothing)
    if with_gradient:
        logits.copy_(_gradient(probabilities, target, smoothing))
    return torch.stack((loss, likelihood))


@functools.cache
def _compiled_block() -> Callable[[Tensor, Tensor, float, bool], Tensor]:
    return torch.compile(_block, dynamic=True)


def _sums(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """-sum_v q(v) log p(v) with q = (1 - eps) [v is right] + eps / V.

    logits [N, V], target [N]; sums of smoothed loss and likelihood over the rows that are not PAD,
    and the probabilities p [N, V]. Log-probabilities are never stored: with m the greatest logit,
    -log p(v) = m - logits(v) - log p(place of m), so it takes one logit and one mean of a row.
    """
    # Once for all that follows: sums and maxima of bf16 take longer than of float32.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probabilities = torch.softmax(logits, dim=-1)
    # The greatest probability is at least 1 / V: its logarithm is safe.
    greatest, surprise = logits.amax(dim=-1), -probabilities.amax(dim=-1).log()
    right, real = target.unsqueeze(-1), target.ne(PAD)

    def summed(logit: Tensor) -> Tensor:
        """Over real rows: -log of the probability that belongs to a logit of the row."""
        return torch.where(real, greatest - logit + surprise, 0.0).sum()

    likelihood = summed(logits.gather(-1, right).squeeze(-1))
    loss = likelihood.clone()
    if smoothing:
        uniform = summed(logits.mean(dim=-1))
        loss = (1 - smoothing) * likelihood + smoothing * uniform
    return loss, likelihood, probabilities


def _gradient(probabilities: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """p - q, what `_sums` has as its gradient, zero for rows of PAD; in the place of p [N, V]."""
    right = target.unsqueeze(-1)
    gradient = (
        probabilities.sub_(smoothing / probabilities.size(-1)) if smoothing else probabilities
    )
    # Not scatter_add_, which adds up in any order on a GPU: here is one number a row.
    gradient.scatter_(-1, right, gradient.gather(-1, right) + (smoothing - 1))
    blank = right.eq(PAD)
    # On a CPU a look costs less than a pass over the gradient; on a GPU it would wait, and a
    # compiled pass is there anyway.
    if torch.compiler.is_compiling() or blank.is_cuda or blank.any():
        gradient.masked_fill_(blank, 0.0)
    return gradient


def perplexity(loss: float) -> float:
    """exp(loss): loss is nats per piece. Infinite where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf
