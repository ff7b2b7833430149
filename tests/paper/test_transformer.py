"""The whole model against torch.nn.Transformer, the equations in loops and its own properties."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.model import attention, layers
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.feed_forward import relu, swiglu
from seq2sweep.model.layers import Residual, sinusoids
from seq2sweep.train import optimizers, step
from seq2sweep.train.loss import smoothed_cross_entropy

from . import equations
from .models import (
    FEED_FORWARDS,
    KINDS,
    NORM_KINDS,
    NORMS,
    POSITIONS,
    VOCABULARY,
    fused_calls,
    padded,
    randomised,
    relative_error,
    small,
)

pytestmark = pytest.mark.usefixtures("kernel_for_short_sentences")

CPU = torch.device("cpu")

configurations = st.builds(
    small,
    layers=st.integers(1, 2),
    heads=st.integers(1, 3),
    d_k=st.integers(1, 9),
    d_v=st.integers(1, 9),
    attention=st.sampled_from(KINDS),
    norm=st.sampled_from(NORMS),
    positions=st.sampled_from(POSITIONS),
    feed_forward=st.sampled_from(FEED_FORWARDS),
    norm_kind=st.sampled_from(NORM_KINDS),
    tie_embeddings=st.booleans(),
)
seeds = st.integers(0, 10_000)
lengths = st.integers(1, 9)
# Examples are small already; making a failing one smaller still would take minutes.
properties = settings(
    max_examples=25, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
each_precision = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)]
)


def words(length: int) -> Tensor:
    """One row of random words: [1, length]."""
    return torch.randint(4, VOCABULARY, (1, length))


# --- torch.nn.Transformer ------------------------------------------------------------------------


def as_torch(model: Transformer) -> tuple[nn.Transformer, list[tuple[str, Tensor, Tensor]]]:
    """torch.nn.Transformer with the same weights, and which parameter of ours is which of theirs.

    Its attention has biases, ours has none: they are 0.
    """
    config = model.config
    twin = nn.Transformer(
        config.d_model,
        config.heads,
        config.layers,
        config.layers,
        config.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm == "pre",
    ).to(model.projection.weight.dtype)
    modules: list[tuple[nn.Module, nn.Module]] = []
    for ours, theirs in zip(model.encoder, twin.encoder.layers, strict=True):
        modules += [
            (ours.attention, theirs.self_attn),
            (ours.attention_residual.norm, theirs.norm1),
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.feed_forward_residual.norm, theirs.norm2),
        ]
    for ours, theirs in zip(model.decoder, twin.decoder.layers, strict=True):
        modules += [
            (ours.attention, theirs.self_attn),
            (ours.attention_residual.norm, theirs.norm1),
            (ours.memory_attention, theirs.multihead_attn),
            (ours.memory_residual.norm, theirs.norm2),
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.feed_forward_residual.norm, theirs.norm3),
        ]
    if config.norm == "pre":
        modules += [
            (model.encoder_norm, twin.encoder.norm),
            (model.decoder_norm, twin.decoder.norm),
        ]
    else:
        # Section 3.1 has no norm after the last layer; torch always makes one.
        twin.encoder.norm = twin.decoder.norm = None
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    pairs = []
    for our_module, their_module in modules:
        if isinstance(our_module, MultiHeadAttention):
            nn.init.zeros_(their_module.in_proj_bias)
            nn.init.zeros_(their_module.out_proj.bias)
            matches = [
                (our_module.projection, their_module.in_proj_weight),
                (our_module.output.weight, their_module.out_proj.weight),
            ]
        else:
            matches = [(our_module.weight, their_module.weight)]
            matches.append((our_module.bias, their_module.bias))
        for ours, theirs in matches:
            theirs.data = ours.data.clone()
            pairs.append((names[id(ours)], ours, theirs))
    return twin, pairs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@each_precision
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("sources", "targets"),
    [([5, 9, 3], [4, 2, 7]), ([1, 2], [2, 1]), ([12, 12], [3, 20]), ([40], [6])],
)
def test_outputs_and_gradients_equal_torch(
    sources: list[int],
    targets: list[int],
    norm: str,
    tied: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    """With padding and the causal mask, in all parameters."""
    config = small(
        layers=3, d_model=32, d_ff=48, heads=4, norm=norm, tie_embeddings=tied, dropout=0
    )
    model = randomised(config).to(dtype)
    twin, pairs = as_torch(model)
    source, target = padded(sources), padded(targets)
    real = target.ne(PAD)

    matrices = [model.source_embedding.weight, model.target_embedding.weight]
    matrices.append(model.projection.weight)
    # Where ours is one matrix three times, so is theirs.
    theirs = {id(matrix): matrix.detach().clone().requires_grad_() for matrix in matrices}
    read, said, out = (theirs[id(matrix)] for matrix in matrices)

    def embed(pieces: Tensor, embedding: Tensor) -> Tensor:
        length, d = pieces.size(1), config.d_model
        return F.embedding(pieces, embedding) * math.sqrt(d) + sinusoids(length, d).to(dtype)

    length = target.size(1)
    hidden = twin(
        embed(source, read),
        embed(target, said),
        tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
        src_key_padding_mask=source.eq(PAD),
        tgt_key_padding_mask=target.eq(PAD),
        memory_key_padding_mask=source.eq(PAD),
    )
    expected = F.linear(hidden, out)[real]
    actual = model(source, target)[real]
    assert (actual - expected).abs().max() < tolerance

    weights = torch.randn_like(actual)
    (expected * weights).sum().backward()
    (actual * weights).sum().backward()
    pairs += [(f"matrix {i}", matrix, theirs[id(matrix)]) for i, matrix in enumerate(matrices)]
    assert {id(ours) for _, ours, _ in pairs} == {id(p) for p in model.parameters()}
    for name, ours, their in pairs:
        assert ours.grad is not None
        assert their.grad is not None
        assert their.grad.abs().max() > 0, name
        assert relative_error(ours.grad, their.grad) < tolerance, name


# --- the equations in loops ----------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_equals_the_equations_sentence_by_sentence(
    kind: str, norm: str, positions: str
) -> None:
    """What torch.nn.Transformer cannot be: h * d_k other than d_model, d_v other than d_k, ..."""
    config = small(attention=kind, norm=norm, positions=positions, heads=3, d_k=5, d_v=3)
    equals_the_equations(config)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("feed_forward", FEED_FORWARDS)
@pytest.mark.parametrize("norm_kind", NORM_KINDS)
def test_other_parts_equal_their_equations(feed_forward: str, norm_kind: str, norm: str) -> None:
    equals_the_equations(small(feed_forward=feed_forward, norm_kind=norm_kind, norm=norm))


def equals_the_equations(config: TransformerConfig) -> None:
    model = randomised(config).eval()
    sources, targets = [6, 2, 4], [3, 5, 1]
    source, target = padded(sources), padded(targets)
    with torch.no_grad():
        logits = equations.array(model(source, target))
    for row, (n, m) in enumerate(zip(sources, targets, strict=True)):
        expected = equations.transformer(model, source[row, :n].tolist(), target[row, :m].tolist())
        assert abs(logits[row, :m] - expected).max() < 1e-5


# --- what may not matter, and what must ----------------------------------------------------------


@properties
@given(configurations, seeds, lengths, st.integers(2, 9), st.data())
def test_no_output_depends_on_a_later_piece(
    config: TransformerConfig, seed: int, n: int, m: int, data: st.DataObject
) -> None:
    model = randomised(config, seed).eval()
    source, target = words(n), words(m)
    at = data.draw(st.integers(1, m - 1), label="first piece changed")
    other = target.clone()
    other[0, at:] = torch.where(target[0, at:] == 4, 5, target[0, at:] - 1)
    with torch.no_grad():
        before, after = model(source, target)[0], model(source, other)[0]
    assert torch.equal(before[:at], after[:at])
    assert ((before[at:] - after[at:]).abs().amax(-1) > 1e-3).all()


@properties
@given(configurations, seeds, lengths, lengths, st.data())
def test_every_output_depends_on_every_source_piece_and_on_all_before(
    config: TransformerConfig, seed: int, n: int, m: int, data: st.DataObject
) -> None:
    model = randomised(config, seed).double().eval()
    source, target = words(n), words(m)
    read, said = source.clone(), target.clone()
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, m - 1))
    read[0, i] = 4 + (source[0, i] - 3) % (VOCABULARY - 4)
    said[0, j] = 4 + (target[0, j] - 3) % (VOCABULARY - 4)
    with torch.no_grad():
        logits = model(source, target)[0]
        by_source = (model(read, target)[0] - logits).abs().amax(-1)
        by_target = (model(source, said)[0] - logits).abs().amax(-1)
    assert (by_source > 1e-9).all()
    assert (by_target[j:] > 1e-9).all()
    assert not by_target[:j].any()


@each_precision
@properties
@given(
    config=configurations,
    seed=seeds,
    pairs=st.lists(st.tuples(lengths, lengths), min_size=2, max_size=4),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_neither_batch_nor_padding_matters(
    dtype: torch.dtype,
    tolerance: float,
    config: TransformerConfig,
    seed: int,
    pairs: list[tuple[int, int]],
    more: tuple[int, int],
) -> None:
    model = randomised(config, seed).to(dtype).eval()
    sources, targets = [n for n, _ in pairs], [m for _, m in pairs]
    source, target = padded(sources), padded(targets)
    with torch.no_grad():
        batch = model(
            F.pad(source, (0, more[0]), value=PAD), F.pad(target, (0, more[1]), value=PAD)
        )
        memory = model.encode(source)
        for row, (n, m) in enumerate(pairs):
            alone = model(source[row : row + 1, :n], target[row : row + 1, :m])[0]
            assert (batch[row, :m] - alone).abs().max() < tolerance
            encoded = model.encode(source[row : row + 1, :n])[0]
            assert (memory[row, :n] - encoded).abs().max() < tolerance


@properties
@given(configurations, seeds, lengths, lengths)
def test_padding_gets_no_gradient_and_gives_none(
    config: TransformerConfig, seed: int, n: int, m: int
) -> None:
    """One pair alone and the same pair beside a longer one that does not count."""
    model = randomised(config, seed).double().eval()
    source, target_in, target_out = words(n), words(m), words(m)

    def gradients(source: Tensor, target_in: Tensor, target_out: Tensor) -> list[Tensor]:
        logits = model(source, target_in)
        loss, _ = smoothed_cross_entropy(logits, target_out, 0.1)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    alone = gradients(source, target_in, target_out)
    rows = [
        nn.utils.rnn.pad_sequence([mine[0], other], batch_first=True, padding_value=PAD)
        for mine, other in (
            (source, words(n + 3)[0]),
            (target_in, words(m + 2)[0]),
            (target_out, torch.full((m + 2,), PAD)),
        )
    ]
    for mine, beside in zip(alone, gradients(*rows), strict=True):
        # The loss computes in float32.
        assert (mine - beside).abs().max() < 1e-5 * max(1.0, mine.abs().max().item())


@each_precision
@properties
@given(configurations, seeds, st.lists(lengths, min_size=1, max_size=3), st.data())
def test_step_by_step_equals_all_at_once(
    dtype: torch.dtype,
    tolerance: float,
    config: TransformerConfig,
    seed: int,
    sizes: list[int],
    data: st.DataObject,
) -> None:
    """Also when hypotheses are chosen anew and sentences are done, as a beam search does."""
    model = randomised(config, seed).to(dtype).eval()
    source = padded(sizes)
    left = list(range(len(sizes)))
    hypotheses: list[list[list[int]]] = [[[]] for _ in left]
    with torch.no_grad():
        cache = model.start(source)
        for _ in range(5):
            k = len(hypotheses[0])
            pieces = torch.randint(4, VOCABULARY, (len(left), k))
            stepped = model.step(pieces, cache)
            assert stepped.shape == (len(left), k, VOCABULARY)
            for row, sentence in enumerate(left):
                for column in range(k):
                    hypotheses[row][column] = [
                        *hypotheses[row][column],
                        int(pieces[row, column]),
                    ]
                target = torch.tensor(hypotheses[row])
                whole = model(source[sentence].expand(k, -1), target)[:, -1]
                assert (stepped[row] - whole).abs().max() < tolerance

            kept = sorted(
                data.draw(
                    st.sets(st.integers(0, len(left) - 1), min_size=1), label="sentences kept"
                )
            )
            wider = data.draw(st.integers(1, 3), label="hypotheses next")
            parents = [
                data.draw(st.lists(st.integers(0, k - 1), min_size=wider, max_size=wider))
                for _ in kept
            ]
            rows = [row * k + p for row, own in zip(kept, parents, strict=True) for p in own]
            cache.select(torch.tensor(rows))
            cache.keep(torch.tensor(kept))
            hypotheses = [
                [hypotheses[row][p] for p in own] for row, own in zip(kept, parents, strict=True)
            ]
            left = [left[row] for row in kept]
    assert cache.steps == 5


# --- embeddings ----------------------------------------------------------------------------------


def inputs_of(module: nn.Module) -> list[Tensor]:
    """A list that fills with the first argument of each call of the module."""
    seen: list[Tensor] = []
    module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].detach()))
    return seen


@pytest.mark.parametrize("d_model", [16, 64])
@pytest.mark.parametrize("tied", [True, False])
def test_layers_see_embeddings_times_the_root_of_d_model_plus_positions(
    tied: bool, d_model: int
) -> None:
    model = randomised(small(d_model=d_model, tie_embeddings=tied)).eval()
    encoder, decoder = inputs_of(model.encoder[0]), inputs_of(model.decoder[0])
    source, target = words(7), words(3)
    model(source, target)
    for seen, embedding, pieces in (
        (encoder, model.source_embedding, source),
        (decoder, model.target_embedding, target),
    ):
        by_hand = [
            [
                embedding.weight[piece, c].item() * {16: 4, 64: 8}[d_model]
                + equations.sinusoid(i, c, d_model)
                for c in range(d_model)
            ]
            for i, piece in enumerate(pieces[0].tolist())
        ]
        torch.testing.assert_close(seen[0][0], torch.tensor(by_hand))


def test_embeddings_start_with_the_variance_of_the_positions_order() -> None:
    """Times sqrt(d_model) their numbers have variance 1; the projection's logits as well."""
    torch.manual_seed(0)
    model = Transformer(small(d_model=64, tie_embeddings=False), 2000)
    for matrix in (
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.projection.weight,
    ):
        assert matrix.var().item() * 64 == pytest.approx(1, rel=0.02)  # 128 000 numbers


