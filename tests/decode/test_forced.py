"""Log-probabilities of given translations are what a search says of them, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import BOS, EOS
from seq2sweep.decode import forced
from seq2sweep.decode.beam import length_penalty, search
from seq2sweep.decode.forced import PairScore, score_pairs

from ..paper.models import VOCABULARY, randomised, small
from ..paper.test_decoding import random_rows
from ..paper.test_rivals import SETTINGS, made

CPU = torch.device("cpu")
LENGTHS = [3, 1, 7, 0, 5, 3]
TRANSFORMER = vars(small()) | {"architecture": "transformer"}


def bitext(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Bitext:
    sides = []
    for rows in (sources, targets):
        lengths = np.array([*map(len, rows)], np.int32)
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        sides.append(Side(np.array([i for row in rows for i in row]), offsets, lengths))
    return Bitext({}, *sides)


def scores(model: Any, pairs: Bitext, tokens: int = 8000) -> list[PairScore]:
    found = dict(score_pairs(model, pairs, tokens_per_batch=tokens, device=CPU))
    assert sorted(found) == [*range(len(pairs))]
    return [found[i] for i in range(len(pairs))]


@torch.no_grad()
def step_by_step(model: Any, source: Sequence[int], target: Sequence[int]) -> float:
    """The log-probability of a target as decoding gives it, a token at a time."""
    cache, total = model.start(torch.tensor([source])), 0.0
    for before, piece in zip([BOS, *target], target, strict=False):
        logits = model.step(torch.tensor([[before]]), cache)
        total += float(logits.log_softmax(-1)[0, 0, piece])
    return total


@pytest.mark.parametrize("changes", [*SETTINGS, TRANSFORMER], ids=lambda c: c["architecture"])
def test_it_is_the_sum_over_decoding_steps(changes: dict[str, Any]) -> None:
    model = made(changes).eval()
    sources = random_rows(0, LENGTHS, VOCABULARY)
    targets = random_rows(1, LENGTHS[::-1], VOCABULARY)
    expected = [step_by_step(model, *pair) for pair in zip(sources, targets, strict=True)]
    for tokens in (1, 12, 8000):
        found = scores(model, bitext(sources, targets), tokens)
        assert [one.log_probability for one in found] == pytest.approx(expected, abs=1e-9)
        assert [one.tokens for one in found] == [n + 1 for n in LENGTHS[::-1]]
    assert found[0].mean == pytest.approx(expected[0] / (LENGTHS[-1] + 1))
    assert len({round(number, 6) for number in expected}) == len(expected)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_it_is_what_beam_search_says_of_its_own(alpha: float) -> None:
    """Before the length penalty; of those that ended, and of those that were cut."""
    model = randomised(small(), seed=3, vocabulary=12).double()
    rows = random_rows(4, [5, 2, 6, 0], 12)
    sources, targets, expected = [], [], []
    for row in rows:
        source = torch.tensor([row])
        best = search(model, source, beam=5, alpha=alpha, max_extra_tokens=1, n_best=5)[0]
        for one in best:
            sources.append(row)
            targets.append(one.pieces)
            expected.append(one.score * length_penalty(len(one.pieces), alpha))
    assert len(expected) > 5
    assert {pieces[-1] == EOS for pieces in targets} == {True, False}
    found = scores(model, bitext(sources, targets))
    assert [one.log_probability for one in found] == pytest.approx(expected, abs=1e-9)


def test_logits_in_parts_are_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = randomised(small(), vocabulary=12).double()
    pairs = bitext(random_rows(0, LENGTHS, 12), random_rows(1, LENGTHS, 12))
    whole = scores(model, pairs)
    monkeypatch.setattr(forced, "CHUNK", {True: 5 * 12, False: 1})
    assert [one.log_probability for one in scores(model, pairs)] == pytest.approx(
        [one.log_probability for one in whole], abs=1e-12
    )


def test_dropout_is_off_and_float32_is_near() -> None:
    model = made(TRANSFORMER | {"dropout": 0.5})
    pairs = bitext(random_rows(0, LENGTHS, VOCABULARY), random_rows(1, LENGTHS, VOCABULARY))
    exact = scores(model.train(), pairs)
    assert exact == scores(model.eval(), pairs)
    found = scores(model.float(), pairs)
    assert [one.log_probability for one in found] == pytest.approx(
        [one.log_probability for one in exact], abs=1e-4
    )
