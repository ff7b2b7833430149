"""What several trainings that differ in their seed alone say of a figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over n seeds, its sample standard deviation (n - 1), and `margin`: half
    the width of the 95 % confidence interval of the mean. Of one seed the last two are None.
    """

    mean: float
    n: int = 1
    deviation: float | None = None
    margin: float | None = None


def estimate(values: Sequence[float]) -> Estimate:
    """From at least one value; the interval is Student's t's."""
    n = len(values)
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(mean)
    deviation = statistics.stdev(values)
    return Estimate(mean, n, deviation, _t(n - 1) * deviation / math.sqrt(n))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` less `other`, with Welch's interval where both are of several seeds.

    Its n is the smaller of the two, and it has no deviation of its own.
    """
    mean, n = one.mean - other.mean, min(one.n, other.n)
    if one.deviation is None or other.deviation is None:
        return Estimate(mean, n)
    first, second = one.deviation**2 / one.n, other.deviation**2 / other.n
    if first + second == 0:
        return Estimate(mean, n, margin=0.0)
    freedom = (first + second) ** 2 / (first**2 / (one.n - 1) + second**2 / (other.n - 1))
    return Estimate(mean, n, margin=_t(freedom) * math.sqrt(first + second))


def _t(freedom: float) -> float:
    """What Student's t stays within in 95 of 100 cases."""
    return float(stdtrit(freedom, 0.975))
