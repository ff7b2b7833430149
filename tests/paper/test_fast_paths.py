"""What makes an update fast changes nothing that it computes: each against its plain form."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.decode.continuations import continuations
from seq2sweep.model import attention, products
from seq2sweep.model.architecture import Architecture, transformer
from seq2sweep.model.architecture.convolutional import Normalised
from seq2sweep.model.attention import MultiHeadAttention, additive
from seq2sweep.model.dropout import dropout
from seq2sweep.model.packing import Packing
from seq2sweep.model.products import Linear, laid_out, linear
from seq2sweep.planning import speed
from seq2sweep.train import loss as losses
from seq2sweep.train import step
from seq2sweep.train.allocator import PROCESS_ENVIRONMENT, keep_memory
from seq2sweep.train.loss import projected_cross_entropy, smoothed_cross_entropy
from seq2sweep.train.updates import filled

from .models import (
    FEED_FORWARDS,
    KINDS,
    MIXERS,
    NORM_KINDS,
    NORMS,
    POSITIONS,
    VOCABULARY,
    fused_calls,
    padded,
    randomised,
    small,
)

CPU = torch.device("cpu")


def batch() -> Batch:
    """Sentences of many lengths on both sides, one of them blank to the loss."""
    torch.manual_seed(3)
    target_out = padded([4, 1, 7, 5])
    target_out[3] = PAD
    return Batch(padded([5, 9, 1, 3]), padded([4, 1, 7, 5]), target_out)


def gradients(model: Architecture) -> list[Tensor]:
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad.clone())
        parameter.grad = None
    return found


# --- padding that is not computed ----------------------------------------------------------------


def test_what_is_padded_again_is_as_it_was() -> None:
    pieces = padded([3, 1, 4])
    packing = Packing.of(pieces)
    x = torch.randn(3, 4, 5)
    packed = packing.pack(x)
    real = pieces.ne(PAD)
    assert torch.equal(packed, x[real])
    assert torch.equal(packing.pad(packed), x * real.unsqueeze(-1))
    assert packing.columns().tolist() == [0, 1, 2, 0, 0, 1, 2, 3]


def test_gradients_of_packing_are_those_of_finite_differences() -> None:
    packing = Packing.of(padded([3, 1, 2]))
    x = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(packing.pack, (x,))
    assert torch.autograd.gradcheck(packing.pad, (rows,))


@pytest.mark.usefixtures("either_attention")
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", [True, False])
def test_an_update_is_that_of_padded_logits(
    kind: str, norm: str, positions: str, tie: bool
) -> None:
    is_an_update_of_padded_logits(
        {"attention": kind, "norm": norm, "positions": positions, "tie_embeddings": tie}
    )


@pytest.mark.usefixtures("either_attention")
@pytest.mark.parametrize("feed_forward", FEED_FORWARDS)
@pytest.mark.parametrize("norm_kind", NORM_KINDS)
def test_an_update_of_other_parts_is_that_of_padded_logits(
    feed_forward: str, norm_kind: str
) -> None:
    is_an_update_of_padded_logits({"feed_forward": feed_forward, "norm_kind": norm_kind})


@pytest.mark.usefixtures("either_attention")
@pytest.mark.parametrize("side", ["encoder_mixer", "decoder_mixer"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_an_update_of_other_mixers_is_that_of_padded_logits(mixer: str, side: str) -> None:
    is_an_update_of_padded_logits({side: mixer, "mixer_neighbourhood": 3})


@pytest.mark.usefixtures("either_attention")
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_fills_a_pass_changes_neither_loss_nor_gradients(kind: str, mixer: str) -> None:
    changes = {"attention": kind, "encoder_mixer": mixer, "decoder_mixer": mixer}
    model = randomised(small(dropout=0.0, mixer_neighbourhood=3, **changes)).double()
    filling_changes_nothing(model)


def filling_changes_nothing(model: Architecture) -> None:
    """An update of a batch, and of the batch with blank sentences behind it."""
    found = []
    for data in (batch(), filled(batch(), 32)):
        sums = step.sums_of(model, data, 0.1, CPU)
        sums[0].backward()
        found.append([*sums, *gradients(model)])
    assert len(data.source) > len(batch().source)
    for filling, plain in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(filling, plain, rtol=1e-12, atol=1e-13)


def is_an_update_of_padded_logits(changes: dict[str, object]) -> None:
    model, data = randomised(small(dropout=0.0, **changes)).double(), batch()
    plain = smoothed_cross_entropy(model(data.source, data.target_in), data.target_out, 0.1)
    (plain[0] / 7).backward()
    expected = gradients(model)
    fast = step.sums_of(model, data, 0.1, CPU)
    (fast[0] / 7).backward()
    for mine, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=0)
    for mine, other in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_rows_come_out_in_the_order_of_the_pieces() -> None:
    model, data = randomised(small()).eval(), batch()
    packings = Packing.of(data.source), Packing.of(data.target_in)
    whole = model(data.source, data.target_in)[data.target_in.ne(PAD)]
    torch.testing.assert_close(model(data.source, data.target_in, packings), whole)


# --- attention of short sentences ----------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["scaled_dot_product", "dot_product"])
def test_attention_of_short_sentences_is_that_of_pytorchs_kernel(
    kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With masks of either form, gradients included, as many sentences need it."""
    module = MultiHeadAttention(16, 2, 5, 7, kind)  # type: ignore[arg-type]
    x = torch.randn(3, 9, 16, requires_grad=True)
    allowed = None if causal else padded([9, 1, 4]).ne(PAD)[:, None, None]
    away = torch.randn(3, 9, 16)
    found = []
    masks = [allowed, allowed] if allowed is None else [allowed, additive(allowed, x.dtype)]
    for longest, mask in [(0, masks[0]), (9 * 9, masks[0]), (9 * 9, masks[1])]:
        monkeypatch.setattr(attention, "FEW_SCORES", longest)
        with fused_calls() as calls:
            out = module(x, mask, causal)
        assert len(calls) == (longest == 0)
        found.append((out, *torch.autograd.grad((out * away).sum(), (x, *module.parameters()))))
    for other in found[1:]:
        for mine, kernels in zip(other, found[0], strict=True):
            torch.testing.assert_close(mine, kernels, rtol=1e-4, atol=1e-6)


