"""What a run's folder holds and should hold, whatever happened to it."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from unittest.mock import Mock

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.runs import layout, run_store
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    Retention,
    checkpoint_name,
    checkpoints,
    interrupted_name,
)
from seq2sweep.runs.run_store import RunStore, whole_checkpoints
from seq2sweep.runs.watchdog import HANG_LOG_NAME
from seq2sweep.storage import locks
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Finished
from tests.cluster.checkpoints import damage, save
from tests.storage.test_locks import hold_lock


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


def store(folder: Path, config: Config) -> RunStore:
    return RunStore(folder, retention=Retention.of(config))


def names(paths: list[Path]) -> list[int]:
    return [layout.checkpoint_step(path) for path in paths]


def test_a_finished_run(config: Config, folder: Path) -> None:
    save(folder / checkpoint_name(400), 400)  # killed before it was removed
    found = store(folder, config).status()
    assert names(found.checkpoints) == [500, 600, 700, 800, 900]
    assert (found.summary, found.finished, found.step) == (
        {"step": 900, "workers": 2},
        True,
        900,
    )


def test_a_damaged_one_is_removed_and_what_is_missing_is_named(
    config: Config, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mean over other checkpoints would be another number: nobody takes it silently."""
    for step in (600, 800):
        damage(folder / checkpoint_name(step))
    found = store(folder, config).status()
    assert names(found.checkpoints) == [500, 700, 900]
    assert found.finished
    assert capsys.readouterr().out.count("differs from its manifest: it is truncated") == 2
    with pytest.raises(UserError, match=r"/step-00000600 is missing.*train these steps again"):
        store(folder, config).check_kept(found)
    for step in (600, 800):
        save(folder / checkpoint_name(step), step)
    store(folder, config).check_kept(store(folder, config).status())


LOSSES = {100: 4.0, 200: 2.0, 300: 1.0, 400: 3.0, 500: 2.5, 600: None, 700: 2.0, 800: 9.0, 900: 9.0}


@pytest.fixture
def best_kept(config: Config, tmp_path: Path) -> Config:
    """Of a finished run in `tmp_path` that keeps the newest and the two of lowest loss.

    Step 300 was trained again after an interruption, on other devices: its checkpoint has another
    loss than the journal.
    """
    kept = {"train.keep_checkpoints": 1, "train.keep_best": 2, "evaluate.average_checkpoints": 1}
    changed = configuration.with_changes(config, kept)
    lines = [
        json.dumps({"kind": "validated", "step": step, "valid_loss": loss}) + "\n"
        for step, loss in LOSSES.items()
    ]
    for step, loss in (LOSSES | {300: 2.25}).items():
        with (tmp_path / JOURNAL_NAME).open("a") as stream:
            stream.write(lines.pop(0))
        store(tmp_path, changed).prune(save(tmp_path / checkpoint_name(step), step, loss))
    with (tmp_path / JOURNAL_NAME).open("a") as stream:
        stream.write('{"kind": "finished", "step": 900}\n')
    return changed


def test_what_pruning_leaves_is_all_that_a_finished_run_needs(
    best_kept: Config, tmp_path: Path
) -> None:
    found = store(tmp_path, best_kept).status()
    assert names(found.checkpoints) == [300, 700, 900]  # of equals the newer is better
    store(tmp_path, best_kept).check_kept(found)
    # Of a line that a user has removed, as it was damaged, the checkpoint has the loss.
    journal, line = tmp_path / JOURNAL_NAME, '{"kind": "validated", "step": 700, "valid_loss": 2.0}'
    journal.write_text(journal.read_text().replace(f"{line}\n", ""))
    store(tmp_path, best_kept).check_kept(store(tmp_path, best_kept).status())


@pytest.mark.parametrize("step", [300, 700])
def test_one_of_lowest_loss_that_is_lost_is_named(
    best_kept: Config, tmp_path: Path, step: int
) -> None:
    """Nobody takes the next best silently."""
    damage(tmp_path / checkpoint_name(step))
    found = store(tmp_path, best_kept).status()
    assert found.finished
    with pytest.raises(UserError, match=rf"/step-00000{step} is missing.*train these steps again"):
        store(tmp_path, best_kept).check_kept(found)


def test_without_its_last_checkpoint_a_run_resumes(config: Config, folder: Path) -> None:
    damage(folder / checkpoint_name(900))
    found = store(folder, config).status()
    assert (found.finished, found.step) == (False, 800)
    save(folder / interrupted_name(900), 900)  # is none that every run has
    assert not store(folder, config).status().finished


