"""Sweeps: trials that finish, are stopped, fail, are interrupted and run again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import psutil
import pytest
import ray
import torch
from ray import tune

from pipeline.sweep import resolve
from seq2sweep import config as configuration
from seq2sweep.cluster import session, tune_runner
from seq2sweep.cluster.tune_runner import _Sweep, run_sweep
from seq2sweep.cluster.tune_scheduler import TuneHooks
from seq2sweep.config import Config
from seq2sweep.decode.beam import NO_NUMBERS
from seq2sweep.errors import NodeError, OperationalError, UserError
from seq2sweep.runs import journal
from seq2sweep.runs.run_store import RunStore
from seq2sweep.storage.lease import LeaseLostError
from seq2sweep.sweep.trial_record import INTERRUPTED, TrialRecord, TrialResult
from seq2sweep.sweep.variants import Variant, variants
from seq2sweep.train.step import choose_precision
from tests.cluster import scoring, trials
from tests.cluster.chaos import LONGEST_WAIT
from tests.conftest import Corpus

ENDS = {"finished", "stopped early", "failed"}


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """The base and three variants: one learns nothing, one cannot even be built."""
    return configuration.with_changes(
        tiny_config,
        {
            "sweep.base": {
                "train.steps": 16,
                "train.warmup_steps": 4,
                "train.learning_rate_scale": 0.05,
            },
            "sweep.space": {
                "train.learning_rate_scale": [1e-9, 0.1],
                "model.d_ff": [10**13],
            },
            "sweep.grace_steps": 4,
            "sweep.reduction_factor": 2,
            "sweep.max_failures": 0,
            # One after the other, so that what is stopped does not depend on who is quicker.
            "sweep.cpus_per_trial": 2,
        },
    )


class Listener:
    """Remembers what was told of each trial, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        self.heard.append((event, variant.name, figures))

    def of(self, name: str) -> list[str]:
        return [event for event, variant, _ in self.heard if variant == name]

    def check(self, results: list[TrialResult]) -> None:
        """One start before all else, one end, and that the one that was returned."""
        for result in results:
            events = self.of(result.variant.name)
            assert events[0] == "started"
            assert Counter(events)["started"] == 1
            assert [event for event in events if event in ENDS] == [result.status]
            after = events[events.index(result.status) + 1 :]
            assert after == ([] if result.status == "failed" else ["scored"])


def sweep(
    config: Config,
    corpus: Corpus,
    project: Path,
    score: Any = scoring.score,
    listener: Listener | None = None,
    **more: Any,
) -> tuple[list[TrialResult], Listener]:
    """listener: that hears of the trials, for who asks it when the sweep raises."""
    listener = listener or Listener()
    results = run_sweep(
        config,
        variants(config)[0],
        encoded=corpus.encoded,
        project=project,
        name="sweep",
        score=score,
        on_trial=listener,
        **more,
    )
    return results, listener


def placement_groups_in_use() -> list[str]:
    table = ray.util.placement_group_table().values()
    return [group["state"] for group in table if group["state"] != "REMOVED"]


def test_no_round_of_a_sweep_begins_on_other_data_than_it_is_named_by(
    config: Config, tiny_corpus: Corpus, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_runner, "require_room", lambda config: None)
    listener = Listener()
    with pytest.raises(NodeError, match="has changed since this began"):
        sweep(config, tiny_corpus, project, listener=listener, data="other")
    assert listener.heard == []


