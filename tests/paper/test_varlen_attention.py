"""Attention of packed sentences is that of padded ones, and serves where it can."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import varlen_attention
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.mixer import restricted
from seq2sweep.model.packing import Packing
from seq2sweep.model.varlen_attention import TOLERANCE, largest_error

from .models import padded, relative_error, small
from .packed import packed_attention

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LENGTHS, MEMORY = [5, 1, 9, 2], [1, 7, 3, 12]
D_MODEL = 16
SIZES = [(8, 8), (5, 7), (3, 16), (16, 3), (256, 256), (250, 8), (257, 8), (8, 257)]


def rows(lengths: list[int], dtype: torch.dtype) -> tuple[Tensor, Packing]:
    """Random ones [R, d_model], and which of a padded batch they are."""
    given = torch.randn(sum(lengths), D_MODEL, dtype=dtype, requires_grad=True)
    return given, Packing.of(padded(lengths))


def mask(lengths: list[int]) -> Tensor:
    """Which pieces are real, for what is padded after all: bool [B, 1, 1, n]."""
    return padded(lengths).ne(PAD)[:, None, None]


def cross(
    module: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Any = None, *packings: Any
) -> Tensor:
    """Attention of x over memory."""
    keys, values = module.project_memory(memory, *packings[1:])
    queries = module.project_queries(x, *packings[:1])
    return module.attend(queries, keys, values, mask, False, *packings)


def results(module: MultiHeadAttention, out: Tensor, *given: Tensor) -> list[Tensor]:
    """What came out, and the gradients of what went in and of the weights."""
    generator = torch.Generator().manual_seed(5)
    away = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return [out, *torch.autograd.grad(out, [*given, *module.parameters()], away)]


# --- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("d_k", "d_v"), SIZES)
@pytest.mark.parametrize("kind", ["scaled_dot_product", "dot_product"])
@pytest.mark.parametrize("form", ["self", "causal", "cross"])
def test_each_sentence_attends_as_it_does_alone(
    form: str, kind: Any, d_k: int, d_v: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(d_k)
    module = MultiHeadAttention(D_MODEL, 2, d_k, d_v, kind).to(dtype)
    (x, packing), (memory, memory_packing) = rows(LENGTHS, dtype), rows(MEMORY, dtype)
    pairs = list(zip(x.split(LENGTHS), memory.split(MEMORY), strict=True))
    with packed_attention() as calls:
        if form == "cross":
            given = [x, memory]
            out = cross(module, x, memory, mask(MEMORY), packing, memory_packing)
            alone = [cross(module, one[None], other[None])[0] for one, other in pairs]
        else:
            given, causal = [x], form == "causal"
            out = module(x, None if causal else mask(LENGTHS), causal, packing)
            alone = [module(one[None], None, causal)[0] for one, _ in pairs]
    assert calls == ([(sum(LENGTHS), 2, d_k)] if max(d_k, d_v) <= 256 else [])
    found, expected = results(module, out, *given), results(module, torch.cat(alone), *given)
    exact = 1e-12 if dtype == torch.float64 else 2e-6
    assert len(found) == len(expected) == 1 + len(given) + 2
    for mine, other in zip(found, expected, strict=True):
        assert relative_error(mine, other) < exact


def test_offsets_say_where_sentences_begin() -> None:
    packing = Packing.of(padded([3, 1, 4]))
    assert packing.offsets is not None
    assert packing.offsets.dtype == torch.int32
    assert packing.offsets.tolist() == [0, 3, 4, 8]
    moved = packing.to(torch.device("meta")).offsets
    assert moved is not None
    assert moved.device.type == "meta"


# --- where it serves -----------------------------------------------------------------------------


def attended(module: MultiHeadAttention, packing: Packing) -> int:
    """How often packed sentences were attended as they are."""
    with packed_attention() as calls:
        module(torch.randn(len(packing.places), D_MODEL), mask(LENGTHS), False, packing)
    return len(calls)


def test_what_the_kernel_cannot_do_is_done_on_padded_sentences() -> None:
    packing = Packing.of(padded(LENGTHS))
    plain = MultiHeadAttention(D_MODEL, 2, 8, 8)
    assert attended(plain, packing) == 1
    assert attended(MultiHeadAttention(D_MODEL, 2, 8, 8, "additive"), packing) == 0
    assert attended(restricted.Mixer(small(mixer_neighbourhood=3), False), packing) == 0
    dropping = MultiHeadAttention(D_MODEL, 2, 8, 8, dropout=0.1)
    assert attended(dropping, packing) == 0
    assert attended(dropping.eval(), packing) == 1
    plain.keep_weights = True
    assert attended(plain, packing) == 0
    plain.keep_weights = False
    hypotheses = Packing(packing.places, packing.sentences, packing.width)
    assert attended(plain, hypotheses) == 0


def test_it_serves_on_gpus_alone_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention, "_is_right", lambda *_: True)
    assert varlen_attention.serves(GPU, torch.bfloat16, 64)
    assert varlen_attention.serves(GPU, torch.float16, 256)
    assert not varlen_attention.serves(CPU, torch.bfloat16, 64)
    assert not varlen_attention.serves(GPU, torch.float32, 64)
    assert not varlen_attention.serves(GPU, torch.float64, 64)
    assert not varlen_attention.serves(GPU, torch.bfloat16, 257)


def test_it_serves_products_that_autocast_makes_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(varlen_attention, "serves", lambda *given: bool(asked.append(given)))
    module = MultiHeadAttention(D_MODEL, 2, 4, 6)
    x, packing = rows(LENGTHS, torch.float32)
    module(x, None, True, packing)
    with torch.autocast("cpu", torch.bfloat16):
        module(x, None, True, packing)
    assert asked == [(CPU, torch.float32, 6), (CPU, torch.bfloat16, 6)]


# --- the trial at the start ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 13, 64, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_that_rounds_is_right(dtype: torch.dtype, size: int) -> None:
    assert largest_error(CPU, dtype, size) < TOLERANCE / 2
    assert largest_error(CPU, torch.float32, size) < 1e-5


def test_it_is_tried_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = varlen_attention._is_right.__wrapped__
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with torch.inference_mode():  # as a validation may
        assert tried(CPU, torch.bfloat16, 64)
    assert capsys.readouterr().out == ""

    def refuse(*_: Any) -> float:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nand more")

    for broken, said in (
        (refuse, "RuntimeError: FlashAttention only supports Ampere GPUs or newer.)"),
        (lambda *_: 0.5, "off by 0.5"),
        (lambda *_: float("nan"), "off by nan"),
    ):
        monkeypatch.setattr(varlen_attention, "largest_error", broken)
        assert not tried(CPU, torch.bfloat16, 64)
        assert said in "".join(capsys.readouterr())
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)  # nothing compiles it
    monkeypatch.setattr(varlen_attention, "largest_error", lambda *_: 0.0)
    assert not tried(CPU, torch.bfloat16, 64)


Kernel = Callable[..., Tensor]


def without_causality(kernel: Kernel, *given: Any) -> Tensor:
    *others, _, scale = given
    return kernel(*others, False, scale)


def with_a_scale_of_its_own(kernel: Kernel, *given: Any) -> Tensor:
    *others, scale = given
    return kernel(*others, scale / 2)


def with_nonsense_for_a_row(kernel: Kernel, *given: Any) -> Tensor:
    return kernel(*given).index_fill(0, torch.tensor([3]), torch.nan)


def without_a_gradient_of_values(kernel: Kernel, *given: Any) -> Tensor:
    queries, keys, values, *others = given
    return kernel(queries, keys, values.detach() + 0 * values, *others)


@pytest.mark.parametrize(
    "wrong",
    [
        without_causality,
        with_a_scale_of_its_own,
        with_nonsense_for_a_row,
        without_a_gradient_of_values,
    ],
)
def test_a_wrong_kernel_is_noticed(wrong: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    right = varlen_attention.attention
    monkeypatch.setattr(varlen_attention, "attention", lambda *given: wrong(right, *given))
    assert largest_error(CPU, torch.bfloat16, 64) > 0.1
