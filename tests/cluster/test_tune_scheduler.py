"""Which trial Tune is told to start next, and what is made of those that fail."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import ActorDiedError, RayTaskError, RuntimeEnvSetupError
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from seq2sweep.cluster import ray_internals
from seq2sweep.cluster.tune_scheduler import OrderedScheduler, TuneHooks, rungs_of
from seq2sweep.cluster.tune_trial import NO_PLACE
from seq2sweep.errors import NodeError, UserError, kind_and_line
from seq2sweep.runs.layout import FAILURE_NAME, JOURNAL_NAME
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import NODES_NAME, TrialRecord
from tests.cluster import trials


@dataclass
class FakeMetadata:
    num_failures: int = 0


@dataclass(eq=False)
class FakeTrial:
    config: dict[str, int]
    status: str = Trial.PENDING
    run_metadata: FakeMetadata = field(default_factory=FakeMetadata)
    trial_id: str = "1f2e"
    PAUSED = Trial.PAUSED

    def set_status(self, status: str) -> None:
        self.status = status


@dataclass
class FakeController:
    """Does with a scheduler what Tune's controller does."""

    scheduler: OrderedScheduler
    trials: list[FakeTrial] = field(default_factory=list)
    _resetting_trials: set[FakeTrial] = field(default_factory=set)

    def add(self, *indices: int) -> None:
        for index in indices:
            trial = FakeTrial({"index": index})
            self.scheduler.on_trial_add(self, trial)  # type: ignore[arg-type]
            self.trials.append(trial)

    def get_trials(self) -> list[FakeTrial]:
        return self.trials

    def _set_trial_status(self, trial: FakeTrial, status: str) -> None:
        trial.set_status(status)

    def of(self, index: int) -> Any:
        return next(trial for trial in self.trials if trial.config["index"] == index)

    def chosen(self) -> int | None:
        """What is chosen is pending until there is room for it."""
        trial = self.scheduler.choose_trial_to_run(self)
        if trial is None:
            return None
        trial.status = Trial.PENDING
        return int(trial.config["index"])

    def start(self) -> int | None:
        index = self.chosen()
        if index is not None:
            self.of(index).status = Trial.RUNNING
        return index

    def report(self, index: int, step: int, perplexity: float) -> str:
        result = {"step": step, "valid_perplexity": perplexity}
        verdict = self.scheduler.on_trial_result(self, self.of(index), result)
        if verdict == TrialScheduler.PAUSE:
            self.of(index).status = Trial.PAUSED
        return verdict

    def fail(self, index: int) -> None:
        """And try it again, behind all others."""
        trial = self.of(index)
        self.scheduler.on_trial_error(self, trial)
        trial.status = Trial.PENDING
        self.trials.remove(trial)
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)


def three() -> Rungs:
    return Rungs("asha", 3, grace_steps=4, reduction_factor=2, longest=8)


def two_of_three(rungs: Rungs) -> FakeController:
    """Of three trials the first two have begun."""
    tune = FakeController(OrderedScheduler(range(3), rungs))
    tune.add(0, 1, 2)
    assert [tune.start(), tune.start()] == [0, 1]
    return tune


def test_they_start_in_order_one_after_the_other() -> None:
    tune = FakeController(OrderedScheduler([2, 0, 1], None))
    tune.add(0, 1, 2)
    assert {trial.status for trial in tune.trials} == {Trial.PAUSED}
    assert [tune.chosen(), tune.chosen()] == [2, 2]
    assert [tune.start(), tune.start(), tune.start(), tune.start()] == [2, 0, 1, None]
    assert tune.report(0, 4, 1e9) == TrialScheduler.CONTINUE


def test_no_more_than_there_is_room_for() -> None:
    room = 2
    tune = FakeController(OrderedScheduler(range(4), None, lambda: room))
    tune.add(0, 1, 2, 3)
    assert [tune.start(), tune.start(), tune.start()] == [0, 1, None]
    room = 3
    assert [tune.start(), tune.start()] == [2, None]
    room = 1
    tune.of(0).status = tune.of(1).status = Trial.TERMINATED
    assert tune.start() is None
    tune.of(2).status = Trial.TERMINATED
    assert tune.start() == 3


def test_who_waits_for_others_makes_room_and_comes_back_in_its_place() -> None:
    tune = two_of_three(three())
    assert tune.report(1, 4, 5.0) == TrialScheduler.PAUSE
    assert tune.start() == 2
    assert tune.report(0, 4, 6.0) == TrialScheduler.CONTINUE
    assert tune.start() == 1


