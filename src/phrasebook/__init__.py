"""The phrasebook: true English-German sentence pairs from a hand-built lexicon and grammar.

Conventions that make the translation a function of the English: "you" is the formal Sie; the
simple past and the present perfect become the Perfekt; "will" becomes werden; "like" with a verb
becomes gern; simple present and progressive are both the German present.

Sentences are distinct, streamed at constant memory, and the same for a seed everywhere.  A
sentence's split follows from a digest of its German alone, so splits never share a side of a
pair.  Some combinations of words, and of construction and verb, are kept for the test split,
whose sentences that show one are tagged ``new_combination``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from . import sampling
from .lexicon import load, pairs
from .phenomena import PHENOMENA

__all__ = ["CAPACITY", "PHENOMENA", "Pair", "generate", "lemma_counts"]

Split = Literal["train", "valid", "test"]

# How many distinct pairs every seed is sure to yield; the derivation spaces hold many more.
CAPACITY: dict[str, int] = {"train": 20_000_000, "valid": 1_000_000, "test": 1_000_000}


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation, the phenomena it shows, and its tree.

    The tree is of the source: one line of Penn Treebank brackets with gold tags, whose root is TOP.
    """

    source: str
    target: str
    phenomena: tuple[str, ...]
    tree: str


def generate(split: Split, count: int, seed: int) -> Iterator[Pair]:
    """Yield *count* distinct pairs of a split; a longer run begins with the shorter one."""
    if split not in CAPACITY:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(CAPACITY)}")
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    if count > CAPACITY[split]:
        raise ValueError(
            f"the {split} split has a capacity of {CAPACITY[split]} distinct pairs, "
            f"{count} were asked for"
        )
    return _generate(split, count, seed)


def _generate(split: Split, count: int, seed: int) -> Iterator[Pair]:
    for sentence in islice(sampling.sentences(split, seed), count):
        tags = sentence.tags or {"plain"}
        yield Pair(sentence.english, sentence.german, tuple(sorted(tags)), sentence.tree)


def lemma_counts() -> dict[str, int]:
    """Lemmas of the lexicon by word class."""
    from . import clauses, lexicon_words

    lexicon = load()
    verbs = {f.verb.name for f in (*lexicon.frames, *lexicon.motions)}
    places = len(pairs(lexicon_words.CITIES)) + len(pairs(lexicon_words.COUNTRIES_BARE))
    adverbs = {pair for text in lexicon_words.MANNER_TABLES.values() for pair in pairs(text)}
    times = {pair for group in clauses.TIMES.values() for pair in group}
    return {
        "nouns": len(lexicon.nouns),
        "verbs": len(verbs),
        "adjectives": len(lexicon.adjectives),
        "manner adverbials": len(adverbs),
        "time adverbials": len(times),
        "first names": len(clauses.NAMES),
        "cities and countries": places + len(lexicon_words.COUNTRIES_WITH_ARTICLE),
        "numbers": len(clauses.NUMBERS),
        "pronouns": 8,
        "modal verbs": 6,
    }
