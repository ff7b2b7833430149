"""The layers of Table 1 in the place of self-attention: each against its definition, in training
and step by step, with its cost.

Sentences of 23 pieces are long enough for restricted attention by blocks, and for a dilated
convolution whose outer taps still see something; those of 5 for neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import TransformerConfig
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode import beam
from seq2sweep.errors import UserError
from seq2sweep.model import components, flops
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.mixer import restricted
from seq2sweep.model.packing import Packing
from seq2sweep.train import step

from . import equations
from .models import MIXERS, padded, randomised, small, steps_are_whole_passes

CPU = torch.device("cpu")
OTHERS = MIXERS[1:]
LENGTHS = (23, 5, 1, 14)
SIDES = pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
SETTINGS: list[dict[str, object]] = [
    {},
    {"mixer_neighbourhood": 1, "mixer_kernel": 1, "mixer_dilation": (2,)},
    {"mixer_neighbourhood": 5, "mixer_kernel": 5, "mixer_dilation": (4, 1)},
    {"mixer_neighbourhood": 27, "mixer_kernel": 7, "mixer_dilation": (6,)},
]


def settings(kind: str, **changes: object) -> TransformerConfig:
    return small(encoder_mixer=kind, decoder_mixer=kind, **changes)


def made(config: TransformerConfig, causal: bool, layer: int = 0) -> Any:
    """A mixer in float64, with no number at its start."""
    torch.manual_seed(2)
    kind = config.decoder_mixer if causal else config.encoder_mixer
    module = components.mixer(kind)(config, causal, layer).double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "bias" in name:
                parameter.normal_(0.0, 0.3)
    return module


def sentences(lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    """Numbers [B, n, 16], large ones at the padding, and what attention adds to its scores."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), max(lengths), 16, dtype=torch.float64)
    x = torch.where(real.unsqueeze(-1), x, 1000 * x)
    return x, torch.zeros(real.shape).masked_fill(~real, -torch.inf)[:, None, None]


# --- what they compute ---------------------------------------------------------------------------