def test_only_of_who_is_paused_is_asked_whether_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rungs, asked = three(), list[int]()
    monkeypatch.setattr(rungs, "goes_on", lambda trial: asked.append(trial) or True)
    two_of_three(rungs)
    assert asked == [0, 1]


def test_a_trial_that_is_tried_again_has_not_ended() -> None:
    """Nobody is judged without it, and it keeps its place."""
    tune = two_of_three(three())
    tune.fail(0)
    assert tune.report(1, 4, 5.0) == TrialScheduler.PAUSE
    assert [tune.start(), tune.start()] == [0, 2]
    assert tune.report(0, 4, 4.0) == TrialScheduler.CONTINUE
    assert tune.start() == 1
    assert tune.report(1, 4, 5.0) == TrialScheduler.STOP


def test_who_has_passed_a_rung_goes_on_while_another_is_tried_again() -> None:
    """Between two rungs a pause would leave the workers of a trial of several behind."""
    tune = two_of_three(three())
    for index in (0, 1):
        assert tune.report(index, 4, 5.0 - index) == TrialScheduler.CONTINUE
    tune.fail(0)
    assert tune.report(1, 5, 4.0) == TrialScheduler.CONTINUE
    assert tune.start() == 0
    assert tune.report(0, 4, 5.0) == TrialScheduler.CONTINUE


ASHA: Any = SimpleNamespace(scheduler="asha", grace_steps=4, reduction_factor=2)


def shown_before(
    folder: Path, shown: list[tuple[str | None, dict[int, float]]], base: int = 1
) -> list[Any]:
    """Records of trials by how they ended in an earlier sweep, and their perplexities by step; so
    many of them are of the base."""
    steps = max(max(curve) for _, curve in shown)
    of_training = SimpleNamespace(train=SimpleNamespace(steps=steps), warmup_steps=0)
    records: list[Any] = []
    for index, (status, curve) in enumerate(shown):
        own = folder / str(index)
        own.mkdir()
        lines = [
            {"kind": "validated", "step": step, "valid_perplexity": perplexity}
            for step, perplexity in curve.items()
        ]
        (own / JOURNAL_NAME).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        changes = {} if index < base else {"model.heads": index}
        variant = SimpleNamespace(config=of_training, changes=changes)
        earlier = status and {"status": status}
        record = SimpleNamespace(folder=own, variant=variant, earlier=earlier)
        record.told_before = functools.partial(TrialRecord.told_before, record)
        records.append(record)
    return records


@pytest.mark.parametrize("tried_again", [True, False])
def test_who_was_stopped_without_a_failed_peer_resumes_when_that_is_tried_again(
    tmp_path: Path, tried_again: bool
) -> None:
    """The third is the worse of two, and would be the second of three."""
    records = shown_before(
        tmp_path,
        [
            (None if tried_again else "failed", {2: 9.0}),
            ("finished", {4: 5.0, 8: 4.0}),
            ("stopped early", {4: 6.0}),
        ],
    )
    (tmp_path / "0" / FAILURE_NAME).write_text('{"cause": "lost"}')
    rungs_of(ASHA, records)
    assert (records[2].earlier is None) is tried_again


def test_who_resumes_may_yet_be_a_peer_of_who_was_stopped_after_it(tmp_path: Path) -> None:
    """Better trials before them are no longer in the sweep. The third was stopped at step 8 as one
    of the worst of five, and is now judged beside the second, which has yet to get there."""
    records = shown_before(
        tmp_path,
        [
            ("finished", {4: 50.0, 8: 20.0, 16: 10.0}),
            ("stopped early", {4: 45.0}),
            ("stopped early", {4: 38.0, 8: 25.0}),
            ("stopped early", {4: 60.0}),
        ],
    )
    rungs = rungs_of(ASHA, records)
    assert [record.earlier is None for record in records] == [False, True, True, False]
    assert rungs is not None
    for index, step, perplexity in ((1, 4, 45.0), (1, 8, 30.0), (2, 4, 38.0), (2, 8, 25.0)):
        rungs.report(index, step, perplexity)
    assert rungs.goes_on(2)


@pytest.mark.parametrize("base", [1, 2])
def test_no_seed_of_the_base_is_stopped(tmp_path: Path, base: int) -> None:
    """An earlier version stopped the second; the third is worse than the better half of both."""
    shown: list[tuple[str | None, dict[int, float]]] = [
        ("finished", {4: 5.0, 8: 4.0}),
        ("stopped early", {4: 6.0}),
        ("stopped early", {4: 7.0}),
    ]
    records = shown_before(tmp_path, shown, base)
    rungs_of(ASHA, records)
    assert [record.earlier is None for record in records] == [False, base == 2, False]


