"""Dropout (section 5.4), as PyTorch's, with cheaper random numbers on a CPU."""

from __future__ import annotations

import numpy as np
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
    return x * (_noise_operator if torch.compiler.is_compiling() else _noise)(x.detach(), share)


def _noise(x: Tensor, share: float) -> Tensor:
    """What to multiply x with: 0 or 1 / (1 - share).

    PyTorch draws a number for each place, one after another. Here one draw of 64 bits, by a
    generator that is several times as fast and seeded by PyTorch's, decides for four places: shares
    are multiples of 1 / 65536.
    """
    dropped = round(share * CHANCES)
    if dropped >= CHANCES:
        return torch.zeros_like(x)
    seed = int(torch.randint(2**63 - 1, ()))
    draws = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.int16)
    chances = torch.from_numpy(draws)[: x.numel()].view(x.shape)
    # 1 or 0, as numbers: what PyTorch does with bool takes ten times as long.
    kept = torch.ge(chances, dropped - CHANCES // 2, out=chances)
    return kept.to(x.dtype).mul_(CHANCES / (CHANCES - dropped))


# For torch.compile, which does not look into it. As x is given, though only its shape counts, they
# draw in the same order as those that are not compiled.
_noise_operator = torch.library.custom_op(
    "seq2sweep::dropout_noise",
    _noise,
    mutates_args=(),
    schema="(Tensor x, float share) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)


@_noise_operator.register_fake
def _(x: Tensor, share: float) -> Tensor:
    return torch.empty_like(x)
