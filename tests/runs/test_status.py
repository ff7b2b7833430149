"""What a run's folder holds and should hold, whatever happened to it."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import Failure
from seq2sweep.runs import layout
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, interrupted_name
from seq2sweep.runs.retention import always_kept
from seq2sweep.runs.status import look, reached
from seq2sweep.storage import locks
from seq2sweep.train import checkpointing
from tests.cluster.checkpoints import damage, save
from tests.runs.test_async_writer import _hold


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Of nine hundred steps; the newest five checkpoints are kept."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 900,
            "train.validate_every": 100,
            "train.checkpoint_every": 100,
            "train.keep_checkpoints": 5,
        },
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a run of `config` that has finished."""
    for step in range(500, 901, 100):
        save(tmp_path / checkpoint_name(step), step)
    entry = {"kind": "finished", "step": 900, "time": 0.0, "workers": 2}
    (tmp_path / JOURNAL_NAME).write_text(json.dumps(entry) + "\n")
    return tmp_path


def names(paths: list[Path]) -> list[int]:
    return [layout.checkpoint_step(path) for path in paths]


@pytest.mark.parametrize(
    ("changes", "named", "expected"),
    [
        ({}, [], {500, 600, 700, 800, 900}),
        ({"train.steps": 850}, [], {500, 600, 700, 800, 850}),
        ({"train.steps": 300}, [], {100, 200, 300}),
        ({"train.keep_checkpoints": 1, "train.keep_every": 400}, [], {400, 800, 900}),
        ({"train.keep_checkpoints": 1, "train.keep_best": 1}, [200], {200, 900}),
    ],
)
def test_what_is_kept_whatever_the_losses(
    config: Config, changes: dict[str, Any], named: list[int], expected: set[int]
) -> None:
    changes = {"evaluate.average_checkpoints": 1, **changes}
    changed = configuration.with_changes(config, changes)
    assert always_kept(changed.train, named) == expected


def test_a_finished_run(config: Config, folder: Path) -> None:
    save(folder / checkpoint_name(400), 400)  # killed before it was removed
    found = look(config, folder)
    assert names(found.checkpoints) == [500, 600, 700, 800, 900]
    assert (found.summary, found.lost, found.reached) == ({"step": 900, "workers": 2}, None, 900)


def test_one_of_those_to_average_was_lost(
    config: Config, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps to it are done again, and no others; nothing that is whole is lost meanwhile."""
    for step in (600, 800):
        damage(folder / checkpoint_name(step))
    found = look(config, folder)
    assert names(found.checkpoints) == [500, 700, 900]
    assert (found.lost, found.reached) == (600, 500)
    assert capsys.readouterr().out.count("differs from its manifest: it is torn") == 2
    save(folder / interrupted_name(550), 550)
    found = look(config, folder)
    assert (found.lost, found.reached) == (600, 550)
    assert reached(folder, 600) == 550
    assert reached(folder) == 900
    save(folder / checkpoint_name(600), 600)
    found = look(config, folder)
    assert (found.lost, found.reached) == (800, 700)
    # Of a run that is wanted for its newest one only, none is missed.
    assert look(config, folder, 900).lost is None


def test_one_that_was_named_after_the_end(config: Config, folder: Path) -> None:
    named = configuration.with_changes(
        config, {"train.keep_best": 1, "evaluate.checkpoint_steps": [200]}
    )
    found = look(named, folder)
    assert (found.lost, found.reached) == (200, 0)
    save(folder / checkpoint_name(200), 200)
    assert look(named, folder).lost is None
    assert names(look(named, folder).checkpoints) == [200, 500, 600, 700, 800, 900]


def test_before_the_end_none_is_missed(config: Config, folder: Path) -> None:
    (folder / JOURNAL_NAME).unlink()
    shutil.rmtree(folder / checkpoint_name(600))
    found = look(config, folder)
    assert (found.summary, found.lost, found.reached) == (None, None, 900)


# --- storage that fails ---------------------------------------------------------------------------


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)


def test_an_error_of_the_storage_is_waited_out(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, no_pauses: None
) -> None:
    """Whichever checkpoint it hits."""
    damage(folder / checkpoint_name(600))
    verify, failed = checkpointing.verify, set[Path]()

    def fail_once(path: Path) -> None:
        if path not in failed:
            failed.add(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        verify(path)

    monkeypatch.setattr(checkpointing, "verify", fail_once)
    found = look(config, folder)
    assert names(found.checkpoints) == [500, 700, 800, 900]
    assert len(failed) == 5


def test_storage_that_stays_away_is_one_line(config: Config, folder: Path, no_pauses: None) -> None:
    shutil.rmtree(folder)
    for work in (lambda: look(config, folder), lambda: reached(folder)):
        with pytest.raises(Failure, match=r"cannot be used \(No such file.*fix the storage"):
            work()


def test_a_worker_that_still_writes_is_waited_for(
    config: Config,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a driver that was killed: what it does to the folder is no damage."""
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    worker = context.Process(target=_hold, args=(folder, locks.only_writer, held))
    worker.start()
    assert held.wait(60)
    damage(folder / checkpoint_name(900))
    monkeypatch.setattr(locks, "OLD_WRITER_SECONDS", 0.5)
    with pytest.raises(Failure, match=r"another worker holds .*writer\.lock"):
        look(config, folder)
    assert (folder / checkpoint_name(900)).exists()
    worker.kill()
    worker.join()
    assert look(config, folder).lost == 900
    assert not (folder / checkpoint_name(900)).exists()


def test_hashing(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of a finished run is read once."""
    read: list[Path] = []
    sha256 = checkpointing.sha256
    monkeypatch.setattr(checkpointing, "sha256", lambda path: (read.append(path), sha256(path))[1])
    assert look(config, folder).lost is None
    assert len(read) == len(set(read)) == 5 * len(checkpointing.FILES)
    # Of one that goes on the newest is enough.
    (folder / JOURNAL_NAME).unlink()
    read.clear()
    assert look(config, folder, again=True).reached == 900
    assert {path.parent.name for path in read} == {checkpoint_name(900)}
