"""Table 3, numbers, samples and figures of the report, each by itself."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import pytest
from matplotlib.transforms import Bbox

from seq2sweep.presets import table3
from seq2sweep.report import page, plots, samples, table, text
from tests.unit.made_up_results import SIGNATURE, papers_own_sweep, results, sweep, trial

# --- Table 3 ---------------------------------------------------------------------------------


def test_cells_equal_to_the_base_are_empty() -> None:
    found = {row.cells[0]: row.cells for row in table.rows(sweep())}
    flops = text.powers(6.0 * 790_000 * 2500 * 300)
    assert found["base"] == (
        *("base", "1", "128", "512", "4", "32", "32", "0.1", "0.1", "300"),
        *("5.91", "31.4", "0.79", flops, "finished"),
    )
    assert found["(A) heads 1"] == (
        *("(A) heads 1", "", "", "", "1", "128", "128", "", "", ""),
        *("6.32", "29.9", "", flops, "finished"),
    )
    assert found["(B) d_k 8"][5] == "8"
    assert found["(B) d_k 8"][12] == "0.74"
    assert len(table.HEADINGS) == len(found["base"])


def test_rows_are_named_as_in_the_paper() -> None:
    kinds = [row.cells[0][:3] for row in table.rows(sweep())]
    expected = ["bas", "(A)", "(A)", "(B)", "(C)", "(C)", "(D)", "(D)", "(D)", "(E)", "(C)"]
    assert kinds == expected
    both = trial("mixed", {"heads": 1, "dropout": 0.0})
    record = sweep() | {"trials": [*sweep()["trials"], both]}
    assert table.rows(record)[-1].cells[0] == "mixed"


def test_stopped_and_failed_trials_say_so() -> None:
    states = {row.state: row.cells[-1] for row in table.rows(sweep())}
    assert states["stopped"] == "stopped early at step 100"
    assert states["failed"] == "failed: out of memory: a worker | was killed"
    failed = next(row for row in table.rows(sweep()) if row.state == "failed")
    assert failed.cells[10:12] == (text.MISSING, text.MISSING)


def test_comparison_finds_the_papers_row_and_both_differences() -> None:
    found = {row.cells[0]: row for row in table.comparisons(sweep())}
    # Ours 4 heads -> 1 (a quarter) is nearest to the paper's 8 -> 4 or 8 -> 1 in proportion:
    # log 1/4 lies as far from log 1/2 as from log 1/8; the first row of the two is taken.
    assert found["heads 1"].cells == (
        *("heads 1", "6.32 (+0.41)", "29.9 (−1.5)"),
        *("(A) h 8 → 1, d_k 64 → 512, d_v 64 → 512", "5.29 (+0.37)", "24.9 (−0.9)", "the same"),
    )
    assert found["heads 1"].verdict == "same"
    assert found["heads 8"].cells[3:6] == (
        *("(A) h 8 → 16, d_k 64 → 32, d_v 64 → 32", "4.91 (−0.01)", "25.8 (0.0)"),
    )
    assert found["heads 8"].cells[6] == "no difference in the paper"
    assert found["layers 2"].cells[3] == "(C) N 6 → 8"
    assert found["d_ff 1024"].cells[3] == "(C) d_ff 2048 → 4096"
    assert found["dropout 0"].cells[3] == "(D) P_drop 0.1 → 0"
    assert found["dropout 0"].verdict == "opposite"
    assert found["positions learned"].cells[3] == "(E) positions sinusoidal → learned"


def test_the_papers_own_table_is_compared_with_itself() -> None:
    record = papers_own_sweep()
    found = table.comparisons(record)
    assert len(found) == 18  # all rows but base and big, which changes several things
    for row in found:
        assert row.cells[1:3] == row.cells[4:6]
        assert row.verdict in ("same", "none")
    cells = {row.cells[0]: row.cells for row in table.rows(record)}
    assert cells["(B) d_k=16"][1:13] == (*[""] * 4, "16", *[""] * 4, "5.16", "25.1", "58")
    assert cells["base"][9] == "100\u202f000"
    assert page.render(dataclasses.replace(results(), sweep=record))


def test_only_finished_trials_are_compared() -> None:
    names = {row.cells[0] for row in table.comparisons(sweep())}
    assert names.isdisjoint({"dropout 0.3", "d_model 4096", "base"})
    record = sweep()
    record["trials"][0]["status"] = "stopped early"
    assert table.comparisons(record) == []


def test_no_base_trial_leaves_the_base_row_without_figures() -> None:
    record = sweep()
    del record["trials"][0]
    base = table.rows(record)[0]
    assert base.cells[10:] == ("", "", "", "", "not trained")
    assert table.comparisons(record) == []


def test_papers_figures_agree_with_its_text() -> None:
    # Row A keeps h d_k = 512; section 6.2: one head is 0.9 BLEU worse than the best setting.
    heads = [row for row in table3.read().rows if row.group == "A"]
    for row in heads:
        assert row.changes["model.heads"] * row.changes["model.d_k"] == 512
    assert max(row.bleu for row in heads) - heads[0].bleu == pytest.approx(0.9)


def test_markdown_is_a_table_with_what_one_must_know() -> None:
    found = table.markdown(sweep(), dataset="en → de, phrasebook", vocabulary_size=3000)
    rows = found.split("\n")[2:15]
    assert re.sub(" +", " ", rows[0]).startswith("| row | N | d_model | d_ff | h | d_k | d_v |")
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(table.HEADINGS) + 1}
    assert len({row.rindex("|", 0, row.index("| finished")) for row in rows if "| fin" in row}) == 1
    assert r"a worker \| was killed |" in rows[-1]
    for needed in ("Empty cells are the base row's", SIGNATURE, "3\u202f000 pieces", "word piece"):
        assert needed in found
    assert "not comparable with the paper's in absolute terms" in found
    assert "arXiv 1706.03762" in found


def test_markdown_without_a_sweep_says_what_to_run() -> None:
    assert "dvc repro sweep" in table.markdown(None, dataset="x", vocabulary_size=1)


# --- numbers -----------------------------------------------------------------------------------


def test_numbers_as_people_write_them() -> None:
    assert text.whole(1234567.4) == "1\u202f234\u202f567"
    assert text.powers(3.28e18) == "3.3\u202f×\u202f10¹⁸"
    assert [text.signed(x, 1) for x in (0.9, -0.9, 0.04, -0.04, None)] == [
        *("+0.9", "−0.9", "0.0", "0.0", text.MISSING),
    ]
    assert [text.millions(n) for n in (831_000, 12_340_000, 65_400_000)] == ["0.83", "12.3", "65"]
    assert text.percent(0.0512) == "5.1\u202f%"
    assert text.fixed(math.inf, 2) == text.MISSING


# --- samples -----------------------------------------------------------------------------------


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
    reference, translation = samples.differences("ich sehe das alte Haus", "ich sehe alte Häuser")
    assert [(span.text, span.kind) for span in reference] == [
        *[("ich sehe", "same"), ("das", "missing"), ("alte", "same"), ("Haus", "missing")]
    ]
    assert [(span.text, span.kind) for span in translation] == [
        *[("ich sehe", "same"), ("alte", "same"), ("Häuser", "extra")]
    ]


# --- figures -----------------------------------------------------------------------------------


def test_figures_are_deterministic_and_take_the_pages_colours() -> None:
    curves = [plots.Curve("a & b", [(1, 2.0), (2, 1.0)]), plots.Curve("c", [(1, 3.0), (2, 2.0)])]
    drawings = [
        plots.lines(curves, about='loss of "a" & b', x_label="step", name="one") for _ in range(2)
    ]
    assert drawings[0] == drawings[1]
    assert "#010" not in drawings[0]
    colours = set(re.findall(r"#[0-9a-f]{6}\b", drawings[0]))
    assert not colours
    assert "var(--series-1)" in drawings[0]
    assert "var(--series-2)" in drawings[0]
    assert 'aria-label="loss of &quot;a&quot; &amp; b"' in drawings[0]
    assert "http" not in drawings[0]


def test_names_at_line_ends_keep_apart() -> None:
    placed = plots.spread([10, 11, 12, 95, 99], 8, 0, 100)
    assert placed == sorted(placed)
    assert min(b - a for a, b in itertools.pairwise(placed)) >= 8
    assert min(placed) >= 0
    assert max(placed) <= 100
    assert plots.spread([5, 50, 80], 8, 0, 100) == [5, 50, 80]


def test_names_of_points_avoid_each_other() -> None:
    frame = Bbox.from_bounds(0, 0, 400, 300)
    taken = [Bbox.from_bounds(194, 144, 12, 12)]
    for _ in range(12):
        x, y = plots.place((200, 150), 60, 12, taken, frame)
        box = Bbox.from_bounds(x - 30, y - 6, 60, 12)
        assert not any(box.overlaps(other) for other in taken)
        assert box.x0 >= 0
        assert box.x1 <= 400
        taken.append(box)
