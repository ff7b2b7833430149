"""Trees made at random, for tests of properties."""

from __future__ import annotations

from hypothesis import strategies as st

from seq2sweep.data.treebank.trees import Bracket, Tree

LABELS = ("S", "NP", "VP", "ADVP", "PRT", "QP")
TAGS = ("NN", "VB", ",", ".", "``", "-LRB-", "PRT", "RB")


@st.composite
def trees(draw: st.DrawFn, least_words: int = 0) -> Tree:
    """Up to 12 words, tagged at random, in brackets that are within each other or apart."""
    count = draw(st.integers(least_words, 12))
    tags = draw(st.lists(st.sampled_from(TAGS), min_size=count, max_size=count))
    brackets: list[Bracket] = []

    def fill(start: int, end: int, depth: int) -> None:
        while start < end:
            cut = draw(st.integers(start + 1, end))
            if depth and draw(st.booleans()):
                brackets.append(Bracket(draw(st.sampled_from(LABELS)), start, cut))
                fill(start, cut, depth - 1)
            start = cut

    fill(0, count, 4)
    return Tree(tuple(f"w{i}" for i in range(count)), tuple(tags), tuple(brackets))
