"""One process at a time, by objects in a bucket."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import boto3
import pytest

from seq2sweep.storage import lease
from seq2sweep.storage.lease import Lease, LeaseHeldError, LeaseLostError, acquire
from seq2sweep.storage.object_store import ObjectStore


class Clock:
    """Time that passes when somebody sleeps; what happens meanwhile is told beforehand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lease, "POLL_SECONDS", 5.0)
    monkeypatch.setattr(lease, "time", made)
    return made


@pytest.fixture
def place(bucket: str) -> ObjectStore:
    return ObjectStore(bucket)


def content(place: ObjectStore, generation: int) -> dict[str, Any]:
    found = json.loads(place.read(f"{generation:08d}.json") or b"null")
    assert isinstance(found, dict)
    return found


def elsewhere(place: ObjectStore, generation: int = 1, **more: Any) -> None:
    """Write the claim of a process on another machine."""
    claim = {"host": "far", "process": 7, "machine": "other", "started": "1"} | more
    place.write(f"{generation:08d}.json", json.dumps(claim).encode())


def test_it_is_left_to_the_next_at_once(place: ObjectStore, clock: Clock) -> None:
    with acquire(place) as first:
        first.check()
        assert content(place, 1)["process"] == os.getpid()
    with acquire(place) as second:
        second.check()
        with pytest.raises(LeaseLostError, match=f"has taken over {place.address}"):
            first.check()
    assert list(place.sizes()) == ["00000002.json"]
    assert clock.now == 0


def test_who_lives_is_not_disturbed(place: ObjectStore, clock: Clock) -> None:
    elsewhere(place, beats=0)
    clock.meanwhile = lambda: elsewhere(place, beats=clock.now // 10)
    with pytest.raises(LeaseHeldError, match="process 7 on far"), acquire(place):
        pass
    assert clock.now == 10
    with pytest.raises(LeaseHeldError), acquire(place, timeout=100):
        pass
    assert 110 <= clock.now <= 120


def test_who_is_silent_is_followed_and_finds_out(
    place: ObjectStore, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere(place, beats=3)
    stale = lease.Lease(place, 1, {})
    with acquire(place) as claim:
        assert lease.LEASE_SECONDS < clock.now <= lease.LEASE_SECONDS + 5
        claim.check()
        for _ in range(2):
            with pytest.raises(LeaseLostError):
                stale.check()
            stale.release()  # it writes once more, which changes nothing
        claim.check()
    said = capsys.readouterr().out
    assert said == f"waiting for process 7 on far, which holds {place.address}\n"


def test_a_renewal_finds_that_it_was_taken_over(place: ObjectStore) -> None:
    mine = Lease(place, 1, {})
    mine.renew()
    assert not mine.lost
    elsewhere(place, 2)
    mine.renew()
    assert mine.lost
    assert str(mine.error()) == (
        f"another process has taken over {place.address}, as if this one had ended"
    )
    place.delete("00000002.json")  # the other one's end gives nothing back
    mine.renew()
    assert mine.lost


def test_of_two_who_follow_one_holds_it(place: ObjectStore, clock: Clock) -> None:
    elsewhere(place)

    def another_is_faster() -> None:
        if clock.now > lease.LEASE_SECONDS:
            clock.meanwhile = lambda: elsewhere(place, 2, beats=clock.now)
            elsewhere(place, 2)

    clock.meanwhile = another_is_faster
    with pytest.raises(LeaseHeldError), acquire(place):
        pass


def test_what_is_no_lease_is_not_taken_for_one(place: ObjectStore, clock: Clock) -> None:
    """Such as the empty object that a console or a mount makes of a folder."""
    bucket, _, prefix = place.address.removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/")
    place.write("NOTE.txt", b"")
    with acquire(place) as first:
        first.check()
    with acquire(place) as second:
        assert second.generation == 2
    assert [name for name in place.sizes() if name] == ["00000002.json", "NOTE.txt"]


def test_what_is_left_of_earlier_ones_does_not_keep_anybody_waiting(
    place: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held as soon as it is made: who began anew would wait for its own."""
    elsewhere(place, released=True)
    monkeypatch.setattr(ObjectStore, "delete", Mock(side_effect=OSError("503")))
    with acquire(place) as held:
        assert held.generation == 2
        held.check()
    monkeypatch.undo()
    with acquire(place) as held:
        assert held.generation == 3
    assert list(place.sizes()) == ["00000003.json"]


def _hold(address: str, holding: Any) -> None:
    with acquire(ObjectStore(address)):
        holding.set()
        threading.Event().wait()


def test_a_process_of_this_machine_that_was_killed_is_not_waited_for(
    place: ObjectStore, clock: Clock
) -> None:
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    holder = context.Process(target=_hold, args=(place.address, holding), daemon=True)
    holder.start()
    assert holding.wait(120)
    clock.meanwhile = holder.kill  # it is looked at once while it lives
    with acquire(place) as claim:
        assert claim.generation == 2
    assert 0 < clock.now <= lease.LEASE_SECONDS
    holder.join()


def test_a_number_that_another_process_has_now_does_not_count(
    place: ObjectStore, clock: Clock
) -> None:
    ours = lease._this_process()
    elsewhere(place, **ours | {"started": "0"})
    with acquire(place) as claim:
        assert claim.generation == 2
    assert clock.now == 0


@pytest.mark.parametrize(
    ("answer", "dead"),
    [(None, False), (PermissionError(), False), (ProcessLookupError(), True)],
)
def test_a_process_that_proc_does_not_show_is_dead_only_if_there_is_none(
    place: ObjectStore,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    answer: OSError | None,
    dead: bool,
) -> None:
    """Mounted with hidepid it shows each user their own processes."""
    number = 2**22 + 1  # none is higher than 2 ** 22
    elsewhere(place, **lease._this_process() | {"process": number})
    signal = Mock(side_effect=answer)
    monkeypatch.setattr(os, "kill", signal)
    with acquire(place) as claim:
        assert claim.generation == 2
    signal.assert_called_with(number, 0)
    assert (clock.now == 0) == dead
    assert dead or clock.now > lease.LEASE_SECONDS


def test_it_is_renewed(place: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()

    class Listens(ObjectStore):
        def write(self, name: str, content: bytes) -> None:
            super().write(name, content)
            renewed.set()

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    with acquire(Listens(place.address)):
        assert renewed.wait(60)
        assert content(place, 1)["renewals"] >= 1


def test_a_renewal_under_way_does_not_end_after_the_release() -> None:
    written: list[dict[str, Any]] = []
    started, answers = threading.Event(), threading.Event()

    def write(name: str, content: bytes) -> None:
        claim = json.loads(content)
        if "released" not in claim:
            started.set()
            assert answers.wait(30)
        written.append(claim)

    held = Lease(Mock(write=write, sizes=dict), 1, {"process": 1})
    renewing, releasing = (threading.Thread(target=call) for call in (held.renew, held.release))
    renewing.start()
    assert started.wait(30)
    releasing.start()
    releasing.join(0.2)
    answers.set()
    renewing.join()
    releasing.join()
    assert [claim.get("released") for claim in written] == [None, True]