@pytest.mark.parametrize("norm", NORMS)
def test_tied_embeddings_are_one_matrix_whose_gradient_is_the_sum_of_three(norm: str) -> None:
    tied = randomised(small(norm=norm, dropout=0.0)).double()
    assert tied.source_embedding is tied.target_embedding
    assert tied.projection.weight is tied.source_embedding.weight
    matrices = [p for p in tied.parameters() if p.shape == (VOCABULARY, 16)]
    assert len(matrices) == 1

    apart = Transformer(small(norm=norm, dropout=0.0, tie_embeddings=False), VOCABULARY).double()
    apart.load_state_dict(tied.state_dict())
    three = [apart.source_embedding.weight, apart.target_embedding.weight, apart.projection.weight]
    assert len({matrix.data_ptr() for matrix in three}) == 3
    source, target = padded([5, 3]), padded([4, 6])
    out = [model(source, target) for model in (tied, apart)]
    assert torch.equal(*out)
    weights = torch.randn_like(out[0])
    for each in out:
        (each * weights).sum().backward()
    gradients = [matrix.grad for matrix in three]
    assert all(g is not None and g.abs().max() > 0 for g in gradients)
    assert not torch.allclose(gradients[0], gradients[1])  # type: ignore[arg-type]
    torch.testing.assert_close(matrices[0].grad, sum(gradients), rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]