def test_a_sweep_and_the_same_again(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    results, listener = sweep(config, tiny_corpus, project)
    listener.check(results)
    assert [result.variant.name for result in results] == [
        "base",
        "learning_rate_scale=1e-09",
        "learning_rate_scale=0.1",
        "d_ff=10000000000000",
    ]
    base, idle, quick, huge = results

    assert huge.status == "failed"
    assert huge.cause is not None
    assert huge.cause.startswith("out of memory (RuntimeError: ")
    assert "can't allocate memory" in huge.cause
    assert (huge.steps, huge.checkpoint) == (0, None)
    assert [base.status, idle.status, quick.status] == ["finished", "stopped early", "finished"]
    assert [base.steps, idle.steps, quick.steps] == [16, 4, 16]
    assert idle.metrics["valid_perplexity"] > quick.metrics["valid_perplexity"]

    for result in (base, idle, quick):
        assert result.checkpoint is not None
        assert result.checkpoint.name == f"step-{result.steps:08d}"
        assert result.metrics["bleu"] == result.steps
        assert result.metrics["signature"] == f"{config.evaluate.beam} 40"
        assert result.translations.read_text() == f"step {result.steps}\n" * 40
        assert result.metrics.keys().isdisjoint({"translations"})
        (*_, last) = (e for e in journal.entries(result.journal) if "wall_seconds" in e)
        assert result.wall_seconds == last["wall_seconds"] > 0
        told = [f for e, v, f in listener.heard if (e, v) == ("result", result.variant.name)]
        entries = list(journal.entries(result.journal))
        validated = [entry for entry in entries if entry["kind"] == "validated"]
        assert [entry["step"] for entry in validated] == [figures["step"] for figures in told]
        assert told[-1]["valid_perplexity"] == result.metrics["valid_perplexity"]
        assert len(list(result.checkpoint.parent.glob("step-*"))) <= 2
    assert placement_groups_in_use() == []

    # Again: only the one that failed is tried once more, and nothing is scored a second time.
    journals = {result.journal: result.journal.read_bytes() for result in results}
    again, listener = sweep(config, tiny_corpus, project)
    listener.check(again)
    assert {path: path.read_bytes() for path in journals} == journals
    for first, second in zip(results, again, strict=True):
        assert second.status == first.status
        assert second.metrics == first.metrics
        assert second.checkpoint == first.checkpoint
        if first.status != "failed":
            assert "result" not in listener.of(first.variant.name)
            scored = first.journal.with_name("scored.txt").read_text().splitlines()
            assert scored == [str(first.steps)]

    # Without the scheduler those that it stopped go on from where they were, and scores whose
    # translations are gone are made anew; one whose checkpoints somebody has removed trains from
    # its beginning, to the same; of values that are added one trains to its end, the other one
    # diverges.
    base.translations.unlink()
    assert quick.checkpoint is not None
    for path in quick.checkpoint.parent.glob("step-*"):
        shutil.rmtree(path)
    space = {"train.learning_rate_scale": [1e-9, 0.1, 1e30, 5.0]}
    more = configuration.with_changes(config, {"sweep.scheduler": "none", "sweep.space": space})
    (*finished, lost, added), listener = sweep(more, tiny_corpus, project)
    listener.check([*finished, lost, added])
    assert [(result.status, result.steps) for result in finished] == [("finished", 16)] * 3
    assert finished[0].translations.exists()
    for result in (base, idle):
        assert len(result.journal.with_name("scored.txt").read_text().splitlines()) == 2
    assert "result" not in listener.of("base")
    assert listener.of(idle.variant.name).count("result") == 4
    assert idle.journal.read_bytes().startswith(journals[idle.journal])
    *_, same = finished
    assert same.variant.name == quick.variant.name
    assert listener.of(quick.variant.name).count("result") == 4
    assert same.checkpoint == quick.checkpoint
    assert same.metrics["valid_perplexity"] == quick.metrics["valid_perplexity"]
    assert same.metrics["bleu"] == 16
    assert (added.status, added.steps) == ("finished", 16)
    assert lost.status == "failed"
    assert lost.cause is not None
    assert lost.cause.startswith("UserError: the run diverged: loss or gradient was not finite")


def test_ctrl_c_ends_every_trial_that_began_and_leaves_no_process(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    """Pressed twice, in a driver of its own."""
    endless = configuration.with_changes(
        config,
        {
            "sweep.base": {"train.steps": 100_000},
            "sweep.space": {"model.heads": [1]},
            "sweep.scheduler": "none",
            "sweep.cpus_per_trial": 1,
        },
    )
    params = project / "params.yaml"
    params.write_text(configuration.dump(endless))
    script = f"""
from pathlib import Path
from seq2sweep import config as configuration
from seq2sweep.cluster import tune_runner
from seq2sweep.cluster.session import ray_session
from seq2sweep.sweep.variants import variants
from tests.cluster import trials
from tests.cluster.scoring import score
tune_runner.run_trial = trials.rests
config = configuration.load(Path({str(params)!r}))
with ray_session(config.cluster):
    tune_runner.run_sweep(
        config, variants(config)[0], encoded=Path({str(tiny_corpus.encoded)!r}),
        project=Path({str(project)!r}), name="sweep", score=score,
        on_trial=lambda event, variant, figures: print(event, variant.slug, flush=True),
    )
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line.strip())
        told = Counter(line.split()[0] for line in heard)
        if told["started"] == 2 and told["result"]:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    # To the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    for line in process.stdout:
        heard.append(line.strip())
        if Counter(line.split()[0] for line in heard)["failed"] == 2:
            # All is told and Ray is being shut down.
            os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=LONGEST_WAIT) == -signal.SIGINT
    assert len(children) > 5
    assert psutil.wait_procs(children, timeout=30)[1] == []
    started = [line.split()[1] for line in heard if line.startswith("started")]
    failed = [line.split()[1] for line in heard if line.startswith("failed")]
    assert len(started) == 2
    assert sorted(started) == sorted(failed)

    folder = project / "runs" / "sweep" / "trials"
    assert not list(folder.glob("*/result.json")), "an interrupted trial has not ended"


@pytest.fixture
def given_to_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Config], list[Config]]:
    """What the trials of a sweep are given, as their processes read it."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(session, "nodes", lambda: [session.Node(8, 0)])
    monkeypatch.setattr(tune, "with_parameters", lambda work, trials: given.extend(trials))
    monkeypatch.setattr(tune, "with_resources", lambda *given: None)
    monkeypatch.setattr(tune, "Tuner", lambda *given, **more: None)

    def configs(config: Config) -> list[Config]:
        store = RunStore(tmp_path)
        records = [
            TrialRecord.open(variant, store.child(variant.slug), "", "", False)
            for variant in variants(config)[0]
        ]
        made = _Sweep(config, store, records, None, {}, ray.ObjectRef.nil())
        given.clear()
        made._tuner(TuneHooks(records, store), tmp_path)
        assert len(given) == len(records)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)  # as of Ray's workers
        return [configuration.from_dict(each["config"]) for each in given]

    return configs


def test_trials_know_of_the_cluster_that_their_driver_has_joined(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    given_to_trials: Callable[[Config], list[Config]],
) -> None:
    """Others may work there: those of several workers wait for room, in a process of Ray's."""
    for address in (None, "10.0.0.1:6379"):
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if address is not None:
            monkeypatch.setenv("RAY_ADDRESS", address)
        configs = given_to_trials(config)
        assert {each.cluster.running_address for each in configs} == {address}


def test_a_trial_is_of_one_seed(
    config: Config, given_to_trials: Callable[[Config], list[Config]]
) -> None:
    """The last one may be the greatest that there is."""
    last = {"train.seed": 2**31 - 3, "sweep.seeds": 3}
    configs = given_to_trials(configuration.with_changes(config, last))
    assert {each.train.seed for each in configs} == {2**31 - 3, 2**31 - 2, 2**31 - 1}


def given_in_the_end(
    config: Config, corpus: Corpus, project: Path, error: BaseException | None
) -> list[list[TrialResult]]:
    """What `on_end` hears of a sweep that raises an error, or none; without Ray."""
    given: list[list[TrialResult]] = []
    with (
        patch.object(tune_runner, "require_room"),
        patch.object(ray, "put"),
        pytest.raises(type(error)) if error else contextlib.nullcontext(),
    ):
        sweep(config, corpus, project, on_end=given.append)
    return given


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), OperationalError("full")])
def test_trials_that_have_ended_are_told_of_once_also_before_an_interruption(
    config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
) -> None:
    def train_all(self: _Sweep) -> None:
        causes = (None, INTERRUPTED) if error else [None] * len(self.records)
        for record, cause in zip(self.records, causes, strict=False):
            record.end("failed", cause, 0.0)
        if error is not None:
            raise error

    monkeypatch.setattr(_Sweep, "train_all", train_all)
    chosen = variants(config)[0]
    assert len(chosen) > 2
    (ended,) = given_in_the_end(config, tiny_corpus, tmp_path, error)
    assert [result.variant for result in ended] == (chosen[:1] if error else chosen)


