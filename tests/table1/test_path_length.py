"""Maximum path lengths: by a search in the graph, by derivatives, and in closed form."""

from __future__ import annotations

import itertools

import pytest
import torch

from seq2sweep.table1 import path_length
from seq2sweep.table1.path_length import by_graph, by_jacobian, dilations_below
from seq2sweep.table1.rows import BY_NAME, ROWS, Row

NAMES = [row.name for row in ROWS]
BYTENET = (1, 2, 4, 8, 16)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_graph_and_closed_form_agree(row: Row, causal: bool) -> None:
    form = row.path_causal if causal else row.path_both
    for k, r in ((3, 5), (5, 9), (7, 3)):
        for n in range(2, 65):
            exact = form(n, k, r)
            found = by_graph(row.name, n, k, r, causal=causal)
            assert found is not None
            assert exact is None or found == exact, (n, k, r)
            # The paper's orders, as they are meant: the same but for a factor and an ending.
            assert row.order(n, k, r) / 2 - 1 <= found <= 3 * row.order(n, k, r) + 2, (n, k, r)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_graph_and_derivatives_agree(name: str, causal: bool, thorough: bool) -> None:
    for n in range(2, 65) if thorough else (2, 3, 4, 7, 10, 28):
        for k, r in ((3, 5), (5, 9)) if thorough and n < 20 else ((3, 5),):
            found = by_jacobian(name, n, k, r, causal=causal)
            assert found == by_graph(name, n, k, r, causal=causal), (n, k, r)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_each_edge_is_there_by_both(name: str, causal: bool) -> None:
    """The longest path alone would not show an edge too many, nor a position seen too early."""
    for n in (2, 5, 11):
        dilations = (1, 3) if name == "dilated" else (1,)
        for operations in (1, 2, 3):
            # Whether so many operations at most bring anything of input j to output i: [i][j].
            reached = [
                path_length._reached(name, n, 3, 5, causal, dilations, start) for start in range(n)
            ]
            found = [next(itertools.islice(sets, operations - 1, None)) for sets in reached]
            of_graph = [[bool(each >> i & 1) for each in found] for i in range(n)]
            generator = torch.Generator().manual_seed(n)
            draws = [
                path_length._Draw(name, n, 3, 5, causal, dilations, generator).support(operations)
                for _ in range(path_length.DRAWS)
            ]
            assert of_graph == torch.stack(draws).any(dim=0).tolist(), (n, operations)
            if causal:
                assert not any(of_graph[i][j] for i in range(n) for j in range(i + 1, n))


def test_a_centred_stack_needs_its_dilations_again() -> None:
    """By brute force elsewhere; log_k n is the order, not the number."""
    for k, known in ((3, {8: 4, 16: 5, 27: 6, 64: 8, 128: 9}), (5, {8: 3, 16: 4, 27: 5, 128: 7})):
        for n, length in known.items():
            assert by_graph("dilated", n, k, 3, causal=False) == length
    assert by_graph("dilated", 64, 5, 3, causal=False) == 5


def test_each_dilation_once_never_connects_all_positions() -> None:
    """With k = 3 the way from 0 to 2 is -1 + 3, and leaves the sentence."""
    for k in (3, 5, 7):
        for n in range((k + 1) // 2 + 1, 100):
            once = dilations_below(n, k)
            assert by_graph("dilated", n, k, 3, causal=False, most=len(once)) is None
            assert by_graph("dilated", n, k, 3, causal=True, most=len(once)) == len(once)
    for n in (4, 9, 20):
        most = len(dilations_below(n, 3))
        assert by_jacobian("dilated", n, 3, 3, causal=False, most=most) is None
    assert by_graph("dilated", 2, 3, 3, causal=False, most=1) == 1


def test_the_cycle_of_bytenet() -> None:
    known = {8: 3, 16: 4, 32: 5, 64: 11, 128: 22}
    for n, length in known.items():
        assert by_graph("dilated", n, 3, 3, causal=False, dilations=BYTENET) == length
    for n in (8, 32, 40):
        graph = by_graph("dilated", n, 3, 3, causal=True, dilations=BYTENET)
        assert by_jacobian("dilated", n, 3, 3, causal=True, dilations=BYTENET) == graph
    # A set of five reaches back 62 positions: the 63rd is seen by one set, the 64th is not.
    assert by_graph("dilated", 63, 3, 3, causal=True, dilations=BYTENET) == 5
    assert by_graph("dilated", 64, 3, 3, causal=True, dilations=BYTENET) == 6


def test_a_recurrence_in_one_direction_never_sees_what_comes() -> None:
    assert BY_NAME["recurrent"].path_both(9, 3, 3) == 9
    assert by_graph("recurrent", 9, 3, 3, causal=False) == 9  # with a second one, from the right
    assert by_graph("recurrent", 9, 3, 3, causal=True, most=8) is None
    assert by_jacobian("recurrent", 9, 3, 3, causal=True, most=8) is None
