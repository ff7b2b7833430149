"""Tests of the loss's kernel, interpreted: `test_kernels` runs them with TRITON_INTERPRET=1.

Triton must not be loaded before that is set, so that they have a process of their own.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from seq2sweep.data.vocabulary import PAD
from seq2sweep.train import fused_loss
from seq2sweep.train.loss import projected_cross_entropy, smoothed_cross_entropy

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [11, 4096, 9001])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_and_gradient_are_those_of_plain_operations(
    size: int, smoothing: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(size)
    given = (5 * torch.randn(7, size)).to(dtype)
    given[1] -= 200.0  # far from zero: exp of it, or of its negative, is nothing or infinite
    given[2] += 200.0
    target = torch.tensor([1, size - 1, 2, PAD, 5, 10, PAD])
    exact = given.double().requires_grad_()
    expected = smoothed_cross_entropy(exact, target, smoothing)
    (slope,) = torch.autograd.grad(expected[0], exact)

    logits = given.clone()
    found = fused_loss.loss_and_gradient(logits, target, smoothing)
    torch.testing.assert_close(
        torch.stack(found).double(), torch.stack(expected), rtol=1e-6, atol=0
    )
    assert logits.dtype == dtype
    # The interpreter cuts off what bf16 has no place for; a GPU rounds to the nearest.
    rounding = 2e-6 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(logits.double(), slope, rtol=rounding, atol=1e-7)
    assert not logits[target.eq(PAD)].any()

    kept = given.clone()
    again = fused_loss.loss_and_gradient(kept, target, smoothing, with_gradient=False)
    assert torch.equal(torch.stack(again), torch.stack(found))
    assert torch.equal(kept, given)


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
def test_what_is_no_number_stays_so(spoilt: float) -> None:
    logits = torch.randn(3, 5000)
    logits[1, 4321] = spoilt
    loss, _ = fused_loss.loss_and_gradient(logits, torch.tensor([1, 2, 3]), 0.1)
    assert not loss.isfinite()
    assert logits.isfinite().all(1).tolist() == [True, False, True]


def test_what_cannot_be_said_takes_no_part() -> None:
    logits = torch.randn(2, 70)
    logits[0, 7] = -torch.inf
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2]), reduction="sum")
    found = fused_loss.loss_and_gradient(logits, torch.tensor([1, 2]), 0.0)
    assert float(found[0]) == float(found[1]) == pytest.approx(float(expected), rel=1e-6)
    assert logits.isfinite().all()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_training_takes_it_where_it_serves(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    weight = torch.randn(501, 16, requires_grad=True)
    states = torch.randn(30, 16, requires_grad=True)
    target = torch.randint(1, 501, (30,))
    target[[3, 29]] = PAD

    def found() -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            sums = projected_cross_entropy(states, weight, target, 0.1)
        return [*sums, *torch.autograd.grad(sums[0], (states, weight))]

    plain, calls = found(), list[tuple[int, ...]]()
    kernel = fused_loss.loss_and_gradient

    def counted(logits: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        calls.append(tuple(logits.shape))
        return kernel(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fused_loss, "serves", lambda device, dtype: True)
    monkeypatch.setattr(fused_loss, "loss_and_gradient", counted)
    fused = found()
    assert calls == [(30, 501)]
    # In bf16 gradients may be rounded to either side: so may each number of their products.
    rounding = 0.01 if precision == "bf16" else 1e-6
    for mine, other in zip(fused, plain, strict=True):
        assert (mine - other).norm() <= rounding * other.norm()


def test_it_is_tried_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = fused_loss._is_right.__wrapped__
    assert tried(CPU)
    assert fused_loss.largest_error(CPU) < fused_loss.TOLERANCE / 5
    assert capsys.readouterr().out == ""

    def refuse(device: torch.device) -> float:
        raise RuntimeError("no ptxas here\nand more")

    for broken, said in (
        (refuse, "RuntimeError: no ptxas here)"),
        (lambda device: 0.5, "off by 0.5"),
    ):
        monkeypatch.setattr(fused_loss, "largest_error", broken)
        assert not tried(CPU)
        assert said in "".join(capsys.readouterr())


def test_a_wrong_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = fused_loss.loss_and_gradient

    def without_padding(
        logits: Tensor, target: Tensor, smoothing: float, with_gradient: bool = True
    ) -> tuple[Tensor, Tensor]:
        return right(logits, target.clamp(min=1), smoothing, with_gradient)

    monkeypatch.setattr(fused_loss, "loss_and_gradient", without_padding)
    assert fused_loss.largest_error(CPU) > 0.1
    monkeypatch.setattr(
        fused_loss,
        "loss_and_gradient",
        functools.partial(right, with_gradient=False),
    )
    assert fused_loss.largest_error(CPU) > 0.1
