"""Scores of pairs of lines from two files, of any length: only some are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from seq2sweep import console
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.files import SIDES
from seq2sweep.data.reading import read_pairs
from seq2sweep.decode.beam import best_device
from seq2sweep.decode.forced import PairScore, score_pairs
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator

CHARACTERS = 1 << 18
"""Of both sides, so many at a time: some thousand pairs, which are sorted by length."""


def count_pairs(translator: Translator, source: Path, target: Path) -> int:
    """How many pairs of lines two files hold, each of which the model can take.

    Raises UserError where they differ in lines, one is too long, or a model writes trees.
    """
    if translator.vocabulary.symbols is not None:
        raise UserError("pairs of trees are not scored: the model is not of two languages")
    pairs = 0
    with tqdm(**console.bar("read", "pairs")) as bar:
        for bitext in _encoded(translator, source, target):
            pairs += len(bitext)
            bar.update(len(bitext))
    return pairs


def scores_of(translator: Translator, source: Path, target: Path) -> Iterator[list[PairScore]]:
    """The scores of all pairs in their order, some at a time. Text is normalised as in training."""
    device = best_device()
    for bitext in _encoded(translator, source, target):
        found = score_pairs(
            translator.model,
            bitext,
            tokens_per_batch=translator.config.tokens_per_batch,
            device=device,
        )
        yield [score for _, score in sorted(found, key=lambda entry: entry[0])]


def _encoded(translator: Translator, *paths: Path) -> Iterator[Bitext]:
    """Some pairs at a time, both files side by side."""
    vocabulary = translator.vocabulary
    most = translator.longest_input
    done = 0
    for pairs in _some(read_pairs(*paths)):
        sides = []
        for path, name, lines in zip(paths, SIDES, zip(*pairs, strict=True), strict=True):
            tokens, lengths = vocabulary.encode_flat(translator.clean(lines), name)
            if (longest := int(lengths.max())) > most:
                raise UserError(
                    f"{path} line {done + int(lengths.argmax()) + 1} has {longest} tokens: at most "
                    f"{most} are taken; remove the pair"
                )
            offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
            sides.append(Side(tokens, offsets, lengths))
        yield Bitext({}, *sides)
        done += len(pairs)


def _some(pairs: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    held: list[tuple[str, str]] = []
    characters = 0
    for pair in pairs:
        held.append(pair)
        characters += sum(map(len, pair)) + 1
        if characters >= CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held
