"""What the stage `train` makes of what its workers say."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep import hardware, project_files
from seq2sweep.config import Config
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.runs.run_store import RunStore
from seq2sweep.stages import stage
from seq2sweep.stages import training as train_stage
from seq2sweep.tracking import lineage as lineage_of
from seq2sweep.tracking.outbox import outboxes
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.train import checkpointing
from seq2sweep.train.metrics import Progress
from tests.conftest import Corpus, write_encoded

SIZED = {"kind": "sized", "step": 0, "tokens_per_pass": 150, "fitting_tokens": 150}


@pytest.mark.parametrize("said", [True, False])
def test_tokens_a_pass_are_told_and_recorded_as_a_number(
    said: bool,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """said: while this process listens; else by one before it."""
    recorded: list[dict[str, Any]] = []
    auto = configuration.with_changes(tiny_config, {"train.tokens_per_pass": "auto"})

    def training(
        config: Config,
        store: Any,
        *,
        encoded: Path,
        data: str,
        on_event: Callable[[dict[str, Any]], None],
    ) -> Any:
        assert data == "data", "workers are to find what the run is named by"
        if said:
            on_event(SIZED | {"free_bytes": 2e9})
        return SimpleNamespace(summary={"tokens_per_pass": 150})

    monkeypatch.setattr(stage, "for_workers", lambda config, encoded, data: encoded)
    monkeypatch.setattr(train_stage, "run_training", training)
    run: Any = SimpleNamespace(params=recorded.append)
    store = RunStore(tmp_path)
    train_stage.train(auto, store, Path("encoded"), "data", run, {})
    assert recorded == [{"train.tokens_per_pass": 150}] * (1 + said)
    line = "train.tokens_per_pass auto: 150 tokens, with 2.0 GB free for a worker\n"
    assert capsys.readouterr().out == line * said
    if not said:
        recorded.clear()
        train_stage.train(tiny_config, store, Path("encoded"), "data", run, {})
        assert recorded == []


@pytest.mark.parametrize(
    ("value", "text"), [(4.917, "4.92"), (1e150, "1.0e+150"), (None, "not finite")]
)
def test_a_perplexity_never_fills_the_line(
    value: float | None, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"kind": "validated", "step": 5, "valid_loss": 1.5, "valid_perplexity": value}
    train_stage.say_progress(entry, 10)
    assert capsys.readouterr().out.endswith(f"valid loss 1.50  valid perplexity {text}\n")


def test_the_last_losses_are_those_of_the_weights_that_are_exported(tmp_path: Path) -> None:
    """And none of the journal's, which may have told of weights that were lost."""
    told = {"loss": 2.5, "perplexity": 7.0, "valid_loss": 1.5, "valid_perplexity": math.inf}
    model = torch.nn.Linear(1, 1)
    progress = Progress(8, newest=told)
    kept = checkpointing.capture(model, torch.optim.SGD(model.parameters()), progress, {})
    kept.write(tmp_path / "step-00000008")
    found = train_stage.last_losses(tmp_path / "step-00000008")
    assert found == {"loss": 2.5, "valid_loss": 1.5, "valid_perplexity": None}


