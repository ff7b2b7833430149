"""Streamed translations: what was said is never taken back, and nothing is held back for long."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config, EvaluateConfig
from seq2sweep.data import vocabulary as learning
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from seq2sweep.decode import beam
from seq2sweep.decode.beam import length_penalty, translate
from seq2sweep.decode.streaming import Part, stream
from seq2sweep.errors import UserError
from seq2sweep.model import products

from ..conftest import WORDS, Corpus
from ..paper.test_decoding import Chain, random_model
from ..paper.test_decoding import next_log_probabilities as following

CPU = torch.device("cpu")
LINES = ["alpha beta", "", WORDS[9], " ".join(WORDS), " \t", "eins"]
TEXT = [*WORDS, " ".join(WORDS), "grün gelb rot", "\u00fcber \u3000 \u20ac 5"]
KINDS: dict[str, dict[str, object]] = {
    "bpe": {"size": 90},
    "byte_fallback": {"size": 320, "byte_fallback": True},
    "unigram": {"kind": "unigram", "size": 40},
    "word_piece": {"kind": "word_piece", "size": 60},
    "characters": {"kind": "characters", "size": 60},
    "bytes": {"kind": "bytes", "size": 260},
}
repeatable = settings(deadline=None, derandomize=True, database=None)


def options(**changes: Any) -> EvaluateConfig:
    evaluate = presets.load("phrasebook").config.evaluate
    return replace(evaluate, max_extra_tokens=8, **changes)


def joined(parts: Sequence[Part], lines: int) -> list[str]:
    return ["".join(part.text for part in parts if part.line == i) for i in range(lines)]


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest, tiny_config: Config) -> Vocabulary:
    changes = {f"vocabulary.{key}": value for key, value in KINDS[request.param].items()}
    config = configuration.with_changes(tiny_config, changes).vocabulary
    return Vocabulary(learning.train(TEXT * 20, config))


def words(vocabulary: Vocabulary) -> dict[int, float]:
    """What lets a random model say words, of a few pieces each, and not one long one."""
    tokens = vocabulary.tokens(range(len(vocabulary)))
    return {i: 3.0 for i, token in enumerate(tokens) if token.startswith("▁")} | {UNK: -9.0}


EXAMPLES = given(
    seed=st.integers(0, 1000),
    sharpness=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
    lean=st.sampled_from([-2.0, 0.0, 3.0]),
    beam=st.integers(1, 8),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    budget=st.sampled_from([1, 100, 8000]),
)


def joined_stream(
    vocabulary: Vocabulary,
    seed: int,
    sharpness: float,
    lean: float,
    beam: int,
    alpha: float,
    budget: int,
) -> None:
    leanings = words(vocabulary) if lean else {}
    model = random_model(seed, len(vocabulary), sharpness, leanings | {EOS: lean})
    config = options(beam=beam, alpha=alpha, tokens_per_batch=budget)
    expected = translate(model, vocabulary, LINES, config, CPU)
    parts = list(stream(model, vocabulary, LINES, config, CPU))
    assert joined(parts, len(LINES)) == [best.text for (best,) in expected]
    ends = {part.line: part.translation for part in parts if part.translation is not None}
    assert ends == {i: best for i, (best,) in enumerate(expected)}
    last = {part.line: part for part in parts}
    assert all(part.translation is not None for part in last.values())
    # Words come whole: each text but the last of a line goes up to the end of a word.
    for i, (best,) in enumerate(expected):
        said = ""
        for part in (part for part in parts if part.line == i and part.translation is None):
            assert part.text
            said += part.text
            assert best.text.startswith(f"{said} ")


def test_the_joined_stream_is_the_translation(vocabulary: Vocabulary, thorough: bool) -> None:
    """Random weights say any bytes and blanks, in every kind of vocabulary."""
    few = settings(repeatable, max_examples=15 if thorough else 9)
    few(EXAMPLES(joined_stream))(vocabulary=vocabulary)


def tiny_vocabulary(corpus: Corpus) -> Vocabulary:
    return Vocabulary.open(corpus.vocabulary)


def test_greedy_says_each_word_as_the_next_one_begins(tiny_corpus: Corpus) -> None:
    vocabulary = tiny_vocabulary(tiny_corpus)
    model = random_model(5, len(vocabulary), leanings=words(vocabulary) | {EOS: -4.0})
    config = options(beam=1)
    steps = []
    for part in stream(model, vocabulary, ["alpha beta gamma"], config, CPU):
        steps.append((len(model.asked), part.text))
    (best,) = translate(model, vocabulary, ["alpha beta gamma"], config, CPU)[0]
    begins = [
        step
        for step in range(2, len(best.pieces) + 1)
        if vocabulary.decode([best.pieces[:step]])[0].count(" ")
        > vocabulary.decode([best.pieces[: step - 1]])[0].count(" ")
    ]
    assert len(begins) >= 2
    assert [step for step, _ in steps] == [*begins, len(best.pieces)]
    assert [text.strip() for _, text in steps] == best.text.split(" ")


def test_it_says_what_all_hypotheses_share_and_no_more(tiny_corpus: Corpus) -> None:
    """At each step against a search as it is defined, which looks at all of them."""
    vocabulary = tiny_vocabulary(tiny_corpus)
    said_early = 0
    for seed in range(12):
        model = random_model(seed, len(vocabulary), 6.0, words(vocabulary))
        line = " ".join(WORDS[seed % 5 : seed % 5 + 3])
        config = options(beam=1 + seed % 4, alpha=0.6)
        row = vocabulary.encode([line])[0]
        expected = shared_at_each_step(model, row, config)
        said = dict.fromkeys(range(len(expected) + 1), "")
        model.asked.clear()
        text = ""
        for part in stream(model, vocabulary, [line], config, CPU):
            text += part.text
            for step in range(len(model.asked), len(expected) + 1):
                said[step] = text
        final = text
        for step, pieces in enumerate(expected[:-1], 1):
            whole = vocabulary.decode([pieces])[0].rpartition(" ")[0]
            assert said[step] == whole, (seed, step)
            said_early += bool(whole) and whole != final
        assert said[len(expected)] == vocabulary.decode([expected[-1]])[0]
    assert said_early > 20


def shared_at_each_step(model: Any, row: list[int], config: EvaluateConfig) -> list[list[int]]:
    """What all that may win begin with after each step; at last what wins. No batch, no cache."""

    def score(candidate: tuple[float, list[int]]) -> float:
        return candidate[0] / length_penalty(len(candidate[1]), config.alpha)

    beam, opened = config.beam, [(0.0, list[int]())]
    finished: list[tuple[float, list[int]]] = []
    longest = len(row) - 1 + config.max_extra_tokens
    found = []
    for length in range(1, longest + 1):
        continued = []
        for so_far, said in opened:
            numbers = following(model, row, said)
            pieces = (piece for piece in range(len(numbers)) if piece not in (PAD, BOS))
            continued += [(so_far + numbers[piece], [*said, piece]) for piece in pieces]
        continued.sort(key=lambda candidate: -candidate[0])
        finished += [candidate for candidate in continued[:beam] if candidate[1][-1] == EOS]
        opened = [candidate for candidate in continued if candidate[1][-1] != EOS][:beam]
        best = max(finished, key=score, default=None)
        bound = opened[0][0] / length_penalty(longest, config.alpha)
        over = best and (beam == 1 or score(best) >= bound)
        if over or length == longest:
            return [*found, (best or opened[0])[1]]
        alive = [said for _, said in opened] + ([best[1]] if best else [])
        shared = 0
        while shared < min(map(len, alive)) and len({said[shared] for said in alive}) == 1:
            shared += 1
        found.append(alive[0][:shared])
    raise AssertionError


class Letters:
    """A vocabulary whose every piece is a word."""

    symbols = None

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[4] * len(line.split()) + [EOS] for line in lines]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(f"w{i}" for i in pieces if i != EOS) for pieces in ids]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        # All open ones go on with 6 and 7, but the one that ended before may still win.
        ({BOS: {5: 1.0}, 5: {6: 0.6, EOS: 0.4}, 6: {7: 1.0}, 7: {8: 1.0}}, ["w5 w6 w7 w8"]),
        ({BOS: {5: 1.0}, 5: {6: 1.0}, 6: {7: 1.0}, 7: {8: 1.0}}, ["w5", " w6", " w7", " w8"]),
        # The first that ended is behind the second for good.
        (
            {BOS: {5: 0.3, 6: 0.7}, 6: {7: 1.0}, 7: {8: 0.5, EOS: 0.5}, 8: {9: 1.0}},
            ["w6", " w7 w8 w9"],
        ),
    ],
)
def test_what_has_ended_counts_as_long_as_it_may_win(
    table: dict[int, dict[int, float]], expected: list[str]
) -> None:
    config = options(beam=2, alpha=2.0)
    letters: Any = Letters()
    parts = list(stream(Chain(table), letters, ["one"], config, CPU))
    assert [part.text for part in parts] == expected


def test_others_may_compute_meanwhile(tiny_corpus: Corpus) -> None:
    """Each part in a thread of its own, with another search on the same weights in between."""
    vocabulary = tiny_vocabulary(tiny_corpus)
    model = random_model(3, len(vocabulary)).float()
    config = options(beam=3)
    expected = list(stream(model, vocabulary, LINES, config, CPU))
    first, second = (stream(model, vocabulary, LINES, config, CPU) for _ in range(2))
    found: list[tuple[Part | None, Part | None]] = []

    def both() -> None:
        one = next(first, None)
        translate(model, vocabulary, LINES[:1], config, CPU)
        found.append((one, next(second, None)))

    for _ in range(len(expected) + 1):
        thread = threading.Thread(target=both)
        thread.start()
        thread.join()
    assert found == [(part, part) for part in [*expected, None]]


def test_one_that_is_closed_leaves_nothing_behind(tiny_corpus: Corpus) -> None:
    """New weights are seen at once: nothing of the old ones is kept for this thread's searches."""
    vocabulary = tiny_vocabulary(tiny_corpus)
    config = options(beam=2)
    model = random_model(0, len(vocabulary)).float()
    running = stream(model, vocabulary, LINES, config, CPU)
    next(running)
    next(running)
    assert not torch.is_inference_mode_enabled()
    model.load_state_dict(random_model(1, len(vocabulary)).float().state_dict())
    found = translate(model, vocabulary, LINES, config, CPU)
    running.close()
    assert found == translate(model, vocabulary, LINES, config, CPU)
    other = random_model(1, len(vocabulary)).float()
    assert found == translate(other, vocabulary, LINES, config, CPU)


