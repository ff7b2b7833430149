"""What a model attends to: maps of sentence pairs (figures 3 to 5), and each head in numbers.

Layers are named as `Architecture.attention_weights` does: `encoder.i.attention`,
`decoder.i.attention` and `decoder.i.memory_attention`, i from 0. Of a target y_1 ... y_m the
decoder reads <s> y_1 ... y_(m-1), and its row i predicts y_i.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from seq2sweep.data.vocabulary import BOS, EOS, PAD, SPECIAL, Vocabulary
from seq2sweep.data.word_piece import WORD_START
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.attention import MultiHeadAttention

FARTHEST = 5
"""Tokens; a head may be positional at an offset up to this."""
POSITIONAL = 0.9
"""Share of a head's weight on one offset from which it is called positional (Voita et al. 2019)."""
NEAR_DIAGONAL = 1.0
"""Source tokens around the diagonal of the memory's map that count as on it."""
_BYTE = re.compile("<0x([0-9A-F]{2})>")

AT_ONCE = 16
"""Pairs; their logits take 16 x 60 x 37 000 numbers at a time, 140 MB."""


@dataclass(frozen=True)
class Pair:
    """Token ids of a source and of a target, EOS last; a target that was cut has none."""

    source: Sequence[int]
    target: Sequence[int]


@dataclass(frozen=True)
class Maps:
    """One pair: its tokens as text, and the weights of each layer, float32 [heads, rows, keys].

    source: keys of encoder and memory, and rows of the encoder. read: keys of the decoder.
    predicted: rows of the decoder and of the memory. symbols: the target's tokens are words each.
    """

    source: list[str]
    read: list[str]
    predicted: list[str]
    weights: dict[str, NDArray[np.float32]]
    symbols: bool = False

    def rows(self, layer: str) -> list[str]:
        """What the rows of a layer's map are."""
        return self.source if layer.startswith("encoder") else self.predicted

    def keys(self, layer: str) -> list[str]:
        """What its columns are."""
        return self.read if is_causal(layer) else self.source

    def words(self, tokens: list[str]) -> list[int]:
        """The number of the word that each of such tokens belongs to, from 0."""
        if self.symbols and tokens is not self.source:
            return [*range(len(tokens))]
        starts = [
            token.startswith(WORD_START) or token in SPECIAL or before in SPECIAL
            for before, token in zip(["", *tokens], tokens, strict=False)
        ]
        starts[:1] = [False]
        return [*itertools.accumulate(map(int, starts))]

    def texts(self, tokens: list[str]) -> list[str]:
        """Those words as text; bytes that are no UTF-8 show as U+FFFD."""
        joined = defaultdict[int, bytes](bytes)
        for word, token in zip(self.words(tokens), tokens, strict=True):
            byte = _BYTE.fullmatch(token)
            joined[word] += bytes.fromhex(byte[1]) if byte else token.encode(errors="replace")
        found = [text.decode(errors="replace") for text in joined.values()]
        return [text.removeprefix(WORD_START) or text for text in found]

    def by_word(self, layer: str) -> NDArray[np.float32]:
        """A layer's weights by word [heads, rows, keys]: on a word's tokens together, on average of
        its rows, so that rows sum to 1."""
        weights = self.weights[layer]
        rows, keys = (_membership(self.words(side(layer))) for side in (self.rows, self.keys))
        found: NDArray[np.float32] = (rows / rows.sum(axis=1, keepdims=True)) @ weights @ keys.T
        return found


def _membership(words: list[int]) -> NDArray[np.float32]:
    """[words, tokens]: 1 where the token is of the word."""
    found: NDArray[np.float32] = np.zeros((words[-1] + 1, len(words)), np.float32)
    found[words, range(len(words))] = 1
    return found


class Choice(NamedTuple):
    """What is shown: a layer, heads of it, from 0, and a row, or all."""

    layer: str
    heads: list[int]
    row: int | None