# --- the best continuations without a sort --------------------------------------------------------


@pytest.mark.parametrize("count", [1, 8, 40])
@pytest.mark.parametrize(
    ("size", "beam"), [(5, 4), (64, 4), (8 * 64, 4), (20 * 64 + 7, 4), (3 * 64 + 5, 200)]
)
def test_the_best_continuations_are_those_of_a_sort(size: int, beam: int, count: int) -> None:
    """From large vocabularies, of which blocks are looked at, and small ones."""
    torch.manual_seed(size)
    logits = 3 * torch.randn(6, beam, size, dtype=torch.float64)
    logits[1, -1, -1] += 60  # the last piece of the last hypothesis, where no block is
    logits[2, 1, :] = logits[2, 1, 0] - 5  # all the same
    logits[3, :, PAD] += 60  # what is never said still has its share of the probability
    before = -torch.rand(6, beam, dtype=torch.float64)
    before[0, 2], before[1, -1] = -torch.inf, 0.0
    totals = before[..., None] + logits.log_softmax(dim=-1)
    totals[..., [PAD, BOS]] = -torch.inf
    expected = totals.flatten(1).sort(dim=1, descending=True).values[:, :count]
    scores, rows, pieces = continuations(logits, before, count)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=0)
    at = rows * size + pieces
    torch.testing.assert_close(totals.flatten(1).gather(1, at), scores, rtol=1e-9, atol=0)
    assert all(len(set(places)) == len(places) for places in at.tolist())


