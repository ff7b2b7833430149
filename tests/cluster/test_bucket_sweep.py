"""A sweep whose machines share nothing but a bucket."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster import tune_runner
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs.layout import checkpoints
from seq2sweep.storage.object_store import ObjectStore, node_folder, user_folder
from tests.cluster import trials
from tests.cluster.test_tune_runner import sweep
from tests.conftest import Corpus

FIGURES = ("step", "valid_loss", "bleu", "signature", "target_tokens")


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Three variants, of which one learns nothing and is stopped, and one cannot be built."""
    return configuration.with_changes(
        tiny_config,
        {
            "sweep.base": {"train.steps": 16, "train.warmup_steps": 4},
            "sweep.space": {"train.learning_rate_scale": [1e-9], "model.d_ff": [10**13]},
            "sweep.grace_steps": 4,
            "sweep.reduction_factor": 2,
            "sweep.max_failures": 0,
            "sweep.cpus_per_trial": 2,
        },
    )


@pytest.fixture
def there(config: Config, bucket: str) -> Iterator[Config]:
    before = set(user_folder().iterdir())
    yield configuration.with_changes(config, {"cluster.storage": bucket})
    for folder in set(user_folder().iterdir()) - before:
        shutil.rmtree(folder)


@pytest.mark.thorough
def test_it_is_the_sweep_of_a_folder(
    cluster: None,
    config: Config,
    there: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted, _ = sweep(config, tiny_corpus, tmp_path / "folder")
    found, listener = sweep(there, tiny_corpus, tmp_path / "first")
    listener.check(found)
    for one, other in zip(found, wanted, strict=True):
        assert (one.status, one.steps) == (other.status, other.steps)
        assert [one.metrics.get(key) for key in FIGURES] == [
            other.metrics.get(key) for key in FIGURES
        ]
        assert len(one.nodes) == len(other.nodes)
        assert checkpoints(node_folder(one.store.location)) == []
        if other.checkpoint is not None:
            assert one.translations.read_text() == other.translations.read_text()
            weights = other.checkpoint / "model.safetensors"
            with one.fetched() as checkpoint:
                assert (checkpoint / "model.safetensors").read_bytes() == weights.read_bytes()
    assert found[2].status == "failed"
    assert found[2].cause == wanted[2].cause

    # Another machine, with nothing of its own: no trial that ended is trained or scored again.
    # Under other names too.
    monkeypatch.setattr("seq2sweep.sweep.variants._text", lambda value: f"{value}!")
    again, listener = sweep(there, tiny_corpus, tmp_path / "second")
    for first, second in zip(found[:2], again[:2], strict=True):
        assert second.metrics == first.metrics
        assert second.translations.read_text() == first.translations.read_text()
        assert "result" not in listener.of(second.variant.name)
    assert again[1].variant.name != found[1].variant.name
    objects = ObjectStore(f"{there.cluster.storage}/sweep").sizes()
    assert not [name for name in objects if "attempts" in name.split("/")]


def test_several_workers_need_a_folder(there: Config) -> None:
    several = {"sweep.workers_per_trial": 2}
    with pytest.raises(UserError, match=r"trials of several workers need a folder that all nodes"):
        configuration.with_changes(there, several)
    configuration.with_changes(there, several | {"sweep.method": "none"})


@pytest.mark.thorough
@pytest.mark.parametrize("in_bucket", [False, True])
def test_a_trial_that_hangs_is_told_from_one_that_was_killed(
    cluster: None,
    there: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_bucket: bool,
) -> None:
    storage = there.cluster.storage if in_bucket else "runs"
    changes = {"cluster.storage": storage, "sweep.space": {}, "sweep.max_failures": 1}
    alone = configuration.with_changes(there, changes)
    monkeypatch.setattr(tune_runner, "run_trial", trials.hangs)
    [result], _ = sweep(alone, tiny_corpus, project)
    log = result.journal.with_name(
        f"hang-0.{socket.gethostname()}.log" if in_bucket else "hang-0.log"
    )
    hung = f"no update in cluster.hang_seconds, worker timeout; stack traces are in {log}"
    assert f"base: {hung} (retry 1 of 1: sweep.max_failures)" in capsys.readouterr().out
    assert "trials.py" in log.read_text()
    assert "its process was killed" in str(result.cause)
    # Nor is that of an earlier sweep news.
    monkeypatch.setattr(tune_runner, "run_trial", trials.dies)
    [result], _ = sweep(alone, tiny_corpus, project)
    assert "its process was killed" in str(result.cause)
    assert "hang_seconds" not in capsys.readouterr().out
