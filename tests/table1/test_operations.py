"""Longest chains of dependent products, and what a forward pass keeps, by small examples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seq2sweep.table1.layer_types import build
from seq2sweep.table1.operations import chain_of, longest_chain, saved_bytes
from seq2sweep.table1.rows import ROWS, Row

CHAINS = {
    "self_attention": 3,  # scores, softmax, weighted sum
    "restricted": 3,
    "convolutional": 1,
    "dilated": 1,
    "separable": 2,
    "multi_head": 5,  # projections before, and one after
    "multi_head_restricted": 5,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_chains_are_constant_or_as_long_as_the_sentence(row: Row) -> None:
    for n in (4, 9, 17, 40):
        assert longest_chain(row.name, n, 3, 5) == CHAINS.get(row.name, n)
    assert (row.sequential == "O(n)") is (row.name not in CHAINS)


def test_the_chain_of_a_graph_is_its_longest_way() -> None:
    x = torch.eye(3, requires_grad=True)
    assert chain_of(x + 1) == 0
    assert chain_of(x @ x) == 1
    side_by_side = (x @ x) + (x @ x)
    assert chain_of(side_by_side) == 1
    assert chain_of(torch.softmax(side_by_side @ x, dim=0) + x @ x) == 3


def test_what_is_kept_is_counted_once_and_weights_are_not() -> None:
    x = torch.randn(1, 10, 8, requires_grad=True)
    assert saved_bytes(nn.Identity(), x) == 0
    linear = nn.Linear(8, 8, bias=False)
    assert saved_bytes(linear, x) == 10 * 8 * 4  # its input
    # tanh keeps its output, which the second product keeps too.
    two = nn.Sequential(linear, nn.Tanh(), nn.Linear(8, 8, bias=False))
    assert saved_bytes(two, x) == 2 * 10 * 8 * 4


def test_fused_attention_keeps_no_scores_and_plain_products_do() -> None:
    n, d = 256, 64
    layer = build("multi_head", d, 3, 5)
    x = torch.randn(1, n, d, requires_grad=True)
    fused = saved_bytes(layer, x)
    layer.keep_weights = True  # type: ignore[assignment]
    plain = saved_bytes(layer, x)
    assert fused < 10 * n * d * 4
    # One head: its weights, at least.
    assert n * n * 4 < plain - fused < 4 * n * n * 4
