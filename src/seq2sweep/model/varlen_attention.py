"""Attention of packed sentences by kernels of our own in Triton, for GPUs.

Nothing is padded, packed again or masked: offsets say at which row each sentence begins. PyTorch's
`varlen_attn`, FlashAttention 2, gives each sentence and head tiles of 128 rows of their own; of
sentences of 28 pieces most of a tile is empty. Here sentences share tiles.

Shapes: R rows of queries and S rows of keys, those of one sentence after those of another; h heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import kernel_check
from seq2sweep.model.packing import Packing

SMALLEST, LARGEST = 16, 256
"""Numbers of a head for which a kernel has room: a power of two between these."""
ROWS = 32
"""Of a tile. On an H200 tiles of 32 are as fast as those of 64 for sentences of 70 pieces, and take
0.9 of the time for those of 28."""
TOLERANCE = 0.03
"""Of heads and gradients, as a share of the greatest number, between kernel and float64."""

Attention = Callable[[Tensor, Tensor, Tensor, tuple[Packing, Packing], bool, float], Tensor]


def serves(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Whether the kernels attend heads of `size` numbers, the greater of d_k and d_v, of this type.

    They do on GPUs in 16 bits. Tried once on some sentences: where they cannot be compiled, or are
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
    sentence sees its keys 0 ... i.
    """
    sides = [x for p in packings for x in (p.places, p.offsets, p.width)]
    heads: Tensor = _attend(queries, keys, values, *sides, causal, scale)[0]
    return heads


def _heads(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Tensor,
    offsets: Tensor,
    width: int,
    key_places: Tensor,
    key_offsets: Tensor,
    key_width: int,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Heads, and log2 of each query's sum of exponents: float32 [h, R].

    places, offsets and width: of a `Packing`.
    """
    given = [_rows(x) for x in (queries, keys, values)]
    out = queries.new_empty(len(queries), queries.size(1), values.size(-1))
    sums = queries.new_empty(queries.size(1), len(queries), dtype=torch.float32)
    _launch(
        "forward", queries, values,
        *given, out, sums, places, offsets, key_offsets, len(queries), width, int(causal),
        scale / math.log(2), *_strides(*given, out),
    )  # fmt: skip
    return out, sums


def _like_heads(queries: Tensor, keys: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    rows, heads, _size = queries.shape
    out = queries.new_empty(rows, heads, values.size(-1))
    return out, queries.new_empty(heads, rows, dtype=torch.float32)


def _slopes(
    slope: Tensor,
    out: Tensor,
    sums: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Tensor,
    offsets: Tensor,
    width: int,
    key_places: Tensor,
    key_offsets: Tensor,
    key_width: int,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values; slope [R, h, d_v]: of the heads `out`."""
    slope, q, k, v = (_rows(x) for x in (slope, queries, keys, values))
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    of_q, of_k, of_v = gradients
    deltas = torch.empty_like(sums)
    scales = scale / math.log(2), scale
    _launch(
        "backward_of_queries", queries, values,
        q, k, v, out, slope, sums, deltas, of_q, places, offsets, key_offsets,
        len(queries), width, int(causal), *scales, *_strides(q, k, v, out, slope, of_q),
    )  # fmt: skip
    _launch(
        "backward_of_keys", keys, values,
        q, k, v, slope, sums, deltas, of_k, of_v, key_places, key_offsets, offsets,
        len(keys), len(queries), key_width, int(causal), *scales,
        *_strides(q, k, v, slope, of_k, of_v),
    )  # fmt: skip
    return of_q, of_k, of_v


def _like_slopes(
    slope: Tensor, out: Tensor, sums: Tensor, queries: Tensor, keys: Tensor, values: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (x.new_empty(x.shape) for x in (queries, keys, values))
    return q, k, v


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    queries, keys, values, places, offsets, width, *of_keys, causal, scale = inputs
    key_places, key_offsets, key_width = of_keys
    ctx.save_for_backward(*output, queries, keys, values, places, offsets, key_places, key_offsets)
    ctx.options = width, key_width, causal, scale


def _gradients(context: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *kept, places, offsets, key_places, key_offsets = context.saved_tensors
    width, key_width, causal, scale = context.options
    found = _attend_backward(
        slope, *kept, places, offsets, width, key_places, key_offsets, key_width, causal, scale
    )
    return *found, *(None,) * 8


# Not torch.library.custom_op, which loads the compiler when such an operator first runs.
_PACKED = "Tensor places, Tensor offsets, SymInt width"
_KEYS = "Tensor key_places, Tensor key_offsets, SymInt key_width"
_GIVEN = f"Tensor queries, Tensor keys, Tensor values, {_PACKED}, {_KEYS}, bool causal, float scale"
_operators = torch.library.Library("seq2sweep", "FRAGMENT")
_operators.define(f"packed_attention({_GIVEN}) -> (Tensor, Tensor)")
_operators.define(
    f"packed_attention_backward(Tensor slope, Tensor out, Tensor sums, {_GIVEN}) "
    "-> (Tensor, Tensor, Tensor)"
)
for _name, _kernels, _shapes in (
    ("packed_attention", _heads, _like_heads),
    ("packed_attention_backward", _slopes, _like_slopes),
):
    _operators.impl(_name, _kernels, "CUDA")
    torch.library.register_fake(f"seq2sweep::{_name}", _shapes, lib=_operators)
torch.library.register_autograd(
    "seq2sweep::packed_attention", _gradients, setup_context=_keep, lib=_operators
)
_attend = torch.ops.seq2sweep.packed_attention
_attend_backward = torch.ops.seq2sweep.packed_attention_backward


def _rows(x: Tensor) -> Tensor:
    """x [R, h, d] with the numbers of a head side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    """From row to row and from head to head, of each."""
    return [step for x in tensors for step in x.stride()[:2]]


def _launch(name: str, of: Tensor, values: Tensor, *arguments: Any) -> None:
    """Start a kernel: a program for each tile of the rows [n, h, d_k] and each head."""
    if not len(of):
        return
    d_k, d_v = of.size(-1), values.size(-1)
    filled = [max(SMALLEST, 1 << (size - 1).bit_length()) for size in (d_k, d_v)]
    with torch.cuda.device_of(of):
        _kernel(name)[-(-len(of) // ROWS), of.size(1)](
            *arguments, D_K=d_k, D_V=d_v, FILLED_K=filled[0], FILLED_V=filled[1],
            ROWS=ROWS, num_warps=2 if max(filled) <= 64 else 4, num_stages=2,
        )  # fmt: skip


def _kernel(name: str) -> Any:
    """By its name. With `TRITON_INTERPRET=1` it runs on a CPU."""
    from seq2sweep.model import varlen_attention_kernel

    return getattr(varlen_attention_kernel, name)


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
