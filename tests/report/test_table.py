"""Table 3, measured: its cells, its notes, and what it marks."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from seq2sweep.config.scores import BLEU
from seq2sweep.presets import table3
from seq2sweep.report import formats, number_format, table
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.formats import table_files
from tests.report.made_up_results import BASE_MODEL, csv_lines, sweep, table3_sweep, trial
from tests.report.parsing_sweep import of_parsing


def rows(record: dict[str, Any]) -> dict[str, table.Row]:
    return {row.cells[0]: row for row in table.rows(aggregate(record), record)}


def said(record: dict[str, Any]) -> str:
    """The notes of its table."""
    return " ".join(table.notes(record, aggregate(record), "x", 1))


def column(name: str) -> int:
    return table.headings(BLEU).index(name)


def test_cells_equal_to_the_base_are_empty() -> None:
    found = {name: row.cells for name, row in rows(sweep()).items()}
    flops = number_format.powers(6.0 * 790_000 * 2500 * 300)
    assert found["base"] == (
        *("base", "1", "128", "512", "4", "32", "32", "0.1", "0.1", "300"),
        *("5.91", "31.4", "0.79", number_format.MISSING, flops, number_format.MISSING, "finished"),
    )
    assert found["(A) heads 1"] == (
        *("(A) heads 1", "", "", "", "1", "128", "128", "", "", ""),
        *("6.32", "29.9", "", number_format.MISSING, flops, number_format.MISSING, "finished"),
    )
    assert found["(B) d_k 8"][5] == "8"
    assert found["(B) d_k 8"][12] == "0.74"
    assert len(table.headings(BLEU)) == len(found["base"])


def test_settings_that_table_3_does_not_know_become_columns_where_they_differ() -> None:
    """One that earlier trials do not have had its default there."""
    gated = trial("feed_forward=swiglu", {"feed_forward": "swiglu"}, parameters=920_000)
    record = sweep() | {"trials": [*sweep()["trials"], gated]}
    found = table.tables(record, "x", 1)
    assert [heading for heading in found.headings if heading not in table.headings(BLEU)] == [
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
    assert table.tables(sweep(), "x", 1).headings == table.headings(BLEU)
    assert r"feed\_forward" in formats.latex(found)


def test_mixers_are_columns_where_they_differ() -> None:
    of_mixers = {
        "encoder_mixer=recurrent": {"encoder_mixer": "recurrent"},
        "dilated": {"encoder_mixer": "convolutional", "mixer_dilation": [1, 2, 4]},
    }
    trials = [trial(name, settings) for name, settings in of_mixers.items()]
    found = table.tables(sweep() | {"trials": [*sweep()["trials"], *trials]}, "x", 1)
    own = [heading for heading in found.headings if heading not in table.headings(BLEU)]
    assert own == ["encoder_mixer", "mixer_dilation"]
    place = found.headings.index("encoder_mixer")
    cells = {row.cells[0]: row.cells[place : place + 2] for row in found.rows}
    assert cells["base"] == ("self_attention", "[1]")
    assert cells["encoder_mixer=recurrent"] == ("recurrent", "")
    assert cells["dilated"] == ("convolutional", "[1, 2, 4]")


BYTENET = {"architecture": "bytenet", "kernel": 3, "dilations": [1, 2], "unfolding": 1.2}
CONVOLUTIONAL = {"architecture": "convolutional", "kernels": [5], "widths": [], "d_out": None}


@pytest.mark.parametrize(
    ("of_base", "others", "key", "cells"),
    [
        ({"feed_forward": "swiglu"}, {"rival": BYTENET}, "feed_forward", ["swiglu", "–"]),
        ({}, {"gated": {"feed_forward": "swiglu"}, "rival": BYTENET}, "feed_forward",
         ["relu", "swiglu", "–"]),
        ({}, {"rival": CONVOLUTIONAL}, "kernels", ["–", "[5]"]),
        (BYTENET, {"long": BYTENET | {"kernel": 5}, "rival": CONVOLUTIONAL}, "kernel",
         ["3", "5", "–"]),
        # What all have, though earlier trials without a key for it.
        ({}, {"rival": BYTENET}, "architecture", ["transformer", "bytenet"]),
    ],
)  # fmt: skip
def test_a_setting_that_a_model_does_not_have_is_a_dash(
    of_base: dict[str, Any], others: dict[str, dict[str, Any]], key: str, cells: list[str]
) -> None:
    """Not the default of an architecture that has it, and no empty cell, which is the base's."""
    shared = {name: BASE_MODEL[name] for name in ("layers", "d_model", "dropout", "tie_embeddings")}
    trials = [trial("base"), *(trial(name, model) for name, model in others.items())]
    for one, own in zip(trials, (of_base, *others.values()), strict=True):
        one["model"] = (shared if "architecture" in own else BASE_MODEL) | own
    record = sweep() | {"trials": trials}
    found = table.tables(record, "x", 1)
    place = found.headings.index(key)
    assert [row.cells[place] for row in found.rows] == cells
    lines = table_files(record, "x", 1)["table3.md"].splitlines()
    rival = next(line for line in lines if line.startswith("| rival"))
    assert rival.split("|")[place + 1].strip() == cells[-1]


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
    assert row.cells[-1] == "2 of 3 seeds finished, 1 stopped early"
    for heading, figure in (("BLEU (dev)", "bleu"), ("PPL (dev)", "valid_perplexity")):
        shown = row.cells[column(heading)].split(" ± ")[0]
        assert float(shown) == pytest.approx(statistics.mean(t[figure] for t in others), abs=0.06)
    # Where all were stopped there is nothing better.
    for trial_of_it in others:
        trial_of_it |= {"status": "stopped early", "steps": 10, "bleu": 0.5}
    cells = rows(record)["A-heads-1"].cells
    assert cells[column("BLEU (dev)")].startswith("0.5")


