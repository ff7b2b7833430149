"""One way to write a text, and chunks of pairs cleaned and counted."""

from __future__ import annotations

import pickle
import random
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.config import PrepareConfig
from seq2sweep.data import clean
from seq2sweep.data.clean import (
    NORMALISERS,
    REASONS,
    SAMPLES,
    Cleaner,
    Normaliser,
    Sample,
    compose,
    lowest,
    one_line,
    remove_invisible,
    single_blanks,
)

CONFIG = PrepareConfig(
    normalise=NORMALISERS, lowercase=False, drop=REASONS, max_words=20, max_ratio=3.0
)
# Characters that meet the rules of normalise, and some that do not.
AWKWARD = (
    "aZß é\u0301\u0300İK\u212bA\u1e9e \t\n\r\x00\x1f\x7f\x85\xa0\xad"
    "\u200b\u200c\u200d\u200e\u2028\u3000\ufeffکनم漢👨\ufe0f▁"
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.text(alphabet=AWKWARD, max_size=20)
)


def normalise(text: str, *, lowercase: bool = False) -> str:
    """As all normalisers together write it."""
    return Normaliser(lowercase=lowercase)(text)


def cleaner(**changes: object) -> Cleaner:
    return Cleaner(PrepareConfig(**{**vars(CONFIG), **changes}), "en", "de")  # type: ignore[arg-type]


def kept(cleaned: clean.Cleaned) -> list[tuple[str, str]]:
    sides = [block.decode().split("\n") for block in (cleaned.source, cleaned.target)]
    assert sides[0].pop() == sides[1].pop() == ""
    return list(zip(*sides, strict=True))


# --- one way to write a text -------------------------------------------------------------------


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
        ("\u2581Ein\u2581\u2581Haus", "Ein Haus"),
        ("\u2581", ""),
        ("a\u200c\u0300\u200cक", "àक"),  # the first joiner gone, the second stands by a letter à
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
        if unicodedata.category(character)[0] in "LNPSM" and character != "\u2581":
            expected = unicodedata.normalize("NFC", character)
            assert normalise(character) == expected, f"U+{code:04X}"


def test_all_white_space_and_all_controls_are_seen_to() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character.isspace():
            assert normalise(f"a{character}b") == "a b", f"U+{code:04X}"
        elif unicodedata.category(character) == "Cc":
            assert normalise(f"a{character}b") == "ab", f"U+{code:04X}"


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (remove_invisible, "a\u200bb\x00 \u200d\xa0 c\t", "ab \xa0 c\t"),
        (remove_invisible, "u\u0308", "u\u0308"),
        (compose, "u\u0308\u200b  ", "ü\u200b  "),
        (single_blanks, " a\t\u2028b\u2581\xa0c\u200b ", "a b c\u200b"),
        (single_blanks, "a  b", "a b"),
        (single_blanks, " a ", "a"),
        (single_blanks, "u\u0308", "u\u0308"),
        (one_line, "\ufeff a\ufeff\nb \r\r", " a\ufeff b "),
    ],
)
def test_each_normaliser_does_one_thing(function: object, text: str, expected: str) -> None:
    assert callable(function)
    assert function(text) == expected


def test_a_heap_of_accents_takes_no_time() -> None:
    heap = "u\u0308" + "\u0301\u0316" * 1_000_000  # would take days to order
    assert normalise(heap) == heap
    for falls_apart in "\u0f73\u0f75\u0f81":  # each into two accents, though it is none itself
        assert normalise(falls_apart * 1_000_000) == falls_apart * 1_000_000
    assert normalise("\u0301\u0316" * 15 + "u\u0308" * 1000).endswith("ü" * 999)


@pytest.mark.parametrize("switched_off", NORMALISERS)
def test_a_normaliser_can_be_switched_off(switched_off: str) -> None:
    text = {"invisible": "a\u200bb", "unicode": "u\u0308", "whitespace": "a  b"}[switched_off]
    assert normalise(text) != text
    changed: Counter[str] = Counter()
    others = [name for name in NORMALISERS if name != switched_off]
    assert Normaliser(others)(text, changed) == text
    assert not changed


def test_changes_are_counted_once_a_text() -> None:
    changed: Counter[str] = Counter()
    normaliser = Normaliser(lowercase=True)
    # The last one goes round again: lower case makes a letter out of which NFC makes another.
    for text in ("as it is", "two  \u200b  blanks", "u\u0308\x00  ", "Z", "J\u030c"):
        normaliser(text, changed)
    assert changed == {"invisible": 2, "whitespace": 2, "unicode": 2, "lowercase": 2}
    assert normaliser("J\u030c") == "\u01f0"
    assert normaliser.names == (*NORMALISERS, "lowercase")