def choose(
    one: Maps,
    of: str,
    number: int | None = None,
    heads: Sequence[int] | None = None,
    word: str | None = None,
    *,
    words: bool = True,
) -> Choice:
    """Of the encoder, the decoder or its memory: the layer of this number, from 1, or the last;
    heads from 1, or all; the first row that is this word, or token. UserError where there is none.
    """
    part = {"encoder": "encoder.{}.attention", "decoder": "decoder.{}.attention"}
    name = part.get(of, "decoder.{}.memory_attention")
    there = [i for i in range(len(one.weights)) if name.format(i) in one.weights]
    if not there:
        raise UserError(f"this model has no attention of the kind {of}: choose another by --of")
    layer = there[-1] if number is None else number - 1
    if layer not in there:
        shown = ", ".join(str(i + 1) for i in there)
        raise UserError(f"--layer {number}: {of} attention has layers {shown}")
    layer_name = name.format(layer)
    count = len(one.weights[layer_name])
    for head in heads or ():
        if not 1 <= head <= count:
            raise UserError(f"--head {head}: the layer has heads 1 to {count}")
    row, tokens = None, one.rows(layer_name)
    if word is not None:
        texts = one.texts(tokens) if words else tokens
        if word not in texts:
            raise UserError(f"--word {word}: the words are {' '.join(texts)}")
        row = texts.index(word)
    return Choice(layer_name, [head - 1 for head in heads or range(1, count + 1)], row)


def is_causal(layer: str) -> bool:
    """Whether a row of the layer sees the keys up to its own only."""
    return layer.startswith("decoder") and not layer.endswith("memory_attention")


def pairs(
    translator: Translator, sentences: Sequence[str], targets: Sequence[str] = ()
) -> list[Pair]:
    """Sentences with these targets, or with the translations that search finds, token by token.

    Raises UserError for one that is empty or has more tokens than the model takes.
    """
    vocabulary, clean = translator.vocabulary, translator.clean(sentences)
    said = targets if vocabulary.symbols is not None else translator.clean(targets)
    for what, lines in (("sentence", clean), ("target", said)):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise UserError(f"{what} {number} is empty: there is nothing to attend to")
    sources = _whole(translator, "sentence", vocabulary.encode(clean))
    if not targets:
        found: Sequence[Sequence[int]] = [best.pieces for best, *_ in translator.translate(clean)]
    else:
        found = _whole(translator, "target", vocabulary.encode(said, "target"))
    return [Pair(*both) for both in zip(sources, found, strict=True)]


def _whole(translator: Translator, what: str, lines: list[list[int]]) -> list[list[int]]:
    """These, none of which may be too long."""
    most = min(translator.config.max_input_tokens, translator.model.max_length)
    for number, tokens in enumerate(lines, start=1):
        if len(tokens) > most:
            raise UserError(f"{what} {number} has {len(tokens)} tokens: at most {most} are taken")
    return lines


def maps(model: Architecture, vocabulary: Vocabulary, pair: Pair) -> Maps:
    """Of one pair, in one pass, without dropout. A layer that is no attention is left out."""
    device = next(model.parameters()).device
    read = [BOS, *pair.target[:-1]]
    found = model.attention_weights(_row(pair.source, device), _row(read, device))
    return Maps(
        vocabulary.tokens(pair.source),
        vocabulary.tokens(read, "target"),
        vocabulary.tokens(pair.target, "target"),
        {layer: weights[0].float().cpu().numpy() for layer, weights in found.items()},
        vocabulary.symbols is not None,
    )


