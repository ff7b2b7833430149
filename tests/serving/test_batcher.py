"""Requests are joined, answered each with its own, and never lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from seq2sweep.decode.beam import Translation
from seq2sweep.serving.batcher import Batcher, Check, FullError, Translations


class Search:
    """Says what it was given, after it may go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], Any]] = []
        self.ended: list[list[str]] = []
        self.when_called: Callable[[Sequence[str]], object] = lambda lines: None
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, lines: Sequence[str], options: Any, check: Check) -> Translations:
        self.calls.append((list(lines), options))
        self.begun.set()
        assert self.may_go_on.wait(10)
        self.when_called(lines)
        check()
        self.ended.append(list(lines))
        if "bad" in lines:
            raise RuntimeError("bad")
        return [[Translation(line.upper(), 0.0)] for line in lines]


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def batcher(search: Search) -> Iterator[Batcher]:
    made = Batcher(search, largest=4, most=6, most_work=9)
    first = made.translate(["first"], "a", 1)
    assert search.begun.wait(10)
    yield made
    search.may_go_on.set()
    assert texts(first) == ["FIRST"]
    made.close()


def texts(answer: Future[Any]) -> list[str]:
    return [best[0].text for best in answer.result(10)]


def test_those_that_wait_go_together_by_their_options(search: Search, batcher: Batcher) -> None:
    answers = [
        batcher.translate(lines, options, 1)
        for lines, options in ((["b", "c"], "a"), (["d"], "other"), (["e", "f"], "a"), (["g"], "a"))
    ]
    search.may_go_on.set()
    assert [texts(answer) for answer in answers] == [["B", "C"], ["D"], ["E", "F"], ["G"]]
    # The fourth has no room beside b, c, e and f.
    assert search.calls == [
        (["first"], "a"),
        (["b", "c", "e", "f"], "a"),
        (["d"], "other"),
        (["g"], "a"),
    ]


def test_no_more_work_goes_together_than_may(search: Search, batcher: Batcher) -> None:
    asked = ("long", 7), ("longer", 8), ("short", 2), ("none", 1)
    answers = [batcher.translate([line], "a", work) for line, work in asked]
    search.may_go_on.set()
    assert [texts(answer) for answer in answers] == [[line.upper()] for line, _ in asked]
    assert search.calls[1:] == [(["long", "short"], "a"), (["longer", "none"], "a")]


def test_more_lines_than_may_wait_are_refused(search: Search, batcher: Batcher) -> None:
    answers = [batcher.translate([str(i)], "a", 1) for i in range(6)]
    with pytest.raises(FullError):
        batcher.translate(["7"], "a", 1)
    with pytest.raises(FullError):
        batcher.run(lambda: 1)
    # One that is given up makes room.
    assert answers.pop().cancel()
    answers.append(batcher.translate(["5"], "a", 1))
    search.may_go_on.set()
    assert [texts(answer) for answer in answers] == [[str(i)] for i in range(6)]
    assert texts(batcher.translate(["8"], "a", 1)) == ["8"]


def test_requests_that_are_given_up_do_not_gather(batcher: Batcher) -> None:
    """Behind a long search, of clients that send and leave, again and again."""
    for _ in range(100):
        assert batcher.translate(["gone"] * 6, "a", 1).cancel()
    assert len(batcher._waiting) == 1


def test_who_gave_up_costs_nothing(search: Search, batcher: Batcher) -> None:
    gone, stays = batcher.translate(["gone"], "a", 1), batcher.translate(["stays"], "a", 1)
    assert gone.cancel()
    search.may_go_on.set()
    assert texts(stays) == ["STAYS"]
    assert search.calls[1:] == [(["stays"], "a")]


def test_a_search_ends_once_nobody_waits_for_it(search: Search) -> None:
    made = Batcher(search, largest=4, most=6, most_work=9)
    first = made.translate(["first"], "a", 1)
    assert search.begun.wait(10)
    gone, stays = made.translate(["gone"], "a", 1), made.translate(["stays"], "a", 1)
    assert first.cancel()
    search.when_called = lambda lines: "gone" in lines and gone.cancel()
    search.may_go_on.set()
    assert texts(stays) == ["STAYS"]
    assert search.calls[1:] == [(["gone", "stays"], "a")]
    assert search.ended == [["gone", "stays"]]
    made.close()


def test_closing_waits_no_longer_than_it_may(search: Search) -> None:
    made = Batcher(search, largest=4, most=6, most_work=9)
    first = made.translate(["first"], "a", 1)
    assert not made.close(0.1)
    assert not first.done()
    search.may_go_on.set()
    assert texts(first) == ["FIRST"]
    assert made.close()


def test_an_error_is_told_to_its_requests_alone(search: Search, batcher: Batcher) -> None:
    bad, beside = batcher.translate(["bad"], "a", 1), batcher.translate(["x"], "a", 1)
    other, task = batcher.translate(["y"], "b", 1), batcher.run(lambda: 1 // 0)
    search.may_go_on.set()
    for answer in (bad, beside):
        with pytest.raises(RuntimeError, match="bad"):
            answer.result(10)
    assert texts(other) == ["Y"]
    with pytest.raises(ZeroDivisionError):
        task.result(10)


def test_tasks_take_their_turn_alone(search: Search, batcher: Batcher) -> None:
    order: list[str] = []
    before = batcher.translate(["a"], "a", 1)
    task = batcher.run(lambda: order.append("task"))
    after = batcher.translate(["b"], "a", 1)
    before.add_done_callback(lambda _: order.append("before"))
    search.may_go_on.set()
    for answer in (before, task, after):
        answer.result(10)
    # A request may be joined to an earlier one, never a task.
    assert order == ["before", "task"]
    assert search.calls[1:] == [(["a", "b"], "a")]


def test_what_waits_is_done_before_it_closes(search: Search) -> None:
    made = Batcher(search, largest=1, most=9, most_work=9)
    answers = [made.translate([str(i)], "a", 1) for i in range(3)]
    threading.Timer(0.1, search.may_go_on.set).start()
    made.close()
    assert all(answer.done() for answer in answers)
    with pytest.raises(FullError):
        made.translate(["late"], "a", 1)
