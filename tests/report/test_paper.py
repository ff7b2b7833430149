"""Each variant beside its row of the paper."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from seq2sweep.presets import table3
from seq2sweep.report import formats, number_format, paper, sweep_plots, table
from seq2sweep.report.aggregate import aggregate
from tests.report.made_up_results import csv_lines, failed, papers_own_sweep, sweep, table3_sweep
from tests.report.parsing_sweep import of_parsing
from tests.report.test_table import rows


def compared(record: dict[str, Any]) -> dict[str, paper.Comparison]:
    return {row.cells[0]: row for row in paper.comparisons(aggregate(record))}


def test_comparison_finds_the_papers_row_and_both_differences() -> None:
    found = compared(sweep())
    # Ours 4 heads -> 1 (a quarter) is nearest to the paper's 8 -> 4 or 8 -> 1 in proportion:
    # log 1/4 lies as far from log 1/2 as from log 1/8; the first row of the two is taken.
    assert found["heads 1"].cells == (
        *("heads 1", "(A) h 8 → 1, d_k 64 → 512, d_v 64 → 512", "5.29 (+0.37)", "6.32 (+0.41)"),
        *("24.9 (−0.9)", "29.9 (−1.5)", "", "", number_format.MISSING, "the same"),
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
    text = html.unescape(formats.table_files(record, "x", 1)["table3.html"])
    shown = re.sub("<td[^>]*>", "<td>", text)
    for row in found.values():
        assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.cells)}</tr>" in shown


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


@pytest.mark.parametrize("budget", ["steps", "tokens", "flops"])
def test_the_row_big_is_judged_where_it_has_the_steps_of_the_papers(budget: str) -> None:
    record = table3_sweep() | {"budget": budget}
    big = next(one for one in record["trials"] if one["row"] == "big")
    big |= {"status": "finished", "cause": None, "bleu": 55.0, "bleu_paper": 55.0}
    record["significance"]["big"] = {"p": 0.002, "low": -8.0, "high": -6.0, "seen": True}
    found = table.tables(record, "x", 1)
    note = f"what `sweep.budget: {budget}` gives it: it is not judged"
    assert note not in str(found)
    assert compared(record)["big"].verdict == "opposite"
    if budget != "steps":
        del big["changes"]["train.steps"]
        row, found = compared(record)["big"], table.tables(record, "x", 1)
        assert (row.verdict, row.cells[-1]) == ("none", "not judged: trained for fewer steps")
        assert row.cells[4] == "26.4 (+0.6)"
        assert all(note in notes[-1] for notes in (found.comparison_notes, found.finding_notes))
        assert compared(record)["C-layers-2"].verdict == "same"
        big |= failed("refused", "it does not fit")
        assert note not in str(table.tables(record, "x", 1))


@pytest.mark.parametrize(
    ("section", "name", "value", "other_way"),
    [
        ("model", "dropout", 0.3, {"D-dropout-0.2"}),
        ("train", "label_smoothing", 0.05, set()),
        ("train", "label_smoothing", 0.3, {"D-label_smoothing-0.2"}),
    ],
)
def test_a_row_that_changes_its_base_the_other_way_is_not_compared(
    section: str, name: str, value: float, other_way: set[str]
) -> None:
    """The paper's base has 0.1 of both, so that its 0.2 is more and not less."""
    before, record = compared(table3_sweep()), table3_sweep()
    for one in record["trials"]:
        if f"{section}.{name}" not in one["changes"]:
            one[section] = one[section] | {name: value}
    assert before.keys() - compared(record).keys() == other_way
    lines = csv_lines(formats.csv_text(record))
    unpaired = {line["variant"] for line in lines if not line["paper_row"]}
    assert unpaired == other_way


def test_a_sweep_of_another_architecture_is_none_of_table_3() -> None:
    record = sweep()
    for one in (record["base"], *record["trials"]):
        one["model"] = one["model"] | {"architecture": "recurrent"}
    found = table.tables(record, "x", 1)
    assert not found.comparisons
    assert not found.findings
    assert [row.cells[0] for row in found.rows][:3] == ["base", "heads 1", "heads 8"]
    assert "`model.architecture` of the base row is recurrent" in " ".join(found.notes)
    lines = csv_lines(formats.csv_text(record))
    assert {line["paper_row"] for line in lines} == {""}
    # What a setting does is drawn of any model.
    drawn = [one["title"] for one in sweep_plots.effects(aggregate(record))]
    assert drawn == ["BLEU against heads", "BLEU against d_k", "BLEU against dropout"]
    of_papers_own = table.tables(sweep(), "x", 1)
    assert of_papers_own.comparisons
    assert of_papers_own.findings
    assert "model.architecture" not in " ".join(of_papers_own.notes)


