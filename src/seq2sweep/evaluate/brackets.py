"""F1 of constituency trees by the rules of EVALB with COLLINS.prm, the standard in publications.

Without its limits: sentences may have more than 200 words, and errors do not end it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2sweep.data.reading import read_lines
from seq2sweep.data.treebank.trees import TRACE, Bracket, Tree, TreeError, parse_tree, without
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import rounded

SIGNATURE = "EVALB, COLLINS.prm"
"""Whose rules F1 follows."""
DELETED = {"TOP", TRACE, ",", ":", "``", "''", "."}
"""Leaves with such a tag are left out with their words, constituents with such a label alone."""
EQUAL = {"PRT": "ADVP"}
SHORT = 40
"""Words of a sentence that counts as short as well; punctuation is among them."""
SHOWN = 10
"""Lines that are named where sentences could not be compared."""


@dataclass
class Sums:
    """Over sentences that could be compared; `skipped` had no word left, `errors` other words.
    wordless: of the skipped those where gold has none either, such as a row of dots."""

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    wordless: int = 0
    gold: int = 0
    found: int = 0
    matched: int = 0
    complete: int = 0
    crossing: int = 0
    uncrossed: int = 0
    hardly_crossed: int = 0
    words: int = 0
    tags: int = 0
    by_label: dict[str, Counter[str]] = field(default_factory=dict)

    def scores(self) -> dict[str, Any]:
        """As EVALB prints them, percentages of 0 where there is nothing to divide by."""
        compared = self.sentences - self.errors - self.skipped
        return {
            **_f1(self.gold, self.found, self.matched),
            "complete": _percent(self.complete, compared),
            "average_crossing": rounded(self.crossing / compared) if compared else 0.0,
            "no_crossing": _percent(self.uncrossed, compared),
            "two_or_less_crossing": _percent(self.hardly_crossed, compared),
            "tagging": _percent(self.tags, self.words),
            "sentences": self.sentences,
            "errors": self.errors,
            "skipped": self.skipped,
            **({"wordless": self.wordless} if self.wordless else {}),
        }


def score_files(hypotheses: Path, gold: Path) -> dict[str, Any]:
    """`score_trees` of two files with a tree on each line, plain or .gz.

    A line of the hypotheses that is no tree counts as an error. Raises UserError for other numbers
    of lines and a gold line that is no tree, and as `read_lines`.
    """
    found = [tree_or_none(line) for line in read_lines(hypotheses)]
    wanted = parse_gold(read_lines(gold), str(gold))
    if len(found) != len(wanted):
        raise UserError(
            f"{hypotheses} has {len(found)} lines and {gold} {len(wanted)}: there must be one tree "
            "a line, in the same order"
        )
    return score_trees(found, wanted)


def score_trees(hypotheses: Iterable[Tree | None], gold: Sequence[Tree]) -> dict[str, Any]:
    """F1 and what EVALB prints beside it, of all sentences, of those of at most SHORT words
    (`short`), and by label; `error_lines`: the first few sentences that could not be compared.

    None is a hypothesis that is no tree. A sentence with other words than gold, or none, is left
    out of all sums, of recall too: `left_out` must be 0 for a score to mean anything.
    """
    whole, short, wrong = Sums(), Sums(), list[int]()
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, gold, strict=True), 1):
        lengths = sum(tag != TRACE for tag in reference.tags)
        both = [whole, short] if lengths <= SHORT else [whole]
        if not _add(hypothesis, reference, both):
            wrong.append(number)
    return {
        **whole.scores(),
        "short": short.scores(),
        "by_label": {
            label: _f1(counts["gold"], counts["found"], counts["matched"])
            | {"gold": counts["gold"]}
            for label, counts in sorted(
                whole.by_label.items(), key=lambda item: (-item[1]["gold"], item[0])
            )
        },
        "error_lines": wrong[:SHOWN],
    }


def left_out(scores: Mapping[str, Any]) -> int:
    """How many sentences are in no sum though gold has words in them. scores: of `score_trees`."""
    lost: int = scores["errors"] + scores["skipped"] - scores.get("wordless", 0)
    return lost


def parse_gold(lines: Iterable[str], name: str) -> list[Tree]:
    """The trees of a text, one a line. Raises UserError, naming text and line, for what is none."""
    trees = []
    for number, line in enumerate(lines, 1):
        try:
            trees.append(parse_tree(line))
        except TreeError as error:
            raise UserError(f"{name} line {number}: {error}") from None
    return trees


def tree_or_none(line: str) -> Tree | None:
    """A hypothesis as `score_trees` takes it."""
    try:
        return parse_tree(line)
    except TreeError:
        return None


def bracket_counts(hypothesis: Tree | None, reference: Tree) -> tuple[int, int, int]:
    """Brackets of a sentence: matched, of gold, found; 0 where it could not be compared."""
    sums = Sums()
    _add(hypothesis, reference, [sums])
    return sums.matched, sums.gold, sums.found


def f1(matched: int, gold: int, found: int) -> float:
    """Of unrounded precision and recall, in percent: 2 matched of all brackets on both sides."""
    return 200 * matched / (gold + found) if gold + found else 0.0


def _add(hypothesis: Tree | None, reference: Tree, sums: Sequence[Sums]) -> bool:
    """Whether all is in the sums that should be: the sentence could be compared, or has no word."""
    gold = _counted(reference)
    found = None if hypothesis is None else _counted(hypothesis)
    skipped = found is not None and not found.words
    compared = found is not None and not skipped and found.words == gold.words
    wordless = skipped and not gold.words
    crossing = _crossing(found.brackets, gold.brackets) if found and compared else 0
    for one in sums:
        one.sentences += 1
        one.skipped += skipped
        one.wordless += wordless
        one.errors += not (skipped or compared)
        if found and compared:
            _add_compared(one, found, gold, crossing)
    return compared or wordless


def _counted(tree: Tree) -> Tree:
    """What of a tree counts: words and tags after deletion, and brackets over these."""
    tree = without(tree, DELETED)
    brackets = (b._replace(label=_label(b.label)) for b in tree.brackets)
    return tree._replace(brackets=tuple(b for b in brackets if b.label not in DELETED))


def _add_compared(sums: Sums, found: Tree, gold: Tree, crossing: int) -> None:
    counts = [Counter(map(_equal, side.brackets)) for side in (gold, found)]
    matched = counts[0] & counts[1]
    number = matched.total()
    sums.gold += len(gold.brackets)
    sums.found += len(found.brackets)
    sums.matched += number
    sums.complete += len(gold.brackets) == len(found.brackets) == number
    sums.crossing += crossing
    sums.uncrossed += crossing == 0
    sums.hardly_crossed += crossing <= 2
    sums.words += len(gold.words)
    sums.tags += sum(
        EQUAL.get(a, a) == EQUAL.get(b, b) for a, b in zip(found.tags, gold.tags, strict=True)
    )
    for name, brackets in zip(("gold", "found", "matched"), (*counts, matched), strict=True):
        for bracket, times in brackets.items():
            sums.by_label.setdefault(bracket.label, Counter())[name] += times


def _crossing(found: Sequence[Bracket], gold: Sequence[Bracket]) -> int:
    """How many of `found` overlap one of gold without one being within the other."""
    spans = {(b.start, b.end) for b in gold}
    crossing = 0
    for _, first, last in found:
        # Those of gold do not cross each other.
        crossing += (first, last) not in spans and any(
            start < first < end < last or first < start < last < end for start, end in spans
        )
    return crossing


def _label(label: str) -> str:
    """Cut at the first - or =, wherever that is."""
    return re.split("[-=]", label, maxsplit=1)[0]


def _equal(bracket: Bracket) -> Bracket:
    return bracket._replace(label=EQUAL.get(bracket.label, bracket.label))


def _percent(part: int, whole: int) -> float:
    return rounded(100 * part / whole) if whole else 0.0


def _f1(gold: int, found: int, matched: int) -> dict[str, float]:
    return {
        "f1": rounded(f1(matched, gold, found)),
        "precision": _percent(matched, found),
        "recall": _percent(matched, gold),
    }
