"""Trees as treebanks write them: `( (S (NP-SBJ (NNP John)) (VP (VBZ sleeps)) (. .)) )`.

A tree is flat here: its words, their tags, and brackets over them. So a tree that is ten thousand
brackets deep takes no more than one that is as long.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

TRACE = "-NONE-"
"""Tag of what is not in the text: traces, and other empty categories."""
ROOTS = {"", "TOP", "ROOT", "S1"}
"""How treebanks and parsers call what is around a whole sentence."""
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)
"""Words of CRAFT hold other kinds of space, such as U+200A."""


LONGEST = 1 << 21
"""Brackets, labels, tags and words of a tree. Where one bracket is missing, all that follows would
be within that tree, and in memory."""


class TreeError(ValueError):
    """A text is no tree. line: counted from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def words_of(line: str) -> list[str]:
    """The words of a sentence, or symbols of a tree: ASCII white space alone parts them, as in
    treebanks."""
    return _WORD.findall(line)


def sentence_words(line: str) -> list[str]:
    """The words of a sentence that is no tree's: its brackets are written as in treebanks, as they
    would be brackets of the tree."""
    return words_of(line.replace("(", "-LRB-").replace(")", "-RRB-"))


class Bracket(NamedTuple):
    """A constituent: its label, its first word, and the word after its last."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """words, tags: of the leaves, from left to right. brackets: each before those within it."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]

    def __str__(self) -> str:
        """On one line, within `(TOP ...)`."""
        parts = ["(TOP"]
        ends: list[int] = []

        def go_on(start: int, end: int) -> None:
            for i in range(start, end):
                parts.append(f" ({self.tags[i]} {self.words[i]})")
                while ends and ends[-1] == i + 1:
                    ends.pop()
                    parts.append(")")

        at = 0
        for label, start, end in self.brackets:
            go_on(at, start)
            at = start
            parts.append(f" ({label}")
            ends.append(end)
            if start == end:
                ends.pop()
                parts.append(")")
        go_on(at, len(self.words))
        return "".join(parts) + ")"


def trees_of(lines: Iterable[str]) -> Iterator[Tree]:
    """The trees of a text, each on as many lines as it likes. Raises TreeError, also where one with
    words has a bracket without: a word is lost there, or it is a ( that is not written -LRB-."""
    return _trees(
        (
            (number, token)
            for number, line in enumerate(lines, 1)
            for token in _TOKEN.findall(line.replace("\ufeff", ""))
        ),
        whole=True,
    )


def parse_tree(line: str) -> Tree:
    """The tree on a line; of several, all of it side by side. Raises TreeError."""
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket] = []
    for tree in _trees((1, token) for token in _TOKEN.findall(line)):
        at = len(words)
        brackets += [Bracket(b.label, b.start + at, b.end + at) for b in tree.brackets]
        words += tree.words
        tags += tree.tags
    return Tree(tuple(words), tuple(tags), tuple(brackets))


def _trees(tokens: Iterable[tuple[int, str]], whole: bool = False) -> Iterator[Tree]:
    reader, length = _Reader(), 0
    for line, token in tokens:
        length += 1
        if reader.take(line, token):
            if whole and reader.words and reader.hollow:
                raise TreeError(
                    reader.hollow, "a bracket has no word (a word ( or ) is written -LRB- or -RRB-)"
                )
            yield reader.tree()
            reader, length = _Reader(), 0
        elif length == LONGEST:
            raise TreeError(
                reader.begun, f"{LONGEST:,} words and brackets from here on are no whole tree"
            )
    if reader.open:
        raise TreeError(reader.begun, f"{len(reader.open)} brackets that begin here are not closed")


class _Reader:
    """Reads one tree. open: the brackets not yet closed, by number; None is a leaf. hollow: the
    line of the first bracket that is closed before anything is in it, 0 without one."""

    def __init__(self) -> None:
        self.begun = self.hollow = 0
        self.words: list[str] = []
        self.tags: list[str] = []
        self.brackets: list[Bracket] = []
        self.open: list[int | None] = []
        self.before = ""  # what came last: ( or ) or a label, or a word

    def take(self, line: int, token: str) -> bool:
        """Whether the tree ends here."""
        if not self.open:
            self.begun = line
            if token != "(":
                outside = "a bracket is closed that is not open" if token == ")" else f"{token!r}"
                raise TreeError(line, outside + " outside of any tree" * (token != ")"))
        if token == "(":
            if self.open and self.open[-1] is None:
                raise TreeError(line, f"the word {self.words[-1]!r} has a bracket beside it")
            self.open.append(len(self.brackets))
            self.brackets.append(Bracket("", len(self.words), -1))
            self.before = "("
        elif token == ")":
            self.hollow = self.hollow or line * (self.before in ("(", "label"))
            self._close()
        else:
            self._name(line, token)
        return not self.open

    def _close(self) -> None:
        number = self.open.pop()
        if number is not None:
            label, start, _ = self.brackets[number]
            self.brackets[number] = Bracket(label, start, len(self.words))
        self.before = ")"

    def _name(self, line: int, token: str) -> None:
        """A label, or a leaf's word."""
        number = self.open[-1]
        if self.before == "(" and number is not None:
            self.brackets[number] = self.brackets[number]._replace(label=token)
            self.before = "label"
        elif self.before == "label":
            self.tags.append(self.brackets.pop().label)
            self.words.append(token)
            self.open[-1] = None
            self.before = "word"
        else:
            raise TreeError(line, f"{token!r} is a second word, or one beside brackets")

    def tree(self) -> Tree:
        return Tree(tuple(self.words), tuple(self.tags), tuple(self.brackets))


def without(tree: Tree, tags: Collection[str]) -> Tree:
    """The tree less the leaves with these tags, and less the brackets without a word then."""
    kept = [tag not in tags for tag in tree.tags]
    places = [0, *itertools.accumulate(kept)]
    brackets = [Bracket(b.label, places[b.start], places[b.end]) for b in tree.brackets]
    return Tree(
        tuple(itertools.compress(tree.words, kept)),
        tuple(itertools.compress(tree.tags, kept)),
        tuple(b for b in brackets if b.start < b.end),
    )


def clean(tree: Tree) -> Tree:
    """What parsers are trained and scored on: no traces, nothing that is empty without them, no
    function labels and co-indices, nothing around the whole sentence."""
    tree = without(tree, {TRACE})
    brackets: list[Bracket] = []
    covered = 0  # what begins before this word is within another bracket
    for label, start, end in tree.brackets:
        label = category(label)
        if start < covered or label not in ROOTS:
            brackets.append(Bracket(label, start, end))
            covered = max(covered, end)
    return tree._replace(brackets=tuple(brackets))


def category(label: str) -> str:
    """NP of NP-SBJ-1 and of NP=2; -LRB- of itself."""
    return label if label.startswith("-") else re.split("[-=]", label, maxsplit=1)[0]
