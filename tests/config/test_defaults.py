"""A key that may be left out: what was made before it came is still what it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import loading
from seq2sweep.config.architectures import TransformerConfig
from seq2sweep.config.execution import SweepConfig
from seq2sweep.config.fields import field
from seq2sweep.config.schema import Config, EvaluateConfig, TrainConfig
from seq2sweep.errors import UserError
from seq2sweep.runs.warm_start import run_name
from seq2sweep.sweep.variants import Variant

BEFORE = presets.load("phrasebook").config


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterModel(TransformerConfig):
    gates: int = field("a key of tomorrow", at_least=1, default=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterTrain(TrainConfig):
    betas: tuple[int, ...] = field("another", default=(1, 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterEvaluate(EvaluateConfig):
    sampled: bool = field("another", default=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterSweep(SweepConfig):
    pruner: str | None = field("another", default=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later(Config):
    model: LaterModel = field("THE MODEL")
    train: LaterTrain = field("TRAINING")
    evaluate: LaterEvaluate = field("SCORING")
    sweep: LaterSweep = field("VARIANTS")


OTHERS: dict[str, Any] = {
    "model.gates": 3,
    "train.betas": [1],
    "evaluate.sampled": True,
    "sweep.pruner": "asha",
}


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Config:
    """Yesterday's params.yaml, read by the program that has the keys."""
    text = configuration.dump(BEFORE)
    monkeypatch.setattr(loading, "Config", Later)
    return configuration.parse(text)


def identities(config: Config) -> dict[str, Any]:
    """All by which results, runs and trials are found again."""
    what = configuration.identity(config, "model", "train")
    return {
        "run": run_name(what),
        "trial": Variant("a", "a", {}, config).slug,
        "preset": presets.Preset("a", "", "", "", "", config).settings,
        "checkpoint": configuration.identity(config, "model"),
        "scores": configuration.fingerprint(config, "evaluate", "data"),
        "lineage": configuration.fingerprint(config),
        "job": configuration.chosen(config),
    }


def test_a_key_that_came_with_a_default_changes_no_identity(after: Config) -> None:
    assert identities(after) == identities(BEFORE)
    named = dict(zip(OTHERS, (2, [1, 2], False, None), strict=True))
    written = configuration.with_changes(after, named)
    assert written == after
    assert identities(written) == identities(BEFORE)


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("model.gates", {"scores"}),
        ("train.betas", {"checkpoint", "scores"}),
        ("evaluate.sampled", {"run", "trial", "checkpoint"}),
        ("sweep.pruner", {"run", "trial", "checkpoint", "scores"}),
    ],
)
def test_another_value_than_the_default_does(after: Config, key: str, same: set[str]) -> None:
    changed = identities(configuration.with_changes(after, {key: OTHERS[key]}))
    before = identities(BEFORE)
    assert {name for name in before if before[name] == changed[name]} == same


def test_a_section_of_before_is_what_it_was() -> None:
    """As receipts beside weights have it."""
    values = configuration.to_dict(BEFORE)["model"]
    before = {key: v for key, v in values.items() if f"model.{key}" not in configuration.DEFAULTS}
    assert before != values
    assert configuration.section(TransformerConfig, before) == BEFORE.model
    assert TransformerConfig(**before) == BEFORE.model


def test_what_is_recorded_is_whole(after: Config) -> None:
    values = configuration.to_dict(after)
    assert (values["model"]["gates"], values["train"]["betas"]) == (2, [1, 2])
    assert configuration.flatten(after)["sweep.pruner"] is None
    assert configuration.from_dict(values) == after


def test_a_default_is_written_as_a_comment(after: Config) -> None:
    text = configuration.dump(after)
    assert yaml.safe_load(text) == yaml.safe_load(configuration.dump(BEFORE))
    assert "  # gates: 2                        # a key of tomorrow\n" in text
    changed = configuration.with_changes(after, OTHERS)
    assert configuration.parse(configuration.dump(changed)) == changed
    assert "  gates: 3                          # a key of tomorrow\n" in configuration.dump(
        changed
    )


def test_rules_and_types_are_those_of_other_keys(after: Config) -> None:
    for value, problem in ((0, "must be at least 1, not 0"), ("x", "must be a whole number")):
        with pytest.raises(UserError, match=problem):
            configuration.with_changes(after, {"model.gates": value})
    with pytest.raises(UserError, match=r"did you mean model.gates[?]"):
        configuration.with_changes(after, {"model.gate": 1})
