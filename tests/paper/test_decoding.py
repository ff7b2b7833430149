"""Section 6.1: beam search against its definition, all translations there are, and greedy search.

Models here compute in float64, so that no two hypotheses are near enough for rounding to order
them; one test shows what float32 changes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from seq2sweep import config as configuration
from seq2sweep.config import Config, TransformerConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from seq2sweep.decode.average import average
from seq2sweep.decode.beam import Hypothesis, Penalty, length_penalty, search, translate
from seq2sweep.errors import UserError
from seq2sweep.model import layers
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import DecoderCache, Transformer

from ..conftest import WORDS, Corpus

CPU = torch.device("cpu")
SMALL = TransformerConfig(
    layers=1,
    d_model=8,
    d_ff=16,
    heads=2,
    d_k=4,
    d_v=4,
    dropout=0.0,
    attention="scaled_dot_product",
    norm="post",
    attention_dropout=0.0,
    feed_forward_dropout=0.0,
    positions="sinusoidal",
    tie_embeddings=False,
)
PENALTIES: list[Penalty] = ["paper", "power"]
ALPHAS = [0.0, 0.6, 2.0]
# The same examples each time; a failing one is not stored beside the tests.
EXAMPLES = 120 if settings.get_current_profile_name() == "thorough" else 60
repeatable = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)


class Leaning(Transformer):
    """A Transformer with a number of its own added to the logit of each piece.

    Notes how many sentences and hypotheses each step of decoding is asked for.
    """

    def __init__(
        self, config: TransformerConfig, vocabulary: int, leanings: dict[int, float]
    ) -> None:
        super().__init__(config, vocabulary)
        self.lean = torch.zeros(vocabulary, dtype=torch.float64)
        for piece, number in leanings.items():
            self.lean[piece] = number
        self.asked: list[tuple[int, int]] = []

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        logits = super().forward(source, target_in)
        return logits + self.lean.to(logits.dtype)

    def step(self, pieces: Tensor, cache: DecoderCache) -> Tensor:
        self.asked.append((pieces.size(0), pieces.size(1)))
        logits = super().step(pieces, cache)
        return logits + self.lean.to(logits.dtype)


class Chain(Leaning):
    """Says what a table tells of the piece before: P(next | piece) = table[piece][next].

    After a piece that the table does not know comes the end.
    """

    def __init__(self, table: dict[int, dict[int, float]]) -> None:
        super().__init__(SMALL, 10, {})
        self.logits = torch.full((10, 10), -math.inf, dtype=torch.float64)
        for piece in range(10):
            for next_piece, probability in table.get(piece, {EOS: 1.0}).items():
                self.logits[piece, next_piece] = math.log(probability)

    def step(self, pieces: Tensor, cache: DecoderCache) -> Tensor:
        super().step(pieces, cache)
        return self.logits[pieces]


def random_model(
    seed: int,
    vocabulary: int,
    sharpness: float = 3.0,
    leanings: dict[int, float] | None = None,
    config: TransformerConfig = SMALL,
) -> Leaning:
    torch.manual_seed(seed)
    model = Leaning(config, vocabulary, leanings or {}).double().eval()
    with torch.no_grad():
        model.projection.weight.mul_(sharpness)
    return model


def padded(rows: Sequence[Sequence[int]], extra: int = 0) -> Tensor:
    source = torch.full((len(rows), max(map(len, rows)) + extra), PAD)
    for i, row in enumerate(rows):
        source[i, : len(row)] = torch.tensor(row)
    return source


def random_rows(seed: int, lengths: Sequence[int], vocabulary: int) -> list[list[int]]:
    torch.manual_seed(seed)
    return [[*torch.randint(UNK, vocabulary, (n,)).tolist(), EOS] for n in lengths]


@torch.no_grad()
def next_log_probabilities(model: Transformer, row: Sequence[int], said: list[int]) -> list[float]:
    """log P(piece | row, said) of every piece, by a forward pass over the whole beginning."""
    logits = model(torch.tensor([row]), torch.tensor([[BOS, *said]]))[0, -1]
    numbers: list[float] = torch.log_softmax(logits, dim=-1).tolist()
    return numbers


@torch.no_grad()
def log_probability(model: Transformer, row: Sequence[int], pieces: list[int]) -> float:
    """log P(pieces | row), by one forward pass."""
    logits = model(torch.tensor([row]), torch.tensor([[BOS, *pieces[:-1]]]))
    return float(torch.log_softmax(logits, -1)[0, range(len(pieces)), pieces].sum())


def penalty_of(kind: Penalty, length: int, alpha: float) -> float:
    """Wu et al. 2016, equation 14, or fairseq's."""
    return float(((5 + length) / 6) ** alpha if kind == "paper" else length**alpha)


