"""The Transformer against torch.nn.Transformer, the paper's counts and its own properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep.config import ModelConfig
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import flops
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.layers import sinusoids
from seq2sweep.model.transformer import Transformer

BASE = ModelConfig(
    layers=6,
    d_model=512,
    d_ff=2048,
    heads=8,
    d_k=64,
    d_v=64,
    dropout=0.1,
    positions="sinusoidal",
    tie_embeddings=True,
)


def small(**changes: object) -> ModelConfig:
    values = {
        "layers": 2,
        "d_model": 16,
        "d_ff": 24,
        "heads": 2,
        "d_k": 8,
        "d_v": 8,
        "dropout": 0.1,
        "positions": "sinusoidal",
        "tie_embeddings": True,
    }
    return ModelConfig(**(values | changes))  # type: ignore[arg-type]


def changed(config: ModelConfig, **changes: object) -> ModelConfig:
    return ModelConfig(**(config.__dict__ | changes))


def padded(lengths: list[int], vocabulary: int = 50) -> torch.Tensor:
    rows = [torch.randint(4, vocabulary, (n,)) for n in lengths]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def naive_attention(
    module: MultiHeadAttention, x: torch.Tensor, memory: torch.Tensor, visible: torch.Tensor
) -> torch.Tensor:
    """Section 3.2 in loops: x [n, d_model], memory [m, d_model], visible [n, m]."""
    h, d_k, d_v = module.heads, module.d_k, module.d_v
    w_q, w_k, w_v = module.projection.split([h * d_k, h * d_k, h * d_v])
    heads = []
    for i in range(h):
        q = x @ w_q[i * d_k : (i + 1) * d_k].T
        k = memory @ w_k[i * d_k : (i + 1) * d_k].T
        v = memory @ w_v[i * d_v : (i + 1) * d_v].T
        rows = []
        for a in range(len(x)):
            weights = [
                math.exp(float(q[a] @ k[b]) / math.sqrt(d_k)) if visible[a, b] else 0.0
                for b in range(len(memory))
            ]
            total = sum(weights)
            rows.append(sum(w / total * v[b] for b, w in enumerate(weights)))
        heads.append(torch.stack(rows))  # type: ignore[arg-type]
    return torch.cat(heads, dim=1) @ module.output.weight.T


@pytest.mark.parametrize(("heads", "d_k", "d_v"), [(2, 8, 8), (3, 5, 7), (1, 16, 4)])
def test_attention_equals_the_equations(heads: int, d_k: int, d_v: int) -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(16, heads, d_k, d_v)
    x, memory = torch.randn(5, 16), torch.randn(7, 16)
    with torch.no_grad():
        causal = torch.ones(5, 5).tril().bool()
        assert torch.allclose(
            module(x[None], causal=True)[0], naive_attention(module, x, x, causal), atol=1e-5
        )
        visible = torch.tensor([[True] * 4 + [False] * 3]).expand(5, 7)
        keys, values = module.project_memory(memory[None])
        out = module.attend(module.project_queries(x[None]), keys, values, visible[None, None])
        assert torch.allclose(out[0], naive_attention(module, x, memory, visible), atol=1e-5)


def as_torch(model: Transformer) -> nn.Transformer:
    """torch.nn.Transformer with the same weights; its attention biases, ours has none, are 0."""
    config = model.config
    twin = nn.Transformer(
        config.d_model,
        config.heads,
        config.layers,
        config.layers,
        config.d_ff,
        dropout=0.0,
        batch_first=True,
    )
    twin.encoder.norm = None  # post-norm needs no further norm at the end
    twin.decoder.norm = None

    def attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
        theirs.in_proj_weight.data = ours.projection.data.clone()
        theirs.in_proj_bias.data.zero_()
        theirs.out_proj.weight.data = ours.output.weight.data.clone()
        theirs.out_proj.bias.data.zero_()

    for ours, theirs in zip(model.encoder, twin.encoder.layers, strict=True):
        attention(ours.attention, theirs.self_attn)
        theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
        theirs.norm1.load_state_dict(ours.after_attention.norm.state_dict())
        theirs.norm2.load_state_dict(ours.after_feed_forward.norm.state_dict())
    for ours, theirs in zip(model.decoder, twin.decoder.layers, strict=True):
        attention(ours.attention, theirs.self_attn)
        attention(ours.memory_attention, theirs.multihead_attn)
        theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
        theirs.norm1.load_state_dict(ours.after_attention.norm.state_dict())
        theirs.norm2.load_state_dict(ours.after_memory_attention.norm.state_dict())
        theirs.norm3.load_state_dict(ours.after_feed_forward.norm.state_dict())
    return twin


def test_outputs_and_gradients_equal_torch() -> None:
    torch.manual_seed(1)
    model = Transformer(small(dropout=0.0), 50)
    twin = as_torch(model)
    source, target = padded([5, 9, 3]), padded([4, 2, 7])
    embedding = model.source_embedding.weight

    def embed(pieces: torch.Tensor) -> torch.Tensor:
        return F.embedding(pieces, embedding) * 4.0 + sinusoids(pieces.size(1), 16)

    hidden = twin(
        embed(source),
        embed(target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.size(1)),
        src_key_padding_mask=source.eq(PAD),
        memory_key_padding_mask=source.eq(PAD),
        tgt_is_causal=True,
    )
    expected = F.linear(hidden, embedding)
    actual = model(source, target)
    real = target.ne(PAD)
    assert torch.allclose(actual[real], expected[real], atol=1e-5)

    weights = torch.randn_like(actual[real])
    (expected[real] * weights).sum().backward()
    assert embedding.grad is not None
    expected_gradient = embedding.grad.clone()
    their_projection = twin.encoder.layers[0].self_attn.in_proj_weight.grad
    their_inner = twin.decoder.layers[1].linear1.weight.grad
    model.zero_grad()
    (actual[real] * weights).sum().backward()
    assert torch.allclose(embedding.grad, expected_gradient, atol=1e-4)
    assert torch.allclose(model.encoder[0].attention.projection.grad, their_projection, atol=1e-4)
    assert torch.allclose(model.decoder[1].feed_forward.inner.weight.grad, their_inner, atol=1e-4)


def test_no_output_depends_on_a_later_piece_or_on_padding() -> None:
    torch.manual_seed(2)
    model = Transformer(small(), 50).eval()
    source, target = padded([6]), padded([7])
    out = model(source, target)
    other = target.clone()
    other[0, 4:] = 5
    assert torch.allclose(out[:, :4], model(source, other)[:, :4], atol=1e-6)
    assert not torch.allclose(out[:, 4:], model(source, other)[:, 4:], atol=1e-3)
    wide = F.pad(source, (0, 5), value=PAD)
    longer = F.pad(target, (0, 2), value=PAD)
    batch = model(torch.cat((wide, padded([11]))), torch.cat((longer, padded([9]))))
    assert torch.allclose(out[0], batch[0, :7], atol=1e-5)


def test_step_by_step_equals_all_at_once() -> None:
    torch.manual_seed(3)
    model = Transformer(small(d_k=5, d_v=7), 50).eval()
    source, target = padded([6, 3]), torch.randint(4, 50, (2, 5))
    whole = model(source, target)
    cache = model.start(source)
    steps = [model.step(target[:, i : i + 1], cache) for i in range(5)]
    assert torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-5)


def test_positions_by_hand() -> None:
    table = sinusoids(3, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    by_hand = [math.sin(2), math.cos(2), math.sin(2 / 100), math.cos(2 / 100)]
    assert table[2].tolist() == pytest.approx(by_hand)
    model = Transformer(small(), 50)
    long = padded([700])  # beyond the table made at the start
    assert torch.isfinite(model.encode(long)).all()
    with pytest.raises(ValueError, match="learned positions"):
        Transformer(small(positions="learned"), 50).encode(padded([1025]))


@pytest.mark.parametrize(
    "changes",
    [{}, {"d_k": 4}, {"d_k": 3, "d_v": 9}, {"tie_embeddings": False}, {"positions": "learned"}],
)
def test_parameter_formula_counts_the_model(changes: dict[str, object]) -> None:
    config = small(**changes)
    model = Transformer(config, 50)
    assert flops.parameter_count(config, 50) == sum(p.numel() for p in model.parameters())


def test_parameters_of_the_paper() -> None:
    assert round(flops.parameter_count(BASE, 37_000) / 1e6, 2) == 63.05
    printed = [
        ({}, 65),
        ({"d_k": 16}, 58),
        ({"d_k": 32}, 60),
        ({"layers": 2}, 36),
        ({"layers": 4}, 50),
        ({"layers": 8}, 80),
        ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
        ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
        ({"d_ff": 1024}, 53),
        ({"d_ff": 4096}, 90),
    ]
    for changes, millions in printed:
        count = flops.parameter_count(changed(BASE, **changes), 41_096)
        assert round(count / 1e6) == millions, changes


@pytest.mark.parametrize(
    "changes", [{}, {"d_k": 4}, {"d_k": 3, "d_v": 9}, {"heads": 4, "d_k": 2}, {"layers": 3}]
)
def test_flops_formula_equals_the_counter(changes: dict[str, object]) -> None:
    config = small(**changes)
    model = Transformer(config, 50)
    source, target = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 5))
    lengths = np.full(3, 7), np.full(3, 5)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        logits = model(source, target)
    assert forward.get_total_flops() == flops.forward_flops(config, 50, *lengths)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as both:
        logits = model(source, target)
        logits.sum().backward()
    assert both.get_total_flops() == flops.training_flops(config, 50, *lengths)


def test_paper_rule() -> None:
    base = flops.paper_rule(12 * 3600, 8, "Tesla P100-SXM2")
    big = flops.paper_rule(3.5 * 86400, 8, "P100")
    assert base == pytest.approx(3.28e18, rel=0.002)
    assert big == pytest.approx(2.30e19, rel=0.002)
    assert flops.paper_rule(1, 1, "CPU") is None
