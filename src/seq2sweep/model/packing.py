"""Padding removed from what needs none: only mixers and attention look at whole sentences.

Shapes: B sentences padded to n pieces, R of the B * n real; d numbers a piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seq2sweep.data.vocabulary import PAD

NARROWEST = 256
"""To what `roomy` widens sentences at least, so that widths are few."""


@dataclass(frozen=True)
class Packing:
    """Which pieces of a padded batch are real: `places`, int64 [R], rising, in [0, B * n).

    offsets: int32 [B + 1], the row at which each sentence begins among the R, and R; None where
    the rows are not those of sentences.
    """

    places: Tensor
    sentences: int
    width: int
    offsets: Tensor | None = None

    @classmethod
    def of(cls, pieces: Tensor) -> Packing:
        """Of piece ids [B, n]. On a GPU this waits for the device: make it before the move."""
        real = pieces.ne(PAD)
        places = real.flatten().nonzero().squeeze(1)
        offsets = F.pad(real.sum(1).cumsum(0, dtype=torch.int32), (1, 0))
        return cls(places, pieces.size(0), pieces.size(1), offsets)

    def roomy(self, sentences: int) -> Packing:
        """With offsets of so many sentences, those that are not there without pieces, and a width
        that is a power of two."""
        assert self.offsets is not None
        missing = max(0, sentences - self.sentences)
        offsets = torch.cat((self.offsets, self.offsets[-1:].expand(missing)))
        width = max(NARROWEST, 1 << (self.width - 1).bit_length())
        places = self.places // self.width * width + self.columns()
        return Packing(places, self.sentences + missing, width, offsets)

    def to(self, device: torch.device) -> Packing:
        """The same on a device; returns at once where the copy can run in the background."""
        offsets = self.offsets
        if offsets is not None:
            offsets = offsets.to(device, non_blocking=True)
        places = self.places.to(device, non_blocking=True)
        return Packing(places, self.sentences, self.width, offsets)

    def lengths(self) -> list[int]:
        """How many real pieces each sentence has. On a GPU this waits for the device."""
        assert self.offsets is not None
        lengths: list[int] = self.offsets.diff().tolist()
        return lengths

    def columns(self) -> Tensor:
        """Which piece of its sentence each real piece is, from 0: int64 [R]."""
        return self.places % self.width

    def pack(self, x: Tensor) -> Tensor:
        """The real rows of x [B, n, d]: [R, d]."""
        packed: Tensor = _Pack.apply(x.flatten(0, 1), self.places)  # type: ignore[no-untyped-call]
        return packed

    def pad(self, x: Tensor) -> Tensor:
        """Rows x [R, d] at their places in [B, n, d], zeros at the padding."""
        rows = self.sentences * self.width
        padded: Tensor = _Pad.apply(x, self.places, rows)  # type: ignore[no-untyped-call]
        return padded.view(self.sentences, self.width, -1)


def _spread(x: Tensor, places: Tensor, rows: int) -> Tensor:
    return x.new_zeros(rows, x.size(1)).index_copy_(0, places, x)


def real(mask: Tensor) -> Tensor:
    """Which pieces are real, bool [B, n], of a mask [B, 1, 1, n] that attention takes: bool, or
    what to add to scores."""
    keys = mask[:, 0, 0]
    return keys if keys.dtype == torch.bool else keys.eq(0)


def zeroed(x: Tensor, mask: Tensor | None, packing: Packing | None) -> Tensor:
    """x [B, n, d] with zeros where the mask [B, 1, 1, n] shows padding; what is packed has none."""
    if mask is None or packing is not None:
        return x
    return x.masked_fill(~real(mask).unsqueeze(-1), 0.0)


# Each is the other's gradient: no place is taken twice. PyTorch, which does not know that, adds up.


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, places: Tensor) -> Tensor:
        context.save_for_backward(places)
        context.rows = x.size(0)
        return x.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = context.saved_tensors
        return _spread(gradient, places, context.rows), None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, places: Tensor, rows: int) -> Tensor:
        context.save_for_backward(places)
        return _spread(x, places, rows)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (places,) = context.saved_tensors
        return gradient.index_select(0, places), None, None