def beam_search_as_defined(
    model: Transformer,
    row: Sequence[int],
    beam: int,
    alpha: float,
    kind: Penalty,
    max_extra_tokens: int,
) -> list[Hypothesis]:
    """All that beam search finds for one sentence, best first: no cache, no batch, no hurry."""
    vocabulary = model.vocabulary_size
    opened: list[tuple[float, list[int]]] = [(0.0, [])]
    finished = []
    longest = max(1, len(row) - 1 + max_extra_tokens)
    length = 0
    while opened and length < longest:
        length += 1
        continued = []
        for so_far, said in opened:
            following = next_log_probabilities(model, row, said)
            for piece in range(vocabulary):
                if piece not in (PAD, BOS) and following[piece] > -math.inf:
                    continued.append((so_far + following[piece], [*said, piece]))
        continued.sort(key=lambda candidate: -candidate[0])
        finished += [candidate for candidate in continued[:beam] if candidate[1][-1] == EOS]
        opened = [candidate for candidate in continued if candidate[1][-1] != EOS][:beam]
        if beam == 1 and finished:
            break
    found = finished or opened
    scored = [Hypothesis(said, score / penalty_of(kind, len(said), alpha)) for score, said in found]
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], within: float = 1e-9) -> None:
    assert [h.pieces for h in found] == [h.pieces for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=within)


# --- what is sought ----------------------------------------------------------------------------


def test_length_penalties_by_hand() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(13, 0.5) == pytest.approx(3**0.5)
    # fairseq's: plain powers of the length.
    assert length_penalty(1, 0.6, "power") == 1.0
    assert length_penalty(4, 0.5, "power") == 2.0
    assert length_penalty(7, 2.0, "power") == 49.0
    assert length_penalty(9, 0.0, "paper") == length_penalty(9, 0.0, "power") == 1.0


@pytest.mark.parametrize(
    ("kind", "alpha", "expected"),
    [
        # log 0.6 = -0.511 against log 0.4 = -0.916 over 1, 7/6 and 2.
        ("paper", 0.0, [([EOS], math.log(0.6)), ([5, EOS], math.log(0.4))]),
        ("paper", 1.0, [([EOS], math.log(0.6)), ([5, EOS], math.log(0.4) * 6 / 7)]),
        ("power", 1.0, [([5, EOS], math.log(0.4) / 2), ([EOS], math.log(0.6))]),
    ],
)
def test_each_penalty_has_its_own_winner(
    kind: Penalty, alpha: float, expected: list[tuple[list[int], float]]
) -> None:
    model = Chain({BOS: {EOS: 0.6, 5: 0.4}, 5: {EOS: 1.0}})
    found = search(
        model,
        torch.tensor([[4, EOS]]),
        beam=2,
        alpha=alpha,
        penalty=kind,
        max_extra_tokens=4,
        n_best=2,
    )
    assert_same(found[0], [Hypothesis(pieces, score) for pieces, score in expected])


