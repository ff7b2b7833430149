"""Multi-head attention (section 3.2) against its equations in loops and against its derivative."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from seq2sweep.model.attention import MultiHeadAttention

from . import equations
from .models import KINDS, fused_calls, padded, randomised, relative_error, small

pytestmark = pytest.mark.usefixtures("kernel_for_short_sentences")

D_MODEL = 16
# Heads, d_k and d_v: as in the paper, h * d_k other than d_model and d_k other than d_v, one head.
SIZES = [(2, 8, 8), (3, 5, 7), (1, 16, 4), (4, 1, 3)]
TOLERANCES = [(torch.float32, 1e-5), (torch.float64, 1e-12)]


def attention(
    kind: str, heads: int, d_k: int, d_v: int, d_model: int = D_MODEL
) -> MultiHeadAttention:
    torch.manual_seed(heads * 100 + d_k)
    return MultiHeadAttention(d_model, heads, d_k, d_v, kind)  # type: ignore[arg-type]


def over_memory(
    module: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None
) -> Tensor:
    """Attention of x [B, n, d_model] over memory [B, m, d_model]."""
    keys, values = module.project_memory(memory)
    return module.attend(module.project_queries(x), keys, values, mask)


def real(lengths: list[int]) -> Tensor:
    """True at the first positions of each row: [B, 1, 1, longest]."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
