"""The sweep section spelt out into variants."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import sweep
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config, TrainConfig, TransformerConfig, loading
from seq2sweep.config.architectures import BytenetConfig
from seq2sweep.config.schema import MOST_RUNGS
from seq2sweep.errors import UserError
from seq2sweep.hardware import Precision
from seq2sweep.sweep import search_space
from seq2sweep.sweep.variants import (
    Refused,
    Variant,
    base_of,
    folder_names,
    in_one_precision,
    variants,
)


@pytest.fixture
def base(tiny_config: Config) -> Config:
    return tiny_config


def swept(config: Config, space: dict[str, Any], **settings: Any) -> Config:
    changes = {f"sweep.{key}": value for key, value in settings.items()}
    return configuration.with_changes(config, {"sweep.space": space} | changes)


def accepted(config: Config) -> list[Variant]:
    found, refused = variants(config)
    assert refused == []
    return found


def refused(config: Config) -> list[Refused]:
    return variants(config)[1]


def test_one_at_a_time_changes_one_key_after_the_other(base: Config) -> None:
    found = accepted(swept(base, {"model.heads": [1, 4], "model.dropout": [0.0, 0.3]}))
    assert [v.name for v in found] == ["base", "heads=1", "heads=4", "dropout=0", "dropout=0.3"]
    assert [v.changes for v in found[:3]] == [{}, {"model.heads": 1}, {"model.heads": 4}]
    given = swept(base, {"model.heads": [1, 4], "model.dropout": [0.0, 0.3]})
    assert found[0].config == base_of(given)
    assert {(v.variant, v.row) for v in found[:2]} == {("base", None), ("heads=1", None)}
    assert found[2].config.model.heads == 4
    assert found[4].config.model.heads == base.model.heads


def test_grid_combines_all_values(base: Config) -> None:
    found = accepted(
        swept(base, {"model.heads": [1, 4], "model.d_k": [2, 8, 9]}, method="grid"),
    )
    assert [v.name for v in found[1:]] == [
        f"heads={heads} d_k={d_k}" for heads in (1, 4) for d_k in (2, 8, 9)
    ]


def test_keys_joined_by_commas_vary_together(base: Config) -> None:
    found = accepted(
        swept(base, {"model.heads, model.d_k,model.d_v": [[1, 32, 32], [8, 4, 4]]}),
    )
    assert [v.name for v in found] == ["base", "heads=1 d_k=32 d_v=32", "heads=8 d_k=4 d_v=4"]
    assert found[2].changes == {"model.heads": 8, "model.d_k": 4, "model.d_v": 4}


def test_joined_keys_count_as_one_in_a_grid(base: Config) -> None:
    space = {"model.heads,model.d_k": [[1, 32], [8, 4]], "model.dropout": [0.0, 0.2]}
    assert len(accepted(swept(base, space, method="grid"))) == 1 + 2 * 2


def test_a_key_may_vary_alone_and_with_others(base: Config) -> None:
    """As d_k does in rows A and B of Table 3."""
    space = {"model.heads,model.d_k": [[1, 32]], "model.d_k": [8]}
    assert [v.name for v in accepted(swept(base, space))] == ["base", "heads=1 d_k=32", "d_k=8"]


def test_equal_variants_are_trained_once(base: Config) -> None:
    space = {"model.heads": [base.model.heads, 1, 1], "model.dropout": [0.1, 0.1]}
    space |= {"train.tokens_per_pass": [base.train.tokens_per_pass, 70]}
    names = ["base", "heads=1", "tokens_per_pass=70"]
    assert [v.name for v in accepted(swept(base, space))] == names


def test_the_base_of_the_sweep_applies_to_all(base: Config) -> None:
    found = accepted(
        swept(
            base,
            {"model.heads": [1]},
            base={"train.steps": 5, "model.layers": 2, "evaluate.beam": 1},
        )
    )
    assert [(v.config.train.steps, v.config.model.layers) for v in found] == [(5, 2), (5, 2)]
    assert found[0].name == "base"
    assert found[1].config.evaluate.beam == 1
    assert found[1].changes == {"model.heads": 1}


def test_without_a_space_there_is_the_base_alone(base: Config) -> None:
    for method in ("one_at_a_time", "grid", "random"):
        assert [v.name for v in accepted(swept(base, {}, method=method))] == ["base"]


def test_the_variants_of_a_search_are_not_known_before_it(base: Config) -> None:
    found = accepted(swept(base, RANGES, method="optuna", scheduler="none", seeds=2))
    assert [v.name for v in found] == ["base seed=1", "base seed=2"]


def test_names_of_folders_are_plain_and_differ(base: Config) -> None:
    found = accepted(
        swept(base, {"train.precision": ["bf16"], "model.dropout": [0.30000001, 0.3]}),
    )
    assert [v.name for v in found][2:] == ["dropout=0.30000001", "dropout=0.3"]
    slugs = [v.slug for v in found]
    assert len(set(slugs)) == 4
    assert all(set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789.=_-") for slug in slugs)


def test_the_folder_stays_the_same_when_only_decoding_changes(base: Config) -> None:
    space = {"model.heads": [1]}
    beam = configuration.with_changes(swept(base, space), {"evaluate.beam": 7})
    assert [v.slug for v in accepted(beam)] == [v.slug for v in accepted(swept(base, space))]


def test_the_folder_is_found_again_when_only_the_name_changes(base: Config) -> None:
    space = {"model.heads": [1, 2], "model.dropout": [0.2]}
    other = dict(reversed(space.items()))
    before, after = (accepted(swept(base, each, method="grid")) for each in (space, other))
    there = folder_names(before, [])
    assert there == [v.slug for v in before]
    assert {v.slug for v in after} & {*there} == {"base-" + before[0].fingerprint[:8]}
    assert sorted(folder_names(after, there)) == sorted(there)
    assert [name[-8:] for name in folder_names(after, there)] == [v.slug[-8:] for v in after]
    # What has a folder of its own keeps it.
    both = [*there, *(v.slug for v in after)]
    assert folder_names(after, both) == [v.slug for v in after]
    # No folder is that of two, though their hashes begin alike, as of these one and the same.
    twice = [dataclasses.replace(before[1], variant=name) for name in ("a", "b", before[1].name)]
    assert folder_names(twice, [before[1].slug]) == [v.slug for v in twice]
    assert folder_names(twice[:2], [before[1].slug]) == [before[1].slug, twice[1].slug]


def test_numbers_that_yaml_reads_as_text_are_numbers(base: Config) -> None:
    found = accepted(swept(base, {"train.learning_rate_scale": ["1e-4", 0.0001]}))
    assert [(v.name, v.changes) for v in found[1:]] == [
        ("learning_rate_scale=0.0001", {"train.learning_rate_scale": 1e-4})
    ]


# --- random --------------------------------------------------------------------------------------

RANGES = {
    "model.d_ff": {"low": 16, "high": 64},
    "train.warmup_steps": {"low": 1, "high": 100_000, "log": True},
    "train.learning_rate_scale": {"low": "1e-4", "high": 1.0, "log": True},
    "model.dropout": {"low": 0.0, "high": 0.5},
    "model.heads": [1, 2, 4],
}


def test_random_draws_are_repeatable_and_depend_on_the_seed(base: Config) -> None:
    drawn = [
        [v.changes for v in accepted(swept(base, RANGES, method="random", samples=5, seed=seed))]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 1 + 5


def test_random_draws_stay_in_range_and_keep_whole_numbers_whole(base: Config) -> None:
    found = accepted(swept(base, RANGES, method="random", samples=200))[1:]
    assert {v.config.model.heads for v in found} == {1, 2, 4}
    for v in found:
        assert isinstance(v.changes["model.d_ff"], int)
        assert 16 <= v.config.model.d_ff <= 64
        assert 1 <= v.config.train.warmup_steps <= 100_000
        assert 1e-4 <= v.config.train.learning_rate_scale <= 1.0
        assert 0 <= v.config.model.dropout <= 0.5


@pytest.mark.parametrize("log", [False, True])
def test_ranges_of_decimal_keys_are_decimal_though_their_ends_are_whole(
    base: Config, log: bool
) -> None:
    space = {
        "train.learning_rate_scale": {"low": 1, "high": 4, "log": log},
        "model.d_ff": {"low": 16, "high": 64, "log": log},
    }
    drawn = [v.changes for v in accepted(swept(base, space, method="random", samples=20))[1:]]
    scales = [changes["train.learning_rate_scale"] for changes in drawn]
    assert len({*scales} - {1, 2, 3, 4}) > 10
    assert all(isinstance(scale, float) and 1 <= scale <= 4 for scale in scales)
    assert all(isinstance(changes["model.d_ff"], int) for changes in drawn)


def test_ranges_of_whole_number_keys_are_whole_however_their_ends_are_written(base: Config) -> None:
    space = {"train.warmup_steps": {"low": "1e3", "high": 4000.0}}
    drawn = [v.changes for v in accepted(swept(base, space, method="random", samples=5))[1:]]
    assert all(1000 <= changes["train.warmup_steps"] <= 4000 for changes in drawn)


def test_ranges_of_another_architecture_are_decimal_as_its_keys_are(base: Config) -> None:
    space = {"model.architecture": ["bytenet"], "model.unfolding": {"low": 1, "high": 3}}
    found = accepted(swept(base, space, method="random", samples=5))[1:]
    assert len({v.changes["model.unfolding"] for v in found} - {1, 2, 3}) == 5


@pytest.fixture
def keys_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives keys of a kind of section other types; they are read as these, too."""
    monkeypatch.setattr(loading, "_hints", typing.get_type_hints)

    def give(kind: Any, **hints: str) -> None:
        for key, hint in hints.items():
            monkeypatch.setitem(kind.__annotations__, key, hint)

    return give