EVERY = [  # all that can be said with 3, 4, 5 and an end, in at most four pieces
    [*prefix, EOS] for n in range(4) for prefix in itertools.product([3, 4, 5], repeat=n)
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", PENALTIES)
def test_a_beam_of_all_finds_the_exhaustive_optimum(seed: int, alpha: float, kind: Penalty) -> None:
    model = random_model(seed, vocabulary=6)
    row = [3, 4, EOS]
    every = [
        Hypothesis(y, log_probability(model, row, y) / penalty_of(kind, len(y), alpha))
        for y in EVERY
    ]
    every.sort(key=lambda hypothesis: -hypothesis.score)
    for n_best in (1, 3, len(every)):
        found = search(
            model,
            torch.tensor([row]),
            beam=4**4,
            alpha=alpha,
            penalty=kind,
            max_extra_tokens=2,
            n_best=n_best,
        )
        assert_same(found[0], every[:n_best])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lean", [-2.0, 0.0, 2.0])
def test_beam_one_is_greedy(seed: int, lean: float) -> None:
    model = random_model(seed, 12, leanings={EOS: lean})
    row = [5, 7, 4, EOS]
    pieces: list[int] = []
    while len(pieces) < 9 and (not pieces or pieces[-1] != EOS):
        following = next_log_probabilities(model, row, pieces)
        pieces.append(max(set(range(12)) - {PAD, BOS}, key=lambda piece: following[piece]))
    found = search(model, torch.tensor([row]), beam=1, alpha=0.6, max_extra_tokens=6)[0]
    expected = log_probability(model, row, pieces) / ((5 + len(pieces)) / 6) ** 0.6
    assert_same(found, [Hypothesis(pieces, expected)])


@repeatable
@given(
    seed=st.integers(0, 1000),
    vocabulary=st.integers(4, 12),
    sharpness=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    lean=st.sampled_from([-3.0, 0.0, 2.0]),
    beam=st.integers(1, 6),
    alpha=st.sampled_from(ALPHAS),
    kind=st.sampled_from(PENALTIES),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    max_extra_tokens=st.integers(0, 5),
    variant=st.sampled_from(
        [
            {},
            {"layers": 2, "heads": 3, "d_k": 3, "d_v": 5, "tie_embeddings": True},
            {"norm": "pre", "positions": "learned"},
            {"attention": "additive"},
        ]
    ),
)
def test_cached_batched_search_is_beam_search_as_defined(
    seed: int,
    vocabulary: int,
    sharpness: float,
    lean: float,
    beam: int,
    alpha: float,
    kind: Penalty,
    lengths: list[int],
    max_extra_tokens: int,
    variant: dict[str, Any],
) -> None:
    config = dataclasses.replace(SMALL, **variant)
    model = random_model(seed, vocabulary, sharpness, {EOS: lean}, config)
    rows = random_rows(seed, lengths, vocabulary)
    found = search(
        model,
        padded(rows),
        beam=beam,
        alpha=alpha,
        penalty=kind,
        max_extra_tokens=max_extra_tokens,
        n_best=beam,
    )
    for row, hypotheses in zip(rows, found, strict=True):
        expected = beam_search_as_defined(model, row, beam, alpha, kind, max_extra_tokens)
        assert_same(hypotheses, expected[:beam])


def test_a_beam_larger_than_the_vocabulary() -> None:
    model = random_model(3, 5)  # 3, 4 and the end can be said
    row = [3, 4, 3, EOS]
    expected = beam_search_as_defined(model, row, 9, 0.6, "paper", 2)
    for n_best in (1, 9):
        found = search(
            model, torch.tensor([row]), beam=9, alpha=0.6, max_extra_tokens=2, n_best=n_best
        )
        assert_same(found[0], expected[:n_best])
    assert len(expected) > 9  # so the last list was cut


@pytest.mark.parametrize("said", [0, 2])
def test_a_model_whose_numbers_are_lost_is_told(said: int) -> None:
    """From the first step on, or after some pieces."""
    model = random_model(3, 12, leanings={EOS: -9.0})

    def step(pieces: Tensor, cache: DecoderCache) -> Tensor:
        logits = Leaning.step(model, pieces, cache)
        return logits if len(model.asked) <= said else torch.full_like(logits, math.nan)

    model.step = step  # type: ignore[method-assign]
    with pytest.raises(UserError, match="the model's outputs are NaN"):
        search(model, torch.tensor([[3, 4, EOS]]), beam=2, alpha=0.6, max_extra_tokens=5)


def test_a_vocabulary_of_one_piece() -> None:
    """Nothing but the end can be said; or the end and one word, again and again."""
    model = random_model(0, UNK)
    row = [EOS]
    found = search(model, torch.tensor([row]), beam=4, alpha=0.6, max_extra_tokens=5, n_best=4)[0]
    assert_same(found, [Hypothesis([EOS], log_probability(model, row, [EOS]))])
    assert len(model.asked) == 1
    model = random_model(0, UNK + 1)
    row = [UNK, EOS]
    found = search(model, torch.tensor([row]), beam=9, alpha=0.6, max_extra_tokens=4, n_best=9)[0]
    assert sorted(h.pieces for h in found) == sorted([UNK] * n + [EOS] for n in range(5))


@pytest.mark.parametrize("n_best", [-1, 0, 4])
def test_n_best_beyond_the_beam_is_refused(n_best: int) -> None:
    with pytest.raises(ValueError, match=f"n_best is {n_best}: it must be from 1 to the beam, 3"):
        search(
            random_model(0, 6),
            torch.tensor([[3, EOS]]),
            beam=3,
            alpha=0.6,
            max_extra_tokens=2,
            n_best=n_best,
        )


# --- when it ends ------------------------------------------------------------------------------


@repeatable
@given(
    seed=st.integers(0, 1000),
    sharpness=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    lean=st.sampled_from([-2.0, 0.0, 2.0]),
    beam_and_n_best=st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k))),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    kind=st.sampled_from(PENALTIES),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    padding=st.integers(0, 3),
)
def test_early_stop_batch_and_padding_change_nothing(
    seed: int,
    sharpness: float,
    lean: float,
    beam_and_n_best: tuple[int, int],
    alpha: float,
    kind: Penalty,
    lengths: list[int],
    padding: int,
) -> None:
    model = random_model(seed, 12, sharpness, {EOS: lean})
    rows = random_rows(seed, lengths, 12)
    beam, n_best = beam_and_n_best
    options: dict[str, Any] = {"beam": beam, "n_best": n_best, "alpha": alpha, "penalty": kind}
    options["max_extra_tokens"] = 6
    together = search(model, padded(rows, padding), **options)
    patient = search(model, padded(rows), early_stop=False, **options)
    for i, row in enumerate(rows):
        alone = search(model, torch.tensor([row]), **options)[0]
        assert_same(together[i], alone)
        assert_same(patient[i], alone)
        assert 1 <= len(alone) <= n_best
        for hypothesis in alone:
            assert len(hypothesis.pieces) <= len(row) - 1 + 6
            assert not {PAD, BOS} & set(hypothesis.pieces)
            assert EOS not in hypothesis.pieces[:-1]
            expected = log_probability(model, row, hypothesis.pieces)
            divisor = penalty_of(kind, len(hypothesis.pieces), alpha)
            assert hypothesis.score == pytest.approx(expected / divisor, abs=1e-9)


