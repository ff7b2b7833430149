"""Word pieces as in Wu et al. 2016, section 4.1: every word is cut by longest match first.

Section 5.1 of "Attention Is All You Need" takes 32000 of them for English-French. A word begins
with "▁", as in SentencePiece, so that text comes back as it went in. A character without a piece
becomes one unknown token and the rest of its word is cut as if nothing had been there; other
word-piece programs make the whole word unknown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

KIND = "word_piece"
WORD_START = "▁"
UNKNOWN_SURFACE = "⁇"

REMEMBERED_WORDS = 100_000
"""Most words of a text are among its last 100 000 different ones; they take about 20 MB."""
LONGEST_REMEMBERED = 100
"""Characters; a longer word hardly comes twice, and could be megabytes."""


class WordPieces:
    """Cuts text into pieces by longest match first, and joins them again."""

    def __init__(self, pieces: Sequence[str], special: int, unknown: int, end: int) -> None:
        """Piece i has id i. The first `special` ones match no text: `unknown` and `end` are two."""
        self._pieces = [*pieces]
        self._pieces[unknown] = UNKNOWN_SURFACE
        self._ids = {piece: i for i, piece in enumerate(pieces) if i >= special}
        self._longest = max(map(len, self._ids))
        self._unknown = unknown
        self._end = end
        self._remembered = lru_cache(REMEMBERED_WORDS)(self._cut)

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, `end` last. Words are what blanks separate."""
        return [
            [*chain.from_iterable(map(self._ids_of, line.split(" "))), self._end] for line in lines
        ]

    def id_to_piece(self, number: int) -> str:
        """The piece of an id, as SentencePiece has it."""
        return self._pieces[number]

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids; an unknown token shows as U+2047."""
        return [
            "".join([self._pieces[i] for i in sequence]).replace(WORD_START, " ")
            for sequence in sequences
        ]

    def _ids_of(self, word: str) -> tuple[int, ...]:
        if len(word) > LONGEST_REMEMBERED:
            return self._cut(word)
        return self._remembered(word)

    def _cut(self, word: str) -> tuple[int, ...]:
        if not word:  # between two blanks
            return ()
        text = WORD_START + word
        ids = []
        start = 0
        while start < len(text):
            for stop in range(min(start + self._longest, len(text)), start, -1):
                found = self._ids.get(text[start:stop])
                if found is not None:
                    ids.append(found)
                    start = stop
                    break
            else:
                ids.append(self._unknown)
                start += 1
        return tuple(ids)


def dump(pieces: Sequence[str]) -> bytes:
    """The model file: JSON, one piece a line."""
    described = {"kind": KIND, "pieces": [*pieces]}
    return json.dumps(described, ensure_ascii=False, indent=0).encode() + b"\n"


def load(model: bytes) -> list[str]:
    """The pieces of a model file by id. Raises ValueError when it is not what `dump` gives."""
    try:
        described = json.loads(model)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(described, dict) or described.get("kind") != KIND:
        raise ValueError(f"not of kind {KIND}")
    pieces = described.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(p, str) and p for p in pieces):
        raise ValueError("pieces are not a list of texts")
    if len(set(pieces)) < len(pieces) or WORD_START not in pieces:
        raise ValueError("a piece appears twice, or none begins a word")
    return pieces