@pytest.mark.parametrize("hint", ["float | None", "float | Literal['auto']"])
def test_ranges_of_decimals_beside_null_or_a_word_are_decimal(
    base: Config, hint: str, keys_of_ones_own: Callable[..., None]
) -> None:
    keys_of_ones_own(TrainConfig, learning_rate_scale=hint)
    for low in (1, 0.5):
        space = {"train.learning_rate_scale": {"low": low, "high": 4}}
        found = accepted(swept(base, space, method="random", samples=5))[1:]
        drawn = {v.changes["train.learning_rate_scale"] for v in found}
        assert len(drawn - {1, 2, 3, 4}) == 5
        assert all(low <= scale <= 4 for scale in drawn)


def test_values_of_a_key_may_be_null_words_and_lists(
    base: Config, keys_of_ones_own: Callable[..., None]
) -> None:
    keys_of_ones_own(
        TransformerConfig, dropout="float | None", heads="int | None",
        mixer_dilation="tuple[int, ...] | Literal['all']",
    )  # fmt: skip
    keys_of_ones_own(TrainConfig, label_smoothing="float | Literal['auto']")
    space = {
        "model.mixer_dilation": [[1, 2], "all"],
        "train.label_smoothing, model.heads": [["auto", 1], ["1e-1", None]],
    }
    drafts = [*search_space.changes(swept(base, space, method="grid"))]
    assert [tuple(changes.values()) for changes in drafts] == [
        ([1, 2], "auto", 1), ([1, 2], 0.1, None), ("all", "auto", 1), ("all", 0.1, None),
    ]  # fmt: skip
    found = accepted(swept(base, {"model.dropout": [None, "2e-1"]}))[1:]
    assert [(v.name, v.config.model.dropout) for v in found] == [
        ("dropout=None", None), ("dropout=0.2", 0.2),
    ]  # fmt: skip


