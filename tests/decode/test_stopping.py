"""When a search ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.config import Config
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode.beam import Hypothesis, OurSearch, Penalty, search

from ..paper.test_decoding import (
    ALPHAS,
    LATE,
    PENALTIES,
    SMALL,
    Chain,
    Leaning,
    assert_same,
    beam_search_as_defined,
    next_log_probabilities,
    padded,
    penalty_of,
    random_model,
    random_rows,
    repeatable,
)


def own_length_as_defined(
    model: Leaning, row: Sequence[int], beam: int, n_best: int, options: dict[str, Any]
) -> list[Hypothesis]:
    """One sentence, all hypotheses, until the best open one is no better than what has finished."""
    alpha, kind = options["alpha"], options["penalty"]
    opened: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for length in range(1, max(1, len(row) - 1 + options["max_extra_tokens"]) + 1):
        continued = [
            (so_far + number, [*said, piece])
            for so_far, said in opened
            for piece, number in enumerate(next_log_probabilities(model, row, said))
            if piece not in (PAD, BOS)
        ]
        continued.sort(key=lambda candidate: -candidate[0])
        divisor = penalty_of(kind, length, alpha)
        ended = [one for one in continued[:beam] if one[1][-1] == EOS]
        finished += [Hypothesis(said, number / divisor) for number, said in ended]
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        opened = [one for one in continued if one[1][-1] != EOS][:beam]
        if finished and beam == 1:
            break
        if len(finished) >= n_best and finished[n_best - 1].score >= opened[0][0] / divisor:
            break
    cut = [Hypothesis(said, number / divisor) for number, said in opened]
    return (finished or cut)[:n_best]


EXAMPLES = given(
    seed=st.integers(0, 1000),
    sharpness=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    lean=st.sampled_from([-2.0, 0.0, 2.0]),
    beam_and_n_best=st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k))),
    alpha=st.sampled_from([*ALPHAS, 2.0]),
    kind=st.sampled_from(PENALTIES),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
)


def each_rule(
    seed: int,
    sharpness: float,
    lean: float,
    beam_and_n_best: tuple[int, int],
    alpha: float,
    kind: Penalty,
    lengths: list[int],
) -> None:
    model = random_model(seed, 12, sharpness, {EOS: lean})
    rows = random_rows(seed, lengths, 12)
    beam, n_best = beam_and_n_best
    options: dict[str, Any] = {"alpha": alpha, "penalty": kind, "max_extra_tokens": 6}
    exact = search(model, padded(rows), beam=beam, n_best=n_best, **options)
    own = search(model, padded(rows), beam=beam, n_best=n_best, stopping="own_length", **options)
    for i, row in enumerate(rows):
        assert_same(exact[i], beam_search_as_defined(model, row, beam, alpha, kind, 6)[:n_best])
        assert_same(own[i], own_length_as_defined(model, row, beam, n_best, options))


def test_each_rule_is_the_search_that_it_says(thorough: bool) -> None:
    few = settings(repeatable, max_examples=40 if thorough else 28)
    few(EXAMPLES(each_rule))()


@pytest.mark.parametrize(
    ("beam", "n_best", "kind", "alpha"),
    [
        (2, 1, "power", 1.0),
        (4, 1, "paper", 0.6),
        (4, 1, "paper", 0.0),
        (4, 3, "power", 0.6),
        (8, 2, "paper", 2.0),
    ],
)
def test_many_sentences_are_what_they_are_without_stopping(
    beam: int, n_best: int, kind: Penalty, alpha: float, thorough: bool
) -> None:
    # With several blocks of pieces, and some that are in none.
    model = random_model(beam, 300, 3.0, {EOS: 6.0})
    rows = random_rows(beam, [1 + i % 7 for i in range(1000 if thorough else 400)], 300)
    options: dict[str, Any] = {"beam": beam, "n_best": n_best, "alpha": alpha, "penalty": kind}
    options |= {"max_extra_tokens": 12}
    found = search(model, padded(rows), **options)
    patient = search(model, padded(rows), early_stop=False, **options)
    for ours, theirs in zip(found, patient, strict=True):
        assert_same(ours, theirs, within=1e-12)


@pytest.mark.parametrize("mixer", ["restricted", "convolutional", "recurrent", "separable"])
def test_other_mixers_are_searched_as_without_stopping(mixer: str) -> None:
    config = dataclasses.replace(SMALL, decoder_mixer=mixer, mixer_neighbourhood=3, mixer_kernel=3)
    model = random_model(1, 12, 3.0, {EOS: 2.0}, config)
    rows = random_rows(1, [1 + i % 6 for i in range(40)], 12)
    options: dict[str, Any] = {"beam": 4, "alpha": 0.6, "max_extra_tokens": 8}
    found = search(model, padded(rows), **options)
    patient = search(model, padded(rows), early_stop=False, **options)
    for ours, theirs in zip(found, patient, strict=True):
        assert_same(ours, theirs, within=1e-12)


def test_by_its_own_length_a_longer_one_may_be_missed(tiny_config: Config) -> None:
    changes: dict[str, Any] = {"beam": 2, "alpha": 2.0, "max_extra_tokens": 4}
    config = dataclasses.replace(tiny_config.evaluate, length_penalty="paper", **changes)
    assert config.stopping == "exact"
    own = dataclasses.replace(config, stopping="own_length")
    exact, early = (
        OurSearch(Chain(LATE), of, torch.device("cpu"))([[4, EOS]], n_best=1)[0]
        for of in (config, own)
    )
    assert_same(exact, [Hypothesis([5, 6, 7, 8, EOS], math.log(0.4) / (10 / 6) ** 2)])
    assert_same(early, [Hypothesis([EOS], math.log(0.6))])
