"""Table 3, numbers, samples and figures of the report, each by itself."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.transforms import Bbox

from seq2sweep.presets import table3
from seq2sweep.report import formats, names, page, paper, plots, samples, scatter, table, text
from seq2sweep.report.pooled import pooled
from seq2sweep.report.seeds import Estimate
from tests.unit.made_up_results import papers_own_sweep, results, sweep, table3_sweep, trial

# --- Table 3 ---------------------------------------------------------------------------------


def rows(record: dict[str, Any]) -> dict[str, table.Row]:
    return {row.cells[0]: row for row in table.rows(pooled(record), record)}


def column(name: str) -> int:
    return table.HEADINGS.index(name)


def test_cells_equal_to_the_base_are_empty() -> None:
    found = {name: row.cells for name, row in rows(sweep()).items()}
    flops = text.powers(6.0 * 790_000 * 2500 * 300)
    assert found["base"] == (
        *("base", "1", "128", "512", "4", "32", "32", "0.1", "0.1", "300"),
        *("5.91", "31.4", "0.79", text.MISSING, flops, text.MISSING, "finished"),
    )
    assert found["(A) heads 1"] == (
        *("(A) heads 1", "", "", "", "1", "128", "128", "", "", ""),
        *("6.32", "29.9", "", text.MISSING, flops, text.MISSING, "finished"),
    )
    assert found["(B) d_k 8"][5] == "8"
    assert found["(B) d_k 8"][12] == "0.74"
    assert len(table.HEADINGS) == len(found["base"])


def test_settings_that_table_3_does_not_know_become_columns_where_they_differ() -> None:
    """One that earlier trials do not have had its default there."""
    gated = trial("feed_forward=swiglu", {"feed_forward": "swiglu"}, parameters=920_000)
    record = sweep() | {"trials": [*sweep()["trials"], gated]}
    found = table.tables(record, "x", 1)
    assert [heading for heading in found.headings if heading not in table.HEADINGS] == [
        "feed_forward"
    ]
    place = found.headings.index("feed_forward")
    assert found.headings[place - 1 : place + 2] == ("train steps", "feed_forward", "PPL (dev)")
    cells = {row.cells[0]: row.cells for row in found.rows}
    assert {row: len(c) for row, c in cells.items()} == dict.fromkeys(cells, len(found.headings))
    assert cells["base"][place] == "relu"
    assert cells["feed_forward=swiglu"][place] == "swiglu"
    assert {c[place] for row, c in cells.items() if row not in ("base", "feed_forward=swiglu")} == {
        ""
    }
    assert table.tables(sweep(), "x", 1).headings == table.HEADINGS
    assert r"feed\_forward" in formats.latex(found)


def test_rows_are_named_as_in_the_paper() -> None:
    kinds = [name[:3] for name in rows(sweep())]
    expected = ["bas", "(A)", "(A)", "(B)", "(C)", "(C)", "(D)", "(D)", "(D)", "(E)", "(C)"]
    assert kinds == expected
    both = trial("mixed", {"heads": 1, "dropout": 0.0})
    assert list(rows(sweep() | {"trials": [*sweep()["trials"], both]}))[-1] == "mixed"
    of_paper = [row.name for row in table3.read().rows]
    assert list(rows(table3_sweep())) == of_paper
    assert list(rows(table3_sweep(3))) == of_paper


def test_seeds_are_pooled_in_one_row() -> None:
    record = table3_sweep(3)
    scores = [t["bleu"] for t in record["trials"] if t["variant"] == "A-heads-1"]
    assert len(scores) == 3
    margin = 4.3027 * statistics.stdev(scores) / math.sqrt(3)
    cells = rows(record)["A-heads-1"].cells
    shown = f"{statistics.mean(scores):.1f} ± {margin:.1f}"
    assert cells[column("BLEU (dev)")] == shown
    assert cells[column("h")] == "1"
    assert " ± " in cells[column("PPL (dev)")]
    # FLOPs and device-hours are those of one training, not of three.
    alone = rows(table3_sweep(1))["A-heads-1"].cells
    for heading in ("FLOPs", "device-hours"):
        assert cells[column(heading)] == alone[column(heading)]


def test_a_seed_that_was_stopped_is_not_in_the_mean_of_those_that_finished() -> None:
    record = table3_sweep(3)
    first, *others = [t for t in record["trials"] if t["variant"] == "A-heads-1"]
    first |= {"status": "stopped early", "steps": 10, "bleu": 0.5, "valid_perplexity": 400.0}
    row = rows(record)["A-heads-1"]
    assert row.cells[-1] == "2 of 3 seeds finished"
    for heading, figure in (("BLEU (dev)", "bleu"), ("PPL (dev)", "valid_perplexity")):
        shown = row.cells[column(heading)].split(" ± ")[0]
        assert float(shown) == pytest.approx(statistics.mean(t[figure] for t in others), abs=0.06)
    # Where all were stopped there is nothing better.
    for trial_of_it in others:
        trial_of_it |= {"status": "stopped early", "steps": 10, "bleu": 0.5}
    cells = rows(record)["A-heads-1"].cells
    assert cells[column("BLEU (dev)")].startswith("0.5")


def test_rows_that_chance_explains_are_marked() -> None:
    record = table3_sweep()
    bleu = column("BLEU (dev)")
    marked = {name for name, row in rows(record).items() if table.UNSEEN in row.cells[bleu]}
    unseen = {name for name, of in record["significance"].items() if not of["seen"]}
    assert marked == unseen
    assert 0 < len(unseen) < 18
    said = " ".join(table.notes(record, pooled(record), "x", 1))
    assert "no difference to the base row's BLEU can be seen" in said
    assert "What another seed would have changed is not in it" in said
    # Nothing is known of an older sweep, so nothing is marked.
    assert not any(table.UNSEEN in row.cells[bleu] for row in rows(sweep()).values())
    assert table.UNSEEN not in " ".join(table.notes(sweep(), pooled(sweep()), "x", 1))


def test_stopped_failed_and_refused_variants_say_so() -> None:
    states = {row.state: row.cells[-1] for row in rows(sweep()).values()}
    assert states["stopped"] == "stopped early at step 100"
    assert states["failed"] == "failed"
    failed = next(row for row in rows(sweep()).values() if row.state == "failed")
    assert failed.cells[10:12] == (text.MISSING, text.MISSING)
    found = rows(table3_sweep(3))
    assert (found["big"].state, found["big"].cells[-1]) == ("refused", "refused")
    assert found["C-d_model-1024"].cells[-1] == "2 of 3 seeds finished"
    assert table.tables(table3_sweep(3), "x", 1).failures == [
        ("C-d_model-1024 seed=3", "out of memory: a worker was killed"),
        ("big", "model.heads 16 of d_k 8 is refused here"),
    ]


def test_no_base_trial_leaves_the_base_row_without_figures() -> None:
    record = sweep()
    del record["trials"][0]
    base = rows(record)["base"].cells
    assert base[1:10] == ("1", "128", "512", "4", "32", "32", "0.1", "0.1", "300")
    assert set(base[10:-1]) == {text.MISSING}
    assert base[-1] == "not trained"


def test_device_hours_of_a_shared_device_are_marked() -> None:
    record = table3_sweep()
    hours = column("device-hours")
    plain = rows(record)["A-heads-1"].cells[hours]
    assert table.SHARED not in " ".join(table.notes(record, pooled(record), "x", 1))
    for one in record["trials"]:
        one["shared_device"] = one["name"] == "A-heads-1"
    marked = {name for name, row in rows(record).items() if table.SHARED in row.cells[hours]}
    assert marked == {"A-heads-1"}
    assert rows(record)["A-heads-1"].cells[hours] == f"{plain} {table.SHARED}"
    said = " ".join(table.notes(record, pooled(record), "x", 1))
    assert f"{table.SHARED}: trained while other trials ran on the same device" in said
    assert r"$\dagger$" in formats.latex(table.tables(record, "x", 1))


def test_a_note_says_the_precision() -> None:
    record = table3_sweep()
    assert "precision" not in " ".join(table.notes(record, pooled(record), "x", 1))
    for one in record["trials"]:
        one["train"] = one["train"] | {"precision": "float32"}
    assert "All rows are trained in float32." in table.notes(record, pooled(record), "x", 1)
    record["trials"][1] |= {"precision": "bf16"}
    said = " ".join(table.notes(record, pooled(record), "x", 1))
    assert "not all trained in the same precision" in said
    assert "in float32): A-heads-1." in said


# --- beside the paper ----------------------------------------------------------------------------


def compared(record: dict[str, Any]) -> dict[str, paper.Comparison]:
    return {row.cells[0]: row for row in paper.comparisons(pooled(record))}


def test_comparison_finds_the_papers_row_and_both_differences() -> None:
    found = compared(sweep())
    # Ours 4 heads -> 1 (a quarter) is nearest to the paper's 8 -> 4 or 8 -> 1 in proportion:
    # log 1/4 lies as far from log 1/2 as from log 1/8; the first row of the two is taken.
    assert found["heads 1"].cells == (
        *("heads 1", "(A) h 8 → 1, d_k 64 → 512, d_v 64 → 512", "5.29 (+0.37)", "6.32 (+0.41)"),
        *("24.9 (−0.9)", "29.9 (−1.5)", "", "", text.MISSING, "the same"),
    )
    assert found["heads 1"].verdict == "same"
    assert found["heads 8"].cells[1:6] == (
        *("(A) h 8 → 16, d_k 64 → 32, d_v 64 → 32", "4.91 (−0.01)", "5.88 (−0.03)"),
        *("25.8 (0.0)", "31.6 (+0.2)"),
    )
    assert found["heads 8"].cells[-1] == "no difference in the paper"
    assert found["layers 2"].cells[1] == "(C) N 6 → 8"
    assert found["d_ff 1024"].cells[1] == "(C) d_ff 2048 → 4096"
    assert found["d_ff 1024"].cells[6:8] == ("90 (+25)", "1.05 (+0.26)")
    assert found["dropout 0"].cells[1] == "(D) P_drop 0.1 → 0"
    assert found["dropout 0"].verdict == "opposite"
    assert found["positions learned"].cells[1] == "(E) positions sinusoidal → learned"


def test_the_papers_own_table_is_compared_with_itself() -> None:
    record = papers_own_sweep()
    found = compared(record)
    assert len(found) == 18  # all rows but base and big, which changes several things
    for row in found.values():
        assert row.cells[2] == row.cells[3]
        assert row.cells[4] == row.cells[5]
        assert row.verdict in ("same", "none")
    cells = rows(record)["(B) d_k=16"].cells
    assert cells[1:13] == (*[""] * 4, "16", *[""] * 4, "5.16", "25.1", "58")
    assert rows(record)["base"].cells[9] == "100\u202f000"
    assert page.render(dataclasses.replace(results(), sweep=record))


def test_rows_of_table_3_are_compared_with_their_own() -> None:
    record = table3_sweep()
    big = next(t for t in record["trials"] if t["row"] == "big")
    record["trials"].append(big | {"status": "finished", "bleu": 64.0, "bleu_paper": 64.5})
    record["trials"].remove(big)
    found = compared(record)
    of_paper = {row.name: row for row in table3.read().rows}
    assert set(found) == set(of_paper) - {"base", "C-d_model-1024"}
    for name, row in found.items():
        assert row.cells[4].startswith(f"{of_paper[name].bleu} (")
    # Scaled from 512 to 64 and so on, the paper's row is told as the paper has it.
    assert found["A-heads-32"].cells[1] == "(A) h 8 → 32, d_k 64 → 16, d_v 64 → 16"
    assert found["big"].cells[1].startswith("(big) d_model 512 → 1024, d_ff 2048 → 4096, h 8 → 16")
    assert found["big"].cells[2:6:2] == ("4.33 (−0.59)", "26.4 (+0.6)")
    # Of the paper's kind of BLEU where it is known.
    assert found["big"].cells[5].startswith("64.5 (")
    unseen = [name for name, of in record["significance"].items() if not of["seen"]]
    for name in unseen:
        assert found[name].cells[-1] == "no difference can be seen here"
        assert found[name].verdict == "none"


def test_only_finished_trials_are_compared() -> None:
    assert compared(sweep()).keys().isdisjoint({"dropout 0.3", "d_model 4096", "base"})
    record = sweep()
    record["trials"][0]["status"] = "stopped early"
    assert compared(record) == {}
    del record["trials"][0]
    assert compared(record) == {}


def test_more_steps_for_the_same_cost_are_no_change_of_the_variant() -> None:
    record = sweep()
    record["trials"][1]["train"] |= {"steps": 411}
    assert compared(record)["heads 1"].cells[1].startswith("(A)")


def test_papers_figures_agree_with_its_text() -> None:
    # Row A keeps h d_k = 512; section 6.2: one head is 0.9 BLEU worse than the best setting.
    heads = [row for row in table3.read().rows if row.group == "A"]
    for row in heads:
        assert row.changes["model.heads"] * row.changes["model.d_k"] == 512
    assert max(row.bleu for row in heads) - heads[0].bleu == pytest.approx(0.9)


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
    assert [text.p_value(p) for p in (0.0312, 0.0004, 1.0, None)] == [
        *("0.031", "< 0.001", "1.000", text.MISSING),
    ]
    assert text.with_margin(Estimate(25.34, 3, 0.2, 0.44), 1) == "25.3 ± 0.4"
    assert text.with_margin(Estimate(25.34), 1) == "25.3"
    assert text.with_margin(None, 1) == text.MISSING


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
    placed = names.spread([10, 11, 12, 95, 99], 8, 0, 100)
    assert placed == sorted(placed)
    assert min(b - a for a, b in itertools.pairwise(placed)) >= 8
    assert min(placed) >= 0
    assert max(placed) <= 100
    assert names.spread([5, 50, 80], 8, 0, 100) == [5, 50, 80]


def test_names_of_points_avoid_each_other() -> None:
    frame = Bbox.from_bounds(0, 0, 400, 300)
    taken = [Bbox.from_bounds(194, 144, 12, 12)]
    for _ in range(12):
        x, y = names.place((200, 150), 60, 12, taken, frame)
        box = Bbox.from_bounds(x - 30, y - 6, 60, 12)
        assert not any(box.overlaps(other) for other in taken)
        assert box.x0 >= 0
        assert box.x1 <= 400
        taken.append(box)


PLACES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12)


@given(PLACES, st.booleans(), st.booleans())
def test_the_pareto_front_is_what_nothing_beats_in_both(
    places: list[tuple[int, int]], right: bool, up: bool
) -> None:
    points = [scatter.Point(str(number), *place) for number, place in enumerate(places)]
    front = scatter.pareto(points, right, up)
    for point in points:
        beaten = any(
            (other.x >= point.x if right else other.x <= point.x)
            and (other.y >= point.y if up else other.y <= point.y)
            and (other.x, other.y) != (point.x, point.y)
            for other in points
        )
        assert any((f.x, f.y) == (point.x, point.y) for f in front) == (not beaten)
    assert [point.x for point in front] == sorted({point.x for point in front}, reverse=right)


def test_only_finished_points_are_on_the_front() -> None:
    points = [
        scatter.Point("a", 1, 1),
        scatter.Point("cheap and good, but stopped", 1, 9, hollow=True),
        scatter.Point("b", 2, 2),
    ]
    axes = scatter.Axis("cost", higher=False), scatter.Axis("quality", higher=True)

    def drawn(points: list[scatter.Point]) -> str:
        return scatter.scatter(points, *axes, about="", name="n")

    assert drawn(points).count("stroke-dasharray") == 1
    assert "stroke-dasharray" not in drawn(points[:2])
