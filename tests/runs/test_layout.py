"""Which checkpoints are kept, and that no kill and no stop makes a difference to it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import math
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import layout
from seq2sweep.runs.layout import (
    Retention,
    best,
    checkpoint_name,
    checkpoint_step,
    checkpoints,
    interrupted_name,
    newest_checkpoint,
    remove_damaged,
    resume_point,
)
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Interrupted
from seq2sweep.train.loop import train
from tests.cluster.checkpoints import save, whole_checkpoints
from tests.conftest import Corpus

BASE = presets.load("phrasebook").config.train


def rule(newest: int, best: int = 0, every: int = 0, named: Collection[int] = ()) -> Retention:
    settings = dataclasses.replace(BASE, keep_checkpoints=newest, keep_best=best, keep_every=every)
    return Retention(settings, named)


def steps(folder: Path) -> list[int]:
    return sorted(checkpoint_step(path) for path in folder.glob("step-*"))


def prune(folder: Path, retention: Retention) -> None:
    """As whoever has looked for the newest whole one does."""
    newest = resume_point(folder)
    assert newest is not None
    layout.prune(folder, retention, newest)


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (rule(1), [50]),
        (rule(2), [40, 50]),
        (rule(9), [10, 20, 30, 40, 50]),
        (rule(1, best=1), [30, 50]),
        (rule(1, best=2), [20, 30, 50]),
        (rule(1, best=9), [10, 20, 30, 50]),
        (rule(1, every=20), [20, 40, 50]),
        (rule(1, named=(10, 15)), [10, 50]),
        (rule(1, best=1, every=20, named=(10,)), [10, 20, 30, 40, 50]),
    ],
)
def test_the_newest_the_best_every_nth_and_the_named_are_kept(
    retention: Retention, kept: list[int]
) -> None:
    losses = {10: 3.0, 20: 2.0, 30: 1.0, 40: None, 50: None}
    assert sorted(retention.kept(losses)) == kept
    assert retention.kept({}) == set()


@given(
    retention=st.builds(
        rule,
        newest=st.integers(1, 4),
        best=st.integers(0, 3),
        every=st.sampled_from([0, 10, 20, 30]),
        named=st.sets(st.sampled_from([10, 15, 30, 40, 70])),
    ),
    steps=st.integers(1, 95),
    losses=st.lists(st.integers(0, 9), min_size=10, max_size=10),
)
def test_no_more_are_kept_at_once_than_it_says(
    retention: Retention, steps: int, losses: list[float]
) -> None:
    settings = dataclasses.replace(retention.settings, steps=steps, checkpoint_every=10)
    retention = dataclasses.replace(retention, settings=settings)
    made = [*range(10, steps, 10), steps]
    for count in range(1, len(made) + 1):
        known = dict(zip(made[:count], losses, strict=False))
        assert len(retention.kept(known)) <= retention.most()
    assert retention.always() == retention.kept(dict.fromkeys(made))
    best_elsewhere = len(retention.always()) + settings.keep_best
    assert retention.most() == min(len(made), best_elsewhere)


def test_what_is_kept_is_known_without_a_list_of_all_steps() -> None:
    """As of a training until somebody stops it; this one would take ten megabytes."""
    settings = rule(newest=2, best=1, every=0, named=()).settings
    settings = dataclasses.replace(settings, steps=10**7, checkpoint_every=100)
    tracemalloc.start()
    kept = Retention(settings, (200, 250)).always()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept == {200, 10**7 - 100, 10**7}
    assert peak < 100_000


def test_of_equals_the_newer_is_better() -> None:
    assert best({10: 1.0, 20: 1.0, 30: 2.0, 40: 1.0}, 2) == [40, 20]
    assert best({10: 1.0}, 0) == []


@pytest.mark.parametrize("loss", [math.nan, math.inf, None])
def test_a_loss_that_is_no_number_or_of_another_step_is_not_known(
    tmp_path: Path, loss: float | None
) -> None:
    save(tmp_path / "bad", 4, loss)
    assert checkpointing.read_progress(tmp_path / "bad").valid_loss is None
    save(tmp_path / "good", 4, 1.5)
    assert checkpointing.read_progress(tmp_path / "good").valid_loss == 1.5


# --- on disk -------------------------------------------------------------------------------------


def test_it_is_there_or_not_and_what_a_kill_left_goes_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (4, 8, 12):
        save(tmp_path / checkpoint_name(step), step)
    save(tmp_path / interrupted_name(10), 10)
    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(Killed):
        prune(tmp_path, rule(1))
    assert steps(tmp_path) == [8, 12]
    assert (tmp_path / ".step-00000004.removed").exists()
    monkeypatch.undo()
    prune(tmp_path, rule(1))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_name(12)]


def test_of_a_checkpoint_on_another_disk_the_link_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody made room by it, and training must not end for that."""
    run, larger = tmp_path / "run", tmp_path / "larger"
    run.mkdir()
    for step in (4, 8):
        save(larger / str(step), step)
        (run / checkpoint_name(step)).symlink_to(larger / str(step))
    save(run / checkpoint_name(12), 12)
    (run / ".step-00000002.removed").symlink_to(larger / "8")
    prune(run, rule(2))
    assert steps(run) == [8, 12]
    assert sorted(path.name for path in run.iterdir()) == [checkpoint_name(8), checkpoint_name(12)]
    assert {path.name for path in larger.iterdir()} == {"4", "8"}
    gone = f"{run}/{checkpoint_name(4)} is not needed any more: removed, but not {larger}/4\n"
    assert capsys.readouterr().out == gone
    # Nor is it trained again what is on a disk that is only not there yet.
    larger.rename(tmp_path / "not mounted")
    with pytest.raises(UserError, match=f"leads to {larger}/8, which is not there: mount"):
        remove_damaged(run)
    (tmp_path / "not mounted").rename(larger)
    assert remove_damaged(run) == [run / checkpoint_name(8), run / checkpoint_name(12)]


