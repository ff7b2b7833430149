"""Which trees the page shows, drawn: gold's, and the parser's beside it where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from seq2sweep.data.treebank.trees import Tree
from seq2sweep.errors import UserError
from seq2sweep.evaluate.brackets import tree_or_none
from seq2sweep.report import samples
from seq2sweep.report.number_format import fixed
from seq2sweep.report.trees.tree_plots import Differences, begin, differences, draw

COUNT = 8
MOST_WORDS = 60
"""Of a longer sentence its beginning is drawn."""


@dataclass(frozen=True)
class Pair:
    """A sentence's trees; found is None where the parser's text is none, differences where they
    cannot be compared."""

    row: samples.Translation
    gold: Tree
    found: Tree | None
    differences: Differences | None

    @property
    def right(self) -> bool:
        """A complete match, as EVALB counts it."""
        return self.differences is not None and not (
            self.differences.missed or self.differences.extra
        )


@dataclass(frozen=True)
class Drawing:
    """whose: gold or parser; svg: None where `problem` says why it is not drawn; text: the tree in
    brackets."""

    whose: str
    svg: Markup | None
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Sample:
    """One sentence. score, cut: in words; drawings: gold's, and the parser's unless it is right."""

    right: bool
    score: str
    cut: str
    drawings: Sequence[Drawing]
    phenomena: Sequence[str]


def choose(rows: Sequence[samples.Translation]) -> list[Sample]:
    """A few sentences as `samples.choose` takes them, those with mistakes first.

    rows: source, gold's tree and the parser's, on a line each. Raises UserError where one of
    gold's is no tree.
    """
    chosen = samples.choose([_pair(row) for row in rows], COUNT)
    return [_sample(pair, f"tree{number}") for number, pair in enumerate(chosen, 1)]


def _pair(row: samples.Translation) -> Pair:
    gold, found = tree_or_none(row.reference), tree_or_none(row.translation)
    if gold is None or not gold.words:
        raise UserError(
            "reports/translations.tsv is damaged (a reference is no tree): remove it and run "
            "`dvc repro`"
        )
    return Pair(row, gold, found, differences(gold, found) if found else None)


def _sample(pair: Pair, name: str) -> Sample:
    row, compared = pair.row, pair.differences
    missed = compared.missed if compared else frozenset[int]()
    about = f"Gold’s tree, {len(missed)} brackets missed by the parser"
    drawings = [_drawing("gold", pair.gold, row.reference, about, f"{name}a", missed, "missed")]
    if compared is None or pair.found is None:
        score = "an error: it could not be compared"
        problem = "no tree" if pair.found is None else "a tree of other words than gold’s"
        drawings.append(Drawing("parser", None, row.translation, f"This is {problem}."))
    elif pair.right:
        score = "complete match"
    else:
        about = f"The parser’s tree, {len(compared.extra)} brackets not in gold’s"
        score = (
            f"F1 {fixed(compared.f1, 1)}: {len(missed)} of {compared.gold} brackets missed, "
            f"{len(compared.extra)} of {compared.found} wrong"
        )
        extra = (f"{name}b", compared.extra, "extra")
        drawings.append(_drawing("parser", pair.found, row.translation, about, *extra))
    count = len(pair.gold.words)
    cut = f"Drawn are the first {MOST_WORDS} of {count} words." if count > MOST_WORDS else ""
    return Sample(pair.right, score, cut, drawings, row.phenomena)


def _drawing(
    whose: str, tree: Tree, text: str, about: str, name: str, marked: frozenset[int], mark: str
) -> Drawing:
    about = f"{about}: {' '.join(tree.words)}"
    return Drawing(whose, draw(begin(tree, MOST_WORDS), about, name, marked, mark), text)