def test_ranges_are_as_the_swept_architecture_has_the_key(
    base: Config, keys_of_ones_own: Callable[..., None]
) -> None:
    """Of two that each call something else so."""
    keys_of_ones_own(BytenetConfig, d_ff="float")
    keys_of_ones_own(TransformerConfig, dropout="float")
    keys_of_ones_own(BytenetConfig, dropout="int")
    space = {"model.d_ff": {"low": 16, "high": 64}, "model.dropout": {"low": 0, "high": 1}}
    drawn = [*search_space.changes(swept(base, space, method="random", samples=5))]
    assert all(isinstance(changes["model.d_ff"], int) for changes in drawn)
    assert all(isinstance(changes["model.dropout"], float) for changes in drawn)


def test_log_ranges_are_even_in_the_logarithm(base: Config) -> None:
    """As many draws below the geometric mean as above: 500 coins, 4 standard deviations."""
    drawn = search_space.changes(swept(base, RANGES, method="random", samples=500))
    scales = [changes["train.learning_rate_scale"] for changes in drawn]
    below = sum(scale < math.sqrt(1e-4 * 1.0) for scale in scales)
    assert len(scales) == 500
    assert abs(below - len(scales) / 2) < 4 * math.sqrt(len(scales) / 4)


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.sampled_from([0.0, 0.1, 0.2]), min_size=1, max_size=3),
)
def test_a_grid_has_each_combination_once(
    tiny_config: Config, heads: list[int], dropout: list[float]
) -> None:
    space = {"model.heads": heads, "model.dropout": dropout}
    found = accepted(swept(tiny_config, space, method="grid"))
    pairs = [(v.config.model.heads, v.config.model.dropout) for v in found]
    expected = {(h, d) for h in heads for d in dropout}
    expected.add((tiny_config.model.heads, tiny_config.model.dropout))
    assert sorted(pairs) == sorted(expected)