def test_untied_embeddings_are_three_matrices() -> None:
    model = randomised(small(tie_embeddings=False))
    three = [model.source_embedding.weight, model.target_embedding.weight, model.projection.weight]
    assert [p.shape for p in model.parameters()].count(three[0].shape) == 3
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(three[one], three[other])
    # Each has its own part: words that are only read, only said.
    source, target = torch.full((1, 3), 7), torch.full((1, 2), 9)
    model.eval()(source, target).logsumexp(-1).sum().backward()
    assert three[0].grad is not None
    assert three[1].grad is not None
    assert three[2].grad is not None
    assert three[0].grad.abs().sum(-1).nonzero().tolist() == [[7]]
    assert three[1].grad.abs().sum(-1).nonzero().tolist() == [[9]]
    assert (three[2].grad.abs().sum(-1) > 0).all()


# --- dropout (section 5.4) -----------------------------------------------------------------------


class Dropouts:
    """In the place of dropout: notes each tensor and its probability where any is in effect.

    Nothing is dropped, or all where `drop_all`. Sub-layer outputs are noted beside, in order.
    """

    def __init__(self, model: Transformer, patch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, Tensor, float]] = []
        self.drop_all = False
        for user in (attention, layers, relu, swiglu, transformer):
            patch.setattr(user, "dropout", self._dropout)
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                # Its last product, the same for self-attention and attention over the memory.
                module.output.register_forward_hook(self._sublayer)
            elif isinstance(module, relu.FeedForward | swiglu.FeedForward):
                module.register_forward_hook(self._sublayer)

    def _sublayer(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self.events.append(("sub-layer", output, 0.0))

    def _dropout(self, x: Tensor, p: float, training: bool) -> Tensor:
        if training and p > 0:
            self.events.append(("dropout", x, p))
            return torch.zeros_like(x) if self.drop_all else x
        return x

    def of(self, probability: float) -> list[Tensor]:
        return [x for kind, x, p in self.events if kind == "dropout" and p == probability]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", NORMS)
def test_dropout_is_on_embedding_sums_and_sub_layer_outputs_and_nowhere_else(
    norm: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_layers = 3
    model = randomised(small(layers=n_layers, norm=norm, attention=kind, dropout=0.1)).train()
    dropouts = Dropouts(model, monkeypatch)
    source, target = padded([5, 3]), padded([4, 6])
    with fused_calls() as fused:
        model(source, target)
    sums = ["dropout"]
    encoder, decoder = 2 * n_layers, 3 * n_layers
    expected = [*sums, *["sub-layer", "dropout"] * encoder]
    expected += [*sums, *["sub-layer", "dropout"] * decoder]
    assert [name for name, _, _ in dropouts.events] == expected
    assert {p for name, _, p in dropouts.events if name == "dropout"} == {0.1}
    for (name, output, _), (_, dropped, _) in zip(
        dropouts.events, dropouts.events[1:], strict=False
    ):
        if name == "sub-layer":
            assert dropped is output
    first, second = dropouts.events[0][1], dropouts.events[1 + 2 * encoder][1]
    for row, (n, m) in enumerate([(5, 4), (3, 6)]):
        read = equations.embedded(model, "source", source[row, :n].tolist())
        said = equations.embedded(model, "target", target[row, :m].tolist())
        assert abs(equations.array(first[row, :n]) - read).max() < 1e-5
        assert abs(equations.array(second[row, :m]) - said).max() < 1e-5
    # None on attention weights, by PyTorch's kernel either.
    assert {call["dropout_p"] for call in fused} == (set() if kind == "additive" else {0.0})


@pytest.mark.parametrize("norm", NORMS)
def test_dropout_comes_before_the_sub_layers_output_is_added(
    norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all of every output is dropped, what entered a layer is left, and normalised."""
    config = small(norm=norm, dropout=0.1)
    residual = Residual(16, 0.1, norm)  # type: ignore[arg-type]
    model = randomised(config).train()
    dropouts = Dropouts(model, monkeypatch)
    dropouts.drop_all = True
    x = torch.randn(2, 4, 16)
    memory, mask = torch.randn(2, 5, 16), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    encoder, decoder = model.encoder[0], model.decoder[0]
    normed = residual(x, torch.sin)
    if norm == "pre":
        assert torch.equal(normed, x)
        assert torch.equal(encoder(x, mask[..., :4]), x)
        assert torch.equal(decoder(x, memory, mask), x)
    else:
        once = F.layer_norm(x, (16,))
        torch.testing.assert_close(normed, once)
        read = encoder.feed_forward_residual.norm(encoder.attention_residual.norm(x))
        torch.testing.assert_close(encoder(x, mask[..., :4]), read)
        said = decoder.memory_residual.norm(decoder.attention_residual.norm(x))
        said = decoder.feed_forward_residual.norm(said)
        torch.testing.assert_close(decoder(x, memory, mask), said)
    assert len(dropouts.of(0.1)) == 1 + 2 + 3


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_on_attention_weights_and_the_inner_layer_where_it_is_asked_for(
    kind: str, norm: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"dropout": 0.1, "attention_dropout": 0.2, "feed_forward_dropout": 0.3}
    config = small(attention=kind, norm=norm, **changes)
    model = randomised(config).train()
    dropouts = Dropouts(model, monkeypatch)
    inner: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, relu.FeedForward):
            module.inner.register_forward_hook(lambda m, i, output: inner.append(output))
    source, target = padded([5, 3]), padded([4, 6])
    with fused_calls() as fused, step.autocast(precision, CPU):
        model(source, target)
    assert len(dropouts.of(0.1)) == 2 + 2 * 2 + 3 * 2
    assert [x.shape[-1] for x in dropouts.of(0.3)] == [config.d_ff] * 4
    for dropped, before in zip(dropouts.of(0.3), inner, strict=True):
        assert torch.equal(dropped, before.clamp(min=0))
    shapes = [(2, 2, 5, 5)] * 2 + [(2, 2, 6, 6), (2, 2, 6, 5)] * 2
    if kind == "additive" or precision == "bf16":
        # Plain products, see MultiHeadAttention.
        assert fused == []
        assert [tuple(x.shape) for x in dropouts.of(0.2)] == shapes
        rounding = 1e-5 if precision == "float32" else 2.0**-8
        for weights in dropouts.of(0.2):
            assert (weights.float().sum(-1) - 1).abs().max() < rounding
    else:
        assert dropouts.of(0.2) == []
        assert [call["dropout_p"] for call in fused] == [0.2] * len(shapes)
    everything = [p for name, _, p in dropouts.events if name == "dropout"]
    assert len(everything) == 12 + 4 + (0 if fused else 6)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_dropped_when_evaluating(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"dropout": 0.5, "attention_dropout": 0.5, "feed_forward_dropout": 0.5}
    model = randomised(small(attention=kind, **changes))
    source, target = padded([5, 3]), padded([4, 4])
    whole = model.eval()(source, target)
    assert torch.equal(model(source, target), whole)
    assert not torch.equal(model.train()(source, target), whole)
    dropouts = Dropouts(model.eval(), monkeypatch)
    with fused_calls() as fused:
        assert torch.equal(model(source, target), whole)
        cache = model.start(source)
        for i in range(4):
            model.step(target[:, i : i + 1], cache)
    assert {name for name, _, _ in dropouts.events} == {"sub-layer"}
    assert {call["dropout_p"] for call in fused} == (set() if kind == "additive" else {0.0})


# --- precision and repetition --------------------------------------------------------------------


def batch() -> Batch:
    target_out = padded([4, 2, 7])
    target_in = target_out.roll(1, 1)
    target_in[:, 0] = BOS
    target_in[target_out == PAD] = PAD
    return Batch(padded([5, 9, 3]), target_in, target_out)


def accumulated(model: Transformer, precision: Any, data: Batch) -> tuple[Tensor, Tensor]:
    return step.accumulate(
        model,
        [data],
        update_target_tokens=13,
        smoothing=0.1,
        world_size=1,
        precision=precision,
        device=CPU,
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_in_bf16_weights_gradients_and_moments_stay_float32(kind: str, norm: str) -> None:
    model = randomised(small(attention=kind, norm=norm, positions="learned"))
    optimizer = optimizers.make_adam(model)
    data = batch()
    with step.autocast("bf16", CPU):
        assert model(data.source, data.target_in).dtype == torch.bfloat16
    loss, likelihood = accumulated(model, "bf16", data)
    assert loss.dtype == likelihood.dtype == torch.float32
    before = [p.detach().clone() for p in model.parameters()]
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    step.apply(model, optimizer, 1e-3)
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.dtype == torch.float32
        assert not torch.equal(old, new)
        moments = optimizer.state[new]
        assert moments["exp_avg"].dtype == moments["exp_avg_sq"].dtype == torch.float32
    # Adam's first step has the size of the rate; a bf16 weight near 1 could not take one so small.
    moved = [(new - old).abs().max() for old, new in zip(before, model.parameters(), strict=True)]
    assert 0 < min(moved) <= max(moved) < 1.001e-3


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_bf16_differs_from_float32_as_rounding_does(kind: str, norm: str) -> None:
    """The yardstick: float32 with all parameters moved at random by at most bf16's rounding.

    In bf16 the inputs and the output of each product are rounded, not parameters alone; so the
    error may be some times the yardstick. Gradients jump where a rectified number changes its
    sign: the median of some models tells more than one.
    """
    errors = {name: ([], []) for name in ("logits", "gradients")}  # type: ignore[var-annotated]
    for seed in range(7):
        model = randomised(small(attention=kind, norm=norm, d_model=64, dropout=0.0), seed)
        data = batch()

        def outcome(precision: Any, model: Transformer = model, data: Batch = data) -> list[Tensor]:
            model.zero_grad()
            with step.autocast(precision, CPU):
                logits = model(data.source, data.target_in).float()
            accumulated(model, precision, data)
            gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            return [logits[data.target_in != PAD].detach(), torch.cat(gradients)]

        exact, rounded = outcome("float32"), outcome("bf16")
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2.0**-8 * (2 * torch.rand_like(p) - 1))
        moved = outcome("float32")
        for name, was, now, yardstick in zip(errors, exact, rounded, moved, strict=True):
            errors[name][0].append(((now - was).norm() / was.norm()).item())
            errors[name][1].append(((yardstick - was).norm() / was.norm()).item())
    for name, (found, yardsticks) in errors.items():
        assert 0 < median(found) < 3 * median(yardsticks), name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_bitwise_the_same_gradients(
    kind: str, norm: str, precision: Any
) -> None:
    changes = {"dropout": 0.1, "attention_dropout": 0.2, "feed_forward_dropout": 0.3}

    def outcome(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        model = Transformer(small(attention=kind, norm=norm, **changes), VOCABULARY)
        losses = accumulated(model, precision, batch())
        return [*losses, *(p.grad for p in model.parameters() if p.grad is not None)]

    one, again, other = outcome(5), outcome(5), outcome(6)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
