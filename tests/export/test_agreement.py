"""What an export's check takes, what it says, and what it lets through."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import EOS
from seq2sweep.errors import UserError
from seq2sweep.export import agreement
from seq2sweep.export.agreement import Agreement
from seq2sweep.export.protocol import Bounds, OnDone, of_one_length
from seq2sweep.export.to_ctranslate2 import Ctranslate2
from seq2sweep.export.to_marian import Marian
from seq2sweep.export.to_onnx import Onnx
from seq2sweep.export.to_safetensors import Safetensors

from ..conftest import Corpus
from .made_up_models import TREES, translator

FOUND = Agreement(200, 198, "bleu", 79.40, 79.42, 3e-7)


def test_it_is_said_in_one_line() -> None:
    assert str(FOUND) == "198 of 200 the same, BLEU 79.40 and 79.42, logits within 3.0e-07"
    same = dataclasses.replace(FOUND, theirs=79.401, logits=None)
    assert str(same) == "198 of 200 the same, BLEU 79.40 = 79.40"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"same": 197}, "at least 99% must be the same"),
        ({"theirs": 79.51}, "BLEU may differ by 0.1"),
        ({"theirs": 79.29}, "BLEU may differ by 0.1"),
        ({"theirs": 79.5}, None),
        ({"theirs": math.nan}, "BLEU may differ by 0.1"),
        ({"logits": 2e-4}, "logits may differ by 1e-04 of the greatest"),
        ({"logits": math.nan}, "logits may differ by 1e-04 of the greatest"),
        ({"logits": 9e-5}, None),
    ],
)
def test_what_is_outside_of_the_bounds_is_a_problem(
    changes: dict[str, float], problem: str | None
) -> None:
    form = Marian()
    form.bounds = Bounds(same=0.99, score=0.1, logits=1e-4, why="a test")
    found = dataclasses.replace(FOUND, **changes)  # type: ignore[arg-type]
    assert agreement.problem(found, form) == problem


def test_rounded_weights_may_say_other_things_as_well() -> None:
    found = Agreement(100, 30, "bleu", 30.0, 30.29, 0.04, "log-probabilities")
    for quantize in ("int8", "int8_float32", "bfloat16"):
        form = Ctranslate2(quantize)
        assert quantize in form.bounds.why
        assert agreement.problem(found, form) is None
        worse = dataclasses.replace(found, theirs=29.69)
        assert agreement.problem(worse, form) == "BLEU may differ by 0.3"
    assert agreement.problem(found, Ctranslate2()) is not None


def test_a_search_that_ends_earlier_may_say_other_things() -> None:
    """Right weights had 95.5 % the same, so that one check of 300 sentences may find less."""
    found = Agreement(300, 276, "bleu", 30.0, 29.8, 3e-6, "log-probabilities")
    assert agreement.problem(found, Ctranslate2()) is None
    wrong = dataclasses.replace(found, same=300, logits=2e-4)
    assert agreement.problem(wrong, Ctranslate2()) == (
        "log-probabilities may differ by 1e-04 of the greatest"
    )
    fewer = dataclasses.replace(found, same=239)
    assert agreement.problem(fewer, Ctranslate2()) == "at least 80% must be the same"


@pytest.mark.parametrize("quantize", ["int8", "int8_float32", "bfloat16"])
def test_a_wrong_export_of_a_weak_model_is_a_problem(quantize: str) -> None:
    """Whose scores are as good as nothing, so that they are the same whatever it says."""
    form = Ctranslate2(quantize)
    found = Agreement(300, 0, "bleu", 0.25, 0.0, 0.04, "log-probabilities")
    assert agreement.problem(found, form) == "at least 20% must be the same"
    wrong = dataclasses.replace(found, same=250, logits=0.21)
    assert str(agreement.problem(wrong, form)).startswith("log-probabilities may differ by ")


@pytest.mark.parametrize("lines", [20, 301, 302, 600, 1000])
def test_sentences_are_spread_over_the_set(lines: int, tmp_path: Path) -> None:
    files = tmp_path / "source", tmp_path / "target"
    for file in files:
        file.write_text("".join(f"{file.name} {i}\n" if i != 10 else "\n" for i in range(lines)))
    source, target = agreement.sentences(files, tmp_path)
    pairs = lines - 1  # of which one is empty
    assert len(source) == len(target) == min(agreement.SENTENCES, pairs)
    numbers = [int(line.split()[1]) for line in source]
    assert numbers == [int(line.split()[1]) for line in target] == sorted(numbers)
    assert 10 not in numbers
    apart = pairs / len(numbers)
    gaps = [after - before for before, after in itertools.pairwise([*numbers, lines])]
    assert numbers[0] == 0
    assert all(apart - 1 < gap < apart + 2 for gap in gaps)


def test_of_a_large_set_only_those_chosen_are_in_memory(tmp_path: Path) -> None:
    files = tmp_path / "source", tmp_path / "target"
    for file in files:
        file.write_text(("word " * 800 + "\n") * 2_000)  # 8 MB each
    tracemalloc.start()
    try:
        agreement.sentences(files, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_a_set_that_cannot_be_used_is_refused(tmp_path: Path, tiny_corpus: Corpus) -> None:
    with pytest.raises(UserError, match=r"has no test set .* --check SOURCE TARGET"):
        agreement.sentences(None, tmp_path)
    (tmp_path / "one").write_text("a\n")
    (tmp_path / "two").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"has 1 lines but .* has 2 lines: line i of both"):
        agreement.sentences((tmp_path / "one", tmp_path / "two"), tmp_path)
    (tmp_path / "one").write_text("\n\n")
    with pytest.raises(UserError, match="hold no sentence"):
        agreement.sentences((tmp_path / "one", tmp_path / "two"), tmp_path)
    assert len(agreement.sentences(None, tiny_corpus.clean)[0]) == 40


def test_a_reference_that_is_no_tree_is_told_by_its_file_and_line(tmp_path: Path) -> None:
    """Though it is none of those chosen, and before any sentence is parsed."""
    files = tmp_path / "words", tmp_path / "gold"
    trees = ["(TOP (S (XX a)))\n"] * 1000
    files[0].write_text("a\n" * 1000)
    files[1].write_text("".join(trees))
    assert len(agreement.sentences(files, tmp_path, TREES)[1]) == agreement.SENTENCES
    trees[900] = "The end\n"
    files[1].write_text("".join(trees))
    with pytest.raises(UserError, match=r"gold line 901: 'The' outside of any tree$"):
        agreement.sentences(files, tmp_path, TREES)
    assert len(agreement.sentences(files, tmp_path)[1]) == agreement.SENTENCES


class Parrot:
    """An engine that says what it is given."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def translate(self, lines: Sequence[str], on_done: OnDone) -> list[str]:
        return self.said


