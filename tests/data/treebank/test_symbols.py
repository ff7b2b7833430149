"""Trees as ids of a closed vocabulary."""

from __future__ import annotations

import json

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
    assert ids[:4] == [6, 5, WORD, 8] and len(symbols) == WORD + 1 + 2 * 3


def test_a_label_that_was_not_learned_is_unknown() -> None:
    symbols = Symbols(["S"])
    assert symbols.encode(["(TOP (S (X (N a))))"]) == [[5, UNKNOWN, WORD, UNKNOWN, 6, EOS]]
    assert symbols.decode([[5, UNKNOWN]]) == ["(S ⁇"]


def test_the_file_holds_all_of_it() -> None:
    symbols = Symbols(["NP", "-LRB-"])
    again = Symbols.load(symbols.dump())
    assert again.labels == symbols.labels and again.dump() == symbols.dump()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"kind": "bpe", "labels": ["S"]}',
        b'{"kind": "trees"}',
        b'{"kind": "trees", "labels": [1]}',
        b'{"kind": "trees", "labels": ["a b"]}',
        b'{"kind": "trees", "labels": ["(S"]}',
        b'{"kind": "trees", "labels": ["S", "S"]}',
    ],
)
def test_a_damaged_file_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        Symbols.load(content)
    with pytest.raises(ValueError):
        json.loads(content) and Symbols.load(content)


def test_no_tree_is_one_line() -> None:
    with pytest.raises(UserError, match="no tree"):
        Symbols.learn([])