def test_of_a_bucket_that_falls_silent_what_has_come_is_recorded(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interruption, which does not wait for the rest."""
    chosen, silent = variants(config)[0], threading.Event()
    result, error = TrialRecord.result, KeyboardInterrupt()

    def train_all(self: _Sweep) -> None:
        for record in self.records:
            record.end("failed", None, 0.0)
        raise error

    def one(self: TrialRecord) -> TrialResult:
        if self.variant == chosen[1]:
            silent.wait(60)
        return result(self)

    monkeypatch.setattr(_Sweep, "train_all", train_all)
    monkeypatch.setattr(TrialRecord, "result", one)
    monkeypatch.setattr(RunStore, "last_answer_seconds", 0.5)
    given = given_in_the_end(config, tiny_corpus, tmp_path, error)
    silent.set()
    assert [[each.variant for each in ended] for ended in given] == [chosen[:1]]


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers", "idle"),
    [
        (8, 1, 1, 0),
        (16, 1, 1, 4),  # of the CPUs half as many fit
        (8, 0.25, 1, 6),  # four of a machine share one
        (2, 0.25, 1, 0),
        (32, 0.5, 1, 6),
        (8, 1, 3, 2),
        (8, 0, 1, 8),
    ],
)
def test_gpus_that_no_trial_takes_are_told_of(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    cpus: int,
    gpus: float,
    workers: int,
    idle: int,
) -> None:
    monkeypatch.setattr(session, "nodes", lambda: [session.Node(32, 4), session.Node(32, 4)])
    asked = dataclasses.replace(
        config.sweep, cpus_per_trial=cpus, gpus_per_trial=gpus, workers_per_trial=workers
    )
    told = tune_runner.idle_gpus(asked)
    assert told is None if not idle else str(told).startswith(f"{idle} of the cluster's 8 GPUs")


def test_who_has_lost_the_sweep_to_another_driver_makes_nothing_final(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_runner, "require_room", lambda config: None)
    monkeypatch.setattr(ray, "put", lambda value: None)
    monkeypatch.setattr(_Sweep, "train_all", lambda self: None)
    monkeypatch.setattr(_Sweep, "score_all", lambda self: None)
    settled: list[TrialRecord] = []
    monkeypatch.setattr(TrialRecord, "settle", settled.append)
    monkeypatch.setattr(RunStore, "check_lease", Mock(side_effect=LeaseLostError("taken over")))
    with pytest.raises(LeaseLostError, match="taken over"):
        sweep(config, tiny_corpus, tmp_path)
    assert settled == []


def test_what_scoring_raises_is_raised(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = configuration.with_changes(config, {"sweep.space": {}, "sweep.base": {}})
    # A try of a learning rate, which may be the final training too, under another name: what is not
    # to be scored is scored only when it is asked for, and not trained again.
    (base,), _ = variants(alone)
    listener = Listener()
    [result] = run_sweep(
        alone,
        [dataclasses.replace(base, variant="tried", scored=False)],
        encoded=tiny_corpus.encoded,
        project=project,
        name="sweep",
        score=scoring.score,
        final=True,
        on_trial=listener,
    )
    assert result.status == "finished"
    assert result.metrics["valid_perplexity"] > 1
    assert "bleu" not in result.metrics
    assert "scored" not in listener.of("base")
    assert "result" in listener.of("base")
    assert result.journal.parent.name.startswith("tried-")
    listener = Listener()
    with pytest.raises(UserError, match=r"^data/clean/valid\.source\.txt is missing$"):
        sweep(alone, tiny_corpus, project, scoring.refuse, listener, final=True)
    assert "result" not in listener.of("base")
    with pytest.raises(OperationalError, match=r"^base: no space left in .*`dvc repro` again to"):
        sweep(alone, tiny_corpus, project, scoring.no_room)
    capsys.readouterr()
    # A model that has diverged, or a bug in scoring, costs that score, not the sweep.
    [result], _ = sweep(alone, tiny_corpus, project, scoring.diverged)
    assert (result.status, result.cause) == ("finished", f"not scored: UserError: {NO_NUMBERS}")
    assert result.journal.parent.name.startswith("tried-")
    capsys.readouterr()
    [result], listener = sweep(alone, tiny_corpus, project, scoring.crash)
    log = result.journal.with_name("scoring.failure.log")
    assert capsys.readouterr().out.splitlines() == [
        f"base: not scored (ZeroDivisionError: no sentences; stack traces are in {log})"
    ]
    assert ", in crash\n" in log.read_text()
    assert result.status == "finished"
    assert result.cause == "not scored: ZeroDivisionError: no sentences"
    assert "scored" not in [event for event, _, _ in listener.heard]
    # It is made up for by the next sweep, but not where others were proposed without it.
    for score, final, bleu in (
        (scoring.crash, True, None),
        (scoring.score, True, None),
        (scoring.score, False, 12.0),
        (scoring.crash, True, 12.0),
    ):
        [result], listener = sweep(alone, tiny_corpus, project, score, final=final)
        assert result.metrics.get("bleu") == bleu
        assert result.cause == (None if bleu else "not scored: ZeroDivisionError: no sentences")
        told = ["started", "finished", *(["scored"] if bleu else [])]
        assert listener.of("base") == told


def test_a_trial_is_scored_while_the_last_ones_still_train(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last one has no end before."""
    two = configuration.with_changes(
        config,
        {
            "sweep.base": {"train.steps": 4},
            "sweep.space": {"train.steps": [8]},
            "sweep.scheduler": "none",
            "sweep.max_failures": 0,
            "sweep.cpus_per_trial": 1,
        },
    )
    monkeypatch.setattr(tune_runner, "run_trial", trials.last_waits_for_score)
    ended: list[int] = []
    seen: list[bool] = []

    def hear(event: str, variant: Variant, figures: dict[str, Any]) -> None:
        if event == "finished":
            ended.append(variant.config.train.steps)
            if ended == [4, 8]:
                (folder,) = (project / "runs/sweep/trials").glob("base-*")
                seen.append((folder / "scored.txt").exists())
        elif event == "scored":
            assert len(ended) == 2, "what it finds is told when all are trained"

    chosen, _ = variants(two)
    results = run_sweep(
        two,
        chosen,
        encoded=tiny_corpus.encoded,
        project=project,
        name="sweep",
        score=scoring.score,
        on_trial=hear,
    )
    assert seen == [True]
    assert [result.metrics["bleu"] for result in results] == [4.0, 8.0]


def test_a_cluster_answers_for_its_own_processors(
    cluster: None, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver's processor would say otherwise."""
    theirs = choose_precision("auto", torch.device("cpu"), 512)
    opposite = {} if theirs == "bf16" else {"amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: opposite)
    assert resolve(tiny_config, 512) != theirs
    there = configuration.with_changes(tiny_config, {"cluster.address": "auto"})
    assert resolve(there, 512) == theirs


def test_a_trial_that_fits_nowhere_is_an_error_at_once(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    for changes in ({"sweep.cpus_per_trial": 3}, {"sweep.gpus_per_trial": 0.5}):
        large = configuration.with_changes(config, changes)
        with pytest.raises(UserError, match=r"sweep\.cpus_per_trial.*1 node of 2 CPUs, 0 GPUs"):
            sweep(large, tiny_corpus, project)
    assert not (project / "runs").exists()
