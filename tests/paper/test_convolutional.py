"""ConvS2S (Gehring et al. 2017) against its definition in loops, in training and step by step.

Numbers are compared in float64, of models none of whose parameters is at its start.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep.config import ConvolutionalConfig
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.decode import beam
from seq2sweep.model import building
from seq2sweep.model.architecture import convolutional
from seq2sweep.model.architecture.convolutional import Convolutional, Normalised
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import laid_out
from seq2sweep.train import optimizers, step
from seq2sweep.train.loss import smoothed_cross_entropy

from ..saved_tensors import saved_bytes
from .models import VOCABULARY, padded

Array = NDArray[np.float64]
CPU = torch.device("cpu")
SOURCE_LENGTHS, TARGET_LENGTHS = (9, 1, 12, 4), (7, 10, 1, 5)
SETTINGS: list[dict[str, object]] = [
    {},
    {"layers": 1, "kernels": (1,)},
    {"layers": 4, "widths": (6, 6, 14), "kernels": (5, 3, 3, 1)},
    {"tie_embeddings": False, "d_out": 7, "widths": (10, 4, 9)},
    {"tie_embeddings": False, "kernels": (1, 5)},
]
WHATEVER = pytest.mark.parametrize("changes", SETTINGS, ids=str)


def small(**changes: object) -> ConvolutionalConfig:
    values: dict[str, object] = {
        "architecture": "convolutional",
        "layers": 3,
        "d_model": 8,
        "dropout": 0.1,
        "tie_embeddings": True,
    }
    return ConvolutionalConfig(**(values | changes))  # type: ignore[arg-type]


def randomised(config: ConvolutionalConfig, seed: int = 0) -> Convolutional:
    """In float64, to be evaluated."""
    torch.manual_seed(seed)
    model = Convolutional(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "gain" in name:
                parameter.normal_(1.0, 0.4)
            elif "bias" in name:
                parameter.normal_(0.0, 0.4)
            else:
                parameter.normal_()
    return model


def pieces() -> tuple[Tensor, Tensor]:
    """Source and target of four sentences, padded."""
    torch.manual_seed(1)
    return padded(SOURCE_LENGTHS), padded(TARGET_LENGTHS)


# --- the definition, one sentence at a time ------------------------------------------------------


class Definition:
    """The model in loops over positions, blocks and taps, with the numbers of `model`."""

    def __init__(self, model: Convolutional) -> None:
        self.config = model.config
        self.numbers = {name: value.numpy() for name, value in model.state_dict().items()}
        self.weights: list[Array] = []

    def times(self, name: str, x: Array) -> Array:
        """Equation 1 of Salimans and Kingma 2016: w = g v / |v|, for each row."""
        out = np.zeros(len(self.numbers[f"{name}.gain"]))
        for i, (v, g) in enumerate(
            zip(self.numbers[f"{name}.direction"], self.numbers[f"{name}.gain"], strict=True)
        ):
            out[i] = g * float(v @ x) / math.sqrt(float(v @ v))
        bias: Array = self.numbers.get(f"{name}.bias", np.zeros(len(out)))
        return out + bias

    def embedded(self, side: str, tokens: Sequence[int]) -> list[Array]:
        """Section 3.1: w_i + p_i."""
        table = self.numbers[f"{side}_embedding.weight"]
        places = self.numbers[f"{side}_positions.weight"]
        return [table[token] + places[i] for i, token in enumerate(tokens)]

    def convolved(self, name: str, x: list[Array], k: int, before: int) -> list[Array]:
        """Section 3.2: from the k inputs of which `before` lie to the left, [A B] and A * s(B)."""
        out = []
        for i in range(len(x)):
            seen = np.concatenate([
                x[i - before + t] if 0 <= i - before + t < len(x) else 0 * x[0] for t in range(k)
            ])  # fmt: skip
            a, b = np.split(self.times(f"{name}.convolution", seen), 2)
            out.append(a / (1 + np.exp(-b)))
        return out

    def kernel(self, layer: int) -> int:
        kernels = self.config.kernels
        return kernels[min(layer, len(kernels) - 1)]

    def mapped(self, name: str, x: list[Array]) -> list[Array]:
        """The residual: a linear map where the block changes the width."""
        wanted = f"{name}.residual.direction" in self.numbers
        return [self.times(f"{name}.residual", row) for row in x] if wanted else x

    def encoded(self, source: Sequence[int]) -> tuple[list[Array], list[Array]]:
        """z, and what attention sums: (z + e) sqrt(0.5)."""
        e = self.embedded("source", source)
        x = [self.times("encoder_input", row) for row in e]
        for layer in range(self.config.layers):
            name, k = f"encoder.{layer}", self.kernel(layer)
            new = self.convolved(name, x, k, (k - 1) // 2)
            x = [(h + r) * math.sqrt(0.5) for h, r in zip(new, self.mapped(name, x), strict=True)]
        z = [self.times("encoder_output", row) for row in x]
        return z, [(a + b) * math.sqrt(0.5) for a, b in zip(z, e, strict=True)]

    def attended(
        self, name: str, h: Array, g: Array, z: list[Array], values: list[Array]
    ) -> tuple[Array, Array]:
        """Section 3.3, equations 1 and 2, of one position: the new h, and its weights."""
        d = (self.times(f"{name}.query", h) + g) * math.sqrt(0.5)
        powers = np.array([math.exp(float(d @ key)) for key in z])
        weights = powers / powers.sum()
        c = sum((w * value for w, value in zip(weights, values, strict=True)), 0 * values[0])
        s = len(z)
        c = c * (s * math.sqrt(1 / s))
        return (self.times(f"{name}.context", c) + h) * math.sqrt(0.5), weights

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        z, values = self.encoded(source)
        g = self.embedded("target", target)
        x = [self.times("decoder_input", row) for row in g]
        self.weights = []
        for layer in range(self.config.layers):
            name, k = f"decoder.{layer}", self.kernel(layer)
            found = [
                self.attended(name, h, g[i], z, values)
                for i, h in enumerate(self.convolved(name, x, k, k - 1))
            ]
            self.weights.append(np.stack([weights for _, weights in found]))
            x = [
                (h + r) * math.sqrt(0.5)
                for (h, _), r in zip(found, self.mapped(name, x), strict=True)
            ]
        states = [self.times("decoder_output", row) for row in x]
        if self.config.tie_embeddings:
            return np.stack([self.numbers["source_embedding.weight"] @ row for row in states])
        return np.stack([self.times("projection", row) for row in states])


# --- what it computes ----------------------------------------------------------------------------


@WHATEVER
def test_the_model_is_what_the_paper_defines(changes: dict[str, object]) -> None:
    model = randomised(small(**changes))
    definition = Definition(model)
    source, target = pieces()
    packings = Packing.of(source), Packing.of(target)
    logits, z = model(source, target), model.encode(source)
    packed = packings[1].pad(model(source, target, packings))
    packed_z = packings[0].pad(model.encode(source, packings[0]))
    weights = model.attention_weights(source, target)
    assert [*weights] == [f"decoder.{i}.memory_attention" for i in range(model.config.layers)]
    for row, (n, m) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        one, other = source[row, :n].tolist(), target[row, :m].tolist()
        expected = torch.from_numpy(definition.logits(one, other))
        expected_z = torch.from_numpy(np.stack(definition.encoded(one)[0]))
        for found in (logits, packed):
            assert (found[row, :m] - expected).abs().max() < 1e-10
        for found in (z, packed_z):
            assert (found[row, :n] - expected_z).abs().max() < 1e-10
        for found, by_hand in zip(weights.values(), definition.weights, strict=True):
            assert abs(found[row, 0, :m, :n].numpy() - by_hand).max() < 1e-10
            assert found[row, 0, :m, n:].eq(0).all()


def test_a_sentence_is_the_same_alone() -> None:
    model = randomised(small(kernels=(5,)))
    source, target = pieces()
    together = model(source, target)
    for row, (n, m) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :n], target[row : row + 1, :m])
        torch.testing.assert_close(alone[0], together[row, :m], rtol=1e-12, atol=1e-12)


@WHATEVER
def test_no_token_sees_a_later_one(changes: dict[str, object]) -> None:
    """And each sees all that the kernels reach back to: that follows from the definition."""
    model = randomised(small(**changes))
    source, target = padded([6]), padded([8])
    before = model(source, target)
    for j in range(8):
        changed = target.clone()
        changed[0, j] = 4 + (target[0, j] - 3) % (VOCABULARY - 4)
        same = (model(source, changed) - before).eq(0).all(dim=-1)[0]
        assert same[:j].all()
        assert not same[j]


def test_windows_have_the_gradient_that_they_should() -> None:
    packing = Packing.of(pieces()[0])
    x = torch.randn(len(packing.places), 2, dtype=torch.float64, requires_grad=True)
    for kernel in (3, 5):
        for causal in (False, True):

            def join(x: Tensor, k: int = kernel, causal: bool = causal) -> Tensor:
                joined: Tensor = convolutional._Join.apply(x, packing, k, causal)  # type: ignore[no-untyped-call]
                return joined

            assert torch.autograd.gradcheck(join, (x,))


def test_packed_and_padded_batches_have_the_same_gradients() -> None:
    source, target = pieces()
    found = []
    for packings in (None, (Packing.of(source), Packing.of(target))):
        model = randomised(small(tie_embeddings=False, widths=(6, 9)))
        logits = model(source, target, packings)
        real = logits if packings else logits[target.ne(PAD)]
        (real * torch.arange(VOCABULARY)).sum().backward()
        found.append([p.grad for p in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


# --- step by step --------------------------------------------------------------------------------


@WHATEVER
def test_steps_are_a_forward_pass(changes: dict[str, object]) -> None:
    """Of hypotheses that are dropped, copied and put in another order, as a search does."""
    model = randomised(small(**changes))
    source, _ = pieces()
    random = np.random.default_rng(3)
    cache, left = model.start(source), np.arange(len(source))
    history = torch.full((len(source), 1, 1), BOS)
    for length in range(1, 9):
        logits = model.step(history[:, :, -1], cache)
        rows, hypotheses, _ = history.shape
        again = source[left].repeat_interleave(hypotheses, dim=0)
        whole = model(again, history.flatten(0, 1))[:, -1].view_as(logits)
        torch.testing.assert_close(logits, whole, rtol=1e-10, atol=1e-10)
        stay = np.delete(np.arange(rows), 1) if length in (3, 6) else np.arange(rows)
        chosen = torch.from_numpy(random.integers(0, hypotheses, (len(stay), 3)))
        keep = torch.from_numpy(stay)
        cache.select((keep.unsqueeze(1) * hypotheses + chosen).flatten())
        if len(stay) < rows:
            cache.keep(keep)
        left = left[stay]
        new = torch.from_numpy(random.integers(4, VOCABULARY, (len(stay), 3, 1)))
        history = torch.cat((history[keep.unsqueeze(1), chosen], new), dim=2)


def test_a_search_finds_what_scores_best_by_whole_passes() -> None:
    model = randomised(small()).float()
    source, _ = pieces()
    options: dict[str, Any] = {"alpha": 0.6, "max_extra_tokens": 4}
    for found in beam.search(model, source, beam=3, n_best=3, **options):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for row, (found,) in enumerate(beam.search(model, source, beam=3, **options)):
        n, length = SOURCE_LENGTHS[row], len(found.pieces)
        target = torch.tensor([[BOS, *found.pieces[:-1]]])
        rows = torch.log_softmax(model(source[row : row + 1, :n], target)[0], dim=-1)
        total = rows[torch.arange(length), torch.tensor(found.pieces)].sum().item()
        assert found.score == pytest.approx(total / ((5 + length) / 6) ** 0.6, rel=1e-4)


def test_weights_are_normalised_once_a_search_and_made_anew_when_they_change() -> None:
    model = randomised(small(tie_embeddings=False)).float()
    source, target = pieces()
    first, again = model.start(source).fixed, model.start(source).fixed
    assert all(first[layer] is again[layer] for layer in first)
    layers = {m for name, m in model.named_modules() if isinstance(m, Normalised)}
    encoders = {m for m in model.encoder.modules() if isinstance(m, Normalised)}
    assert {*first} == layers - encoders - {model.encoder_input, model.encoder_output}
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.projection._fixed is None
        torch.testing.assert_close(copied(source, target), model(source, target))
    with torch.inference_mode(), laid_out():
        model.start(source)
    with torch.no_grad():
        model.decoder[0].convolution.gain.mul_(2.0)  # type: ignore[union-attr, operator]
    cache = model.start(source)
    logits = model.step(target[:, :1], cache)[:, 0]
    torch.testing.assert_close(logits, model(source, target)[:, 0], rtol=1e-4, atol=1e-4)


def test_a_sentence_longer_than_the_positions_is_refused() -> None:
    model = randomised(small(layers=1)).float()
    assert model.max_length == 1024
    allowed, longer = padded([1024]), padded([1025])
    assert model(allowed, padded([2])).isfinite().all()
    for source, target in ((longer, padded([2])), (padded([2]), longer)):
        with pytest.raises(ValueError, match=r"sentence of 1025 tokens is longer than the 1024"):
            model(source, target)
    cache = model.start(padded([2]))
    cache.steps = 1023
    model.step(padded([1]), cache)
    with pytest.raises(ValueError, match="1025 tokens"):
        model.step(padded([1]), cache)


# --- how it learns -------------------------------------------------------------------------------


def slope(model: Convolutional, parameter: Tensor, index: tuple[int, ...], loss: Any) -> float:
    """The derivative of loss() by one number, from differences."""
    sides = []
    with torch.no_grad():
        for change in (1e-5, -2e-5, 1e-5):
            parameter[index] += change
            sides.append(loss().item())
    return float(sides[0] - sides[1]) / 2e-5


@pytest.mark.parametrize("layers", [1, 3])
def test_the_encoder_gets_its_gradient_divided_by_twice_the_attention_layers(layers: int) -> None:
    """All of it does but the embeddings, as far as attention reads them directly (section 3.4)."""
    model = randomised(small(layers=layers, tie_embeddings=False))
    source, target = padded([5]), padded([4])
    factors = torch.randn(1, 4, VOCABULARY, dtype=torch.float64) / 10

    def loss() -> Tensor:
        return (model(source, target) * factors).sum()

    loss().backward()
    for name, parameter in model.named_parameters():
        if not name.startswith(("encoder", "decoder", "projection")):
            continue
        share = 1 / (2 * layers) if name.startswith("encoder") else 1.0
        index = (1,) * parameter.dim()
        assert parameter.grad is not None
        expected = share * slope(model, parameter, index, loss)
        assert parameter.grad[index].item() == pytest.approx(expected, rel=1e-4, abs=1e-7)

    of_keys, of_values = torch.randn(2, 1, 5, 8, dtype=torch.float64)

    def read() -> Tensor:
        keys, values, _ = model._memory(source)
        return (keys * of_keys + values * of_values).sum()

    model.zero_grad()
    read().backward()
    places = model.source_positions.weight
    assert places.grad is not None
    direct = math.sqrt(0.5) * math.sqrt(5) * of_values[0, 2, 3].item()
    through = slope(model, places, (2, 3), read) - direct
    assert places.grad[2, 3].item() == pytest.approx(direct + through / (2 * layers), rel=1e-6)


def test_weights_start_as_the_paper_says() -> None:
    """Normal, with the variances of section 3.5; gains at the norm, so that no weight changes."""
    torch.manual_seed(0)
    config = small(
        d_model=64, layers=2, widths=(128, 256), kernels=(3, 5), dropout=0.2,
        tie_embeddings=False, d_out=96,
    )  # fmt: skip
    model = Convolutional(config, 500)
    kept = 0.8
    expected = {
        "encoder_input": kept / 64,
        "decoder_input": kept / 64,
        "encoder_output": 1 / 256,
        "decoder_output": 1 / 256,
        "projection": kept / 96,
        "encoder.0.convolution": 4 * kept / (3 * 128),
        "encoder.1.convolution": 4 * kept / (5 * 128),
        "decoder.0.convolution": 4 * kept / (3 * 128),
        "decoder.1.convolution": 4 * kept / (5 * 128),
        "encoder.1.residual": 1 / 128,
        "decoder.1.residual": 1 / 128,
        "decoder.0.query": 1 / 128,
        "decoder.1.query": 1 / 256,
        "decoder.0.context": 1 / 64,
        "decoder.1.context": 1 / 64,
    }
    found = {name: m for name, m in model.named_modules() if isinstance(m, Normalised)}
    assert {*found} == {*expected}
    for name, layer in found.items():
        torch.testing.assert_close(layer.weight(), layer.direction)
        assert layer.direction.var().item() == pytest.approx(expected[name], rel=0.08)
        assert layer.bias is None or layer.bias.eq(0).all()
    for table in ("source_embedding", "target_embedding", "source_positions", "target_positions"):
        assert getattr(model, table).weight.std().item() == pytest.approx(0.1, rel=0.02)


def test_dropout_hits_embeddings_inputs_of_blocks_and_what_is_projected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The residual, and the target embedding that queries add, stay with the same units dropped."""
    seen: list[tuple[int, float, bool]] = []

    def noting(x: Tensor, share: float, training: bool) -> Tensor:
        seen.append((x.size(-1), share, training))
        return x

    monkeypatch.setattr(convolutional, "dropout", noting)
    model = randomised(small(tie_embeddings=False, widths=(6, 10, 4), d_out=7, dropout=0.3))
    model.train()(*pieces())
    widths = [8, 6, 6, 10, 8, 6, 6, 10, 7]
    assert seen == [(width, 0.3, True) for width in widths]
    seen.clear()
    model.start(pieces()[0])
    model.eval()
    model.step(pieces()[1][:, :1], model.start(pieces()[0]))
    assert {training for _, _, training in seen[4:]} == {False}