LATE = {  # what wins in the end is behind at every step but the last
    BOS: {EOS: 0.6, 5: 0.4},
    5: {6: 1.0},
    6: {7: 1.0},
    7: {8: 1.0},
    8: {EOS: 1.0},
}


@pytest.mark.parametrize("early_stop", [True, False])
def test_it_waits_for_a_longer_one_that_may_win(early_stop: bool) -> None:
    found = search(
        Chain(LATE),
        torch.tensor([[4, EOS]]),
        beam=2,
        alpha=2.0,
        max_extra_tokens=4,
        n_best=2,
        early_stop=early_stop,
    )
    # At length 1 the open one has log 0.4 = -0.916 against -0.511; at length 5 a 2.78th of it.
    winner = Hypothesis([5, 6, 7, 8, EOS], math.log(0.4) / (10 / 6) ** 2)
    assert_same(found[0], [winner, Hypothesis([EOS], math.log(0.6))])


@pytest.mark.parametrize(
    ("max_extra_tokens", "n_best", "steps"),
    [
        # No more than 4 pieces: -0.916 / 2.25 = -0.407 is still within reach, 3 pieces: not.
        (3, 1, 4),
        (2, 1, 1),
        (2, 2, 3),
    ],
)
def test_it_ends_as_soon_as_nothing_can_change(
    max_extra_tokens: int, n_best: int, steps: int
) -> None:
    model = Chain(LATE)
    options: dict[str, Any] = {"beam": 2, "alpha": 2.0, "max_extra_tokens": max_extra_tokens}
    source = torch.tensor([[4, EOS]])
    found = search(model, source, n_best=n_best, **options)[0]
    assert [h.pieces for h in found] == [[EOS]]
    assert len(model.asked) == steps
    model.asked.clear()
    assert_same(search(model, source, n_best=n_best, early_stop=False, **options)[0], found)
    assert len(model.asked) == 1 + max_extra_tokens


