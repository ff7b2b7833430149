"""Which sentences make an update, and in what order: a pure function of seed and epoch.

Section 5.1 of "Attention Is All You Need": "Sentence pairs were batched together by approximate
sequence length. Each training batch contained a set of sentence pairs containing approximately
25000 source tokens and 25000 target tokens." Here tokens are counted with their padding, so that
`tokens_per_update` also bounds time and memory.

An update is shared out over workers (`share`) and each share is cut into passes that fit in memory
(`passes`); neither changes what an update is, so any number of workers learns from the same
updates in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import BOS, PAD

Lengths = NDArray[Any]
Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Updates of one epoch: update i trains on sentences order[bounds[i]:bounds[i + 1]].

    order: int64 [sentences], bounds: int64 [updates + 1].
    """

    order: Ids
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, update: int) -> Ids:
        if not 0 <= update < len(self):
            raise IndexError(f"update {update} of {len(self)}")
        return self.order[self.bounds[update] : self.bounds[update + 1]]


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    *,
    tokens_per_update: int,
    seed: int,
    epoch: int,
) -> EpochPlan:
    """Group all sentences into updates of similar length, in an order drawn from (seed, epoch).

    Padded source tokens and padded target tokens of an update are each at most
    `tokens_per_update`; a sentence longer than that is an update of its own. Every sentence
    occurs once.
    """
    random = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    # Raw draws: NumPy promises the same stream for ever, but not the same shuffles.
    ties = random.random_raw(len(source_lengths))
    by_length = _by_length(source_lengths, target_lengths, ties)
    bounds = _cut(source_lengths[by_length], target_lengths[by_length], tokens_per_update)
    sizes = np.diff(bounds)
    shuffled = np.argsort(random.random_raw(len(sizes)), kind="stable")
    starts = np.repeat(bounds[:-1][shuffled], sizes[shuffled])
    new_bounds = np.concatenate([[0], np.cumsum(sizes[shuffled])]).astype(np.int64)
    within = np.arange(len(by_length)) - np.repeat(new_bounds[:-1], sizes[shuffled])
    return EpochPlan(by_length[starts + within], new_bounds)


def share(ids: Ids, rank: int, world_size: int) -> Ids:
    """The part of an update that worker `rank` of `world_size` computes; may be empty."""
    return ids[rank::world_size]


def passes(
    ids: Ids, source_lengths: Lengths, target_lengths: Lengths, tokens_per_pass: int
) -> list[Ids]:
    """Cut a worker's share into passes of at most `tokens_per_pass` padded tokens a side.

    A sentence longer than that is a pass of its own.
    """
    if len(ids) == 0:
        return []
    ordered = ids[_by_length(source_lengths[ids], target_lengths[ids], ids)]
    bounds = _cut(source_lengths[ordered], target_lengths[ordered], tokens_per_pass)
    return np.split(ordered, bounds[1:-1])


def padding_share(
    plan: EpochPlan,
    source_lengths: Lengths,
    target_lengths: Lengths,
    *,
    world_size: int = 1,
    tokens_per_pass: int | None = None,
) -> float:
    """Share of padding among the tokens (of both sides) that an epoch computes, in [0, 1).

    Without `tokens_per_pass` each worker computes its share in one pass.
    """
    padded = 0
    for update in range(len(plan)):
        for rank in range(world_size):
            ids = share(plan[update], rank, world_size)
            parts = (
                passes(ids, source_lengths, target_lengths, tokens_per_pass)
                if tokens_per_pass is not None
                else [ids] * bool(len(ids))
            )
            for part in parts:
                longest = int(source_lengths[part].max()) + int(target_lengths[part].max())
                padded += len(part) * longest
    real = int(source_lengths.sum(dtype=np.int64)) + int(target_lengths.sum(dtype=np.int64))
    return 1 - real / padded


@dataclass(frozen=True)
class Batch:
    """Padded token ids of B sentences, int64: PAD fills the rows up to the longest, S or T.

    source: [B, S], ends with EOS. target_out: [B, T], what the model is to say, ends with EOS.
    target_in: [B, T], the same shifted right behind BOS (section 3.1: "the output embeddings are
    offset by one position").
    """

    source: torch.Tensor
    target_in: torch.Tensor
    target_out: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; returns at once where the copy can run in the background."""
        return Batch(
            self.source.to(device, non_blocking=True),
            self.target_in.to(device, non_blocking=True),
            self.target_out.to(device, non_blocking=True),
        )


def collate(bitext: Bitext, ids: Ids) -> Batch:
    """The sentences `ids` (at least one), in this order, as one padded batch."""
    source, _ = _padded(bitext.sides["source"], ids)
    target_out, lengths = _padded(bitext.sides["target"], ids)
    target_in = np.full_like(target_out, PAD)
    target_in[:, 0] = BOS
    target_in[:, 1:] = target_out[:, :-1]
    # The last token of the longest row fell off; that of a shorter row, EOS, must go as well.
    target_in[np.arange(target_in.shape[1]) >= lengths[:, None]] = PAD
    return Batch(
        torch.from_numpy(source), torch.from_numpy(target_in), torch.from_numpy(target_out)
    )


def _padded(side: Side, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids [B, longest] and lengths [B]."""
    starts = np.asarray(side.offsets[ids])
    lengths = np.asarray(side.offsets[ids + 1]) - starts
    columns = np.arange(int(lengths.max()))
    real = columns < lengths[:, None]
    padded = np.full(real.shape, PAD, np.int64)
    padded[real] = side.tokens[(starts[:, None] + columns)[real]]
    return padded, lengths


def _by_length(source_lengths: Lengths, target_lengths: Lengths, ties: NDArray[Any]) -> Ids:
    """Order in which neighbours are of similar length on both sides.

    By the longer side, which sets the size of a group; within that by the difference of the
    sides, rising and falling in turn, so that the order never jumps. (Multi30k, 2500 tokens an
    update: 2% padding, where target length and then source length gives 5%.)
    """
    source, target = source_lengths.astype(np.int64), target_lengths.astype(np.int64)
    longer, difference = np.maximum(source, target), source - target
    return np.lexsort((ties, np.where(longer % 2 == 0, difference, -difference), longer))


def _cut(source_lengths: Lengths, target_lengths: Lengths, budget: int) -> NDArray[np.int64]:
    """Bounds [groups + 1] of consecutive groups, each as large as the budget allows."""
    longest = np.maximum(source_lengths, target_lengths).astype(np.int64)
    sentences = len(longest)
    bounds = [0]
    while bounds[-1] < sentences:
        start = bounds[-1]
        # The first sentence alone limits the group, so no more than that need be looked at.
        window = longest[start : start + max(1, budget // int(longest[start]))]
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        fitting = int(np.searchsorted(padded, budget, side="right"))
        bounds.append(start + max(1, fitting))
    return np.array(bounds, dtype=np.int64)