@pytest.mark.parametrize(("heads", "d_k", "d_v"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_attention_equals_the_equations(
    kind: str, heads: int, d_k: int, d_v: int, dtype: torch.dtype, tolerance: float, fused: bool
) -> None:
    module = attention(kind, heads, d_k, d_v).to(dtype)
    module.keep_weights = not fused
    x, memory = torch.randn(2, 5, D_MODEL, dtype=dtype), torch.randn(2, 7, D_MODEL, dtype=dtype)
    lengths = [4, 7]
    with torch.no_grad(), fused_calls() as calls:
        causal = module(x, causal=True)
        causal_weights = module.kept_weights
        crossed = over_memory(module, x, memory, real(lengths))
        crossed_weights = module.kept_weights
    assert len(calls) == (2 if fused and kind != "additive" else 0)

    for row, length in enumerate(lengths):
        words = equations.array(x[row])
        past, past_weights = equations.attention(module, words, words, equations.the_past(5))
        # The padding is not even given to the loop.
        found, found_weights = equations.attention(
            module, words, equations.array(memory[row, :length]), equations.everything(5, length)
        )
        assert abs(equations.array(causal[row]) - past).max() < tolerance
        assert abs(equations.array(crossed[row]) - found).max() < tolerance
        if not fused:
            assert causal_weights is not None
            assert crossed_weights is not None
            assert abs(equations.array(causal_weights[row]) - past_weights).max() < tolerance
            seen = equations.array(crossed_weights[row, :, :, :length])
            assert abs(seen - found_weights).max() < tolerance
            assert not crossed_weights[row, :, :, length:].any()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind: str, plain: bool) -> None:
    """In the input, the memory and every weight, under the causal mask and with padding."""
    d_model = 4
    module = attention(kind, heads=2, d_k=3, d_v=2, d_model=d_model).double()
    module.keep_weights = plain
    names, weights = zip(*module.named_parameters(), strict=True)
    assert ("hidden" in names) == (kind == "additive")
    x = torch.randn(2, 3, d_model, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 4, d_model, dtype=torch.float64, requires_grad=True)
    mask = real([2, 4])

    def out(x: Tensor, memory: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        class Both(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = module

            def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
                return self.inner(x, causal=True), over_memory(self.inner, x, memory, mask)

        state = {f"inner.{name}": value for name, value in zip(names, values, strict=True)}
        outputs: tuple[Tensor, Tensor] = torch.func.functional_call(Both(), state, (x, memory))
        return outputs

    assert torch.autograd.gradcheck(out, (x, memory, *weights))


@pytest.mark.parametrize(("heads", "d_k", "d_v"), [*SIZES, (2, 32, 32)])
@pytest.mark.parametrize("kind", ["scaled_dot_product", "dot_product"])
def test_the_fused_kernel_equals_weights_times_values(
    kind: str, heads: int, d_k: int, d_v: int
) -> None:
    module = attention(kind, heads, d_k, d_v)
    lengths = [70, 1, 33]  # across the kernel's blocks
    x = torch.randn(3, 65, D_MODEL, requires_grad=True)
    memory = torch.randn(3, 70, D_MODEL, requires_grad=True)
    away = torch.randn(2, 3, 65, D_MODEL)
    found = []
    for plain in (False, True):
        module.keep_weights = plain
        with fused_calls() as calls:
            outputs = module(x, causal=True), over_memory(module, x, memory, real(lengths))
        assert len(calls) == (0 if plain else 2)
        total = sum((out * a).sum() for out, a in zip(outputs, away, strict=True))
        gradients = torch.autograd.grad(total, (x, memory, *module.parameters()))
        found.append((*outputs, *gradients))
    for fused, plain_ in zip(*found, strict=True):
        assert relative_error(fused, plain_) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_takes_weights_out_and_raises_the_others(kind: str) -> None:
    """Values that are unit vectors make the output the weights themselves."""
    keys = 8
    module = MultiHeadAttention(keys, 1, 4, keys, kind, dropout=0.25)  # type: ignore[arg-type]
    module.output.weight.data = torch.eye(keys)
    torch.manual_seed(0)
    queries, looked_at = torch.randn(1, 1, 500, 4), torch.randn(1, 1, keys, 4)
    values = torch.eye(keys)[None, None]
    with torch.no_grad():
        weights = module.weights(queries, looked_at)[0, 0]
        torch.testing.assert_close(module.eval().attend(queries, looked_at, values)[0], weights)
        ratio = module.train().attend(queries, looked_at, values)[0] / weights
    gone = ratio == 0
    torch.testing.assert_close(ratio[~gone], torch.full_like(ratio[~gone], 4 / 3))
    # Of 4000 weights a quarter goes; five standard deviations of a binomial.
    assert abs(gone.double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / gone.numel())


@pytest.mark.parametrize("kind", KINDS)
def test_each_matrix_starts_xavier_uniform_on_its_own(kind: str) -> None:
    """Not the stacked one as a whole, whose bound would be smaller (Glorot and Bengio 2010)."""
    torch.manual_seed(0)
    d_model, h, d_k, d_v = 64, 4, 16, 32
    module = MultiHeadAttention(d_model, h, d_k, d_v, kind)  # type: ignore[arg-type]
    queries, keys, values = module.projection.split([h * d_k, h * d_k, h * d_v])
    matrices = [(queries, h * d_k, d_model), (keys, h * d_k, d_model), (values, h * d_v, d_model)]
    matrices.append((module.output.weight, h * d_v, d_model))
    for matrix, fan_out, fan_in in matrices:
        bound = math.sqrt(6 / (fan_in + fan_out))
        assert 0.98 * bound < matrix.abs().max() <= bound
        assert matrix.var().item() == pytest.approx(bound**2 / 3, rel=0.05)
    if kind == "additive":
        bound = math.sqrt(6 / (d_k + 1))
        assert 0.95 * bound < module.hidden.abs().max() <= bound


# --- what a whole model looks at -----------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
def test_attention_weights_of_a_model(kind: str, norm: str) -> None:
    model = randomised(small(attention=kind, norm=norm, d_k=5, d_v=3))
    source, target = padded([6, 2, 4]), padded([3, 5, 5])
    found = model.attention_weights(source, target)
    b, h, n, m = 3, 2, 6, 5
    layers = range(2)
    assert {name: tuple(weights.shape) for name, weights in found.items()} == (
        {f"encoder.{i}.attention": (b, h, n, n) for i in layers}
        | {f"decoder.{i}.attention": (b, h, m, m) for i in layers}
        | {f"decoder.{i}.memory_attention": (b, h, m, n) for i in layers}
    )
    for name, weights in found.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if name.endswith("memory_attention") or name.startswith("encoder"):
            for row, length in enumerate([6, 2, 4]):
                assert not weights[row, ..., length:].any()
                assert (weights[row, ..., :length] > 0).all()
        else:
            for query, key in itertools.product(range(m), range(m)):
                assert bool((weights[:, :, query, key] > 0).all()) == (key <= query)
                assert bool((weights[:, :, query, key] == 0).all()) == (key > query)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_weights_of_one_layer_equal_the_equations(kind: str) -> None:
    model = randomised(small(layers=1, attention=kind, heads=3, d_k=5, d_v=3))
    source, target = padded([6, 2]), padded([3, 5])
    found = {
        name: equations.array(weights)
        for name, weights in model.attention_weights(source, target).items()
    }
    encoder, decoder = model.encoder[0], model.decoder[0]
    for row, (n, m) in enumerate([(6, 3), (2, 5)]):
        words, said = source[row, :n].tolist(), target[row, :m].tolist()
        x = equations.embedded(model, "source", words)
        out, expected = equations.attention(encoder.attention, x, x, equations.everything(n, n))
        assert abs(found["encoder.0.attention"][row, :, :n, :n] - expected).max() < 1e-6
        x = equations.normalised(encoder.attention_residual.norm, x + out)
        inner = equations.feed_forward(encoder.feed_forward, x)
        memory = equations.normalised(encoder.feed_forward_residual.norm, x + inner)

        y = equations.embedded(model, "target", said)
        out, expected = equations.attention(decoder.attention, y, y, equations.the_past(m))
        assert abs(found["decoder.0.attention"][row, :, :m, :m] - expected).max() < 1e-6
        y = equations.normalised(decoder.attention_residual.norm, y + out)
        _, expected = equations.attention(
            decoder.memory_attention, y, memory, equations.everything(m, n)
        )
        assert abs(found["decoder.0.memory_attention"][row, :, :m, :n] - expected).max() < 1e-6


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_looking_at_weights_leaves_the_model_as_it_was(kind: str, training: bool) -> None:
    changes = {"attention_dropout": 0.2, "feed_forward_dropout": 0.2, "positions": "learned"}
    model = randomised(small(attention=kind, **changes)).train(training)
    source, target = padded([6, 2]), padded([3, 5])

    def outputs() -> Tensor:
        torch.manual_seed(3)
        return model(source, target)

    before = outputs()
    generator = torch.get_rng_state()
    weights = model.attention_weights(source, target)
    assert torch.equal(torch.get_rng_state(), generator)  # no dropout was drawn
    # Also where looking fails half-way.
    with pytest.raises(ValueError, match="learned positions"):
        model.attention_weights(source, padded([1025]))
    assert all(module.training == training for module in model.modules())
    modules = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert len(modules) == 6
    assert all(m.kept_weights is None and not m.keep_weights for m in modules)
    assert not any(w.requires_grad for w in weights.values())
    after = outputs()
    assert after.requires_grad
    assert torch.equal(after, before)
