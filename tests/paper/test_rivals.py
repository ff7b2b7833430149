"""What training, decoding and planning rely on, asked of every architecture.

That each computes what its paper defines is asked in a file of its own, such as test_recurrent.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import flop_counter

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import ModelConfig, kinds_of_parts, loading
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode import beam, ctranslate
from seq2sweep.errors import UserError
from seq2sweep.model import flops, lstm
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.building import build
from seq2sweep.model.packing import Packing
from seq2sweep.train import step

from ..saved_tensors import none_of, saved_bytes
from .models import VOCABULARY, padded, steps_are_whole_passes
from .test_fast_paths import filling_changes_nothing

CPU = torch.device("cpu")
SETTINGS: list[dict[str, Any]] = [
    {"architecture": "recurrent", "layers": 2},
    {"architecture": "recurrent", "layers": 4, "context": "previous", "tie_embeddings": False},
    {"architecture": "convolutional", "layers": 2},
    {"architecture": "convolutional", "layers": 3, "widths": [16, 24], "kernels": [3, 1, 5],
     "d_out": 12, "tie_embeddings": False},
    {"architecture": "bytenet", "layers": 3, "dilations": [1, 2]},
    {"architecture": "bytenet", "layers": 2, "kernel": 5, "unfolding": 1.5, "unfolding_extra": 2,
     "tie_embeddings": False},
]  # fmt: skip
RIVALS = pytest.mark.parametrize("changes", SETTINGS, ids=str)


def section(changes: dict[str, Any]) -> ModelConfig:
    shared = {"d_model": 16, "dropout": 0.0, "tie_embeddings": True}
    made: ModelConfig = configuration.section(ModelConfig, shared | changes, "model.")
    return made


def made(changes: dict[str, Any], seed: int = 0) -> Any:
    """A model in float64 none of whose numbers is a zero or one that would hide being forgotten."""
    torch.manual_seed(seed)
    model = build(section(changes), VOCABULARY).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "bias" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def test_every_architecture_is_asked() -> None:
    asked = {changes["architecture"] for changes in SETTINGS} | {"transformer"}
    assert asked == {*kinds_of_parts.names("architecture")} == {*loading.architectures()}


# --- what an output may depend on ----------------------------------------------------------------


@RIVALS
def test_no_token_of_a_translation_sees_a_later_one(changes: dict[str, Any]) -> None:
    model = made(changes).eval()
    source, target = padded([9]), padded([13])
    before = model(source, target)
    for i in (0, 5, 12):
        changed = target.clone()
        changed[0, i] = (changed[0, i] + 1) % 40 + 4
        after = model(source, changed)
        assert torch.equal(after[0, :i], before[0, :i])
        assert not torch.equal(after[0, i], before[0, i])


@RIVALS
def test_a_sentence_is_the_same_alone_in_a_batch_and_without_padding(
    changes: dict[str, Any],
) -> None:
    """Outputs, and gradients: those of a batch are sums over its sentences."""
    model = made(changes).train()
    lengths = [(9, 4), (3, 11), (1, 1), (14, 7)]
    source, target = padded([n for n, _ in lengths]), padded([m for _, m in lengths])
    away = torch.randn(*target.shape, VOCABULARY, dtype=torch.float64)

    def gradients(out: Tensor, away: Tensor) -> list[Tensor]:
        found = torch.autograd.grad((out * away).sum(), [*model.parameters()], allow_unused=True)
        assert all(gradient is not None and gradient.any() for gradient in found), "a dead weight"
        return list(found)

    packings = Packing.of(source), Packing.of(target)
    real = target.ne(PAD)
    out = model(source, target)
    packed = model(source, target, packings)
    torch.testing.assert_close(packed, out[real], rtol=1e-10, atol=1e-10)
    of_batch = gradients(out, away * real.unsqueeze(-1))
    of_packed = gradients(packed, away[real])
    sums = [torch.zeros_like(gradient) for gradient in of_batch]
    for b, (n, m) in enumerate(lengths):
        alone = model(source[b : b + 1, :n], target[b : b + 1, :m])
        torch.testing.assert_close(alone[0], out[b, :m], rtol=1e-10, atol=1e-10)
        found = torch.autograd.grad(
            (alone[0] * away[b, :m]).sum(), [*model.parameters()], allow_unused=True
        )
        for total, gradient in zip(sums, found, strict=True):
            total += 0 if gradient is None else gradient
    for one, other, total in zip(of_batch, of_packed, sums, strict=True):
        torch.testing.assert_close(one, total, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(other, total, rtol=1e-9, atol=1e-10)


@RIVALS
def test_what_fills_a_pass_changes_neither_loss_nor_gradients(changes: dict[str, Any]) -> None:
    filling_changes_nothing(made(changes))


# --- step by step --------------------------------------------------------------------------------


@RIVALS
def test_steps_are_the_whole_whichever_hypotheses_go_on(changes: dict[str, Any]) -> None:
    """Hypotheses that swap places, die out and go on from one another; sentences that end: each
    step says what a pass over the hypothesis's own tokens says."""
    model = made(changes).eval()
    steps_are_whole_passes(model, steps=14, ends={6: 1, 11: 0})


