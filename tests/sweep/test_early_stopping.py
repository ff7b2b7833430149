"""Early stopping decides by figures and order alone."""

from __future__ import annotations

import math
import random
import statistics
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2sweep.sweep import early_stopping
from seq2sweep.sweep.early_stopping import Curve, Rungs

Rule = Literal["asha", "median"]


def rungs(rule: Rule, count: int, longest: int = 64) -> Rungs:
    return Rungs(rule, count, grace_steps=4, reduction_factor=2, longest=longest)


def test_where_trials_are_compared() -> None:
    assert rungs("asha", 1).steps == [4, 8, 16, 32]
    assert rungs("median", 1, longest=20).steps == [4, 8, 12, 16]
    assert rungs("asha", 1, longest=4).steps == []


def test_asha_by_hand() -> None:
    """Of each trial and those before it the better half goes on; the first always does."""
    found = rungs("asha", 5)
    verdicts = []
    for trial, perplexity in enumerate([10.0, 12.0, 9.0, 9.5, 8.0]):
        found.report(trial, 4, perplexity)
        verdicts.append(found.goes_on(trial))
    #    of 1  1 of 2  2 of 3  2 of 4 (9, 9.5 | 10, 12)  3 of 5
    assert verdicts == [True, False, True, True, True]


def test_median_by_hand() -> None:
    found = rungs("median", 4)
    for step, *values in ((2, 20.0, 30.0, 40.0), (4, 10.0, 20.0, 30.0)):
        for trial, value in enumerate(values):
            found.report(trial, step, value)
    assert found.goes_on(1) is False  # its best, 20, is worse than the first one's mean, 15
    found.report(3, 4, 20.1)
    assert found.goes_on(3) is True  # the median of 15, 25 and 35
    found.report(3, 8, 26.0)
    for trial in range(3):
        found.end(trial)
    assert found.goes_on(3) is True  # nobody else got as far


def test_who_depends_on_others_waits_for_them() -> None:
    found = rungs("asha", 3)
    found.report(2, 2, 1.0)
    assert found.goes_on(2) is True  # no rung yet
    found.report(2, 4, 5.0)
    assert found.goes_on(2) is None
    found.report(0, 4, 4.0)
    assert found.goes_on(0) is True
    assert found.goes_on(2) is None
    found.end(1)  # it failed
    assert found.goes_on(2) is False
    found.begin_again(1)
    assert found.goes_on(2) is None


@pytest.mark.parametrize("rule", ["asha", "median"])
def test_every_trial_of_the_base_goes_to_its_end(rule: Rule) -> None:
    """Whatever it shows: else no row of the table could be compared with the base."""
    found = Rungs(rule, 5, grace_steps=4, reduction_factor=2, longest=64, base=3)
    for step in (4, 8):
        for trial, perplexity in ((2, math.inf), (1, 30.0), (0, 10.0)):
            found.report(trial, step, perplexity)
            assert found.goes_on(trial) is True
    # They are peers of those after them.
    for trial, perplexity, goes_on in ((3, 31.0, False), (4, 9.0, True)):
        found.report(trial, 4, perplexity)
        assert found.goes_on(trial) is goes_on


def test_no_number_is_the_worst() -> None:
    found = rungs("asha", 2)
    found.report(0, 4, 100.0)
    found.report(1, 4, math.inf)
    assert found.goes_on(1) is False


def test_who_warms_up_neither_judges_nor_is_judged() -> None:
    for rule in ("asha", "median"):
        found = Rungs(
            rule, 4, grace_steps=4, reduction_factor=2, longest=16, warmup_steps=[0, 5, 8, 0]
        )
        found.report(0, 4, 10.0)
        found.report(1, 4, 1000.0)
        assert found.goes_on(1) is True
        # It need not wait for the one that has shown nothing, and is not held against its 1000.
        found.report(3, 4, 20.0)
        assert found.goes_on(3) is False
        found.report(0, 8, 9.0)
        found.report(1, 8, 30.0)
        assert found.goes_on(1) is False
        found.report(2, 8, 600.0)
        assert found.goes_on(2) is False  # its warm-up ended here