def test_a_row_that_the_seeds_do_not_test_is_named() -> None:
    record = table3_sweep(3)
    record["significance"] = table3_sweep()["significance"]
    unseen = "What another seed would have changed"
    assert table.UNSEEN in said(record)
    assert unseen not in said(record)

    def lose_two_of(name: str) -> None:
        for trial_of_it in [t for t in record["trials"] if t["variant"] == name][1:]:
            trial_of_it |= {"status": "failed", "bleu": None, "valid_perplexity": None}

    lose_two_of("A-heads-1")
    assert f"{unseen} of A-heads-1 is not in it." in said(record)
    lose_two_of("base")
    assert f"{unseen} is not in it." in said(record)


def test_rows_that_chance_explains_are_marked() -> None:
    record = table3_sweep()
    bleu = column("BLEU (dev)")
    marked = {name for name, row in rows(record).items() if table.UNSEEN in row.cells[bleu]}
    unseen = {name for name, of in record["significance"].items() if not of["seen"]}
    assert marked == unseen
    assert 0 < len(unseen) < 18
    assert "no difference to the base row's BLEU can be seen" in said(record)
    assert "What another seed would have changed is not in it" in said(record)
    # Nothing is known of an older sweep, so nothing is marked.
    assert not any(table.UNSEEN in row.cells[bleu] for row in rows(sweep()).values())
    assert table.UNSEEN not in said(sweep())


def test_stopped_failed_and_refused_variants_say_so() -> None:
    states = {row.state: row.cells[-1] for row in rows(sweep()).values()}
    assert states["stopped"] == "stopped early at step 100"
    assert states["failed"] == "failed"
    failed = next(row for row in rows(sweep()).values() if row.state == "failed")
    assert failed.cells[10:12] == (number_format.MISSING, number_format.MISSING)
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
    assert set(base[10:-1]) == {number_format.MISSING}
    assert base[-1] == "not trained"


def test_device_hours_of_a_shared_device_are_marked() -> None:
    record = table3_sweep()
    hours = column("device-hours")
    plain = rows(record)["A-heads-1"].cells[hours]
    assert table.SHARED not in said(record)
    for one in record["trials"]:
        one["shared_device"] = one["name"] == "A-heads-1"
    marked = {name for name, row in rows(record).items() if table.SHARED in row.cells[hours]}
    assert marked == {"A-heads-1"}
    assert rows(record)["A-heads-1"].cells[hours] == f"{plain} {table.SHARED}"
    assert f"{table.SHARED}: trained while other trials ran on the same device" in said(record)
    assert r"$\dagger$" in formats.latex(table.tables(record, "x", 1))


def test_a_note_says_the_precision() -> None:
    record = table3_sweep()
    assert "precision" not in said(record)
    for one in record["trials"]:
        one["train"] = one["train"] | {"precision": "float32"}
    assert "All rows are trained in float32." in said(record)
    record["trials"][1] |= {"train_precision": "bf16"}
    assert "not all trained in the same precision" in said(record)
    assert "in float32): A-heads-1." in said(record)


def test_a_note_says_whose_hours_the_device_hours_are() -> None:
    """Of the trials that the figures are means of; a mean over two kinds of device says so."""
    record = table3_sweep(2)
    assert "Device-hours are of" not in said(record)
    for one in record["trials"]:
        one["device"] = "CPU" if one["status"] == "finished" else None
    assert "Device-hours are of CPUs of any kind." in said(record)
    for one in record["trials"]:
        if one["variant"] == "A-heads-1":
            one["device"] = "NVIDIA H200"
    assert "Device-hours are of different devices, and do not compare. CPU: base, " in said(record)
    assert "; NVIDIA H200: A-heads-1." in said(record)
    assert "A row of several" not in said(record)
    record["trials"][1]["device"] = "NVIDIA H200"
    assert "; NVIDIA H200: base, A-heads-1. A row of several is their mean." in said(record)
    lines = csv_lines(table_files(record, "x", 1)["table3.csv"])
    found = {line["variant"]: line["devices"] for line in lines}
    assert found["base"] == "CPU, NVIDIA H200"
    assert (found["A-heads-1"], found["A-heads-4"], found["big"]) == ("NVIDIA H200", "CPU", "")


# --- parsing -------------------------------------------------------------------------------------


def test_a_table_of_parsing_has_f1_in_place_of_bleu() -> None:
    record = table3_sweep(2)
    of_translation, of_parsers = (
        table.tables(one, "x", 3000) for one in (record, of_parsing(record))
    )
    dropped = of_translation.headings.index("BLEU as in the paper")
    assert of_parsers.headings == tuple(
        heading.replace("BLEU", "F1")
        for place, heading in enumerate(of_translation.headings)
        if place != dropped
    )
    for one, other in zip(of_parsers.rows, of_translation.rows, strict=True):
        assert one.cells == (*other.cells[:dropped], *other.cells[dropped + 1 :])
    notes = " ".join(of_parsers.notes)
    assert "no difference to the base row's F1 can be seen" in notes
    assert "PPL is per symbol of a tree" in notes
