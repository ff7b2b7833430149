"""Updates, shares and passes: each sentence once, within the budget, the same on any machine."""

from __future__ import annotations

import itertools
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.data import padding_share
from seq2sweep.data.batching import (
    BLOCK,
    EpochPlan,
    Ids,
    collate,
    passes,
    plan_epoch,
    share,
)
from seq2sweep.data.bitext import Side
from seq2sweep.data.vocabulary import BOS, EOS, PAD

pairs_of_lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    source, target = zip(*pairs, strict=True)
    return np.array(source, np.int32), np.array(target, np.int32)


def draw_lengths(sentences: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as those of real text: a skewed source, and a target of about the same length."""
    random = np.random.default_rng(seed)
    source = np.clip(random.gamma(4, 7, sentences), 1, 250)
    target = np.clip(source * random.normal(1.05, 0.2, sentences), 1, 250)
    return source.astype(np.int32), target.astype(np.int32)


def within_budget(ids: Ids, source: np.ndarray, target: np.ndarray, budget: int) -> bool:
    padded = len(ids) * max(source[ids].max(), target[ids].max())
    return bool(padded <= budget or len(ids) == 1)


@settings(max_examples=200)
@given(pairs_of_lengths, st.integers(1, 400), st.integers(0, 5), st.integers(0, 5))
def test_every_sentence_once_and_within_the_budget(
    pairs: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    source, target = columns(pairs)
    plan = plan_epoch(source, target, tokens_per_update=budget, seed=seed, epoch=epoch)
    updates = [plan[i] for i in range(len(plan))]
    assert sorted(np.concatenate(updates).tolist()) == list(range(len(pairs)))
    assert all(len(ids) > 0 for ids in updates)
    assert all(within_budget(ids, source, target, budget) for ids in updates)
    assert {plan.order.dtype, plan.bounds.dtype, plan.turns.dtype} == {np.dtype(np.int64)}


@given(pairs_of_lengths, st.integers(1, 400), st.integers(1, 9), st.integers(1, 200))
def test_shares_and_passes_partition_an_update(
    pairs: list[tuple[int, int]], budget: int, world_size: int, tokens_per_pass: int
) -> None:
    source, target = columns(pairs)
    plan = plan_epoch(source, target, tokens_per_update=budget, seed=1, epoch=0)
    for i in range(len(plan)):
        shares = [share(plan[i], rank, world_size) for rank in range(world_size)]
        assert sorted(itertools.chain(*shares)) == sorted(plan[i])
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        for ids in shares:
            parts = passes(ids, source, target, tokens_per_pass)
            assert sorted(itertools.chain(*parts)) == sorted(ids)
            assert all(len(part) > 0 for part in parts)
            assert all(within_budget(part, source, target, tokens_per_pass) for part in parts)


def test_an_update_is_the_same_for_any_number_of_workers() -> None:
    source, target = draw_lengths(3000)
    plan = plan_epoch(source, target, tokens_per_update=2500, seed=3, epoch=1)
    walks = []
    for world_size in (1, 2, 3, 8):
        walks.append(
            [
                frozenset(
                    itertools.chain(*(share(plan[i], r, world_size) for r in range(world_size)))
                )
                for i in range(len(plan))
            ]
        )
    assert walks.count(walks[0]) == len(walks)


def test_the_plan_is_a_function_of_its_arguments() -> None:
    source, target = draw_lengths(3000)

    def order(tokens_per_update: int = 2500, seed: int = 1, epoch: int = 0) -> list[int]:
        plan = plan_epoch(
            source, target, tokens_per_update=tokens_per_update, seed=seed, epoch=epoch
        )
        return [*plan.order.tolist(), *plan.bounds.tolist(), *plan.turns.tolist()]

    np.random.seed(0)
    first = order()
    np.random.seed(1)
    assert order() == first
    assert order(seed=2) != first
    assert order(epoch=1) != first
    assert order(tokens_per_update=2400) != first
    assert order(seed=0, epoch=1) != order(seed=1, epoch=0)


def test_the_plan_of_today_is_the_plan_of_tomorrow() -> None:
    """A resumed run goes on in this order: a change of it must be noticed."""
    source, target = np.array([3, 1, 2, 3, 9, 2]), np.array([2, 2, 2, 3, 8, 2])
    plan = plan_epoch(source, target, tokens_per_update=9, seed=7, epoch=2)
    assert [plan[i].tolist() for i in range(len(plan))] == [[4], [1, 5, 2], [0, 3]]


def test_sentences_of_one_length_change_company_from_epoch_to_epoch() -> None:
    source = target = np.full(1000, 10, np.int32)
    plans = [plan_epoch(source, target, tokens_per_update=100, seed=1, epoch=e) for e in (0, 1)]
    company = [{frozenset(plan[i].tolist()) for i in range(len(plan))} for plan in plans]
    assert len(company[0]) == 100
    assert not company[0] & company[1]


def test_updates_come_in_random_order() -> None:
    source, target = draw_lengths(20_000)
    plan = plan_epoch(source, target, tokens_per_update=2500, seed=1, epoch=0)
    mean = [float(source[plan[i]].mean()) for i in range(len(plan))]
    correlation = np.corrcoef(mean, np.arange(len(mean)))[0, 1]
    assert abs(correlation) < 0.2


def test_little_is_padding() -> None:
    source, target = draw_lengths(30_000)
    for budget, most in ((2500, 0.04), (25_000, 0.12)):
        plan = plan_epoch(source, target, tokens_per_update=budget, seed=1, epoch=0)
        assert 0 < padding_share(plan, source, target) < most
    # Small passes inside a large update are nearly as good as small updates.
    assert padding_share(plan, source, target, world_size=2, tokens_per_pass=2500) < 0.06


def test_padding_share_counts_what_collate_makes() -> None:
    source, target = draw_lengths(300)
    text = bitext_of(source, target)
    plan = plan_epoch(source, target, tokens_per_update=2000, seed=1, epoch=0)
    padding = total = 0
    for i, rank in itertools.product(range(len(plan)), range(3)):
        for part in passes(share(plan[i], rank, 3), source, target, 500):
            batch = collate(text, part)
            for tokens in (batch.source, batch.target_out):
                padding += int((tokens == PAD).sum())
                total += tokens.numel()
    found = padding_share(plan, source, target, world_size=3, tokens_per_pass=500)
    assert found == pytest.approx(padding / total, abs=1e-12)


def test_equal_lengths_need_no_padding() -> None:
    lengths = np.repeat(np.array([5, 10, 20], np.int32), 40)
    plan = plan_epoch(lengths, lengths, tokens_per_update=200, seed=1, epoch=0)
    assert padding_share(plan, lengths, lengths) == 0
    assert len(plan) == 1 + 2 + 4


def test_a_plan_takes_twelve_bytes_a_sentence() -> None:
    source, target = draw_lengths(4_000_000)
    tracemalloc.start()
    plan = plan_epoch(source, target, tokens_per_update=25_000, seed=1, epoch=0)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.order) == 4_000_000
    one_block = 8 * 8 * BLOCK  # some arrays of 8 bytes a number
    assert peak < 12.5 * 4_000_000 + one_block
    assert kept < 8.5 * 4_000_000


@pytest.mark.parametrize("longest", [1, 2, 60, 5000, 200_000])
def test_neighbours_are_alike_as_a_sort_by_three_keys_would_have_it(longest: int) -> None:
    random = np.random.default_rng(longest)
    source, target = random.integers(1, longest + 1, (2, 3000)).astype(np.int32)
    plan = plan_epoch(source, target, tokens_per_update=2 * longest, seed=5, epoch=1)
    longer, difference = np.maximum(source, target), source - target
    turned = np.where(longer % 2 == 0, difference, -difference)
    found = longer[plan.order], turned[plan.order]
    expected = np.lexsort((turned, longer))
    assert found[0].tolist() == longer[expected].tolist()
    if longest <= 5000:  # beyond that the difference is rounded, to leave room for chance
        assert found[1].tolist() == turned[expected].tolist()
    else:
        assert np.all(np.diff(found[1])[np.diff(found[0]) == 0] > -(2**10))


def test_pairs_that_are_alike_meet_others_in_each_epoch() -> None:
    lengths = np.full(10_000, 7, np.int32)
    orders = [
        plan_epoch(lengths, lengths, tokens_per_update=700, seed=1, epoch=epoch).order
        for epoch in range(2)
    ]
    for order in (*orders, orders[1][np.argsort(orders[0])]):
        assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05


def test_an_update_that_does_not_exist_is_an_error() -> None:
    plan = EpochPlan(np.arange(3), np.array([0, 2, 3]), np.array([1, 0]))
    assert [ids.tolist() for ids in plan] == [[2], [0, 1]]
    for update in (2, -1):
        with pytest.raises(IndexError):
            plan[update]


def bitext_of(source_lengths: np.ndarray, target_lengths: np.ndarray) -> Any:
    """A bitext in memory whose sentence i is made of token 10 + i % 7, EOS last."""

    def side(lengths: np.ndarray) -> Side:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tokens = np.repeat(10 + np.arange(len(lengths)) % 7, lengths).astype(np.uint16)
        tokens[offsets[1:] - 1] = EOS
        return Side(tokens, offsets, lengths)

    return SimpleNamespace(sides={"source": side(source_lengths), "target": side(target_lengths)})


def test_collate_pads_and_shifts() -> None:
    text = bitext_of(np.array([3, 1, 4], np.int32), np.array([2, 5, 1], np.int32))
    batch = collate(text, np.array([2, 0, 1]))
    assert batch.source.tolist() == [
        [12, 12, 12, EOS],
        [10, 10, EOS, PAD],
        [EOS, PAD, PAD, PAD],
    ]
    assert batch.target_out.tolist() == [
        [EOS, PAD, PAD, PAD, PAD],
        [10, EOS, PAD, PAD, PAD],
        [11, 11, 11, 11, EOS],
    ]
    assert batch.target_in.tolist() == [
        [BOS, PAD, PAD, PAD, PAD],
        [BOS, 10, PAD, PAD, PAD],
        [BOS, 11, 11, 11, 11],
    ]
    assert {batch.source.dtype, batch.target_in.dtype, batch.target_out.dtype} == {torch.int64}


@given(pairs_of_lengths)
def test_collate_holds_what_the_bitext_holds(pairs: list[tuple[int, int]]) -> None:
    source, target = columns(pairs)
    text = bitext_of(source, target)
    ids = np.arange(len(pairs))[::-1].copy()
    batch = collate(text, ids)
    for row, i in enumerate(ids):
        assert batch.source[row, : source[i]].tolist() == text.sides["source"][i].tolist()
        expected = text.sides["target"][i].tolist()
        assert batch.target_out[row, : target[i]].tolist() == expected
        assert batch.target_in[row, : target[i]].tolist() == [BOS, *expected[:-1]]
        assert not batch.target_in[row, target[i] :].any()
        assert not batch.target_out[row, target[i] :].any()
