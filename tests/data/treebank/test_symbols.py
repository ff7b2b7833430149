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


def test_the_file_holds_all_of_it() -> None:
    symbols = Symbols(["NP", "-LRB-"])
    again = Symbols.load(symbols.dump())
    assert again.labels == symbols.labels
    assert again.dump() == symbols.dump()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "property name"),
        (b"[]", "not of kind trees"),
        (b'{"kind": "bpe", "labels": ["S"]}', "not of kind trees"),
        (b'{"kind": "trees"}', "labels are not a list"),
        (b'{"kind": "trees", "labels": [1]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["a b"]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["(S"]}', "labels are not a list"),
        (b'{"kind": "trees", "labels": ["S", "S"]}', "appears twice"),
        (b'{"kind": "trees", "labels": ["S"]}', "tags are not a list"),
        (b'{"kind": "trees", "labels": ["S"], "tags": ["N", "N"]}', "one of tags appears twice"),
    ],
)
def test_a_damaged_file_is_a_value_error(content: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Symbols.load(content)


def test_no_tree_is_one_line() -> None:
    with pytest.raises(UserError, match="no tree"):
        Symbols.learn([])