def test_a_run_that_is_trained_again_has_the_summary_of_that(config: Config, folder: Path) -> None:
    """On other workers, say: metrics, receipt and record are of the weights that are there."""
    shutil.rmtree(folder / checkpoint_name(900))
    with contextlib.closing(Journal(folder / JOURNAL_NAME)) as journal:
        journal.append(CheckpointDue(900, {"workers": 1}, pytest.fail))
        save(folder / checkpoint_name(900), 900)
        assert not store(folder, config).status().finished, "killed before it has ended again"
        journal.append(Finished(900, {"step": 900, "workers": 1}))
    found = store(folder, config).status()
    assert (found.finished, found.summary) == (True, {"step": 900, "workers": 1})


def test_one_that_was_named_after_the_end(config: Config, folder: Path) -> None:
    named = configuration.with_changes(
        config, {"train.keep_best": 1, "evaluate.checkpoint_steps": [200]}
    )
    with pytest.raises(UserError, match="step-00000200 is missing"):
        store(folder, named).check_kept(store(folder, named).status())
    save(folder / checkpoint_name(200), 200)
    found = store(folder, named).status()
    store(folder, named).check_kept(found)
    assert names(found.checkpoints) == [200, 500, 600, 700, 800, 900]


def test_settings_that_are_refused_remove_nothing(config: Config, folder: Path) -> None:
    """Else those before would be refused as well."""

    def naming(step: int) -> RunStore:
        changes = {"train.keep_best": 1, "evaluate.checkpoint_steps": [step]}
        return store(folder, configuration.with_changes(config, changes))

    save(folder / checkpoint_name(200), 200)
    with pytest.raises(UserError, match="step-00000300 is missing"):
        naming(300).check_kept(naming(300).status())
    naming(200).check_kept(naming(200).status())


@pytest.mark.parametrize(
    ("changes", "missed", "key"),
    [
        ({}, None, ""),
        ({"train.keep_best": 1}, None, ""),
        ({"train.steps": 2000, "train.keep_every": 800}, None, ""),
        ({"train.keep_checkpoints": 7, "train.keep_every": 600}, 300, "train.keep_checkpoints"),
        ({"train.keep_every": 200, "evaluate.checkpoint_steps": [200]}, 200, "train.keep_every"),
        (
            {"train.keep_best": 1, "evaluate.checkpoint_steps": [100, 800]},
            100,
            "evaluate.checkpoint_steps",
        ),
    ],
)
def test_before_the_end_only_what_it_would_lack_then_is_missed(
    config: Config, folder: Path, changes: dict[str, Any], missed: int | None, key: str
) -> None:
    (folder / JOURNAL_NAME).unlink()
    shutil.rmtree(folder / checkpoint_name(900))
    changed = configuration.with_changes(config, changes | {"evaluate.average_checkpoints": 1})
    resumed = store(folder, changed)
    found = resumed.status()
    assert (found.summary, found.finished, found.step) == ({}, False, 800)
    if missed is None:
        resumed.check_kept(found)
    else:
        said = f"{checkpoint_name(missed)} is missing, and {key} keeps it: .*, change {key}, or"
        with pytest.raises(UserError, match=said):
            resumed.check_kept(found)


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
    found = store(folder, config).status()
    assert names(found.checkpoints) == [500, 700, 800, 900]
    assert len(failed) == 5


def test_storage_that_stays_away_is_one_line(config: Config, folder: Path, no_pauses: None) -> None:
    shutil.rmtree(folder)
    for work in (store(folder, config).status, store(folder, config).step):
        with pytest.raises(
            OperationalError, match=r"cannot be used \(No such file.*fix the storage"
        ):
            work()


