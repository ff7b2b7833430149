"""Times of many things, taken in turns, so that whatever else the machine does meets all alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

LEAST_SECONDS = 0.002
"""What a timing takes at least, by calls in a row: clocks and interruptions are coarse."""
MOST_CALLS = 1000
PROCESSOR, WALL = "processor", "wall"
CLOCKS = {PROCESSOR: time.process_time, WALL: time.perf_counter}


def clock_of(threads: int) -> str:
    """Which of CLOCKS is the fairest for work by so many threads.

    Of one thread it is the processor's, which stands still while the machine does something else,
    but where that ticks too slowly, as in some sandboxes. Of several it adds up what each takes.
    """
    fine = threads == 1 and _tick(time.process_time) < LEAST_SECONDS / 10
    return PROCESSOR if fine else WALL


def _tick(clock: Callable[[], float]) -> float:
    """The least time that it tells, in seconds."""
    started = clock()
    while (now := clock()) == started:
        pass
    return now - started


def interleaved(
    works: Mapping[Key, Callable[[], object]],
    repeats: int,
    done: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Key, list[float]]:
    """Seconds a call of each work takes, `repeats` times.

    In each round all are timed once, in another order. Before the first one each is called twice:
    to warm up, and to see how many calls a timing is made of; these calls are in no result.
    done: called after the warm-up of each work, and after each of its timings.
    """
    calls = {}
    for key, work in works.items():
        work()
        taken = _seconds(work, 1, clock)
        calls[key] = min(MOST_CALLS, max(1, round(LEAST_SECONDS / max(taken, 1e-9))))
        done()
    found: dict[Key, list[float]] = {key: [] for key in works}
    order = list(works)
    chance = random.Random(1)
    for _ in range(repeats):
        chance.shuffle(order)
        for key in order:
            found[key].append(_seconds(works[key], calls[key], clock))
            done()
    return found


def _seconds(work: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    """A call's share of the time of several."""
    started = clock()
    for _ in range(calls):
        work()
    return (clock() - started) / calls
