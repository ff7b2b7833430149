"""The closed forms of Table 1: what each layer costs, and where two cost the same."""

from __future__ import annotations

import pytest

from seq2sweep.config import Table1Config
from seq2sweep.table1.layer_types import build, settings
from seq2sweep.table1.operations import counted_flops
from seq2sweep.table1.rows import (
    ALL,
    BY_NAME,
    CROSSOVERS,
    ROWS,
    Row,
    causal_dilated,
    chosen,
    timing_seconds,
)

SIZES = [(2, 64, 3, 3), (40, 64, 5, 31), (100, 128, 3, 31), (33, 12, 7, 5), (130, 192, 3, 9)]
"""n, d, k and r, n no multiple of the blocks of restricted attention and d not of a head."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_formula_and_counter_agree_to_the_last_operation(row: Row) -> None:
    for n, d, k, r in SIZES:
        assert counted_flops(row.name, n, d, k, r) == row.flops(n, d, k, r)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_parameters_are_those_of_the_layer(row: Row) -> None:
    for n, d, k, r in SIZES:
        layer = build(row.name, d, k, r)
        assert sum(p.numel() for p in layer.parameters()) == row.parameters(n, d, k, r)


def test_the_papers_crossovers() -> None:
    """Attention alone and Elman at n = d; the whole layer and an LSTM at n = 2d."""
    assert [(pair.first, pair.second, pair.multiple) for pair in CROSSOVERS] == [
        ("self_attention", "recurrent", 1),
        ("multi_head", "lstm", 2),
    ]
    for pair in CROSSOVERS:
        first, second = BY_NAME[pair.first].flops, BY_NAME[pair.second].flops
        for d in (64, 512):
            n = pair.multiple * d
            assert first(n, d, 3, 31) == second(n, d, 3, 31)
            assert first(n - 1, d, 3, 31) < second(n - 1, d, 3, 31)
            assert first(n + 1, d, 3, 31) > second(n + 1, d, 3, 31)
    # A whole multi-head layer never needs fewer operations than an Elman layer.
    whole, elman = BY_NAME["multi_head"].flops, BY_NAME["recurrent"].flops
    assert all(whole(n, 512, 3, 31) > elman(n, 512, 3, 31) for n in (1, 10, 10_000))


def test_a_separable_convolution_of_k_n_costs_attention_and_a_product() -> None:
    """Section 4: even with k = n it costs as much as self-attention and a feed-forward layer."""
    separable, attention = BY_NAME["separable"].flops, BY_NAME["self_attention"].flops
    for n, d in ((27, 512), (101, 64)):
        assert separable(n, d, n, 3) == attention(n, d, 3, 3) // 2 + 2 * n * d**2


def test_logarithms_are_whole_numbers() -> None:
    """math.log(125, 5) is a little more than 3."""
    assert [causal_dilated(n, 5) for n in (2, 5, 6, 25, 26, 125, 126)] == [1, 1, 2, 2, 3, 3, 4]
    assert [causal_dilated(n, 3) for n in (3, 9, 27, 243, 244)] == [1, 2, 3, 5, 6]


def test_rows_are_chosen_in_the_order_of_the_table() -> None:
    assert chosen([ALL]) == list(ROWS)
    assert [row.name for row in chosen(["lstm", "self_attention"])] == ["self_attention", "lstm"]


def test_what_the_table_says_of_heads_is_so() -> None:
    names = ("self_attention", "restricted", "multi_head", "multi_head_restricted")
    for name in names:
        assert BY_NAME[name].timed.endswith(", heads of 64, or one where d is no multiple of that")
    assert [settings(d, 3, 31).heads for d in (64, 192, 96, 100)] == [1, 3, 1, 1]


def test_the_plan_expects_half_a_minute_of_the_stage_and_minutes_of_the_command() -> None:
    from seq2sweep.table1.measure import FULL

    assert 10 < timing_seconds(Table1Config()) < 60
    assert 60 < timing_seconds(Table1Config(**FULL)) < 300
