"""PyTorch's variable-length attention on a CPU, sentence by sentence: its kernel is for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from seq2sweep.model import varlen_attention


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """As FlashAttention, with its demands; what lies outside of all sentences is an error."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert query.size(-1) == key.size(-1) == value.size(-1) <= 256
    assert query.size(-1) % 8 == 0
    assert all(map(is_aligned, (query, key, value)))
    assert (int(cu_seq_q[-1]), int(cu_seq_k[-1])) == (len(query), len(key))
    assert scale is not None
    found = []
    for q, k, v in sentences(query, key, value, cu_seq_q, cu_seq_k):
        assert q.size(1) <= max_q
        assert k.size(1) <= max_k
        found.append(weights(q, k, is_causal, scale) @ v)
    sums = query.new_empty((query.size(1), len(query)), dtype=torch.float32)
    return (
        torch.cat(found, 1).transpose(0, 1).contiguous(),
        sums,
        torch.zeros(2, dtype=torch.uint64),
    )


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool,
    rng_state: Tensor,
    scale: float | None = None,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values, by the derivative of softmax(s q k^T) v."""
    assert scale is not None
    assert is_aligned(grad_out)
    parts = sentences(query, key, value, cu_seq_q, cu_seq_k)
    found = []
    for (q, k, v), slope in zip(parts, grad_out.split(cu_seq_q.diff().tolist()), strict=True):
        away, p = slope.transpose(0, 1), weights(q, k, is_causal, scale)
        of_p = away @ v.mT
        of_scores = scale * p * (of_p - (of_p * p).sum(-1, keepdim=True))
        found.append((of_scores @ k, of_scores.mT @ q, p.mT @ away))
    joined = (torch.cat(one, 1).transpose(0, 1).contiguous() for one in zip(*found, strict=True))
    of_query, of_key, of_value = joined
    return of_query, of_key, of_value


def is_aligned(x: Tensor) -> bool:
    """Whether a kernel may read 8 numbers of 16 bits at a time, from the first of each head on."""
    row, head, number = x.stride()
    return row % 8 == head % 8 == x.storage_offset() % 8 == 0 and number == 1


def sentences(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Queries, keys and values of each, [h, n, d]."""
    of_query, of_key = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    sides = (x.split(sizes) for x, sizes in ((query, of_query), (key, of_key), (value, of_key)))
    return [(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1))
            for q, k, v in zip(*sides, strict=True)]  # fmt: skip


def weights(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """softmax(s q k^T), [h, n, m]."""
    scores = scale * q @ k.mT
    if causal:
        unseen = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, -torch.inf)
    return scores.softmax(-1)


varlen._varlen_attn.register_kernel("cpu", forward)
varlen._varlen_attn_backward.register_kernel("cpu", backward)


@contextmanager
def packed_attention() -> Iterator[list[tuple[int, ...]]]:
    """Packed sentences are attended as they are, as on a GPU; notes the shape of queries of each
    call."""
    calls: list[tuple[int, ...]] = []
    kernel = varlen_attention.attention

    def noting(queries: Tensor, *rest: Any) -> Tensor:
        calls.append(tuple(queries.shape))
        return kernel(queries, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen_attention, "serves", lambda device, dtype, size: size <= 256)
        patch.setattr(varlen_attention, "attention", noting)
        yield calls
