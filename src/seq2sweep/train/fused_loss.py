"""Loss and gradient of logits in one Triton kernel, for GPUs.

Plain operations on float32 read and write the logits a dozen times. Here a row of them is read
twice and its gradient written once, in the place and in the type of the logits; nothing of the
vocabulary's width is ever in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import kernel_check

BLOCK = 1024
"""Logits of a row at a time."""
TOLERANCE = 2e-5
"""Of the loss of a token, in nats, between the kernel and plain operations in float64."""


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel makes loss and gradient of such logits: on a GPU on which it is right.

    Tried once on some rows. Where it cannot be compiled, or is wrong, one line says so, and the
    plain operations serve.
    """
    return device.type == "cuda" and dtype != torch.float64 and _is_right(device)


@functools.cache
def _is_right(device: torch.device) -> bool:
    return kernel_check.is_right(
        "the fused loss",
        device,
        lambda: largest_error(device),
        TOLERANCE,
        "its loss is off by {} nats a token",
    )


def largest_error(device: torch.device) -> float:
    """By how much the kernel's losses and gradients of some rows differ from the formula's."""
    generator = torch.Generator().manual_seed(1)
    exact = 4 * torch.randn(5, BLOCK + 37, generator=generator, dtype=torch.float64)
    target = torch.tensor([1, BLOCK, PAD, BLOCK + 36, 7])
    logits = exact.float().to(device)
    loss, likelihood = loss_and_gradient(logits, target.to(device), 0.1)
    surprise = -exact.log_softmax(dim=-1)
    uniform = surprise.mean(dim=-1)
    right = surprise.gather(1, target[:, None]).squeeze(1)
    real = target.ne(PAD)
    expected = torch.full_like(exact, -0.1 / exact.size(1)) + exact.softmax(dim=-1)
    expected[torch.arange(5), target] -= 0.9
    differences = [
        (loss.double().cpu() - ((0.9 * right + 0.1 * uniform) * real).sum()) / 4,
        (likelihood.double().cpu() - (right * real).sum()) / 4,
        logits.double().cpu() - expected * real[:, None],
    ]
    return max(float(one.abs().max().nan_to_num(torch.inf)) for one in differences)


def loss_and_gradient(
    logits: Tensor, target: Tensor, smoothing: float, with_gradient: bool = True
) -> tuple[Tensor, Tensor]:
    """Sums (smoothed loss, negative log-likelihood) as `loss.smoothed_cross_entropy` has them.

    logits [N, V], contiguous rows, become the loss's gradient; target int64 [N].
    """
    count, size = logits.shape
    sums = torch.zeros(2, count, dtype=torch.float32, device=logits.device)
    if count:
        with torch.cuda.device_of(logits):
            _kernel()[(count,)](
                logits, target, sums, count, size, logits.stride(0), smoothing,
                PAD=PAD, GRADIENT=with_gradient, BLOCK=BLOCK, num_warps=32,
            )  # fmt: skip
    loss, likelihood = sums.sum(dim=1)
    return loss, likelihood


@functools.cache
def _kernel() -> Any:
    """The kernel: one program a row. With `TRITON_INTERPRET=1` it runs on a CPU."""
    import triton

    from seq2sweep.train import fused_loss_kernel

    return triton.jit(fused_loss_kernel.row)
