"""Each attention head in numbers: where it looks, and what it is worth.

Means over the rows of the maps of sentence pairs (`attention_maps`), token by token.
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import BOS, EOS, PAD, SPECIAL, Vocabulary
from seq2sweep.data.word_piece import WORD_START
from seq2sweep.evaluate.attention.attention_maps import Maps, Pair, is_causal, maps, place
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.attention import MultiHeadAttention

NUMBERS = ("entropy", "distance", "previous", "same", "next", "ends", "punctuation", "diagonal")
"""What `heads` says of a head beside its offset, in the order in which it is shown."""
FARTHEST = 5
"""Tokens; a head may be positional at an offset up to this."""
OFFSETS = {
    offset: {-1: "previous", 0: "same", 1: "next"}.get(offset, f"offset {offset}")
    for offset in range(-FARTHEST, FARTHEST + 1)
}
POSITIONAL = 0.9
"""Share of a head's weight on one offset from which it is called positional (Voita et al. 2019)."""
NEAR_DIAGONAL = 1.0
"""Source tokens around the diagonal of the memory's map that count as on it."""
REMOVABLE = 0.01
"""Nats a token: a head whose removal raises the loss by less is called removable."""
LONGEST = 128
"""Tokens of a side; pairs with more are not measured, as one pair's maps grow with its square."""
AT_ONCE = 1000
"""Tokens of a pass; the logits of 37 000 pieces take 148 MB."""

Numbers = dict[str, Any]
"""Of a head."""


