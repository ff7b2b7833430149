"""Which translation is of which reference."""

from __future__ import annotations

import random

import pytest

from seq2sweep.compare.why import line_alignment
from seq2sweep.compare.why.line_alignment import align, find
from seq2sweep.compare.why.waterfall import Texts

from .made_up_output import references, translations

REFERENCES = references(200, seed=3)
GOOD = translations(REFERENCES, wrong=0.3)
ALL = [*range(200)]


def test_good_output_stays_as_it_is() -> None:
    assert align(GOOD, REFERENCES) == ALL
    assert find(Texts(GOOD, REFERENCES)) is None


def test_lines_like_no_other_and_empty_ones_stay_where_they_are() -> None:
    draw = random.Random(4)
    strange = [
        "".join(draw.choices("xyzqw ", k=40)) if i % 9 == 0 else x for i, x in enumerate(GOOD)
    ]
    strange[50] = strange[51] = ""
    assert align(strange, REFERENCES) == ALL
    assert align([""] * 5, REFERENCES[:5]) == ALL[:5]
    assert align(["ja"] * 5, ["nein"] * 5) == ALL[:5]


@pytest.mark.parametrize("at", [0, 1, 100, 199])
def test_a_line_that_is_missing(at: int) -> None:
    expected = [*range(at), None, *range(at, 199)]
    assert align(GOOD[:at] + GOOD[at + 1 :], REFERENCES) == expected


@pytest.mark.parametrize("at", [0, 1, 100, 200])
def test_a_line_too_many(at: int) -> None:
    expected = [*range(at), *range(at + 1, 201)]
    assert align([*GOOD[:at], "Das ist neu und fremd.", *GOOD[at:]], REFERENCES) == expected


def test_lines_in_other_case_and_in_pieces_are_the_same() -> None:
    pieces = [" ".join("@@ ".join(word.lower()) for word in line.split()) for line in GOOD]
    assert align(pieces[1:], REFERENCES) == [None, *range(199)]


def test_many_lines_missing_here_and_there() -> None:
    kept = [i for i in ALL if i % 11 != 5]
    partner: list[int | None] = [None] * 200
    for j, i in enumerate(kept):
        partner[i] = j
    assert align([GOOD[i] for i in kept], REFERENCES) == partner
    assert align(GOOD, [REFERENCES[i] for i in kept]) == kept


def test_shifted_lines_are_put_back() -> None:
    found = find(Texts([*GOOD[1:], GOOD[0]], REFERENCES))
    assert found is not None
    assert found.name == "line shift"
    assert found.undo(Texts([*GOOD[1:], GOOD[0]], REFERENCES)) == Texts(["", *GOOD[1:]], REFERENCES)
    assert found.evidence == (
        "200 translations, 200 references; 1 of these have no translation, "
        "199 have it on another line"
    )


def test_of_the_other_newstest2014_only_what_both_have_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [i for i in ALL if i % 11 != 5]
    monkeypatch.setattr(line_alignment, "NEWSTEST2014", {"wmt14": len(kept), "wmt14/full": 200})
    filtered = Texts([GOOD[i] for i in kept], [REFERENCES[i] for i in kept])
    for given in (Texts(filtered.hypotheses, REFERENCES), Texts(GOOD, filtered.references)):
        found = find(given)
        assert found is not None
        assert found.name == "test set"
        assert found.undo(given) == filtered


def test_files_that_are_too_long_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not line_alignment.too_many(Texts(GOOD, REFERENCES))
    monkeypatch.setattr(line_alignment, "MOST_CELLS", 200 * 200 - 1)
    assert line_alignment.too_many(Texts(GOOD, REFERENCES))


def test_rows_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_alignment, "ROWS", 7)
    assert align(GOOD[1:], REFERENCES) == [None, *range(199)]
