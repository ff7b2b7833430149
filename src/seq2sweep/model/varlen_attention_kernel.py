# mypy: ignore-errors
"""The kernels of `varlen_attention`, in Triton's subset of Python.

Rows are cut into tiles of ROWS whatever sentences they are of: a tile of queries meets the keys of
all its sentences, which lie side by side, and a mask parts them. So short sentences, of which
there are many, share a tile. No two programs write to one place: results are always the same bits.
Dao (2023), "FlashAttention-2", has the recurrences.
"""

import triton
import triton.language as tl

VARIED = ["count", "query_count", "width", "causal"]
"""Numbers for which no kernel of its own is compiled, which takes a second."""


@triton.jit
def others_of(
    places, offsets, other_offsets, rows, there, width, causal, OF_KEYS: tl.constexpr
):  # fmt: skip
    """For rows of one side: the first and the end of the rows of the other side that they meet.

    causal: 1 where a query meets keys up to its own place; OF_KEYS: the rows are keys, the others
    queries.
    """
    sentence = (tl.load(places + rows, mask=there, other=0) // width).to(tl.int32)
    first = tl.load(other_offsets + sentence, mask=there, other=0)
    end = tl.load(other_offsets + sentence + 1, mask=there, other=0)
    column = rows - tl.load(offsets + sentence, mask=there, other=0)
    if OF_KEYS:
        first += causal * column
    else:
        end = tl.where(causal != 0, tl.minimum(end, first + column + 1), end)
    return first, tl.where(there, end, 0)


@triton.jit
def tile(x, rows, there, stride, SIZE: tl.constexpr, FILLED: tl.constexpr):
    """Rows [ROWS, FILLED] of one head, zeros behind its SIZE numbers and where there is no row."""
    columns = tl.arange(0, FILLED)
    places = x + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if SIZE == FILLED:
        return tl.load(places, mask=there[:, None], other=0.0)
    return tl.load(places, mask=there[:, None] & (columns[None, :] < SIZE), other=0.0)


@triton.jit
def put(x, values, rows, there, stride, SIZE: tl.constexpr, FILLED: tl.constexpr):
    """As `tile` reads."""
    columns = tl.arange(0, FILLED)
    places = x + rows.to(tl.int64)[:, None] * stride + columns[None, :]
    mask = there[:, None] & (columns[None, :] < SIZE)
    tl.store(places, values.to(x.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=VARIED)
def forward(
    queries, keys, values, out, sums,
    places, offsets, key_offsets, count, width, causal, scale,
    query_row, query_head, key_row, key_head, value_row, value_head, out_row, out_head,
    D_K: tl.constexpr, D_V: tl.constexpr, FILLED_K: tl.constexpr, FILLED_V: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Of a tile of queries and a head: the values they take, and log2 of the sums of exponents.

    scale: of scores, times log2(e), as exponents are of 2.
    """
    head = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < count
    first, end = others_of(places, offsets, key_offsets, rows, there, width, causal, False)
    low = tl.min(tl.where(there, first, 2147483647), axis=0)
    high = tl.max(end, axis=0)
    q = tile(queries + head * query_head, rows, there, query_row, D_K, FILLED_K)
    greatest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    taken = tl.zeros([ROWS, FILLED_V], tl.float32)
    for start in range(low, high, ROWS):
        others = start + tl.arange(0, ROWS)
        inside = others < high
        k = tile(keys + head * key_head, others, inside, key_row, D_K, FILLED_K)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = (others[None, :] >= first[:, None]) & (others[None, :] < end[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(greatest, tl.max(scores, axis=1))
        # Rows that have met nothing yet: their sums stay zero.
        base = tl.where(higher == -float("inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(greatest - base)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tile(values + head * value_head, others, inside, value_row, D_V, FILLED_V)
        taken = taken * shrink[:, None]
        taken += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        greatest = higher
    # Of a sentence without keys: nothing. Scores that are all minus infinity stay no number.
    met = end > first
    taken = taken / tl.where(met, total, 1.0)[:, None]
    put(out + head * out_head, taken, rows, there, out_row, D_V, FILLED_V)
    logarithm = greatest + tl.log2(tl.where(met, total, 1.0))
    tl.store(sums + head * count + rows, tl.where(met, logarithm, 0.0), mask=there)


@triton.jit(do_not_specialize=VARIED)
def backward_of_queries(
    queries, keys, values, out, slope, sums, deltas, of_queries,
    places, offsets, key_offsets, count, width, causal, scale, to_scores,
    query_row, query_head, key_row, key_head, value_row, value_head, out_row, out_head,
    slope_row, slope_head, grad_row, grad_head,
    D_K: tl.constexpr, D_V: tl.constexpr, FILLED_K: tl.constexpr, FILLED_V: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries; and for each of them slope . out, to `deltas`.

    slope: of what came out; to_scores: the scale itself.
    """
    head = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < count
    first, end = others_of(places, offsets, key_offsets, rows, there, width, causal, False)
    low = tl.min(tl.where(there, first, 2147483647), axis=0)
    high = tl.max(end, axis=0)
    q = tile(queries + head * query_head, rows, there, query_row, D_K, FILLED_K)
    away = tile(slope + head * slope_head, rows, there, slope_row, D_V, FILLED_V)
    came = tile(out + head * out_head, rows, there, out_row, D_V, FILLED_V)
    delta = tl.sum(away.to(tl.float32) * came.to(tl.float32), axis=1)
    tl.store(deltas + head * count + rows, delta, mask=there)
    total = tl.load(sums + head * count + rows, mask=there, other=0.0)
    gradient = tl.zeros([ROWS, FILLED_K], tl.float32)
    for start in range(low, high, ROWS):
        others = start + tl.arange(0, ROWS)
        inside = others < high
        k = tile(keys + head * key_head, others, inside, key_row, D_K, FILLED_K)
        v = tile(values + head * value_head, others, inside, value_row, D_V, FILLED_V)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = (others[None, :] >= first[:, None]) & (others[None, :] < end[:, None])
        weights = tl.where(seen, tl.exp2(scores - total[:, None]), 0.0)
        of_weights = tl.dot(away, tl.trans(v), input_precision="ieee")
        of_scores = weights * (of_weights - delta[:, None])
        gradient += tl.dot(of_scores.to(k.dtype), k, input_precision="ieee")
    gradient *= to_scores
    put(of_queries + head * grad_head, gradient, rows, there, grad_row, D_K, FILLED_K)


@triton.jit(do_not_specialize=VARIED)
def backward_of_keys(
    queries, keys, values, slope, sums, deltas, of_keys, of_values,
    places, offsets, query_offsets, count, query_count, width, causal, scale, to_scores,
    query_row, query_head, key_row, key_head, value_row, value_head, slope_row, slope_head,
    grad_row, grad_head, value_grad_row, value_grad_head,
    D_K: tl.constexpr, D_V: tl.constexpr, FILLED_K: tl.constexpr, FILLED_V: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of keys and of their values."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < count
    first, end = others_of(places, offsets, query_offsets, rows, there, width, causal, True)
    low = tl.min(tl.where(there, first, 2147483647), axis=0)
    high = tl.max(end, axis=0)
    k = tile(keys + head * key_head, rows, there, key_row, D_K, FILLED_K)
    v = tile(values + head * value_head, rows, there, value_row, D_V, FILLED_V)
    gradient = tl.zeros([ROWS, FILLED_K], tl.float32)
    value_gradient = tl.zeros([ROWS, FILLED_V], tl.float32)
    for start in range(low, high, ROWS):
        others = start + tl.arange(0, ROWS)
        inside = others < high
        q = tile(queries + head * query_head, others, inside, query_row, D_K, FILLED_K)
        away = tile(slope + head * slope_head, others, inside, slope_row, D_V, FILLED_V)
        total = tl.load(sums + head * query_count + others, mask=inside, other=0.0)
        delta = tl.load(deltas + head * query_count + others, mask=inside, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
        seen = (others[None, :] >= first[:, None]) & (others[None, :] < end[:, None])
        weights = tl.where(seen, tl.exp2(scores - total[None, :]), 0.0)
        value_gradient += tl.dot(weights.to(away.dtype), away, input_precision="ieee")
        of_weights = tl.dot(v, tl.trans(away), input_precision="ieee")
        of_scores = weights * (of_weights - delta[None, :])
        gradient += tl.dot(of_scores.to(q.dtype), q, input_precision="ieee")
    gradient *= to_scores
    put(of_keys + head * grad_head, gradient, rows, there, grad_row, D_K, FILLED_K)
    put(
        of_values + head * value_grad_head, value_gradient, rows, there, value_grad_row,
        D_V, FILLED_V,
    )  # fmt: skip
