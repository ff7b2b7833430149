"""What holds for every drawn tree: order, places, no overlap; and trees of any size."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given

from seq2sweep.data.treebank.trees import Bracket, Tree, parse_tree
from seq2sweep.report.trees.tree_layout import (
    GAP,
    LONGEST_TEXT,
    ROW,
    Layout,
    Text,
    layout,
    text_width,
)
from tests.data.treebank.random_trees import trees


def check(tree: Tree, found: Layout) -> None:
    """Every property that the drawing promises."""
    assert [text.text for text in found.words] == list(tree.words)
    assert [text.text for text in found.tags] == list(tree.tags)
    assert [text.x for text in found.words] == sorted({text.x for text in found.words})
    assert len({text.y for text in found.words}) == 1
    labels = {text.place: text for text in found.labels}
    assert {i: text.text for i, text in labels.items()} == {
        i: b.label for i, b in enumerate(tree.brackets) if b.start < b.end
    }
    for texts in _rows([*found.labels, *found.tags, *found.words]).values():
        for left, right in itertools.pairwise(texts):
            assert left.x + left.width / 2 <= right.x - right.width / 2 - GAP / 2
    _check_parents(tree, found, labels)
    for text in (*found.labels, *found.tags, *found.words):
        assert text.x - text.width / 2 >= 0
        assert text.x + text.width / 2 <= found.width
        assert 0 < text.y < found.height


def _rows(texts: list[Text]) -> dict[float, list[Text]]:
    rows = defaultdict(list)
    for text in sorted(texts, key=lambda text: text.x):
        rows[text.y].append(text)
    return rows


def _check_parents(tree: Tree, found: Layout, labels: dict[int, Text]) -> None:
    """By the definition: what is directly within a bracket is its child."""
    numbers = [text.place for text in found.labels]
    inner: dict[int, list[Text]] = defaultdict(list)
    for j in numbers:
        around = [i for i in numbers if i < j and _within(tree.brackets[j], tree.brackets[i])]
        if around:
            inner[around[-1]].append(labels[j])
    for word, tag in enumerate(found.tags):
        around = [i for i in numbers if _within(Bracket("", word, word + 1), tree.brackets[i])]
        if around:
            inner[around[-1]].append(tag)
    for text, children in zip(found.labels, found.children, strict=True):
        wanted = sorted(child.x for child in inner[text.place])
        assert [x for x, _ in children] == pytest.approx(wanted)
        assert wanted[0] - 1e-6 <= text.x <= wanted[-1] + 1e-6
        assert all(child.y >= text.y + ROW - 1e-6 for child in inner[text.place])


def _within(inner: Bracket, outer: Bracket) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


@given(trees(least_words=1))
def test_any_tree_is_drawn_as_promised(tree: Tree) -> None:
    check(tree, layout(tree))


@given(trees(least_words=1))
def test_labels_broader_than_their_words_make_room(tree: Tree) -> None:
    brackets = tuple(b._replace(label=b.label * 6) for b in tree.brackets)
    wide = tree._replace(brackets=brackets)
    check(wide, layout(wide))


def test_500_words_and_a_depth_of_300() -> None:
    words = tuple(f"word{i}" for i in range(500))
    flat = Tree(words, ("NN",) * 500, (Bracket("S", 0, 500),))
    check(flat, layout(flat))
    branching = tuple(Bracket("S" if i % 2 else "NP", i, 500) for i in range(300))
    deep = Tree(words, ("NN",) * 500, branching)
    check(deep, layout(deep))
    chain = Tree(("a",), ("DT",), tuple(Bracket("NP", 0, 1) for _ in range(2000)))
    found = layout(chain)
    assert found.height > 2000 * ROW
    assert len({text.x for text in found.labels}) == 1


def test_no_line_meets_a_label_of_another() -> None:
    """Down to a bar below the parent, along it, and down at the child: labels in between are of
    lower rows only within the child's own span."""
    tree = parse_tree(
        "(S (NP (DT a) (NN b)) (VP (V c) (NP (NP (N d)) (PP (P e) (NP (N f))))) (. .))"
    )
    found = layout(tree)
    for text, children in zip(found.labels, found.children, strict=True):
        bar = text.y + ROW / 2
        for other in found.labels:
            left, right = other.x - other.width / 2, other.x + other.width / 2
            for x, y in children:
                assert not (left < x < right and bar < other.y < y), (text, other)


def test_brackets_without_words_and_words_without_brackets() -> None:
    tree = parse_tree("(TOP (NP ) (X (D a)))")
    assert [text.text for text in layout(tree).labels] == ["TOP", "X"]
    bare = Tree(("a", "b"), ("D", "N"), ())
    found = layout(bare)
    assert (len(found.words), found.labels) == (2, [])


def test_widths_are_not_below_those_of_letters() -> None:
    """Of Helvetica, in thousandths of its size, as its metrics file has them."""
    helvetica = {"W": 944, "N": 722, "P": 667, "w": 722, "m": 833, "e": 556, "i": 222, "$": 556}
    for letter, width in helvetica.items():
        assert text_width(letter) >= 13 * width / 1000
    assert text_width("漢") == 13
    long = Tree(("x" * 500,), ("NN",), ())
    (word,) = layout(long).words
    assert len(word.text) == LONGEST_TEXT
    assert word.text.endswith("…")
