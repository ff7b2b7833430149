"""Which translation is of which reference, where lines are shifted, missing or too many.

Lines are compared by the runs of four letters that they share, whatever their case, blanks and
punctuation: so it works on text in pieces or tokens too. Of all alignments that keep the order the
best is taken, by dynamic programming. To leave a line out costs as much as two lines that share a
third of their text bring: a file whose lines stand where they should stays as it is.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from seq2sweep.compare.why.waterfall import Cause, Texts
from seq2sweep.evaluate.references import NEWSTEST2014

MOST_CELLS = 50_000_000
"""Lines of one side times lines of the other: two bytes each."""
ROWS = 512
"""References whose similarities to all translations are in memory at once."""
GAP = 0.33
"""What a line that is left out costs, where similarities are from 0 to 1."""
ONE_LINE = 1.0
"""What a line brings that is its reference."""
GRAM = 4
BUCKETS = 1 << 18

TEST_SET, LINE_SHIFT, MISSING = "test set", "line shift", "missing lines"


def too_many(texts: Texts) -> bool:
    """Whether the two are too long to be aligned."""
    return len(texts.hypotheses) * len(texts.references) > MOST_CELLS


def find(texts: Texts) -> Cause | None:
    """Lines that do not stand beside their references.

    The causes are `test set`, where one side is newstest2014 with 3003 sentences and the other with
    2737, and `missing lines`, where all that is there stands in its place, as of a translation that
    was killed: only what both have is to be scored. Else it is `line shift`.
    """
    partner = align(texts.hypotheses, texts.references)
    count = len(texts.references)
    if _are_in_place(texts, partner):
        partner = [i if i < len(texts.hypotheses) else None for i in range(count)]
    if len(texts.hypotheses) == count and partner == [*range(count)]:
        return None
    both = [i for i, j in enumerate(partner) if j is not None]
    counts = [len(texts.hypotheses), count]
    without, shifted = count - len(both), sum(j not in (None, i) for i, j in enumerate(partner))
    evidence = (
        f"{counts[0]} translations, {count} references; {without} of these have no translation, "
        f"{shifted} have it on another line"
    )
    name = LINE_SHIFT
    if sorted(counts) == sorted(NEWSTEST2014.values()):
        name = TEST_SET
    elif counts[0] < count and both and not shifted:
        name = MISSING

    def undo(given: Texts) -> Texts:
        chosen = range(count) if name == LINE_SHIFT else both
        found = [(partner[i], given.references[i]) for i in chosen]
        hypotheses = ["" if j is None else given.hypotheses[j] for j, _ in found]
        return Texts(hypotheses, [reference for _, reference in found])

    return Cause(name, evidence, undo, of_lines=True)


def _are_in_place(texts: Texts, partner: Sequence[int | None]) -> bool:
    """Whether there are too few translations, and all but a line stand as well where they are: one
    that was broken off may be as much like a reference without a translation."""
    there = len(texts.hypotheses)
    if not 0 < there < len(texts.references):
        return False
    columns, rows = _vectors(texts.hypotheses), _vectors(texts.references)
    pairs = [(i, j) for i, j in enumerate(partner) if j is not None]
    aligned = sum(rows[i].multiply(columns[j]).sum() for i, j in pairs if i != j)
    placed = {j for i, j in pairs if i == j}
    plain = sum(rows[i].multiply(columns[i]).sum() for i in range(there) if i not in placed)
    return len(pairs) - len(placed) <= 2 and bool(aligned - plain < ONE_LINE)


def align(hypotheses: Sequence[str], references: Sequence[str]) -> list[int | None]:
    """Of each reference the index of its translation, rising; None where it has none."""
    columns, rows = _vectors(hypotheses), _vectors(references)
    width = columns.shape[0]
    ramp = GAP * np.arange(width + 1)
    score = -ramp  # the best of references so far, by how many translations are used up
    moves = np.empty((rows.shape[0], width + 1), np.bool_)  # whether the reference is left out
    stays = np.empty(
        (rows.shape[0], width + 1), np.bool_
    )  # whether no translation is left out here
    for start in range(0, rows.shape[0], ROWS):
        for i, alike in enumerate((rows[start : start + ROWS] @ columns.T).toarray(), start):
            out, beside = score - GAP, score[:-1] + alike
            best = out.copy()
            best[1:] = np.maximum(out[1:], beside)
            moves[i] = best <= out
            score = np.maximum.accumulate(best + ramp) - ramp
            stays[i] = score <= best + 1e-9
    partner: list[int | None] = [None] * rows.shape[0]
    j = width
    for i in range(rows.shape[0] - 1, -1, -1):
        while not stays[i, j]:
            j -= 1
        if not moves[i, j]:
            j -= 1
            partner[i] = j
    return partner


def letters(line: str) -> str:
    """Its letters and digits alone, in lower case."""
    return re.sub(r"[\W_]", "", line.lower())


def _vectors(lines: Sequence[str]) -> sparse.csr_matrix:
    """[lines, BUCKETS], of length 1 or 0: counts of runs of letters, rare ones counting more."""
    found: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.float32]] = []
    for line in lines:
        text = letters(line)
        runs = {text[k : k + GRAM] for k in range(max(1, len(text) - GRAM + 1))}
        hashed = Counter(zlib.crc32(run.encode()) % BUCKETS for run in runs if run)
        found.append(np.fromiter(hashed.keys(), np.int64, len(hashed)))
        counts.append(np.fromiter(hashed.values(), np.float32, len(hashed)))
    ends = np.cumsum([0, *map(len, found)])
    data = (np.concatenate(counts), np.concatenate(found), ends)
    matrix = sparse.csr_matrix(data, shape=(len(lines), BUCKETS), dtype=np.float32)
    spread = np.bincount(matrix.indices, minlength=BUCKETS)
    matrix.data *= np.log1p(len(lines) / spread[matrix.indices]).astype(np.float32)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.diags(1 / np.maximum(lengths, 1e-9)) @ matrix
