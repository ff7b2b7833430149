"""Times, by a clock that tells what it is told."""

from __future__ import annotations

import itertools
import time

import pytest

from seq2sweep.table1.timing import (
    CLOCKS,
    LEAST_SECONDS,
    MOST_CALLS,
    PROCESSOR,
    WALL,
    clock_of,
    interleaved,
)


class Clock:
    """A clock that moves by what is called, and notes the order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.called: list[str] = []

    def work(self, name: str, *seconds: float) -> object:
        left = list(seconds)

        def call() -> None:
            self.called.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def test_seconds_are_those_of_a_call() -> None:
    clock = Clock()
    works = {"slow": clock.work("slow", 3.0), "quick": clock.work("quick", LEAST_SECONDS / 4)}
    found = interleaved(works, 3, clock=lambda: clock.now)  # type: ignore[arg-type]
    assert found == {
        "slow": pytest.approx([3.0] * 3),
        "quick": pytest.approx([LEAST_SECONDS / 4] * 3),
    }
    # Twice before the rounds; then one call a timing, and four of what is quick.
    assert clock.called.count("slow") == 2 + 3
    assert clock.called.count("quick") == 2 + 3 * 4


def test_the_warm_up_is_in_no_result() -> None:
    clock = Clock()
    works = {"a": clock.work("a", 99.0, 50.0, 1.0), "b": clock.work("b", 70.0, 60.0, 2.0)}
    done: list[int] = []
    found = interleaved(
        works,  # type: ignore[arg-type]
        4,
        lambda: done.append(1),
        clock=lambda: clock.now,
    )
    assert found == {"a": pytest.approx([1.0] * 4), "b": pytest.approx([2.0] * 4)}
    assert len(done) == 2 + 4 * 2


def test_works_take_turns_in_changing_order() -> None:
    clock = Clock()
    works = {name: clock.work(name, 1.0) for name in "abcd"}
    interleaved(works, 6, clock=lambda: clock.now)  # type: ignore[arg-type]
    rounds = ["".join(clock.called[8 + 4 * turn : 12 + 4 * turn]) for turn in range(6)]
    assert all(sorted(turn) == list("abcd") for turn in rounds)
    assert len(set(rounds)) > 1


def test_what_takes_no_time_is_called_no_more_than_a_thousand_times() -> None:
    clock = Clock()
    found = interleaved({"none": clock.work("none", 0.0)}, 1, clock=lambda: clock.now)  # type: ignore[dict-item]
    assert found == {"none": [0.0]}
    assert len(clock.called) == 2 + MOST_CALLS


@pytest.mark.parametrize(
    ("threads", "tick", "clock"),
    [(1, 1e-6, PROCESSOR), (1, 0.01, WALL), (2, 1e-6, WALL)],
)
def test_one_thread_is_timed_by_the_processor_unless_it_ticks_slowly(
    threads: int, tick: float, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor's clock stands still while other work has it: on a machine with a load of 6 a
    core, medians by the wall's were four times as long and differed by half from run to run."""
    assert {PROCESSOR: time.process_time, WALL: time.perf_counter} == CLOCKS
    calls = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: next(calls) // 3 * tick)
    assert clock_of(threads) == clock
