"""Where the parts of a drawn tree stand: words in a row, each bracket above what it spans.

Each label stands over the middle of its span and is no broader than it, so that labels of one row
never overlap and a parent is always between its children. Nothing here recurses.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from seq2sweep.data.treebank.trees import Bracket, Tree

ROW, GAP, MARGIN = 34.0, 12.0, 6.0
SIZE = 13.0
"""Of the letters, in pixels like all else."""
LONGEST_TEXT = 28
"""Characters; a longer word ends in an ellipsis."""


@dataclass(frozen=True)
class Text:
    """x: its middle; y: its middle, from above; place: the number of the word or the bracket."""

    text: str
    x: float
    y: float
    width: float
    place: int


@dataclass(frozen=True)
class Layout:
    """labels: one a bracket that spans a word; children: the middles (x) and tops (y) below each
    label, to which lines lead."""

    words: Sequence[Text]
    tags: Sequence[Text]
    labels: Sequence[Text]
    children: Sequence[Sequence[tuple[float, float]]]
    width: float
    height: float


def layout(tree: Tree) -> Layout:
    """Of a tree with at least one word; pixels from the left upper corner."""
    numbers = [i for i, b in enumerate(tree.brackets) if b.start < b.end]
    brackets = [tree.brackets[i] for i in numbers]
    edges = _columns(tree, brackets)
    parents, holders = _parents(brackets, len(tree.words))
    heights = [1] * len(brackets)
    for i in reversed(range(len(brackets))):
        if parents[i] >= 0:
            heights[parents[i]] = max(heights[parents[i]], heights[i] + 1)
    tags_at = MARGIN + ROW * (max(heights, default=0) + 0.3)

    def text(of: str, start: int, end: int, y: float, place: int) -> Text:
        shown = short(of)
        return Text(shown, (edges[start] + edges[end]) / 2, y, text_width(shown), place)

    labels = [
        text(b.label, b.start, b.end, tags_at - ROW * height, i)
        for b, height, i in zip(brackets, heights, numbers, strict=True)
    ]
    tags = [text(tag, i, i + 1, tags_at, i) for i, tag in enumerate(tree.tags)]
    children: list[list[tuple[float, float]]] = [[] for _ in brackets]
    for one, parent in zip((*labels, *tags), (*parents, *holders), strict=True):
        if parent >= 0:
            children[parent].append((one.x, one.y - SIZE * 0.7))
    return Layout(
        [text(word, i, i + 1, tags_at + SIZE * 1.5, i) for i, word in enumerate(tree.words)],
        tags,
        labels,
        [sorted(some) for some in children],
        edges[-1] + MARGIN,
        tags_at + SIZE * 2.5 + MARGIN,
    )


def _columns(tree: Tree, brackets: Sequence[Bracket]) -> list[float]:
    """Where the column of each word begins, and at last where that of the last one ends."""
    widths = [
        GAP + max(text_width(short(word)), text_width(short(tag)))
        for word, tag in zip(tree.words, tree.tags, strict=True)
    ]
    for label, start, end in reversed(brackets):  # the inner ones first
        lacking = GAP + text_width(short(label)) - sum(widths[start:end])
        if lacking > 0:
            for i in range(start, end):
                widths[i] += lacking / (end - start)
    edges = [MARGIN]
    for width in widths:
        edges.append(edges[-1] + width)
    return edges


def _parents(brackets: Sequence[Bracket], words: int) -> tuple[list[int], list[int]]:
    """The bracket around each bracket and around each word, by number; -1 where there is none."""
    parents, holders = [], [-1] * words
    open_: list[int] = []
    for i, (_, start, end) in enumerate(brackets):
        while open_ and brackets[open_[-1]].end <= start:
            open_.pop()
        parents.append(open_[-1] if open_ else -1)
        open_.append(i)
        holders[start:end] = [i] * (end - start)
    return parents, holders


def short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def text_width(text: str) -> float:
    """About as broad as sans-serif letters are; a little more rather than less."""
    return SIZE * sum(map(_em, text))


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "MWmw%@—…":
        return 0.95
    return 0.75 if character.isupper() else 0.62