def test_finished_sentences_leave_the_batch() -> None:
    model = random_model(1, 12)
    rows = random_rows(1, [6, 1, 3, 5, 2, 4, 6], 12)
    options: dict[str, Any] = {"beam": 3, "alpha": 0.6, "max_extra_tokens": 8, "n_best": 3}
    steps = []
    for row in rows:
        model.asked.clear()
        search(model, torch.tensor([row]), **options)
        steps.append(len(model.asked))
    model.asked.clear()
    search(model, padded(rows), **options)
    assert [sentences for sentences, _ in model.asked] == [
        sum(length > step for length in steps) for step in range(max(steps))
    ]
    assert len(set(steps)) > 2  # they do end at different steps
    assert model.asked[0] == (7, 1)  # one hypothesis, nothing said, to begin with
    assert all(hypotheses == 3 for _, hypotheses in model.asked[1:])


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("max_extra_tokens", [0, 3])
def test_a_model_that_never_ends_is_cut(beam: int, max_extra_tokens: int) -> None:
    model = random_model(2, 12, leanings={EOS: -math.inf})
    rows = random_rows(2, [4, 0, 1], 12)
    found = search(
        model,
        padded(rows),
        beam=beam,
        alpha=0.6,
        max_extra_tokens=max_extra_tokens,
        n_best=beam,
    )
    for row, hypotheses in zip(rows, found, strict=True):
        # At least one piece, even where no word is to be translated and none may be added.
        length = max(1, len(row) - 1 + max_extra_tokens)
        assert [len(h.pieces) for h in hypotheses] == [length] * beam
        assert all(EOS not in h.pieces for h in hypotheses)
        expected = beam_search_as_defined(model, row, beam, 0.6, "paper", max_extra_tokens)
        assert_same(hypotheses, expected)


def test_no_more_is_cut_than_there_is() -> None:
    """A beam of nine, but at its only step just two words can be said, and no end."""
    model = random_model(2, 5, leanings={EOS: -math.inf})
    found = search(model, torch.tensor([[EOS]]), beam=9, alpha=0.6, max_extra_tokens=1, n_best=9)[0]
    assert sorted(h.pieces for h in found) == [[3], [4]]


def test_one_that_ends_is_preferred_to_one_that_is_cut() -> None:
    """Even a bad one: the end comes with P = 0.01, at the second step alone."""
    model = Chain({BOS: {5: 1.0}, 5: {6: 0.99, EOS: 0.01}, 6: {6: 1.0}})
    found = search(model, torch.tensor([[4, EOS]]), beam=2, alpha=0.0, max_extra_tokens=5, n_best=2)
    assert_same(found[0], [Hypothesis([5, EOS], math.log(0.01))])


def test_padding_and_begin_are_never_said() -> None:
    model = random_model(4, 12, leanings={PAD: 20.0, BOS: 20.0})
    rows = random_rows(4, [3, 5], 12)
    found = search(model, padded(rows), beam=4, alpha=0.6, max_extra_tokens=4, n_best=4)
    for row, hypotheses in zip(rows, found, strict=True):
        assert len(hypotheses) == 4
        for h in hypotheses:
            assert not {PAD, BOS} & set(h.pieces)
            # Their probability is lost, not shared out: a score is what the model gives.
            assert h.score < -15 * len(h.pieces) / penalty_of("paper", len(h.pieces), 0.6)
            expected = log_probability(model, row, h.pieces)
            assert h.score == pytest.approx(
                expected / penalty_of("paper", len(h.pieces), 0.6), abs=1e-9
            )


@pytest.mark.parametrize("seed", range(3))
def test_float32_gives_the_same_translations(seed: int) -> None:
    exact = random_model(seed, 12)
    rows = random_rows(seed, [3, 6, 1], 12)
    options: dict[str, Any] = {"beam": 4, "alpha": 0.6, "max_extra_tokens": 5, "n_best": 4}
    expected = search(exact, padded(rows), **options)
    found = search(exact.float(), padded(rows), **options)
    for hypotheses, same in zip(found, expected, strict=True):
        assert_same(hypotheses, same, within=1e-5)


# --- from text to text -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vocabulary(tiny_corpus: Corpus) -> Vocabulary:
    return Vocabulary.open(tiny_corpus.vocabulary)


@pytest.fixture
def model(tiny_config: Config, vocabulary: Vocabulary) -> Transformer:
    """It ends sooner or later: translations have many lengths."""
    torch.manual_seed(0)
    return Leaning(tiny_config.model, len(vocabulary), {EOS: 1.0}).double().eval()


