"""Attention of packed sentences on a CPU, one after another: its kernels are for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2sweep.model import varlen_attention


def forward(
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
    """As the kernel, with its demands; what lies outside of all sentences is an error."""
    for x, where, begin, wide in (
        (queries, places, offsets, width),
        (keys, key_places, key_offsets, key_width),
    ):
        assert begin.dtype == torch.int32
        assert int(begin[-1]) == len(x) == len(where)
        lengths = begin.diff()
        assert int(lengths.max()) <= wide
        assert torch.equal(where // wide, torch.arange(len(lengths)).repeat_interleave(lengths))
    found = [
        weights(q, k, causal, scale) @ v
        for q, k, v in sentences(queries, keys, values, offsets, key_offsets)
    ]
    sums = queries.new_empty((queries.size(1), len(queries)), dtype=torch.float32)
    return torch.cat(found, 1).transpose(0, 1).contiguous(), sums


def backward(
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
    """Gradients of queries, keys and values, by the derivative of softmax(s q k^T) v."""
    parts = sentences(queries, keys, values, offsets, key_offsets)
    found = []
    for (q, k, v), part in zip(parts, slope.split(offsets.diff().tolist()), strict=True):
        away, p = part.transpose(0, 1), weights(q, k, causal, scale)
        of_p = away @ v.mT
        of_scores = scale * p * (of_p - (of_p * p).sum(-1, keepdim=True))
        found.append((of_scores @ k, of_scores.mT @ q, p.mT @ away))
    joined = (torch.cat(one, 1).transpose(0, 1).contiguous() for one in zip(*found, strict=True))
    of_queries, of_keys, of_values = joined
    return of_queries, of_keys, of_values


def sentences(
    queries: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, key_offsets: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Queries, keys and values of each, [h, n, d]."""
    of_query, of_key = offsets.diff().tolist(), key_offsets.diff().tolist()
    sides = (x.split(sizes) for x, sizes in ((queries, of_query), (keys, of_key), (values, of_key)))
    return [(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1))
            for q, k, v in zip(*sides, strict=True)]  # fmt: skip


def weights(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """softmax(s q k^T), [h, n, m]."""
    scores = scale * q @ k.mT
    if causal:
        unseen = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(unseen, -torch.inf)
    return scores.softmax(-1)


OPERATORS = torch.library.Library("seq2sweep", "FRAGMENT")
OPERATORS.impl("packed_attention", forward, "CPU")
OPERATORS.impl("packed_attention_backward", backward, "CPU")


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