# --- seeds ---------------------------------------------------------------------------------------


def test_each_variant_is_trained_with_each_seed(base: Config) -> None:
    found = accepted(swept(base, {"model.heads": [1]}, base={"train.seed": 7}, seeds=3))
    assert [(v.name, v.variant, v.seed) for v in found] == [
        (f"{name} seed={seed}", name, seed) for name in ("base", "heads=1") for seed in (7, 8, 9)
    ]
    assert [v.config.train.seed for v in found] == [7, 8, 9, 7, 8, 9]
    assert [v.changes for v in found] == [{}] * 3 + [{"model.heads": 1}] * 3
    assert len({v.slug for v in found}) == len({v.fingerprint for v in found}) == 6


def test_more_seeds_leave_the_folders_of_the_first_alone(base: Config) -> None:
    one, three = (accepted(swept(base, {"model.heads": [1]}, seeds=seeds)) for seeds in (1, 3))
    assert [v.name for v in one] == ["base", "heads=1"]
    assert {v.slug for v in one} == {v.slug for v in three if v.seed == base.train.seed}


# --- values that are not valid -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("model.heads", "many", "model.heads must be a whole number, not 'many'"),
        ("model.heads", 0, "model.heads must be at least 1, not 0"),
        ("model.d_model", 33, "model.d_model must be even for sinusoidal positions, not 33"),
        ("model.dropout", math.inf, "model.dropout must be a number, not inf"),
        ("model.target_symbols", 64, "model.target_symbols must be 0 unless"),
        ("train.seed", 2**31, "train.seed must be below 2147483648"),
    ],
)
@pytest.mark.parametrize("method", ["one_at_a_time", "grid", "random"])
def test_a_variant_of_values_that_are_not_valid_is_refused_alone(
    base: Config, method: str, key: str, value: Any, cause: str
) -> None:
    good = configuration.flatten(base)[key]
    config = swept(base, {key: [good, value], "model.d_ff": [8]}, method=method, samples=30)
    found, [variant] = variants(config)
    assert {v.config.model.d_ff for v in found} == {64, 8}
    assert variant.cause.startswith(cause)
    assert "\n" not in variant.cause
    section, _, last = key.partition(".")
    asked = value if value != math.inf else "inf"
    assert variant.changes[key] == variant.values[section][last] == asked
    assert set(variant.values) == {"model", "train"}
    json.dumps([variant.changes, variant.values], allow_nan=False)


def test_values_that_json_does_not_know_are_refused_and_can_be_recorded(base: Config) -> None:
    strange = [[1, 2], {"a": 1}, math.nan]
    found = refused(swept(base, {"model.heads": strange}))
    assert [variant.name for variant in found] == [f"heads={value}" for value in strange]
    json.dumps([[v.changes, v.values] for v in found], allow_nan=False)


def test_what_is_averaged_elsewhere_is_no_matter_of_the_trials(base: Config) -> None:
    named = configuration.with_changes(base, {"evaluate.checkpoint_steps": [8, 12]})
    shorter = accepted(swept(named, {"train.steps": [4, 7]}, base={"train.steps": 5}))
    assert [v.config.train.steps for v in shorter] == [5, 4, 7]
    assert {v.config.evaluate.checkpoint_steps for v in shorter} == {()}


