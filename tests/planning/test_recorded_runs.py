"""Which of the trainings in a storage say how fast the next one is, and of what kind they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.planning.recorded_runs import recorded_runs
from seq2sweep.planning.workload import KIND, kind_of
from tests.planning.conftest import preset, record_run


def test_journals_that_say_nothing_of_these_devices_are_left_out(tmp_path: Path) -> None:
    record_run(tmp_path / "elsewhere", cpu_features="of another processor")
    record_run(tmp_path / "nothing", source_tokens=0, target_tokens=0)
    record_run(tmp_path / "unfinished", kind="logged")
    record_run(tmp_path / "earlier", workers=None)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/journal.jsonl").write_text("{\n")
    assert recorded_runs(tmp_path, trials=True) == []
    assert recorded_runs(tmp_path / "nowhere", trials=True) == []


@pytest.mark.parametrize(
    ("before", "counts"),
    [
        ({}, True),
        ({"threads": 8}, False),
        ({"workers": 1}, False),
        ({"device": "NVIDIA H200"}, False),
        ({"threads": 8, "step": 20}, True),  # that step was trained again
    ],
)
def test_a_run_that_was_resumed_on_other_workers_is_left_out(
    tmp_path: Path, before: dict[str, Any], counts: bool
) -> None:
    """Its rate is of both together, and would be taken for that of the last ones."""
    record_run(tmp_path / "train-1")
    path = tmp_path / "train-1/journal.jsonl"
    first, end = path.read_text(encoding="utf-8").splitlines()
    checkpoint = json.loads(end) | {"kind": "checkpoint", "step": 10} | before
    path.write_text(f"{first}\n{json.dumps(checkpoint)}\n{end}\n", encoding="utf-8")
    assert bool(recorded_runs(tmp_path, trials=False)) is counts


@pytest.mark.parametrize(("before", "counts"), [(1, False), (2, True), (3, False)])
def test_a_part_on_other_workers_without_a_regular_checkpoint_is_noticed(
    tmp_path: Path, before: int, counts: bool
) -> None:
    """It was interrupted before its first one: of it only the totals have anything."""
    parts = [(0.3, before), (1234.5, 2)]  # seconds, workers
    seconds = sum(each for each, _ in parts)
    hours = sum(each * workers for each, workers in parts) / 3600
    record_run(tmp_path / "train-1", train_seconds=seconds, device_hours=hours)
    assert bool(recorded_runs(tmp_path, trials=False)) is counts


def record_identity(path: Path, sections: tuple[str, ...], **changes: Any) -> None:
    identity = configuration.identity(preset("base", **changes), *sections)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"identity": identity | {"train.precision": "bf16"}}))


MIXED = {"model.encoder_mixer": "recurrent"}


def test_a_run_says_what_kind_of_training_it_was(tmp_path: Path) -> None:
    usual = kind_of(configuration.flatten(preset("base")))
    assert list(usual) == list(KIND)
    record_run(tmp_path / "train-1")
    record_identity(
        tmp_path / "train-1/run.json", ("model", "train"), **MIXED, **{"train.compile": True}
    )
    (run,) = recorded_runs(tmp_path, trials=True)
    assert run.kind == usual | MIXED | {"train.compile": "true"}


def test_a_trial_says_it_of_its_model(tmp_path: Path) -> None:
    """By its newest checkpoint that can be read."""
    record_run(tmp_path / "sweep/trials/a")
    trial = tmp_path / "sweep/trials/a"
    record_identity(trial / "step-00000010/state.json", ("model",))
    record_identity(trial / "step-00000020/state.json", ("model",), **MIXED)
    (trial / "step-00000030").mkdir()
    (trial / "step-00000030/state.json").write_text("{")
    (run,) = recorded_runs(tmp_path, trials=True)
    assert run.kind == {
        "model.architecture": "transformer",
        "model.decoder_mixer": "self_attention",
        "model.attention": "scaled_dot_product",
        "model.attention_dropout": "0.0",
        **MIXED,
    }


@pytest.mark.parametrize("content", ["", "[]", '{"identity": []}', '{"identity": {"data": "x"}}'])
def test_a_run_that_does_not_say_it_counts_as_before(tmp_path: Path, content: str) -> None:
    record_run(tmp_path / "train-1")
    (tmp_path / "train-1/run.json").write_text(content)
    (run,) = recorded_runs(tmp_path, trials=True)
    assert run.kind == {}