def test_it_is_said_which_bleu_p_is_of() -> None:
    record = table3_sweep(2)
    said = "p, and whether a difference can be seen, are of sacreBLEU"
    notes = " ".join(paper.notes(aggregate(record)))
    assert said in notes
    assert "compounds split for German" in notes
    for one in record["trials"]:
        one["bleu_paper"] = None
    notes = " ".join(paper.notes(aggregate(record)))
    assert "BLEU here is sacreBLEU's" in notes
    assert said not in notes


def test_the_direction_is_of_the_bleu_that_p_is_of() -> None:
    before, record = compared(table3_sweep()), table3_sweep()
    assert before["A-heads-1"].verdict == "same"
    for one in record["trials"]:
        one["bleu_paper"] = 0.0
    found = compared(record)
    assert {name: row.verdict for name, row in found.items()} == {
        name: row.verdict for name, row in before.items()
    }
    assert found["A-heads-1"].cells[5] == "0.0 (0.0)"
    notes = " ".join(paper.notes(aggregate(record)))
    assert "are of sacreBLEU (paired bootstrap), and so is the direction." in notes


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_lower_cased_text_is_not_as_the_papers(lowercase: bool) -> None:
    record = table3_sweep(2) | {"config": {"prepare": {"lowercase": lowercase}}}
    notes = " ".join(table.tables(record, "x", 1).comparison_notes)
    assert ("for German), but of lower-cased text. p, and" in notes) is lowercase
    assert ("for German). p, and" in notes) is not lowercase


def test_only_finished_trials_are_compared() -> None:
    assert compared(sweep()).keys().isdisjoint({"dropout 0.3", "d_model 4096", "base"})
    record = sweep()
    record["trials"][0]["status"] = "stopped early"
    assert compared(record) == {}
    del record["trials"][0]
    assert compared(record) == {}


@pytest.mark.parametrize("of_base", [False, True])
def test_a_variant_of_which_the_weaker_seeds_were_stopped_has_no_direction(of_base: bool) -> None:
    """A firmer verdict than of one that is tested would stand on figures that are too good."""
    before, record = compared(table3_sweep(3)), table3_sweep(3)
    chosen = "base" if of_base else "A-heads-1"
    own = [one for one in record["trials"] if one["variant"] == chosen]
    own[1] |= {"status": "stopped early", "steps": 100}
    status = " (2 of 3 seeds finished, 1 stopped early)"
    found = {name.removesuffix(status): row for name, row in compared(record).items()}
    assert found.keys() == before.keys()
    assert (chosen + status in compared(record)) is not of_base
    untested = {name for name, row in found.items() if row.cells[-1] == "not tested"}
    assert untested == (found.keys() if of_base else {chosen})
    assert {(found[name].verdict, found[name].cells[-2]) for name in untested} == {
        ("none", number_format.MISSING)
    }
    assert before["A-heads-1"].verdict == "same"


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


def test_a_parser_is_compared_with_no_bleu() -> None:
    record = table3_sweep(2)
    there, here = (table.tables(one, "x", 3000) for one in (record, of_parsing(record)))
    left_out = ("BLEU, paper", "direction of BLEU")
    kept = [n for n, heading in enumerate(there.comparison_headings) if heading not in left_out]
    assert list(here.comparison_headings) == [
        there.comparison_headings[n].replace("BLEU", "F1") for n in kept
    ]
    f1 = here.comparison_headings.index("F1, here")
    for one, other in zip(here.comparisons, there.comparisons, strict=True):
        expected = [other.cells[n] for n in kept]
        # BLEU of the paper's kind is 0.15 more, in the base row as well.
        assert one.cells[f1].partition("(")[2] == expected[f1].partition("(")[2]
        assert [*one.cells[:f1], *one.cells[f1 + 1 :]] == [*expected[:f1], *expected[f1 + 1 :]]
        assert one.verdict == "none"
    assert "The paper's rows are trained to translate, and have no F1." in here.comparison_notes