def test_normalisers_come_in_their_order_whatever_the_order_asked_for() -> None:
    assert Normaliser(tuple(reversed(NORMALISERS))).names == NORMALISERS


@settings(max_examples=300)
@given(ANY_TEXT, st.sets(st.sampled_from(NORMALISERS)), st.booleans())
def test_any_choice_can_be_written_as_a_line_and_is_a_fixed_point(
    text: str, chosen: set[str], lowercase: bool
) -> None:
    normaliser = Normaliser(chosen, lowercase)
    once = normaliser(text)
    assert normaliser(once) == once
    # As files.read_lines reads: a mark at the start and a line end of two characters are gone.
    written = (once + "\n").encode()
    assert written.count(b"\n") == 1
    assert not written.endswith(b"\r\n")
    assert not written.startswith(b"\xef\xbb\xbf")
    if {"invisible", "whitespace"} <= chosen:
        assert "line" not in normaliser.names
        assert one_line(once) == once


def test_nothing_is_changed_that_need_not_be() -> None:
    text = "u\u0308\u200b  \x00\u2028\r B\t"
    assert Normaliser(())(text) == text
    assert Normaliser((), lowercase=True)(text) == text.lower()


# --- chunks of pairs ---------------------------------------------------------------------------


def test_every_reason_is_counted_and_the_first_wins() -> None:
    cleaner_ = cleaner()
    changed: Counter[str] = Counter()
    assert cleaner_.hold_out(" In\u00a0valid", "geprüft ", changed) == ("In valid", "geprüft")
    assert changed == {"whitespace": 2}
    pairs = [
        ("keep", "behalten"),
        ("", "leer"),
        ("blank", " \u200b\t"),
        ("word " * 21, "Wort"),  # out of proportion as well
        ("word " * 15, "Wort"),
        ("keep ", "behalten"),  # a duplicate, which a chunk alone does not decide
        ("the same in both of them", "The same in both of them"),
        ("это", "geprüft"),  # contamination as well
        ("In valid", "neu"),
        ("new", "gepru\u0308ft"),
        ("", ""),
    ]
    cleaned = cleaner_(pairs)
    assert kept(cleaned) == [("keep", "behalten"), ("keep", "behalten")]
    assert cleaned.lines.tolist() == [0, 5]
    assert cleaned.digests[0] == cleaned.digests[1]
    assert cleaned.dropped == {
        "empty": 3,
        "too_long": 1,
        "ratio": 1,
        "copied": 1,
        "script": 1,
        "contamination": 2,
    }
    assert cleaned.changed == {"invisible": 1, "whitespace": 4, "unicode": 1}
    assert len(pairs) == len(cleaned.lines) + cleaned.dropped.total()


EXAMPLES = {
    "empty": ("", "leer"),
    "too_long": ("word " * 21, "Wort " * 21),
    "ratio": ("word " * 15, "Wort"),
    "copied": ("one two three four five six", "one two three four five six"),
    "script": ("это", "das"),
    "contamination": ("held out", "neu"),
}


@pytest.mark.parametrize("reason", EXAMPLES)
def test_a_reason_can_be_switched_off_and_stands_alone(reason: str) -> None:
    without = cleaner(drop=[other for other in REASONS if other != reason])
    alone = cleaner(drop=[reason])
    for one in (without, alone):
        one.hold_out("held out", "vorenthalten")
    pairs = list(EXAMPLES.values())
    # One side empty and the other out of proportion: with "empty" off, "ratio" spares it.
    assert len(without(pairs).lines) == 1
    assert pairs[without(pairs).lines[0]] == EXAMPLES[reason]
    assert alone(pairs).dropped == {reason: 1}
    assert alone(pairs).digests.tolist() == []


def test_reasons_keep_their_order_whatever_the_order_asked_for() -> None:
    assert cleaner(drop=tuple(reversed(REASONS))).reasons == REASONS
    assert cleaner(drop=()).reasons == ()
    assert len(cleaner(drop=())([("", ""), ("", "")]).lines) == 2


def test_script_knows_which_side_is_which() -> None:
    config = PrepareConfig(**{**vars(CONFIG), "drop": ("script",)})
    pairs = [("Добрый день", "Good day"), ("Good day", "Добрый день")]
    assert kept(Cleaner(config, "ru", "en")(pairs)) == pairs[:1]
    assert kept(Cleaner(config, "en", "ru")(pairs)) == pairs[1:]


def test_a_target_that_occurs_as_a_held_out_source_is_kept() -> None:
    cleaner_ = cleaner()
    cleaner_.hold_out("Berlin", "in Berlin")
    assert kept(cleaner_([("in Berlin", "Berlin")])) == [("in Berlin", "Berlin")]