# --- logits that are never all there -------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "block"), [(1, 1), (3, 2), (5, 2), (100, 3), (100, 100)])
def test_loss_of_states_is_that_of_their_logits(
    rows: int, block: int, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(losses.CHUNK, True, rows * 11)
    monkeypatch.setitem(losses.BLOCK, True, block * 11)
    torch.manual_seed(0)
    weight = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    states = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1, 2, PAD, 5, 10, PAD, 7, 3])

    def found(sums: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [*sums, *torch.autograd.grad(3 * sums[0], (states, weight))]

    fast = found(projected_cross_entropy(states, weight, target, smoothing))
    plain = found(smoothed_cross_entropy(F.linear(states, weight), target, smoothing))
    for mine, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-14)
    assert torch.autograd.gradcheck(
        lambda s, w: projected_cross_entropy(s, w, target, smoothing)[0], (states, weight)
    )


def test_products_are_in_the_type_of_autocast_and_sums_in_float32() -> None:
    torch.manual_seed(0)
    states = torch.randn(40, 16, requires_grad=True)
    weight = torch.randn(90, 16, requires_grad=True)
    target = torch.randint(1, 90, (40,))

    def found(precision: str) -> list[Tensor]:
        with step.autocast(precision, CPU):  # type: ignore[arg-type]
            sums = projected_cross_entropy(states, weight, target, 0.1)
        return [*sums, *torch.autograd.grad(sums[0], (states, weight))]

    narrow, wide = found("bf16"), found("float32")
    for mine, other in zip(narrow, wide, strict=True):
        assert mine.dtype == torch.float32
        assert 0 < (mine - other).norm() / other.norm() < 0.01


def test_without_gradients_none_are_made() -> None:
    states, weight = torch.randn(4, 3), torch.randn(9, 3, requires_grad=True)
    with torch.no_grad():
        loss, _ = projected_cross_entropy(states, weight, torch.tensor([1, 2, 3, 4]), 0.1)
    assert not loss.requires_grad


# --- products by oneDNN --------------------------------------------------------------------------

needs_onednn = pytest.mark.skipif(
    torch.float32 not in products._LAID_OUT, reason="this PyTorch has no such products of oneDNN"
)


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is faster, for small products too."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "LARGE", 1)