@pytest.mark.parametrize("status", ["stopped early", "failed"])
@pytest.mark.parametrize(("told", "goes_on"), [(4, False), (None, True)])
def test_who_was_stopped_counts_no_further_than_it_was_judged(
    tmp_path: Path, told: int | None, goes_on: bool, status: str
) -> None:
    """The second has trained to step 8 in a sweep that stopped none, and was stopped at 4 since; or
    it died before its last validation was told. Results of before do not say where."""
    records = shown_before(
        tmp_path,
        [
            ("finished", {4: 5.0, 8: 4.0, 16: 3.0}),
            (status, {4: 9.0, 8: 8.0}),
            ("stopped early", {4: 4.0, 8: 5.0}),
        ],
    )
    records[1].earlier["told_step"] = told
    rungs_of(ASHA, records)
    assert [record.earlier is None for record in records] == [False, False, goes_on]


def test_a_trial_whose_workers_have_no_room_any_more_waits_for_it() -> None:
    """It costs no failure, and it is the first to begin again."""
    room = 1
    tune = FakeController(OrderedScheduler(range(2), None, lambda: room))
    tune.add(0, 1)
    assert tune.start() == 0
    trial, room = tune.of(0), 0
    verdict = tune.scheduler.on_trial_result(tune, trial, {NO_PLACE: True})
    assert verdict == TrialScheduler.PAUSE
    trial.status = Trial.PAUSED
    assert tune.start() is None
    room = 1
    assert tune.start() == 0
    assert trial.run_metadata.num_failures == 0


def test_failures_are_counted_anew_after_a_new_checkpoint() -> None:
    for rungs in (None, three()):
        controller = FakeController(OrderedScheduler([0], rungs))
        controller.add(0)
        counted = controller.of(0).run_metadata
        assert controller.start() == 0
        controller.report(0, 4, 9.0)
        counted.num_failures = 1
        controller.fail(0)
        assert controller.start() == 0
        controller.report(0, 4, 9.0)
        assert counted.num_failures == 1, "it says again what it had said, and got no further"
        controller.report(0, 8, 8.0)
        assert counted.num_failures == 0


def test_none_begins_after_an_interruption() -> None:
    halted = False
    controller = FakeController(OrderedScheduler([0, 1, 2], None, halted=lambda: halted))
    controller.add(0, 1, 2)
    assert controller.start() == 0
    assert controller.chosen() == 1
    halted = True
    assert controller.chosen() is None


def test_trials_are_asked_to_stop_when_the_storage_has_taken_it(tmp_path: Path) -> None:
    """Whoever asks asks again until then."""
    hooks = TuneHooks([], RunStore(tmp_path / "sweep", "1"))
    assert not hooks.interrupt()
    assert hooks.asked, "no trial begins"
    (tmp_path / "sweep").mkdir()
    assert hooks.interrupt()
    trial = RunStore(tmp_path / "sweep", "1")
    trial.poll()
    assert trial.stop_requested()


NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("tried_again", [False, True])
@pytest.mark.parametrize(
    ("written", "raised", "ends_sweep"),
    [
        # Of an earlier try: the storage may have taken nothing of this one.
        ({"cause": "wrong", "disk_full": False}, NodeError("no space left in mind"), True),
        (None, NodeError("no space left in mind: keys have expired"), True),
        ({"cause": "no space left in there", "disk_full": True}, ValueError("wrong"), True),
        (None, NO_ROOM, True),  # nor was there any for what it wrote of it
        (None, RuntimeEnvSetupError("no space left in\n[Errno 28] No space left on device"), True),
        (None, RuntimeEnvSetupError("No such file"), False),
        ({"cause": "wrong", "disk_full": False}, NO_ROOM, False),
        (None, ValueError("wrong"), False),
        ({"cause": "of an earlier version"}, ValueError("wrong"), False),
    ],
)
def test_a_full_disk_asks_all_trials_to_save_and_ends_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    written: dict[str, Any] | None,
    raised: Exception,
    ends_sweep: bool,
    tried_again: bool,
) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    if written:
        (folder / FAILURE_NAME).write_text(json.dumps(written))
    of_sweep = SimpleNamespace(sweep=SimpleNamespace(max_failures=3))
    variant = SimpleNamespace(name="base", config=of_sweep)
    record: Any = SimpleNamespace(
        variant=variant, store=RunStore(folder), folder=folder, end=Mock()
    )
    trial = FakeTrial({"index": 0})
    sweep = RunStore(tmp_path, "1")
    hooks = TuneHooks([record], sweep)
    hooks.errors[trial.trial_id] = raised
    (hooks.on_trial_recover if tried_again else hooks.on_trial_error)(0, [], trial)
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "request_stop", lambda: False)
        hooks.catch_up()
    hooks.catch_up()
    sweep.poll()
    assert sweep.stop_requested() is hooks.asked is ends_sweep
    said = capsys.readouterr().out
    if ends_sweep:
        assert str(hooks.in_vain).startswith("base: no space left in ")
        assert (said, record.end.called) == ("", False)
    else:
        assert hooks.in_vain is None
        assert ("(retry 0 of 3: sweep.max_failures)" in said) is tried_again
        assert record.end.called is not tried_again


