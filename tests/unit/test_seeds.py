"""Means, deviations and intervals over seeds, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from seq2sweep.report.seeds import Estimate, difference, estimate


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
