"""The presets of the paper against its Tables 2 and 3, typed off here a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data import sources
from seq2sweep.model.flops import parameter_count
from seq2sweep.presets import table3
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.variants import variants

COLUMNS = (
    "model.layers",
    "model.d_model",
    "model.d_ff",
    "model.heads",
    "model.d_k",
    "model.d_v",
    "model.dropout",
    "train.label_smoothing",
    "train.steps",
    "model.positions",
)
# Row, settings in the order of COLUMNS (a dot for an empty cell), perplexity, BLEU, parameters.
PRINTED = """
base                  6 512  2048 8  64  64  0.1 0.1 100000 sinusoidal  4.92 25.8 65
A-heads-1             . .    .    1  512 512 .   .   .      .           5.29 24.9 .
A-heads-4             . .    .    4  128 128 .   .   .      .           5.00 25.5 .
A-heads-16            . .    .    16 32  32  .   .   .      .           4.91 25.8 .
A-heads-32            . .    .    32 16  16  .   .   .      .           5.01 25.4 .
B-d_k-16              . .    .    .  16  .   .   .   .      .           5.16 25.1 58
B-d_k-32              . .    .    .  32  .   .   .   .      .           5.01 25.4 60
C-layers-2            2 .    .    .  .   .   .   .   .      .           6.11 23.7 36
C-layers-4            4 .    .    .  .   .   .   .   .      .           5.19 25.3 50
C-layers-8            8 .    .    .  .   .   .   .   .      .           4.88 25.5 80
C-d_model-256         . 256  .    .  32  32  .   .   .      .           5.75 24.5 28
C-d_model-1024        . 1024 .    .  128 128 .   .   .      .           4.66 26.0 168
C-d_ff-1024           . .    1024 .  .   .   .   .   .      .           5.12 25.4 53
C-d_ff-4096           . .    4096 .  .   .   .   .   .      .           4.75 26.2 90
D-dropout-0.0         . .    .    .  .   .   0.0 .   .      .           5.77 24.6 .
D-dropout-0.2         . .    .    .  .   .   0.2 .   .      .           4.95 25.5 .
D-label_smoothing-0.0 . .    .    .  .   .   .   0.0 .      .           4.67 25.3 .
D-label_smoothing-0.2 . .    .    .  .   .   .   0.2 .      .           5.47 25.7 .
E-learned-positions   . .    .    .  .   .   .   .   .      learned     4.92 25.7 .
big                   6 1024 4096 16 64  64  0.3 .   300000 .           4.33 26.4 213
"""
ROWS = [line.split() for line in PRINTED.split("\n") if line]
NAMES = [row[0] for row in ROWS]
BASE = presets.load("base").config
SCORING = {
    "data.dataset": "wmt14-en-de-newstest2013",
    "evaluate.average_checkpoints": 1,
}
BASE_FAMILY = {row[0]: int(row[-1]) for row in ROWS if row[-1] != "." and row[0] != "big"}


def settings(row: list[str]) -> dict[str, Any]:
    """What a printed row sets, by dotted key; empty cells are left out."""
    cells = row[1 : 1 + len(COLUMNS)]

    def value(text: str) -> Any:
        return float(text) if "." in text else int(text) if text.isdigit() else text

    return {key: value(cell) for key, cell in zip(COLUMNS, cells, strict=True) if cell != "."}


def row_config(name: str) -> configuration.Config:
    return presets.load(f"table3-{name}").config


def fits(config: configuration.Config, millions: int) -> set[int]:
    """Vocabulary sizes at which the count, in whole millions, is the one printed."""
    sizes = range(30_000, 50_000)
    return {size for size in sizes if round(parameter_count(config.model, size) / 1e6) == millions}


# --- Table 3 ---------------------------------------------------------------------------------


def test_all_rows_are_presets_in_the_papers_order() -> None:
    assert [row.name for row in table3.read().rows] == NAMES
    assert [n for n in presets.names() if n.startswith("table3-")] == [f"table3-{n}" for n in NAMES]


@pytest.mark.parametrize("printed_row", ROWS, ids=NAMES)
def test_a_row_changes_in_base_what_is_printed_and_how_it_is_scored(printed_row: list[str]) -> None:
    name, printed = printed_row[0], settings(printed_row)
    before, after = configuration.flatten(BASE), configuration.flatten(row_config(name))
    changed = {key: after[key] for key in after if after[key] != before[key]}
    # What a sweep would train beside it is no part of the row.
    changed.pop("sweep.base", None)
    changed.pop("sweep.rows", None)
    differences = {key: value for key, value in printed.items() if value != before[key]}
    assert changed == differences | SCORING
    assert {key: after[key] for key in printed} == printed


@pytest.mark.parametrize("printed_row", ROWS, ids=NAMES)
def test_figures_are_those_printed(printed_row: list[str]) -> None:
    row = next(row for row in table3.read().rows if row.name == printed_row[0])
    millions = "." if row.parameters_millions is None else str(row.parameters_millions)
    assert [f"{row.perplexity:.2f}", f"{row.bleu:.1f}", millions] == printed_row[-3:]
    assert row.group == printed_row[0].partition("-")[0]
    assert f"paper: {printed_row[-2]} " in presets.load(f"table3-{row.name}").score


def test_rows_are_scored_on_the_validation_set() -> None:
    config = row_config("base")
    folder = Path(sources.__file__).parents[3] / BASE.data.folder
    scored, base = (sources.load(folder, c.data.dataset, "en", "de").splits for c in (config, BASE))
    assert scored["test"] == scored["valid"] == base["valid"] != base["test"]
    assert scored["train"] == base["train"]
    assert config.evaluate.beam == 4


# --- parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "millions"), BASE_FAMILY.items())
def test_printed_counts_fit_a_vocabulary_of_41096(name: str, millions: int) -> None:
    assert round(parameter_count(row_config(name).model, 41_096) / 1e6) == millions


def test_the_base_family_fits_no_vocabulary_but_41004_to_41208() -> None:
    """Not the 37000 of section 5.1, at which base has 63.05M."""
    assert len(BASE_FAMILY) == 10
    common = set.intersection(*(fits(row_config(n), count) for n, count in BASE_FAMILY.items()))
    assert common == set(range(41_004, 41_209))
    assert parameter_count(BASE.model, BASE.vocabulary.size) == 63_045_632


def test_the_count_of_big_fits_another_vocabulary_than_the_base_family() -> None:
    """213 is printed; it is 214.2 at 37000 pieces and 218.4 at 41096."""
    big = row_config("big")
    assert fits(big, 213) == set(range(35_368, 36_345))
    assert parameter_count(big.model, 37_000) == 214_171_648
    assert parameter_count(big.model, 41_096) == 218_365_952


def test_row_b_differs_from_base_by_its_queries_and_keys() -> None:
    """18 attention blocks, W^Q and W^K in each: 512 x 8 heads x (64 - 16) less."""
    base, row = (parameter_count(row_config(name).model, 37_000) for name in ("base", "B-d_k-16"))
    assert base - row == 18 * 2 * 512 * 8 * 48 == 7_077_888


# --- Table 2 and section 5 -------------------------------------------------------------------


def test_base_is_the_model_of_sections_3_to_6() -> None:
    values = configuration.flatten(BASE)
    expected = settings(ROWS[0]) | {
        "data.source": "en",
        "data.target": "de",
        "data.dataset": "wmt14-en-de",
        "vocabulary.size": 37_000,
        "prepare.lowercase": False,
        "model.attention": "scaled_dot_product",
        "model.norm": "post",
        "model.attention_dropout": 0.0,
        "model.feed_forward_dropout": 0.0,
        "model.tie_embeddings": True,
        "train.tokens_per_update": 25_000,
        "train.warmup_steps": 4000,
        "train.learning_rate_scale": 1.0,
        # 10 minutes of 0.4 seconds a step.
        "train.checkpoint_every": round(10 * 60 / 0.4),
        "evaluate.average_checkpoints": 5,
        "evaluate.beam": 4,
        "evaluate.length_penalty": "paper",
        "evaluate.alpha": 0.6,
        "evaluate.max_extra_tokens": 50,
        "cluster.workers": 8,
        "cluster.gpus_per_worker": 1,
    }
    assert {key: values[key] for key in expected} == expected
    about = presets.load("base")
    assert "27.3" in about.score
    assert "12 hours" in about.time


def test_big_is_the_big_row_of_table_3_scored_as_table_2() -> None:
    big, row = (
        configuration.flatten(config) for config in (presets.load("big").config, row_config("big"))
    )
    assert {key for key in big if big[key] != row[key]} == {
        *SCORING,
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "sweep.base",
        "sweep.rows",
        "sweep.space",
    }
    assert big["data.dataset"] == "wmt14-en-de"
    # 10 minutes of 1.0 seconds a step; section 6.1.
    assert big["train.checkpoint_every"] == 10 * 60
    assert big["evaluate.average_checkpoints"] == 20
    about = presets.load("big")
    assert "28.4" in about.score
    assert "3.5 days" in about.time


@pytest.mark.parametrize(
    ("name", "bleu"),
    [
        ("wmt14-en-de-base", "27.3"),
        ("wmt14-en-de-big", "28.4"),
        ("wmt14-en-fr-base", "38.1"),
        ("wmt14-en-fr-big", "41.8"),
    ],
)
def test_the_list_says_what_table_2_does(name: str, bleu: str) -> None:
    preset = presets.load(name)
    assert preset.score == f"not run here yet; paper: {bleu}"
    assert preset.time == "paper: " + ("3.5 days" if name.endswith("big") else "12 hours")


def test_the_list_says_what_the_rows_of_a_sweep_reach() -> None:
    preset = presets.load("wmt14-en-de-table3")
    names = {trial.row.name for trial in variants(preset.config)[0] if trial.row}
    figures = [float(row[-2]) for row in ROWS if row[0] in names]
    assert len(figures) == 19
    assert f"paper: {min(figures)} to {max(figures)}, rows of the table" in preset.score


# --- sweeps ----------------------------------------------------------------------------------


def asked(config: configuration.Config) -> configuration.Config:
    """The same with a sweep, which presets of this size have only when they are told to."""
    assert config.sweep.method == "none"
    return configuration.with_changes(config, {"sweep.method": "table3"})


def test_the_preset_of_table_3_is_base_with_its_sweep() -> None:
    assert presets.load("wmt14-en-de-table3").config == asked(BASE)


@pytest.mark.parametrize("name", presets.names())
def test_a_scheduler_that_a_preset_has_can_stop_a_trial(name: str) -> None:
    """No trial is judged before its warm-up is over."""
    config = presets.load(name).config
    if config.sweep.scheduler == "none":
        return
    found, _ = variants(config)
    rungs = Rungs(
        config.sweep.scheduler,
        len(found),
        grace_steps=config.sweep.grace_steps,
        reduction_factor=config.sweep.reduction_factor,
        longest=max(one.config.train.steps for one in found),
    )
    assert any(
        one.config.warmup_steps <= rung < one.config.train.steps
        for one in found
        for rung in rungs.steps
    )


@pytest.mark.parametrize("name", ["base", "table3-base"])
def test_the_sweep_of_base_is_table_3(name: str) -> None:
    """Each trial is one printed row of (A) to (E); all are trained to their end."""
    config = asked(presets.load(name).config)
    found, refused = variants(config)
    assert refused == []
    assert [variant.name for variant in found] == NAMES[:-1]
    assert [variant.changes for variant in found] == [{}, *map(settings, ROWS[1:-1])]
    assert [variant.config.model for variant in found] == [row_config(n).model for n in NAMES[:-1]]
    assert {variant.config.evaluate.average_checkpoints for variant in found} == {1}
    assert config.sweep.scheduler == "none"


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_sweep_of_a_row_is_the_base_row_and_the_row(name: str) -> None:
    (base, row), _ = variants(asked(row_config(name)))
    assert base.config.model == BASE.model
    assert row.config.model == row_config(name).model
    assert row.config.train.steps == row_config(name).train.steps
    assert row.config.train.label_smoothing == row_config(name).train.label_smoothing
    # A trial that table3-base has trained is not trained again: folders are named by this.
    trained = {variant.fingerprint for variant in variants(asked(row_config("base")))[0]}
    assert base.fingerprint in trained
    assert (row.fingerprint in trained) == (name != "big")
