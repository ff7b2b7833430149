"""The recurrent model against a loop over the equations of GNMT (Wu et al. 2016, section 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seq2sweep.config import RecurrentConfig
from seq2sweep.model import flops
from seq2sweep.model.architecture.recurrent import _Loop

from .models import padded
from .test_rivals import made

Array = NDArray[np.float64]
SETTINGS = [
    {"layers": 2, "context": "current", "tie_embeddings": True},
    {"layers": 2, "context": "previous", "tie_embeddings": False},
    {"layers": 5, "context": "current", "tie_embeddings": False},
    {"layers": 5, "context": "previous", "tie_embeddings": True},
]


def array(x: Any) -> Array:
    return np.asarray(x.detach().numpy(), np.float64)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Lstm:
    """i, f, o = sigmoid, g = tanh of W x + U h + b; s = f s + i g; h = o tanh(s)."""

    def __init__(self, module: Any) -> None:
        self.w, self.u = array(module.weight_ih_l0), array(module.weight_hh_l0)
        self.b = array(module.bias_ih_l0) + array(module.bias_hh_l0)
        self.h = self.s = np.zeros(self.u.shape[1])

    def __call__(self, x: Array) -> Array:
        i, f, g, o = np.split(self.w @ x + self.u @ self.h + self.b, 4)
        self.s = sigmoid(f) * self.s + sigmoid(i) * np.tanh(g)
        self.h = sigmoid(o) * np.tanh(self.s)
        return self.h


def memory_of(model: Any, source: list[int]) -> list[Array]:
    d = model.config.d_model
    words = [array(model.source_embedding.weight)[w] * math.sqrt(d) for w in source]
    right, left = Lstm(model.rightwards), Lstm(model.leftwards)
    ahead = [right(x) for x in words]
    back = [left(x) for x in words[::-1]][::-1]
    states = [np.concatenate(both) for both in zip(ahead, back, strict=True)]
    for number, module in enumerate(model.encoder, 1):
        layer = Lstm(module)
        # The third layer, number 2, is the first with a residual connection.
        states = [layer(x) + (x if number >= 2 else 0) for x in states]
    return states


def logits_of(model: Any, source: list[int], target: list[int]) -> tuple[Array, Array]:
    """Logits [m, V] and the attention that each has read [m, n], even where it has read none."""
    d, bottom = model.config.d_model, model.bottom
    memory = memory_of(model, source)
    query, key = array(bottom.query.weight), array(bottom.key.weight)
    v = array(bottom.score)[:, 0]
    lowest, upper = Lstm(bottom.cell), [Lstm(module) for module in model.decoder]
    context, logits, shown = np.zeros(d), [], []
    weights = np.full(len(source), 1 / len(source))
    for word in target:
        x = array(model.target_embedding.weight)[word] * math.sqrt(d)
        before, earlier = context, weights
        x = lowest(np.concatenate((x, before)))
        scores = np.array([v @ np.tanh(query @ x + key @ state) for state in memory])
        weights = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        context = sum((a * state for a, state in zip(weights, memory, strict=True)), np.zeros(d))
        late = model.config.context == "previous"
        read = before if late else context
        for number, layer in enumerate(upper, 1):
            out = layer(np.concatenate((x, read)))
            x = out + (x if number >= 2 else 0)
        logits.append(array(model.projection.weight) @ x)
        shown.append(earlier if late else weights)
    return np.stack(logits), np.stack(shown)


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_it_is_the_model_of_the_equations(changes: dict[str, Any]) -> None:
    model = made({"architecture": "recurrent"} | changes).eval()
    lengths = [(9, 3), (5, 8), (1, 1)]
    source, target = padded([n for n, _ in lengths]), padded([m for _, m in lengths])
    logits = model(source, target)
    weights = model.attention_weights(source, target)["decoder.0.memory_attention"]
    for row, (n, m) in enumerate(lengths):
        expected, shown = logits_of(model, source[row, :n].tolist(), target[row, :m].tolist())
        assert abs(array(logits[row, :m]) - expected).max() < 1e-10
        assert abs(array(weights[row, 0, :m, :n]) - shown).max() < 1e-10
        assert abs(array(model.encode(source)[row, :n]) - memory_of(
            model, source[row, :n].tolist()
        )).max() < 1e-10  # fmt: skip


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_a_row_of_attention_is_what_its_logits_have_read(changes: dict[str, Any]) -> None:
    """Where attention by other weights changes no logits, it changes no row."""
    model = made({"architecture": "recurrent"} | changes).eval()
    source, target = padded([6]), padded([4])

    def of_rows() -> tuple[Array, Array]:
        weights = model.attention_weights(source, target)["decoder.0.memory_attention"]
        return array(model(source, target))[0], array(weights)[0, 0]

    before = of_rows()
    with torch.no_grad():
        model.bottom.score.neg_()
    changed = [abs(a - b).max(axis=1) > 1e-12 for a, b in zip(before, of_rows(), strict=True)]
    first = changes["context"] == "current"
    assert [rows.tolist() for rows in changed] == [[first, True, True, True]] * 2


def test_the_gradient_that_is_written_out_is_the_derivative() -> None:
    torch.manual_seed(0)
    shapes = [(3, 4, 24), (24, 12), (6, 6), (6, 1), (3, 5, 6), (3, 5, 6)]
    given = [(0.4 * torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes]
    mask = torch.zeros(3, 1, 5, dtype=torch.float64)
    mask[1, 0, 3:] = -math.inf
    before = [tensor.clone() for tensor in given]
    assert torch.autograd.gradcheck(lambda *g: _Loop.apply(*g, mask)[:2], given)
    assert all(torch.equal(a, b) for a, b in zip(before, given, strict=True))


def test_sizes_are_those_of_the_paper_and_of_its_implementations() -> None:
    """Three matrices of 32 000 and 8 + 8 layers of 1024: 280.8M without an LSTM's second bias,
    which cuDNN has; 278M are printed of the word-piece model. At base's width 64.6M."""

    def count(d: int, vocabulary: int, tied: bool) -> int:
        config = RecurrentConfig(
            architecture="recurrent", layers=8, d_model=d, dropout=0.2, tie_embeddings=tied
        )
        # 9 LSTMs of the encoder, 8 of the decoder, with 4 d numbers in each of two biases.
        return flops.parameter_count(config, vocabulary) - 17 * 4 * d

    assert count(1024, 32_000, False) == pytest.approx(280.8e6, rel=5e-4)
    assert count(512, 37_000, True) == pytest.approx(64.6e6, rel=1e-3)
