"""Trees of text, by `translate`: how many words a line has reaches the search, wherever that is."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.config import Config, EvaluateConfig
from seq2sweep.data.treebank.linearisation import rebuild
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import Hypothesis, OurSearch, search, translate
from seq2sweep.decode.well_formed import Trees
from seq2sweep.errors import OperationalError
from seq2sweep.model.architecture.transformer import Transformer

from ..conftest import WORDS, Corpus

CPU = torch.device("cpu")
SYMBOLS = Symbols(["NP", "S", "VP"])
LINES = ["alpha beta gamma", "", "rot", " ".join(WORDS), "eins zwei"]
COUNTS = [3, 0, 1, len(WORDS), 2]


@pytest.fixture(scope="module")
def vocabulary(tiny_corpus: Corpus) -> Vocabulary:
    plain = Vocabulary.open(tiny_corpus.vocabulary)
    return Vocabulary(plain.__reduce__()[1][0], symbols=SYMBOLS)


@pytest.fixture
def model(tiny_config: Config, vocabulary: Vocabulary) -> Transformer:
    """With two columns that no symbol has."""
    config = dataclasses.replace(
        tiny_config.model, target_symbols=len(SYMBOLS) + 2, tie_embeddings=False
    )
    torch.manual_seed(0)
    return Transformer(config, len(vocabulary)).double().eval()


@pytest.fixture
def config(tiny_config: Config) -> EvaluateConfig:
    changes = {"evaluate.beam": 3, "evaluate.max_extra_tokens": 12, "evaluate.tokens_per_batch": 40}
    return configuration.with_changes(tiny_config, changes).evaluate


def elsewhere(function: Any, items: Any) -> Iterator[Any]:
    """By copies, as tasks on other machines have."""
    copied = pickle.dumps(function)
    return (pickle.loads(copied)(pickle.loads(pickle.dumps(item))) for item in items)


def test_each_line_is_a_tree_over_its_words(
    model: Transformer, vocabulary: Vocabulary, config: EvaluateConfig
) -> None:
    found = translate(model, vocabulary, LINES, config, CPU, n_best=3, words=COUNTS)
    for line, count, best in zip(LINES, COUNTS, found, strict=True):
        if not line:
            assert [(t.text, t.score) for t in best] == [("", 0.0)]
            continue
        source = torch.tensor(vocabulary.encode([line]))
        expected = search(
            model, source, beam=3, alpha=config.alpha, penalty=config.length_penalty,
            max_extra_tokens=12, n_best=3, trees=Trees([count], 3),
        )[0]  # fmt: skip
        assert [t.text for t in best] == vocabulary.decode([h.pieces for h in expected])
        assert [t.score for t in best] == pytest.approx([h.score for h in expected], abs=1e-9)
        for translation in best:
            assert not rebuild(translation.text.split(), line.split())[1]
    assert found == translate(
        model, vocabulary, LINES, config, CPU, n_best=3, words=COUNTS, mapper=elsewhere
    )


def test_words_that_the_vocabulary_has_are_written_as_themselves(
    model: Transformer, vocabulary: Vocabulary, config: EvaluateConfig
) -> None:
    """The two columns that no symbol had are two words now."""
    symbols = Symbols(SYMBOLS.labels, (), ["beta", "rot"])
    pieces = Vocabulary(vocabulary.__reduce__()[1][0], symbols=symbols)
    first = len(SYMBOLS)
    asked: list[list[list[int]]] = []

    class Recording(OurSearch):
        def __call__(
            self, sentences: list[list[int]], *, n_best: int, trees: Trees | None = None
        ) -> list[list[Hypothesis]]:
            assert trees is not None
            asked.append([[*ids] for ids in trees.known])
            assert trees.symbols == len(symbols)
            return super().__call__(sentences, n_best=n_best, trees=trees)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2sweep.decode.beam.OurSearch", Recording)
        best = translate(model, pieces, LINES, config, CPU, words=COUNTS)
    assert sorted(itertools.chain.from_iterable(asked)) == sorted(
        [symbols.ids_of(line.split()) for line in LINES if line]
    )
    assert [0, first, 0] in itertools.chain.from_iterable(asked)
    for line, translations in zip(LINES, best, strict=True):
        if line:
            assert not rebuild(translations[0].text.split(), line.split())[1]


def test_without_words_it_writes_what_it_likes(
    model: Transformer, vocabulary: Vocabulary, config: EvaluateConfig
) -> None:
    found = translate(model, vocabulary, LINES, config, CPU)
    expected = OurSearch(model, config, CPU)(vocabulary.encode(LINES[:1]), n_best=1)[0][0]
    assert found[0][0].text == vocabulary.decode([expected.pieces])[0]
    repairs = [
        rebuild(each[0].text.split(), line.split())[1]
        for line, each in zip(LINES, found, strict=True)
    ]
    assert any(repairs)


def test_lack_of_memory_is_a_line_that_says_what_helps(
    model: Transformer, vocabulary: Vocabulary, config: EvaluateConfig
) -> None:
    refused = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB\nand more")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "encode", Mock(side_effect=refused))
        for at_once, helps in ((8000, "tokens_per_batch"), (1, "beam")):
            config = dataclasses.replace(config, tokens_per_batch=at_once)
            with pytest.raises(OperationalError) as caught:
                translate(model, vocabulary, LINES, config, CPU)
            assert str(caught.value) == (
                "out of memory (OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB): "
                f"lower evaluate.{helps}"
            )


def test_words_without_symbols_or_for_another_engine_are_refused(
    model: Transformer, vocabulary: Vocabulary, config: EvaluateConfig, tiny_corpus: Corpus
) -> None:
    def engine(sentences: list[list[int]], *, n_best: int) -> list[list[Hypothesis]]:
        raise AssertionError

    plain = Vocabulary.open(tiny_corpus.vocabulary)
    for words, pieces, other in (
        (COUNTS, plain, None),
        (COUNTS, vocabulary, engine),
        (COUNTS[:2], vocabulary, None),
    ):
        with pytest.raises(ValueError, match="words are for our search, a vocabulary of trees"):
            translate(model, pieces, LINES, config, CPU, engine=other, words=words)
