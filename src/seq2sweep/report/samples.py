"""Which translations the page shows, and how each differs from its reference."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["same", "missing", "extra"]


@dataclass(frozen=True)
class Span:
    """Consecutive words that are alike on both sides, or only in one of them."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class Translation:
    """A row of reports/translations.tsv."""

    source: str
    reference: str
    translation: str
    phenomena: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.translation.strip() == self.reference.strip()

    def differences(self) -> tuple[list[Span], list[Span]]:
        """The reference's words (same or missing) and the translation's (same or extra)."""
        wanted, found = self.reference.split(), self.translation.split()
        of_reference: list[Span] = []
        of_translation: list[Span] = []
        matcher = difflib.SequenceMatcher(None, wanted, found, autojunk=False)
        for tag, i, j, k, m in matcher.get_opcodes():
            same = tag == "equal"
            if j > i:
                of_reference.append(Span(" ".join(wanted[i:j]), "same" if same else "missing"))
            if m > k:
                of_translation.append(Span(" ".join(found[k:m]), "same" if same else "extra"))
        return of_reference, of_translation


def choose(translations: Sequence[Translation], count: int = 12) -> list[Translation]:
    """About half right and half wrong ones, spread evenly over the test set; the same each time.

    Where there are too few of one kind the other fills up. Wrong ones come first.
    """
    right = [row for row in translations if row.right]
    wrong = [row for row in translations if not row.right]
    wrong_count = min(len(wrong), max(count // 2, count - len(right)))
    return _even(wrong, wrong_count) + _even(right, count - wrong_count)


def _even(rows: Sequence[Translation], count: int) -> list[Translation]:
    count = min(count, len(rows))
    return [rows[number * len(rows) // count] for number in range(count)]
