# mypy: ignore-errors
"""The kernel of `fused_loss`, in Triton's subset of Python."""

import triton.language as tl

LOWEST = tl.constexpr(-1e38)
"""Below all logits, and no infinity, of which a difference is no number."""


def row(
    logits, target, sums, count, size, stride, smoothing,
    PAD: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loss and likelihood of one row of logits to sums[0] and sums[1]; its gradient in its place.

    With m the greatest logit, -log p(v) = m - logit(v) + log sum exp(logit - m).
    """
    number = tl.program_id(0)
    base = logits + number.to(tl.int64) * stride
    right = tl.load(target + number)
    # Before the sums, at which threads wait for each other: later, a gradient may be there.
    of_right = tl.load(base + right).to(tl.float32)
    # Of each place in a block by itself: threads meet once, not in each block.
    highest = tl.full([BLOCK], LOWEST, tl.float32)
    totals = tl.zeros([BLOCK], tl.float32)
    plain_sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        there = places < size
        x = tl.load(base + places, mask=there, other=LOWEST).to(tl.float32)
        share = tl.exp(-tl.abs(x - highest))
        totals = tl.where(x > highest, totals * share + 1.0, totals + share)
        plain_sums += tl.where(there, x, 0.0)
        highest = tl.maximum(highest, x)
    greatest = tl.max(highest, axis=0)
    total = tl.sum(totals * tl.exp(highest - greatest), axis=0)
    plain_sum = tl.sum(plain_sums, axis=0)
    surprise = tl.log(total)
    likelihood = greatest - of_right + surprise
    uniform = greatest - plain_sum / size + surprise
    # Not zero times infinity, where a logit is minus infinity.
    spread = tl.where(smoothing > 0, smoothing * uniform, 0.0)
    loss = (1 - smoothing) * likelihood + spread
    real = right != PAD
    tl.store(sums + number, tl.where(real, loss, 0.0))
    tl.store(sums + count + number, tl.where(real, likelihood, 0.0))
    if GRADIENT:
        inverse = 1.0 / total
        for start in range(0, size, BLOCK):
            places = start + tl.arange(0, BLOCK)
            there = places < size
            x = tl.load(base + places, mask=there, other=0.0).to(tl.float32)
            gradient = tl.exp(x - greatest) * inverse - smoothing / size
            gradient = tl.where(places == right, gradient - (1 - smoothing), gradient)
            gradient = tl.where(real, gradient, 0.0)
            tl.store(base + places, gradient.to(logits.dtype.element_ty), mask=there)
