"""ByteNet against its definition, in training and step by step, with its cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep.config import BytenetConfig
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode import beam
from seq2sweep.model import flops
from seq2sweep.model.architecture.bytenet import Block, Bytenet, unfolded
from seq2sweep.model.building import architecture, build
from seq2sweep.model.packing import Packing
from seq2sweep.train import step
from seq2sweep.train.loss import smoothed_cross_entropy

from ..saved_tensors import none_of, saved_bytes
from .bytenet_equations import array, defined
from .models import VOCABULARY, padded, steps_are_whole_passes

CPU = torch.device("cpu")
SETTINGS: list[dict[str, object]] = [
    {},
    {"kernel": 1, "dilations": (3,)},
    {"kernel": 5, "dilations": (2, 1, 3), "layers": 4},
    {"unfolding": 1.0, "unfolding_extra": 0},
    {"unfolding": 1.1, "unfolding_extra": 4},
    {"unfolding": 2.0, "tie_embeddings": False},
]
EACH = pytest.mark.parametrize("changes", SETTINGS, ids=str)


def small(**changes: object) -> BytenetConfig:
    values: dict[str, object] = {
        "architecture": "bytenet", "layers": 3, "d_model": 12, "kernel": 3, "dilations": (1, 2),
        "dropout": 0.0, "tie_embeddings": True,
    }  # fmt: skip
    return BytenetConfig(**(values | changes))  # type: ignore[arg-type]


def made(seed: int = 0, **changes: object) -> Bytenet:
    """In float64, none of its numbers still at its start."""
    torch.manual_seed(seed)
    model = build(small(**changes), VOCABULARY)
    assert isinstance(model, Bytenet)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.3)
            nn.init.normal_(module.bias, 0.0, 0.3)
    return model.double().eval()


# --- what it computes -----------------------------------------------------------------------------

PAIRS = [(9, 3), (5, 14), (1, 1), (2, 7), (10, 20)]


@EACH
def test_each_pair_of_a_batch_is_as_defined(changes: dict[str, object]) -> None:
    """Translations longer and shorter than the columns, padded and packed."""
    model = made(**changes)
    source, target = padded([n for n, _ in PAIRS]), padded([m for _, m in PAIRS])
    columns, logits = model.encode(source), model(source, target)
    packings = Packing.of(source), Packing.of(target)
    packed = model(source, target, packings)
    assert torch.equal(model.encode(source, packings[0]), columns)
    assert (packed - logits[target != PAD]).abs().max() < 1e-10
    for row, (n, m) in enumerate(PAIRS):
        memory, expected = defined(model, source[row, :n].tolist(), target[row, :m].tolist())
        assert abs(array(logits[row, :m]) - expected).max() < 1e-10
        assert abs(array(columns[row, : len(memory)]) - memory).max() < 1e-10
        assert not columns[row, len(memory) :].any()


@EACH
def test_a_sentence_learns_the_same_alone_in_a_batch_and_packed(changes: dict[str, object]) -> None:
    """Gradients of a batch are the sums of those of its sentences."""
    model = made(**changes)
    source, target = padded([n for n, _ in PAIRS]), padded([m for _, m in PAIRS])
    away = torch.randn(*target.shape, VOCABULARY, dtype=torch.float64)

    def learned(source: Tensor, target: Tensor, away: Tensor, pack: bool) -> list[Tensor]:
        real = target != PAD
        packings = (Packing.of(source), Packing.of(target)) if pack else None
        logits = model(source, target, packings)
        loss = ((logits if pack else logits[real]) * away[real]).sum()
        return list(torch.autograd.grad(loss, [*model.parameters()]))

    alone = [
        learned(source[b : b + 1, :n], target[b : b + 1, :m], away[b : b + 1, :m], pack=False)
        for b, (n, m) in enumerate(PAIRS)
    ]
    for pack in (False, True):
        for found, *parts in zip(learned(source, target, away, pack), *alone, strict=True):
            torch.testing.assert_close(found, sum(parts), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "length", "columns"),
    [(1.2, 0, 5, 6), (1.2, 0, 6, 8), (1.1, 0, 10, 11), (1.1, 3, 11, 16), (1.0, 0, 7, 7),
     (1.15, 0, 100, 115), (10, 50, 0, 50), (1.2, 0, 100_000, 120_000)],
)  # fmt: skip
def test_columns_are_a_times_the_length_rounded_up_plus_b(
    a: float, b: int, length: int, columns: int
) -> None:
    config = small(unfolding=a, unfolding_extra=b)
    assert unfolded(config, length) == columns
    assert unfolded(config, torch.tensor([length])).tolist() == [columns]
    assert unfolded(config, np.array([length], np.int64)).tolist() == [columns]


# --- what an output may depend on ----------------------------------------------------------------


def seen(layers: nn.ModuleList, length: int, d_model: int) -> Tensor:
    """Whether output i depends on input j, [length, length], by exact gradients."""

    def stack(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x, Packing(torch.arange(length), 1, length))
        return x.sum(-1)

    x = torch.randn(length, d_model, dtype=torch.float64)
    found: Tensor = torch.autograd.functional.jacobian(stack, x).ne(0).any(dim=-1)
    return found


@pytest.mark.parametrize(
    ("layers", "kernel", "dilations"),
    [(1, 3, (4,)), (3, 3, (1, 2)), (4, 5, (1, 2, 4)), (2, 1, (5,))],
)
def test_the_receptive_field_is_one_more_than_all_dilations_times_k_minus_one(
    layers: int, kernel: int, dilations: tuple[int, ...]
) -> None:
    model = made(layers=layers, kernel=kernel, dilations=dilations, d_model=24)
    reach = (kernel - 1) * sum(dilations[i % len(dilations)] for i in range(layers))
    length = 2 * reach + 5
    around, before = (
        seen(stack, length, 24)[length // 2].nonzero().flatten() - length // 2
        for stack in (model.encoder, model.decoder)
    )
    assert (int(around.min()), int(around.max())) == (-reach // 2, reach // 2)
    assert (int(before.min()), int(before.max())) == (-reach, 0)


def test_no_token_of_a_translation_sees_a_later_one() -> None:
    model = made(dilations=(2, 3))
    source, target = padded([6]), padded([17])
    before = model(source, target)
    for i in (0, 5, 9, 16):
        changed = target.clone()
        changed[0, i] = (changed[0, i] + 1) % 40 + 4
        after = model(source, changed)
        assert torch.equal(after[0, :i], before[0, :i])
        assert not torch.equal(after[0, i], before[0, i])


def test_position_t_of_the_decoder_sees_column_t_and_none_after() -> None:
    """Of the source it sees what columns up to t do: the field of the encoder around them."""
    model = made(layers=2, dilations=(1, 2), d_model=24)
    reach, n = 3, 30
    source, target = padded([n]), padded([n])
    # Which columns: by gradients.
    columns = model.encode(source).detach()
    model.encode = lambda source: columns  # type: ignore[method-assign, assignment]
    found = torch.autograd.functional.jacobian(
        lambda given: _with_columns(model, given, source, target)[0].sum(-1), columns
    )
    sees = found[:, 0].ne(0).any(dim=-1)
    del model.encode
    width = columns.size(1)
    for t in range(n):
        first = max(0, t - 2 * reach)
        assert sees[t].nonzero().flatten().tolist() == list(range(first, t + 1))
    assert sees.shape == (n, width)
    # And so which source tokens: by changes.
    before = model(source, target)
    for j in (0, 8, 29):
        changed = source.clone()
        changed[0, j] = (changed[0, j] + 1) % 40 + 4
        differs = (model(changed, target) != before).any(dim=-1)[0].nonzero().flatten()
        assert differs.tolist() == list(range(max(0, j - reach), min(n, j + 3 * reach + 1)))


def _with_columns(model: Bytenet, columns: Tensor, source: Tensor, target: Tensor) -> Tensor:
    model.encode = lambda source: columns  # type: ignore[method-assign, assignment]
    found: Tensor = model(source, target)
    return found


def test_padding_is_read_by_nothing_whatever_its_embedding_is() -> None:
    model = made(unfolding=1.5)
    source, target = padded([9, 4]), padded([3, 8])
    before = model(source, target)
    with torch.no_grad():
        model.source_embedding.weight[PAD] += 100.0
        model.target_embedding.weight[PAD] += 100.0
    after = model(source, target)
    real = target != PAD
    # Its own logit does change: the projection has the embeddings' weights.
    assert torch.equal(before[real][:, PAD + 1 :], after[real][:, PAD + 1 :])


# --- step by step --------------------------------------------------------------------------------


@EACH
def test_steps_are_the_whole_whichever_hypotheses_go_on(changes: dict[str, object]) -> None:
    """Hypotheses that swap places, die out and go on from one another; sentences that end; the
    longest goes on beyond its columns, which are the last of all."""
    model = made(**changes)
    steps_are_whole_passes(model, steps=26, ends={6: 2, 14: 0})


def test_a_beam_scores_what_whole_passes_do() -> None:
    """The search lays weights out and drops sentences: each score is that of a pass over it."""
    model = made(seed=3).float()
    with torch.no_grad():
        model.projection.weight[EOS] += 0.2
    source = padded([6, 3, 9, 12])
    found = beam.search(model, source, beam=3, alpha=0.6, max_extra_tokens=6, n_best=3)
    for row, best in zip(source, found, strict=True):
        for hypothesis in best:
            pieces = hypothesis.pieces
            with torch.no_grad():
                said = model(row[None], torch.tensor([[BOS, *pieces[:-1]]]))[0].log_softmax(-1)
            total = float(said[range(len(pieces)), pieces].sum())
            score = total / beam.length_penalty(len(pieces), 0.6)
            assert hypothesis.score == pytest.approx(score, rel=1e-4)


# --- training ------------------------------------------------------------------------------------


def learned_in(precision: Any) -> list[Tensor]:
    model = made(seed=5, d_model=32).float().train()
    target = padded([4, 20, 7])
    data = Batch(padded([21, 9, 3]), target.roll(1, 1), target)
    data.target_in[target == PAD] = PAD
    losses = step.accumulate(
        model, [data], update_target_tokens=31, smoothing=0.1, world_size=1,
        precision=precision, device=CPU,
    )  # fmt: skip
    return [*losses, *(p.grad for p in model.parameters() if p.grad is not None)]


def test_bf16_rounds_and_the_same_seed_repeats() -> None:
    exact, rounded, again = (learned_in(precision) for precision in ("float32", "bf16", "bf16"))
    assert all(torch.equal(a, b) for a, b in zip(rounded, again, strict=True))
    assert all(gradient.dtype == torch.float32 for gradient in rounded)
    assert all(gradient.isfinite().all() for gradient in rounded)
    difference = torch.cat([(a - b).flatten() for a, b in zip(exact, rounded, strict=True)])
    whole = torch.cat([a.flatten() for a in exact])
    assert 0 < difference.norm() / whole.norm() < 0.1


def test_the_stream_is_twice_as_strong_after_many_blocks() -> None:
    torch.manual_seed(0)
    model = build(small(layers=30, d_model=128, dilations=(1, 2, 4, 8, 16)), VOCABULARY)
    x = torch.randn(60, 128)
    with torch.no_grad():
        for layer in model.encoder:  # type: ignore[union-attr]
            x = layer(x, Packing(torch.arange(60), 1, 60))
    assert float(x.var()) == pytest.approx(2.0, rel=0.25)


def test_dropout_is_on_embeddings_and_what_blocks_add() -> None:
    model = made(dropout=0.999, layers=2).train()
    source, target = padded([9]), padded([12])
    layer = model.encoder[0]
    x = torch.randn(30, 12, dtype=torch.float64)
    assert (layer(x, Packing(torch.arange(30), 1, 30)) == x).double().mean() > 0.95
    embedded = model._embed(model.source_embedding, source)
    assert (embedded == 0).double().mean() > 0.9
    assert model(source, target).isfinite().all()


# --- what it costs -------------------------------------------------------------------------------


def test_blocks_of_the_papers_shape_have_the_size_of_the_base_model() -> None:
    """30 + 30 blocks, 324 inside: 7 d^2 of products each."""
    config = small(layers=30, d_model=648, dilations=(1, 2, 4, 8, 16))
    with torch.device("meta"):
        model = build(config, 37_000)
    for stack in (model.encoder, model.decoder):
        assert isinstance(stack, nn.ModuleList)
        products = sum(p.numel() for p in stack.parameters() if p.dim() > 1)
        assert products == 30 * 7 * 324**2 == 22_044_960
    assert len([*model.blocks()]) == 60


@EACH
def test_operations_are_what_is_counted(changes: dict[str, object]) -> None:
    model = made(**changes).train()
    source, target = padded([n for n, _ in PAIRS]), padded([m for _, m in PAIRS])
    packings = Packing.of(source), Packing.of(target)
    lengths = np.array(PAIRS, np.int32).T
    widths = np.full_like(lengths, 20)
    with FlopCounterMode(display=False) as forward:
        logits = model(source, target, packings)
    expected = flops.forward_flops(model.config, VOCABULARY, *lengths, widths=tuple(widths))
    assert forward.get_total_flops() == expected
    assert expected == flops.forward_flops(model.config, VOCABULARY, *lengths)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert forward.get_total_flops() + backward.get_total_flops() == flops.training_flops(
        model.config, VOCABULARY, *lengths
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"dropout": 0.1}, {"unfolding": 2.0, "unfolding_extra": 10, "kernel": 5}],
    ids=str,
)
def test_activations_are_what_the_backward_pass_keeps(
    changes: dict[str, object], precision: Any
) -> None:
    config, pairs, n, m = small(**{"d_model": 64, "layers": 4, **changes}), 16, 40, 48
    torch.manual_seed(0)
    model = build(config, VOCABULARY)
    source, target = padded([n] * pairs), padded([m] * pairs)

    def forward() -> None:
        logits = model(source, target, (Packing.of(source), Packing.of(target)))
        smoothed_cross_entropy(logits[None], target.flatten()[None], 0.1)

    saved = saved_bytes(forward, precision, none_of(model))
    saved -= target.numel() * VOCABULARY * 4  # the probabilities, which are counted with the logits
    saved -= 2 * sum(w.numel() for w in model.parameters()) * (precision == "bf16")
    size = 2 if precision == "bf16" else 4
    of_source, of_target = flops.kept_bytes(config, (n, m), size, gpu=False)
    assert pairs * (n * of_source + m * of_target) == pytest.approx(saved, rel=0.12)


def test_it_is_found_by_its_name_and_has_no_attention_and_no_longest_sentence() -> None:
    assert architecture("bytenet") is Bytenet
    model = made()
    assert model.attention_weights(padded([3]), padded([4])) == {}
    assert model.max_length > 10**9
    assert all(isinstance(part, Block) for part in model.blocks())
