"""What is asked of models before any is trained."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline import sweep
from seq2sweep import config as configuration
from seq2sweep import presets, project_files
from seq2sweep.config import Config
from seq2sweep.data.bitext import read_training_header
from seq2sweep.errors import UserError
from seq2sweep.model.norm import rmsnorm
from seq2sweep.stages import preconditions, stage, training
from seq2sweep.sweep.variants import variants
from tests.conftest import Corpus

OWN = {"model.norm_kind": "rmsnorm"}
TOLD = (
    r"^model: architecture transformer, feed_forward relu, .*norm_kind rmsnorm keeps "
    r"decoder\.0\.\S*\.seen in a buffer, which no checkpoint holds: make it a parameter"
)


def with_mean(monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    """Let a kind of norm keep a mean of what it has seen, as a batch norm does."""

    class Norm(rmsnorm.Norm):
        def __init__(self, d_model: int) -> None:
            super().__init__(d_model)
            mean = torch.zeros(d_model)
            if kept == "value of a number":
                float(mean.sum())
            if kept == "parameter":
                self.seen = torch.nn.Parameter(mean, requires_grad=False)
            elif kept != "broken":
                self.register_buffer("seen", mean, persistent=kept != "computed")
            else:
                raise ValueError("d_model is odd")

    monkeypatch.setattr(rmsnorm, "Norm", Norm)


@pytest.mark.parametrize("small", [10**9, 0])
@pytest.mark.parametrize(
    ("kept", "refused"),
    [
        ("buffer", True),
        ("value of a number", True),
        ("computed", False),
        ("parameter", False),
        ("broken", False),  # a trial of its own fails, and no other
    ],
)
def test_what_no_checkpoint_holds_is_refused(
    kept: str, refused: bool, small: int, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU as on the meta device, which has no values."""
    monkeypatch.setattr(preconditions, "SMALL", small)
    with_mean(monkeypatch, kept)
    own = configuration.with_changes(tiny_config, OWN).model
    preconditions.require_saved([tiny_config.model], 90)
    if refused:
        with pytest.raises(UserError, match=TOLD):
            preconditions.require_saved([tiny_config.model, own], 90)
    else:
        preconditions.require_saved([tiny_config.model, own], 90)


@pytest.mark.parametrize("name", ["table2", "recurrent", "convolutional", "bytenet", "mixers"])
def test_models_of_the_project_pass(name: str) -> None:
    config = presets.load(f"phrasebook-{name}").config
    assert preconditions._built(config.model, 90) is not None
    preconditions.require_all_saved(config, variants(config)[0], 90)


def test_models_that_differ_in_sizes_are_built_once(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(preconditions, "build", lambda config, size: built.append(config))
    others = [{"model.d_ff": 32}, {"model.dropout": 0.3}, {"model.dropout": 0.0}, OWN, {}]
    models = [configuration.with_changes(tiny_config, changes).model for changes in others]
    preconditions.require_saved(models, 90)
    assert [(one.norm_kind, bool(one.dropout)) for one in built] == [
        ("layernorm", True),
        ("layernorm", False),
        ("rmsnorm", True),
    ]


def test_a_training_is_refused_before_it_begins(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mean(monkeypatch, "buffer")
    monkeypatch.setattr(stage, "origin", lambda header, config: pytest.fail("it begins to train"))
    config = configuration.with_changes(tiny_config, OWN)
    with pytest.raises(UserError, match=TOLD):
        training.train_on(tiny_corpus.encoded, config, "teacher", tmp_path / "models")


@pytest.mark.parametrize(
    "changes",
    [
        {"sweep.method": "grid", "sweep.space": {"model.norm_kind": ["rmsnorm"]}},
        {"sweep.method": "optuna", "sweep.space": {"model.norm_kind": ["layernorm", "rmsnorm"]}},
        {"sweep.method": "optuna", "sweep.base": OWN, "sweep.space": {"model.d_ff": [64, 0]}},
    ],
)
def test_a_sweep_is_refused_before_any_trial(
    changes: dict[str, Any],
    tiny_config: Config,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_mean(monkeypatch, "buffer")
    monkeypatch.setattr(project_files, "ENCODED", tiny_corpus.encoded)
    header = read_training_header(tiny_corpus.encoded)
    monkeypatch.setattr(stage, "training_header", lambda config: header)
    monkeypatch.setattr(sweep, "require_files", lambda *_: pytest.fail("it begins to train"))
    changes = {"sweep.scheduler": "none"} | changes
    with pytest.raises(UserError, match=TOLD):
        sweep.work(configuration.with_changes(tiny_config, changes))


def test_what_a_search_combines_is_refused_before_its_round(
    tiny_config: Config,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Values that were no good alone."""
    with_mean(monkeypatch, "buffer")
    for name in ("clean", "vocabulary", "encoded"):
        monkeypatch.setattr(project_files, name.upper(), getattr(tiny_corpus, name))
    monkeypatch.setattr(stage, "origin", lambda header: SimpleNamespace(identity={}))
    monkeypatch.setattr(stage, "code_of", lambda program: {})
    monkeypatch.setattr(sweep, "begin_sweep", lambda folder, origin: None)
    monkeypatch.setattr(sweep, "ray_session", lambda cluster: contextlib.nullcontext())
    monkeypatch.setattr(sweep, "idle_gpus", lambda sweep: None)
    monkeypatch.setattr(sweep, "run_sweep", lambda *_, **__: pytest.fail("it begins to train"))
    changes = {
        "sweep.method": "optuna",
        "sweep.space": {"model.norm_kind": ["rmsnorm"]},
        "cluster.storage": str(tmp_path),
    }
    config = configuration.with_changes(tiny_config, changes)
    listener: Any = SimpleNamespace(hear=None, lineage={})
    header = read_training_header(tiny_corpus.encoded)
    with pytest.raises(UserError, match=TOLD):
        sweep.train(config, header, [], listener, {})
