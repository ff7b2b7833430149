"""One way to write a text, and reasons to drop a training pair."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.config import PrepareConfig
from seq2sweep.data.clean import (
    REASONS,
    Cleaner,
    DigestSet,
    digest,
    is_out_of_proportion,
    is_too_long,
    normalise,
)

CONFIG = PrepareConfig(lowercase=False, max_words=20, max_ratio=3.0)
# Characters that meet the rules of normalise, and some that do not.
AWKWARD = (
    "aZß é\u0301\u0300İK\u212bA\u1e9e \t\n\r\x00\x1f\x7f\x85\xa0\xad"
    "\u200b\u200c\u200d\u200e\u2028\u3000\ufeffکनم漢👨\ufe0f▁"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Ein   Haus ", "Ein Haus"),
        ("a\u00a0b\u202fc\u2009d\u3000e", "a b c d e"),
        ("a\u2028b\u2029c\x0bd\x0ce\x85f\x1cg\th\rI", "a b c d e f g h I"),
        ("u\u0308ber", "über"),
        ("\u212bngstrom", "Ångstrom"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("Silben\u00adtrennung", "Silbentrennung"),
        ("nul\x00 bell\x07 del\x7f c1\x9d", "nul bell del c1"),
        ("\u202eabc\u202c \u200fdef", "abc def"),
        ("Auf\u200clage a\u200d b", "Auflage a b"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("\u200cمن\u200d", "من"),
        ("\u200b\u00ad \ufeff", ""),
        ("ﬁ ½ ² Ⅳ ™", "ﬁ ½ ² Ⅳ ™"),
        ("„Anführung“ – »so«", "„Anführung“ – »so«"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_lowercase_is_asked_for() -> None:
    assert normalise("ÄPFEL und Straße") == "ÄPFEL und Straße"
    assert normalise("ÄPFEL und Straße", lowercase=True) == "äpfel und straße"


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text(alphabet=AWKWARD)), st.booleans())
def test_normalise_holds_its_promises(text: str, lowercase: bool) -> None:
    once = normalise(text, lowercase=lowercase)
    assert normalise(once, lowercase=lowercase) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once == " ".join(once.split())
    assert not any(unicodedata.category(character) == "Cc" for character in once)


def test_normalise_removes_nothing_that_is_seen() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character)[0] in "LNPSM":
            expected = unicodedata.normalize("NFC", character)
            assert normalise(character) == expected, f"U+{code:04X}"


def test_too_long_counts_words() -> None:
    assert not is_too_long("a " * 19 + "a", 20)
    assert is_too_long("a " * 20 + "a", 20)


def test_too_long_bounds_text_without_blanks() -> None:
    assert not is_too_long("漢" * 400, 20)
    assert is_too_long("漢" * 401, 20)


@pytest.mark.parametrize(
    ("source", "target", "dropped"),
    [
        ("word " * 4, "word", False),  # short pairs are not judged
        ("word " * 10, "word", False),
        ("word " * 11, "word", True),
        ("word " * 12, "word " * 4, False),  # exactly the ratio
        ("word " * 13, "word " * 4, True),
        ("word " * 30, "word " * 29, False),
        # One "word" against 12, but in proportion by bytes.
        ("今日は天気がとても良いので公園へ行きます。", "word " * 12, False),
        ("a b c d e f g h i j k l m", "Donaudampfschiffahrtsgesellschaft", False),
    ],
)
def test_ratio_is_symmetric_and_spares_short_pairs(source: str, target: str, dropped: bool) -> None:
    source, target = source.strip(), target.strip()
    assert is_out_of_proportion(source, target, 3.0) is dropped
    assert is_out_of_proportion(target, source, 3.0) is dropped


def test_every_reason_is_counted_and_the_first_wins() -> None:
    cleaner = Cleaner(CONFIG)
    assert cleaner.hold_out(" In\u00a0valid", "geprüft ") == ("In valid", "geprüft")
    pairs = [
        ("keep", "behalten"),
        ("", "leer"),
        ("blank", " \u200b\t"),
        ("word " * 21, "Wort"),
        ("word " * 15, "Wort"),
        ("keep ", "behalten"),
        ("keep", "etwas anderes"),
        ("In valid", "neu"),
        ("new", "gepru\u0308ft"),
        ("", ""),
    ]
    kept = list(cleaner.clean(pairs))
    assert kept == [("keep", "behalten"), ("keep", "etwas anderes")]
    assert tuple(cleaner.dropped) == REASONS
    assert cleaner.dropped == {
        "empty": 3,
        "too_long": 1,
        "ratio": 1,
        "duplicate": 1,
        "contamination": 2,
    }
    assert cleaner.read == len(pairs) == len(kept) + sum(cleaner.dropped.values())


def test_a_target_that_occurs_as_a_held_out_source_is_kept() -> None:
    cleaner = Cleaner(CONFIG)
    cleaner.hold_out("Berlin", "in Berlin")
    assert list(cleaner.clean([("in Berlin", "Berlin")])) == [("in Berlin", "Berlin")]


def test_lowercase_reaches_duplicates_and_contamination() -> None:
    cleaner = Cleaner(PrepareConfig(lowercase=True, max_words=20, max_ratio=3.0))
    cleaner.hold_out("SEEN", "GESEHEN")
    kept = list(cleaner.clean([("A", "B"), ("a", "b"), ("Seen", "c")]))
    assert kept == [("a", "b")]


def test_digest_tells_pairs_with_the_same_text_apart() -> None:
    assert digest("a b", "c") != digest("a", "b c")
    assert digest("a", "b") != digest("b", "a")
    assert digest("a", "b") == digest("a", "b")
    assert 0 < digest("") < 2**64


@settings(max_examples=50)
@given(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 2**64 - 1)), max_size=200))
def test_digest_set_is_a_set(values: list[int]) -> None:
    ours, theirs = DigestSet(), set[int]()
    for value in values:
        assert (value in ours) == (value in theirs)
        assert ours.add(value) == (value not in theirs)
        theirs.add(value)
        assert len(ours) == len(theirs)


def test_digest_set_grows() -> None:
    ours = DigestSet()
    values = range(1 << 10, 1 << 16, 3)  # many share their low bits with none, some with many
    assert all(ours.add(value << 8) for value in values)
    assert not any(ours.add(value << 8) for value in values)
    assert len(ours) == len(values)
    assert 7 not in ours