ECC = trials.of_torch(trials.ECC)


class Cluster:
    """Hooks that are told of trials, and what becomes of these; seconds pass one by one."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 6, workers: int = 1
    ) -> None:
        times = itertools.count(1.0)
        monkeypatch.setattr(time, "monotonic", lambda: next(times))
        self.records: list[Any] = []
        for name in "abcdef"[:count]:
            (folder / name / NODES_NAME).mkdir(parents=True)
            of_sweep = SimpleNamespace(max_failures=1, workers_per_trial=workers)
            variant = SimpleNamespace(name=name, config=SimpleNamespace(sweep=of_sweep))
            store = RunStore(folder / name)
            self.records.append(
                Mock(spec=TrialRecord, variant=variant, store=store, folder=folder / name)
            )
        self.hooks = TuneHooks(self.records, RunStore(folder, "1"))

    def trial(self, name: str) -> FakeTrial:
        return FakeTrial({"index": "abcdef".index(name)}, trial_id=name)

    def start(self, names: str, host: str = "gpu-1") -> None:
        for name in names:
            node = self.records["abcdef".index(name)].folder / NODES_NAME / f"{host}-1a2b3c4d"
            node.write_text(f"{time.monotonic()}\n")
            self.hooks.on_trial_start(0, [], self.trial(name))

    def report(self, name: str, step: int, host: str = "gpu-1") -> None:
        result = {"step": step, "valid_perplexity": 9.0, "hostname": host}
        self.hooks.on_trial_result(0, [], self.trial(name), result)

    def fail(self, name: str, error: Exception = ECC, *, again: bool = False) -> None:
        """As `tune_trial` leaves it, and as Tune tells it."""
        written = {"cause": kind_and_line(error), "disk_full": False}
        (self.records["abcdef".index(name)].folder / FAILURE_NAME).write_text(json.dumps(written))
        self.hooks.errors[name] = error
        hook = self.hooks.on_trial_recover if again else self.hooks.on_trial_error
        hook(0, [], self.trial(name))

    def twice(self, name: str, error: Exception = ECC, host: str = "gpu-1") -> None:
        """It is chosen, tried again at once, and given up."""
        for again in (True, False):
            self.start(name, host)
            self.fail(name, error, again=again)

    def ended(self) -> str:
        self.hooks.catch_up()
        return "".join(record.variant.name for record in self.records if record.end.called)


@pytest.mark.parametrize(("workers", "where"), [(1, "gpu-1"), (2, "a machine")])
def test_a_gpu_that_fails_three_trials_in_a_row_ends_the_sweep_and_not_the_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    workers: int,
    where: str,
) -> None:
    """It was free at once and took the rest, while another GPU trained its first trial. What is
    noted of a trial of several workers is of when it had one."""
    cluster = Cluster(tmp_path, monkeypatch, workers=workers)
    cluster.start("ab")
    cluster.report("a", 4)
    cluster.fail("a", again=True)
    cluster.start("a")
    cluster.report("a", 4)  # as it resumes it tells what it told before
    cluster.fail("a")
    cluster.report("b", 4)  # of the other GPU, where it trains since before
    cluster.twice("c")
    assert cluster.ended() == "ac"
    assert cluster.hooks.in_vain is None
    capsys.readouterr()
    cluster.start("d")
    cluster.fail("d", again=True)
    cluster.start("e")  # which was chosen before all heard of it
    cluster.fail("e")
    assert cluster.ended() == "ac", "d and e have not ended: they resume"
    assert cluster.hooks.asked
    assert capsys.readouterr().out == ""
    assert cluster.hooks.in_vain == (
        "d: RuntimeError: CUDA error: uncorrectable ECC error encountered; "
        f"{where} has a GPU on which 3 trials in a row failed with an error of "
        "the device: restart the machine, or take it or that GPU (CUDA_VISIBLE_DEVICES) out of "
        "the cluster"
    )


def test_a_host_whose_gpus_train_again_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one where all that it trained failed at once, and resumes."""
    cluster = Cluster(tmp_path, monkeypatch)
    cluster.start("abc")
    for name in "abc":
        cluster.fail(name, again=True)
    cluster.start("abc")
    cluster.report("b", 4)
    cluster.twice("d")
    cluster.twice("e")
    cluster.start("f")
    cluster.report("f", 4, host="gpu-2")
    assert cluster.ended() == "de"
    assert cluster.hooks.in_vain is None
    cluster.report("f", 8)
    cluster.start("a")
    cluster.fail("a")
    assert cluster.ended() == "ade"
    assert cluster.hooks.in_vain is None


