"""Variants compared at equal steps, tokens and FLOPs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.sweep import budget as budgets
from seq2sweep.sweep.variants import Variant, variants
from tests.conftest import Corpus


def swept(config: Config, corpus: Corpus | None, **sweep: Any) -> list[Variant]:
    changes = {f"sweep.{key}": value for key, value in sweep.items()}
    data = Bitext.open(corpus.encoded, "train") if corpus else None
    found, refused = variants(configuration.with_changes(config, changes), data)
    assert refused == []
    return found


def test_equal_steps_are_those_configured(tiny_config: Config, tiny_corpus: Corpus) -> None:
    space = {"model.layers": [2], "train.tokens_per_update": [600], "train.steps": [5]}
    found = swept(tiny_config, tiny_corpus, space=space)
    assert [v.config.train.steps for v in found] == [12, 12, 12, 5]


def test_equal_tokens_take_fewer_steps_of_larger_updates(tiny_config: Config) -> None:
    space = {"train.tokens_per_update": [600, 150, 450, 70, 1_000_000], "model.layers": [2]}
    found = swept(tiny_config, None, space=space, budget="tokens", base={"train.steps": 100})
    # 100 x 300 tokens: 66.7 and 428.6 are rounded, and one update is the least.
    assert [v.config.train.steps for v in found] == [100, 50, 200, 67, 429, 1, 100]
    assert found[1].changes == {"train.tokens_per_update": 600}
    for variant in found:
        trained = configuration.flatten(variant.config, "train")
        asked = configuration.flatten(tiny_config, "train") | variant.changes
        assert {key for key in trained if trained[key] != asked[key]} <= {"train.steps"}


def training_flops(variant: Variant, data: Bitext) -> float:
    """Of all updates of a training, on average, counted group by group."""
    train = variant.config.train
    plan = plan_epoch(
        data.source_lengths,
        data.target_lengths,
        tokens_per_update=train.tokens_per_update,
        seed=1234,
        epoch=5,
    )
    updates = [
        flops.training_flops(
            variant.config.model,
            data.header["vocabulary"]["size"],
            data.source_lengths[plan[update]],
            data.target_lengths[plan[update]],
        )
        for update in range(len(plan))
    ]
    return train.steps * float(np.mean(updates))


def test_equal_flops_take_fewer_steps_of_larger_models(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    space = {
        "model.layers": [2, 4],
        "model.d_ff": [16],
        "model.heads, model.d_k, model.d_v": [[1, 32, 32], [16, 16, 16]],
        "train.tokens_per_update": [100, 900],
        "model.dropout": [0.4],
    }
    found = swept(tiny_config, tiny_corpus, space=space, budget="flops", base={"train.steps": 1000})
    data = Bitext.open(tiny_corpus.encoded, "train")
    base, *others = found
    assert base.config.train.steps == 1000
    for variant in others:
        steps = variant.config.train.steps
        one_step = training_flops(variant, data) / steps
        missed = training_flops(variant, data) - training_flops(base, data)
        assert abs(missed) <= 0.5001 * one_step, variant.name
        assert "train.steps" not in variant.changes
    by_name = {v.name: v.config.train.steps for v in found}
    assert by_name["layers=4"] < by_name["layers=2"] < 1000 < by_name["d_ff=16"]
    assert by_name["heads=1 d_k=32 d_v=32"] == by_name["dropout=0.4"] == 1000
    assert by_name["tokens_per_update=900"] < 1000 < by_name["tokens_per_update=100"]


MODELS: list[dict[str, Any]] = [
    {"model.d_ff": 96, "model.attention_dropout": 0.25, "model.feed_forward_dropout": 0.5},
    {"model.encoder_mixer": "separable", "model.attention_dropout": 0.25},
    {"model.architecture": "bytenet", "model.d_model": 64},
    {"model.architecture": "recurrent", "model.layers": 3},
    {"model.architecture": "convolutional", "model.kernels": [5]},
]


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_flops_are_counted_once_a_model_and_are_those_of_each_variant(
    tiny_config: Config,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
) -> None:
    data = Bitext.open(tiny_corpus.encoded, "train")
    lengths, size = (data.source_lengths, data.target_lengths), data.header["vocabulary"]["size"]
    counted, count = [], flops.training_flops

    def counting(model: Any, *rest: Any) -> float:
        counted.append(model)
        return count(model, *rest)

    monkeypatch.setattr(flops, "training_flops", counting)
    monkeypatch.setattr(budgets, "PAIRS_AT_ONCE", 100)
    space = {key: [value] for key, value in changes.items() if "dropout" not in key}
    space |= {key: [0.0, value] for key, value in changes.items() if "dropout" in key}
    space |= {"model.dropout": [0.0, 0.1, 0.4], "train.learning_rate_scale": [0.5, 2.0]}
    space["train.tokens_per_update"] = [100, 900]
    found = swept(
        tiny_config,
        tiny_corpus,
        space=space,
        method="grid",
        budget="flops",
        base={"train.steps": 98_765},
    )
    assert len(found) >= 1 + 3 * 2 * 2
    most = max(Counter(zip(*(side.tolist() for side in lengths), strict=True)).values())
    assert len(set(counted)) == 2, "of the base variant and of the other model"
    assert len(counted) == 2 * most.bit_length()

    def exact(config: Config) -> float:
        train = config.train
        plan = plan_epoch(
            *lengths, tokens_per_update=train.tokens_per_update, seed=train.seed, epoch=0
        )
        return count(config.model, size, *lengths) / len(plan)

    total = 98_765 * exact(found[0].config)
    for variant in found:
        assert variant.config.train.steps == round(total / exact(variant.config)), variant.name


def test_a_model_that_takes_more_than_there_is_gets_one_step(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    found = swept(tiny_config, tiny_corpus, space={"model.d_ff": [10**6]}, budget="flops")
    assert [v.config.train.steps for v in found] == [12, 1]


@pytest.mark.parametrize("budget", ["steps", "tokens", "flops"])
def test_a_mistyped_number_of_steps_is_said_in_one_line(tiny_config: Config, budget: str) -> None:
    said = r"^params.yaml: sweep.base: train.steps must be at most 1000000000000000, not 1000"
    with pytest.raises(UserError, match=said):
        swept(tiny_config, None, space={}, budget=budget, base={"train.steps": 10**400})


@pytest.mark.parametrize("budget", ["tokens", "flops"])
def test_the_row_big_is_trained_as_long_as_the_budget_says(
    tiny_config: Config, tiny_corpus: Corpus, budget: str
) -> None:
    table = {"method": "table3", "rows": ["big"], "space": {}, "base": {"model.dropout": 0.1}}
    three_times, equal = (
        swept(tiny_config, tiny_corpus, **table, budget=kind)[1] for kind in ("steps", budget)
    )
    assert three_times.changes["train.steps"] == three_times.config.train.steps == 36
    assert equal.changes.keys() == three_times.changes.keys() - {"train.steps"}
    assert equal.config.model == three_times.config.model
    assert equal.config.train.steps == 12 if budget == "tokens" else equal.config.train.steps < 12


def test_before_there_is_data_a_sweep_at_equal_flops_can_be_checked(tiny_config: Config) -> None:
    found = swept(tiny_config, None, space={"model.layers": [2]}, budget="flops")
    assert [v.config.train.steps for v in found] == [12, 12]