@pytest.mark.parametrize("trace", [(), ("*",)])
def test_punctuation_of_trees_is_told_by_the_tags_of_gold(
    trace: tuple[str, ...], tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """As what is said has the tags that the model writes, or XX."""
    made = translator(tmp_path, tiny_config, tiny_corpus, TREES)
    sources = ["alpha , beta .", "alpha beta"]
    said = [best[0].text for best in made.translate(sources)]
    gold = []
    for line, tags in zip(said, [("NN", ",", "NN", "."), ("NN", "NN")], strict=True):
        tree = parse_tree(line)
        traces = ("-NONE-",) * len(trace)
        gold.append(str(tree._replace(words=tree.words + trace, tags=tags + traces)))
    found = agreement.compare(made, Parrot(said), Safetensors(), sources, gold)
    assert found == Agreement(2, 2, "f1", 100.0, 100.0, None)
    flat = [said[0], "(TOP (XX alpha) (XX beta))"]
    found = agreement.compare(made, Parrot(flat), Safetensors(), sources, gold)
    assert (found.same, found.own) == (1, 100.0)
    assert 0 < found.theirs < 100  # the other sentence, with the punctuation, counts


def test_references_are_looked_at_before_any_sentence_is_parsed(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    made = translator(tmp_path, tiny_config, tiny_corpus, TREES)
    with pytest.raises(UserError, match="line 1: 'x' outside of any tree"):
        agreement.compare(
            made, Parrot([]), Safetensors(), ["a"], ["x"], lambda sentences: pytest.fail("parsed")
        )


def test_the_search_is_that_of_the_engine(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    made = translator(tmp_path, tiny_config, tiny_corpus)
    assert agreement.searching(made, Safetensors()) is made
    by_power = agreement.searching(made, Marian())
    assert by_power.config == dataclasses.replace(made.config, length_penalty="power")
    assert by_power.model is made.model
    assert made.config.length_penalty == "paper"


def test_marian_is_compared_by_the_stopping_that_it_knows(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    changes = {"evaluate.stopping": "own_length", "evaluate.length_penalty": "power"}
    config = configuration.with_changes(tiny_config, {"evaluate.beam": 4} | changes)
    made = translator(tmp_path, config, tiny_corpus)
    found = agreement.searching(made, Marian()).config
    assert found == dataclasses.replace(made.config, stopping="exact")
    for form in (Safetensors(), Onnx(), Ctranslate2()):
        assert agreement.searching(made, form).config.stopping == "own_length"
    made.config = dataclasses.replace(made.config, beam=1)  # which ends with its one hypothesis
    assert agreement.searching(made, Marian()).config == made.config


def test_the_search_is_in_float32_where_other_sums_are_compared(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    config = configuration.with_changes(tiny_config, {"evaluate.precision": "bf16"})
    made = translator(tmp_path, config, tiny_corpus)
    assert agreement.searching(made, Safetensors()) is made
    for form in (Onnx(), Marian(), Ctranslate2(), Ctranslate2("bfloat16")):
        assert agreement.searching(made, form).config.precision == "float32"
    assert made.config.precision == "bf16"


def test_logits_are_compared_of_what_both_search(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """A table of positions ends where the longest input does."""
    changes = {"evaluate.max_input_tokens": 8, "model.positions": "learned"}
    config = configuration.with_changes(tiny_config, changes)
    made = translator(tmp_path, config, tiny_corpus)
    seen = []

    class Itself:
        def translate(self, lines: Sequence[str], on_done: OnDone) -> list[str]:
            raise NotImplementedError

        def logits(self, source: Tensor, target_in: Tensor) -> Tensor:
            seen.append(source)
            found: Tensor = made.model(source, target_in)
            return found

    lines = ["the old house by the river is green and very small"] * 2
    assert agreement._difference(made, Itself(), [*lines, "a"], [[5], [6, 7], [5]]) == 0
    assert made.model.max_length == 1024
    assert agreement._difference(made, Itself(), ["a"], [[5] * 1024]) == 0  # without an end
    assert seen[0].size(1) == 8
    assert seen[0][:2, -1].tolist() == [EOS, EOS]


def test_sentences_of_one_length_go_together() -> None:
    lengths = [3, 5, 3, *[4] * 40]
    groups = list(of_one_length(lengths))
    assert sorted(i for group in groups for i in group) == [*range(43)]
    assert all(len({lengths[i] for i in group}) == 1 for group in groups)
    assert [len(group) for group in groups] == [1, 32, 8, 2]