@RIVALS
def test_a_beam_of_one_follows_the_best_token(changes: dict[str, Any]) -> None:
    """In inference mode, as translating is."""
    model = made(changes, seed=3).eval()
    source = padded([6, 3, 9])
    with torch.inference_mode():
        found = beam.search(model, source, beam=1, alpha=0.0, max_extra_tokens=6, early_stop=False)
        for row, best in zip(source, found, strict=True):
            alone, words = row[row != PAD][None], [BOS]
            while len(words) - 1 < alone.size(1) - 1 + 6 and words[-1] != EOS:
                says = model(alone, torch.tensor([words]))[0, -1]
                says[[PAD, BOS]] = -torch.inf
                words.append(int(says.argmax()))
            ends = [(h.score, h.pieces) for h in best]
            assert words[1 : len(ends[0][1]) + 1] == ends[0][1] or words[-1] != EOS


# --- what it costs -------------------------------------------------------------------------------


def counting() -> flop_counter.FlopCounterMode:
    """With the products that add to what is there, which it would leave out."""
    aten: Any = torch.ops.aten

    def product(into: Any, a: Any, b: Any, **others: Any) -> int:
        return 2 * int(np.prod(a)) * int(b[-1])

    more = {aten.addmm_: product, aten.baddbmm_: product}
    return flop_counter.FlopCounterMode(display=False, custom_mapping=more)


