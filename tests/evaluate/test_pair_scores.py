"""The command `score-pairs`: two files in, a line for each pair out."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2sweep import console
from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import write_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import NO_NUMBERS
from seq2sweep.decode.forced import PairScore, score_pairs
from seq2sweep.evaluate import pair_scores
from seq2sweep.evaluate.translator import Translator
from seq2sweep.train.validation import negative_log_likelihood

from ..conftest import WORDS, Corpus, write_encoded
from .test_translator import config, folder, project

__all__ = ["config", "folder", "project"]
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def trained(folder: Path, tiny_corpus: Corpus) -> list[str]:
    return ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]


def lines(seed: int, count: int = 60) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, 9))) for _ in range(count)]


def write(name: str, text: list[str]) -> None:
    write_lines(Path(name), text)


def test_pairs_keep_their_order_and_sum_to_the_perplexity(
    config: Config,
    folder: Path,
    trained: list[str],
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, target = lines(0), lines(1)
    monkeypatch.setattr(console, "bar", lambda what, unit: {"desc": what, "mininterval": 0})
    # As text of training is lower-cased, so is this.
    write("a.txt", [line.upper() for line in source])
    Path("b.gz").write_bytes(gzip.compress("\n".join(target).encode()))
    assert main(["score-pairs", "a.txt", "b.gz", *trained]) == 0
    printed = capsys.readouterr()
    rows = [line.split("\t") for line in printed.out.splitlines()]
    vocabulary = Vocabulary.open(tiny_corpus.vocabulary)
    assert [int(row[1]) for row in rows] == [*map(len, vocabulary.encode(target))]
    for total, tokens, mean in rows:
        assert float(mean) == pytest.approx(float(total) / int(tokens), abs=2e-6)

    # Each line by itself, and all of them as validation counts them.
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    write_encoded(tmp_path, "test", source, target, vocabulary)
    likelihood, tokens = negative_log_likelihood(
        translator.model, Bitext.open(tmp_path, "test"), tokens_per_pass=100,
        precision="float32", device=CPU,
    )  # fmt: skip
    assert sum(float(row[0]) for row in rows) == pytest.approx(-likelihood, abs=1e-3)
    perplexity = torch.tensor(likelihood / tokens).exp().item()
    said = re.search(r"60 pairs, (\d+) tokens, perplexity ([\d.]+)", printed.err)
    assert said
    assert "read: 60it" in printed.err
    assert (int(said[1]), float(said[2])) == (tokens, pytest.approx(perplexity, rel=1e-5))

    # A few at a time, as JSON.
    monkeypatch.setattr(pair_scores, "CHARACTERS", 90)
    assert main(["score-pairs", "a.txt", "b.gz", "--json", *trained]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["tokens"] for one in found] == [int(row[1]) for row in rows]
    for key, column in (("log_probability", 0), ("mean", 2)):
        expected = [float(row[column]) for row in rows]
        assert [one[key] for one in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_model_that_has_diverged_scores_nothing(
    options: list[str],
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("a.txt", ["alpha", "", "gamma"])

    def diverged(*given: Any, **named: Any) -> Iterator[tuple[int, PairScore]]:
        for i, score in score_pairs(*given, **named):
            yield i, dataclasses.replace(score, log_probability=math.nan) if i == 1 else score

    monkeypatch.setattr(pair_scores, "score_pairs", diverged)
    assert main(["score-pairs", "a.txt", "a.txt", *options, *trained]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].endswith(NO_NUMBERS)


def test_a_probability_of_0_is_null_in_json(
    trained: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.txt", ["alpha"])
    found = [(0, PairScore(-math.inf, 2))]
    monkeypatch.setattr(pair_scores, "score_pairs", lambda *given, **named: found)
    assert main(["score-pairs", "a.txt", "a.txt", "--json", *trained]) == 0
    printed = capsys.readouterr()
    assert printed.out == '{"log_probability": null, "tokens": 2, "mean": null}\n'
    assert printed.err.endswith("1 pairs, 2 tokens, perplexity inf\n")
    assert main(["score-pairs", "a.txt", "a.txt", *trained]) == 0
    assert capsys.readouterr().out == "-inf\t2\t-inf\n"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (["a", "b"], "a.txt has 3 lines but b.txt has 2 lines"),
        (["a", "b", "alpha " * 2000], r"b.txt line 3 has \d+ tokens: at most 1024 are taken"),
    ],
)
def test_what_is_no_pair_is_one_line_before_any_score(
    target: list[str],
    problem: str,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("a.txt", ["alpha", "beta", "gamma"])
    write("b.txt", target)
    for at_a_time in (1, 1 << 20):
        monkeypatch.setattr(pair_scores, "CHARACTERS", at_a_time)
        assert main(["score-pairs", "a.txt", "b.txt", *trained]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert re.search(problem, line)
