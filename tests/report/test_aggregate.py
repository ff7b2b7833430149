"""Variants from their trials; intervals over seeds, against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seq2sweep.decode.beam import NO_NUMBERS
from seq2sweep.report import table
from seq2sweep.report.aggregate import (
    Estimate,
    Variant,
    aggregate,
    difference,
    estimate,
    most_seeds,
)
from tests.report.made_up_results import failed, sweep, table3_sweep, trial


def variants(record: dict[str, Any]) -> dict[str, Variant]:
    return {variant.name: variant for variant in aggregate(record)}


# --- trials of a variant -------------------------------------------------------------------------


def test_seeds_of_a_variant_are_one() -> None:
    found = variants(table3_sweep(3))
    assert len(found) == 20
    assert next(iter(found)) == "base"
    bleu = found["A-heads-1"].figures["bleu"]
    assert bleu is not None
    assert bleu.n == 3
    two = found["C-d_model-1024"]
    assert two.figures["bleu"] is not None
    assert (two.state, two.figures["bleu"].n) == ("finished", 2)
    refused = found["big"]
    assert (refused.state, refused.figures["bleu"], refused.curve) == ("refused", None, [])
    assert refused.against is None


def test_a_base_that_is_not_first_comes_first() -> None:
    record = sweep()
    record["trials"] = record["trials"][::-1]
    assert aggregate(record)[0].is_base


def test_figures_that_are_no_numbers_are_unknown() -> None:
    record = sweep()
    record["trials"] = [
        trial("base") | {"valid_perplexity": None, "flops": float("nan"), "bleu": None},
        trial("d_k 8", {"d_k": 8}) | {"bleu": float("inf")},
    ]
    base, variant = aggregate(record)
    assert base.figures["valid_perplexity"] is base.figures["flops"] is base.figures["bleu"] is None
    assert variant.figures["bleu"] is variant.against is None


def test_curves_are_means_where_all_seeds_have_a_loss() -> None:
    record = table3_sweep(2)
    first, second = (t for t in record["trials"] if t["variant"] == "base")
    first["curve"], second["curve"] = [[1, 4.0], [2, 3.0], [3, 2.0]], [[1, 6.0], [2, None], [3, 3]]
    assert variants(record)["base"].curve == [(1, 5.0), (3, 2.5)]


def test_the_status_says_which_figures_are_of_fewer_seeds() -> None:
    """One that diverged has no perplexity, and one that could not be scored no BLEU."""
    record = table3_sweep(3)
    seeds: dict[str, list[dict[str, Any]]] = {}
    for one in record["trials"]:
        seeds.setdefault(one["variant"], []).append(one)
    seeds["base"][0]["valid_perplexity"] = None
    for one in seeds["A-heads-1"][:2]:
        one["bleu"] = None
    seeds["A-heads-16"][2] |= {"valid_perplexity": math.inf, "bleu": None}
    seeds["C-d_model-1024"][0]["bleu"] = None
    for one in seeds["E-learned-positions"]:
        one["bleu"] = None  # a dash says it
    found = variants(record)
    assert {name: found[name].status for name in seeds if found[name].status != "finished"} == {
        "base": "finished, perplexity of 2 seeds",
        "A-heads-1": "finished, BLEU of 1 seed",
        "A-heads-16": "finished, perplexity of 2 seeds, BLEU of 2 seeds",
        "C-d_model-1024": "2 of 3 seeds finished, BLEU of 1 seed",
        "big": "refused",
    }
    assert {found[name].state for name in seeds} == {"finished", "refused"}
    assert most_seeds(list(found.values())) == 3
    # Nor does the note say less where no variant has all its scores.
    assert most_seeds([found["A-heads-1"]]) == 3


def test_only_what_was_stopped_speaks_for_a_variant_none_of_which_finished() -> None:
    record = table3_sweep(3)
    stopped = [t for t in record["trials"] if t["variant"] == "A-heads-1"]
    for one, steps in zip(stopped, (1000, 250, 100), strict=True):
        one |= {"status": "stopped early", "steps": steps}
    stopped[2] |= failed("failed", "out of memory")
    found = variants(record)["A-heads-1"]
    assert (found.state, found.status) == (
        *("stopped", "2 of 3 seeds stopped early at step 250, 1\u202f000"),
    )
    assert found.figures["bleu"] is not None
    assert found.figures["bleu"].n == 2
    assert found.against is None


@pytest.mark.parametrize("of_base", [False, True])
def test_a_mean_over_the_seeds_that_a_scheduler_let_finish_is_not_tested(of_base: bool) -> None:
    """They were the better ones: it is too good."""
    record = table3_sweep(3)
    chosen = "base" if of_base else "A-heads-1"
    own = [t for t in record["trials"] if t["variant"] == chosen]
    own[1] |= {"status": "stopped early", "steps": 100}
    found = variants(record)
    one, other = found[chosen], found["A-heads-4"]
    assert (one.state, one.status) == ("finished", "2 of 3 seeds finished, 1 stopped early")
    assert one.selected
    assert (one.comparable, one.scores) == (False, {})
    assert one.unfinished == " (2 of 3 seeds finished, 1 stopped early)"
    assert not other.selected
    assert (other.comparable, sorted(other.scores), other.unfinished) == (True, [1, 2, 3], "")
    assert one.figures["bleu"] is not None
    assert one.against is None
    assert (other.against is None) is of_base
    said = table.notes(record, list(found.values()), "x", 1)
    label = "base" if of_base else one.label
    assert any(line.startswith(f"Of {label} the weaker seeds diverged or were st") for line in said)
    own[1] |= failed("failed", "out of memory")
    one = variants(record)[chosen]
    assert (one.selected, one.comparable, sorted(one.scores)) == (False, True, [1, 3])


@pytest.mark.parametrize(
    ("lost", "status"),
    [
        (
            failed("failed", "UserError: the run diverged: weights are not finite after step 40"),
            "2 of 3 seeds finished, 1 diverged",
        ),
        (
            {"cause": f"not scored: UserError: {NO_NUMBERS}", "bleu": None},
            "finished, BLEU of 2 seeds",
        ),
    ],
)
def test_a_mean_over_the_seeds_that_did_not_diverge_is_not_tested(
    lost: dict[str, Any], status: str
) -> None:
    """Which these are is no more chance than what a scheduler lets finish."""
    record = table3_sweep(3)
    own = [t for t in record["trials"] if t["variant"] == "A-heads-1"]
    own[1] |= lost
    one = variants(record)["A-heads-1"]
    assert (one.state, one.status, one.unfinished) == ("finished", status, f" ({status})")
    assert (one.selected, one.comparable, one.scores, one.against) == (True, False, {}, None)
    for each in own:  # nothing is left that could be too good
        each |= lost
    assert not variants(record)["A-heads-1"].selected


@pytest.mark.parametrize(
    ("of_seeds", "expected"),
    [
        ((False, True, None), True),
        ((False, None, False), None),
        ((False, False, False), False),
    ],
)
def test_sharing_that_is_not_known_of_a_seed_is_not_denied(
    of_seeds: tuple[bool | None, ...], expected: bool | None
) -> None:
    record = table3_sweep(3)
    trials = [t for t in record["trials"] if t["variant"] in ("A-heads-1", "big")]
    for one, shared in zip(trials, 2 * of_seeds, strict=True):
        one["shared_device"] = shared
    found = variants(record)
    assert found["A-heads-1"].shared is expected
    # Nothing was trained, or an earlier sweep says nothing.
    assert found["big"].shared is found["A-heads-4"].shared is None


# --- differences ---------------------------------------------------------------------------------


def test_a_difference_is_seen_only_if_neither_sentences_nor_seeds_explain_it() -> None:
    record = table3_sweep(2, noise=0)
    scores = {
        "base": (60.0, 60.2),
        "A-heads-1": (58.0, 58.2),  # clear in both
        "A-heads-4": (55.0, 63.0),  # the seeds differ by more
        "A-heads-16": (59.0, 59.2),  # the sentences explain it
    }
    for one in record["trials"]:
        if one["variant"] in scores:
            one["bleu"] = scores[one["variant"]][one["seed"] - 1]
    for name, p in (("A-heads-1", 0.01), ("A-heads-4", 0.01), ("A-heads-16", 0.2)):
        record["significance"][name] |= {"p": p, "seen": p < 0.05}
    found = variants(record)
    assert [found[name].against.seen for name in list(scores)[1:]] == [True, False, False]  # type: ignore[union-attr]
    del record["significance"]
    found = variants(record)
    assert [found[name].against.seen for name in list(scores)[1:]] == [True, False, True]  # type: ignore[union-attr]


def test_the_interval_is_the_wider_of_sentences_and_seeds() -> None:
    record = table3_sweep(2, noise=0)
    for one in record["trials"]:
        one["bleu"] = 60.0 if one["variant"] == "base" else 59.0
    record["significance"]["A-heads-1"] |= {"low": -1.5, "high": -0.5}
    against = variants(record)["A-heads-1"].against
    assert against is not None
    assert against.interval == (-1.5, -0.5)
    for one in record["trials"]:
        one["bleu"] += {1: -1, 2: 1}[one["seed"]]
    wider = variants(record)["A-heads-1"].against
    assert wider is not None
    assert wider.interval is not None
    assert wider.interval[0] < -5


def test_nothing_is_known_of_a_single_seed_without_a_test() -> None:
    against = variants(sweep())["heads 1"].against
    assert against is not None
    assert (against.seen, against.p, against.interval) == (None, None, None)
    assert against.difference.mean == pytest.approx(-1.5)


# --- statistics over seeds -----------------------------------------------------------------------


def test_three_seeds() -> None:
    # Mean 25; deviations -1, 0, 1: variance 2 / 2 = 1; t of 2 degrees of freedom is 4.3027.
    found = estimate([24.0, 25.0, 26.0])
    assert (found.mean, found.n, found.deviation) == (25.0, 3, 1.0)
    assert found.margin == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)


@pytest.mark.parametrize(
    # From the printed tables of Student's t, 97.5 %.
    ("n", "t"),
    [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (6, 2.571), (11, 2.228), (31, 2.042)],
)
def test_the_interval_is_students(n: int, t: float) -> None:
    values = [float(number % 2) for number in range(n)]
    found = estimate(values)
    assert found.deviation is not None
    assert found.margin == pytest.approx(t * found.deviation / math.sqrt(n), rel=2e-4)


def test_one_seed_has_no_interval() -> None:
    assert estimate([25.5]) == Estimate(25.5, 1, None, None)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert estimate([7.0, 7.0]) == Estimate(7.0, 2, 0.0, 0.0)
    same = difference(estimate([7.0, 7.0]), estimate([6.0, 6.0]))
    assert (same.mean, same.margin) == (1.0, 0.0)


def test_the_difference_has_welchs_interval() -> None:
    # Variances 1 and 4 of 3 values each: standard error sqrt(1/3 + 4/3) = 1.29099, degrees of
    # freedom (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 2.9412, whose t is 3.2187.
    found = difference(estimate([24.0, 25.0, 26.0]), estimate([20.0, 22.0, 24.0]))
    assert (found.mean, found.n) == (3.0, 3)
    assert found.margin == pytest.approx(3.2187 * 1.290994, rel=1e-4)


def test_the_difference_of_equal_variances_is_that_of_the_t_test() -> None:
    # 4 degrees of freedom: 2.7764.
    found = difference(estimate([1.0, 2.0, 3.0]), estimate([11.0, 12.0, 13.0]))
    assert found.mean == -10
    assert found.margin == pytest.approx(2.7764 * math.sqrt(2 / 3), rel=1e-4)


def test_the_difference_to_a_single_seed_has_no_interval() -> None:
    assert difference(estimate([3.0, 4.0]), estimate([1.0])) == Estimate(2.5, 1)
