"""Table 4: the paper's rows as printed, and what was parsed here beside them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipeline import report
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.presets.parsers import ROWS, TEST_SECTIONS, TRAIN_SECTIONS
from seq2sweep.report.paper_tables import table4
from seq2sweep.report.paper_tables.table4 import table4_files
from tests.report.made_up_parsing import MODEL, evaluate, parser
from tests.report.made_up_results import csv_lines

PRINTED = """
Vinyals & Kaiser et al. (2014) | WSJ only, discriminative | 88.3
Petrov et al. (2006) | WSJ only, discriminative | 90.4
Zhu et al. (2013) | WSJ only, discriminative | 90.4
Dyer et al. (2016) | WSJ only, discriminative | 91.7
Transformer (4 layers) | WSJ only, discriminative | 91.3
Zhu et al. (2013) | semi-supervised | 91.3
Huang & Harper (2009) | semi-supervised | 91.3
McClosky et al. (2006) | semi-supervised | 92.1
Vinyals & Kaiser et al. (2014) | semi-supervised | 92.1
Transformer (4 layers) | semi-supervised | 92.7
Luong et al. (2015) | multi-task | 93.0
Dyer et al. (2016) | generative | 93.3
"""


def test_the_papers_rows_are_as_printed() -> None:
    printed = [f"{row.parser} | {row.training} | {row.f1}" for row in ROWS]
    assert printed == PRINTED.strip().splitlines()
    assert (TRAIN_SECTIONS[0], TRAIN_SECTIONS[-1], len(TRAIN_SECTIONS)) == (2, 21, 20)
    assert TEST_SECTIONS == (23,)


def test_where_nothing_was_parsed_there_are_the_papers_rows_alone() -> None:
    files = table4_files(None)
    assert set(files) == {f"table4.{kind}" for kind in ("md", "csv", "tex", "html")}
    for kind in ("md", "html", "tex"):
        text = files[f"table4.{kind}"]
        plain = text.replace("<code>", "`").replace("</code>", "`")
        assert "Nothing was parsed: set `data.target: trees`" in plain
        assert "ours" not in text
        assert "91.3" in text
    found = csv_lines(files["table4.csv"])
    assert [(row["parser"], row["training"], float(row["f1"])) for row in found] == [
        dataclasses.astuple(row) for row in ROWS
    ]


def test_ours_stands_beside_the_papers() -> None:
    made = parser()
    measured, printed = table4.tables(made)
    assert len(printed.rows) == 12
    ours, free, flat, right = (
        dict(zip(measured.headings, row, strict=True)) for row in measured.rows
    )
    assert ours == {
        "parser": "Transformer (ours)",
        "training": "this treebank only",
        "data set": "craft",
        "layers": "4",
        "d_model": "1024",
        "params ×10⁶": "58",
        "decoding": "beam 21, α 0.3",
        "F1": f"{made.evaluate['f1']:.1f} ± 0.4",
        "precision": f"{made.evaluate['precision']:.1f}",
        "recall": f"{made.evaluate['recall']:.1f}",
        "complete": "50.0",
        "F1 ≤ 40 words": f"{made.evaluate['short']['f1']:.1f}",
    }
    assert (free["parser"], free["F1"], free["layers"]) == (
        "Transformer (ours), unconstrained",
        "80.2",
        "4",
    )
    assert (flat["F1"], flat["recall"], flat["layers"]) == ("9.6", "5.0", "–")
    assert right["F1"] == "17.9"
    notes = " ".join(measured.notes)
    difference = made.evaluate["f1"] - 80.25
    assert f"Constrained less unconstrained: +{difference:.2f} F1" in notes
    assert "3 outputs needed a repair and 1 reached" in notes
    assert "20 sentences: 0 errors, 0 skipped" in notes
    assert "`EVALB, COLLINS.prm`" in notes


def test_a_parser_of_ones_own_files_is_called_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these trees may be other parsers', as in section 6.3."""
    monkeypatch.setattr(report, "read_self_training", lambda name: None)
    changes = {
        "data.dataset": "files",
        "data.files.train": ["gold.mrg", "parsed.mrg.gz"],
        "data.files.valid": ["22.mrg"],
        "data.files.test": ["23.mrg"],
    }
    config = configuration.with_changes(presets.load("parsing").config, changes)
    prepare = {"train": {"read": 10}}
    made = report.parser(config, parser().evaluate, MODEL, 58_000_000, prepare)
    assert made is not None
    assert table4.tables(made)[0].rows[0][1] == "gold.mrg and parsed.mrg.gz"
    treebank = presets.load("parsing").config
    made = report.parser(treebank, parser().evaluate, MODEL, 58_000_000, prepare)
    assert table4.tables(made)[0].rows[0][1] == "this treebank only"


