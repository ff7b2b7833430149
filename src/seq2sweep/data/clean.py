"""Cleaning of sentence pairs: one way to write a text, and pairs that are dropped.

Normalisers (here) and reasons to drop a pair (`reasons`) are pure functions. A `Cleaner` applies
those that params.yaml switches on to a chunk of pairs, and counts what each of them did.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2sweep.config import PrepareConfig
from seq2sweep.data import filters

NORMALISERS = ("invisible", "unicode", "whitespace")
"""In the order in which they are applied; lower-casing comes after them."""
REASONS = ("empty", "too_long", "ratio", "copied", "script", "contamination", "duplicate")
"""In the order in which they are looked at: the cheap ones first, the one that knows all last."""

Pair = tuple[str, str]

# --- one way to write a text -------------------------------------------------------------------

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


def remove_invisible(text: str) -> str:
    """Without control and zero-width characters, and joiners only where they are spelling."""
    # Python calls all that is removed "not printable", so most lines skip the search.
    if text.isprintable():
        return text
    return _STRAY_JOINERS.sub("", _INVISIBLE.sub("", text))


def compose(text: str) -> str:
    """In Unicode's normal form C: a letter and its accent are one character where there is one.

    A text of more than 1000 characters in which more than 30 accents follow each other (Unicode's
    own bound for sensible text) is left alone: the time to order them grows with their square.
    """
    if len(text) > 1000 and _has_heap_of_accents(text):
        return text
    return unicodedata.normalize("NFC", text)


def single_blanks(text: str) -> str:
    """Every run of white space one blank, none at the ends.

    White space are also no-break and ideographic spaces, line and paragraph separators and form
    feeds. So is U+2581, the low block that SentencePiece writes for a blank and reads as one.
    """
    # The only white space that is "printable" is the blank: most lines need not be taken apart.
    if text.isprintable() and "  " not in text and "\u2581" not in text:
        return text.strip(" ")
    return " ".join(text.replace("\u2581", " ").split())


def one_line(text: str) -> str:
    """Without what a line of a file cannot hold: read again, it would be gone or cut there.

    That is a line feed, a carriage return at the end and a byte order mark at the start.
    """
    return text.replace("\n", " ").lstrip("\ufeff").rstrip("\r")


class Normaliser:
    """The one way texts are written: the chosen normalisers, in the order of NORMALISERS.

    What comes out is a fixed point: normalised again, it stays as it is.
    """

    def __init__(self, chosen: Collection[str] = NORMALISERS, lowercase: bool = False) -> None:
        functions = (remove_invisible, compose, single_blanks)
        self._steps: dict[str, Callable[[str], str]] = {
            name: step for name, step in zip(NORMALISERS, functions, strict=True) if name in chosen
        }
        if lowercase:
            self._steps["lowercase"] = str.lower
        if not {"invisible", "whitespace"} <= self._steps.keys():  # which do this and more
            self._steps["line"] = one_line
        self.names = tuple(self._steps)

    def __call__(self, text: str, changed: Counter[str] | None = None) -> str:
        """The text normalised; `changed` counts it once for each normaliser that changed it."""
        touched = set()
        while True:
            before = text
            for name, step in self._steps.items():
                after = step(text)
                if after != text:
                    touched.add(name)
                    text = after
            # A step may undo what one before it did: removing a character can bring a letter and
            # an accent together.
            if text == before:
                break
        if changed is not None and touched:
            changed.update(touched)
        return text


def _has_heap_of_accents(text: str) -> bool:
    # These three fall apart into accents, though they are none themselves.
    runs = itertools.groupby(
        text, lambda c: unicodedata.combining(c) > 0 or c in "\u0f73\u0f75\u0f81"
    )
    return not text.isascii() and any(accent and len(list(run)) > 30 for accent, run in runs)


# --- a chunk of pairs --------------------------------------------------------------------------

SAMPLES = 50
"""Dropped pairs of each kind that are kept to be looked at."""
SAMPLE_CHARACTERS = 300
"""A longer side of a sample is cut."""


@dataclass(frozen=True)
class Sample:
    """A dropped pair to be looked at, as it was when it was judged, perhaps cut.

    key: see `lowest`. line: in its chunk, from 0; once the corpus is known, in it, from 1.
    """

    key: int
    line: int
    source: str
    target: str
    corpus: str = ""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """What a chunk of training pairs came to.

    source and target are the kept texts, each ended by "\\n", in UTF-8. lines [kept] says where in
    the chunk they were. digests [kept] are those of the pairs, or [0] if duplicates may stay.
    """

    source: bytes
    target: bytes
    lines: NDArray[np.uint32]
    digests: NDArray[np.uint64]
    changed: Counter[str]
    dropped: Counter[str]
    samples: dict[str, list[Sample]]


class Cleaner:
    """Cleans valid and test first (`hold_out`), then any chunk of training pairs (by a call).

    A call changes nothing in the cleaner, so copies of it in several processes share the work.
    """

    def __init__(
        self, config: PrepareConfig, source: str, target: str, *, in_any_case: bool = False
    ) -> None:
        """`source` and `target` are the codes of the languages.

        in_any_case: whether a sentence in other upper and lower case contaminates too.
        """
        self.normaliser = Normaliser(config.normalise, config.lowercase)
        self._whole = Normaliser()
        self._is_whole = set(NORMALISERS) <= set(self.normaliser.names)
        self._in_any_case = in_any_case
        self.reasons = tuple(reason for reason in REASONS if reason in config.drop)
        """Those switched on. The last, duplicate, takes all chunks together: see `duplicates`."""
        self._config = config
        self._languages = (source, target)
        # Whole texts, not digests: a test set is small, and so no pair is dropped by chance.
        self._held_out_sources: set[str] = set()
        self._held_out_targets: set[str] = set()

    def hold_out(self, source: str, target: str, changed: Counter[str] | None = None) -> Pair:
        """Normalise a validation or test pair, and keep its sentences out of training."""
        source, target = self.normaliser(source, changed), self.normaliser(target, changed)
        self._held_out_sources.add(self._alike(source))
        self._held_out_targets.add(self._alike(target))
        return source, target

    def _alike(self, text: str) -> str:
        """The same for texts that are one sentence, however few normalisers are chosen."""
        text = text if self._is_whole else self._whole(text)
        return text.lower() if self._in_any_case else text

    def __call__(self, pairs: Sequence[Pair]) -> Cleaned:
        """Normalise training pairs, drop those with a reason, and count both."""
        judges = self._judges()
        with_digests = "duplicate" in self.reasons
        changed, dropped = Counter[str](), Counter[str]()
        sources, targets, lines, digests = [], [], [], []
        samples: dict[str, list[Sample]] = {}
        for line, (raw_source, raw_target) in enumerate(pairs):
            source = self.normaliser(raw_source, changed)
            target = self.normaliser(raw_target, changed)
            for reason, applies in judges.items():
                if applies(source, target):
                    dropped[reason] += 1
                    samples.setdefault(reason, []).append(_sample(line, source, target))
                    break
            else:
                source_bytes, target_bytes = source.encode(), target.encode()
                sources.append(source_bytes)
                targets.append(target_bytes)
                lines.append(line)
                if with_digests:
                    digests.append(_digest(source_bytes, target_bytes))
        return Cleaned(
            _block(sources),
            _block(targets),
            np.array(lines, np.uint32),
            np.frombuffer(b"".join(digests), "<u8"),
            changed,
            dropped,
            {reason: lowest(found) for reason, found in samples.items()},
        )

    def _judges(self) -> dict[str, Callable[[str, str], bool]]:
        words, ratio = self._config.max_words, self._config.max_ratio
        from_language, to_language = self._languages
        judges: dict[str, Callable[[str, str], bool]] = {
            "empty": lambda s, t: filters.is_empty(s) or filters.is_empty(t),
            "too_long": lambda s, t: filters.is_too_long(s, words) or filters.is_too_long(t, words),
            "ratio": lambda s, t: filters.is_out_of_proportion(s, t, ratio),
            "copied": filters.is_copied,
            "script": lambda s, t: (
                filters.is_other_script(s, from_language) or filters.is_other_script(t, to_language)
            ),
            "contamination": lambda s, t: (
                self._alike(s) in self._held_out_sources or self._alike(t) in self._held_out_targets
            ),
        }
        return {reason: judges[reason] for reason in self.reasons if reason != "duplicate"}


def lowest(samples: Iterable[Sample]) -> list[Sample]:
    """The SAMPLES samples of the lowest keys, of each key the first that is given.

    Keys are digests of the text, so that this is a random choice, yet the same however the pairs
    were cut into chunks, and no text is in it twice.
    """
    by_key: dict[int, Sample] = {}
    for sample in samples:
        by_key.setdefault(sample.key, sample)
    return heapq.nsmallest(SAMPLES, by_key.values(), key=lambda sample: sample.key)


def _sample(line: int, source: str, target: str) -> Sample:
    key = int.from_bytes(_digest(source.encode(), target.encode()), "little")
    return Sample(key, line, shortened(source), shortened(target))


def shortened(text: str) -> str:
    """The text, cut with an ellipsis if it is longer than SAMPLE_CHARACTERS."""
    return text if len(text) <= SAMPLE_CHARACTERS else text[: SAMPLE_CHARACTERS - 1] + "…"


def _digest(source: bytes, target: bytes) -> bytes:
    """8 bytes; among 36 million different pairs two meet with a probability of 4e-5."""
    # No text holds "\n", so the joint text tells ("a b", "c") from ("a", "b c").
    return hashlib.blake2b(source + b"\n" + target, digest_size=8).digest()


def _block(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""])