@pytest.mark.parametrize("named", [True, False])
def test_the_disk_that_is_full_is_named(config: Config, folder: Path, named: bool) -> None:
    """Of a run in a bucket it is one of this machine."""
    run = store(folder, config)
    run.location = "s3://bucket/run"
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *(["/small/journal"] * named))
    place = "/small/journal" if named else folder
    with pytest.raises(OperationalError, match=f"^no space left in {place}: free some, and run"):
        run.retried(Mock(side_effect=full))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (None, "no space left in {} ("),
        ("{}/step-00000900/model.safetensors", "no space left in {} ("),
        ("step-00000900", "no space left in {} ("),
        (
            f"{gettempdir()}/x/valid.json",
            f"no space left in {gettempdir()}/x/valid.json: free some, or set TMPDIR",
        ),
        ("/home/x/.cache/y", "no space left in /home/x/.cache/y: free some"),
    ],
)
def test_of_a_full_disk_elsewhere_the_runs_own_is_not_told(
    tmp_path: Path, file: str | None, said: str
) -> None:
    """It may have terabytes free, and a sweep ended with that number."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file and file.format(tmp_path))
    told = RunStore(tmp_path).disk_full(full)
    assert told.startswith(said.format(tmp_path))
    assert ("TMPDIR" in told) is ("TMPDIR" in said)


def test_a_worker_that_still_writes_is_waited_for(
    config: Config,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a driver that was killed: what it does to the folder is no damage."""
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    worker = context.Process(target=hold_lock, args=(folder, locks.only_writer, held))
    worker.start()
    assert held.wait(60)
    damage(folder / checkpoint_name(900))
    monkeypatch.setattr(locks, "OLD_WRITER_SECONDS", 0.5)
    with pytest.raises(OperationalError, match=r"another worker holds .*writer\.lock"):
        store(folder, config).status()
    assert (folder / checkpoint_name(900)).exists()
    worker.kill()
    worker.join()
    assert not store(folder, config).status().finished
    assert not (folder / checkpoint_name(900)).exists()


def test_hashing(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of a finished run is read once."""
    read: list[Path] = []
    sha256 = checkpointing.sha256
    monkeypatch.setattr(checkpointing, "sha256", lambda path: (read.append(path), sha256(path))[1])
    assert store(folder, config).status().finished
    assert len(read) == len(set(read)) == 5 * len(checkpointing.FILES)
    # Of one that goes on the newest is enough.
    (folder / JOURNAL_NAME).unlink()
    read.clear()
    assert store(folder, config).status(newest_only=True).step == 900
    assert {path.parent.name for path in read} == {checkpoint_name(900)}


def test_a_stop_is_requested_of_one_attempt(tmp_path: Path) -> None:
    driver, worker, later = RunStore(tmp_path), RunStore(tmp_path, "1"), RunStore(tmp_path, "2")
    driver.begin_attempt("0")
    assert driver.request_stop()
    driver.end_attempt()
    assert driver.request_stop()
    assert list(tmp_path.glob("stop-*")) == [], "an attempt is asked once"
    driver.begin_attempt("1")
    assert driver.request_stop()
    worker.poll_seconds = 0.01
    with worker.writing():
        while not worker.stop_requested():
            time.sleep(0.01)
    later.poll()
    assert not later.stop_requested()
    driver.end_attempt()
    worker.poll()
    assert worker.stop_requested(), "what was asked for stays so"
    assert list(tmp_path.glob("stop-*")) == []


def test_stack_traces_of_workers_that_hung(tmp_path: Path) -> None:
    run = RunStore(tmp_path)
    logs = [tmp_path / HANG_LOG_NAME.format(rank=rank) for rank in (0, 1)]
    logs[0].touch()
    logs[1].write_text("Timeout!")
    assert run.stack_traces(lambda *about: []) == [logs[1]]
    run.begin_attempt("2")
    assert run.stack_traces(lambda *about: []) == []
    assert (tmp_path / "hang-1.1.log").read_text() == "Timeout!"
    assert not logs[0].exists()


def test_checkpoints_are_verified_together_and_told_of_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first is read until the third is; how much there is to read is said where it is much."""
    names = [checkpoint_name(step) for step in (4, 8, 12)]
    for step, name in zip((4, 8, 12), names, strict=True):
        save(tmp_path / name, step)
    last, verify = threading.Event(), checkpointing.verify

    def slowly(path: Path) -> None:
        if path.name == names[0]:
            assert last.wait(60)
        verify(path)
        if path.name == names[2]:
            last.set()

    monkeypatch.setattr(checkpointing, "verify", slowly)
    assert whole_checkpoints(tmp_path) == [tmp_path / name for name in names]
    assert capsys.readouterr().out == ""
    for name in (names[0], names[2]):
        (tmp_path / name / "state.json").write_bytes(b"{")
    monkeypatch.setattr(run_store, "MUCH_TO_READ", 1)
    assert whole_checkpoints(tmp_path) == [tmp_path / names[1]]
    assert checkpoints(tmp_path) == [tmp_path / names[1]]
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"verifying 3 checkpoints in {tmp_path}, 0 GB"
    what = "state.json differs from its manifest: it is truncated or was changed; removed"
    assert others == [f"{tmp_path / name}/{what}" for name in (names[0], names[2])]
