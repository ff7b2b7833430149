"""Sentences without trees, for self-training: words with single blanks between."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import phrasebook
from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.data import sources
from seq2sweep.data.archives import Text
from seq2sweep.data.reading import read_lines
from seq2sweep.data.treebank.trees import parse_tree, sentence_words
from seq2sweep.errors import UserError


def check(config: Config) -> None:
    """Raises UserError where `sentences` does, of files read for as many lines as are asked for."""
    _check_named(config)
    if config.data.dataset != "phrasebook":
        asked = config.self_training.sentences
        lines = itertools.islice(sentences(config), asked)
        for _ in console.progress(lines, "read sentences", "lines", asked):
            pass


def _check_named(config: Config) -> None:
    """Raises UserError for a file of `self_training.files` that is missing, outside of data.folder
    or where DVC would not notice a change, and where the phrasebook has fewer sentences than are
    asked for."""
    asked, data = config.self_training, config.data
    if data.dataset == "phrasebook":
        most = phrasebook.CAPACITY["train"] - data.phrasebook.train
        if asked.sentences > most:
            raise UserError(
                f"self_training.sentences is {asked.sentences:,} but the phrasebook has {most:,} "
                f"beside its {data.phrasebook.train:,} training pairs: ask for no more"
            )
        return
    sources.check_there("self_training.files", asked.files, data.folder)


def sentences(config: Config) -> Iterator[str]:
    """Those of `self_training.files`, in their order; of the phrasebook those that its training
    split would have next, cut into words as its trees are.

    Raises UserError for a file that is missing, outside of data.folder or no text, and where the
    phrasebook has fewer than are asked for.
    """
    _check_named(config)
    asked, data = config.self_training, config.data
    if data.dataset == "phrasebook":
        trees = data.phrasebook.train
        pairs = phrasebook.generate("train", trees + asked.sentences, data.phrasebook.seed)
        found = (pair.tree for pair in itertools.islice(pairs, trees, None))
        yield from (" ".join(parse_tree(tree).words) for tree in found)
        return
    for name in asked.files:
        yield from read_lines(Text(Path(data.folder) / name))


def fresh(lines: Iterable[str], known: set[str], counts: Counter[str]) -> Iterator[str]:
    """The lines that have words and are neither `known` nor were there before, white space aside.

    counts: becomes how many were `read`, and of these how many are `empty`, `known` and `repeated`.
    """
    seen: set[bytes] = set()
    for line in lines:
        sentence = " ".join(sentence_words(line))
        counts["read"] += 1
        if not sentence.strip():  # nor any of a no-break space alone: a parser is given nothing
            counts["empty"] += 1
        elif sentence in known:
            counts["known"] += 1
        elif (digest := hashlib.blake2b(sentence.encode(), digest_size=8).digest()) in seen:
            counts["repeated"] += 1
        else:
            seen.add(digest)
            yield sentence