def test_another_architecture_is_called_by_its_name() -> None:
    made = parser()
    made = dataclasses.replace(made, model={**(made.model or {}), "architecture": "recurrent"})
    names = ["GNMT (ours)", "GNMT (ours), unconstrained"]
    assert [row[0] for row in table4.tables(made)[0].rows[:2]] == names
    found = csv_lines(table4_files(made)["table4.csv"])
    assert [row["parser"] for row in found[:2]] == names
    for name, said in (("mamba", "mamba"), ("transformer", "Transformer")):
        assert table4.architecture_name({"architecture": name}) == said
    assert table4.architecture_name(None) == table4.architecture_name({}) == "Transformer"


def test_where_no_sentence_is_short_there_is_no_f1_of_them() -> None:
    """EVALB says 0 there, which is no score."""
    made = parser()
    short = {**made.evaluate["short"], "sentences": 3, "errors": 1, "skipped": 2, "f1": 0.0}
    made = dataclasses.replace(made, evaluate={**made.evaluate, "short": short})
    assert csv_lines(table4_files(made)["table4.csv"])[0]["f1_short"] == ""
    short["sentences"] = 4
    assert csv_lines(table4_files(made)["table4.csv"])[0]["f1_short"] == "0.0"


@pytest.mark.parametrize(
    ("standard", "told"),
    [(True, "two tables are comparable"), (False, "Not comparable: what is printed is of section")],
)
def test_only_the_penn_treebank_is_comparable(standard: bool, told: str) -> None:
    for kind, text in table4_files(parser(standard)).items():
        if kind != "table4.csv":
            assert told in text
            assert ("Not comparable" in text) is not standard
    found = csv_lines(table4_files(parser(standard))["table4.csv"])
    assert {row["comparable"] for row in found if row["of"] == "measured"} == {str(standard)}


def test_a_semi_supervised_parser_is_not_comparable() -> None:
    """Its other sentences are not the paper's."""
    made = dataclasses.replace(parser(True), student=evaluate(), silver=None)
    found = table4_files(made)
    assert (
        "the two tables are comparable. The semi-supervised parser had other" in found["table4.md"]
    )
    lines = [row for row in csv_lines(found["table4.csv"]) if row["of"] == "measured"]
    told = {row["comparable"] for row in lines if row["training"] == "semi-supervised"}
    assert told == {"False"}
    assert {r["comparable"] for r in lines if r["training"] != "semi-supervised"} == {"True"}


def test_the_file_of_numbers_is_not_rounded() -> None:
    made = parser()
    found = csv_lines(table4_files(made)["table4.csv"])
    assert len(found) == 4 + 12
    ours, free = found[:2]
    assert float(ours["f1"]) == made.evaluate["f1"]
    assert (ours["training"], ours["f1_margin"], ours["constrained"], ours["malformed"]) == (
        "this treebank only",
        "0.44",
        "True",
        "0",
    )
    assert (free["f1"], free["constrained"], free["malformed"]) == ("80.25", "False", "3")
    assert (ours["layers"], ours["d_model"], ours["beam"], ours["alpha"]) == (
        "4",
        "1024",
        "21",
        "0.3",
    )