def test_a_product_is_laid_out_once(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a step, which would take as long as the step."""
    if not products._LAID_OUT:
        pytest.skip("this PyTorch has no products of oneDNN's own layout")
    vocabulary = tiny_vocabulary(tiny_corpus)
    model = random_model(0, len(vocabulary), leanings={EOS: -9.0}).float()
    made: list[tuple[int, ...]] = []
    reorder = torch.ops.mkldnn._reorder_linear_weight

    def counted(weight: torch.Tensor) -> torch.Tensor:
        made.append(tuple(weight.shape))
        laid: torch.Tensor = reorder(weight)
        return laid

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", counted)
    list(stream(model, vocabulary, LINES, options(beam=2), CPU))
    streamed = len(made)
    made.clear()
    translate(model, vocabulary, LINES, options(beam=2), CPU)
    assert streamed == len(made) > 0


def test_trees_are_refused(tiny_corpus: Corpus) -> None:
    model = tiny_vocabulary(tiny_corpus).__reduce__()[1][0]
    trees = Vocabulary(model, symbols=Symbols(["NP", "S"]))
    with pytest.raises(UserError, match="trees are not streamed"):
        list(stream(random_model(0, 9), trees, LINES, options(beam=1), CPU))


def test_sentences_that_wait_for_others_are_not_said_again(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few that are done stay in a batch of many, as leaving it costs more; here all do."""
    monkeypatch.setattr(beam, "SHARE_TO_LEAVE", 1.0)
    vocabulary = tiny_vocabulary(tiny_corpus)
    model = random_model(2, len(vocabulary), leanings=words(vocabulary))
    lines = [" ".join(WORDS[: 1 + i % 7]) for i in range(30)]
    config = options(beam=2)
    parts = list(stream(model, vocabulary, lines, config, CPU))
    ends = [part.line for part in parts if part.translation is not None]
    assert sorted(ends) == [*range(30)]
    expected = translate(model, vocabulary, lines, config, CPU)
    assert joined(parts, len(lines)) == [best.text for (best,) in expected]


def test_options_and_cuts_are_those_of_a_translation(
    tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    vocabulary = tiny_vocabulary(tiny_corpus)
    model = random_model(2, len(vocabulary), leanings={EOS: -1.0})
    config = options(beam=4, length_penalty="power", alpha=1.5, max_input_tokens=6)
    parts = list(stream(model, vocabulary, LINES, config, CPU))
    found = {part.line: part.translation for part in parts if part.translation}
    said = capsys.readouterr().err
    assert "of more than 6 tokens are cut there: line 4" in said
    expected = translate(model, vocabulary, LINES, config, CPU)
    assert capsys.readouterr().err == said
    assert found == {i: best for i, (best,) in enumerate(expected)}
    other = translate(model, vocabulary, LINES, replace(config, length_penalty="paper"), CPU)
    assert all(found[i] != other[i][0] for i, line in enumerate(LINES) if line.strip())
