"""An evaluation records what made its weights, whatever params.yaml has by then."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from seq2sweep import config as configuration
from seq2sweep import project_files, yaml_text
from seq2sweep.config import Config
from seq2sweep.decode.receipt import receipt
from seq2sweep.errors import UserError
from seq2sweep.jobs import dvc_stages
from seq2sweep.reproduce.run_record import Source
from seq2sweep.stages import scoring
from seq2sweep.storage.atomic import write_json

STUBS = (
    "Translator", "console", "evaluate_weights", "in_words", "parameters", "read_header", "record",
    "record_text", "shown_by_dvc", "tqdm", "write_whole",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """That of an evaluation without weights, text and MLflow; its record lies in tmp_path."""
    made = MagicMock()
    made.artifact = lambda path: path.name == "reproduce" and path.rename(tmp_path / path.name)
    for name in STUBS:
        monkeypatch.setattr(scoring, name, MagicMock(__name__=name, __module__=name))
    scoring.read_header.return_value = {"vocabulary": {"fingerprint": "v"}, "sentences": 1}
    scoring.Translator.return_value.steps = [4]
    scoring.evaluate_weights.return_value.metrics = {"decode_tokens_per_second": 1.0}
    monkeypatch.setattr(scoring, "reproducible", lambda metrics, config: {"bleu": 1.0})
    stage = MagicMock()
    stage.source.return_value = Source({"stage": "evaluate"}, {})
    monkeypatch.setattr(scoring, "stage", stage)
    opened = contextlib.nullcontext((MagicMock(), made))
    monkeypatch.setattr(scoring, "recorded_run", lambda *given, **more: opened)
    return made


def trained(folder: Path, config: Config) -> dict[str, Any]:
    """Write the receipt of a training without checkpoints."""
    entry = {"step": 4, "file": "x", "sha256": "a" * 64}
    figures = {"tokens_per_pass": 1250}
    told = receipt("a-run", [entry], config, {"data.vocabulary": "v"}, figures)
    folder.mkdir(exist_ok=True)
    write_json(folder / "receipt.json", told)
    return told


def scored(tmp_path: Path, config: Config) -> dict[str, Any]:
    """params.yaml of what is recorded."""
    scoring.score_model(config, tmp_path / "train", "evaluate", tmp_path / "table.tsv")
    return dict(yaml_text.read_yaml((tmp_path / "reproduce/params.yaml").read_text()))


@pytest.mark.parametrize("name", ["train", "student"])
def test_weights_that_the_same_stage_has_made_are_known_by_their_bytes(
    name: str, run: MagicMock, tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dvc.lock has those of the run before until the stage has ended."""
    monkeypatch.chdir(tmp_path)
    model, told = project_files.MODEL.with_name(name), list[str]()
    model.parent.mkdir()
    trained(model, tiny_config)
    scoring.stage.lineage = lambda *_, **__: {"input.model": "before"}

    def recorded(*_: Any, **more: Any) -> Any:
        told.append(more["lineage"]["input.model"])
        return contextlib.nullcontext((MagicMock(), run))

    monkeypatch.setattr(scoring, "recorded_run", recorded)
    scoring.score_model(tiny_config, model, "a", tmp_path / "table.tsv")
    assert told == ["before" if name == "train" else dvc_stages.sum_of(model)]


def test_the_training_is_recorded_as_it_was_and_all_else_as_it_is(
    tmp_path: Path, tiny_config: Config, run: MagicMock
) -> None:
    then = {"train.seed": 5, "train.tokens_per_pass": "auto", "train.keep_checkpoints": 1}
    trained(tmp_path / "train", configuration.with_changes(
        tiny_config, then | {"evaluate.average_checkpoints": 1}
    ))  # fmt: skip
    # More are averaged than were kept: that is said when it is made again, and is no error here.
    now = {
        "train.seed": 6, "train.keep_checkpoints": 3, "evaluate.average_checkpoints": 3,
        "data.phrasebook.test": 77,
    }  # fmt: skip
    found = scored(tmp_path, configuration.with_changes(tiny_config, now))
    train = found["train"]
    kept = (train["seed"], train["tokens_per_pass"], train["keep_checkpoints"])
    assert kept == (5, 1250, 1)
    assert found["evaluate"]["average_checkpoints"] == 3
    assert found["data"]["phrasebook"]["test"] == 77


def test_a_damaged_receipt_is_told_before_anything_is_scored(
    tmp_path: Path, tiny_config: Config, run: MagicMock
) -> None:
    told = trained(tmp_path / "train", tiny_config)
    told["config"]["train"]["seed"] = "many"
    write_json(tmp_path / "train/receipt.json", told)
    with pytest.raises(UserError, match=r"receipt\.json, which .* writes again: train\.seed"):
        scored(tmp_path, tiny_config)
    scoring.evaluate_weights.assert_not_called()


def test_weights_of_another_model_are_told_before_anything_is_scored(
    tmp_path: Path, tiny_config: Config, run: MagicMock
) -> None:
    trained(tmp_path / "train", tiny_config)
    other = configuration.with_changes(tiny_config, {"model.d_ff": 8})
    with pytest.raises(UserError, match=r"was trained with another `model` section than params"):
        scored(tmp_path, other)
    scoring.evaluate_weights.assert_not_called()


def recorded(
    run: Any, config: Config, beside: Path, monkeypatch: pytest.MonkeyPatch, ending: str = ""
) -> None:
    """Give a run a model that was scored, but for its files."""
    figures = MagicMock(side_effect=lambda *_: {"bleu": 1.0, "decode_tokens_per_second": 1.0})
    monkeypatch.setattr(scoring, "shown", figures)
    monkeypatch.setattr(scoring, "signature", MagicMock(return_value="a signature"))
    translator, metrics = MagicMock(steps=[4]), {"averaged_checkpoints": [4]}
    scoring.record(run, config, translator, {"fingerprint": "f"}, metrics, beside, ending)


@pytest.mark.parametrize(
    ("architecture", "ending", "name"),
    [
        ("transformer", "", "transformer"),
        ("transformer", "-student", "transformer-student"),
        ("bytenet", "", "bytenet"),
    ],
)
def test_mlflow_has_the_model_by_its_architecture(
    architecture: str, ending: str, name: str, tmp_path: Path, tiny_config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(scoring, "write_package", MagicMock())
    monkeypatch.setattr(scoring, "flavor", MagicMock())
    config = configuration.with_changes(tiny_config, {"model.architecture": architecture})
    run = MagicMock()
    recorded(run, config, tmp_path, monkeypatch, ending)
    assert run.model.call_args.args[0] == name == run.register.call_args.args[0]


def test_the_model_for_mlflow_takes_the_place_of_what_a_kill_left(
    tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def noted(run: Any, name: str, config: Config, translator: Any, folder: Path, *more: Any,
               **about: Any) -> None:  # fmt: skip
        assert [*folder.iterdir()] == []
        (folder / "model.safetensors").write_text("weights")
        made.append(folder)

    monkeypatch.setattr(scoring, "record_model", noted)

    def record(beside: Path) -> None:
        recorded(MagicMock(), tiny_config, beside, monkeypatch)

    record(tmp_path)
    assert [*tmp_path.iterdir()] == []
    [left] = made
    left.mkdir()
    (left / "of a killed process").write_text("250 MB")
    record(tmp_path)
    assert made == [left, left]
    assert [*tmp_path.iterdir()] == []