@pytest.mark.parametrize("kind", ["paper", "power", None])
def test_a_length_penalty_that_is_not_the_papers_is_named(kind: str | None) -> None:
    """The same alpha is of another rule then; a file of an earlier version does not name it."""
    made = parser()
    known = {} if kind is None else {"length_penalty": kind}
    scores = {key: value for key, value in made.evaluate.items() if key != "length_penalty"}
    files = table4_files(dataclasses.replace(made, evaluate=scores | known))
    for format in ("md", "tex", "html"):
        assert ("(length penalty power)" in files[f"table4.{format}"]) is (kind == "power")
    found = csv_lines(files["table4.csv"])
    assert [row["length_penalty"] for row in found[:2]] == [kind or "paper"] * 2


GAIN = {"f1_difference": 1.234, "low": -0.2, "high": 2.5, "p": 0.081, "seen": False}
SILVER = {"parsed": 3000, "agreed": 690, "gold": 4000}


def test_self_training_has_rows_of_its_own_with_its_gain() -> None:
    student = {**evaluate(f1=91.25, errors=0), "gain": GAIN}
    made = dataclasses.replace(parser(), student=student, silver=SILVER)
    measured, _ = table4.tables(made)
    shown = [row[:2] for row in measured.rows[:4]]
    assert shown == [
        ("Transformer (ours)", "this treebank only"),
        ("Transformer (ours), unconstrained", "this treebank only"),
        ("Transformer (ours)", "semi-supervised"),
        ("Transformer (ours), unconstrained", "semi-supervised"),
    ]
    assert measured.rows[2][7] == "91.2 ± 0.4"
    notes = " ".join(measured.notes)
    assert "4\u202f000 trees of the treebank and 690 that two parsers" in notes.replace(
        ",", "\u202f"
    )
    assert "+1.23 F1 (95 % −0.20 to +2.50" in notes
    assert "p 0.081: not told from chance" in notes
    found = csv_lines(table4_files(made)["table4.csv"])
    assert [row["training"] for row in found[:4]] == [row[1] for row in measured.rows[:4]]
    assert float(found[2]["f1"]) == 91.25
    of_seen = GAIN | {"p": 0.0498, "seen": True}
    seen = dataclasses.replace(made, student=student | {"gain": of_seen})
    assert "p 0.0498: a difference" in " ".join(table4.tables(seen)[0].notes)


def test_errors_of_the_student_are_said_too() -> None:
    student = {**evaluate(errors=3), "gain": GAIN}
    made = dataclasses.replace(parser(errors=2, skipped=1), student=student, silver=SILVER)
    assert (
        "F1 is not to be trusted. Of 20 sentences: 2 errors, 1 skipped (this treebank only); 3 "
        "errors, 0 skipped (semi-supervised)."
    ) in table4.tables(made)[0].notes[0]
    made = dataclasses.replace(parser(), student=student, silver=SILVER)
    assert "F1 is not to be trusted" in table4_files(made)["table4.md"]


@pytest.mark.parametrize("changed", [{"errors": 2}, {"skipped": 1}])
def test_sentences_that_f1_leaves_out_are_said_loudly(changed: dict[str, Any]) -> None:
    files = table4_files(parser(**changed))
    for kind in ("md", "tex", "html"):
        assert "F1 is not to be trusted" in files[f"table4.{kind}"]
    for fine in ({}, {"skipped": 2, "wordless": 2}):
        assert "not to be trusted" not in table4_files(parser(**fine))["table4.md"]


def test_what_is_not_known_is_left_out() -> None:
    made = dataclasses.replace(
        parser(unconstrained=None, floors=None, confidence=None, well_formed=None), model=None
    )
    (ours,) = table4.tables(made)[0].rows
    assert ours[3:5] == ("–", "–")
    assert "±" not in ours[7]
    assert len(csv_lines(table4_files(made)["table4.csv"])) == 1 + 12


def test_latex_needs_no_letters_that_it_lacks() -> None:
    tex = table4_files(parser())["table4.tex"]
    table = "".join(line for line in tex.splitlines() if not line.startswith("%"))
    assert table.isascii()
    assert r"$\alpha$" in table
    assert r"Vinyals \& Kaiser" in table
