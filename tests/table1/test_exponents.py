"""Exponents of costs that are known, and where two cross."""

from __future__ import annotations

import math
import random

import pytest

from seq2sweep.table1.exponents import crossover, fit, largest
from seq2sweep.table1.rows import ROWS, Row

LENGTHS, WIDTHS = (32, 64, 128, 256), (64, 128, 256, 512)
SIZES = [(n, d) for n in LENGTHS for d in WIDTHS]


@pytest.mark.parametrize("row", [row for row in ROWS if row.exponents], ids=lambda row: row.name)
def test_operations_have_the_papers_exponents(row: Row) -> None:
    found = fit({(n, d): row.flops(n, d, 3, 31) for n, d in SIZES})
    assert row.exponents is not None
    for axis, expected in zip("nd", row.exponents, strict=True):
        assert found[axis]["exponent"] == pytest.approx(expected, abs=1e-9)
        assert found[axis]["high"] == pytest.approx(found[axis]["low"], abs=1e-9)


def test_only_the_largest_sizes_count() -> None:
    assert largest([256, 32, 64, 128]) == [64, 128, 256]
    # Below 64 and 128 it is all overhead.
    costs = {(n, d): max(n, 64) ** 2.0 * max(d, 128) for n, d in SIZES}
    found = fit(costs)
    assert found["n"]["exponent"] == pytest.approx(2)
    assert found["d"]["exponent"] == pytest.approx(1)


def test_the_interval_holds_the_truth_about_95_times_in_100() -> None:
    chance = random.Random(3)
    inside = 0
    for _ in range(400):
        costs = {(n, d): n**1.5 * d * math.exp(chance.gauss(0, 0.1)) for n, d in SIZES}
        found = fit(costs)["n"]
        assert found["low"] is not None
        assert found["high"] is not None
        inside += found["low"] <= 1.5 <= found["high"]
    assert 0.92 < inside / 400 < 0.98


def test_two_sizes_of_each_give_an_exponent_and_an_interval() -> None:
    """Four points, three unknowns: one is left to judge by."""
    found = fit({(n, d): float(n * d) for n in (2, 4) for d in (2, 8)})
    assert found["n"]["exponent"] == pytest.approx(1)
    assert found["n"]["low"] is not None


def test_costs_cross_where_their_formulas_do() -> None:
    quadratic = {(n, 100): float(n * n) for n in LENGTHS}
    linear = {(n, 100): 100.0 * n for n in LENGTHS}
    assert crossover(quadratic, linear, 100) == pytest.approx(100)
    assert crossover(quadratic, dict.fromkeys(linear, 1000000000.0), 100) == math.inf
    assert crossover(quadratic, dict.fromkeys(linear, 1.0), 100) is None


def test_the_last_of_several_crossings_counts() -> None:
    first = dict(zip(((n, 1) for n in LENGTHS), (2.0, 0.5, 0.5, 2.0), strict=True))
    found = crossover(first, dict.fromkeys(first, 1.0), 1)
    assert found == pytest.approx(math.sqrt(128 * 256))
