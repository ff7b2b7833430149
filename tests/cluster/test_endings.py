"""How failures of Ray and of memory are told, and that no start is waited for in silence."""

from __future__ import annotations

import dataclasses
import errno
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from ray import cloudpickle
from ray.exceptions import (
    ActorDiedError,
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)
from ray.train import ControllerError, ScalingConfig
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from seq2sweep import console
from seq2sweep.cluster import failures, ray_internals, session, train_driver, worker_group
from seq2sweep.cluster.session import Node
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import OperationalError
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.watchdog import HANG_LOG_NAME
from tests.cluster.chaos import wait_until

RAYS_PAGE = """1 worker(s) were killed due to the node running low on memory. Memory on the node \
(IP: 192.0.2.2, ID: 145f) was 22.91GB used / 23.54GB limit (0.97)
OOM kill reason: Memory usage 3619479552B exceeded threshold
Object store memory usage: [- objects spillable: 1
Refer to the documentation"""
BY_RAY = "out of memory (Ray killed its process, as its node had 22.91GB of 23.54GB in use): lower"
KILLED = "its process was killed, by hand or by the system (out of memory?)"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfMemoryError(RAYS_PAGE), BY_RAY),
        (failures.as_actor_error(OutOfMemoryError(RAYS_PAGE)), BY_RAY),
        (WorkerHealthCheckFailedError("worker 1", OutOfMemoryError(RAYS_PAGE)), BY_RAY),
        (ControllerError(OutOfMemoryError(RAYS_PAGE)), BY_RAY),
        (
            failures.as_actor_error(RuntimeEnvSetupError("Try 3\n[Errno 28] No space left\n")),
            "Ray could not give its worker the code ([Errno 28] No space left)",
        ),
        (MemoryError(), "out of memory (MemoryError): lower train.tokens_per_pass"),
        (torch.OutOfMemoryError("CUDA"), "out of memory (OutOfMemoryError: CUDA): lower"),
        (
            RuntimeError("[enforce fail]\nDefaultCPUAllocator: can't allocate memory: 8 bytes"),
            "out of memory (RuntimeError: DefaultCPUAllocator: can't allocate memory: 8 bytes)",
        ),
        (
            OSError(errno.ENOMEM, "Cannot allocate memory"),
            "out of memory (OSError: [Errno 12] Cannot allocate memory)",
        ),
        (
            OperationalError("out of memory (CUDA out of memory): lower x"),
            "out of memory (CUDA out",
        ),
        (RuntimeError("std::bad_alloc"), "out of memory (RuntimeError: std::bad_alloc)"),
        *(
            (RuntimeError(f"{said} when it began\nmore"), f"out of memory (RuntimeError: {said}")
            for said in (
                "CUDA error: out of memory",
                "CUDA driver error: out of memory",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
                "NCCL error: Failed to CUDA calloc async 4 bytes",
            )
        ),
        (ActorDiedError(), KILLED),
        (WorkerCrashedError(), KILLED),
        (RuntimeError("One of the worker actors failed to initialize due to error:\n"), KILLED),
        (RayActorError(error_msg="The actor died because its node has died."), "its node was lost"),
        (NodeDiedError("gone"), "its node was lost"),
        (LocalRayletDiedError(), "its node was lost, or Ray ended there"),
        (RayTaskError("f", "frames", ValueError("wrong")), "ValueError: wrong"),
        (ValueError("wrong\nin many\nlines"), "ValueError: wrong"),
    ],
)
def test_each_failure_is_one_line(error: Exception, expected: str) -> None:
    told = failures.describe(error)
    assert told.startswith(expected)
    assert "\n" not in told


def test_an_actor_that_raises_in_its_beginning_was_not_killed() -> None:
    error = ActorDiedError(RayTaskError("f", "frames", ValueError("wrong")))
    assert not failures.is_death(error)
    assert "killed" not in failures.describe(error)


def test_what_the_system_killed_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(failures, "VMSTAT", counts)
    assert failures.system_kills() == 0
    counts.write_text("nr_free_pages 7\noom_kill 3\noom_kill_x 9\n")
    assert failures.system_kills() == 3
    assert failures.describe(ActorDiedError(), 2).startswith("out of memory (its process was kil")
    assert failures.describe(ValueError("wrong"), 2) == "ValueError: wrong"


def test_who_was_killed(tmp_path: Path) -> None:
    """Ray's own coordinator, whose death Ray hands on as it is."""
    told = train_driver._failure(OutOfMemoryError(RAYS_PAGE), RunStore(tmp_path), 40)
    assert told.cause.startswith(f"Ray's coordinator: {BY_RAY}")
    assert str(told).endswith("run `dvc repro` again to resume")
    assert told.step == 40
    assert "OOM kill reason" in (tmp_path / train_driver.FAILURE_LOG_NAME).read_text()


# --- waiting -------------------------------------------------------------------------------------


def test_silence_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "SILENT_SECONDS", 0.05)
    said: list[str] = []

    def has_said(what: str) -> bool:
        said.append(capsys.readouterr().out)
        return what in "".join(said)

    with console.never_silent("train"), console.never_silent("nothing"):
        wait_until(lambda: has_said("train, 0s\n"), 0.01)
        console.doing("waiting for 2 workers to start")
        wait_until(lambda: has_said("waiting for 2 workers to start, 0s\n"), 0.01)
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().out == ""


def test_who_speaks_is_not_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "SILENT_SECONDS", 30.0)
    monkeypatch.setattr(console, "LOOK_SECONDS", 0.01)
    with console.never_silent("train"):
        console.say("step 1")
        time.sleep(0.1)
    assert capsys.readouterr().out == "step 1\n"


