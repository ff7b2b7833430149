"""What a model attends to: maps of sentence pairs (figures 3 to 5).

Layers are named as `Architecture.attention_weights` does: `encoder.i.attention`,
`decoder.i.attention` and `decoder.i.memory_attention`, i from 0. Of a target y_1 ... y_m the
decoder reads <s> y_1 ... y_(m-1), and its row i predicts y_i.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2sweep.data.treebank import trees
from seq2sweep.data.vocabulary import BOS, EOS, PAD, SPECIAL, Vocabulary
from seq2sweep.data.word_piece import WORD_START
from seq2sweep.decode.beam import Engine
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture import Architecture

KINDS = {
    "encoder": "encoder.{}.attention",
    "decoder": "decoder.{}.attention",
    "memory": "decoder.{}.memory_attention",
}
"""Of attention, and how its layers are named: of encoder and decoder to itself, and of the decoder
to the source."""
ENDS = {SPECIAL[token] for token in (PAD, BOS, EOS)}
"""Tokens that are no part of any word."""
_BYTE = re.compile("<0x([0-9A-F]{2})>")


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
    neighbourhoods: of the layers whose rows see so many positions at most, around or up to their
    own (`model.mixer_neighbourhood`).
    """

    source: list[str]
    read: list[str]
    predicted: list[str]
    weights: dict[str, NDArray[np.float32]]
    symbols: bool = False
    neighbourhoods: Mapping[str, int] = field(default_factory=dict)

    @property
    def heads(self) -> int:
        """How many there are, of all layers."""
        return sum(len(weights) for weights in self.weights.values())

    def rows(self, layer: str) -> list[str]:
        """What the rows of a layer's map are."""
        return self.source if place(layer)[0] == "encoder" else self.predicted

    def keys(self, layer: str) -> list[str]:
        """What its columns are."""
        return self.read if is_causal(layer) else self.source

    def words(self, tokens: list[str]) -> list[int]:
        """The number of the word that each of such tokens belongs to, from 0."""
        if self.symbols and tokens is not self.source:
            return [*range(len(tokens))]
        starts = [
            token.startswith(WORD_START) or token in ENDS or before in ENDS
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
    """What is shown first, or alone: a layer, heads of it, from 0, and a row, or all."""

    layer: str
    heads: list[int]
    row: int | None


def place(layer: str) -> tuple[str, int]:
    """Of a layer by its name: the key of KINDS, and its number, from 0."""
    number = int(layer.split(".")[1])
    return next(kind for kind, name in KINDS.items() if name.format(number) == layer), number


def is_causal(layer: str) -> bool:
    """Whether a row of the layer sees the keys up to its own only."""
    return place(layer)[0] == "decoder"


def pairs(
    translator: Translator,
    sentences: Sequence[str],
    targets: Sequence[str] = (),
    engine: Engine | None = None,
) -> list[Pair]:
    """Sentences with these targets, or with the translations that search finds, token by token.

    engine: what searches, as `Translator.translate` has it. Raises UserError for one that is empty,
    has more tokens than the model takes, or is to be a tree and is none.
    """
    vocabulary, clean = translator.vocabulary, translator.clean(sentences)
    said = targets if vocabulary.symbols is not None else translator.clean(targets)
    for what, lines in (("sentence", clean), ("target", said)):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise UserError(f"{what} {number} is empty: there is nothing to attend to")
            if any("\ud800" <= character <= "\udfff" for character in line):
                raise UserError(f"{what} {number} is not UTF-8: write it in UTF-8")
    sources = _whole(translator, "sentence", vocabulary.encode(clean))
    if not targets:
        best = translator.translate(clean, engine=engine)
        found: Sequence[Sequence[int]] = [first.pieces for first, *_ in best]
    else:
        found = _whole(translator, "target", _encoded(vocabulary, clean, said))
    return [Pair(*both) for both in zip(sources, found, strict=True)]


def _encoded(
    vocabulary: Vocabulary, sentences: Sequence[str], targets: Sequence[str]
) -> list[list[int]]:
    """Targets token by token; where those are symbols of trees, each must be its sentence's."""
    encoded: list[list[int]] = []
    for number, (sentence, target) in enumerate(zip(sentences, targets, strict=True), start=1):
        try:
            encoded += vocabulary.encode([target], "target")
            if vocabulary.symbols is not None:
                _check_words(number, sentence, target)
        except trees.TreeError as error:
            raise UserError(f"target {number} is no tree: {error}") from None
    return encoded


def _check_words(number: int, sentence: str, tree: str) -> None:
    """Raises UserError for a tree over other words than those of its sentence."""
    words = trees.clean(trees.parse_tree(tree)).words
    for said, asked in itertools.zip_longest(words, trees.words_of(sentence), fillvalue="no word"):
        if said != asked:
            raise UserError(
                f"target {number} has {said!r} where its sentence has {asked!r}: give a tree of "
                "the sentence's own words"
            )


def _whole(translator: Translator, what: str, lines: list[list[int]]) -> list[list[int]]:
    """These, none of which may be too long."""
    most = translator.longest_input
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
        {
            name: int(module.neighbourhood)
            for name, module in model.named_modules()
            if hasattr(module, "neighbourhood")
        },
    )


def _row(tokens: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([[*tokens]], device=device)
