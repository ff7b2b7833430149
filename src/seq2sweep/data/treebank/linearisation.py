"""Trees as symbols that a model writes (Vinyals et al. 2015), and trees of symbols again.

`(S (NP XX )NP (VP XX )VP XX )S`: brackets carry their label at both ends, each word is an XX, or
its tag, and words are put back from the sentence, from left to right. What a model writes need be
no tree: `rebuild` makes one of any symbols, and counts what it had to mend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seq2sweep.data.treebank.trees import Bracket, Tree

WORD = "XX"
SPECIAL = ("<pad>", "<s>", "</s>", "⁇")
"""What else a model may write: all but brackets and words, the last for what is unknown."""


@dataclass
class Repairs:
    """How often `rebuild` had to mend something.

    mislabelled: brackets closed by another label than they were opened by. unopened: closings with
    nothing open. unclosed: brackets open at the end. empty: brackets without a word. extra_words:
    words beyond the last one. missing_words: those without a symbol. unknown: SPECIAL symbols.
    """

    mislabelled: int = 0
    unopened: int = 0
    unclosed: int = 0
    empty: int = 0
    extra_words: int = 0
    missing_words: int = 0
    unknown: int = 0

    def __bool__(self) -> bool:
        """Whether the symbols were not well-formed."""
        return any(vars(self).values())


def linearise(tree: Tree) -> list[str]:
    """The symbols of a tree none of whose brackets is empty, as `trees.clean` leaves it."""
    symbols: list[str] = []
    open_: list[Bracket] = []
    at = 0
    for bracket in (*tree.brackets, Bracket("", len(tree.words), len(tree.words) + 1)):
        while at < bracket.start or (open_ and open_[-1].end <= at):
            if open_ and open_[-1].end <= at:
                symbols.append(f"){open_.pop().label}")
            else:
                symbols.append(WORD)
                at += 1
        symbols.append(f"({bracket.label}")
        open_.append(bracket)
    return symbols[:-1]


def rebuild(
    symbols: Sequence[str], words: Sequence[str], tags: Sequence[str] | None = None
) -> tuple[Tree, Repairs]:
    """A tree over exactly these words, whatever the symbols are.

    A closing symbol closes the innermost bracket, whatever its label. Any symbol but brackets and
    SPECIAL ones stands for a word. Words without a symbol belong to the innermost bracket that is
    open at the end, else to the last one if it ends there.

    tags: those of the words; without, what the symbols say of them, XX where they say nothing.
    """
    repairs, said = Repairs(), [WORD] * len(words)
    found: list[Bracket] = []
    open_: list[int] = []
    at, last_root = 0, None
    for symbol in symbols:
        if symbol in SPECIAL:
            repairs.unknown += 1
        elif symbol.startswith("("):
            open_.append(len(found))
            found.append(Bracket(symbol[1:], at, at))
        elif not symbol.startswith(")"):
            if at == len(words):
                repairs.extra_words += 1
            else:
                said[at] = symbol
                at += 1
        elif not open_:
            repairs.unopened += 1
        else:
            number = open_.pop()
            repairs.mislabelled += found[number].label != symbol[1:]
            found[number] = found[number]._replace(end=at)
            last_root = last_root if open_ else number
    repairs.missing_words, repairs.unclosed = len(words) - at, len(open_)
    if not open_ and last_root is not None and found[last_root].end == at:
        open_ = [last_root]
    for number in open_:
        found[number] = found[number]._replace(end=len(words))
    brackets = tuple(bracket for bracket in found if bracket.start < bracket.end)
    repairs.empty = len(found) - len(brackets)
    return Tree(tuple(words), tuple(tags or said), brackets), repairs
