"""Attention of packed sentences by PyTorch's variable-length FlashAttention, for GPUs.

Nothing is padded, packed again or masked: offsets say at which row each sentence begins.

Shapes: R rows of queries and S rows of keys, those of one sentence after those of another; h heads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import kernel_check
from seq2sweep.model.packing import Packing

MULTIPLE, LARGEST = 8, 256
"""Numbers of a head: the kernel wants a multiple of 8, up to 256."""
TOLERANCE = 0.03
"""Of heads and gradients, as a share of the greatest number, between kernel and float64."""

Attention = Callable[[Tensor, Tensor, Tensor, tuple[Packing, Packing], bool, float], Tensor]


def serves(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Whether the kernel attends heads of `size` numbers, the greater of d_k and d_v, of this type.

    It does on GPUs in 16 bits. Tried once on some sentences: where it is missing, cannot run or is
    wrong, one line says so, and attention is that of padded sentences.
    """
    narrow = dtype in (torch.float16, torch.bfloat16)
    return device.type == "cuda" and narrow and size <= LARGEST and _is_right(device, dtype, size)


# A compiled layer takes the answer as it is: what is tried is no part of its graph. This is what
# torch.compiler.assume_constant_result does, which loads the compiler: two seconds for everyone,
# and a process that Ctrl-C ended would say status 1 instead of the signal.
serves._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _is_right(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    return kernel_check.is_right(
        "attention of packed sentences",
        device,
        lambda: largest_error(device, dtype, size),
        TOLERANCE,
        "it is off by {} of the greatest number",
    )


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    packings: tuple[Packing, Packing],
    causal: bool,
    scale: float,
) -> Tensor:
    """Heads [R, h, d_v] of queries [R, h, d_k], keys [S, h, d_k] and values [S, h, d_v].

    packings: of queries, and of keys and values, with as many sentences; causal: query i of a
    sentence sees its keys 0 ... i. The kernel wants d_k = d_v: zeros make them so, which add
    nothing to scores and are cut off from what comes out.
    """
    # PyTorch 2.12 and 2.13 have scale and window, 2.10 had neither: there the trial fails.
    from torch.nn.attention.varlen import varlen_attn

    of_queries, of_keys = packings
    assert of_queries.offsets is not None
    d_v = values.size(-1)
    size = filled_size(queries.size(-1), d_v)
    heads = varlen_attn(
        _widened(queries, size),
        _widened(keys, size),
        _widened(values, size),
        of_queries.offsets,
        of_keys.offsets,
        of_queries.width,
        of_keys.width,
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    assert isinstance(heads, Tensor)
    return heads[..., :d_v] if d_v < size else heads


def filled_size(d_k: int, d_v: int) -> int:
    """Numbers of a head of which queries, keys and values are made, with zeros."""
    return -(-max(d_k, d_v) // MULTIPLE) * MULTIPLE


def _widened(x: Tensor, size: int) -> Tensor:
    """Zeros behind the numbers of each head, up to `size`.

    The kernel reads 16 bytes at a time, and of rows that are cut from those of queries, keys and
    values together some may begin in between: they are copied. If rows are a multiple apart, so is
    where the first begins.
    """
    if x.size(-1) < size:
        return F.pad(x, (0, size - x.size(-1)))
    return x.clone(memory_format=torch.contiguous_format) if x.stride(0) % MULTIPLE else x


@torch.inference_mode(False)  # it may be a validation that asks first
@torch.enable_grad()
def largest_error(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """By how much heads and gradients of some sentences differ from the formula's, as a share of
    the greatest number of each."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for lengths, memory, causal in (
        ([1, 70, 9], [140, 3, 1], False),
        ([1, 140, 9], [1, 140, 9], True),
    ):
        packings = _packing(lengths), _packing(memory)
        rows = sum(lengths), sum(memory), sum(memory), sum(lengths)
        given = [torch.randn(n, 2, size, generator=generator).to(dtype) for n in rows]
        # A scale that no kernel takes by itself.
        options = causal, 2 * size**-0.5
        right = _with_gradients(_formula, [x.double() for x in given], packings, *options)
        moved = packings[0].to(device), packings[1].to(device)
        found = _with_gradients(attention, [x.to(device) for x in given], moved, *options)
        for mine, other in zip(found, right, strict=True):
            difference = (mine.double().cpu() - other).abs().max() / other.abs().max()
            worst = max(worst, float(difference.nan_to_num(torch.inf)))
    return worst


def _with_gradients(
    kernel: Attention,
    given: list[Tensor],
    packings: tuple[Packing, Packing],
    causal: bool,
    scale: float,
) -> list[Tensor]:
    """Heads, and the gradients of queries, keys and values for the last of `given` as theirs."""
    inputs = [x.requires_grad_() for x in given[:3]]
    queries, keys, values = inputs
    heads = kernel(queries, keys, values, packings, causal, scale)
    return [heads.detach(), *torch.autograd.grad(heads, inputs, given[3])]


def _formula(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    packings: tuple[Packing, Packing],
    causal: bool,
    scale: float,
) -> Tensor:
    """As `attention`, sentence by sentence, on a CPU."""
    found = []
    for q, k, v in zip(
        queries.split(packings[0].lengths()),
        keys.split(packings[1].lengths()),
        values.split(packings[1].lengths()),
        strict=True,
    ):
        scores = scale * torch.einsum("ihd,jhd->hij", q, k)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf)
        found.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v))
    return torch.cat(found)


def _packing(lengths: list[int]) -> Packing:
    return Packing.of(nn.utils.rnn.pad_sequence([torch.ones(n) for n in lengths], True, PAD))
