"""The layers of Table 1 against loops written from their definitions, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seq2sweep.table1.layer_types import RECURRENT, build, cells_of, written_out
from seq2sweep.table1.rows import BY_NAME, ROWS, Row

K, R = 3, 5


def example(d: int = 128, n: int = 70) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, n, d, dtype=torch.float64)


def attention_by_loops(x: Tensor, heads: int, reach: int | None, causal: bool) -> Tensor:
    """Queries, keys and values are x; reach: positions seen on each side, of causal ones behind."""
    out = torch.zeros_like(x)
    width = x.size(-1) // heads
    for sentence, head in ((s, h) for s in range(len(x)) for h in range(heads)):
        own = slice(head * width, (head + 1) * width)
        for i in range(x.size(1)):
            first = 0 if reach is None else max(0, i - reach)
            last = (
                i if causal else x.size(1) - 1 if reach is None else min(x.size(1) - 1, i + reach)
            )
            near = x[sentence, first : last + 1, own]
            scores = near @ x[sentence, i, own] / math.sqrt(width)
            out[sentence, i, own] = torch.softmax(scores, dim=0) @ near
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_attention_alone(causal: bool) -> None:
    x = example()
    layer = build("self_attention", 128, K, R, causal=causal)
    torch.testing.assert_close(layer(x), attention_by_loops(x, 2, None, causal), rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_restricted_attention_alone(causal: bool) -> None:
    x = example()
    layer = build("restricted", 128, K, R, causal=causal)
    reach = R - 1 if causal else (R - 1) // 2
    torch.testing.assert_close(
        layer(x), attention_by_loops(x, 2, reach, causal), rtol=0, atol=1e-10
    )


def test_elman_is_its_definition() -> None:
    x = example(16, 9)
    layer = build("recurrent", 16, K, R).double()
    own = dict(layer.named_parameters())
    state, out = torch.zeros(2, 16, dtype=torch.float64), []
    for i in range(9):
        state = torch.tanh(x[:, i] @ own["rnn.weight_ih_l0"].T + state @ own["rnn.weight_hh_l0"].T)
        out.append(state)
    torch.testing.assert_close(layer(x), torch.stack(out, dim=1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_counted_computes_what_is_timed(row: Row) -> None:
    x = example(64, 50)
    timed = build(row.name, 64, K, R).double()
    if row.name in RECURRENT:
        written = cells_of(row.name, timed)
    else:
        written = written_out(row.name, 64, K, R).double()
        written.load_state_dict(timed.state_dict())
    torch.testing.assert_close(written(x), timed(x), rtol=0, atol=1e-10)


def test_only_recurrent_layers_have_cells() -> None:
    with pytest.raises(ValueError, match="dilated is no recurrent layer"):
        cells_of("dilated", build("dilated", 8, K, R))
    assert set(RECURRENT) < set(BY_NAME)