def test_the_lineage_of_a_finished_training_is_that_of_its_end(
    tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has run the stage since, which trained nothing; also if the training finished, and
    the process died before it said so."""
    store, run = RunStore(tmp_path), SimpleNamespace(params=lambda values: None)
    then = {"git.commit": "a", "version.torch": "2.0", "host": "one", "data.sum": "1"}
    now = {"git.commit": "b", "version.torch": "2.0", "host": "two", "data.sum": "1"}
    unknown = dict.fromkeys(("git.commit", "version.torch", "host"), "unknown") | {"data.sum": "1"}
    assert train_stage.of_training(store, then, False) == (unknown, False), "of an earlier version"

    def train(lineage: dict[str, str], *told: dict[str, Any]) -> None:
        def training(*args: Any, on_event: Callable[[dict[str, Any]], None], **how: Any) -> Any:
            for entry in told:
                on_event(entry)
            raise KeyboardInterrupt

        monkeypatch.setattr(stage, "for_workers", lambda config, encoded, data: encoded)
        monkeypatch.setattr(train_stage, "run_training", training)
        makes = lineage_of.made_by(lineage)
        with pytest.raises(KeyboardInterrupt):
            train_stage.train(tiny_config, store, tmp_path, "data", cast(Any, run), makes)

    assert train_stage.of_training(store, then, True) == (then, True)
    train(then, {"kind": "checkpointed"}, {"kind": "finished"})
    assert train_stage.of_training(store, now, False) == (then, True)
    newer = now | {"version.torch": "3.0"}
    train(newer)  # it died before a worker had said anything
    assert train_stage.of_training(store, newer, False) == (then, False)
    train(newer, {"kind": "finished"})
    assert train_stage.of_training(store, now, False) == (newer, False)
    for damaged in ("{", "[]"):
        (tmp_path / train_stage.MADE_BY).write_text(damaged)
        with pytest.raises(
            UserError, match=r"made_by\.json in .* is damaged .*: remove it and run"
        ):
            train_stage.of_training(store, now, False)


@pytest.fixture
def recorded(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    """Gives what `train_on` records, now and before, of a training that this process did or did
    not do."""
    config = configuration.with_changes(tiny_config, {"cluster.storage": str(tmp_path)})
    relay = SimpleNamespace(flush=lambda: True, say_page=lambda run: None, run_id=lambda run: None)
    status = SimpleNamespace(
        checkpoints=[Path("step-00000008")], summary=dict.fromkeys(hardware.COSTS)
    )
    told: dict[str, Any] = {"steps": 8, "parameters": 1, "tokens_per_second": 1.0}

    @contextlib.contextmanager
    def recording(config: Config, title: str, *, lineage: Any, params: Any, **how: Any) -> Any:
        tags = lineage_of.tags(lineage)
        with Recorder(tmp_path / "tracking", title, tags=tags, **how) as run:
            run.text("lineage.json", "as it began")
            yield relay, run

    def export(*args: Any) -> list[Any]:
        (tmp_path / "receipt.json").write_text("{}")
        (tmp_path / "reproduce").mkdir(exist_ok=True)
        return []

    source = SimpleNamespace(record=lambda run, *_, **__: run.artifact(tmp_path / "reproduce"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "source", lambda *args: source)
    monkeypatch.setattr(stage, "write_metrics", lambda *args: None)
    for name, stub in {
        "recorded_run": recording,
        "ray_session": lambda cluster: contextlib.nullcontext(),
        "export": export,
        "last_losses": lambda checkpoint: {},
        "training_metrics": lambda *args: told | {"flops": {"model": 1}},
        "described": lambda *args: "text",
        "say_end": lambda *args: None,
    }.items():
        monkeypatch.setattr(train_stage, name, stub)

    def record(lineage: dict[str, str], trained_here: bool) -> list[dict[str, Any]]:
        def train(config: Config, store: RunStore, *args: Any) -> Any:
            (store.folder / "journal.jsonl").touch()
            if trained_here:
                store.write(train_stage.MADE_BY, json.dumps(lineage))
            return status, trained_here

        monkeypatch.setattr(stage, "lineage", lambda *args, **kwargs: lineage)
        monkeypatch.setattr(train_stage, "train", train)
        train_stage.train_on(tiny_corpus.encoded, config, "train", tmp_path)
        (box,) = outboxes(tmp_path / "tracking")
        return [record.content for record in box.records()]

    return record


def test_the_tags_of_a_finished_training_are_of_what_trained(
    recorded: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    then = {"git.commit": "a", "git.dirty": "false"}
    now = {"git.commit": "b", "git.dirty": "true"}
    recorded(then, True)
    (record,) = [one for one in recorded(now, False) if one["do"] == "tag"][1:]
    told = {key: value for key, value in record["tags"].items() if "git" in key}
    assert told == then | {"mlflow.source.git.commit": "a"}
    # What is not known changes nothing.
    (made_by,) = tmp_path.glob("*/made_by.json")
    made_by.unlink()
    assert [one["do"] for one in recorded(now, False)].count("tag") == 2
    # Trained again, without the changes that there were: MLflow keeps the tags of a finished run.
    clean = {"git.commit": "c", "git.dirty": "false"}
    records = recorded(clean, True)
    assert [one for one in records if one["do"] == "tag"][-1]["tags"].items() >= clean.items()


@pytest.mark.parametrize("trained_here", [True, False])
def test_who_trains_replaces_the_files_of_a_finished_training(
    recorded: Callable[..., list[dict[str, Any]]], trained_here: bool
) -> None:
    """As of one that is trained again, where its checkpoints were lost."""
    files = [one for one in recorded({"git.commit": "a"}, trained_here) if one["do"] == "artifact"]
    replaced = {Path(one["files"][0]).name for one in files[1:] if one.get("replace")}
    named = {"lineage.json", "receipt.json", "environment.txt", "reproduce"}
    assert replaced == (named if trained_here else set())
    assert "replace" not in files[0]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"model.positions": "learned"}, True),
        ({"model.architecture": "convolutional"}, True),
        ({}, False),
    ],
)
def test_a_test_sentence_that_is_too_long_is_refused_before_training(
    changes: dict[str, Any],
    refused: bool,
    tiny_config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not by `evaluate`, hours later. A project may be without a test set as yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "origin", lambda header, config: pytest.fail("it begins to train"))
    config = configuration.with_changes(tiny_config, changes)

    def begin() -> None:
        train_stage.train_on(tiny_corpus.encoded, config, "train", tmp_path / "models")

    begins = pytest.raises(pytest.fail.Exception, match="it begins to train")
    with begins:
        begin()
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    project_files.ENCODED.mkdir(parents=True)
    long = ["alpha", "alpha " * 1100]
    write_encoded(project_files.ENCODED, "test", long, ["ALPHA", "ALPHA"], pieces)
    told = r"line 2 of the test set has \d+ tokens as source, .* positions are for 1024: leave"
    with pytest.raises(UserError, match=told) if refused else begins:
        begin()