@SIDES
@pytest.mark.parametrize("changes", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", MIXERS)
def test_each_sentence_of_a_batch_is_mixed_as_defined(
    kind: str, changes: dict[str, object], causal: bool
) -> None:
    config = settings(kind, **changes)
    x, mask = sentences()
    module = made(config, causal)
    real = mask[:, 0, 0].eq(0)
    packing = Packing(real.flatten().nonzero().squeeze(1), *real.shape)
    found = module(x, None if causal else mask)
    packed = module(x[real], None if causal else mask, packing=packing)
    assert (packed - found[real]).abs().max() < 1e-10
    for row, length in enumerate(LENGTHS):
        expected = equations.mixer(module, config, equations.array(x[row, :length]), causal)
        assert abs(equations.array(found[row, :length]) - expected).max() < 1e-10


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("decoder", MIXERS)
@pytest.mark.parametrize("encoder", MIXERS)
def test_a_transformer_with_each_is_that_of_the_equations(
    encoder: str, decoder: str, norm: str
) -> None:
    """Two layers, of which the second one's convolution is dilated. A table of sinusoids would
    have the precision of float32."""
    config = small(
        encoder_mixer=encoder, decoder_mixer=decoder, norm=norm, mixer_neighbourhood=3,
        mixer_dilation=(1, 3), positions="learned",
    )  # fmt: skip
    model = randomised(config).double().eval()
    source, target = padded([9, 5]), padded([3, 8])
    logits = model(source, target)
    for row, (n, m) in enumerate([(9, 3), (5, 8)]):
        expected = equations.transformer(model, source[row, :n].tolist(), target[row, :m].tolist())
        assert abs(equations.array(logits[row, :m]) - expected).max() < 1e-10


@pytest.mark.parametrize("kind", OTHERS)
def test_only_the_mixer_is_another(kind: str) -> None:
    """Residual, norm, feed-forward and attention to the memory have the weights they had."""
    paper, other = (dict(Transformer(c, 50).named_parameters()) for c in (small(), settings(kind)))
    rest = [name for name in paper if ".attention." not in name]
    assert rest == [name for name in other if ".attention." not in name]
    assert all(paper[name].shape == other[name].shape for name in rest)


# --- what an output may depend on ----------------------------------------------------------------


def seen(config: TransformerConfig, causal: bool, n: int) -> Tensor:
    """Whether output i of a sentence of n depends on input j, [n, n], by exact gradients."""
    module, x = made(config, causal), torch.randn(1, n, 16, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: module(x).sum(-1)[0], x)
    return jacobian[:, 0].ne(0).any(dim=-1)


@SIDES
@pytest.mark.parametrize("kind", MIXERS)
def test_outputs_depend_on_what_the_definition_says_and_on_nothing_else(
    kind: str, causal: bool
) -> None:
    n, r, k, dilation = 23, 5, 3, 4
    config = settings(kind, mixer_neighbourhood=r, mixer_kernel=k, mixer_dilation=(dilation,))
    if kind in ("convolutional", "separable"):
        own = k - 1 if causal else k // 2
        expected = [{i + (t - own) * dilation for t in range(k)} & set(range(n)) for i in range(n)]
    elif kind == "restricted":
        expected = [set(w) for w in (equations.the_last if causal else equations.around)(n, r)]
    else:
        expected = [set(range(i + 1 if causal else n)) for i in range(n)]
    found = [set(row.nonzero().flatten().tolist()) for row in seen(config, causal, n)]
    assert found == expected


@pytest.mark.parametrize("kind", MIXERS)
def test_no_word_of_a_translation_sees_a_later_one(kind: str) -> None:
    model = randomised(small(decoder_mixer=kind, mixer_neighbourhood=4, mixer_kernel=4)).eval()
    source, target = padded([9]), padded([23])
    before = model(source, target)
    for i in (0, 5, 22):
        changed = target.clone()
        changed[0, i] = (changed[0, i] + 1) % 40 + 4
        after = model(source, changed)
        assert torch.equal(after[0, :i], before[0, :i])
        assert not torch.equal(after[0, i], before[0, i])


@SIDES
@pytest.mark.parametrize("kind", MIXERS)
def test_a_sentence_learns_the_same_alone_and_in_a_batch(kind: str, causal: bool) -> None:
    """Outputs, and gradients of inputs and weights: those of a batch are sums over sentences."""
    config = settings(kind, mixer_neighbourhood=5)
    module, (x, mask) = made(config, causal), sentences()
    away = torch.randn_like(x)

    def learned(x: Tensor, mask: Tensor | None, away: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        loss = (module(x, mask) * away).sum()
        return list(torch.autograd.grad(loss, (x, *module.parameters())))

    alone = [learned(x[b : b + 1, :n], None, away[b : b + 1, :n]) for b, n in enumerate(LENGTHS)]
    real = mask[:, 0, 0].eq(0).unsqueeze(-1)
    of_x, *of_weights = learned(x, None if causal else mask, away * real)
    for b, n in enumerate(LENGTHS):
        torch.testing.assert_close(of_x[b, :n], alone[b][0][0], rtol=1e-10, atol=1e-12)
    for found, *parts in zip(of_weights, *(one[1:] for one in alone), strict=True):
        torch.testing.assert_close(found, sum(parts), rtol=1e-10, atol=1e-10)
    assert not of_x.masked_select(~real).any()


@pytest.mark.parametrize("r", [1, 3, 16, 17, 33])
@SIDES
@pytest.mark.parametrize("attention", ["scaled_dot_product", "dot_product", "additive"])
def test_blocks_are_all_keys_with_the_others_masked(
    attention: str, causal: bool, r: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path of restricted attention against the plain one, padding and gradients too."""
    r += not causal and r % 2 == 0
    config = settings("restricted", attention=attention, mixer_neighbourhood=r)
    module, (x, mask) = made(config, causal), sentences((70, 41, 3))
    away = torch.randn_like(x) * mask[:, 0, 0].eq(0).unsqueeze(-1)
    found = []
    for blocks in (True, False):
        monkeypatch.setattr(restricted, "by_blocks", lambda n, r, b=blocks: b)
        x.requires_grad_()
        out = module(x, None if causal else mask) * away
        found.append([out, *torch.autograd.grad(out.sum(), (x, *module.parameters()))])
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)


# --- step by step --------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["self_attention", "recurrent"])
@pytest.mark.parametrize("kind", MIXERS)
def test_steps_are_the_whole_whichever_hypotheses_go_on(
    kind: str, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypotheses that swap places, die out and go on from one another; sentences that end; pieces
    that are dropped: each step says what a pass over the hypothesis's own words says."""
    monkeypatch.setattr(transformer, "STEPS_TO_DROP", 3)
    config = small(
        encoder_mixer=encoder, decoder_mixer=kind, mixer_neighbourhood=4, mixer_kernel=4,
        mixer_dilation=(1, 3),
    )  # fmt: skip
    model = randomised(config).double().eval()
    steps_are_whole_passes(model, steps=16, ends={6: 1, 11: 0})


@pytest.mark.parametrize("kind", OTHERS)
def test_a_beam_finds_what_it_finds_without_a_cache(kind: str) -> None:
    """Against a search over whole passes, one sentence at a time."""
    model = randomised(settings(kind), seed=3).double().eval()
    with torch.no_grad():
        model.projection.weight[EOS] += 0.3
    source = padded([6, 3, 9])
    found = beam.search(model, source, beam=3, alpha=0.6, max_extra_tokens=6, early_stop=False)
    for row, best in zip(source, found, strict=True):
        alone = row[row != PAD][None]
        open_ones, done = [([BOS], 0.0)], []
        for length in range(1, len(alone[0]) - 1 + 6 + 1):
            going = []
            for words, total in open_ones:
                with torch.no_grad():
                    says = model(alone, torch.tensor([words]))[0, -1].log_softmax(-1)
                says[[PAD, BOS]] = -torch.inf
                going += [(total + float(p), [*words, w]) for w, p in enumerate(says)]
            going.sort(key=lambda one: -one[0])
            divisor = beam.length_penalty(length, 0.6, "paper")
            done += [(t / divisor, w) for t, w in going[:3] if w[-1] == EOS]
            open_ones = [(w, t) for t, w in going if w[-1] != EOS][:3]
        score, words = max(done or [(t / divisor, w) for w, t in open_ones])
        assert best[0].pieces == words[1:]
        assert best[0].score == pytest.approx(score, rel=1e-6)


@pytest.mark.parametrize("kind", ["restricted", "recurrent", "convolutional", "separable"])
def test_a_long_translation_holds_no_more_than_its_mixer_sees(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformer, "STEPS_TO_DROP", 2)
    model = randomised(settings(kind, mixer_neighbourhood=3)).eval()
    with torch.no_grad():
        cache = model.start(padded([4]))
        for _ in range(30):
            model.step(torch.tensor([[7]]), cache)
    assert cache.past.size(1) <= 3 + 2


# --- precision and repetition --------------------------------------------------------------------


def learned_in(precision: Any, config: TransformerConfig) -> list[Tensor]:
    model = randomised(config, seed=5)
    target = padded([4, 20, 7])
    data = Batch(padded([21, 9, 3]), target.roll(1, 1), target)
    data.target_in[target == PAD] = PAD
    losses = step.accumulate(
        model, [data], update_target_tokens=31, smoothing=0.1, world_size=1,
        precision=precision, device=CPU,
    )  # fmt: skip
    return [*losses, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("kind", OTHERS)
def test_bf16_rounds_and_the_same_seed_repeats(kind: str) -> None:
    config = settings(kind, mixer_neighbourhood=3, dropout=0.0)
    exact, rounded, again = (
        learned_in(precision, config) for precision in ("float32", "bf16", "bf16")
    )
    assert len(exact) == len(rounded)
    assert all(torch.equal(a, b) for a, b in zip(rounded, again, strict=True))
    assert all(gradient.dtype == torch.float32 for gradient in rounded)
    difference = torch.cat([(a - b).flatten() for a, b in zip(exact, rounded, strict=True)])
    whole = torch.cat([a.flatten() for a in exact])
    assert 0 < difference.norm() / whole.norm() < 0.1


@SIDES
@pytest.mark.parametrize("kind", MIXERS)
def test_what_goes_in_comes_out_as_strong_at_the_start(kind: str, causal: bool) -> None:
    """Of linear mixers the variance stays; nothing begins dead or ten times as strong."""
    config = settings(kind, d_model=64, heads=4, d_k=16, d_v=16, mixer_kernel=5)
    torch.manual_seed(0)
    module = components.mixer(kind)(config, causal, 0)
    with torch.no_grad():
        out = module(torch.randn(64, 40, 64))[:, 8:-8]
    linear = kind in ("convolutional", "separable")
    assert float(out.std()) == pytest.approx(1.0, rel=0.15) if linear else 0.1 < out.std() < 2
    if kind == "recurrent":
        for lstm in (m for m in module.modules() if isinstance(m, nn.LSTM)):
            width = lstm.hidden_size
            ones = [False] * width + [True] * width + [False] * 2 * width
            assert lstm.bias_ih_l0.eq(1).tolist() == ones
            assert int(lstm.bias_ih_l0.ne(0).sum() + lstm.bias_hh_l0.ne(0).sum()) == width


# --- what they cost ------------------------------------------------------------------------------


@SIDES
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, SETTINGS[0]) for kind in MIXERS),
        *(
            (kind, changes)
            for kind in ("restricted", "convolutional", "separable")
            for changes in SETTINGS[1:]
        ),
    ],
    ids=str,
)
def test_formulas_are_what_is_counted(kind: str, changes: dict[str, object], causal: bool) -> None:
    """On the meta device, where an LSTM is written out in plain products."""
    config = settings(kind, **changes)
    mixer = components.mixer(kind)
    for n in (5, 23):
        with torch.device("meta"):
            module = mixer(config, causal, 0)
            x = torch.zeros(3, n, 16)
            with FlopCounterMode(display=False) as counter:
                module(x)
        lengths = np.full(3, float(n))
        assert counter.get_total_flops() == mixer.flops(config, causal, lengths, lengths).sum()
    count = sum(p.numel() for p in module.parameters())
    assert count == mixer.parameter_count(config, causal)