def one_update(model: Convolutional, precision: Any) -> tuple[float, float, float]:
    """The loss, the gradient's norm and whether the step was skipped."""
    source, target = pieces()
    batch = Batch(source, target, target)
    optimizer = optimizers.make_adam(model)
    loss, _ = step.accumulate(
        model, [batch], update_target_tokens=sum(TARGET_LENGTHS), smoothing=0.1, world_size=1,
        precision=precision, device=CPU,
    )  # fmt: skip
    norm, skipped = step.apply(model, optimizer, 1e-3)
    return loss.item(), norm.item(), skipped.item()


@pytest.mark.parametrize("tied", [True, False])
def test_bf16_trains(tied: bool) -> None:
    config = small(dropout=0.0, widths=(6, 16), tie_embeddings=tied)
    torch.manual_seed(0)
    model = Convolutional(config, VOCABULARY)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loss, norm, skipped = one_update(copy.deepcopy(model), "float32")
    narrow, narrow_norm, narrow_skipped = one_update(model, "bf16")
    assert skipped == narrow_skipped == 0.0
    assert narrow == pytest.approx(loss, rel=0.02)
    assert narrow_norm == pytest.approx(norm, rel=0.1)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all()
        assert not parameter.equal(before[name])


def test_sums_and_softmax_are_in_float32_where_products_are_in_bf16() -> None:
    model = Convolutional(small(dropout=0.0, widths=(6, 16)), VOCABULARY)
    outputs: dict[str, torch.dtype] = {}
    for name, module in model.named_modules():
        if isinstance(module, convolutional.Block | Normalised):
            module.register_forward_hook(
                lambda _, __, out, name=name: outputs.__setitem__(name, out.dtype)
            )
    kept: list[Tensor] = []
    with step.autocast("bf16", CPU):
        states = model._states(*pieces(), None, kept)
    blocks = {f"{side}.{i}" for side in ("encoder", "decoder") for i in range(3)}
    assert {name for name, dtype in outputs.items() if dtype == torch.float32} == blocks
    assert {weights.dtype for weights in kept} == {states.dtype} == {torch.float32}