def written_out(layer: Any, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """`lstm.run` by plain products: of fused kernels a counter sees nothing."""
    width = layer.hidden_size
    output, cell = (s[0] for s in state) if state else (x.new_zeros(len(x), width),) * 2
    outputs = []
    for i in range(x.size(1)):
        gates = F.linear(x[:, i], layer.weight_ih_l0, layer.bias_ih_l0)
        gates = gates + F.linear(output, layer.weight_hh_l0, layer.bias_hh_l0)
        enter, forget, new, leave = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        output = leave.sigmoid() * cell.tanh()
        outputs.append(output)
    return torch.stack(outputs, dim=1), (output[None], cell[None])


@pytest.mark.parametrize(("n", "m"), [(7, 5), (4, 12)])
@RIVALS
def test_formulas_are_what_is_counted(
    changes: dict[str, Any], n: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lstm, "run", written_out)
    model = made(changes).train()
    source, target = padded([n] * 3), padded([m] * 3)
    with counting() as counter:
        out = model(source, target)
    lengths = np.full(3, n), np.full(3, m)
    assert counter.get_total_flops() == flops.forward_flops(model.config, VOCABULARY, *lengths)
    assert flops.forward_flops(model.config, VOCABULARY, *lengths, lengths) == (
        counter.get_total_flops()
    )
    with counting() as backward:
        out.sum().backward()
    twice = 2 * counter.get_total_flops()
    # The gradient of what comes first, such as an LSTM's state of zeros, nobody needs.
    assert 0.9 * twice <= backward.get_total_flops() <= twice
    assert flops.training_flops(model.config, VOCABULARY, *lengths) == 1.5 * twice


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "transformer", "d_ff": 24, "heads": 2, "d_k": 8, "d_v": 8, "layers": 2,
         "attention": "scaled_dot_product", "norm": "post", "attention_dropout": 0.0,
         "feed_forward_dropout": 0.0, "positions": "sinusoidal"},
        *({"architecture": name, "layers": 2}
          for name in ("recurrent", "convolutional", "bytenet")),
    ],
    ids=lambda changes: changes["architecture"],
)  # fmt: skip
def test_a_target_may_have_a_vocabulary_of_its_own(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns are computed and counted, and not those of the source; `build` has compared the
    number of parameters with the formula."""
    monkeypatch.setattr(lstm, "run", written_out)
    own = {"tie_embeddings": False, "target_symbols": 9}
    model, shared = made(changes | own).train(), made(changes | {"tie_embeddings": False})
    source, target = padded([7] * 3), padded([5] * 3, 9)
    with counting() as counter:
        logits = model(source, target)
    assert logits.shape == (3, 5, 9)
    assert model.target_embedding.num_embeddings == 9
    assert model.source_embedding.num_embeddings == VOCABULARY
    lengths = np.full(3, 7), np.full(3, 5)
    assert counter.get_total_flops() == flops.forward_flops(model.config, VOCABULARY, *lengths)
    less = sum(p.numel() for p in shared.parameters()) - sum(p.numel() for p in model.parameters())
    columns = 2 * 16 + (changes["architecture"] == "convolutional")
    assert less == (VOCABULARY - 9) * columns


@RIVALS
def test_padding_is_counted_where_it_is_computed(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch as training computes it, its widths beside its lengths."""
    monkeypatch.setattr(lstm, "run", written_out)

    model = made(changes).train()
    n, m = [9, 3, 14], [4, 11, 7]
    source, target = padded(n), padded(m)
    with counting() as counter:
        model(source, target, (Packing.of(source), Packing.of(target)))
    widths = np.full(3, max(n)), np.full(3, max(m))
    found = flops.forward_flops(model.config, VOCABULARY, np.array(n), np.array(m), widths)
    assert counter.get_total_flops() == found
    assert found >= flops.forward_flops(model.config, VOCABULARY, np.array(n), np.array(m))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@RIVALS
def test_memory_is_what_the_backward_pass_keeps(changes: dict[str, Any], precision: Any) -> None:
    """Within a fifth, of sizes at which a sentence's own numbers are not the most."""

    config = section(changes | {"d_model": 64, "dropout": 0.1})
    model, n, m = build(config, VOCABULARY).train(), 20, 24
    source, target = padded([n] * 16), padded([m] * 16)

    def forward() -> None:
        packings = Packing.of(source), Packing.of(target)
        model(source, target, packings, lambda states, weight: F.linear(states, weight).sum())

    size = 2 if precision == "bf16" else 4
    given = flops.kept_bytes(config, (n, m), size, False)
    expected = 16 * (n * given[0] + m * given[1])
    counted = saved_bytes(forward, precision, none_of(model))
    assert expected == pytest.approx(counted, rel=0.2)


# --- training ------------------------------------------------------------------------------------


def gradients_in(precision: Any, changes: dict[str, Any]) -> list[Tensor]:
    torch.manual_seed(5)
    model = build(section(changes), VOCABULARY).train()
    target = padded([4, 20, 7])
    data = Batch(padded([21, 9, 3]), target.roll(1, 1), target)
    data.target_in[target == PAD] = PAD
    losses = step.accumulate(
        model, [data], update_target_tokens=31, smoothing=0.1, world_size=1,
        precision=precision, device=CPU,
    )  # fmt: skip
    return [*losses, *(p.grad for p in model.parameters() if p.grad is not None)]


@RIVALS
def test_bf16_rounds_and_the_same_seed_repeats(changes: dict[str, Any]) -> None:
    exact, rounded, again = (
        gradients_in(precision, changes) for precision in ("float32", "bf16", "bf16")
    )
    assert all(torch.equal(a, b) for a, b in zip(rounded, again, strict=True))
    assert all(gradient.dtype == torch.float32 for gradient in rounded)
    difference = torch.cat([(a - b).flatten() for a, b in zip(exact, rounded, strict=True)])
    whole = torch.cat([a.flatten() for a in exact])
    assert 0 < difference.norm() / whole.norm() < 0.1


@RIVALS
def test_dropout_is_only_in_training(changes: dict[str, Any]) -> None:
    model = made(changes | {"dropout": 0.3})
    source, target = padded([6, 3]), padded([4, 5])
    model.train()
    assert not torch.equal(model(source, target), model(source, target))
    model.eval()
    assert torch.equal(model(source, target), model(source, target))


@pytest.mark.thorough  # how far it sees is in test_bytenet.py, position by position
@pytest.mark.parametrize(("dilations", "reaches"), [([1, 2, 4, 8, 16], True), ([1], False)])
def test_who_sees_too_little_cannot_reverse_a_sentence(dilations: list[int], reaches: bool) -> None:
    """Of 20 tokens the first one out is the last one in. ByteNet's output t reads what the encoder
    has at t, which sees as far as its dilations add up: 31 tokens to each side, or 5."""
    length, symbols, batch, steps = 20, 4, 24, 400
    torch.manual_seed(0)
    changes = {"architecture": "bytenet", "layers": 5, "dilations": dilations, "unfolding": 1.0}
    model = build(section(changes | {"d_model": 64, "tie_embeddings": False}), 4 + symbols)

    def sentences(count: int) -> tuple[Tensor, Tensor, Tensor]:
        words = torch.randint(4, 4 + symbols, (count, length))
        target = words.flip(1)
        ends = torch.full((count, 1), EOS), torch.full((count, 1), BOS)
        return torch.cat((words, ends[0]), 1), torch.cat((ends[1], target[:, :-1]), 1), target

    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for number in range(steps):
        source, target_in, target = sentences(batch)
        loss = F.cross_entropy(model(source, target_in).flatten(0, 1), target.flatten())
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, number / 50) * (1 - number / steps)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    source, target_in, target = sentences(500)
    with torch.no_grad():
        right = (model(source, target_in).argmax(-1) == target).double().mean(dim=0)
    outer = torch.cat((right[:3], right[-3:]))
    assert (outer > 0.8).all() if reaches else (outer < 0.4).all()  # 0.25 by chance
    assert right[length // 2 - 1 : length // 2 + 1].min() > 0.4  # near the middle both learn


# --- where it is named ---------------------------------------------------------------------------


@RIVALS
def test_attention_is_shown_and_changes_nothing(changes: dict[str, Any]) -> None:
    model = made(changes).eval()
    source, target = padded([7, 5]), padded([4, 6])
    before = model(source, target)
    for weights in model.attention_weights(source, target).values():
        assert weights.shape == (2, 1, 6, 7)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 6, dtype=weights.dtype))
        assert not weights[1, :, :, 5:].any()
    assert torch.equal(model(source, target), before)
    assert not model.training


