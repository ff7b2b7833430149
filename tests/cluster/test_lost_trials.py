"""Sweeps some of whose trials fail, or get no score: what is said, and what is tried again."""

from __future__ import annotations

import errno
import json
import platform
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from seq2sweep import config as configuration
from seq2sweep.cluster import tune_runner
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError
from seq2sweep.runs.layout import resume_point
from seq2sweep.sweep.trial_record import INTERRUPTED, TrialResult
from tests.cluster import scoring, trials
from tests.cluster.test_tune_runner import Listener, sweep
from tests.conftest import Corpus


def test_without_its_result_a_trial_that_failed_for_good_resumes(
    cluster: None,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the last line of a search says: what is trained is not trained again."""
    changes = {"sweep.space": {}, "sweep.scheduler": "none", "sweep.max_failures": 0}
    alone = configuration.with_changes(tiny_config, changes)

    heard: list[list[int]] = []

    def search(score: Any = scoring.score) -> TrialResult:
        [result], listener = sweep(alone, tiny_corpus, project, score, final=True)
        heard.append([told["step"] for event, _, told in listener.heard if event == "result"])
        return result

    with monkeypatch.context() as patch:
        patch.setattr(tune_runner, "run_trial", trials.fails_at_8)
        failed = search()
    assert (failed.status, failed.cause) == ("failed", "RuntimeError: lost")
    lines = failed.journal.read_text().splitlines(keepends=True)
    kept = "".join(line for line in lines if json.loads(line)["step"] <= 8)
    assert search().status == "failed", "for good"
    failed.journal.with_name("result.json").unlink()
    # As of a driver that was killed while a checkpoint was written: the one before it will do.
    half = failed.journal.with_name("step-00000012")
    shutil.copytree(failed.journal.with_name("step-00000008"), half)
    (half / "model.safetensors").write_bytes(b"torn")
    resumed = search(scoring.crash)
    assert (resumed.status, resumed.steps) == ("finished", 12)
    assert heard[-1] == [4, 8, 12], "each once"
    assert resumed.journal.read_text().startswith(kept), "with their times"
    # A trial without a score is scored then, and not trained.
    trained = resumed.journal.read_bytes()
    assert "bleu" not in search().metrics, "for good"
    failed.journal.with_name("result.json").unlink()
    assert search().metrics["bleu"] == 12.0
    assert resumed.journal.read_bytes() == trained


def test_a_process_that_dies_between_two_trials_fails_one_of_them_once(
    cluster: None,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And holds up none after it."""
    changes = {
        "sweep.space": {"train.learning_rate_scale": [0.1, 0.2]},
        "sweep.scheduler": "none",
        "sweep.cpus_per_trial": 2,
        "sweep.max_failures": 1,
    }
    monkeypatch.setattr(tune_runner, "run_trial", trials.dies_when_reset)
    monkeypatch.setattr(tune_runner._Sweep, "_begin_to_score", lambda *given: None)
    results, _ = sweep(configuration.with_changes(tiny_config, changes), tiny_corpus, project)
    assert [result.status for result in results] == ["finished"] * 3
    said = capsys.readouterr().out
    assert said.count("(retry ") == said.count("(retry 1 of 1: sweep.max_failures)") == 1


def of_endless_trials(config: Config, max_failures: int) -> Config:
    """Seven, as many at once as there are CPUs: some never begin."""
    changes = {
        "train.steps": 100_000,
        "sweep.space": {"train.learning_rate_scale": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]},
        "sweep.scheduler": "none",
        "sweep.cpus_per_trial": 1,
        "sweep.max_failures": max_failures,
    }
    return configuration.with_changes(config, changes)


NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("file", ["of an error", "of its state"])
def test_a_full_disk_that_takes_no_file_of_tunes_ends_the_sweep_in_a_line(
    cluster: None,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
) -> None:
    """On a laptop Ray's folder for temporary files lies on the disk that is full."""
    monkeypatch.setattr(tune_runner, "run_trial", trials.one_is_lost)
    if file == "of an error":
        monkeypatch.setattr(Trial, "error_file", property(Mock(side_effect=NO_ROOM)))
    else:
        monkeypatch.setattr(TuneController, "save_to_dir", Mock(side_effect=NO_ROOM))
    endless = of_endless_trials(tiny_config, max_failures=0)
    with pytest.raises(OperationalError) as caught:
        sweep(endless, tiny_corpus, project)
    said = "no space left in the folder for temporary files: free some, or move to another disk: "
    said += "set TMPDIR before Ray starts here to a path of at most 28 bytes, or start a cluster's "
    said += "head with --temp-dir (in a Slurm job: NODE_FOLDER)"
    assert str(caught.value) == f"{said}; run `dvc repro` again to resume"
    folder = project / "runs/sweep"
    (base,) = folder.glob("trials/base-*")
    if file == "of an error":
        assert (folder / "returned-0").exists(), "it was asked to save, not killed"
        assert resume_point(base) is not None
    assert not list(folder.glob("stop-*"))


def test_a_full_disk_ends_the_sweep_and_no_trial(
    cluster: None,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a search as well, which tries no trial again that has failed."""
    monkeypatch.setattr(tune_runner, "run_trial", trials.full_disk)
    endless = of_endless_trials(tiny_config, max_failures=3)
    listener = Listener()
    with pytest.raises(OperationalError) as caught:
        sweep(endless, tiny_corpus, project, final=True, listener=listener)
    folder = project / "runs/sweep"
    (full,) = folder.glob("trials/learning_rate_scale=0.1-*")
    said = str(caught.value)
    assert said.startswith(f"learning_rate_scale=0.1: no space left in {full} (")
    assert said.endswith("cluster.storage to another disk; run `dvc repro` again to resume")
    assert "sweep.max_failures" not in capsys.readouterr().out, "it is not tried in vain"
    # The next one resumes all of them.
    assert not list(folder.glob("trials/*/result.json"))
    ends = {figures["cause"] for event, _, figures in listener.heard if event == "failed"}
    assert ends == {INTERRUPTED}
    assert (folder / "returned-0").exists(), "it was asked to save, not killed"
    (base,) = folder.glob("trials/base-*")
    assert resume_point(base) is not None
    assert not list(folder.glob("stop-*"))


@pytest.mark.thorough
def test_a_broken_gpu_ends_the_sweep_and_no_trial_for_good(
    cluster: None,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a search as well, which tries no trial again that has failed."""
    monkeypatch.setattr(tune_runner, "run_trial", trials.broken_gpu)
    endless = of_endless_trials(tiny_config, max_failures=0)
    with pytest.raises(OperationalError) as caught:
        sweep(endless, tiny_corpus, project, final=True)
    said = f"{trials.ECC}; {platform.node()} has a GPU on which 3 trials in a row failed with an "
    assert str(caught.value).startswith(f"learning_rate_scale=0.3: RuntimeError: {said}")
    assert str(caught.value).endswith("out of the cluster; run `dvc repro` again to resume")
    folder = project / "runs/sweep"
    assert not list(folder.glob("trials/*/result.json")), "the next one resumes all of them"
    assert (folder / "returned-0").exists(), "it was asked to save, not killed"