@pytest.mark.parametrize("left", [errno.ENOTEMPTY, errno.EBUSY, errno.EACCES])
def test_what_nfs_keeps_for_a_reader_is_left_to_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    for step in (4, 8):
        save(tmp_path / checkpoint_name(step), step)
    monkeypatch.setattr("shutil.rmtree", Mock(side_effect=OSError(left, os.strerror(left))))
    with contextlib.nullcontext() if left != errno.EACCES else pytest.raises(OSError, match="ermi"):
        prune(tmp_path, rule(1))
    assert steps(tmp_path) == [8]
    monkeypatch.undo()
    prune(tmp_path, rule(1))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_name(8)]


@pytest.mark.parametrize("damaged", ["model.safetensors", "state.json", "manifest.json"])
def test_the_newest_whole_one_stays_whatever_is_newer(tmp_path: Path, damaged: str) -> None:
    for step in (4, 8, 12, 16):
        save(tmp_path / checkpoint_name(step), step, loss=100 - step)
    for step in (12, 16):
        (tmp_path / checkpoint_name(step) / damaged).write_bytes(b"{")
    prune(tmp_path, rule(2, best=1))
    assert resume_point(tmp_path) == tmp_path / checkpoint_name(8)
    assert steps(tmp_path) == [4, 8, 12, 16]
    # Training goes on from there, and writes them again.
    for step in (12, 16):
        save(tmp_path / checkpoint_name(step), step, loss=100 - step)
        prune(tmp_path, rule(2, best=1))
    assert steps(tmp_path) == [12, 16]


def test_storage_that_cannot_be_read_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, loss in ((4, 1.0), (8, 2.0), (12, 3.0)):
        save(tmp_path / checkpoint_name(step), step, loss)
    read_bytes = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == "state.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Input/output error"):
        prune(tmp_path, rule(1, best=1))
    assert steps(tmp_path) == [4, 8, 12]
    monkeypatch.undo()
    prune(tmp_path, rule(1, best=1))
    assert steps(tmp_path) == [4, 12]