@RIVALS
def test_the_rest_of_the_program_takes_it(changes: dict[str, Any], tmp_path: Any) -> None:
    """Written and read again, an identity of its own, refused by what cannot have it."""
    base = presets.load("phrasebook").config
    dotted = {f"model.{key}": value for key, value in changes.items()}
    config = configuration.with_changes(base, dotted)
    assert config.model.d_model == base.model.d_model  # what both have stays
    text = configuration.dump(config)
    assert configuration.parse(text) == config
    assert configuration.dump(configuration.parse(text)) == text
    named = configuration.identity(config, "model")["model.architecture"]
    assert named.startswith(f"{changes['architecture']} ")
    (code,) = configuration.code_of_kinds(config, "model")
    assert code.endswith(f"architecture.{changes['architecture']}")
    model: Architecture = build(config.model, 50)
    with pytest.raises(UserError, match=r"CTranslate2 has no model\.architecture"):
        ctranslate.export(model, tmp_path / "exported")
    assert all(isinstance(block, nn.Module) for block in model.blocks())
    with pytest.raises(UserError, match=r"model.heads is no key of model.architecture \w+, whose"):
        configuration.with_changes(base, dotted | {"model.heads": 2})
    with pytest.raises(UserError, match=r"unknown key model.layer, did you mean model.layers\?"):
        configuration.with_changes(base, dotted | {"model.layer": 2})


@pytest.mark.parametrize(
    ("name", "millions", "share"),
    [
        ("wmt14-en-de-recurrent", 64.6, 0.001),
        # 64.0 without positions, and gains and biases of weight normalisation.
        ("wmt14-en-de-convolutional", 64.0 + 1.05 + 0.08, 0.001),
        ("wmt14-en-de-gnmt", 280.8, 0.001),
        # fairseq's fconv_wmt_en_de at 40 000 types, without positions.
        ("wmt14-en-de-convs2s-released", 208.0 + 2 * 1024 * 768 / 1e6, 0.002),
    ],
)
def test_presets_are_as_large_as_what_they_name(name: str, millions: float, share: float) -> None:
    config = presets.load(name).config
    count = flops.parameter_count(config.model, config.vocabulary.size)
    assert count / 1e6 == pytest.approx(millions, rel=share)