def test_what_a_resumed_trial_tells_again_shows_no_sound_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read from its journal before the GPU is asked for anything."""
    cluster = Cluster(tmp_path, monkeypatch, count=3)
    for record in cluster.records:
        (record.folder / JOURNAL_NAME).write_text(
            '{"kind": "validated", "step": 4, "valid_perplexity": 9.0}\n'
        )
        cluster.start(record.variant.name)
        cluster.report(record.variant.name, 4)
        cluster.fail(record.variant.name)
    assert cluster.ended() == "ab"
    assert cluster.hooks.in_vain is not None


def test_trials_that_fail_on_three_hosts_are_no_broken_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path, monkeypatch, count=3)
    for name, host in zip("abc", ("gpu-1", "gpu-2", "gpu-3"), strict=True):
        cluster.twice(name, host=host)
    assert cluster.ended() == "abc"
    assert cluster.hooks.in_vain is None


@pytest.mark.parametrize(
    ("error", "of_device"),
    [
        (trials.of_torch("CUDA error: unspecified launch failure"), True),
        (RuntimeError("No CUDA GPUs are available"), True),
        (trials.of_torch("CUDA error: no CUDA-capable device is detected"), True),
        (trials.of_torch("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), True),
        (RuntimeError("CUDA driver initialization failed, you might not have a CUDA gpu."), True),
        (RuntimeError("NCCL error in: x.hpp:1, unhandled cuda error (run with NCCL_DEBUG)"), True),
        (RuntimeError("unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"), False),
        (trials.of_torch("CUDA error: device-side assert triggered"), False),
        (trials.of_torch("CUDA error: an illegal memory access was encountered"), False),
        (trials.of_torch("CUDA error: out of memory"), False),
        (UserError("No CUDA GPUs are available: lower cluster.gpus_per_worker"), False),
        (ValueError("wrong"), False),
    ],
)
def test_an_error_that_may_be_the_trials_own_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, of_device: bool
) -> None:
    cluster = Cluster(tmp_path, monkeypatch)
    for name in "abcd":
        cluster.twice(name, error)
    assert (cluster.ended(), cluster.hooks.asked) == ("ab" if of_device else "abcd", of_device)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (RayTaskError("train", "traces", UserError("the run diverged")), False),
        (RayTaskError("train", "traces", MemoryError()), True),
    ],
)
def test_what_would_come_again_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: RayTaskError, again: bool
) -> None:
    monkeypatch.setattr(Trial, "local_path", None)  # where it writes of errors
    trial, errors = Trial("trial", stub=True, max_failures=1), dict[str, Exception]()
    with ray_internals.trials_fail_alone(errors, pytest.fail):
        trial.handle_error(error)
        trial.handle_error(error)  # Tune tells some of them twice
    assert errors == {trial.trial_id: error}
    assert trial.should_recover() == again


def test_a_hang_is_told_once_with_its_stack_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever dies next, before it has a log of its own, was killed."""
    of_sweep = SimpleNamespace(sweep=SimpleNamespace(max_failures=3))
    variant = SimpleNamespace(name="base", config=of_sweep)
    record: Any = SimpleNamespace(variant=variant, store=RunStore(tmp_path), folder=tmp_path)
    trial, hooks = FakeTrial({"index": 0}), TuneHooks([record], RunStore(tmp_path))
    log = tmp_path / "hang-0.log"
    log.write_text("Timeout (0:10:00)!")
    hooks.errors[trial.trial_id] = ValueError("wrong")
    hooks.on_trial_recover(0, [], trial)
    hooks.errors[trial.trial_id] = ActorDiedError()
    hooks.on_trial_recover(0, [], trial)
    hooks.on_trial_recover(0, [], trial)
    hooks.catch_up()
    raised, hung, killed = capsys.readouterr().out.splitlines()
    assert raised.startswith("base: ValueError: wrong (retry ")
    where = f"stack traces are in {log} (retry 0 of 3: sweep.max_failures)"
    assert hung == f"base: no update in cluster.hang_seconds, worker timeout; {where}"
    assert killed.startswith("base: its process was killed, ")
