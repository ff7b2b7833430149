"""Dropout (section 5.4), as PyTorch's, with cheaper random numbers on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

CHANCES = 1 << 16


def dropout(x: Tensor, share: float, training: bool) -> Tensor:
    """x with `share` of its numbers set to zero and the others scaled by 1 / (1 - share)."""
    if not training or share == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, share)
    return x * _noise(x, share)


def _noise(x: Tensor, share: float) -> Tensor:
    """What to multiply x with: 0 or 1 / (1 - share).

    PyTorch draws a number for each place, one after another. Here one draw of 64 bits decides for
    four places: shares are multiples of 1 / 65536.
    """
    dropped = round(share * CHANCES)
    if dropped >= CHANCES:
        return torch.zeros_like(x)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    chances = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = chances >= dropped - CHANCES // 2
    return kept.to(x.dtype).mul_(CHANCES / (CHANCES - dropped))
