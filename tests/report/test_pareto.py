"""What the report says of a search: its objectives, its front, and what was proposed in vain."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2sweep.report import formats, pareto, sweep_plots, table
from seq2sweep.report.aggregate import Variant, aggregate, estimate
from seq2sweep.report.pareto import Objective
from tests.report.made_up_results import (
    csv_lines,
    failed,
    search,
    seeded_sweep,
    sweep,
    table3_sweep,
)
from tests.report.parsing_sweep import of_parsing

HIGHER = {"bleu": True, "flops": False, "valid_perplexity": False, "parameters": False}


def of(record: dict[str, Any], *figures: str) -> dict[str, Any]:
    objectives = [
        {"name": figure, "figure": figure, "better": "higher" if HIGHER[figure] else "lower"}
        for figure in figures
    ]
    return record | {"objectives": objectives}


def labels(record: dict[str, Any]) -> list[str]:
    return [v.label for v in pareto.front(aggregate(record), pareto.objectives(record))]


def test_the_front_is_of_finished_variants_cheapest_first() -> None:
    """By hand: see `search`; #6 is better and cheaper than all, but was not trained to its end."""
    assert labels(search()) == ["#1", "base", "#4"]
    assert labels(of(search(), "flops", "bleu")) == ["#1", "base", "#4"]
    assert labels(of(search(), "bleu")) == ["#4"]
    assert labels(of(search(), "parameters")) == ["#1"]
    assert labels(of(search(), "bleu", "flops", "valid_perplexity")) == ["#1", "base", "#2", "#4"]
    assert labels(sweep()) == []


def test_the_overview_marks_who_has_the_best_score_for_its_flops() -> None:
    """Whatever a sweep looked for: as a search for both finds."""
    for record in (search(), of(search(), "parameters"), sweep()):
        headings, table = pareto.overview(record)
        assert headings[0] == "variant"
        assert headings[-1] == "best BLEU for its FLOPs"
        marked = [row[0] for row in table if row[-1] == "yes"]
        found = labels(of(record, "flops", "bleu"))
        assert len(marked) == len(found) > 1
        assert all(any(name.startswith(label) for name in marked) for label in found)
        assert table[0][0] == "base"
        *scores, stopped = (float(row[1]) for row in table[1:])
        assert scores == sorted(scores, reverse=True)
        assert stopped in (12.1, 50)


def test_at_equal_flops_rounding_makes_none_the_best_for_its_cost() -> None:
    """A budget of FLOPs is met in whole updates: some row is a thousandth cheaper, however bad."""
    record = sweep() | {"budget": "flops"}
    for one in record["trials"]:
        one["flops"] = 2e12
    worst = min((t for t in record["trials"] if t["bleu"]), key=lambda one: float(one["bleu"]))
    worst |= {"status": "finished", "flops": 1.998e12}
    assert [one.name for one in pareto.cheapest(record, aggregate(record))] == ["layers 2"]
    headings, rows = pareto.overview(record)
    assert headings[-1] == "best BLEU at equal FLOPs"
    assert [row[0] for row in rows if row[-1]] == ["layers 2"]
    steps = record | {"budget": "steps"}
    assert pareto.cheapest(steps, aggregate(steps))[0].name == worst["name"]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_seed_that_was_lost_makes_the_same_model_no_cheaper(lost: int) -> None:
    """Each seed draws the data in another order, so that its updates have other sentences."""
    record = seeded_sweep({"base": [31, 32, 33], "dropout=0": [20, 21, 22], "layers=2": [40] * 3})
    for one in record["trials"]:
        one["flops"] = (2 + one["variant"].startswith("layers")) * (1e12 + 1e9 * one["seed"])
    worse = [one for one in record["trials"] if one["variant"] == "dropout=0"]
    worse[lost - 1] |= failed("failed", "the node was lost")
    for some in (record, record | {"trials": record["trials"][::-1]}):
        of_both = of(some, "flops", "bleu") | {"proposals": []}
        best = [one.name for one in pareto.cheapest(some, aggregate(some))]
        assert best == labels(of_both) == ["base", "layers=2"]
        assert [row[0] for row in pareto.overview(some)[1] if row[-1]] == ["base", "layers=2"]
        assert "dropout" not in " ".join(pareto.notes(of_both, aggregate(of_both)))
        drawn = sweep_plots.objectives(aggregate(some), pareto.objectives(of_both))
        assert drawn is not None
        assert "(base, layers=2)" in drawn["caption"]


def test_costs_without_a_seed_in_common_are_equal_within_a_hundredth() -> None:
    record = sweep()
    base, worse, *_ = record["trials"]
    worse |= {"train": worse["train"] | {"seed": 2}}
    for one in record["trials"][2:]:
        one |= failed("failed", "the node was lost")
    for base["flops"] in (1.0501e12, 1.08e12):  # on both sides of what two digits tell apart
        worse["flops"] = base["flops"] * 0.999
        assert [one.name for one in pareto.cheapest(record, aggregate(record))] == ["base"]
    worse["flops"] = base["flops"] * 0.9
    found = pareto.cheapest(record, aggregate(record))
    assert [one.name for one in found] == [worse["name"], "base"]


def test_the_overview_has_what_was_stopped_early_last_with_its_status() -> None:
    """Its score is that of an earlier step, and cannot be compared with those of the others."""
    for record, label in (
        (search(), "#6 layers=2 d_ff=128 warmup_steps=60"),
        (sweep(), "dropout 0.3"),
    ):
        stopped = [t for t in record["trials"] if t["status"] == "stopped early"]
        *others, last = (row[0] for row in pareto.overview(record)[1])
        assert len(stopped) == 1
        assert last == f"{label} (stopped early at step 100)"
        assert not any("stopped" in name for name in others)
        record["trials"][0]["status"] = "stopped early"
        assert pareto.overview(record)[1][0][0] == "base (stopped early at step 300)"


