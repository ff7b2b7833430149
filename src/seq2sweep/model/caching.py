"""What a mixer keeps from one decoding step to the next.

Shapes: B sentences, K hypotheses a sentence, h heads; rows are B * K, sentence by sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

FIRST_ROOM = 32
"""Pieces a sentence that a cache of keys and values begins with; it doubles when it is full."""


class MixerCache(Protocol):
    """A mixer's part of a decoder's cache."""

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""

    def hold(self, columns: Tensor) -> None:
        """Drop all pieces but these (int64 [B, fewer], old places) of each sentence."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices) from what hypotheses share."""


@dataclass
class KeyValueCache:
    """Keys and values [B, h, room, d_k or d_v], of every piece that any hypothesis of a sentence
    was ever continued with, the first `used` of them; they stay where they are, but for those in
    bf16 on a CPU, which have no room beyond."""

    keys: Tensor
    values: Tensor
    used: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add one step's keys and values [B, h, K, d_k or d_v]; gives all so far."""
        start, self.used = self.used, self.used + keys.size(2)
        if keys.dtype == torch.bfloat16 and keys.device.type == "cpu":
            # Whose products copy what has gaps: that takes longer than to make it anew without.
            self.keys = torch.cat((self.keys[:, :, :start], keys), dim=2)
            self.values = torch.cat((self.values[:, :, :start], values), dim=2)
            return self.keys, self.values
        self.keys = _with_room(self.keys, start, self.used, keys)
        self.values = _with_room(self.values, start, self.used, values)
        self.keys[:, :, start : self.used] = keys
        self.values[:, :, start : self.used] = values
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def select(self, hypotheses: Tensor) -> None:
        """Nothing moves: which pieces a hypothesis is made of is a mask, `DecoderCache.past`."""

    def hold(self, columns: Tensor) -> None:
        """Drop all pieces but these (int64 [B, fewer], old places) of each sentence."""
        places = columns[:, None, :, None]
        for name in ("keys", "values"):
            old = getattr(self, name)
            setattr(self, name, old.gather(2, places.expand(-1, old.size(1), -1, old.size(3))))
        self.used = columns.size(1)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices)."""
        self.keys = self.keys[:, :, : self.used].index_select(0, sentences)
        self.values = self.values[:, :, : self.used].index_select(0, sentences)


@dataclass
class StateCache:
    """Numbers of each hypothesis's own, tensors [B * K, ...]: they follow it wherever it goes."""

    states: tuple[Tensor, ...]

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""
        self.states = tuple(state.index_select(0, hypotheses) for state in self.states)

    def hold(self, columns: Tensor) -> None:
        """There are no pieces to drop."""

    def keep(self, sentences: Tensor) -> None:
        """Hypotheses share nothing; `select` has dropped those of other sentences."""


def _with_room(buffer: Tensor, used: int, needed: int, like: Tensor) -> Tensor:
    """A buffer [B, h, room, d] with room for `needed`, of which the first `used` are kept."""
    if needed <= buffer.size(2):
        return buffer
    sentences, heads, _, width = like.shape
    larger = like.new_empty(sentences, heads, max(2 * needed, FIRST_ROOM), width)
    larger[:, :, :used] = buffer[:, :, :used]
    return larger
