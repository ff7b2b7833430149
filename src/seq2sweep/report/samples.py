"""Which translations the page shows, and how each differs from its reference."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Spans = list[tuple[str, bool]]
"""Consecutive words, and whether the other side lacks them."""


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

    def differences(self) -> tuple[Spans, Spans]:
        """The words of the reference and those of the translation."""
        wanted, found = self.reference.split(), self.translation.split()
        codes = difflib.SequenceMatcher(None, wanted, found, autojunk=False).get_opcodes()
        return (
            [(" ".join(wanted[i:j]), tag != "equal") for tag, i, j, _, _ in codes if j > i],
            [(" ".join(found[k:m]), tag != "equal") for tag, _, _, k, m in codes if m > k],
        )


class Judged(Protocol):
    """A translation, or whatever else can be right or wrong."""

    @property
    def right(self) -> bool: ...


Row = TypeVar("Row", bound=Judged)


def choose(translations: Sequence[Row], count: int = 12) -> list[Row]:
    """About half right and half wrong ones, spread evenly over the test set; the same each time.

    Where there are too few of one kind the other fills up. Wrong ones come first.
    """
    right = [row for row in translations if row.right]
    wrong = [row for row in translations if not row.right]
    wrong_count = min(len(wrong), max(count // 2, count - len(right)))
    return _even(wrong, wrong_count) + _even(right, count - wrong_count)


def _even(rows: Sequence[Row], count: int) -> list[Row]:
    count = min(count, len(rows))
    return [rows[number * len(rows) // count] for number in range(count)]