@SIDES
def test_a_recurrent_layer_costs_what_its_cell_written_out_does(causal: bool) -> None:
    """Fused kernels count as nothing: here are the products of the definition, on a CPU."""
    config = settings("recurrent")
    module, x = made(config, causal), torch.randn(3, 7, 16, dtype=torch.float64)
    sides = [(module.rightwards, x)] if causal else [
        (module.rightwards, x), (module.leftwards, x.flip(1))
    ]  # fmt: skip
    with FlopCounterMode(display=False) as counter:
        for lstm, rows in sides:
            output = cell = x.new_zeros(3, lstm.hidden_size)
            for i in range(7):
                gates = F.linear(rows[:, i], lstm.weight_ih_l0, lstm.bias_ih_l0)
                gates = gates + F.linear(output, lstm.weight_hh_l0, lstm.bias_hh_l0)
                enter, forget, new, leave = gates.chunk(4, dim=1)
                cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
                output = leave.sigmoid() * cell.tanh()
    lengths = np.full(3, 7.0)
    flops_by_formula = components.mixer("recurrent").flops(config, causal, lengths).sum()
    # Table 1's n d^2 with its constants: 16 of one direction, 12 of two that are half as wide.
    assert counter.get_total_flops() == flops_by_formula == 3 * 7 * (16 if causal else 12) * 16**2
    whole = module(x)[:, -1] if causal else module(x)[:, 0, 8:]
    torch.testing.assert_close(output, whole)


