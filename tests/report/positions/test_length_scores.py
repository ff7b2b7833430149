"""`by_length` of reports/sweep.json: read, pooled over seeds, its table, and what is damaged."""

from __future__ import annotations

import copy
import statistics
from typing import Any

import pytest

from seq2sweep.evaluate import by_length
from seq2sweep.report import formats
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.positions import length_scores
from seq2sweep.report.table import tables
from tests.report.made_up_results import SIGNATURE, failed, sweep
from tests.report.parsing_sweep import of_parsing
from tests.report.positions.made_up_lengths import BASE, LEARNED, positions_sweep


def read(record: dict[str, Any]) -> length_scores.ByLength:
    found = length_scores.read(record)
    assert found is not None
    return found


def test_bins_know_what_was_trained_on() -> None:
    found = read(positions_sweep())
    assert [one.label for one in found.bins] == ["5–8", "9–12", "rare: 13–16", "beyond: 17–29"]
    assert [(one.rare, one.beyond) for one in found.bins] == [
        *[(False, False)] * 2,
        (True, False),
        (False, True),
    ]
    assert (found.usual, found.longest, found.longer) == (12, 16, 490)


def test_scores_are_pooled_over_the_seeds_that_finished() -> None:
    record = positions_sweep(spread=1.0)
    scores = read(record).of[LEARNED]
    each = [record["by_length"]["bleu"][f"{LEARNED} seed={seed}"]["bins"] for seed in (1, 2, 3)]
    for place, pooled in enumerate(scores.bins):
        assert pooled is not None
        values = [bins[place] for bins in each]
        assert pooled.mean == pytest.approx(statistics.fmean(values))
        assert pooled.deviation == pytest.approx(statistics.stdev(values))
    assert scores.within == {1: pytest.approx(39.1), 2: pytest.approx(40.1), 3: pytest.approx(41.1)}
    assert scores.beyond == {1: 11.0, 2: 10.0, 3: 9.0}
    assert scores.change == {seed: scores.beyond[seed] - scores.within[seed] for seed in (1, 2, 3)}
    for trial in record["trials"]:
        if trial["seed"] == 3:
            trial["status"] = "stopped early"
    assert read(record).of[LEARNED].beyond.keys() == {1, 2}


def test_without_longer_sentences_nothing_is_beyond() -> None:
    record = positions_sweep(bins=[(5, 8, 340), (9, 12, 640), (13, 16, 530)])
    assert read(record).longer == 0
    assert read(record).of[BASE].beyond == {}
    table = length_scores.table(aggregate(record), read(record))
    assert table is not None
    assert "No validation sentence is longer than any." in table.notes[1]


def test_the_table_has_a_row_a_variant_and_says_how_many_sentences() -> None:
    record = positions_sweep(spread=1.0)
    table = tables(record, "made up", 3000).by_length
    assert table is not None
    assert table.headings == (
        *("source tokens", "5–8 (n = 340)", "9–12 (n = 640)", "rare: 13–16 (n = 530)"),
        "beyond: 17–29 (n = 490)",
    )
    assert [row[0] for row in table.rows] == ["base", "positions=learned"]
    # Student's t of 2 degrees of freedom over three scores that are 1 apart.
    assert table.rows[1][-1] == "10.0 ± 2.5"
    assert SIGNATURE in table.notes[0]
    # Which may be characters or bytes.
    assert "Tokens are those of the source's vocabulary" in table.notes[0]
    assert "99 % of the sources of the training data have at most 12 tokens" in table.notes[1]
    assert by_length.USUAL == 0.99
    text = formats.markdown(tables(record, "made up", 3000))
    assert "## BLEU by length of the source" in text
    assert "| positions=learned | 45.1 ± 2.5 " in text


def test_variants_without_scores_have_no_row() -> None:
    record = positions_sweep()
    for trial in record["trials"]:
        if trial["variant"] == LEARNED:
            trial |= failed("failed", "out of memory")
    table = length_scores.table(aggregate(record), read(record))
    assert table is not None
    assert [row[0] for row in table.rows] == ["base"]
    for trial in record["trials"]:
        trial |= failed("failed", "out of memory")
    assert length_scores.table(aggregate(record), read(record)) is None


