"""Which trials of a sweep are stopped early, as a function of their figures alone.

At certain steps, the rungs, a trial is compared with the trials before it in the sweep's order that
have got as far. It waits for them where they have not, so nothing depends on which machine was
faster, on how many trials ran at once, or on whether the sweep was killed and begun again. Adding
trials at the end changes no decision about those before.

The trials of the base variant, which come first, run to their end, whatever they show: all others
are compared with it in the tables, and the mean of its better seeds alone would be too good.

A trial whose warm-up (section 5.3) has not ended at a rung is neither judged there nor compared
with: its learning rate still rises, and how it does so far says little of how it will end.

asha: successive halving (Li et al. 2020), by the trial's place in the order rather than in time.
median: the median stopping rule of Google Vizier (Golovin et al. 2017, section 3.2.1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

Curve = Mapping[int, float]
"""Validation perplexity by step; infinity where it was no number."""


class Rungs:
    """What the trials of a sweep, 0 to count - 1, have shown, and who may go on."""

    def __init__(
        self,
        rule: Literal["asha", "median"],
        count: int,
        *,
        grace_steps: int,
        reduction_factor: int,
        longest: int,
        warmup_steps: Sequence[int] = (),
        base: int = 1,
    ) -> None:
        """grace_steps: the first rung; longest: steps of the longest trial; warmup_steps: of each
        trial, 0 where left out; base: how many trials of the base variant there are.

        The next rungs of asha are at `reduction_factor` times the steps of the one before, those of
        median at the multiples of `grace_steps`.
        """
        self._rule = rule
        self._factor = reduction_factor
        self._curves: list[dict[int, float]] = [{} for _ in range(count)]
        self._reached = [0] * count
        self._passed = [0] * count  # how many rungs need not be looked at again
        self._ended = [False] * count
        self._warmup = list(warmup_steps) or [0] * count
        self._base = base
        self.steps: list[int] = []
        step = grace_steps
        while step < longest:
            self.steps.append(step)
            step = step * reduction_factor if rule == "asha" else step + grace_steps

    def report(self, trial: int, step: int, perplexity: float) -> None:
        """A validation of a trial; the same one again changes nothing."""
        curve, later = self._curves[trial], step > self._reached[trial]
        if self._ended[trial] or (not later and curve.get(step) != perplexity):
            self._look_again(trial)
        curve[step] = perplexity
        self._reached[trial] = max(step, self._reached[trial])

    def end(self, trial: int) -> None:
        """The trial shows nothing more, however it ended."""
        self._ended[trial] = True

    def retry(self, trial: int) -> None:
        """The trial has not ended; what it has shown counts, as others went on by it."""
        self._ended[trial] = False
        self._look_again(trial)

    def begin_again(self, trial: int) -> None:
        """The trial has not ended; what it has shown it will show again."""
        self.retry(trial)
        self._curves[trial].clear()
        self._reached[trial] = 0

    def goes_on(self, trial: int) -> bool | None:
        """Whether a trial may train further; None while that depends on others' next figures."""
        if trial < self._base:
            return True
        for rung in self.steps[self._passed[trial] :]:
            if rung > self._reached[trial]:
                break
            if rung >= self._warmup[trial]:
                others = [i for i in range(trial) if rung >= self._warmup[i]]
                if not all(self._ended[i] or self._reached[i] >= rung for i in others):
                    return None
                peers = [self._curves[i] for i in others if self._reached[i] >= rung]
                if self._is_bad(self._curves[trial], peers, rung):
                    return False
            self._passed[trial] += 1
        return True

    def _look_again(self, trial: int) -> None:
        """A trial has changed what it and those after it were judged by."""
        for after in range(trial, len(self._passed)):
            self._passed[after] = 0

    def _is_bad(self, curve: Curve, peers: list[dict[int, float]], rung: int) -> bool:
        if not peers:
            return False
        if self._rule == "asha":
            own = _at(curve, rung)
            better = sum(_at(peer, rung) <= own for peer in peers)
            return better >= math.ceil((len(peers) + 1) / self._factor)
        until = _first(curve, rung)
        best = min(value for step, value in curve.items() if step <= until)
        return best > statistics.median(_average(peer, _first(peer, rung)) for peer in peers)


def _average(curve: Curve, until: int) -> float:
    return statistics.fmean(value for step, value in curve.items() if step <= until)


def _first(curve: Curve, rung: int) -> int:
    """The first validated step at a rung or after it."""
    return min(step for step in curve if step >= rung)


def _at(curve: Curve, rung: int) -> float:
    return curve[_first(curve, rung)]