def test_lowercase_reaches_duplicates_and_contamination() -> None:
    cleaner_ = cleaner(lowercase=True)
    cleaner_.hold_out("SEEN", "GESEHEN")
    cleaned = cleaner_([("A", "B"), ("a", "b"), ("Seen", "c")])
    assert kept(cleaned) == [("a", "b"), ("a", "b")]
    assert cleaned.digests[0] == cleaned.digests[1]
    assert cleaned.dropped == {"contamination": 1}


def test_digests_tell_pairs_with_the_same_text_apart() -> None:
    pairs = [("a b", "c"), ("a", "b c"), ("c", "a b"), ("a b", "c")]
    digests = cleaner()(pairs).digests
    assert digests.dtype == np.uint64
    assert len(set(digests.tolist())) == 3
    assert digests[0] == digests[3]


@pytest.mark.parametrize("chosen", [(), ("unicode",), ("invisible", "whitespace"), NORMALISERS])
def test_contamination_is_the_same_sentence_however_few_normalisers_are_chosen(
    chosen: tuple[str, ...],
) -> None:
    cleaner_ = cleaner(normalise=chosen, drop=("contamination",))
    cleaner_.hold_out("Held  out", "gepr\u00fcft")
    pairs = [
        ("Held out", "neu"),
        ("Held\u00a0out ", "neu"),
        ("He\u00adld out", "neu"),
        ("new", "gepru\u0308ft"),
        ("held out", "neu"),
    ]
    assert [pair[0] for pair in kept(cleaner_(pairs))] == ["held out"]
    # What is kept is written as before.
    assert kept(cleaner_([("a  b", "c")])) == [
        ("a  b" if "whitespace" not in chosen else "a b", "c")
    ]


def test_contamination_in_any_case() -> None:
    config = PrepareConfig(**{**vars(CONFIG), "drop": ("contamination",)})
    cleaner_ = Cleaner(config, "en", "de", in_any_case=True)
    assert cleaner_.hold_out("Held OUT", "Geprüft") == ("Held OUT", "Geprüft")
    pairs = [("HELD out", "neu"), ("new", "GEPRÜFT"), ("Another", "Neu")]
    assert kept(cleaner_(pairs)) == pairs[2:]


def test_a_copy_made_by_pickle_does_the_same() -> None:
    original = cleaner()
    original.hold_out("held out", "vorenthalten")
    copy = pickle.loads(pickle.dumps(original))
    pairs = [*EXAMPLES.values(), ("keep", "behalten")]
    ours, theirs = original(pairs), copy(pairs)
    assert kept(ours) == kept(theirs)
    assert ours.dropped == theirs.dropped != {}
    assert ours.samples == theirs.samples
    assert pickle.loads(pickle.dumps(ours)).digests.tolist() == ours.digests.tolist()


def test_an_empty_chunk_and_one_of_which_nothing_is_left() -> None:
    for pairs in ([], [("", "")]):
        cleaned = cleaner()(pairs)
        assert (cleaned.source, cleaned.target) == (b"", b"")
        assert len(cleaned.lines) == len(cleaned.digests) == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=20), st.integers(1, 20))
def test_hostile_text_keeps_the_sides_aligned_however_it_is_cut(
    pairs: list[tuple[str, str]], size: int
) -> None:
    whole = cleaner()(pairs)
    parts = [cleaner()(pairs[i : i + size]) for i in range(0, len(pairs), size)]
    assert len(whole.lines) + whole.dropped.total() == len(pairs)
    assert [pair for part in parts for pair in kept(part)] == kept(whole)
    assert sum((part.dropped for part in parts), Counter()) == whole.dropped
    assert sum((part.changed for part in parts), Counter()) == whole.changed
    assert kept(whole) == [(normalise(pairs[i][0]), normalise(pairs[i][1])) for i in whole.lines]


def test_samples_are_some_of_all_and_the_same_for_any_chunks() -> None:
    pairs = [("", str(i % 300)) for i in range(1000)]
    random.Random(0).shuffle(pairs)
    (whole,) = cleaner()(pairs).samples.values()
    assert len(whole) == SAMPLES
    assert len({sample.target for sample in whole}) == SAMPLES
    assert all(pairs[sample.line] == (sample.source, sample.target) for sample in whole)
    assert all(pairs.index(("", sample.target)) == sample.line for sample in whole)
    for size in (1, 7, 999):
        merged: list[Sample] = []
        for start in range(0, len(pairs), size):
            (found,) = cleaner()(pairs[start : start + size]).samples.values()
            merged = lowest([*merged, *found])
        assert [sample.target for sample in merged] == [sample.target for sample in whole]


def test_a_long_sample_is_cut() -> None:
    samples = cleaner()([("x" * 300, ""), ("", "y" * 1_000_000)]).samples["empty"]
    assert {sample.source + sample.target for sample in samples} == {"x" * 300, "y" * 299 + "…"}