def test_a_passed_rung_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All trials are asked about at each event, of which a long sweep has many."""
    looked, average = list[int](), early_stopping._average

    def counted(curve: Curve, until: int) -> float:
        looked.append(until)
        return average(curve, until)

    monkeypatch.setattr(early_stopping, "_average", counted)
    found, trials, validations = rungs("median", 5, longest=40), range(5), range(2, 41, 2)
    for step in validations:
        for trial in trials:
            found.report(trial, step, 50.0 - trial)
            assert all(found.goes_on(one) for one in trials[: trial + 1])
    pairs = len(trials) * (len(trials) - 1) // 2
    assert len(looked) == pairs * len(found.steps)


@pytest.mark.parametrize("rule", ["asha", "median"])
def test_a_passed_rung_is_looked_at_again_where_its_figures_change(rule: Rule) -> None:
    def passed() -> Rungs:
        found = rungs(rule, 3)
        found.end(0)
        for trial in (1, 2):
            found.report(trial, 4, 10.0 - trial)
            assert found.goes_on(trial) is True
        return found

    found = passed()
    found.report(1, 4, 7.0)
    assert found.goes_on(2) is False
    found = passed()
    found.report(0, 4, 7.0)
    assert found.goes_on(1) is False
    found = passed()
    found.begin_again(1)
    assert found.goes_on(2) is None
    found = passed()
    found.retry(0)
    assert found.goes_on(1) is None
    found = passed()
    found.retry(1)
    found.end(0)
    assert found.goes_on(2) is True


def run(rule: Rule, curves: list[list[float]], at_once: int, seed: int) -> list[int]:
    """Steps (two a validation) that each trial got, when machines are as fast as chance has it."""
    chance = random.Random(seed)
    found = rungs(rule, len(curves), longest=2 * max(map(len, curves)))
    shown = [0] * len(curves)
    ended = [False] * len(curves)
    while not all(ended):
        ready = [i for i in range(len(curves)) if not ended[i] and found.goes_on(i) is not None]
        assert ready, "somebody can always go on"
        trial = chance.choice(ready[:at_once])
        if found.goes_on(trial) is False or shown[trial] == len(curves[trial]):
            ended[trial] = True
            found.end(trial)
            continue
        if chance.random() < 0.1:  # killed, and shown from the beginning
            for before in range(shown[trial]):
                found.report(trial, 2 * (before + 1), curves[trial][before])
        found.report(trial, 2 * (shown[trial] + 1), curves[trial][shown[trial]])
        shown[trial] += 1
    return shown


@pytest.mark.parametrize("rule", ["asha", "median"])
@given(data=st.data())
def test_speed_and_kills_change_no_decision(rule: Rule, data: st.DataObject) -> None:
    curves = data.draw(
        st.lists(st.lists(st.floats(1, 1000), min_size=1, max_size=20), min_size=1, max_size=8)
    )
    one_by_one = run(rule, curves, 1, 0)
    for seed in range(5):
        assert run(rule, curves, data.draw(st.integers(2, 4)), seed) == one_by_one
    # More trials at the end change nothing before them, if they are not longer.
    more = [*curves, [5.0] * max(map(len, curves))]
    assert run(rule, more, 2, 1)[: len(curves)] == one_by_one
    assert one_by_one[0] == len(curves[0])


@given(st.lists(st.floats(1, 1000), min_size=2, max_size=30, unique=True))
def test_asha_is_successive_halving_over_what_came_before(values: list[float]) -> None:
    """Against a naive count: the share of the best that goes on, of those so far."""
    found = rungs("asha", len(values), longest=8)
    for trial, value in enumerate(values):
        found.report(trial, 4, value)
        so_far = sorted(values[: trial + 1])
        best = so_far[: math.ceil(len(so_far) / 2)]
        assert found.goes_on(trial) is (value in best)


@given(st.lists(st.lists(st.floats(1, 1000), min_size=3, max_size=3), min_size=2, max_size=10))
def test_median_rule_against_a_naive_one(curves: list[list[float]]) -> None:
    found = rungs("median", len(curves), longest=8)
    for trial, values in enumerate(curves):
        for step, value in zip((2, 4, 6), values, strict=True):
            found.report(trial, step, value)
        before = [statistics.fmean(other[:2]) for other in curves[:trial]]
        expected = not before or min(values[:2]) <= statistics.median(before)
        assert found.goes_on(trial) is expected