@pytest.mark.parametrize("entry", [{}, {"by_length": None}])
def test_a_sweep_of_an_earlier_version_has_none(entry: dict[str, Any]) -> None:
    record = sweep() | entry
    assert length_scores.problem(record) is None
    assert length_scores.read(record) is None
    assert tables(record, "made up", 3000).by_length is None
    assert "by length" not in formats.markdown(tables(record, "made up", 3000))


# --- damage --------------------------------------------------------------------------------------


def test_a_whole_entry_has_no_problem() -> None:
    assert length_scores.problem(positions_sweep()) is None
    record = positions_sweep(bins=[(13, 16, 530), (17, 29, 490)])
    for scores in record["by_length"]["bleu"].values():
        scores["within"] = None
    assert length_scores.problem(record) is None


NAME = f"{LEARNED} seed=2"
DAMAGE: list[tuple[tuple[str | int, ...], Any, str]] = [
    ((), 3, "by_length is a number, not an object"),
    (("trained_on",), 16, "by_length.trained_on is a number, not an object"),
    (("trained_on", "usual"), 99, "by_length.trained_on.usual, 99, is above longest, 16"),
    (("bins",), [], "by_length.bins is empty"),
    (("bins", 1, "sentences"), "many", "by_length.bins[1].sentences is a string, not"),
    (("bins", 1, "sentences"), 0, "by_length.bins has one without sentences"),
    (("bins", 1, "shortest"), 8, "by_length.bins are not in rising order"),
    (("bins", 1, "longest"), 3, "by_length.bins are not in rising order"),
    (("trained_on", "usual"), 11, "by_length.bins has one that is on both sides"),
    (("trained_on", "longest"), 20, "by_length.bins has one that is on both sides"),
    (("trained_on", "longest"), 12, "by_length.bins has several beyond"),
    (("bleu",), [], "by_length.bleu is a list, not an object"),
    (("bleu", NAME, "bins"), [1.0], f"by_length.bleu.{NAME} has 1 scores for 4 bins"),
    (("bleu", NAME, "bins", 0), "1", f"by_length.bleu.{NAME}.bins[0] is a string, not a number"),
    (("bleu", NAME, "bins", 0), float("nan"), "has a score that is not from 0 to 100"),
    (("bleu", NAME, "bins", 0), 101.0, "has a score that is not from 0 to 100"),
    (("bleu", NAME, "within"), -1.0, "has a score that is not from 0 to 100"),
    (("bleu", NAME, "within"), None, f"by_length.bleu.{NAME}.within does not fit the bins"),
]


@pytest.mark.parametrize(("place", "value", "told"), DAMAGE)
def test_damage_is_said_in_words(place: tuple[str | int, ...], value: Any, told: str) -> None:
    record: Any = copy.deepcopy(positions_sweep())
    inner = record
    *parents, key = ("by_length", *place)
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    found = length_scores.problem(record)
    assert found is not None
    assert told in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (3, "by_length is a number, not a list"),
        ([{"shortest": 1, "longest": 2, "bleu": 3.0}], "by_length[0].sentences is missing"),
        (
            [{"shortest": 1, "longest": 2, "sentences": 9, "bleu": None}],
            "by_length[0].bleu is null, not a number",
        ),
    ],
)
def test_damage_of_the_main_models_is_said_too(entry: Any, told: str) -> None:
    assert length_scores.problem_of_model({"by_length": entry}, "bleu") == told
    assert length_scores.problem_of_model({}, "bleu") is None


def test_the_main_models_scores_are_those_of_its_task() -> None:
    entry = {"by_length": [{"shortest": 1, "longest": 2, "sentences": 9, "f1": 3.0}]}
    assert length_scores.problem_of_model(entry, "f1") is None
    assert length_scores.problem_of_model(entry, "bleu") == "by_length[0].bleu is missing"


def test_scores_of_parsing_are_read_under_their_name() -> None:
    record = of_parsing(positions_sweep())
    assert length_scores.problem(record) is None
    there, here = length_scores.read(positions_sweep()), length_scores.read(record)
    assert there is not None
    assert here is not None
    assert here.of == there.of
    found = length_scores.table(aggregate(record), here)
    assert found is not None
    assert found.title == "F1 by length of the source"
    assert "Corpus F1 over" in found.notes[0]
    assert "by EVALB's rules: `EVALB, COLLINS.prm`" in found.notes[0]
    del record["by_length"]["f1"]
    assert length_scores.problem(record) is not None
    assert (
        length_scores.problem(positions_sweep() | {"score": "f2"})
        == "score is 'f2', not one of bleu, f1"
    )