@pytest.mark.parametrize(
    "kept",
    [
        {"train.keep_best": 5, "evaluate.checkpoints": "best"},
        {"train.keep_every": 500},
        {"train.keep_checkpoints": 5, "evaluate.average_checkpoints": 5},
    ],
    ids=["best", "every", "newest"],
)
def test_checkpoints_that_no_trial_keeps_refuse_none(base: Config, kept: dict[str, Any]) -> None:
    """These the main training has at other steps than the trials have theirs."""
    every = {"train.steps": 1000, "train.validate_every": 250, "train.checkpoint_every": 250}
    config = configuration.with_changes(base, every | kept)
    own = {"train.validate_every": 100, "train.keep_checkpoints": 1}
    space = {"train.validate_every": [50], "train.checkpoint_every": [10]}
    for of_base in (own, {}):
        found = accepted(swept(config, space, base=of_base))
        assert [v.config.train.validate_every for v in found][1:] == [50]
    assert variants(swept(config, {}, base=own, method="none")) == ([], [])


@pytest.mark.parametrize("value", [datetime.date(2026, 1, 1), b"1", {1, 2}], ids=repr)
def test_values_that_cannot_be_recorded_are_a_mistake(base: Config, value: object) -> None:
    message = r"sweep\.space must be made of texts, numbers, .*, without dates, not \{'train.seed"
    with pytest.raises(UserError, match=message):
        swept(base, {"train.seed": [1, value]})


def test_a_trial_knows_nothing_of_self_training(base: Config) -> None:
    """Whose seed one of several may have, a variant or all of them."""
    trees = {"data.target": "trees", "model.target_symbols": 64, "model.tie_embeddings": False}
    asked = {"self_training.sentences": 5, "self_training.seed": base.train.seed + 1}
    config = configuration.with_changes(base, trees | asked | {"data.dataset": "phrasebook"})
    first, other = base.train.seed, base.train.seed + 1
    several = accepted(swept(config, {}, seeds=2))
    varied = accepted(swept(config, {"train.seed": [other]}))
    (alone,) = accepted(swept(config, {}, base={"train.seed": other}))
    found = [*several, *varied, alone]
    assert [one.config.train.seed for one in found] == [first, other, first, other, other]
    for one in found:
        assert configuration.from_dict(configuration.to_dict(one.config)) == one.config


