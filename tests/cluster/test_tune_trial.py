"""A trial in this process, with Tune and Ray only made believe."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster import tune_trial
from seq2sweep.config import Config
from seq2sweep.runs.layout import newest_checkpoint
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.trial_record import nodes_of
from tests.conftest import Corpus


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of which Tune is told."""
    found: list[int] = []
    context = SimpleNamespace(get_node_id=lambda: "0123456789abcdef")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(tune_trial.tune, "report", lambda result: found.append(result["step"]))
    return found


@pytest.fixture
def settings(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "trial"
    folder.mkdir()
    return {
        "config": configuration.to_dict(tiny_config),
        "data": {"encoded": str(tiny_corpus.encoded)},
        "location": str(folder),
        "sweep": str(tmp_path),
        "attempt": "1",
        "workers": 1,
        "cpus": 1,
        "gpus": 0,
        "rungs": [],
    }


def test_one_that_is_to_stop_does_not_begin(settings: dict[str, Any], reported: list[int]) -> None:
    RunStore(Path(settings["sweep"]), "1").request_stop()
    tune_trial.run_trial({"index": 0}, [settings])
    assert list(Path(settings["location"]).iterdir()) == []
    assert reported == []


def test_storage_that_fails_for_a_while_is_met_with_patience(
    settings: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []

    def failing_once(name: str) -> Callable[..., Any]:
        real = getattr(RunStore, name)

        def work(*args: Any, **how: Any) -> Any:
            if name not in failures:
                failures.append(name)
                raise OSError(errno.EIO, "the disk is away")
            return real(*args, **how)

        return work

    names = ("writing", "resume_point", "keep", "prune")
    for name in names:
        monkeypatch.setattr(RunStore, name, failing_once(name))
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    tune_trial.run_trial({"index": 0}, [settings])
    assert sorted(failures) == sorted(names)
    assert reported == [4, 8, 12]
    newest = newest_checkpoint(Path(settings["location"]))
    assert newest is not None
    assert newest.name == "step-00000012"
    (node,) = nodes_of(Path(settings["location"]))
    assert node.endswith("-01234567")
