"""Which translations are shown, and how they differ from their references."""

from __future__ import annotations

from seq2sweep.report import samples
from tests.report.made_up_results import results


def test_samples_are_half_wrong_and_always_the_same() -> None:
    rows = results().translations
    chosen = samples.choose(rows)
    assert chosen == samples.choose(rows)
    assert [row.right for row in chosen] == [False] * 6 + [True] * 6
    assert len(set(chosen)) == 12


def test_samples_fill_up_with_the_other_kind() -> None:
    right = [row for row in results().translations if row.right]
    wrong = [row for row in results().translations if not row.right]
    assert [row.right for row in samples.choose(right + wrong[:2])] == [False] * 2 + [True] * 10
    assert [row.right for row in samples.choose(wrong + right[:1])] == [False] * 11 + [True]
    assert samples.choose(right[:3]) == right[:3]
    assert samples.choose([]) == []


def test_differences_are_by_word() -> None:
    reference, translation = samples.Translation(
        "", "ich sehe das alte Haus", "ich sehe alte Häuser"
    ).differences()
    assert reference == [("ich sehe", False), ("das", True), ("alte", False), ("Haus", True)]
    assert translation == [("ich sehe", False), ("alte", False), ("Häuser", True)]