def changed(config: Config, **changes: object) -> configuration.EvaluateConfig:
    values = {f"evaluate.{key}": value for key, value in changes.items()}
    return configuration.with_changes(config, values).evaluate


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 8000])
def test_translations_keep_the_order_and_empty_lines_stay_empty(
    tiny_config: Config, vocabulary: Vocabulary, model: Transformer, tokens_per_batch: int
) -> None:
    lines = ["", *WORDS, " ".join(WORDS), "  ", " ".join(WORDS[:3]), "\t", WORDS[0], ""]
    config = changed(tiny_config, tokens_per_batch=tokens_per_batch, max_extra_tokens=5)
    done: list[int] = []
    together = translate(model, vocabulary, lines, config, CPU, done.append, n_best=3)
    alone = [translate(model, vocabulary, [line], config, CPU, n_best=3)[0] for line in lines]
    assert len(together) == len(lines)
    for line, found, same in zip(lines, together, alone, strict=True):
        assert [t.text for t in found] == [t.text for t in same]
        assert [t.score for t in found] == pytest.approx([t.score for t in same], abs=1e-9)
        assert [t.score for t in found] == sorted((t.score for t in found), reverse=True)
        if not line.strip():
            assert [(t.text, t.score) for t in found] == [("", 0.0)]
    best = translate(model, vocabulary, lines, config, CPU)
    assert [[t.text for t in found] for found in best] == [[f[0].text] for f in together]
    assert len({found[0].score for found in together}) > 10  # so that an order can be lost
    assert sum(done) == len(lines)
    assert (len(done) > 2) == (tokens_per_batch < 8000)


def test_nothing_to_translate(
    tiny_config: Config, vocabulary: Vocabulary, model: Transformer
) -> None:
    assert translate(model, vocabulary, [], tiny_config.evaluate, CPU) == []
    found = translate(model, vocabulary, ["", " "], tiny_config.evaluate, CPU)
    assert [[t.text for t in each] for each in found] == [[""], [""]]


@pytest.mark.parametrize(
    ("beam", "kind", "alpha", "max_extra_tokens"),
    [(5, "power", 1.5, 2), (5, "paper", 1.5, 2), (4, "power", 0.6, 2), (4, "power", 1.5, 0)],
)
def test_translations_are_what_search_finds(
    tiny_config: Config,
    vocabulary: Vocabulary,
    model: Transformer,
    beam: int,
    kind: Penalty,
    alpha: float,
    max_extra_tokens: int,
) -> None:
    """With every choice of the configuration: none is lost on the way."""
    config = changed(
        tiny_config,
        beam=beam,
        length_penalty=kind,
        alpha=alpha,
        max_extra_tokens=max_extra_tokens,
    )
    line = "alpha rot vier"
    row = vocabulary.encode([line])[0]
    expected = beam_search_as_defined(model, row, beam, alpha, kind, max_extra_tokens)[:4]
    assert len({len(h.pieces) for h in expected}) > 1  # or penalties would change nothing
    found = translate(model, vocabulary, [line], config, CPU, n_best=4)[0]
    assert [t.text for t in found] == vocabulary.decode([h.pieces for h in expected])
    assert [t.score for t in found] == pytest.approx([h.score for h in expected], abs=1e-9)


