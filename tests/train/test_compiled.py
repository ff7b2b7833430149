"""Layers can be compiled one by one, for batches of any lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.model import attention, layers
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train import step

from ..paper.models import VOCABULARY, padded, small

BATCHES = 100


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dropout by PyTorch and fused attention, for which a CPU has other ways."""
    for module in (attention, layers, transformer):
        monkeypatch.setattr(module, "dropout", lambda x, share, training: F.dropout(x, share))
    monkeypatch.setattr(attention.MultiHeadAttention, "_fused", lambda self, *_: True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batches() -> Iterator[Batch]:
    """Of 2 to 9 sentences of 2 to 40 pieces."""
    random = np.random.default_rng(0)
    while True:
        count = int(random.integers(2, 10))
        source, target_out = (padded(random.integers(2, 41, count).tolist()) for _ in range(2))
        target_in = target_out.roll(1, 1).masked_fill(target_out.eq(PAD), PAD)
        target_in[:, 0] = BOS
        yield Batch(source, target_in, target_out)


def train(model: Transformer, batch: Batch) -> torch.Tensor:
    loss, _ = step.accumulate(
        model, [batch], update_target_tokens=100, smoothing=0.1, world_size=1,
        precision="bf16", device=torch.device("cpu"),
    )  # fmt: skip
    model.zero_grad()
    return loss


@pytest.mark.usefixtures("as_on_a_gpu")
def test_layers_have_one_graph_each_for_a_hundred_batches() -> None:
    torch.manual_seed(1)
    model = Transformer(small(layers=1), VOCABULARY).train()
    seen: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph.forward

    for layer in model.blocks():
        layer.compile(backend=backend, dynamic=True, fullgraph=True)  # raises at a graph break
    for batch in itertools.islice(batches(), BATCHES):
        train(model, batch)
    # A layer of the encoder and one of the decoder, and at most two of them compiled once more.
    assert 2 <= len(seen) <= 4


@pytest.mark.usefixtures("as_on_a_gpu")
def test_compiled_layers_give_the_same_loss() -> None:
    plain = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled.load_state_dict(plain.state_dict())
    for layer in compiled.blocks():
        layer.compile(backend="eager", dynamic=True)
    for batch in itertools.islice(batches(), 3):
        assert float(train(compiled, batch)) == float(train(plain, batch))
