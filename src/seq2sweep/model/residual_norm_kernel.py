# mypy: ignore-errors
"""The kernels of `residual_norm`, in Triton's subset of Python.

A program has ROWS rows of SIZE numbers at a time.
"""

import triton
import triton.language as tl

ROUNDS = tl.constexpr(7)
"""Of Philox 4x32: the fewest that pass all statistical tests (Salmon et al. 2011, table 2)."""


@triton.jit
def keeps(seed, tile, share, FILLED: tl.constexpr, ROWS: tl.constexpr):
    """Which numbers of a tile dropout keeps: bool [ROWS, FILLED]. One draw decides for four."""
    QUARTER: tl.constexpr = FILLED // 4
    number = tile * (ROWS * QUARTER) + tl.arange(0, ROWS * QUARTER)
    a, b, c, d = tl.randint4x(tl.load(seed), number, ROUNDS)
    drawn = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, FILLED])
    return tl.uint_to_uniform_float(drawn) >= share


@triton.jit(do_not_specialize=["rows"])
def forward(
    x, inside, gain, bias, seed, wide, narrow, total, kept, statistics,
    rows, share, epsilon,
    DROPS: tl.constexpr, SIZE: tl.constexpr, FILLED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """total = x + Dropout(inside), and its LayerNorm in the types of `wide` and `narrow`.

    statistics: of each row the mean, and behind all of them one over the deviation.
    """
    tile = tl.program_id(0)
    row = tile * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, FILLED)
    there = (row < rows)[:, None] & (column < SIZE)[None, :]
    places = row.to(tl.int64)[:, None] * SIZE + column[None, :]
    added = tl.load(inside + places, mask=there, other=0.0).to(tl.float32)
    if DROPS:
        keep = keeps(seed, tile, share, FILLED, ROWS)
        added = tl.where(keep, added / (1.0 - share), 0.0)
        tl.store(kept + places, keep.to(tl.int8), mask=there)
    summed = tl.load(x + places, mask=there, other=0.0).to(tl.float32) + added
    mean = tl.sum(summed, axis=1) / SIZE
    away = tl.where((column < SIZE)[None, :], summed - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(away * away, axis=1) / SIZE + epsilon)
    scale = tl.load(gain + column, mask=column < SIZE, other=0.0)
    shift = tl.load(bias + column, mask=column < SIZE, other=0.0)
    out = away * inverse[:, None] * scale[None, :] + shift[None, :]
    tl.store(wide + places, out.to(wide.dtype.element_ty), mask=there)
    tl.store(narrow + places, out.to(narrow.dtype.element_ty), mask=there)
    tl.store(total + places, summed, mask=there)
    tl.store(statistics + row, mean, mask=row < rows)
    tl.store(statistics + rows + row, inverse, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def backward(
    of_wide, of_narrow, total, kept, statistics, gain, of_x, of_inside, of_biases, of_gains,
    rows, share,
    WIDE: tl.constexpr, NARROW: tl.constexpr, DROPS: tl.constexpr,
    SIZE: tl.constexpr, FILLED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of x and inside; and this program's part of those of bias and gain.

    WIDE, NARROW: whether there is a gradient of that output.
    """
    column = tl.arange(0, FILLED)
    scale = tl.load(gain + column, mask=column < SIZE, other=0.0)
    of_bias = tl.zeros([ROWS, FILLED], tl.float32)
    of_gain = tl.zeros([ROWS, FILLED], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & (column < SIZE)[None, :]
        places = row.to(tl.int64)[:, None] * SIZE + column[None, :]
        mean = tl.load(statistics + row, mask=row < rows, other=0.0)
        inverse = tl.load(statistics + rows + row, mask=row < rows, other=0.0)
        summed = tl.load(total + places, mask=there, other=0.0)
        normal = tl.where(there, (summed - mean[:, None]) * inverse[:, None], 0.0)
        slope = tl.zeros([ROWS, FILLED], tl.float32)
        if WIDE:
            slope += tl.load(of_wide + places, mask=there, other=0.0).to(tl.float32)
        if NARROW:
            slope += tl.load(of_narrow + places, mask=there, other=0.0).to(tl.float32)
        of_bias += slope
        of_gain += slope * normal
        slope *= scale[None, :]
        along = tl.sum(slope * normal, axis=1) / SIZE
        level = tl.sum(slope, axis=1) / SIZE
        gradient = (slope - level[:, None] - normal * along[:, None]) * inverse[:, None]
        tl.store(of_x + places, gradient.to(of_x.dtype.element_ty), mask=there)
        if DROPS:
            keep = tl.load(kept + places, mask=there, other=0)
            gradient = tl.where(keep != 0, gradient / (1.0 - share), 0.0)
        tl.store(of_inside + places, gradient.to(of_inside.dtype.element_ty), mask=there)
    part = tl.program_id(0) * SIZE + column
    tl.store(of_biases + part, tl.sum(of_bias, axis=0), mask=column < SIZE)
    tl.store(of_gains + part, tl.sum(of_gain, axis=0), mask=column < SIZE)
