"""The search in numpy finds what our search finds: by a model that is a random table."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seq2sweep.data.vocabulary import EOS, PAD
from seq2sweep.decode.beam import search
from seq2sweep.export import onnx_search

from ..conftest import Corpus
from ..decode.test_well_formed import PRIME, ROWS, Table

SENTENCES = [[5, 9, 4, EOS], [7, EOS], [8, 8, 8, 8, 8, EOS], [4, 5, EOS]]


class ByTable(onnx_search.Search):
    """A cache of one number a row: a hash of all that was said."""

    def __init__(self, table: Table, **settings: Any) -> None:
        self.table, self.settings = table, settings

    def encode(self, source: NDArray[np.int64]) -> onnx_search.Arrays:
        return {"source": source, "keys_0": source.sum(axis=1)[:, None, None, None]}

    def start(self, memory: onnx_search.Arrays) -> onnx_search.Arrays:
        return {"past_keys_0": memory["keys_0"], "past_sentence": memory["keys_0"]}

    def step(
        self,
        token: NDArray[np.int64],
        step: int,
        memory: onnx_search.Arrays,
        past: onnx_search.Arrays,
    ) -> tuple[NDArray[np.float32], onnx_search.Arrays]:
        assert len(memory["source"]) == len(token)
        assert np.array_equal(past["past_sentence"], memory["keys_0"])
        now = (past["past_keys_0"] * 31 + token[:, None, None, None] * 7 + 1) % PRIME
        return self.table.logits.numpy()[now.ravel() % ROWS], past | {"past_keys_0": now}


@pytest.mark.parametrize("penalty", ["paper", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam", [1, 2, 4, 11, 12, 40])  # beside a vocabulary of 12
@pytest.mark.parametrize("leaning", [0.0, 2.0, -9.0])
@pytest.mark.parametrize("stopping", ["exact", "own_length"])
def test_it_finds_what_our_search_finds(
    stopping: Any, leaning: float, beam: int, alpha: float, penalty: Any, thorough: bool
) -> None:
    for seed in range(6 if thorough else 4):
        table = Table(seed, 12, {EOS: leaning})
        settings = {"beam": beam, "alpha": alpha, "max_extra_tokens": 4, "stopping": stopping}
        found = ByTable(table, **settings, length_penalty=penalty, max_length=8)(SENTENCES)
        rows = [torch.tensor(sentence) for sentence in SENTENCES]
        source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        table.longest = 8
        expected = search(table, source, **settings, penalty=penalty)
        assert [pieces for pieces, _ in found] == [best[0].pieces for best in expected]
        scores = [best[0].score for best in expected]
        assert [score for _, score in found] == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("count", [1, 4, 8, 59, 60, 70])
@pytest.mark.parametrize("different", [1, 3, 1000])
def test_the_highest_are_those_of_a_whole_sort(count: int, different: int) -> None:
    """Of equal ones the first, also where some of these are left out."""
    scores = np.random.default_rng(1).integers(different, size=(20, 60)).astype(np.float32)
    scores[:, :7], scores[3], scores[4, 9] = -np.inf, -np.inf, np.nan
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    assert np.array_equal(onnx_search.highest(scores, count), expected)


def test_padding_and_the_beginning_are_never_said() -> None:
    found = onnx_search.log_probabilities(np.zeros((1, 5), np.float32))
    assert found[0, 2:] == pytest.approx(np.log(1 / 5))
    assert np.isneginf(found[0, :2]).all()


# --- the program ----------------------------------------------------------------------------------


class Echo:
    """Says what it is given, for lines of at most four tokens."""

    def __init__(self, folder: Path) -> None:
        self.settings = {"max_input_tokens": 4}
        self.decoder = SimpleNamespace(get_outputs=lambda: [SimpleNamespace(shape=["R", 99])])

    def __call__(self, sentences: list[list[int]]) -> list[tuple[list[int], float]]:
        return [(sentence, 0.0) for sentence in sentences]


def said(folder: Path, given: bytes, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the program in a folder writes, where the locale is not UTF-8."""
    monkeypatch.setattr(onnx_search, "__file__", str(folder / "translate.py"))
    monkeypatch.setattr(onnx_search, "Search", Echo)
    out = io.BytesIO()
    for name, stream in (("stdin", io.BytesIO(given)), ("stdout", out)):
        wrapped = io.TextIOWrapper(stream, encoding="latin-1", write_through=True)
        monkeypatch.setattr(sys, name, wrapped)
    onnx_search.main()
    return out.getvalue()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (b"5 6\n7\n", b"5 6\n7\n"),
        (b"5 6\r\n\r\n7", b"5 6\n\n7\n"),
        (b"5\r6\n7\n", b"5 6\n7\n"),  # one line
        (b"\xef\xbb\xbf5\n", b"5\n"),
        (b"\n", b"\n"),
        (b"", b""),
    ],
)
def test_a_line_ends_at_its_line_feed_alone(
    given: bytes, written: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocabulary.model").write_text("{}")
    assert said(tmp_path, given, monkeypatch) == written


def test_text_is_utf_8_whatever_the_locale(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(tiny_corpus.vocabulary / "vocabulary.model", tmp_path / "vocabulary.model")
    # An unknown piece is shown so.
    assert said(tmp_path, "\u20ac\n".encode(), monkeypatch) == "\u2047\n".encode()
    with pytest.raises(SystemExit, match=r"standard input is not UTF-8: .*0xe4 in position 1"):
        said(tmp_path, b"a\xe4a\n", monkeypatch)


@pytest.mark.parametrize("wrong", ["alpha", "4 -1", "4 \u0665", "99"])
def test_what_is_no_token_is_told(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocabulary.model").write_text("{}")
    assert said(tmp_path, b"4\n98\n", monkeypatch) == b"4\n98\n"
    with pytest.raises(SystemExit, match=r"\Aline 2 must be token ids below 99\b.*\Z"):
        said(tmp_path, f"4\n{wrong}\n".encode(), monkeypatch)


def test_lines_that_are_cut_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vocabulary.model").write_text("{}")
    assert said(tmp_path, b"5 6 7\n5 6 7 8\n4 4 4 4 4", monkeypatch) == b"5 6 7\n5 6 7\n4 4 4\n"
    told = "2 line(s) of more than 4 tokens are cut there: the first is line 2\n"
    assert capsys.readouterr().err == told
