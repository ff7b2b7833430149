"""Trees to symbols and back, and trees of any symbols."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given

from seq2sweep.data.treebank.linearisation import Repairs, linearise, rebuild
from seq2sweep.data.treebank.trees import Bracket, Tree, clean, parse_tree
from tests.data.treebank.random_trees import LABELS, trees
from tests.data.treebank.real_trees import REAL, real_trees


def test_the_example_of_vinyals_et_al() -> None:
    tree = clean(parse_tree("(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"))
    symbols = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S".split()
    assert linearise(tree) == symbols
    assert rebuild(symbols, tree.words, tree.tags) == (tree, Repairs())


@given(trees())
def test_a_tree_comes_back_as_it_was(tree: Tree) -> None:
    symbols = linearise(tree)
    assert symbols.count("XX") == len(tree.words)
    assert len(symbols) == len(tree.words) + 2 * len(tree.brackets)
    found, repairs = rebuild(symbols, tree.words, tree.tags)
    assert found == tree
    assert not repairs


@pytest.mark.parametrize(
    ("symbols", "brackets", "repairs"),
    [
        ("(S XX (NP XX )VP XX )S", [("S", 0, 3), ("NP", 1, 2)], {"mislabelled": 1}),
        (")NP (S XX XX XX )S )S", [("S", 0, 3)], {"unopened": 2}),
        ("(S XX (NP XX XX", [("S", 0, 3), ("NP", 1, 3)], {"unclosed": 2}),
        ("(S (NP )NP XX XX XX )S", [("S", 0, 3)], {"empty": 1}),
        ("(S XX XX XX XX XX )S", [("S", 0, 3)], {"extra_words": 2}),
        ("(S XX (NP XX )NP )S", [("S", 0, 3), ("NP", 1, 2)], {"missing_words": 1}),
        ("(S XX (NP XX", [("S", 0, 3), ("NP", 1, 3)], {"missing_words": 1, "unclosed": 2}),
        ("(S XX )S XX", [("S", 0, 1)], {"missing_words": 1}),
        ("(S XX ⁇ XX XX )S", [("S", 0, 3)], {"unknown": 1}),
        ("(S XX XX )S (NP XX )NP", [("S", 0, 2), ("NP", 2, 3)], {}),
        ("(S )S", [("S", 0, 3)], {"missing_words": 3}),
        ("", [], {"missing_words": 3}),
    ],
)
def test_what_is_mended_is_counted(
    symbols: str, brackets: list[tuple[str, int, int]], repairs: dict[str, int]
) -> None:
    tree, found = rebuild(symbols.split(), ("a", "b", "c"))
    assert tree.brackets == tuple(Bracket(*each) for each in brackets)
    assert found == Repairs(**repairs)
    assert bool(found) == bool(repairs)
    assert tree.tags == ("XX",) * 3


def test_any_symbols_are_a_tree_over_exactly_the_words() -> None:
    draw = random.Random(3)
    kinds = ["XX", "⁇", *(f"{side}{label}" for side in "()" for label in LABELS)]
    mended: Counter[str] = Counter()
    for _ in range(10_000):
        words = tuple(f"w{i}" for i in range(draw.randrange(0, 9)))
        weights = [draw.random() for _ in kinds]
        symbols = draw.choices(kinds, weights, k=draw.randrange(0, 30))
        tree, repairs = rebuild(symbols, words)
        mended.update({name: bool(times) for name, times in vars(repairs).items()})
        assert tree.words == words
        # Each bracket has a word, lies in the one before it or after that, and is read as it was.
        assert clean(parse_tree(str(tree))) == tree
        assert rebuild(linearise(tree), words) == (tree, Repairs())
    assert min(mended.values()) > 100
    assert len(mended) == len(vars(Repairs()))


@pytest.mark.parametrize("archive", REAL)
def test_real_trees_come_back_as_they_were(archive: str, tmp_path: Path, thorough: bool) -> None:
    count = 0
    for tree in real_trees(archive, tmp_path, thorough):
        assert rebuild(linearise(tree), tree.words, tree.tags) == (tree, Repairs()), str(tree)
        count += 1
    assert count > 200


def test_tags_are_those_of_the_symbols_unless_given() -> None:
    symbols = "(S (NP NNP )NP ⁇ (VP VBZ )VP . )S".split()
    tree, repairs = rebuild(symbols, ("a", "b", "c", "d"))
    assert tree.tags == ("NNP", "VBZ", ".", "XX")
    assert (repairs.unknown, repairs.missing_words) == (1, 1)
    assert rebuild(symbols, ("a", "b", "c", "d"), "WXYZ")[0].tags == tuple("WXYZ")