def sample(bitext: Bitext, most: int, longest: int = LONGEST) -> list[int]:
    """At most so many pairs of a split, by their place from 0, evenly spaced among those of no more
    than `longest` tokens a side."""
    short = np.maximum(bitext.source_lengths, bitext.target_lengths) <= longest
    fitting = [int(i) for i in np.flatnonzero(short)]
    count = min(most, len(fitting))
    return [fitting[i * len(fitting) // count] for i in range(count)]


def pair(bitext: Bitext, i: int) -> Pair:
    """A pair of a split: its source and its reference."""
    return Pair(bitext.source(i).tolist(), bitext.target(i).tolist())


def measure(
    model: Architecture,
    vocabulary: Vocabulary,
    of: Sequence[Pair],
    on_done: Callable[[int], object] = lambda pairs_and_heads: None,
    on_maps: Callable[[Maps], object] = lambda one: None,
) -> list[Numbers]:
    """`heads` of these pairs, each with `loss_without`, where that can be told; none of a model
    without attention, and none of no pair. One pair's maps are in memory at a time, as `on_maps`
    gets them. on_done hears of each pair, and then of each head that was left out."""

    if not of:
        return []

    def every_map() -> Iterator[Maps]:
        for one in of:
            made = maps(model, vocabulary, one)
            on_maps(made)
            on_done(1)
            yield made

    found = heads(every_map())
    lost = loss_without(model, {entry["layer"] for entry in found}, of, on_done)
    return [entry | {"loss_without": lost.get((entry["layer"], entry["head"]))} for entry in found]


def summary(found: Sequence[Numbers]) -> dict[str, Any]:
    """All heads in few numbers: how many `heads` there are; `cross_attention_entropy`: the mean of
    those of the decoder over the source; how many are `positional`; of those that can be left out
    the mean `loss_without` and the share that is `removable`, None where none can be."""
    memory = [entry["entropy"] for entry in found if place(entry["layer"])[0] == "memory"]
    known = [entropy for entropy in memory if entropy is not None]
    lost = [entry["loss_without"] for entry in found if entry["loss_without"] is not None]
    return {
        "heads": len(found),
        "cross_attention_entropy": fmean(known) if known else None,
        "positional": sum(entry["positional"] for entry in found),
        "loss_without": fmean(lost) if lost else None,
        "removable": fmean(loss < REMOVABLE for loss in lost) if lost else None,
    }


# --- where a head looks --------------------------------------------------------------------------


@dataclass
class _Sums:
    """Of one layer, each head: sums over rows, and over how many."""

    sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, name: str, values: NDArray[np.float64]) -> None:
        """values [heads, rows]; there may be no row."""
        total = values.sum(axis=1, dtype=np.float64)
        self.sums[name] = self.sums.get(name, 0.0) + total
        self.rows[name] += values.shape[1]

    def mean(self, name: str, head: int) -> float | None:
        """None where there was no row."""
        rows = self.rows.get(name, 0)
        return float(self.sums[name][head]) / rows if rows else None


def heads(of: Iterable[Maps]) -> list[Numbers]:
    """One entry a head: `layer` and `head`, from 0, and means over all rows of all maps.

    `entropy`: in nats, divided by log of how many keys a row may see; `distance`: expected, in
    tokens between row and key; `previous`, `same`, `next`: the share of the weight on the key at
    that offset, of rows that have one; `ends`: on </s>, of the decoder on <s>; `punctuation`;
    `diagonal`: of the memory, on the keys next to where the row would be if both sentences were as
    long; `offset` and `offset_share`: of all offsets up to 5 that with the largest share;
    `positional`: whether that is at least 0.9. None where it can not be told: a decoder sees no
    next token.
    """
    sums: dict[str, _Sums] = defaultdict(_Sums)
    counts: dict[str, int] = {}
    for one in of:
        for layer, weights in one.weights.items():
            counts[layer] = len(weights)
            _measure(sums[layer], weights.astype(np.float64), layer, one)
    found = []
    for layer, count in counts.items():
        mean = sums[layer].mean
        for head in range(count):
            shares = {
                offset: share
                for offset, name in OFFSETS.items()
                if (share := mean(name, head)) is not None
            }
            offset = max(shares, key=lambda offset: (shares[offset], -abs(offset)))
            entry: Numbers = {"layer": layer, "head": head}
            entry |= {name: mean(name, head) for name in NUMBERS}
            entry |= {"offset": offset, "offset_share": shares[offset]}
            entry["positional"] = shares[offset] >= POSITIONAL
            found.append(entry)
    return found


def _measure(sums: _Sums, weights: NDArray[np.float64], layer: str, one: Maps) -> None:
    """Add what the rows of one map say. weights [heads, rows, keys]."""
    kind, causal, keys = place(layer)[0], is_causal(layer), one.keys(layer)
    n, m = weights.shape[1:]
    rows, columns = np.arange(n)[:, None], np.arange(m)[None, :]
    seen = _keys_seen(n, m, causal, one.neighbourhoods.get(layer))
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    several = seen > 1
    entropy = -(weights * logs).sum(axis=2)[:, several] / np.log(seen[several])
    sums.add("entropy", entropy)
    sums.add("distance", (weights * abs(columns - rows)).sum(axis=2))
    for offset, name in OFFSETS.items():
        if offset <= (0 if causal else FARTHEST):
            there = np.arange(max(0, -offset), min(n, m - offset))
            sums.add(name, weights[:, there, there + offset])
    ends = [SPECIAL[BOS if causal else EOS] == key for key in keys]
    sums.add("ends", weights[:, :, ends].sum(axis=2))
    sums.add("punctuation", weights[:, :, [*map(_is_punctuation, keys)]].sum(axis=2))
    if kind == "memory":
        expected = rows * (m - 1) / max(n - 1, 1)
        near = abs(columns - expected) <= NEAR_DIAGONAL
        sums.add("diagonal", (weights * near).sum(axis=2))


def _keys_seen(n: int, m: int, causal: bool, neighbourhood: int | None) -> NDArray[np.int64]:
    """How many of m keys each of n rows sees; neighbourhood: of so many, clipped at the ends."""
    rows = np.arange(n)
    if causal:
        return np.minimum(rows + 1, neighbourhood or m)
    if neighbourhood is None:
        return np.full(n, m)
    each = (neighbourhood - 1) // 2
    return np.minimum(rows, each) + 1 + np.minimum(m - 1 - rows, each)


def _is_punctuation(token: str) -> bool:
    text = token.removeprefix(WORD_START)
    return (
        bool(text) and all(unicodedata.category(c)[0] in "PS" for c in text) and text not in SPECIAL
    )


# --- what a head is worth ------------------------------------------------------------------------


@torch.no_grad()
def loss_without(
    model: Architecture,
    layers: Iterable[str],
    of: Sequence[Pair],
    on_done: Callable[[int], object] = lambda heads: None,
) -> dict[tuple[str, int], float]:
    """What the loss of the targets, in nats a token, rises by when one head of these layers gives
    nothing (Michel et al. 2019), by layer and head. Only heads that W^O joins can be left out so:
    those of the Transformer."""
    model.eval()
    batches = _batches(of, next(model.parameters()).device)
    whole, found = _loss(model, batches), {}
    for layer, module in _joined(model, layers).items():
        for head in range(module.heads):
            with _without(module, head):
                found[layer, head] = _loss(model, batches) - whole
            on_done(1)
    return found


def _joined(model: Architecture, layers: Iterable[str]) -> dict[str, MultiHeadAttention]:
    modules, wanted = dict(model.named_modules()), {*layers}
    return {
        name: module
        for name, module in modules.items()
        if name in wanted and isinstance(module, MultiHeadAttention)
    }


@contextlib.contextmanager
def _without(module: MultiHeadAttention, head: int) -> Iterator[None]:
    """Within, W^O takes nothing of this head."""
    columns = module.output.weight.data[:, head * module.d_v : (head + 1) * module.d_v]
    kept = columns.clone()
    columns.zero_()
    try:
        yield
    finally:
        columns.copy_(kept)


Batch = tuple[Tensor, Tensor]
"""Source and target ids of some pairs, padded."""


def _batches(of: Sequence[Pair], device: torch.device) -> list[Batch]:
    """Pairs of about one length together, at most AT_ONCE tokens a side, but one pair."""
    batches: list[list[Pair]] = []
    width = 0
    for one in sorted(of, key=lambda one: (len(one.target), len(one.source))):
        width = max(width, len(one.source), len(one.target))
        if not batches or (len(batches[-1]) + 1) * width > AT_ONCE:
            batches.append([])
            width = max(len(one.source), len(one.target))
        batches[-1].append(one)
    return [
        (_padded([one.source for one in some], device), _padded([o.target for o in some], device))
        for some in batches
    ]


def _padded(lines: Iterable[Sequence[int]], device: torch.device) -> Tensor:
    return pad_sequence([torch.tensor(tokens) for tokens in lines], True, PAD).to(device)


def _loss(model: Architecture, batches: Sequence[Batch]) -> float:
    """Of the targets, unsmoothed, in nats a token."""
    total, count = 0.0, 0
    for source, target in batches:
        begin = torch.full_like(target[:, :1], BOS)
        logits = model(source, torch.cat((begin, target[:, :-1]), dim=1))
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, reduction="sum"
        )
        total, count = total + float(loss), count + int(target.ne(PAD).sum())
    return total / count
