"""Schedule, loss, positions and the scale of attention against numbers computed by hand."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.layers import FIRST_POSITIONS, Positions, sinusoids
from seq2sweep.train.loss import perplexity, smoothed_cross_entropy
from seq2sweep.train.optimizers import learning_rate

from .models import padded, randomised, small

properties = settings(max_examples=50, deadline=None, derandomize=True)

# --- learning rate (equation 3) ------------------------------------------------------------------


def test_schedule_by_hand() -> None:
    assert learning_rate(4000, 512, 4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert learning_rate(1, 512, 4000) == pytest.approx(512**-0.5 / 4000**1.5)
    assert learning_rate(16000, 512, 4000) == pytest.approx(learning_rate(4000, 512, 4000) / 2)
    rates = [learning_rate(step, 512, 4000) for step in range(1, 9000)]
    assert rates.index(max(rates)) + 1 == 4000
    assert learning_rate(7, 64, 10, scale=3.0) == pytest.approx(3 * learning_rate(7, 64, 10))


def test_peaks_of_base_and_big() -> None:
    """1 / (sqrt(512) sqrt(4000)) = 1 / 1431.083506 and 1 / (32 x 63.2455532) = 1 / 2023.857703."""
    assert learning_rate(4000, 512, 4000) == pytest.approx(1 / 1431.083506, rel=1e-9)
    assert learning_rate(4000, 1024, 4000) == pytest.approx(1 / 2023.857703, rel=1e-9)


@properties
@given(
    d_model=st.integers(1, 2048),
    warmup=st.integers(1, 10_000),
    step=st.integers(1, 400_000),
)
def test_it_rises_linearly_and_falls_as_the_inverse_square_root(
    d_model: int, warmup: int, step: int
) -> None:
    peak = learning_rate(warmup, d_model, warmup)
    assert peak == pytest.approx(1 / math.sqrt(d_model * warmup))
    expected = peak * step / warmup if step <= warmup else peak * math.sqrt(warmup / step)
    assert learning_rate(step, d_model, warmup) == pytest.approx(expected, rel=1e-12)


# --- loss (section 5.4) --------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_loss_equals_torch(smoothing: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 11, requires_grad=True)
    target = torch.randint(1, 11, (3, 5))
    target[0, 3:] = PAD
    loss, likelihood = smoothed_cross_entropy(logits, target, smoothing)
    flat = logits.view(-1, 11)
    expected = F.cross_entropy(
        flat, target.view(-1), ignore_index=PAD, reduction="sum", label_smoothing=smoothing
    )
    plain = F.cross_entropy(flat, target.view(-1), ignore_index=PAD, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert likelihood.item() == pytest.approx(plain.item(), rel=1e-5)
    ours = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    theirs = torch.autograd.grad(expected, logits)[0]
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_loss_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)]]])  # probabilities 1/4, 3/4
    loss, likelihood = smoothed_cross_entropy(logits, torch.tensor([[1]]), 0.2)
    assert likelihood.item() == pytest.approx(-math.log(0.75))
    # Even spread over both pieces: the right one weighs 0.9, the other 0.1.
    assert loss.item() == pytest.approx(-0.9 * math.log(0.75) - 0.1 * math.log(0.25))
    assert perplexity(math.log(5.0)) == pytest.approx(5.0)
    assert perplexity(1e6) == math.inf


def test_loss_and_gradient_of_five_pieces_by_hand() -> None:
    """Probabilities 1/10, 2/10, 4/10, 2/10, 1/10; piece 2 is right; 0.1 / 5 for each piece.

    loss = 0.92 ln(10/4) + 2 x 0.02 ln(10/2) + 2 x 0.02 ln 10 = 0.999468.
    """
    logits = torch.tensor([[1.0, 2.0, 4.0, 2.0, 1.0]]).log().requires_grad_()
    loss, likelihood = smoothed_cross_entropy(logits, torch.tensor([2]), 0.1)
    assert likelihood.item() == pytest.approx(0.916291, abs=1e-6)
    assert loss.item() == pytest.approx(0.999468, abs=1e-6)
    loss.backward()
    expected = torch.tensor([[0.08, 0.18, 0.40 - 0.92, 0.18, 0.08]])
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=1e-7)
    # The best there is: the smoothed distribution itself, whose entropy is left.
    best = torch.tensor([[0.02, 0.02, 0.92, 0.02, 0.02]]).log().requires_grad_()
    loss, likelihood = smoothed_cross_entropy(best, torch.tensor([2]), 0.1)
    assert loss.item() == pytest.approx(-0.92 * math.log(0.92) - 0.08 * math.log(0.02), rel=1e-6)
    assert perplexity(likelihood.item()) == pytest.approx(1 / 0.92, rel=1e-6)
    loss.backward()
    assert best.grad is not None
    assert best.grad.abs().max() < 1e-7


def naive_loss(logits: Tensor, target: list[int], smoothing: float) -> tuple[Tensor, Tensor]:
    """-sum_v q(v) log p(v), piece by piece, for logits [N, V] in float64."""
    loss, likelihood = logits.new_zeros(()), logits.new_zeros(())
    size = logits.size(1)
    for row, right in enumerate(target):
        if right == PAD:
            continue
        p = logits[row].exp() / logits[row].exp().sum()
        likelihood = likelihood - p[right].log()
        for v in range(size):
            q = smoothing / size + (1 - smoothing if v == right else 0)
            loss = loss - q * p[v].log()
    return loss, likelihood


@properties
@given(
    seed=st.integers(0, 10_000),
    target=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    smoothing=st.sampled_from([0.0, 0.1, 0.2, 0.5]),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_loss_and_gradient_equal_the_formula(
    seed: int, target: list[int], smoothing: float, spread: float
) -> None:
    torch.manual_seed(seed)
    logits = (spread * torch.randn(len(target), 7)).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    loss, likelihood = smoothed_cross_entropy(logits, torch.tensor(target), smoothing)
    expected, plain = naive_loss(exact, target, smoothing)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    assert likelihood.item() == pytest.approx(plain.item(), rel=1e-5, abs=1e-5)
    (3 * loss).backward()
    theirs = torch.zeros_like(exact)
    if expected.requires_grad:
        theirs = torch.autograd.grad(3 * expected, exact)[0]
    assert logits.grad is not None
    assert (logits.grad - theirs).abs().max() < 2e-6
    for row, right in enumerate(target):
        assert bool(logits.grad[row].any()) == (right != PAD)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_gradient_is_that_of_finite_differences(smoothing: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 6).requires_grad_()
    target = torch.tensor([[1, 5, PAD], [3, PAD, PAD]])
    smoothed_cross_entropy(logits, target, smoothing)[0].backward()
    assert logits.grad is not None
    step = 2.0**-6  # exact in float32; its square and 1e-6 / step bound the error
    for place in range(logits.numel()):
        moved = torch.zeros(logits.numel())
        moved[place] = step
        both = [
            smoothed_cross_entropy(logits.detach() + sign * moved.view(2, 3, 6), target, smoothing)
            for sign in (1, -1)
        ]
        slope = (both[0][0] - both[1][0]).item() / (2 * step)
        assert slope == pytest.approx(logits.grad.flatten()[place].item(), abs=2e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_gives_no_loss_and_exactly_no_gradient(smoothing: float) -> None:
    torch.manual_seed(0)
    logits = (30 * torch.randn(4, 9)).requires_grad_()
    target = torch.tensor([3, PAD, 8, PAD])
    loss, likelihood = smoothed_cross_entropy(logits, target, smoothing)
    loss.backward()
    assert logits.grad is not None
    assert not logits.grad[[1, 3]].any()
    assert logits.grad[[0, 2]].any(-1).all()
    only, plain = smoothed_cross_entropy(logits[[0, 2]], target[[0, 2]], smoothing)
    assert loss.item() == pytest.approx(only.item(), rel=1e-6)
    assert likelihood.item() == pytest.approx(plain.item(), rel=1e-6)

    blank = torch.randn(3, 9, requires_grad=True)
    loss, likelihood = smoothed_cross_entropy(blank, torch.full((3,), PAD), smoothing)
    loss.backward()
    assert loss.item() == likelihood.item() == 0
    assert blank.grad is not None
    assert not blank.grad.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bf16_logits_are_computed_in_float32(smoothing: float) -> None:
    """Their values are those of float32 logits that hold the same numbers."""
    torch.manual_seed(0)
    half = (4 * torch.randn(5, 30)).bfloat16().requires_grad_()
    full = half.detach().float().requires_grad_()
    target = torch.tensor([4, 29, PAD, 1, 7])
    losses = [smoothed_cross_entropy(logits, target, smoothing) for logits in (half, full)]
    for a, b in zip(*losses, strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)
    for loss, _ in losses:
        loss.backward()
    assert half.grad is not None
    assert full.grad is not None
    assert half.grad.dtype == torch.bfloat16
    assert torch.equal(half.grad, full.grad.bfloat16())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("right", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(kind: torch.dtype, right: int, smoothing: float) -> None:
    logits = torch.tensor([[0.0, 1e4, -1e4, 1e4], [-1e30, -1e30, -1e30, 0.0]], dtype=kind)
    logits.requires_grad_()
    loss, likelihood = smoothed_cross_entropy(logits, torch.tensor([right, 3]), smoothing)
    exact = logits.detach().double()
    q = torch.full((2, 4), smoothing / 4, dtype=torch.float64)
    q[0, right] += 1 - smoothing
    q[1, 3] += 1 - smoothing
    expected = -(q * exact.log_softmax(-1)).sum()
    plain = -exact.log_softmax(-1)[[0, 1], [right, 3]].sum()
    assert math.isfinite(loss.item())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert likelihood.item() == pytest.approx(plain.item(), rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    p_minus_q = exact.softmax(-1) - q
    assert (logits.grad.double() - p_minus_q).abs().max() < (
        1e-6 if kind == torch.float32 else 4e-3
    )


def test_a_piece_that_is_ruled_out_costs_nothing() -> None:
    """Minus infinity, as for pieces that may not be said, is no NaN where nothing is smoothed."""
    logits = torch.tensor([[-math.inf, 0.0, math.log(3.0), -math.inf]], requires_grad=True)
    loss, _ = smoothed_cross_entropy(logits, torch.tensor([2]), 0.0)
    assert loss.item() == pytest.approx(-math.log(0.75))
    loss.backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, 0.25, -0.25, 0.0]]))


def test_perplexity_knows_no_smoothing() -> None:
    """An even guess over V pieces has perplexity V, whatever the smoothing."""
    logits, target = torch.zeros(6, 37), torch.arange(1, 7)
    for smoothing in (0.0, 0.1, 0.9):
        _, likelihood = smoothed_cross_entropy(logits, target, smoothing)
        assert perplexity(likelihood.item() / 6) == pytest.approx(37, rel=1e-5)
    sure = 50 * F.one_hot(target, 37).float()
    loss, likelihood = smoothed_cross_entropy(sure, target, 0.1)
    assert perplexity(likelihood.item() / 6) == pytest.approx(1.0)
    # 0.1 x 36/37 of the weight lies on pieces 50 nats away.
    assert loss.item() / 6 == pytest.approx(0.1 * 36 / 37 * 50, rel=1e-5)


def test_the_graph_of_a_loss_is_run_once() -> None:
    """Its probabilities are overwritten; a second run must say so, not go wrong in silence."""
    logits = torch.randn(2, 5, requires_grad=True)
    loss, likelihood = smoothed_cross_entropy(logits, torch.tensor([1, 2]), 0.1)
    assert not likelihood.requires_grad
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- positions (section 3.5) ---------------------------------------------------------------------


def test_positions_by_hand() -> None:
    table = sinusoids(3, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    by_hand = [math.sin(2), math.cos(2), math.sin(2 / 100), math.cos(2 / 100)]
    assert table[2].tolist() == pytest.approx(by_hand)
    # Position 50 of d_model 512 at dimensions 128 and 129: 50 / 10000^(1/4) = 5 radians.
    assert sinusoids(51, 512)[50, 128:130].tolist() == pytest.approx([-0.9589243, 0.2836622])
    # Position 200 at the last two: 200 / 10000^(510/512) = 0.02073266 radians.
    assert sinusoids(201, 512)[200, 510:].tolist() == pytest.approx([0.02073117, 0.9997851])


@pytest.mark.parametrize("d_model", [2, 16, 512])
def test_the_wavelengths_go_from_two_pi_to_ten_thousand_times_that(d_model: int) -> None:
    """As section 3.5 says: a geometric progression, whose end only wide models come near."""
    table = sinusoids(2, d_model).double()
    frequencies = torch.atan2(table[1, 0::2], table[1, 1::2])
    assert frequencies[0].item() == pytest.approx(1.0)
    ratios = frequencies[1:] / frequencies[:-1]
    expected = torch.full_like(ratios, 10000 ** (-2 / d_model))
    torch.testing.assert_close(ratios, expected, rtol=1e-4, atol=0)


@properties
@given(position=st.integers(0, 3000), offset=st.integers(0, 3000), half=st.sampled_from([1, 4, 32]))
def test_an_offset_rotates_positions(position: int, offset: int, half: int) -> None:
    """PE(pos + k) is a linear function of PE(pos) that knows k alone."""
    d_model = 2 * half
    table = sinusoids(position + offset + 1, d_model).double()
    for i in range(half):
        angle = offset * 10000.0 ** (-2 * i / d_model)
        rotation = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]],
            dtype=torch.float64,
        )
        pair = slice(2 * i, 2 * i + 2)
        rotated = rotation @ table[position, pair]
        torch.testing.assert_close(table[position + offset, pair], rotated, rtol=0, atol=3e-7)


def test_sinusoids_reach_as_far_as_is_asked_for() -> None:
    positions = Positions("sinusoidal", 16)
    first = positions(0, FIRST_POSITIONS).clone()
    torch.testing.assert_close(first, sinusoids(FIRST_POSITIONS, 16), rtol=0, atol=0)
    # Beyond the table made at the start, from a later start as a decoding step asks, and back.
    for start, length in ((FIRST_POSITIONS, 1), (700, 5), (0, 3000), (2999, 1), (0, 3)):
        rows = positions(start, length)
        assert torch.equal(rows, sinusoids(start + length, 16)[start:])
    assert torch.equal(positions(0, FIRST_POSITIONS), first)
    assert dict(positions.named_parameters()) == positions.state_dict() == {}
    wide = Positions("sinusoidal", 16).double()
    assert wide(0, 1000).dtype == torch.float64

    model = randomised(small()).eval()
    long = padded([700])
    with torch.no_grad():
        memory = model.encode(long)
        model.encode(padded([3]))
        assert torch.isfinite(memory).all()
        assert torch.equal(model.encode(long), memory)
    assert model.max_length == sys.maxsize


def test_learned_positions_are_trained_and_end_at_1024() -> None:
    model = randomised(small(layers=1, positions="learned", dropout=0.0))
    tables = [model.source_positions.table, model.target_positions.table]
    assert model.max_length == 1024
    assert all(table.shape == (1024, 16) for table in tables)
    assert not torch.equal(*tables)
    with torch.no_grad():
        assert torch.isfinite(model(padded([1024]), padded([1024]))).all()
    for source, target in ((1025, 1), (1, 1025)):
        with pytest.raises(ValueError, match="1025 tokens is longer than the 1024 learned pos"):
            model(padded([source]), padded([target]))
    cache = model.start(padded([2]))
    cache.steps = 1023
    model.step(torch.tensor([[5]]), cache)
    with pytest.raises(ValueError, match="learned positions"):
        model.step(torch.tensor([[5]]), cache)

    source, target = padded([6, 4]), padded([3, 5])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [table.detach().clone() for table in tables]
    smoothed_cross_entropy(model(source, target), target, 0.1)[0].backward()
    optimizer.step()
    for old, table, longest in zip(before, tables, (6, 5), strict=True):
        moved = (table != old).any(-1)
        assert moved[:longest].all()
        assert not moved[longest:].any()


def test_learned_positions_are_added_to_the_words() -> None:
    """What sinusoids give, a table that holds them gives too."""
    sinusoidal, learned = randomised(small()), randomised(small(positions="learned"))
    learned.load_state_dict(sinusoidal.state_dict(), strict=False)
    with torch.no_grad():
        for positions in (learned.source_positions, learned.target_positions):
            positions.table.copy_(sinusoids(1024, 16))
        source, target = padded([6, 4]), padded([3, 5])
        expected = sinusoidal.eval()(source, target)
        assert torch.equal(learned.eval()(source, target), expected)
        learned.target_positions.table[1] += 1
        assert not torch.equal(learned(source, target)[:, 1:], expected[:, 1:])
        assert torch.equal(learned(source, target)[:, :1], expected[:, :1])


# --- why the scale (section 3.2.1, footnote) -----------------------------------------------------


def transparent(kind: str, d_k: int, heads: int, keys: int) -> MultiHeadAttention:
    """Attention in float64 that compares the very numbers it is given, d_k of them a head.

    With one head and unit vectors as values its output are the weights themselves.
    """
    module = MultiHeadAttention(heads * d_k, heads, d_k, keys, kind).double()  # type: ignore[arg-type]
    width = heads * d_k
    with torch.no_grad():
        module.projection[:width] = torch.eye(width)
        module.projection[width : 2 * width] = torch.eye(width)
        if heads == 1:
            module.output = torch.nn.Linear(keys, keys, bias=False).double()
            module.output.weight.copy_(torch.eye(keys))
    return module


def components(distribution: str, *shape: int) -> Tensor:
    """Independent numbers of mean 0 and variance 1."""
    if distribution == "normal":
        return torch.randn(*shape, dtype=torch.float64)
    return torch.randint(0, 2, shape).double() * 2 - 1


@pytest.mark.parametrize("distribution", ["normal", "signs"])
@pytest.mark.parametrize("d_k", [1, 16, 64, 256])
def test_q_dot_k_has_mean_0_and_variance_d_k_and_scaled_1(d_k: int, distribution: str) -> None:
    """Scores are read from the softmax over two keys: ln(w_1 / w_0) where key 0 is zero."""
    torch.manual_seed(d_k)
    samples, heads = 4000, 2
    queries = components(distribution, samples, 1, heads * d_k)
    keys = torch.zeros(samples, 2, heads * d_k, dtype=torch.float64)
    keys[:, 1] = components(distribution, samples, heads * d_k)
    for kind, variance in (("dot_product", d_k), ("scaled_dot_product", 1)):
        module = transparent(kind, d_k, heads, keys=3)
        with torch.no_grad():
            projected, _ = module.project_memory(keys)
            weights = module.weights(module.project_queries(queries), projected)
        scores = (weights[..., 1] / weights[..., 0]).log().flatten()
        n = scores.numel()
        # Var(q.k) has the standard error sqrt((kurtosis - 1) / n) of itself, and the kurtosis is
        # 3 + 6 / d_k for normal components and 3 - 2 / d_k for signs.
        kurtosis = 3 + (6 if distribution == "normal" else -2) / d_k
        assert abs(scores.mean().item()) < 4 * math.sqrt(variance / n)
        error = 4 * math.sqrt((kurtosis - 1) / n) + 1 / n
        assert scores.var().item() == pytest.approx(variance, rel=error)


def sensitivity(kind: str, d_k: int) -> tuple[float, float]:
    """Of attention over 4 keys: mean greatest weight, and mean norm of d weights / d scores.

    The derivative comes by way of the keys: one more component, which the query multiplies to 1,
    is a nudge to each score.
    """
    keys, samples = 4, 2000
    torch.manual_seed(0)
    module = transparent(kind, d_k + 1, 1, keys)
    query = components("normal", samples, 1, 1, d_k + 1)
    query[..., -1] = 1 / module.scale
    key = components("normal", samples, 1, keys, d_k)
    nudges = torch.zeros(samples, 1, keys, 1, dtype=torch.float64, requires_grad=True)
    values = torch.eye(keys, dtype=torch.float64).expand(samples, 1, keys, keys)
    weights = module.attend(query, torch.cat((key, nudges), -1), values)
    # The gradient along a random direction has in the mean the norm of the derivative.
    direction = components("normal", *weights.shape)
    gradient = torch.autograd.grad((weights * direction).sum(), nudges)[0]
    return weights.amax(-1).mean().item(), gradient.flatten(1).norm(dim=1).mean().item()


def test_without_the_scale_softmax_saturates_as_d_k_grows() -> None:
    """Its gradients become "extremely small"; with the scale they keep their size."""
    widths = [4, 16, 64, 256]
    greatest, gradients = zip(*(sensitivity("dot_product", d_k) for d_k in widths), strict=True)
    assert list(greatest) == sorted(greatest)
    assert greatest[-1] > 0.9
    assert list(gradients) == sorted(gradients, reverse=True)
    # Four times the width doubles all distances of scores: half as many come near a tie.
    for wider, narrower in zip(gradients[2:], gradients[1:], strict=False):
        assert wider / narrower == pytest.approx(0.5, rel=0.2)
    greatest, gradients = zip(
        *(sensitivity("scaled_dot_product", d_k) for d_k in widths), strict=True
    )
    assert greatest == pytest.approx([greatest[0]] * 4, rel=0.1)
    assert gradients == pytest.approx([gradients[0]] * 4, rel=0.1)
    assert max(greatest) < 0.6
