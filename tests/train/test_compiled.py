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
from seq2sweep.model import attention, layers, varlen_attention
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train import step

from ..paper import packed  # noqa: F401  # it has a kernel for CPUs
from ..paper.models import VOCABULARY, padded, small

BATCHES = 100


@pytest.fixture(params=["padded", "packed"])
def as_on_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Dropout by PyTorch and fused attention, for which a CPU has other ways; of sentences that are
    padded for attention, or stay packed."""
    if request.param == "packed":
        monkeypatch.setattr(varlen_attention, "serves", lambda *_: True)
    for module in (attention, layers, transformer):
        monkeypatch.setattr(module, "dropout", lambda x, share, training: F.dropout(x, share))
    monkeypatch.setattr(attention.MultiHeadAttention, "_fused", lambda self, *_: True)
    torch._dynamo.reset()
    yield request.param
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


def test_layers_have_one_graph_each_for_a_hundred_batches(as_on_a_gpu: str) -> None:
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
    kernels = {sum("varlen" in str(node.target) for node in graph.graph.nodes) for graph in seen}
    assert kernels == ({1, 2} if as_on_a_gpu == "packed" else {0})


@pytest.mark.usefixtures("as_on_a_gpu")
def test_compiled_layers_give_the_same_loss() -> None:
    plain = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled.load_state_dict(plain.state_dict())
    for layer in compiled.blocks():
        layer.compile(backend="eager", dynamic=True)
    for batch in itertools.islice(batches(), 3):
        assert float(train(compiled, batch)) == float(train(plain, batch))


def test_what_is_tried_before_attention_stays_packed_is_in_no_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tried(_: torch.device, dtype: torch.dtype, size: int) -> bool:
        return varlen_attention.largest_error(torch.device("cpu"), dtype, size) < 0.1

    monkeypatch.setattr(varlen_attention, "_is_right", tried)

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x + varlen_attention.serves(torch.device("cuda"), torch.bfloat16, 64)

    torch._dynamo.reset()
    assert float(compiled(torch.zeros(1))) == 1
