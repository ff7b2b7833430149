"""Cleaning of sentence pairs: one way to write a text, and reasons to drop a training pair."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seq2sweep.config import PrepareConfig

REASONS = ("empty", "too_long", "ratio", "duplicate", "contamination")

# Controls that do not separate words, soft hyphen, zero-width space and word joiner, direction
# marks, byte order mark, annotation and tag characters: nothing a reader sees.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Joiners (ZWNJ, ZWJ) are spelling in Persian, Hindi or emoji, but debris beside Latin letters,
# blanks and at the ends of a line.
_JOINER = "[\u200c\u200d]"
_JOINING = "[^\x00-\u024f\u1e00-\u1eff\\s\u200c\u200d]"
_STRAY_JOINERS = re.compile(
    f"(?<!{_JOINER})(?:(?<!{_JOINING}){_JOINER}++|{_JOINER}++(?!{_JOINING}))"
)

CHARACTERS_PER_WORD = 20
"""A side is too long also with more characters than this for each allowed word."""
RATIO_FROM_WORDS = 10
"""Pairs whose longer side has at most this many words are never out of proportion."""


def normalise(text: str, *, lowercase: bool = False) -> str:
    """The one way this text is written: NFC, nothing invisible, single blanks.

    Every run of white space becomes one blank: also no-break and ideographic spaces, line and
    paragraph separators, form feeds. `normalise` of a normalised text changes nothing.
    """
    # Python calls all that is removed below "not printable", so most lines skip the search.
    printable = text.isprintable()
    if not printable:
        text = _INVISIBLE.sub("", text)
    text = unicodedata.normalize("NFC", text)
    if lowercase:
        text = unicodedata.normalize("NFC", text.lower())
    if not printable:
        text = unicodedata.normalize("NFC", _STRAY_JOINERS.sub("", text))
    return " ".join(text.split())


def is_too_long(text: str, max_words: int) -> bool:
    """More than `max_words` words, or more than 20 characters for each word allowed.

    The second half bounds scripts written without blanks and debris such as encoded images,
    which count as a single word.
    """
    return len(text) > CHARACTERS_PER_WORD * max_words or text.count(" ") + 1 > max_words


def is_out_of_proportion(source: str, target: str, max_ratio: float) -> bool:
    """One side has more than `max_ratio` times the words of the other, and times its bytes.

    Short pairs say little ("Danke." and "Thank you very much indeed."), so a pair is judged only
    if its longer side has more than 10 words. UTF-8 bytes count too, since words alone would drop
    every pair of a language written with blanks and one written without (a Chinese sentence is
    one "word", but about as many bytes as its English translation).
    """
    short, long = sorted((source.count(" ") + 1, target.count(" ") + 1))
    if long <= RATIO_FROM_WORDS or long <= max_ratio * short:
        return False
    short, long = sorted((len(source.encode()), len(target.encode())))
    return long > max_ratio * short


def digest(*texts: str) -> int:
    """A 64-bit digest, never 0: among 10 million texts two different ones meet with p = 3e-6."""
    # No text holds "\n", so the joint text tells ("a b", "c") from ("a", "b c").
    joined = "\n".join(texts).encode()
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little") or 1


class DigestSet:
    """A set of 64-bit digests in 16 to 32 bytes each, where Python's own set takes about 100."""

    def __init__(self) -> None:
        self._size = 0
        self._slots = array("Q", bytes(8 * 1024))

    def __len__(self) -> int:
        return self._size

    def __contains__(self, value: int) -> bool:
        return self._slots[self._slot(value)] == value

    def add(self, value: int) -> bool:
        """Add a digest (not 0); False if it was there already."""
        slot = self._slot(value)
        if self._slots[slot] == value:
            return False
        self._slots[slot] = value
        self._size += 1
        if 2 * self._size > len(self._slots):
            self._grow()
        return True

    def _slot(self, value: int) -> int:
        """Where the value is, or the free slot where it belongs (open addressing)."""
        slots = self._slots
        mask = len(slots) - 1
        slot = value & mask
        while slots[slot] != 0 and slots[slot] != value:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        old = self._slots
        self._slots = array("Q", bytes(2 * 8 * len(old)))
        for value in old:
            if value:
                self._slots[self._slot(value)] = value


@dataclass
class Cleaner:
    """Cleans the splits of one corpus: valid and test first (`hold_out`), then train (`clean`).

    `read` and `dropped` count training pairs; what was read and not dropped was kept.
    """

    config: PrepareConfig
    read: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    _held_out_sources: DigestSet = field(default_factory=DigestSet)
    _held_out_targets: DigestSet = field(default_factory=DigestSet)
    _seen: DigestSet = field(default_factory=DigestSet)

    def hold_out(self, source: str, target: str) -> tuple[str, str]:
        """Normalise a validation or test pair, and keep its sentences out of training."""
        source, target = self._normalise(source), self._normalise(target)
        self._held_out_sources.add(digest(source))
        self._held_out_targets.add(digest(target))
        return source, target

    def clean(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Normalised training pairs without those that are to be dropped, counted by reason."""
        for source, target in pairs:
            source, target = self._normalise(source), self._normalise(target)
            self.read += 1
            reason = self.why_dropped(source, target)
            if reason is None:
                yield source, target
            else:
                self.dropped[reason] += 1

    def why_dropped(self, source: str, target: str) -> str | None:
        """The first of REASONS that fits a normalised training pair; None keeps it."""
        if not source or not target:
            return "empty"
        max_words = self.config.max_words
        if is_too_long(source, max_words) or is_too_long(target, max_words):
            return "too_long"
        if is_out_of_proportion(source, target, self.config.max_ratio):
            return "ratio"
        if not self._seen.add(digest(source, target)):
            return "duplicate"
        if digest(source) in self._held_out_sources or digest(target) in self._held_out_targets:
            return "contamination"
        return None

    def _normalise(self, text: str) -> str:
        return normalise(text, lowercase=self.config.lowercase)
