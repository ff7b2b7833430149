"""Trees as ids of a closed vocabulary."""

from __future__ import annotations

import pytest

from seq2sweep.data.treebank.symbols import EOS, UNKNOWN, WORD, Symbols
from seq2sweep.errors import UserError

TREE = "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"


def test_a_tree_becomes_ids_and_its_symbols_again() -> None:
    symbols = Symbols.learn([TREE])
    assert symbols.labels == ("NP", "S", "VP")
    ((*ids, last),) = symbols.encode([TREE])
    assert last == EOS
    text = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"
    assert symbols.decode([[*ids, EOS, WORD]]) == [text]
    # WORD, then three opening brackets, then the three that close them.
    assert ids[:4] == [6, 5, WORD, 8]
    assert len(symbols) == WORD + 1 + 2 * 3


def test_a_label_that_was_not_learned_is_unknown() -> None:
    symbols = Symbols(["S"])
    assert symbols.encode(["(TOP (S (X (N a))))"]) == [[5, UNKNOWN, WORD, UNKNOWN, 6, EOS]]
    assert symbols.decode([[5, UNKNOWN]]) == ["(S ⁇"]


def test_what_is_beyond_the_last_symbol_is_unknown() -> None:
    """A model has columns to spare, and one that learned little may write them."""
    symbols = Symbols(["S"], ["N"], ["a"])
    assert len(symbols) == 9
    assert symbols.decode([[5, 8, 9, 6, 30, EOS, 9]]) == ["(S XX ⁇ )S ⁇"]
    assert [symbols.id_to_piece(i) for i in (7, 8, 9, 30)] == ["N", "a", "⁇", "⁇"]


def test_words_may_be_their_tags() -> None:
    symbols = Symbols.learn([TREE], tags=True)
    assert symbols.tags == (".", "DT", "NN", "NNP", "VBZ")
    first = WORD + 1 + 2 * 3
    assert len(symbols) == first + 5
    ((*ids, last),) = symbols.encode([TREE])
    assert last == EOS
    # John is NNP, the fourth; as text each word is its tag.
    assert ids[:4] == [6, 5, first + 3, 8]
    assert symbols.decode([ids]) == ["(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"]
    assert symbols.encode(["(TOP (S (UH oh)))"]) == [[6, UNKNOWN, 9, EOS]]
    again = Symbols.load(symbols.dump())
    assert (again.labels, again.tags) == (symbols.labels, symbols.tags)


SECOND = "(TOP (NP (DT a) (NN cat) (. .)))"


@pytest.mark.parametrize("tags", [False, True])
def test_frequent_words_may_be_written_as_themselves(tags: bool) -> None:
    symbols = Symbols.learn([TREE, SECOND], tags=tags, words=3)
    # Twice each, then the first in the alphabet of what occurs once.
    assert symbols.words == (".", "a", "John")
    first = WORD + 1 + 2 * 3 + 5 * tags
    assert len(symbols) == first + 3
    assert symbols.ids_of(["John", "has", "a", "Dog", "."]) == [first + 2, 0, first + 1, 0, first]
    ((*ids, last),) = symbols.encode([TREE])
    assert last == EOS
    others = {"has": first - 1, "dog": first - 3} if tags else {"has": WORD, "dog": WORD}
    assert ids == [
        6,
        5,
        first + 2,
        8,
        7,
        others["has"],
        5,
        first + 1,
        others["dog"],
        8,
        10,
        first,
        9,
    ]
    said = ("VBZ", "NN") if tags else ("XX", "XX")
    text = "(S (NP XX )NP (VP {} (NP XX {} )NP )VP XX )S".format(*said)
    assert symbols.decode([ids]) == [text]
    again = Symbols.load(symbols.dump())
    assert (again.tags, again.words) == (symbols.tags, symbols.words)
    assert again.encode([TREE]) == symbols.encode([TREE])


def test_words_are_parted_by_ascii_white_space_alone() -> None:
    symbols = Symbols(["S"], (), ["a\u2009b"])
    assert Symbols.load(symbols.dump()).words == ("a\u2009b",)


def test_without_words_the_file_is_as_it_was() -> None:
    assert b"words" not in Symbols(["S"], ["NN"]).dump()


def test_the_file_holds_all_of_it() -> None:
    symbols = Symbols.learn(["(TOP (-LRB- (N a)) (NP ( (N b))))"])  # one has no label
    again = Symbols.load(symbols.dump())
    assert again.labels == symbols.labels == ("", "-LRB-", "NP")
    assert again.dump() == symbols.dump()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "property name"),
        (b"[]", "not of kind trees"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"kind": "bpe", "labels": ["S"]}', "not of kind trees"),
        (b'{"kind": "trees"}', "labels are not a list"),
        (b'{"kind": "trees", "labels": [1]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["a b"]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["(S"]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["S", "S"]}', "appears twice"),
        (b'{"kind": "trees", "labels": ["S"]}', "tags are not a list"),
        (b'{"kind": "trees", "labels": ["S"], "tags": ["N", "N"]}', "one of tags appears twice"),
        (b'{"kind": "trees", "labels": ["S"], "tags": [], "words": [""]}', "words are not a list"),
    ],
)
def test_a_damaged_file_is_a_value_error(content: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Symbols.load(content)


def test_no_tree_is_one_line() -> None:
    with pytest.raises(UserError, match="no tree"):
        Symbols.learn([])
