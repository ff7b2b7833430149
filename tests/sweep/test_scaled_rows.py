"""Sweeps of the rows of Table 3, at the paper's size and at others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.presets import table3
from seq2sweep.sweep.variants import Refused, Variant, variants

ROWS = table3.read().rows
PAPER = presets.load("base").config
SMALL = {
    "model.layers": 3,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.heads": 8,
    "model.d_k": 8,
    "model.d_v": 8,
    "train.steps": 200,
}


def swept(config: Config, **sweep: Any) -> tuple[list[Variant], list[Refused]]:
    changes = {"method": "table3", "rows": ["all"], "space": {}} | sweep
    return variants(
        configuration.with_changes(config, {f"sweep.{key}": v for key, v in changes.items()})
    )


def test_at_the_size_of_the_paper_the_rows_are_those_of_the_paper() -> None:
    found, refused = swept(PAPER)
    assert refused == []
    assert [(v.name, v.variant, v.row) for v in found] == [(r.name, r.name, r) for r in ROWS]
    for variant, row in zip(found, ROWS, strict=True):
        assert variant.changes == row.changes
        alone = presets.load(f"table3-{row.name}").config
        assert (variant.config.model, variant.config.train.steps) == (
            alone.model,
            alone.train.steps,
        )
        assert variant.config.train.label_smoothing == alone.train.label_smoothing


def test_a_smaller_base_has_the_rows_in_its_own_size(tiny_config: Config) -> None:
    """All 20 of them, by the ratios: d_k 8 is to the 2 of the first row of B what 64 is to 16."""
    found, refused = swept(tiny_config, base=SMALL)
    assert refused == []
    assert {v.name: v.changes for v in found} == {
        "base": {},
        "A-heads-1": {"model.heads": 1, "model.d_k": 64, "model.d_v": 64},
        "A-heads-4": {"model.heads": 4, "model.d_k": 16, "model.d_v": 16},
        "A-heads-16": {"model.heads": 16, "model.d_k": 4, "model.d_v": 4},
        "A-heads-32": {"model.heads": 32, "model.d_k": 2, "model.d_v": 2},
        "B-d_k-16": {"model.d_k": 2},
        "B-d_k-32": {"model.d_k": 4},
        "C-layers-2": {"model.layers": 1},
        "C-layers-4": {"model.layers": 2},
        "C-layers-8": {"model.layers": 4},
        "C-d_model-256": {"model.d_model": 32, "model.d_k": 4, "model.d_v": 4},
        "C-d_model-1024": {"model.d_model": 128, "model.d_k": 16, "model.d_v": 16},
        "C-d_ff-1024": {"model.d_ff": 128},
        "C-d_ff-4096": {"model.d_ff": 512},
        "D-dropout-0.0": {"model.dropout": 0.0},
        "D-dropout-0.2": {"model.dropout": 0.2},
        "D-label_smoothing-0.0": {"train.label_smoothing": 0.0},
        "D-label_smoothing-0.2": {"train.label_smoothing": 0.2},
        "E-learned-positions": {"model.positions": "learned"},
        "big": {
            "model.d_model": 128,
            "model.d_ff": 512,
            "model.heads": 16,
            "model.dropout": 0.3,
            "train.steps": 600,
        },
    }


def test_a_row_whose_values_are_not_whole_is_refused_and_says_what_base_has_it(
    tiny_config: Config,
) -> None:
    found, refused = swept(tiny_config, base=SMALL | {"model.heads": 4, "model.layers": 2})
    assert {variant.name: variant.cause for variant in refused} == {
        "A-heads-1": "model.heads would be 0.5: the base must have a multiple of 8",
        "C-layers-2": "model.layers would be 0.666667: the base must have a multiple of 3",
        "C-layers-4": "model.layers would be 1.33333: the base must have a multiple of 3",
        "C-layers-8": "model.layers would be 2.66667: the base must have a multiple of 3",
    }
    assert refused[0].values["model"]["heads"] == refused[0].changes["model.heads"] == 0.5
    assert refused[0].row == ROWS[1]
    assert len(found) + len(refused) == 20


def test_a_row_that_is_another_one_here_is_refused(tiny_config: Config) -> None:
    _, refused = swept(tiny_config, base=SMALL | {"model.dropout": 0.2})
    assert [(v.name, v.cause) for v in refused] == [
        ("D-dropout-0.2", "it is the same as base here")
    ]


def test_a_row_that_is_not_valid_here_is_refused(tiny_config: Config) -> None:
    """Half of a width of 2 is odd, which the sines and cosines cannot share."""
    _, refused = swept(tiny_config, base=SMALL | {"model.d_model": 2}, rows=["C-d_model-256"])
    assert [v.cause for v in refused] == [
        "model.d_model must be even for sinusoidal positions, not 1"
    ]


@settings(max_examples=30)
@given(
    st.fixed_dictionaries(
        {key: st.integers(1, 64) for key in SMALL if key not in ("model.d_model", "train.steps")}
    )
)
def test_every_row_is_trained_or_refused_and_keeps_the_ratios(
    tiny_config: Config, base: dict[str, int]
) -> None:
    found, refused = swept(tiny_config, base=SMALL | base)
    assert {v.name for v in found} | {v.name for v in refused} == {row.name for row in ROWS}
    ours, paper = (configuration.flatten(config) for config in (found[0].config, PAPER))
    for variant in found:
        assert variant.row is not None
        values = configuration.flatten(variant.config)
        for key in variant.row.changes.keys() & SMALL.keys():
            assert values[key] * paper[key] == variant.row.changes[key] * ours[key]


# --- which ---------------------------------------------------------------------------------------


def test_rows_are_chosen_by_name_and_by_group_in_the_order_of_the_paper() -> None:
    found, _ = swept(PAPER, rows=["big", "B", "A-heads-4", "B-d_k-16", "base"])
    assert [v.name for v in found] == ["base", "A-heads-4", "B-d_k-16", "B-d_k-32", "big"]
    assert [v.row.group for v in found if v.row] == ["base", "A", "B", "B", "big"]


@pytest.mark.parametrize("rows", [[], ["base"]])
def test_the_base_is_always_there(rows: list[str]) -> None:
    assert [v.name for v in swept(PAPER, rows=rows)[0]] == ["base"]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("A-head-1", "did you mean A-heads-1?"),
        ("a", "did you mean A?"),
        ("All", "did you mean all?"),
        ("b-dk-16", "did you mean B-d_k-16?"),
        ("???", "known: all, base, A, A-heads-1, "),
    ],
)
def test_a_row_that_the_table_does_not_have_gets_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        swept(PAPER, rows=["base", wrong])
    assert f"sweep.rows: Table 3 has no row or group {wrong}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_space_beside_the_rows_is_an_error() -> None:
    with pytest.raises(UserError, match=r"sweep\.space must be \{\} for sweep\.method table3"):
        swept(PAPER, space={"model.heads": [1]})