# --- errors --------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"model.head": [1]}, {}, "did you mean model.heads?"),
    ({"model.heads": 4}, {}, "sweep.space.model.heads must be a list"),
    ({"model.heads": []}, {}, "sweep.space.model.heads must be a list"),
    ({"data.source": ["fr"]}, {}, "only model.* and train.*"),
    ({"evaluate.beam": [1]}, {}, "sweep.space.evaluate.beam"),
    ({"cluster.workers": [1]}, {}, "sweep.space.cluster.workers"),
    ({"heads": [1]}, {}, "sweep.space.heads"),
    ({"model.heads, model.d_k": [1, 2]}, {}, "must be a list of 2 values"),
    ({"model.heads, model.d_k": [[1, 2, 3]]}, {}, "must be a list of 2 values"),
    (
        {"model.heads": [1], "model.heads,model.d_k": [[1, 2]]},
        {"method": "grid"},
        "model.heads twice",
    ),
    (
        {"model.heads,model.d_k": [[1, 2]], "model.heads, model.d_k": [[2, 3]]},
        {},
        "model.heads, model.d_k twice",
    ),
    ({"model.dropout": {"low": 0.1, "high": 0.2}}, {}, "sweep.method random"),
    ({"model.dropout": {"low": 0.1, "high": 0.2}}, {"method": "grid"}, "sweep.method random"),
    ({"model.d_k, model.d_k": [[16, 32]]}, {}, "names model.d_k twice: give it one entry"),
    ({"model.dropout": {"low": 0.1}}, {"method": "random"}, "{low: , high: , log: true}"),
    ({"model.dropout": {"low": 0.1}}, {"method": "optuna"}, "{low: , high: , log: true}"),
    ({"model.head": [1]}, {"method": "optuna"}, "did you mean model.heads?"),
    ({}, {"method": "optuna"}, "sweep.space must name what sweep.method optuna may vary"),
    (
        {"model.heads": [1]},
        {"method": "optuna", "objectives": []},
        "sweep.objectives must name what sweep.method optuna looks for",
    ),
    (
        {"model.heads": [1]},
        {"method": "optuna", "objectives": ["bleu", "chrf", "bleu"]},
        "sweep.objectives names one twice: bleu, chrf, bleu",
    ),
    (
        {"model.heads": [1]},
        {"method": "optuna", "objectives": ["bleu", "flops"]},
        "sweep.scheduler must be none for several sweep.objectives, not asha",
    ),
    (
        {"model.heads": [1]},
        {"method": "optuna", "objectives": ["flops"], "budget": "flops"},
        "sweep.objectives names flops, which sweep.budget flops makes equal for all",
    ),
    ({"model.dropout": {"low": 0.2, "high": 0.1}}, {"method": "random"}, "must be below high"),
    ({"model.dropout": {"low": -1e308, "high": 1e308}}, {"method": "random"}, "too far apart"),
    ({"model.d_k": {"low": -(10**308), "high": 10**308}}, {"method": "random"}, "too far apart"),
    ({"model.dropout": {"low": 0, "high": 0.1, "log": True}}, {"method": "random"}, "above 0"),
    ({"model.dropout": {"low": "x", "high": 1}}, {"method": "random"}, "must be numbers"),
    ({"model.dropout": {"low": 0, "high": 10**400}}, {"method": "random"}, "must be numbers"),
    ({"model.layers": {"low": 0.5, "high": 4}}, {"method": "random"}, "must be whole numbers, not"),
    ({"model.layers": {"low": 1, "high": 10**400}}, {"method": "optuna"}, "must be numbers"),
    ({"model.dropout": {"low": 0, "high": 1, "log": 3}}, {"method": "random"}, "true or false"),
    (
        {"model.heads,model.d_k": {"low": 1, "high": 9}},
        {"method": "random"},
        "a list of value lists",
    ),
    ({"train.seed": [1, 2]}, {"seeds": 2}, "sweep.seeds"),
    ({"train.steps": [1, 2]}, {"budget": "tokens"}, "sweep.budget tokens"),
    ({"train.steps, model.heads": [[1, 2]]}, {"budget": "flops"}, "sweep.budget flops"),
    ({"model": [{}]}, {}, "model is a section; its keys are model.architecture"),
    ({}, {"base": {"model.head": 1}}, "sweep.base"),
    ({}, {"base": {"model.d_model": 33}}, "even for sinusoidal"),
    ({}, {"base": {"model.target_symbols": 64}}, "model.target_symbols must be 0 unless"),
    ({}, {"base": {"train.keep_every": 3}}, "train.keep_every must be 0 or a multiple of"),
    ({}, {"base": {"data.source": "fr"}}, "sweep.base.data.source"),
]


@pytest.mark.parametrize(("space", "sweep", "message"), WRONG)
def test_what_is_wrong_is_said_in_one_line(
    base: Config, space: dict[str, Any], sweep: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        variants(swept(base, space, **sweep))
    assert message in str(caught.value)
    assert "sweep." in str(caught.value)
    assert "\n" not in str(caught.value)


# --- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"train.keep_checkpoints": 9}, True),
        ({"train.keep_every": 300}, True),
        ({"train.checkpoint_every": 300, "train.keep_best": 0}, True),
        ({"train.tokens_per_pass": 70}, False),
        ({"train.tokens_per_pass": "auto"}, False),
        ({"train.validate_every": 50}, False),
        ({"sweep.space": {"train.tokens_per_pass": [100]}}, False),
    ],
)
def test_what_changes_no_update_trains_no_trial_anew(
    base: Config, changes: dict[str, Any], same: bool
) -> None:
    """A trial has a checkpoint at each validation, and the newest is scored. The size of a pass
    counts where it is compared alone, with that of the base."""
    config = swept(base, {"train.tokens_per_pass": [50]})
    every = {"train.validate_every": 100, "train.checkpoint_every": 100}
    before, after = (
        {variant.fingerprint for variant in accepted(configuration.with_changes(config, each))}
        for each in (every, every | changes)
    )
    assert (before == after) == same


@pytest.mark.parametrize(
    ("space", "anew"),
    [
        ({"model.heads": [1]}, []),
        ({"model.heads": [1], "model.dropout , train.tokens_per_pass": [[0.0, 50]]}, ["base"]),
    ],
)
@pytest.mark.parametrize("tokens", [70, "auto"])
def test_with_another_size_of_a_pass_what_it_is_compared_with_is_trained_anew(
    base: Config, space: dict[str, Any], anew: list[str], tokens: Any
) -> None:
    config = swept(base, space)
    other = configuration.with_changes(config, {"train.tokens_per_pass": tokens})
    pairs = zip(accepted(config), accepted(other), strict=True)
    assert [one.name for one, now in pairs if one.fingerprint != now.fingerprint] == anew