@pytest.mark.parametrize("kind", ["restricted", "convolutional", "separable", "recurrent"])
def test_training_costs_three_times_as_much(kind: str) -> None:
    """The gradient of an LSTM's first state, which nobody needs, is left out; and the counter takes
    a convolution by groups for one without, so it is told."""
    config = settings(kind, mixer_neighbourhood=5)

    def grouped(gradient: Any, x: Any, weight: Any, *others: Any, **options: Any) -> int:
        products = 2 * gradient[0] * gradient[1] * gradient[2] * weight[1] * weight[2]
        return 2 * int(products)

    mapping = {torch.ops.aten.convolution_backward: grouped}
    for causal in (False, True):
        with torch.device("meta"):
            module = components.mixer(kind)(config, causal, 0)
            x = torch.zeros(3, 23, 16, requires_grad=True)
            with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
                module(x).sum().backward()
        lengths = np.full(3, 23.0)
        expected = 3 * type(module).flops(config, causal, lengths, lengths).sum()
        if kind == "recurrent":
            expected -= 3 * (1 if causal else 2) * 8 * (16 if causal else 8) ** 2
        assert counter.get_total_flops() == expected


@SIDES
@pytest.mark.parametrize("r", [1, 3, 7, 9, 31])
def test_restricted_attention_needs_its_neighbourhoods_and_counts_its_blocks(
    r: int, causal: bool
) -> None:
    """r n without what lies outside of the sentence; what is computed is no more than 3 r n + 8 n,
    nor than n^2."""
    config = settings("restricted", mixer_neighbourhood=r)
    n = np.arange(1.0, 200.0)
    windows = equations.the_last if causal else equations.around
    mixer = components.mixer("restricted")
    projected = 2 * 16 * 2 * (2 * 8 + 2 * 8)
    a_pair = 2 * 2 * (8 + 8)
    needed = mixer.flops(config, causal, n) - n * projected
    assert (needed == [a_pair * sum(map(len, windows(int(i), r))) for i in n]).all()
    computed = (mixer.flops(config, causal, n, n) - n * projected) / a_pair
    assert (computed <= n * n).all()
    assert (computed[100:] <= (3 * r + 16) * (n[100:] + 8)).all()
    assert (mixer.flops(config, causal, n, n) >= mixer.flops(config, causal, n)).all()