def test_a_run_on_a_disk_that_is_not_mounted_does_not_begin_anew(
    tmp_path: Path, tiny_config: Config
) -> None:
    settings = dataclasses.replace(tiny_config.cluster, storage="runs")
    disk = tmp_path / "disk" / "large"
    (tmp_path / "runs").symlink_to(disk)
    with pytest.raises(UserError, match=f"runs leads to {disk}, which is not there: mount"):
        layout.run_folder(settings, tmp_path, "train-x")
    disk.mkdir(parents=True)
    assert layout.run_folder(settings, tmp_path, "train-x") == disk / "train-x"
    (disk / "train-x").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="train-x leads to"):
        layout.run_folder(settings, tmp_path, "train-x")


def test_a_folder_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    for look in (resume_point, newest_checkpoint, checkpoints):
        assert not look(tmp_path)
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        layout.prune(tmp_path / "gone", rule(1), tmp_path / "gone" / checkpoint_name(4))


def test_a_copy_that_the_user_made_is_no_checkpoint(tmp_path: Path) -> None:
    saved = save(tmp_path / checkpoint_name(4), 4)
    for copy in ("step-00000008.bak", "step-9", "interrupted-00000008 (copy)"):
        save(tmp_path / copy, 8)
    assert checkpoints(tmp_path) == [saved]
    prune(tmp_path, rule(1))
    assert len(list(tmp_path.iterdir())) == 4


def test_what_an_interruption_left_stays_until_training_has_got_further(tmp_path: Path) -> None:
    save(tmp_path / checkpoint_name(8), 8)
    saved = save(tmp_path / interrupted_name(9), 9)
    prune(tmp_path, rule(1))
    assert resume_point(tmp_path) == saved
    assert steps(tmp_path) == [8]
    save(tmp_path / checkpoint_name(12), 12)
    prune(tmp_path, rule(1))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_name(12)]


# --- kills ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for SIGKILL: nothing that would tidy up catches it and gets anything done."""


