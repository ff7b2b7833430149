"""How a cost grows: the exponents of log cost = c + a log n + b log d, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
from scipy import stats

LARGEST = 3
"""Sizes of n, and of d, that a fit is over, from the largest down: small ones measure overhead."""
Costs = Mapping[tuple[int, int], float]
"""By n and d."""


class Exponent(TypedDict):
    """low, high: its 95 % interval; None where the points are too few for one."""

    exponent: float
    low: float | None
    high: float | None


def largest(sizes: Sequence[int]) -> list[int]:
    """Those that a fit is over."""
    return sorted(sizes)[-LARGEST:]


def fit(costs: Costs) -> dict[str, Exponent]:
    """Exponents of n and d by least squares, over the largest lengths and widths.

    The intervals are Student's, of what a plane leaves unexplained: noise, and that a time is no
    power of n and d exactly.
    """
    lengths, widths = (largest(sorted({size[axis] for size in costs})) for axis in (0, 1))
    points = [(n, d) for n in lengths for d in widths]
    sides = np.array([[1.0, math.log(n), math.log(d)] for n, d in points])
    heights = np.array([math.log(costs[point]) for point in points])
    solution, *_ = np.linalg.lstsq(sides, heights, rcond=None)
    free = len(points) - 3
    margins: list[float | None] = [None, None, None]
    if free > 0:
        left = heights - sides @ solution
        variance = float(left @ left) / free * np.linalg.inv(sides.T @ sides).diagonal()
        margins = list(stats.t.ppf(0.975, free) * np.sqrt(variance))
    return {
        name: _exponent(float(solution[place]), margins[place])
        for place, name in ((1, "n"), (2, "d"))
    }


def _exponent(value: float, margin: float | None) -> Exponent:
    if margin is None:
        return {"exponent": value, "low": None, "high": None}
    return {"exponent": value, "low": value - float(margin), "high": value + float(margin)}


def crossover(first: Costs, second: Costs, d: int) -> float | None:
    """The n from which on `first` costs more than `second` at width d; None where it never does.

    Between two lengths by the straight line through the logarithms. Where noise lets them cross
    more than once, the last crossing counts; inf where `first` costs less at every length.
    """
    lengths = sorted(n for n, width in first if width == d)
    gaps = [math.log(first[n, d] / second[n, d]) for n in lengths]
    if gaps[-1] <= 0:
        return math.inf
    for place in range(len(lengths) - 1, 0, -1):
        before, after = gaps[place - 1], gaps[place]
        if before <= 0 < after:
            share = -before / (after - before)
            low, high = math.log(lengths[place - 1]), math.log(lengths[place])
            return math.exp(low + share * (high - low))
    return None