@needs_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 2, 4), (1,)])
@pytest.mark.parametrize(("inner", "outer"), [(5, 12), (12, 5), (16, 16)])
def test_products_by_onednn_have_the_values_and_gradients_of_float64(
    inner: int, outer: int, shape: tuple[int, ...]
) -> None:
    """Of some rows of a matrix, of inputs in any layout; what comes out may change in place."""
    torch.manual_seed(1)
    exact = [
        torch.randn(*shape, inner, dtype=torch.float64).transpose(0, -2).requires_grad_(),
        torch.randn(outer + 3, inner, dtype=torch.float64, requires_grad=True),
        torch.randn(outer, dtype=torch.float64, requires_grad=True),
    ]
    narrow = [tensor.detach().float().requires_grad_() for tensor in exact]

    def found(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        out = torch.relu_(linear(x, weight, bias, slice(2, outer + 2)))
        seen = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        return [out, *torch.autograd.grad((out * seen).sum(), (x, weight, bias))]

    assert "OneDNN" in str(linear(narrow[0].flatten(0, -2), narrow[1]).grad_fn)
    for mine, other in zip(found(*narrow), found(*exact), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_only_what_has_gradients_gets_them_by_onednn() -> None:
    layer, x = Linear(3, 4, bias=False), torch.randn(5, 3)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=0).expand(4, 3))
    layer.requires_grad_(False)
    (gradient,) = torch.autograd.grad(layer(x.requires_grad_()).sum(), x)
    torch.testing.assert_close(gradient, layer.weight.sum(dim=0).expand(5, 3))


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_onednn_gets_no_weight_with_gaps_between_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one its products would be a hundred times slower."""
    x, weight = torch.randn(6, 9)[:, 2:7], torch.randn(8, 9)[:, :5]
    x.requires_grad_()
    weight.requires_grad_()
    product = mock.Mock(wraps=torch.ops.mkldnn._linear_pointwise)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
    out = linear(x, weight)
    torch.autograd.grad(out, (x, weight), torch.randn(6, 20)[:, 4:12])
    given = [call.args[1] for call in product.call_args_list]
    assert len(given) == 3
    assert all(each.is_contiguous() or each.T.is_contiguous() for each in given)


@needs_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("pieces", [11, 3])
def test_loss_by_onednn_is_that_of_float64(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(losses.CHUNK, True, 3 * pieces)
    torch.manual_seed(0)
    target = torch.tensor([1, 2, PAD, 2, 1, PAD, 2, 1])
    weight = torch.randn(pieces, 4, dtype=torch.float64, requires_grad=True)
    states = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)

    def found(*of: Tensor) -> list[Tensor]:
        sums = projected_cross_entropy(*of, target, 0.1)
        return [*sums, *torch.autograd.grad(3 * sums[0], of)]

    narrow = [tensor.detach().float().requires_grad_() for tensor in (states, weight)]
    for mine, other in zip(found(*narrow), found(states, weight), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=1e-6)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_products_by_onednn_have_the_same_bits_whatever_was_computed_before() -> None:
    """A resume is exact: no kernel is chosen by what happened to be in a cache."""
    torch.manual_seed(2)
    x, weight = torch.randn(300, 64, requires_grad=True), torch.randn(130, 64, requires_grad=True)

    def found() -> list[Tensor]:
        out = linear(x, weight)
        return [out, *torch.autograd.grad(out.square().sum(), (x, weight))]

    first = found()
    for rows in range(1, 130):
        linear(x[:rows], weight[rows:]).sum().backward()
    for mine, before in zip(found(), first, strict=True):
        assert torch.equal(mine, before)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_pytorchs_flop_counter_misses_no_product() -> None:
    x, weight = torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        linear(x.requires_grad_(), weight).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * (2 * 3 * 4 * 5)
    states, target = torch.randn(6, 4, requires_grad=True), torch.tensor([1, 2, 3, 4, 1, 2])
    with FlopCounterMode(display=False) as counter:
        projected_cross_entropy(states, weight, target, 0.1)
    assert counter.get_total_flops() == 3 * 2 * (6 * 4 * 5)


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_a_product_by_onednn_keeps_what_a_gradient_needs_alone() -> None:
    """So that where weights are frozen no input is kept, and it may change, as with F.linear."""
    x, weight = torch.randn(5, 3), torch.randn(4, 3)
    for needed in (x, weight):
        out = linear(x.requires_grad_(needed is x), weight.requires_grad_(needed is weight))
        with torch.no_grad():
            needed += 1
        out.sum().backward()
        assert needed.grad is not None


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_products_with_normalised_weights_are_onednns_and_leave_nothing_in_a_search() -> None:
    layer, x = Normalised(3, 4, 1.0), torch.randn(5, 3)
    assert "OneDNN" in str(layer(x).grad_fn)
    kept: dict[object, object] = {}
    with torch.inference_mode(), laid_out(kept):
        layer(x)
        assert not kept
        layer(x, {layer: layer.fixed()})
        assert kept


@needs_onednn
@pytest.mark.usefixtures("onednn")
def test_a_product_of_one_row_without_a_dimension_is_as_by_pytorch() -> None:
    x, weight = torch.randn(3), torch.randn(4, 3, requires_grad=True)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


def test_the_plan_tries_a_product_that_onednn_would_make() -> None:
    assert speed.PRODUCT_WIDTH**3 >= products.LARGE


@needs_onednn
def test_whether_a_product_is_large_is_asked_of_the_rows_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "LARGE", 5 * 3 * 4)
    x, weight = torch.randn(5, 3), torch.randn(8, 3, requires_grad=True)
    assert "OneDNN" in str(linear(x, weight, rows=slice(2, 6)).grad_fn)
    assert "OneDNN" not in str(linear(x, weight, rows=slice(2, 5)).grad_fn)


@needs_onednn
@pytest.mark.parametrize(
    ("cpu", "avx512", "faster"),
    [
        ("AMD EPYC", True, True),
        ("AMD EPYC", False, False),
        ("Intel Xeon Gold", True, False),
        ("", True, False),
        (None, True, False),
    ],
)
def test_onednn_serves_where_mkl_has_no_avx512(
    cpu: str | None, avx512: bool, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = {"cpu_name": cpu, "avx512_f": avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(products, "onednn_is_faster", products.onednn_is_faster.__wrapped__)
    monkeypatch.setattr(products, "LARGE", 60)
    x, weight = torch.randn(4, 3), torch.randn(5, 3)
    assert products.by_onednn(x, weight) == faster
    assert not products.by_onednn(x[1:], weight)
    assert not products.by_onednn(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not products.by_onednn(x, weight)


def test_no_process_imports_triton_before_it_needs_it() -> None:
    """At the end of a process Triton says what leaked, behind the one line of a user's mistake."""
    code = """
import sys

class Asked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("triton"):
            print(name)

sys.meta_path.insert(0, Asked())
import seq2sweep.cluster.train_worker, seq2sweep.decode.streaming, seq2sweep.stages.training
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


# --- dropout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype, requires_grad=True)
    out = dropout(x, share, training=True)
    assert out.dtype == dtype
    dropped = out.eq(0)
    # Five standard deviations of so many throws.
    count = x.numel()
    spread = 5 * (share * (1 - share) / count) ** 0.5
    assert abs(float(dropped.float().mean()) - share) < spread + 1 / 65536
    for rows in (dropped.float().mean(0), dropped.float().mean(1)):
        assert abs(rows - share).max() < 6 * (share * (1 - share) / 999) ** 0.5
    kept = out.detach()[~dropped]
    assert kept.min() == kept.max()
    assert float(kept[0]) == pytest.approx(1 / (1 - share), rel=0.004)
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())


def test_neighbours_are_dropped_independently() -> None:
    """Four of them share one random number."""
    torch.manual_seed(1)
    dropped = dropout(torch.ones(4000, 100), 0.5, training=True).eq(0).float() - 0.5
    for distance in (1, 2, 3, 4, 100):
        flat = dropped.flatten()
        correlation = float((flat[:-distance] * flat[distance:]).mean()) * 4
        assert abs(correlation) < 5 / len(flat) ** 0.5


def test_dropout_follows_the_seed_and_ends_with_training() -> None:
    x = torch.randn(30, 30)

    def drawn() -> Tensor:
        torch.manual_seed(5)
        return dropout(x, 0.2, training=True)

    assert torch.equal(drawn(), drawn())
    assert not torch.equal(drawn(), dropout(x, 0.2, training=True))
    assert dropout(x, 0.2, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    assert not dropout(x, 1.0, training=True).any()


# --- memory --------------------------------------------------------------------------------------

FAULTS = """
import os, resource, torch
from seq2sweep.train.allocator import keep_memory
torch.set_num_threads(1)
def use():
    for size in (300_000, 8_000_000, 90_000_000):
        torch.ones(size // 4)
for keep in (True, False):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        continue
    took_effect = keep_memory() if keep else None
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        use()
    print(took_effect, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc that is told")
def test_memory_that_was_freed_is_used_again() -> None:
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took_effect, kept, _, given_back = done.stdout.split()
    if took_effect == "False":
        pytest.skip("the C library is not glibc")
    assert int(given_back) > 20 * 90_000_000 / 4096 / 4  # pages, even if some are larger
    assert int(kept) < int(given_back) / 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc that is told")
def test_memory_is_kept_however_much_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """mallopt(3): a threshold of -1 is none, and the greatest is 2 GiB. Whether the heap is trimmed
    there depends on where in the address space it lies, so that what is asked for is looked at."""
    asked: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        asked[option] = value
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert keep_memory()
    assert asked[-1] == -1


GROWTH = """
import threading, sys, torch
from seq2sweep.train.allocator import keep_memory
keep_memory()
torch.set_num_threads(1)
def rss():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 // 10**6
def training(first):
    weights = torch.randn(16, 16, dtype=torch.bfloat16)
    held = torch.ones(3_000_000)  # as weights and activations are, for the thread's time
    for length in range(first, first + 500):  # more than a worker's caches hold
        torch.randn(length, 16, dtype=torch.bfloat16) @ weights
training(1)
before = rss()
for number in range(1, 6):
    thread = threading.Thread(target=training, args=(500 * number,))
    thread.start()
    thread.join()
print(rss() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is read from /proc")
@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bf16"), reason="products in bf16 are emulated"
)
@pytest.mark.parametrize("worker", [False, True])
def test_new_shapes_and_new_threads_take_no_more_memory(worker: bool) -> None:
    """Whether all is set from the start, or by `keep_memory` alone."""
    command = [sys.executable, "-c", GROWTH]
    environment = os.environ | (PROCESS_ENVIRONMENT if worker else {})
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) < 50  # megabytes


SUMS = """
import ctypes, torch, torch.distributed as dist
from seq2sweep.train.distributed import all_reduce
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
heap = ctypes.CDLL(None).mallinfo2
heap.restype = Info
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def sums(count):
    for _ in range(count):
        all_reduce(torch.zeros(4))
    return heap().h  # bytes in use
print(-sums(200) + sums(1600))
dist.destroy_process_group()
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc, or an old one"
)
def test_sums_over_workers_leave_nothing_behind() -> None:
    environment = os.environ | PROCESS_ENVIRONMENT
    command = [sys.executable, "-c", SUMS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) < 100_000


# --- decoding: weights laid out, pieces of no hypothesis dropped ----------------------------------


def test_products_with_weights_laid_out_are_those_without() -> None:
    torch.manual_seed(5)
    weight, bias = torch.randn(24, 16), torch.randn(24)
    for x in (torch.randn(3, 5, 16), torch.randn(5, 3, 16).transpose(0, 1), torch.randn(0, 16)):
        with torch.inference_mode(), laid_out():
            for rows in (slice(None), slice(8), slice(8, None), slice(8)):
                expected = F.linear(x, weight[rows], bias[rows])
                found = linear(x, weight, bias[rows].contiguous(), rows)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
                assert found.shape == expected.shape


def test_weights_that_change_between_searches_are_laid_out_anew() -> None:
    weight, x = torch.randn(4, 3), torch.randn(2, 3)
    for _ in range(2):
        with torch.inference_mode(), laid_out():
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
        weight.add_(1.0)
    x.requires_grad_()
    with laid_out():  # of no use, and no harm, where gradients are
        (gradient,) = torch.autograd.grad(linear(x, weight).sum(), x)
    torch.testing.assert_close(gradient, weight.sum(dim=0).expand(2, 3))


def test_pieces_of_no_hypothesis_are_dropped_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hypotheses that all go on from one of them, step after step: half of what is held goes."""
    model = randomised(small(dropout=0.0)).double().eval()
    source, said = padded([5, 3]), torch.randint(4, VOCABULARY, (2, 3, 20))
    parents = torch.randint(0, 3, (20, 2, 3))
    parents[7:] = parents[7:, :, :1]
    logits, held = [], []
    for often in (1000, 4):
        monkeypatch.setattr(transformer, "STEPS_TO_DROP", often)
        with torch.no_grad():
            cache = model.start(source)
            cache.select(torch.arange(2).repeat_interleave(3))
            found = []
            for i in range(20):
                found.append(model.step(said[..., i], cache))
                cache.select((torch.arange(2)[:, None] * 3 + parents[i]).flatten())
        logits.append(torch.stack(found))
        held.append(cache.layers[0].mixer.used)
    assert held[0] == 60
    assert held[1] < 35
    torch.testing.assert_close(*logits, rtol=1e-10, atol=1e-12)
