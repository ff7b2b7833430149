"""The kernel of the loss, compiled for GPUs without one, and where it serves.

tests/paper/test_kernels.py interprets it on a CPU, with the model's kernels.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2sweep.data.vocabulary import PAD
from seq2sweep.train import fused_loss

from ..triton_kernels import compiled, needs_triton


@needs_triton
@pytest.mark.parametrize(
    ("capability", "element", "gradient"),
    [(80, "bf16", True), (90, "bf16", False), (90, "fp32", True), (100, "fp32", False)],
)
def test_it_compiles_for_gpus(capability: int, element: str, gradient: bool) -> None:
    import triton

    from seq2sweep.train import fused_loss_kernel

    types = {"logits": f"*{element}", "target": "*i64", "sums": "*fp32", "smoothing": "fp32"}
    constants = {"PAD": PAD, "GRADIENT": gradient, "BLOCK": fused_loss.BLOCK}
    kernel = triton.jit(fused_loss_kernel.row)
    made = compiled(kernel, types, constants, capability, num_warps=32)  # as it is launched
    assert made.asm["cubin"]
    # Beside the two sums, a gradient is stored where one is asked for.
    assert (made.asm["ptx"].count("st.global") > 2) == gradient


@pytest.mark.parametrize("part", [0, 1, 2], ids=["loss", "likelihood", "gradient"])
def test_what_is_no_number_is_no_small_error(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def right(logits: Tensor, target: Tensor, smoothing: float) -> list[Tensor]:
        given = logits.clone().requires_grad_()
        likelihood, loss = (
            F.cross_entropy(given, target, ignore_index=PAD, reduction="sum", label_smoothing=e)
            for e in (0.0, smoothing)
        )
        logits.copy_(*torch.autograd.grad(loss, given))
        return [loss.detach(), likelihood.detach(), logits]

    def broken(*given: Any) -> tuple[Tensor, Tensor]:
        found = right(*given)
        found[part].fill_(torch.nan)
        return found[0], found[1]

    monkeypatch.setattr(fused_loss, "loss_and_gradient", lambda *given: right(*given)[:2])
    assert fused_loss.largest_error(torch.device("cpu")) < 1e-5
    monkeypatch.setattr(fused_loss, "loss_and_gradient", broken)
    assert fused_loss.largest_error(torch.device("cpu")) == torch.inf


def test_it_serves_on_gpus_alone_and_not_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_loss, "_is_right", lambda device: True)
    assert not fused_loss.serves(torch.device("cpu"), torch.bfloat16)
    assert fused_loss.serves(torch.device("cuda"), torch.bfloat16)
    assert not fused_loss.serves(torch.device("cuda"), torch.float64)