def test_a_mean_over_the_seeds_that_a_scheduler_let_finish_keeps_none_off_the_front() -> None:
    """It is too good, and is there where there is nothing else."""
    record = of(table3_sweep(2), "flops", "bleu")
    chosen = labels(record)[-2]

    def stop(which: str | None = None) -> None:
        for one in record["trials"]:
            if which in (None, one["variant"]) and one["seed"] == 1 and one["row"] != "big":
                one |= {"status": "stopped early", "steps": 100}

    without = record | {"trials": [t for t in record["trials"] if t["variant"] != chosen]}
    stop(chosen)
    assert chosen not in labels(record)
    assert labels(record) == labels(without)
    *others, last = (row[0] for row in pareto.overview(record)[1])
    assert last == f"{chosen} (1 of 2 seeds finished, 1 stopped early)"
    assert not any("stopped" in name for name in others)
    stop()
    left = record | {"trials": [t for t in record["trials"] if t["seed"] == 2]}
    assert labels(record) == labels(left) != []


@given(
    st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=10),
    st.lists(st.sampled_from(["bleu", "flops", "valid_perplexity"]), min_size=1, unique=True),
)
def test_nothing_beats_the_front_and_the_front_beats_all_else(
    places: list[tuple[int, int, int]], figures: list[str]
) -> None:
    plain = aggregate(sweep())[1]
    sought = [Objective(figure, HIGHER[figure]) for figure in figures]

    def made(number: int, values: tuple[int, ...]) -> Variant:
        given = dict(zip(HIGHER, values, strict=False))
        known = {name: estimate([value]) for name, value in given.items()}
        figures, costs = plain.figures | known, {1: float(given["flops"])}
        return dataclasses.replace(plain, number=number, figures=figures, costs=costs)

    def beats(one: Variant, other: Variant) -> bool:
        gains = []
        for objective in sought:
            a, b = one.figures[objective.figure], other.figures[objective.figure]
            assert a is not None
            assert b is not None
            gains.append(a.mean - b.mean if objective.higher else b.mean - a.mean)
        return min(gains) >= 0 and max(gains) > 0

    variants = [made(number, values) for number, values in enumerate(places)]
    found = {variant.number for variant in pareto.front(variants, sought)}
    best = [variant for variant in variants if variant.number in found]
    assert not any(beats(a, b) for a, b in itertools.permutations(best, 2))
    for variant in variants:
        if variant.number not in found:
            assert any(beats(other, variant) for other in best)


def test_what_has_no_figure_is_not_on_the_front() -> None:
    record = search()
    best = next(t for t in record["trials"] if t["name"].startswith("layers=2"))
    best["bleu"] = None
    assert labels(record) == ["#1", "base"]
    next(t for t in record["trials"] if t["name"] == "base")["flops"] = None
    assert labels(record) == ["#1", "#2"]


def test_the_notes_name_the_front_with_its_figures_and_what_was_in_vain() -> None:
    said = pareto.notes(search(), aggregate(search()))
    assert said[0].endswith("It looked for high BLEU and low training FLOPs.")
    assert "#1 (BLEU 25.0, 1.0\u202f×\u202f10¹² training FLOPs); base (BLEU 30.0, 2.0" in said[1]
    assert "Pareto front" in said[1]
    assert said[2] == "Proposed again, and not trained again: #3 (as #1), #7 (as base)."
    one = pareto.notes(of(search(), "bleu"), aggregate(search()))
    assert one[1] == "Best: #4 (BLEU 40.0)."
    assert pareto.notes(sweep(), aggregate(sweep())) == []


def test_the_table_marks_the_front_and_numbers_the_proposals() -> None:
    rows = {row.cells[0]: row for row in table.rows(aggregate(search()), search())}
    assert list(rows) == [
        *("base", "#1 warmup_steps=10", "#2 warmup_steps=20", "#4 warmup_steps=40"),
        *("#6 warmup_steps=60", "#5 warmup_steps=50"),
    ]
    marked = [name for name, row in rows.items() if row.front]
    assert marked == ["base", "#1 warmup_steps=10", "#4 warmup_steps=40"]
    assert {row.cells[-1] for row in rows.values() if row.front} == {"finished, Pareto front"}
    assert not any(row.front for row in table.rows(aggregate(sweep()), sweep()))
    assert table.tables(search(), "x", 1).failures == [
        ("#5 layers=1 d_ff=0 warmup_steps=50", "model.d_ff must be at least 1, not 0")
    ]
    alone = of(search(), "bleu")
    assert not any(row.front for row in table.rows(aggregate(alone), alone))
    lines = csv_lines(formats.csv_text(search()))
    assert [line["proposal"] for line in lines] == ["", "1", "2", "4", "6", "5"]


def test_a_search_for_parsers_finds_those_of_high_f1() -> None:
    record, parsing = search(), of_parsing(search())
    fronts = [
        [variant.name for variant in pareto.front(aggregate(one), pareto.objectives(one))]
        for one in (record, parsing)
    ]
    assert fronts[0] == fronts[1]
    there, here = (pareto.notes(one, aggregate(one)) for one in (record, parsing))
    assert here == [note.replace("BLEU", "F1") for note in there]
