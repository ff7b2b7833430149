"""Table 1 from a made-up record: its cells, notes, plots and files."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path

import pytest

from pipeline.report import checked
from seq2sweep.errors import UserError
from seq2sweep.report import page
from seq2sweep.report.markdown import Table
from seq2sweep.report.paper_tables.table1 import section, table1_files, tables, where
from seq2sweep.report.paper_tables.table1_record import problem
from tests.hostile import json_shapes
from tests.report.made_up_results import csv_lines, undrawn
from tests.report.made_up_table1 import record

RECORD = record()


def rows_of(table: Table) -> dict[str, dict[str, str]]:
    return {
        row[0] + f" {row[1]}" * ("d" in table.headings): dict(zip(table.headings, row, strict=True))
        for row in table.rows
    }


def test_costs_stand_beside_the_papers() -> None:
    costs = rows_of(tables(RECORD)[0])
    attention = costs["Self-attention"]
    assert attention["complexity (paper)"] == "O(n² · d)"
    assert attention["exponents of n, d (paper)"] == attention["counted"] == "2, 1"
    assert attention["time forward"] == "2.00 ± 0.00, 1.00 ± 0.00"
    assert attention["time forward and backward"] == "1.00 ± 0.00, 0.50 ± 0.00"
    # 4 n^2 d operations at 2e10 a second; backward is made up to be three times that.
    assert attention["ms at n = 512, d = 256"] == "13.4 / 40.3"
    assert attention["saved per n·d"] == "2.5"  # 10 bytes, 4 a number
    assert costs["Recurrent (Elman)"]["counted"] == "1, 2"
    whole = costs["Multi-head attention, whole"]
    assert whole["exponents of n, d (paper)"] == "–"
    low, high = map(float, whole["counted"].split(", "))
    assert 1 < low < 2 > high > 1


def test_intervals_are_half_as_wide_as_they_reach() -> None:
    wide = copy.deepcopy(RECORD)
    wide["exponents"]["lstm"]["forward"]["n"] = {"exponent": 1.5, "low": 1.25, "high": 1.75}
    wide["exponents"]["lstm"]["forward"]["d"] = {"exponent": -0.5, "low": None, "high": None}
    assert rows_of(tables(wide)[0])["LSTM"]["time forward"] == "1.50 ± 0.25, −0.50"


def test_half_precision_counts_numbers_not_bytes() -> None:
    half = copy.deepcopy(RECORD)
    half["about"]["precision"] = "bf16"
    assert rows_of(tables(half)[0])["LSTM"]["saved per n·d"] == "5.0"


def test_chains_and_paths_stand_beside_the_papers() -> None:
    lengths = rows_of(tables(RECORD)[1])
    assert lengths["Recurrent (Elman)"]["longest chain"] == "n"
    contiguous = lengths["Convolutional, contiguous"]
    assert contiguous["maximum path (paper)"] == "O(n/k)"
    assert contiguous["n = 16"] == "15, 8 (5.3)"
    # No closed form, as the record here is made: a dash.
    assert lengths["Convolutional, dilated"]["n = 512"] == "–, 6 (5.7)"
    assert lengths["Self-attention"]["n = 512"] == "1, 1 (1)"
    assert list(contiguous)[4:] == ["n = 8", "n = 16", "n = 32", "n = 512"]


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        ({"8": 5, "16": 5}, "5"),
        ({"8": 8, "16": 16}, "n"),
        ({"8": 9, "16": 17}, "n + 1"),
        ({"8": 7, "16": 15}, "n − 1"),
        ({"8": 7, "16": 12}, "7 at 8, 12 at 16"),
    ],
)
def test_chains_as_text(chain: dict[str, int], text: str) -> None:
    changed = RECORD | {"chains": RECORD["chains"] | {"lstm": chain}}
    assert rows_of(tables(changed)[1])["LSTM"]["longest chain"] == text


def test_crossings_by_operations_and_by_time() -> None:
    found = rows_of(tables(RECORD)[2])
    alone = found["Self-attention and Recurrent (Elman) 128"]
    assert alone["n by operations"] == "128"
    assert alone["n by time, forward"] == "256"
    whole = found["Multi-head attention, whole and LSTM 64"]
    assert whole["n by operations"] == "128"
    # (8 d + 4 n) / 2e10 = 16 d / 4e10 at n = 0.
    assert whole["n by time, forward"] == "below 32"
    slow = copy.deepcopy(RECORD)
    for m in slow["measurements"]:
        m["forward"]["seconds"] *= 100 if m["layer"] == "recurrent" else 1
    crossing = rows_of(tables(slow)[2])["Self-attention and Recurrent (Elman) 128"]
    assert crossing["n by time, forward"] == "above 512"


def test_it_says_where_and_when_and_that_the_machine_was_busy() -> None:
    said = where(RECORD)
    assert said.startswith("Measured 2026-11-24 10:00 UTC in 1m15s on a <processor> (2 cores, 1 ")
    assert "commit 0123456." in said
    dirty = RECORD | {"about": RECORD["about"] | {"git.dirty": "true"}}
    assert "commit 0123456 with changes that were not committed." in where(dirty)
    assert "busy" not in said
    busy = RECORD | {"about": RECORD["about"] | {"cpu_share": 0.4}}
    assert "The machine was busy: this had the processor 40 % of the time" in where(busy)
    assert "not those of the layers alone" in where(busy)  # of a version without a clock's name
    by_processor = {"about": busy["about"] | {"clock": "processor"}}
    assert "The times are of that part alone, but other work shared" in where(RECORD | by_processor)
    assert "Times: by the wall clock" in str(tables(RECORD)[0].notes)
    assert "Times: by the processor clock" in str(tables(RECORD | by_processor)[0].notes)
    threads = RECORD | {"about": RECORD["about"] | {"cpu_share": None, "threads": 2}}
    assert "2 threads" in where(threads)


def test_notes_say_where_the_ways_and_counts_differ() -> None:
    notes = " ".join(note for table in tables(RECORD) for note in table.notes)
    assert f"counter finds at all {len(RECORD['measurements'])} sizes" in notes
    assert "agree in all 72 cases" in notes
    wrong = copy.deepcopy(RECORD)
    wrong["measurements"][0]["flops_counted"] += 1
    wrong["paths"]["lstm"][1]["causal_by_jacobian"] = 3
    notes = " ".join(note for table in tables(wrong) for note in table.notes)
    assert "not what PyTorch's counter finds at 1 of" in notes
    assert "differ: lstm at n = 16" in notes


def test_plots_show_both_crossovers() -> None:
    plots = section(RECORD)["plots"]
    assert [plot.title for plot in plots] == [
        "Self-attention against Recurrent (Elman), d = 256",
        "Multi-head attention, whole against LSTM, d = 128",
    ]
    assert plots[0].caption.endswith("which cross at n = d = 256. The times cross: n above 512.")
    assert "at n = 2d = 256" in plots[1].caption
    for plot in plots:
        assert "mathdefault" not in plot.svg
        assert not re.search(r"#[0-9a-f]{6}", plot.svg)
    alone = copy.deepcopy(RECORD)
    del alone["exponents"]["lstm"]
    assert len(section(alone)["plots"]) == 1


def test_files_hold_every_measurement() -> None:
    files = table1_files(RECORD)
    assert sorted(files) == ["table1.csv", "table1.html", "table1.md", "table1.tex"]
    lines = csv_lines(files["table1.csv"])
    assert len(lines) == len(RECORD["measurements"])
    for line, m in zip(lines, RECORD["measurements"], strict=True):
        assert line["layer"] == m["layer"]
        assert int(line["flops_counted"]) == m["flops"]
        assert float(line["forward_seconds"]) == m["forward"]["seconds"]
        assert float(line["forward_backward_low_quartile"]) == m["forward_backward"]["low_quartile"]
    assert files["table1.md"].startswith("# Table 1, measured\n")
    assert r"a \textless" not in files["table1.tex"].split(r"\begin{tabular}")[0]
    assert files["table1.tex"].count(r"\begin{tabular}") == 4
    assert r"O($n^2$" not in files["table1.tex"]
    assert not re.search(r"[²·±–]", re.sub("(?m)^%.*$", "", files["table1.tex"]).replace("–", ""))
    assert "a &lt;processor&gt;" in files["table1.html"]
    assert files["table1.html"].count("<svg") == 2


def test_the_page_has_a_section_where_it_was_measured() -> None:
    assert 'id="table1"' not in page.render(dataclasses.replace(undrawn(), table1=None))
    shown = page.render(undrawn())
    assert '<h2 id="table1">Why self-attention: Table 1, measured</h2>' in shown
    assert '<a href="#table1">' in shown


def test_a_damaged_record_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "table1.json"
    path.write_text(json.dumps(RECORD), encoding="utf-8")
    assert checked(path, problem) == RECORD
    assert problem(RECORD | {"exponents": {"gru": {}}}) == "exponents.gru is of no known layer"
    assert problem(RECORD | {"exponents": {}}) == "nothing was measured"
    refused = 0
    for damaged in json_shapes(record("self_attention", "recurrent")):
        path.write_text(json.dumps(damaged), encoding="utf-8")
        # What may be so, such as an interval that is not known, makes a page all the same.
        try:
            tables(checked(path, problem))
        except UserError as error:
            refused += str(error).endswith("remove it and run `dvc repro`")
    assert refused > 150