class Watched:
    """A start of workers on a cluster that is told of, by a clock of its own."""

    def __init__(
        self,
        cluster: ClusterConfig,
        monkeypatch: pytest.MonkeyPatch,
        begun: Callable[[], bool] = lambda: True,
    ) -> None:
        self.now, self.alive, self.placed, self.head = 0.0, 0, False, True
        self.machines, self.free = [Node(2, 0)], [Node(2, 0)]
        for name, function in {
            "remove_orphans": lambda: 0,
            "live_workers": lambda controller: self.alive,
            "has_room": lambda controller: self.placed,
        }.items():
            monkeypatch.setattr(ray_internals, name, function)
        monkeypatch.setattr(session, "require_alive", SimpleNamespace(answers=lambda: self.head))
        monkeypatch.setattr(session, "nodes", lambda: self.machines)
        monkeypatch.setattr(session, "free_nodes", lambda: self.free)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(worker_group, "time", clock)
        trainer: Any = SimpleNamespace(controller="ab")
        self.start = worker_group.Start(cluster, 1, trainer, begun)

    def after(self, seconds: float) -> bool:
        """What is found after so many seconds, in which it is looked all the time; between two
        looks it is as at the first."""
        until = self.now + seconds
        while self.now < until:
            self.now += worker_group.LOOK_SECONDS
            working = self.start()
            self.now += worker_group.LOOK_SECONDS / 4
            assert self.start() == working
        return working


def test_a_start_that_never_comes_is_given_up(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(local, monkeypatch)
    assert not watched.after(worker_group.START_SECONDS)
    assert console._heartbeat.doing == "waiting for 2 workers to start"
    watched.alive = 1
    assert watched.after(10_000)
    watched.alive = 0  # as when Ray starts them again itself
    assert not watched.after(worker_group.START_SECONDS)
    with pytest.raises(worker_group.WorkersNotStartedError, match="did not start within 5m"):
        watched.after(10)


def test_room_for_workers_that_are_missing_is_found_within_a_minute(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    elastic = dataclasses.replace(local, workers=4, min_workers=1)
    watched = Watched(elastic, monkeypatch)
    watched.alive = 2
    watched.now += worker_group.GROW_SECONDS - 1
    assert watched.start.room_for_more() == 0, "it has just started"
    watched.now += 1
    assert watched.start.room_for_more() == 2
    assert watched.start.room_for_more() == 0, "it is not asked at every look"
    for alive, free, more in ((3, [Node(2, 0)], 1), (4, [Node(2, 0)], 0), (2, [Node(0.5, 0)], 0)):
        watched.alive, watched.free = alive, free
        watched.now += worker_group.GROW_SECONDS
        assert watched.start.room_for_more() == more
    fixed = Watched(local, monkeypatch)
    fixed.alive, fixed.now = 1, 10_000.0
    assert fixed.start.room_for_more() == 0


def test_as_many_workers_start_as_have_room_now() -> None:
    """Whatever else is reserved, and none that trains is ended for more of them."""
    config = ScalingConfig(num_workers=(1, 3), resources_per_worker={"CPU": 1})
    room = Mock(return_value=1)
    policy = ray_internals._elastic(config, room)
    all_nodes = {"a": {"CPU": 2.0}, "b": {"CPU": 2.0}}
    assert policy._count_possible_workers(all_nodes) == 0, "those before may not have left yet"
    policy.began -= ray_internals.SETTLE_SECONDS
    assert policy._count_possible_workers(all_nodes) == 1
    assert policy._count_possible_workers({}) == 1, "what others have reserved but do not use"
    room.return_value = 9
    assert policy._count_possible_workers(all_nodes) == 3
    fresh = pickle.loads(cloudpickle.dumps(ray_internals._elastic(config, room_for_three)))
    assert fresh._count_possible_workers(all_nodes) == 3, "all that are wanted wait for none"
    sent = Mock()
    policy._maybe_send_resource_request = sent
    decision = policy.make_decision_for_running_worker_group(
        worker_group_state=None, worker_group_status=None
    )
    assert type(decision).__name__ == "NoopDecision"
    sent.assert_called_once_with()


def room_for_three() -> int:
    return 3


def test_storage_that_is_away_later_ends_no_training(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers that have begun are at work as long as they live, whatever the storage shows."""
    run, log = RunStore(tmp_path), tmp_path / HANG_LOG_NAME.format(rank=0)
    run.begin_attempt("1")
    watched = Watched(local, monkeypatch, run.has_begun)
    watched.alive, watched.placed = 2, True
    assert not watched.after(10)
    log.touch()
    assert watched.after(10)
    log.unlink()
    assert watched.after(10 * worker_group.START_SECONDS)
    run.begin_attempt("2")
    assert not watched.after(10), "others are to begin"


def test_nothing_is_asked_of_a_head_that_does_not_answer(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would block this thread for a minute, and then end the process."""
    watched = Watched(local, monkeypatch)
    watched.head = False
    monkeypatch.setattr(ray_internals, "remove_orphans", pytest.fail)
    assert not watched.after(60)


def test_nodes_and_room_are_waited_for(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    watched = Watched(local, monkeypatch)
    watched.machines = [Node(1, 0)]
    assert not watched.after(10_000)
    assert console._heartbeat.doing.endswith("the cluster is 1 node of 1 CPUs, 0 GPUs")
    watched.machines, watched.free = [Node(2, 0)], [Node(0, 0)]
    assert not watched.after(10_000)
    assert console._heartbeat.doing.endswith("free is 1 node of 0 CPUs, 0 GPUs")
    watched.placed = True  # the room is taken by these very workers
    with pytest.raises(worker_group.WorkersNotStartedError):
        watched.after(10_000)
