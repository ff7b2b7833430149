"""Trees as inline SVG: gold's and the parser's, with what only one of them has marked.

What is marked is what lowers F1, by the rules of EVALB (`evaluate/brackets.py`): a bracket that
differs from another by a full stop alone is the same.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from seq2sweep.data.treebank.trees import Bracket, Tree, without
from seq2sweep.evaluate.brackets import DELETED, EQUAL
from seq2sweep.report.trees.tree_layout import ROW, SIZE, Text, layout


@dataclass(frozen=True)
class Differences:
    """missed, extra: the numbers of gold's brackets that the other tree lacks, and of those of the
    other tree that gold lacks. gold, found, matched: how many brackets count on each side."""

    missed: frozenset[int]
    extra: frozenset[int]
    gold: int
    found: int

    @property
    def f1(self) -> float:
        """Of the sentence, in percent; 100 where no bracket counts on either side."""
        both = self.gold + self.found
        return 100 * (both - len(self.missed) - len(self.extra)) / both if both else 100.0


def differences(gold: Tree, found: Tree) -> Differences | None:
    """None where they cannot be compared: other words are left without punctuation."""
    words = [without(tree, DELETED).words for tree in (gold, found)]
    if words[0] != words[1]:
        return None
    wanted, had = _counted(gold), _counted(found)
    return Differences(
        _less(wanted, Counter(had.values())),
        _less(had, Counter(wanted.values())),
        len(wanted),
        len(had),
    )


def _counted(tree: Tree) -> dict[int, Bracket]:
    """By its number each bracket that counts, over the words that do, as it is compared."""
    places = [0, *itertools.accumulate(tag not in DELETED for tag in tree.tags)]
    counted = {}
    for i, bracket in enumerate(tree.brackets):
        label = re.split("[-=]", bracket.label, maxsplit=1)[0]
        start, end = places[bracket.start], places[bracket.end]
        if start < end and label not in DELETED:
            counted[i] = Bracket(EQUAL.get(label, label), start, end)
    return counted


def _less(brackets: dict[int, Bracket], others: Counter[Bracket]) -> frozenset[int]:
    """Those without a counterpart among the others, each of which is used once."""
    left, alone = others.copy(), set()
    for i, bracket in brackets.items():
        if left[bracket]:
            left[bracket] -= 1
        else:
            alone.add(i)
    return frozenset(alone)


def begin(tree: Tree, words: int) -> Tree:
    """Its first words, and the brackets over them; one that goes on ends in an ellipsis."""
    if len(tree.words) <= words:
        return tree
    brackets = [
        Bracket(b.label + "…" * (b.end > words), min(b.start, words), min(b.end, words))
        for b in tree.brackets
    ]
    return Tree(tree.words[:words], tree.tags[:words], tuple(brackets))


def draw(tree: Tree, about: str, name: str, marked: Collection[int] = (), mark: str = "") -> Markup:
    """An <svg> of all of the tree, which has at least one word; a narrow page makes it smaller, to
    three quarters.

    about: what it shows, for those who do not see it; name: unique on the page; marked: numbers of
    the brackets that get the class `mark`, `missed` (boxed) or `extra` (boxed with dashes).
    """
    found = layout(tree)
    width, height = f"{found.width:.0f}", f"{found.height:.0f}"
    parts = [
        f'<svg role="img" aria-labelledby="{name}-title" width="{width}" height="{height}" '
        f'style="min-width:{0.75 * found.width:.0f}px" viewBox="0 0 {width} {height}">',
        f'<title id="{name}-title">{escape(about)}</title>',
    ]
    for label, below in zip(found.labels, found.children, strict=True):
        parts.append(_lines(label, below, mark if label.place in marked else ""))
    for label in found.labels:
        if label.place in marked:
            parts.append(_box(label, mark))
            parts.append(_text(label, f"label {mark}", tree.brackets[label.place].label))
        else:
            parts.append(_text(label, "label", tree.brackets[label.place].label))
    parts += [_text(tag, "tag", tree.tags[tag.place]) for tag in found.tags]
    parts += [_text(word, "word", tree.words[word.place]) for word in found.words]
    return Markup("".join([*parts, "</svg>"]))


def _lines(label: Text, below: Sequence[tuple[float, float]], kind: str) -> str:
    """Down to a bar, and from the bar to each child: so no line meets another label."""
    bar = label.y + ROW / 2 - 1
    path = [f"M{label.x:.1f} {label.y + SIZE * 0.7:.1f}V{bar:.1f}"]
    if len(below) > 1:
        path.append(f"M{below[0][0]:.1f} {bar:.1f}H{below[-1][0]:.1f}")
    path += [f"M{x:.1f} {bar:.1f}V{y:.1f}" for x, y in below]
    return f'<path class="{kind}" d="{"".join(path)}"/>'


def _box(label: Text, mark: str) -> str:
    width, height = label.width + 8, SIZE * 1.4
    corner = f'x="{label.x - width / 2:.1f}" y="{label.y - height / 2:.1f}"'
    return f'<rect class="{mark}" {corner} width="{width:.1f}" height="{height:.1f}"/>'


def _text(text: Text, kind: str, whole: str) -> str:
    cut = f"<title>{escape(whole)}</title>" if text.text != whole else ""
    return f'<text class="{kind}" x="{text.x:.1f}" y="{text.y:.1f}">{escape(text.text)}{cut}</text>'