@pytest.mark.parametrize("decoder", MIXERS)
@pytest.mark.parametrize("encoder", MIXERS)
def test_a_model_costs_the_sum_of_its_parts(encoder: str, decoder: str) -> None:
    config = small(encoder_mixer=encoder, decoder_mixer=decoder, mixer_neighbourhood=5)
    with torch.device("meta"):
        model = Transformer(config, 50)
        source, target = (torch.zeros(3, n, dtype=torch.int64) for n in (23, 19))
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(source, target)
    lengths = np.full(3, 23), np.full(3, 19)
    assert counter.get_total_flops() == flops.forward_flops(config, 50, *lengths, lengths)
    count = sum(p.numel() for p in model.parameters())
    assert count == flops.parameter_count(config, 50)


@pytest.mark.parametrize(("kind", "padding"), [
    ("self_attention", "pairs"), ("recurrent", "pieces"), ("convolutional", "none"),
    ("separable", "depthwise"),
])  # fmt: skip
def test_what_is_padded_is_counted_as_computed(kind: str, padding: str) -> None:
    config, mixer = settings(kind), components.mixer(kind)
    n, width = np.array([5.0, 20.0]), np.array([20.0, 20.0])
    extra = mixer.flops(config, False, n, width).sum() - mixer.flops(config, False, n).sum()
    of_padding = {
        "pairs": 2 * 2 * 16 * (20**2 - 5**2),
        "pieces": 15 * 12 * 16**2,
        "none": 0,
        "depthwise": 15 * 2 * 3 * 16,
    }
    assert extra == of_padding[padding]


# --- where they are named ------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["recurrent", "restricted"])
def test_weights_of_attention_are_shown_of_attention_alone(encoder: str) -> None:
    config = small(encoder_mixer=encoder, decoder_mixer="separable", mixer_neighbourhood=3)
    model = randomised(config).eval()
    source, target = padded([23, 5]), padded([4, 6])
    before = model(source, target)
    found = model.attention_weights(source, target)
    names = {f"decoder.{i}.memory_attention" for i in range(2)}
    if encoder == "restricted":
        names |= {f"encoder.{i}.attention" for i in range(2)}
        weights = found["encoder.1.attention"]
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 23))
        away = torch.arange(23) - torch.arange(23)[:, None]
        assert not weights[:, :, away.abs() > 1].any()
        assert not weights[1, :, :5, 5:].any()
    assert set(found) == names
    assert torch.equal(model(source, target), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_mixer": "recurrent", "d_model": 33, "positions": "learned"}, "model.d_model"),
        ({"encoder_mixer": "restricted", "mixer_neighbourhood": 4}, "neighbourhood must be odd"),
        ({"encoder_mixer": "convolutional", "mixer_kernel": 2}, "model.mixer_kernel must be odd"),
        ({"encoder_mixer": "separable", "mixer_kernel": 4}, "for encoder_mixer separable"),
        ({"mixer_kernel": 0}, "model.mixer_kernel must be at least 1"),
        ({"mixer_neighbourhood": 0}, "model.mixer_neighbourhood must be at least 1"),
        ({"mixer_dilation": []}, "model.mixer_dilation must be one number or more"),
        ({"mixer_dilation": [2, 0]}, "model.mixer_dilation must be one number or more"),
        ({"encoder_mixer": "reccurent"}, "did you mean recurrent?"),
        ({"decoder_mixer": "attention"}, "model.decoder_mixer must be one of convolutional"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line(changes: dict[str, object], message: str) -> None:
    base = presets.load("phrasebook").config
    with pytest.raises(UserError) as caught:
        configuration.with_changes(base, {f"model.{key}": value for key, value in changes.items()})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_decoder_may_have_what_an_encoder_may_not() -> None:
    base = presets.load("phrasebook").config
    for changes in (
        {"model.decoder_mixer": "restricted", "model.mixer_neighbourhood": 4},
        {"model.decoder_mixer": "convolutional", "model.mixer_kernel": 2},
    ):
        configuration.with_changes(base, changes)


def test_results_of_before_stay_current_and_those_of_a_mixer_are_its_own() -> None:
    base = presets.load("phrasebook").config
    assert not any("mixer" in key for key in configuration.identity(base, "model"))
    made_of = {}
    for side in ("encoder_mixer", "decoder_mixer"):
        for kind in OTHERS:
            other = configuration.with_changes(base, {f"model.{side}": kind})
            said = configuration.identity(other, "model")[f"model.{side}"]
            assert said.startswith(f"{kind} ")
            made_of[side, kind] = configuration.fingerprint(other, "model", of_result=True)
            code = configuration.code_of_kinds(other, "model")
            assert list(code) == [f"seq2sweep.model.mixer.{kind}"]
    assert len(set(made_of.values())) == len(made_of)