def _row(tokens: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([[*tokens]], device=device)


# --- heads in numbers ----------------------------------------------------------------------------

Numbers = dict[str, float | str | bool | None]
"""Of a head."""


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


def numbers(
    model: Architecture,
    of: Iterable[Maps],
    targets: Sequence[Pair],
    on_done: Callable[[int], object] = lambda heads: None,
) -> list[Numbers]:
    """`heads`, each with `loss_without`, where that can be told, on the pairs of these maps."""
    lost = loss_without(model, targets, on_done)
    return [
        entry | {"loss_without": lost.get((str(entry["layer"]), int(entry["head"] or 0)))}
        for entry in heads(of)
    ]


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
            _measure(sums[layer], weights.astype(np.float64), layer, one.keys(layer))
    found = []
    for layer, count in counts.items():
        of_layer = sums[layer]
        for head in range(count):
            shares = {
                offset: share
                for offset in range(-FARTHEST, FARTHEST + 1)
                if (share := of_layer.mean(_offset(offset), head)) is not None
            }
            offset = max(shares, key=lambda offset: (shares[offset], -abs(offset)))
            entry: Numbers = {"layer": layer, "head": head}
            for name in ("entropy", "distance"):
                entry[name] = of_layer.mean(name, head)
            for name, at in (("previous", -1), ("same", 0), ("next", 1)):
                entry[name] = shares.get(at)
            for name in ("ends", "punctuation", "diagonal"):
                entry[name] = of_layer.mean(name, head)
            entry |= {"offset": offset, "offset_share": shares[offset]}
            entry["positional"] = shares[offset] >= POSITIONAL
            found.append(entry)
    return found


def _measure(sums: _Sums, weights: NDArray[np.float64], layer: str, keys: Sequence[str]) -> None:
    """Add what the rows of one map say. weights [heads, rows, keys]."""
    causal = is_causal(layer)
    n, m = weights.shape[1:]
    rows, columns = np.arange(n)[:, None], np.arange(m)[None, :]
    seen = np.minimum(rows[:, 0] + 1, m) if causal else np.full(n, m)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    several = seen > 1
    entropy = -(weights * logs).sum(axis=2)[:, several] / np.log(seen[several])
    sums.add("entropy", entropy)
    sums.add("distance", (weights * abs(columns - rows)).sum(axis=2))
    for offset in range(-FARTHEST, min(FARTHEST, 0 if causal else FARTHEST) + 1):
        there = np.arange(max(0, -offset), min(n, m - offset))
        sums.add(_offset(offset), weights[:, there, there + offset])
    ends = [SPECIAL[BOS if causal else EOS] == key for key in keys]
    sums.add("ends", weights[:, :, ends].sum(axis=2))
    sums.add("punctuation", weights[:, :, [*map(_is_punctuation, keys)]].sum(axis=2))
    if layer.endswith("memory_attention"):
        expected = rows * (m - 1) / max(n - 1, 1)
        near = abs(columns - expected) <= NEAR_DIAGONAL
        sums.add("diagonal", (weights * near).sum(axis=2))


def _offset(offset: int) -> str:
    return f"offset {offset}"


def _is_punctuation(token: str) -> bool:
    text = token.removeprefix(WORD_START)
    return (
        bool(text) and all(unicodedata.category(c)[0] in "PS" for c in text) and text not in SPECIAL
    )


# --- what a head is worth ------------------------------------------------------------------------


@torch.no_grad()
def loss_without(
    model: Architecture,
    of: Sequence[Pair],
    on_done: Callable[[int], object] = lambda heads: None,
) -> dict[tuple[str, int], float]:
    """What the loss of the targets, in nats a token, rises by when one head gives nothing (Michel
    et al. 2019), by layer and head. Only heads that W^O joins can be left out so: those of the
    Transformer."""
    model.eval()
    whole, found = _loss(model, of), {}
    for layer, module in _joined(model).items():
        for head in range(module.heads):
            with _without(module, head):
                found[layer, head] = _loss(model, of) - whole
            on_done(1)
    return found


def head_count(model: Architecture) -> int:
    """How many heads `loss_without` leaves out, one by one."""
    return sum(module.heads for module in _joined(model).values())


def _joined(model: Architecture) -> dict[str, MultiHeadAttention]:
    modules = model.named_modules()
    return {name: module for name, module in modules if isinstance(module, MultiHeadAttention)}


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


def _loss(model: Architecture, of: Sequence[Pair]) -> float:
    """Of the targets, unsmoothed, in nats a token."""
    device = next(model.parameters()).device
    total = 0.0
    for start in range(0, len(of), AT_ONCE):
        some = of[start : start + AT_ONCE]
        source, target = (
            pad_sequence([torch.tensor(tokens) for tokens in side], True, PAD).to(device)
            for side in zip(*((one.source, one.target) for one in some), strict=True)
        )
        begin = torch.full_like(target[:, :1], BOS)
        logits = model(source, torch.cat((begin, target[:, :-1]), dim=1))
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, reduction="sum"
        )
        total += float(loss)
    return total / sum(len(one.target) for one in of)