# --- what it costs -------------------------------------------------------------------------------


@WHATEVER
def test_formulas_count_parameters_and_operations(changes: dict[str, object]) -> None:
    config = small(**changes)
    lengths = np.full(3, 7), np.full(3, 5)
    expected = Convolutional.forward_flops(config, VOCABULARY, *lengths)
    assert expected == Convolutional.forward_flops(config, VOCABULARY, *lengths, lengths)
    for device in ("meta", "cpu"):
        with torch.device(device):
            model = Convolutional(config, VOCABULARY)
            source, target = torch.full((3, 7), 5), torch.full((3, 5), 5)
        with FlopCounterMode(display=False) as forward:
            logits = model(source, target)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
        assert forward.get_total_flops() == expected
        assert backward.get_total_flops() == 2 * expected
        count = sum(p.numel() for p in model.parameters())
        assert count == Convolutional.parameter_count(config, VOCABULARY)
        assert all(p.grad is not None for p in model.parameters())
    assert isinstance(building.build(config, VOCABULARY), Convolutional)


def test_padding_costs_in_attention_alone() -> None:
    config, (source, target) = small(widths=(6, 10)), pieces()
    packings = Packing.of(source), Packing.of(target)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        Convolutional(config, VOCABULARY)(source, target, packings)
    lengths = np.array(SOURCE_LENGTHS), np.array(TARGET_LENGTHS)
    widths = np.full(4, 12), np.full(4, 10)
    found = Convolutional.forward_flops(config, VOCABULARY, *lengths, widths)
    assert counter.get_total_flops() == found
    needed = Convolutional.forward_flops(config, VOCABULARY, *lengths)
    pairs = 4 * 12 * 10 - sum(n * m for n, m in zip(*lengths, strict=True))
    assert found - needed == 3 * 2 * 2 * 8 * pairs
    singly = [
        Convolutional.forward_flops(config, VOCABULARY, np.array([n]), np.array([m]))
        for n, m in zip(*lengths, strict=True)
    ]
    assert needed == sum(singly)