def killed(*arguments: Any, **options: Any) -> Any:
    raise Killed


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training does: its losses by step of its checkpoints, and what is kept."""

    losses: dict[int, float]
    retention: Retention

    def live(self, folder: Path, stop: int = 0) -> None:
        """As a worker does, from where the folder stands to the end, or saving at step `stop`."""
        newest = resume_point(folder)
        done = checkpoint_step(newest) if newest else 0
        for step in range(done + 1, max(self.losses) + 1):
            if step in self.losses:
                save(folder / checkpoint_name(step), step, self.losses[step])
                prune(folder, self.retention)
            if step == stop and step < max(self.losses):
                save(folder / interrupted_name(step), step)
                return
        prune(folder, self.retention)  # as the driver does in the end

    def live_until(self, folder: Path, operations: int, stop: int) -> None:
        """`live`, killed before so many changes of the file system are made."""
        left = itertools.count(operations, -1)

        def mortal(change: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*arguments: Any, **options: Any) -> Any:
                if next(left) <= 0:
                    raise Killed
                return change(*arguments, **options)

            return changed

        with pytest.MonkeyPatch.context() as patch:
            for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
                patch.setattr(os, name, mortal(getattr(os, name)))
            with contextlib.suppress(Killed):
                self.live(folder, stop)

    def kept(self) -> list[int]:
        """Step by step what the rule says."""
        order = sorted(self.losses)
        settings = self.retention.settings

        def rank(step: int) -> int:
            own = self.losses[step]
            return sum(
                loss < own or (loss == own and other > step)
                for other, loss in self.losses.items()
                if math.isfinite(loss)
            )

        return [
            step
            for step in order
            if step in order[-settings.keep_checkpoints :]
            or (math.isfinite(self.losses[step]) and rank(step) < settings.keep_best)
            or (settings.keep_every and step % settings.keep_every == 0)
            or step in self.retention.named
        ]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """The last step may be off the grid of checkpoints; few losses, for many to be equal."""
    every = draw(st.integers(1, 4))
    last = draw(st.integers(1, 8 * every))
    order = sorted({*range(every, last + 1, every), last})
    loss = st.sampled_from([1.0, 2.0, 3.0, 4.0, math.nan, math.inf])
    drawn = draw(st.lists(loss, min_size=len(order), max_size=len(order)))
    retention = rule(
        newest=draw(st.integers(1, 4)),
        best=draw(st.integers(0, 3)),
        every=every * draw(st.integers(0, 3)),
        named=draw(st.frozensets(st.integers(1, last), max_size=2)),
    )
    losses = dict(zip(order, drawn, strict=True))
    return Run(losses, retention)


@hypothesis.settings(max_examples=100)
@given(
    run=runs(),
    lives=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=6),
)
def test_any_kills_and_stops_leave_the_same_set(run: Run, lives: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, reached = Path(name), 0
        for operations, stop in lives:
            run.live_until(folder, operations, stop)
            newest = resume_point(folder)
            now = checkpoint_step(newest) if newest else 0
            assert now >= reached, "a kill lost what was there to go on from"
            assert len(whole_checkpoints(folder)) == len(steps(folder))
            reached = now
        run.live(folder)
        assert steps(folder) == run.kept()
        assert not [p for p in folder.iterdir() if p.name.endswith(".removed")]
        assert not list(folder.glob("interrupted-*"))


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 18,
            "train.validate_every": 2,
            "train.checkpoint_every": 4,
            "train.keep_checkpoints": 1,
            "train.keep_best": 2,
            "train.keep_every": 8,
            "evaluate.average_checkpoints": 1,
            "evaluate.checkpoint_steps": [4],
            # Its steps are too long to learn with: the losses go up and down.
            "train.learning_rate_scale": 30,
            "train.warmup_steps": 1,
        },
    )


def go_on(config: Config, encoded: Path, folder: Path, updates: int = 0) -> None:
    """As a training worker does, to the end or for so many updates."""
    folder.mkdir(exist_ok=True)
    remove_damaged(folder)
    count = itertools.count(1)
    for event in train(
        config,
        encoded,
        device=torch.device("cpu"),
        resume=resume_point(folder),
        stop=lambda: next(count) == updates,
    ):
        if isinstance(event, Interrupted):
            event.capture().write(folder / interrupted_name(event.step))
        if isinstance(event, CheckpointDue):
            event.capture().write(folder / checkpoint_name(event.step))
            prune(folder, Retention.of(config))


def test_a_run_that_is_stopped_keeps_what_an_undisturbed_one_does(
    config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    every = dataclasses.replace(config, train=dataclasses.replace(config.train, keep_every=4))
    go_on(every, tiny_corpus.encoded, tmp_path / "every")
    losses = {
        checkpoint_step(path): checkpointing.read_progress(path).valid_loss
        for path in whole_checkpoints(tmp_path / "every")
    }
    assert list(losses) == [4, 8, 12, 16, 18]
    assert None not in losses.values()
    go_on(config, tiny_corpus.encoded, tmp_path / "whole")
    kept = [checkpoint_name(step) for step in sorted({4, 8, 16, 18, *best(losses, 2)})]
    assert [path.name for path in whole_checkpoints(tmp_path / "whole")] == kept
    for updates in (3, 7):  # steps of a checkpoint and others
        folder = tmp_path / str(updates)
        for _ in range(18 // updates):
            go_on(config, tiny_corpus.encoded, folder, updates)
        go_on(config, tiny_corpus.encoded, folder)
        assert [path.name for path in whole_checkpoints(folder)] == kept
        for name in kept:
            found, expected = (
                load_file(place / name / "model.safetensors")
                for place in (folder, tmp_path / "whole")
            )
            assert all(torch.equal(found[key], expected[key]) for key in expected)
