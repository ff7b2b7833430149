"""Tests of the model's kernels, interpreted: `test_kernels` runs them with TRITON_INTERPRET=1.

Triton must not be loaded before that is set, so that they have a process of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import residual_norm, varlen_attention
from seq2sweep.model.packing import Packing

OPERATORS = torch.library.Library("seq2sweep", "FRAGMENT")
OPERATORS.impl("packed_attention", varlen_attention._heads, "CPU")
OPERATORS.impl("packed_attention_backward", varlen_attention._slopes, "CPU")
OPERATORS.impl("residual_norm", residual_norm._forward, "CPU")
OPERATORS.impl("residual_norm_backward", residual_norm._backward, "CPU")

LENGTHS, MEMORY = [5, 1, 40, 2, 64, 33], [1, 70, 3, 12, 32, 9]
EXACT = 1e-6


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Memory that nobody has written to is no number."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


def off(found: Tensor, expected: Tensor) -> float:
    """As a share of the greatest number."""
    difference = (found.double() - expected).abs().max() / expected.abs().max()
    return float(difference.nan_to_num(torch.inf))


# --- attention of packed sentences ---------------------------------------------------------------


def packing(lengths: list[int]) -> Packing:
    rows = [torch.ones(n, dtype=torch.int64) for n in lengths]
    return Packing.of(nn.utils.rnn.pad_sequence(rows, True, PAD))


def heads(count: int, size: int, dtype: torch.dtype) -> Tensor:
    """[count, 2, size], cut from longer rows, as projections are."""
    longer = torch.randn(count, 2 * size + 3, dtype=torch.float64).to(dtype)
    return longer[:, 3:].unflatten(1, (2, size)).detach().requires_grad_()


def formula(given: list[Tensor], lengths: list[list[int]], causal: bool, scale: float) -> Tensor:
    found = []
    for q, k, v in zip(*map(torch.split, given, [lengths[0], *[lengths[1]] * 2]), strict=True):
        scores = scale * torch.einsum("ihd,jhd->hij", q, k)
        if causal:
            unseen = torch.ones(scores.shape[1:]).triu(1).bool()
            scores = scores.masked_fill(unseen, -torch.inf)
        found.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v))
    return torch.cat(found)


@pytest.mark.parametrize("form", ["self", "causal", "cross"])
@pytest.mark.parametrize(
    ("d_k", "d_v", "dtype", "roomy"),
    [
        (13, 16, torch.float32, True),
        (64, 64, torch.float32, False),
        (5, 70, torch.float32, False),
        (200, 256, torch.float32, False),
        (64, 64, torch.float16, True),
    ],
)
def test_attention_and_its_gradients_are_those_of_the_formula(
    form: str, d_k: int, d_v: int, dtype: torch.dtype, roomy: bool
) -> None:
    torch.manual_seed(d_k)
    lengths = [LENGTHS, MEMORY if form == "cross" else LENGTHS]
    causal, scale = form == "causal", 1.7 * d_k**-0.5
    of_queries, of_keys = map(sum, lengths)
    given = [heads(n, d, dtype) for n, d in ((of_queries, d_k), (of_keys, d_k), (of_keys, d_v))]
    packings = [packing(each) for each in lengths]
    if roomy:
        packings = [each.roomy(30) for each in packings]
    out = varlen_attention.attention(*given, tuple(packings), causal, scale)  # type: ignore[arg-type]
    slope = torch.randn(of_queries, 2, d_v, dtype=torch.float64).to(dtype)
    found = [out, *torch.autograd.grad(out, given, slope)]
    exact = [x.detach().double().requires_grad_() for x in given]
    right = formula(exact, lengths, causal, scale)
    expected = [right, *torch.autograd.grad(right, exact, slope.double())]
    # How far sums of so many numbers are off is not the same on each CPU.
    plain = [x.detach().clone().requires_grad_() for x in given]
    rounded = formula(plain, lengths, causal, scale)
    usual = [rounded, *torch.autograd.grad(rounded, plain, slope)]
    for mine, other, third in zip(found, expected, usual, strict=True):
        assert mine.dtype == dtype
        assert off(mine, other) < (8 * off(third, other) if dtype == torch.float32 else 2e-3)


def test_no_sentence_sees_another() -> None:
    """Whatever is in the others: here numbers that no sum survives."""
    given = [heads(sum(LENGTHS), 16, torch.float32) for _ in range(3)]
    packings = packing(LENGTHS), packing(LENGTHS)
    for causal in (False, True):
        plain = varlen_attention.attention(*given, packings, causal, 0.25)  # type: ignore[arg-type]
        spoilt = [x.detach().clone() for x in given]
        for x in spoilt:
            x[6:46] = 1e30  # the third
        again = varlen_attention.attention(*spoilt, packings, causal, 0.25)  # type: ignore[arg-type]
        others = [*range(6), *range(46, sum(LENGTHS))]
        assert torch.equal(again[others], plain[others])


def test_what_is_no_number_stays_so() -> None:
    """An update whose gradient is not finite is skipped: no kernel may hide it."""
    lengths = LENGTHS[:2]
    packings = packing(lengths), packing(lengths)
    for spoilt in (torch.nan, torch.inf, -torch.inf):
        for which in range(3):
            given = [torch.ones(sum(lengths), 2, 16) for _ in range(3)]
            given[which][5] = spoilt  # of a sentence with one key
            given = [x.requires_grad_() for x in given]
            out = varlen_attention.attention(*given, packings, True, -0.25)  # type: ignore[arg-type]
            gradients = torch.autograd.grad(out.sum(), given)
            assert not all(bool(x.isfinite().all()) for x in (out, *gradients))


# --- sum and norm --------------------------------------------------------------------------------


def given(rows: int, size: int, narrow: torch.dtype) -> tuple[Tensor, Tensor, nn.LayerNorm]:
    torch.manual_seed(size)
    norm = nn.LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, inside = 3 + torch.randn(rows, size), torch.randn(rows, size).to(narrow)
    return x.requires_grad_(), inside.requires_grad_(), norm


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize(
    ("rows", "size", "used"),
    [
        (37, 4, "both"),
        (1, 100, "both"),
        *((37, 100, used) for used in ("both", "wide", "narrow")),
        (9, 512, "both"),
        (3, 2000, "both"),
    ],
)
def test_norm_and_its_gradients_are_those_of_the_formula(
    rows: int, size: int, share: float, used: str
) -> None:
    x, inside, norm = given(rows, size, torch.float32)
    seed = torch.tensor([11]) if share else None
    wide, narrow, _, kept, _ = torch.ops.seq2sweep.residual_norm(
        x, inside, norm.weight, norm.bias, seed, share, norm.eps
    )
    assert torch.equal(wide, narrow)
    outputs = {"both": [wide, narrow], "wide": [wide], "narrow": [narrow]}[used]
    inputs = [x, inside, norm.weight, norm.bias]
    slopes = [torch.randn(rows, size) for _ in outputs]
    found = [wide, *torch.autograd.grad(outputs, inputs, slopes)]
    mask = kept.double() / (1 - share) if share else 1.0
    exact = [each.detach().double().requires_grad_() for each in inputs]
    right = nn.functional.layer_norm(exact[0] + mask * exact[1], (size,), *exact[2:], norm.eps)
    expected = [right, *torch.autograd.grad(right, exact, sum(slopes).double())]  # type: ignore[union-attr]
    for mine, other in zip(found, expected, strict=True):
        assert off(mine, other) < 3 * EXACT


def test_it_comes_out_in_both_types() -> None:
    x, inside, norm = given(20, 64, torch.bfloat16)
    wide, narrow = residual_norm.residual_norm(x, inside, norm, 0.0)
    assert (wide.dtype, narrow.dtype) == (torch.float32, torch.bfloat16)
    assert off(narrow, wide.double()) < 2**-7
    of_inside = torch.autograd.grad(wide.sum() + narrow.sum(), inside)[0]
    assert of_inside.dtype == torch.bfloat16


def kept(seed: int, share: float = 0.1, rows: int = 128, size: int = 256) -> Tensor:
    """In tiles of 32 rows: the interpreter takes as long for each tile, whatever its size."""
    zeros, ones = torch.zeros(rows, size), torch.ones(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residual_norm, "NUMBERS", 32 * size)
        drawn: Tensor = torch.ops.seq2sweep.residual_norm(
            zeros, zeros, ones, ones, torch.tensor([seed]), share, 1e-5
        )[3]
    return drawn.float()


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_is_as_rare_as_it_should_be_everywhere(share: float) -> None:
    drawn = kept(3, share, 256)
    count, spread = drawn.numel(), (share * (1 - share)) ** 0.5
    assert abs(float(drawn.mean()) - (1 - share)) < 4 * spread / count**0.5
    # Rows and columns differ as draws of their own do.
    assert float(drawn.mean(0).std()) == pytest.approx(spread / 256**0.5, rel=0.2)
    assert float(drawn.mean(1).std()) == pytest.approx(spread / 256**0.5, rel=0.2)
    for shift in (1, 2, 4, 128):  # one draw makes four neighbours; 4 tiles are 128 rows
        for axis in (0, 1):
            together = float((drawn * drawn.roll(shift, axis)).mean())
            assert together == pytest.approx((1 - share) ** 2, abs=0.01)


def test_each_seed_drops_others() -> None:
    first = kept(5)
    assert torch.equal(kept(5), first)
    for other in (6, 5 + 2**32, 2**61):
        assert float((first * kept(other)).mean()) == pytest.approx(0.81, abs=0.01)


def test_dropout_follows_the_generator() -> None:
    x, inside, norm = given(40, 64, torch.float32)

    def drawn(seed: int) -> Any:
        torch.manual_seed(seed)
        return residual_norm.residual_norm(x, inside, norm, 0.2)[0]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
