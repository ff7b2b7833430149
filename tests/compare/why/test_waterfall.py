"""The order of causes and the sum of their shares, on scores that are known."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from itertools import chain

import pytest

from seq2sweep.compare.why.waterfall import SEEN, Cause, Texts, Waterfall, waterfall

GIVEN = Texts(["ab", "c"], ["r", "s"])


def without(letter: str) -> Cause:
    def undo(texts: Texts) -> Texts:
        return Texts([line.replace(letter, "") for line in texts.hypotheses], texts.references)

    return Cause(letter, f"has {letter}", undo)


def found(scores: dict[str, float], causes: str = "abc", given: Texts = GIVEN) -> Waterfall:
    """scores: by the letters that are left."""

    def score(texts: Texts) -> float:
        return scores["".join(chain(*texts.hypotheses))]

    return waterfall(lambda undone: given, [without(letter) for letter in causes], score)


HIDDEN = {"abc": 1.0, "bc": 1.5, "ac": 4.0, "ab": 3.0, "c": 9.0, "b": 3.5, "a": 10.0, "": 20.0}


def test_the_largest_gain_comes_first_and_all_add_up() -> None:
    result = found(HIDDEN)
    assert [(s["cause"], s["share"], s["bleu"]) for s in result.steps] == [
        ("b", 3.0, 4.0),
        ("c", 6.0, 10.0),
        ("a", 10.0, 20.0),
    ]
    assert (result.bleu, result.end) == (1.0, 20.0)
    assert result.texts == Texts(["", ""], ["r", "s"])


def test_the_order_in_which_causes_are_looked_for_does_not_matter() -> None:
    assert found(HIDDEN, "cab").steps == found(HIDDEN).steps


def test_a_loss_counts_as_a_gain_does() -> None:
    scores = {"abc": 10.0, "bc": 7.0, "ac": 11.0, "ab": 10.0, "c": 8.0, "b": 7.0, "a": 11.0, "": 8}
    result = found(scores)
    assert [(s["cause"], s["share"]) for s in result.steps] == [("a", -3.0), ("b", 1.0)]
    assert result.texts.hypotheses == ["", "c"]


def test_what_moves_the_score_too_little_is_no_step() -> None:
    small = SEEN * 0.9
    scores = dict.fromkeys(HIDDEN, 5.0) | {"bc": 5 + small, "c": 5 + small, "b": 5 + small, "": 5}
    result = found(scores)
    assert result.steps == []
    assert result.end == result.bleu == 5.0


def test_small_ones_at_the_end_are_none() -> None:
    """Two that matter together, and neither by itself."""
    result = found({"abc": 20.0, "bc": 20.04, "ac": 20.04, "ab": 20.0, "c": 20.08}, "ab")
    assert (result.steps, result.end, result.texts) == ([], 20.0, GIVEN)


def test_causes_that_matter_together_alone_are_found() -> None:
    scores = dict.fromkeys(HIDDEN, 5.0) | {"c": 30.0, "": 30.0}
    result = found(scores)
    assert {step["cause"] for step in result.steps} == {"a", "b"}
    assert result.end == 30.0
    assert sum(step["share"] for step in result.steps) == 25.0


@pytest.mark.parametrize(
    ("hypotheses", "aligned"),
    [(["a"], ["a", ""]), (["a", "b", "c"], ["a", "b"]), (["a", "b"], ["a", "b"])],
)
def test_missing_lines_are_empty_and_others_left_out(
    hypotheses: list[str], aligned: list[str]
) -> None:
    assert Texts(hypotheses, ["r", "s"]).aligned() == Texts(aligned, ["r", "s"])


def test_causes_of_lines_come_before_the_texts_are_aligned() -> None:
    seen = []

    def look(texts: Texts) -> Texts:
        seen.append(len(texts.hypotheses))
        return texts

    given = Texts(["a", "b", "c"], ["r", "s"])
    causes = [Cause("lines", "", look, of_lines=True), Cause("text", "", look)]
    waterfall(lambda undone: given, causes, lambda texts: float(len(texts.hypotheses)))
    assert seen == [3, 2, 3, 2]


def test_what_is_made_anew_is_asked_for_by_what_is_undone() -> None:
    def given(undone: Collection[str]) -> Texts:
        return Texts(["better" if "beam" in undone else "worse"], ["better"])

    causes = [Cause("beam", "", lambda texts: texts), without("x")]
    result = waterfall(given, causes, lambda texts: 7.0 * (texts.hypotheses == ["better"]))
    assert [(step["cause"], step["share"]) for step in result.steps] == [("beam", 7.0)]


def test_a_gain_and_a_loss_that_cancel_are_both_found() -> None:
    scores = dict.fromkeys(HIDDEN, 5.0) | {"bc": 9.0, "ac": 1.0, "b": 9.0, "a": 1.0}
    result = found(scores)
    assert [(s["cause"], s["share"]) for s in result.steps] == [("a", 4.0), ("b", -4.0)]
    assert result.end == 5.0


def test_texts_that_are_scored_are_not_kept() -> None:
    seen: list[weakref.ref[Texts]] = []
    kept = []

    def score(texts: Texts) -> float:
        seen.append(weakref.ref(texts))
        kept.append(sum(each() is not None for each in seen))
        return HIDDEN["".join(chain(*texts.hypotheses))]

    waterfall(lambda undone: GIVEN, [without(letter) for letter in "abc"], score)
    assert len(kept) == 7
    assert max(kept) <= 2