@pytest.mark.parametrize(("asked", "found"), [(70, 50), ("auto", "auto")])
def test_a_variant_as_it_was_trained_before_the_size_of_a_pass_was_changed(
    base: Config, asked: Any, found: Any
) -> None:
    variant = accepted(configuration.with_changes(base, {"train.tokens_per_pass": asked}))[0]
    trained = variant.trained_with(50)
    assert trained.config.train.tokens_per_pass == found
    assert trained.fingerprint == variant.fingerprint
    assert variant.trained_with(None) == variant


@pytest.mark.parametrize(("width", "expected"), [(32, "float32"), (128, "bf16")])
def test_auto_is_resolved_once_by_the_base(
    base: Config, monkeypatch: pytest.MonkeyPatch, width: int, expected: str
) -> None:
    """On a processor on which it depends on the width."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    changes = {"train.precision": "auto", "sweep.base": {"model.d_model": width}}
    space = {"model.d_model": [32, 64, 128], "model.dropout": [0.3]}
    config = configuration.with_changes(swept(base, space), changes)
    made = accepted(in_one_precision(config, functools.partial(sweep.resolve, config)))
    assert len(made) == 4
    assert {variant.config.train.precision for variant in made} == {expected}
    # Trained in another precision it is another training.
    before = {variant.fingerprint for variant in accepted(config)}
    assert not before & {variant.fingerprint for variant in made}


def test_precision_that_was_asked_for_is_kept(base: Config) -> None:
    def never(d_model: int) -> Precision:
        raise AssertionError("nothing is to be resolved")

    auto = configuration.with_changes(base, {"train.precision": "auto"})
    for config in (
        swept(base, {"model.heads": [1]}),
        swept(auto, {"model.heads": [1]}, base={"train.precision": "bf16"}),
        swept(auto, {}, method="none"),
    ):
        assert in_one_precision(config, never) == config
    own = in_one_precision(swept(auto, {"train.precision": ["float32"]}), lambda d_model: "bf16")
    assert [v.config.train.precision for v in accepted(own)] == ["bf16", "float32"]


def test_kinds_of_parts_are_swept_by_one_line_of_params_yaml() -> None:
    text = configuration.dump(presets.load("phrasebook").config)
    line = "    model.feed_forward: [swiglu]\n"
    config = configuration.parse(text)
    place = text.index("    model.heads, model.d_k")
    swept = configuration.parse(text[:place] + line + text[place:])
    found = {variant.name: variant for variant in variants(swept)[0]}
    before = {variant.name: variant for variant in variants(config)[0]}
    gated = found.pop("feed_forward=swiglu")
    assert gated.changes == {"model.feed_forward": "swiglu"}
    assert gated.config.model == dataclasses.replace(
        found["base"].config.model, feed_forward="swiglu"
    )
    # The trials that were there are found trained.
    assert {v.slug for v in found.values()} == {v.slug for v in before.values()}


def test_mixers_are_swept_at_equal_flops() -> None:
    text = configuration.dump(presets.load("phrasebook").config)
    place = text.index("    model.heads, model.d_k")
    line = "    model.encoder_mixer: [restricted, recurrent, convolutional, separable]\n"
    config = configuration.parse(text[:place] + line + text[place:])
    config = configuration.with_changes(config, {"sweep.budget": "flops"})
    mixed = {v.changes["model.encoder_mixer"] for v in accepted(config) if "mixer" in v.name}
    assert mixed == {"restricted", "recurrent", "convolutional", "separable"}


def test_median_has_few_rungs_in_the_steps_of_a_budget_too(base: Config) -> None:
    space = {"train.tokens_per_update": [1, base.train.tokens_per_update]}
    settings = {"budget": "tokens", "scheduler": "median", "grace_steps": 1}
    config = swept(base, space, **settings)
    few = configuration.with_changes(config, {"train.steps": MOST_RUNGS})
    found, [small] = variants(few)
    assert small.name == "tokens_per_update=1"
    assert small.cause.startswith("sweep.grace_steps must be at least ")
    assert [variant.name for variant in found] == ["base"]  # which the other value is