def test_the_twin_of_the_base_model_by_hand() -> None:
    """12 + 12 blocks of 512 with kernels of 3: the weights that multiply come to 64.0 million, base
    has 63.1; beside these are 1.0 million of positions and 0.08 of gains and biases."""
    config = small(d_model=512, layers=12)
    encoder = 12 * 2 * 3 * 512**2 + 2 * 512**2
    decoder = 12 * (2 * 3 + 2) * 512**2 + 2 * 512**2
    weights = 37_000 * 512 + encoder + decoder
    assert (encoder, decoder, weights) == (19_398_656, 25_690_112, 64_032_768)
    rows = 2 * 12 * 2 * 512 + 12 * 2 * 512 + 4 * 512
    positions = 2 * 1024 * 512
    count = Convolutional.parameter_count(config, 37_000)
    assert count == weights + positions + 2 * rows == 65_159_168
    # Each weight multiplies each token once; a query and a key cost 2 x 2 x 512 in each block.
    pair = Convolutional.forward_flops(config, 37_000, np.array([20]), np.array([30]))
    projected = 30 * 37_000 * 512
    assert pair == 2 * (20 * encoder + 30 * decoder + projected) + 12 * 2 * 2 * 512 * 20 * 30


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@WHATEVER
def test_formulas_say_what_the_backward_pass_keeps(
    changes: dict[str, object], precision: Any
) -> None:
    """Counted as autograd saves it, of a CPU: weights, normalised ones too, are left out."""
    config = dataclasses.replace(small(**changes), d_model=32)
    config = dataclasses.replace(config, widths=tuple(8 * width for width in config.widths))
    torch.manual_seed(0)
    model = Convolutional(config, VOCABULARY)
    pairs, n, m = 17, 29, 23
    source, target = padded([n] * pairs), padded([m] * pairs)

    def forward() -> None:
        logits = model(source, target, (Packing.of(source), Packing.of(target)))
        smoothed_cross_entropy(logits, target[target.ne(PAD)], 0.1)

    rows = (pairs, pairs * n, pairs * m)
    saved = saved_bytes(forward, precision, lambda tensor: len(tensor) in rows)
    saved -= pairs * m * VOCABULARY * 4  # the probabilities, which are counted with the logits
    size = 4 if precision == "float32" else 2
    of_source, of_target = Convolutional.kept_bytes(config, (n, m), size, gpu=False)
    assert pairs * (n * of_source + m * of_target) == pytest.approx(saved, rel=0.05)
    smaller = Convolutional.kept_bytes(config, (n, m), size, gpu=True)
    assert smaller[0] < of_source
    assert smaller[1] < of_target


def test_the_parts_to_share_out_are_the_blocks() -> None:
    model = Convolutional(small(), VOCABULARY)
    assert [*model.blocks()] == [*model.encoder, *model.decoder]
    assert F.linear(model._states(*pieces(), None), model.source_embedding.weight).shape == (
        4, 10, VOCABULARY
    )  # fmt: skip