def test_long_lines_are_cut_and_named(
    tiny_config: Config,
    vocabulary: Vocabulary,
    model: Transformer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = changed(tiny_config, max_input_tokens=6, max_extra_tokens=4)
    long, fitting = " ".join(WORDS), "alpha"
    row = vocabulary.encode([long])[0]
    assert len(row) > 6 >= len(vocabulary.encode([fitting])[0])
    lines = [fitting, long, "", fitting, long]
    found = translate(model, vocabulary, lines, config, CPU)
    printed = capsys.readouterr()
    assert printed.out == ""  # where the translations of a command go
    assert printed.err == "2 input line(s) of more than 6 tokens are cut there: line 2, 5\n"
    expected = beam_search_as_defined(model, [*row[:5], EOS], 4, 0.6, "paper", 4)[0]
    for i in (1, 4):
        assert found[i][0].text == vocabulary.decode([expected.pieces])[0]
        assert found[i][0].score == pytest.approx(expected.score, abs=1e-9)
    # Six pieces are not more than six, and the rest is as if no line had been cut.
    just = next(
        text
        for n in range(len(WORDS))
        for text in [" ".join(WORDS[:1] * n)]
        if len(vocabulary.encode([text])[0]) == 6
    )
    same = translate(model, vocabulary, [fitting, just], config, CPU)
    assert capsys.readouterr().err == ""
    assert same[0][0].text == found[0][0].text == found[3][0].text
    translate(model, vocabulary, [fitting, *[long] * 7], config, CPU)
    assert capsys.readouterr().err.endswith(": line 2, 3, 4, 5, 6, ...\n")


def test_learned_positions_bound_input_and_output(
    tiny_config: Config,
    vocabulary: Vocabulary,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    longest = 64
    for module in (layers, transformer):
        monkeypatch.setattr(module, "LEARNED_POSITIONS", longest)
    torch.manual_seed(0)
    learned = dataclasses.replace(SMALL, positions="learned")
    model = Leaning(learned, len(vocabulary), {EOS: -math.inf}).eval()
    config = changed(tiny_config, beam=1, max_input_tokens=5000, max_extra_tokens=50)
    line = "alpha " * longest
    row = vocabulary.encode([line])[0]
    assert len(row) > longest
    found = translate(model, vocabulary, [line], config, CPU)[0]
    assert capsys.readouterr().err == (
        f"1 input line(s) of more than {longest} tokens are cut there: line 1\n"
    )
    # The input's length and 50 more would be more positions than the decoder has.
    assert len(model.asked) == longest
    assert len(found) == 1


# --- checkpoint averaging ----------------------------------------------------------------------


def checkpoint(folder: Path, number: int, kind: torch.dtype = torch.float32) -> Path:
    """A file of random tensors, of many sizes."""
    torch.manual_seed(number)
    scale = torch.logspace(-6, 3, 40)
    tensors = {"a": torch.randn(7, 40) * scale, "b.c": torch.randn(3), "d": torch.randn(2, 3, 4)}
    file = folder / f"{number}.safetensors"
    save_file({name: tensor.to(kind) for name, tensor in tensors.items()}, file)
    return file


def as_numpy(file: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    from safetensors.torch import load_file

    return {name: tensor.double().numpy() for name, tensor in load_file(file).items()}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_average_is_the_exact_mean(tmp_path: Path, kind: torch.dtype, count: int) -> None:
    files = [checkpoint(tmp_path, i, kind) for i in range(count)]
    mean = average(files)
    loaded = [as_numpy(file) for file in files]
    assert mean.keys() == loaded[0].keys()
    for name, tensor in mean.items():
        expected = np.mean([each[name] for each in loaded], axis=0, dtype=np.float64)
        assert tensor.dtype == torch.float32
        assert np.array_equal(tensor.numpy(), expected.astype(np.float32)), name
    if count == 1:  # the mean of one is that one, bit by bit
        assert all(np.array_equal(mean[name].double().numpy(), loaded[0][name]) for name in mean)


def test_average_does_not_depend_on_the_order(tmp_path: Path) -> None:
    files = [checkpoint(tmp_path, i) for i in range(4)]
    expected = average(files)
    for order in itertools.permutations(files):
        mean = average(order)
        assert all(torch.equal(mean[name], expected[name]) for name in expected)
    # Some of them, from anywhere: here the first and the last.
    pair = average([files[3], files[0]])
    first, last = as_numpy(files[0]), as_numpy(files[3])
    assert np.array_equal(pair["a"].numpy(), ((first["a"] + last["a"]) / 2).astype(np.float32))
    assert not torch.equal(pair["a"], expected["a"])


def test_average_is_the_mean(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for i, file in enumerate(files):
        save_file({"a": torch.tensor([float(i), 1.0]), "b": torch.full((2, 2), i * 3.0)}, file)
    mean = average(files)
    assert mean["a"].tolist() == [1.0, 1.0]
    assert torch.equal(mean["b"], torch.full((2, 2), 3.0))
    # float32 would lose the one beside the hundred million.
    for file, number in zip(files, (1e8, 1.0, -1e8), strict=True):
        save_file({"a": torch.tensor([number])}, file)
    assert average(files)["a"].item() == pytest.approx(1 / 3)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for file in files:
        save_file({"a": torch.zeros(2), "b": torch.zeros(2, 2)}, file)
    save_file({"a": torch.zeros(3), "b": torch.zeros(2, 2)}, files[0])
    with pytest.raises(ValueError, match="another shape"):
        average(files)
    save_file({"c": torch.zeros(3)}, files[0])
    with pytest.raises(ValueError, match="other tensors"):
        average(files)
    with pytest.raises(ValueError, match="no checkpoint"):
        average([])
