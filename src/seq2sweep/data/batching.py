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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import BOS, PAD

if TYPE_CHECKING:  # it takes a second to load, and what plans batches may never make one
    import torch

Lengths = NDArray[Any]
Ids = NDArray[np.int64]

CHANCE_BITS = 16
"""Pairs alike in both lengths are shuffled by a random number of at least so many bits."""
BLOCK = 1 << 20
"""Sentences looked at at once, so that no intermediate array is large."""


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Updates of one epoch: sentences in order of length, cut into groups, the groups shuffled.

    Group g is the sentences order[bounds[g]:bounds[g + 1]]; update i trains on group turns[i].
    order: int64 [sentences], bounds: int64 [updates + 1], turns: int64 [updates].
    """

    order: Ids
    bounds: NDArray[np.int64]
    turns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, update: int) -> Ids:
        if not 0 <= update < len(self):
            raise IndexError(f"update {update} of {len(self)}")
        group = self.turns[update]
        return self.order[self.bounds[group] : self.bounds[group + 1]]


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
    occurs once. At its peak it takes 12 bytes a sentence.
    """
    random = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    order, longer = _by_length(source_lengths, target_lengths, random)
    bounds = _cut(longer, tokens_per_update)
    # Raw draws: NumPy promises the same stream for ever, but not the same shuffles.
    turns = np.argsort(random.random_raw(len(bounds) - 1), kind="stable")
    return EpochPlan(order, bounds, turns)


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
    ids = np.sort(ids)
    order, longer = _by_length(source_lengths[ids], target_lengths[ids])
    return np.split(ids[order], _cut(longer, tokens_per_pass)[1:-1])


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


def collate(bitext: Bitext, ids: Ids) -> Batch:
    """The sentences `ids` (at least one), in this order, as one padded batch."""
    import torch

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


def _by_length(
    source_lengths: Lengths, target_lengths: Lengths, random: np.random.PCG64 | None = None
) -> tuple[Ids, NDArray[np.int32]]:
    """Order [sentences] in which neighbours are alike, and the longer side's length in that order.

    By the longer side, which sets the size of a group; within that by the difference of the
    sides, rising and falling in turn, so that the order never jumps. (Multi30k, 2500 tokens an
    update: 2% padding, where target length and then source length gives 5%.) Pairs that are alike
    in both follow at random, or by index without `random`.

    All of that, and the index, is one number a sentence, so that a plain sort does it: a second
    and 8 bytes a sentence for 36 million, where sorting indices takes five times as long.
    """
    sentences = len(source_lengths)
    longest = max(int(source_lengths.max()), int(target_lengths.max()))
    index_bits = max(1, (sentences - 1).bit_length())
    # The difference is from -longest to longest. Its low bits are left out where they would leave
    # too little room for chance: only with sentences of thousands of pieces.
    coarse = 0
    while 64 - index_bits - _group_bits(longest, coarse) < CHANCE_BITS and longest >> coarse:
        coarse += 1
    difference_bits = ((2 * longest) >> coarse).bit_length()
    chance_bits = 64 - index_bits - _group_bits(longest, coarse)
    keys = np.empty(sentences, np.uint64)
    for start in range(0, sentences, BLOCK):
        block = slice(start, min(start + BLOCK, sentences))
        source = source_lengths[block].astype(np.int64)
        target = target_lengths[block].astype(np.int64)
        longer, difference = np.maximum(source, target), source - target
        turned = np.where(longer % 2 == 0, difference, -difference) + longest
        group = ((longer << difference_bits) | (turned >> coarse)).astype(np.uint64)
        keys[block] = np.arange(block.start, block.stop, dtype=np.uint64)
        if random is None:
            keys[block] |= group << np.uint64(index_bits)
        else:
            chance = random.random_raw(len(source)) >> np.uint64(64 - chance_bits)
            keys[block] |= ((group << np.uint64(chance_bits)) | chance) << np.uint64(index_bits)
    keys.sort()
    drawn_bits = 0 if random is None else chance_bits
    above = np.uint64(difference_bits + drawn_bits + index_bits)
    in_order = np.empty(sentences, np.int32)
    for start in range(0, sentences, BLOCK):
        in_order[start : start + BLOCK] = keys[start : start + BLOCK] >> above
    keys &= np.uint64((1 << index_bits) - 1)
    return keys.view(np.int64), in_order


def _group_bits(longest: int, coarse: int) -> int:
    return longest.bit_length() + ((2 * longest) >> coarse).bit_length()


def _cut(longer: NDArray[np.int32], budget: int) -> NDArray[np.int64]:
    """Bounds [groups + 1] of consecutive groups, each as large as the budget allows."""
    sentences = len(longer)
    bounds = [0]
    while bounds[-1] < sentences:
        start = bounds[-1]
        # The first sentence alone limits the group, so no more than that need be looked at.
        window = longer[start : start + max(1, budget // int(longer[start]))].astype(np.int64)
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        fitting = int(np.searchsorted(padded, budget, side="right"))
        bounds.append(start + max(1, fitting))
    return np.array(bounds, dtype=np.int64)


def blank(batch: Batch) -> Batch:
    """The same batch with nothing to learn: for a worker that an update has no sentence for.

    It must still take part, since the others wait for its gradients.
    """
    nothing = batch.target_out.new_full(batch.target_out.shape, PAD)
    return Batch(batch.source, batch.target_in, nothing)
