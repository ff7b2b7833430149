"""The search in numpy finds what our search finds: by a model that is a random table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seq2sweep.data.vocabulary import EOS, PAD
from seq2sweep.decode.beam import search
from seq2sweep.export import onnx_search

from ..decode.test_well_formed import PRIME, ROWS, Table

SENTENCES = [[5, 9, 4, EOS], [7, EOS], [8, 8, 8, 8, 8, EOS], [4, 5, EOS]]


class ByTable(onnx_search.Search):
    """A cache of one number a row: a hash of all that was said."""

    def __init__(self, table: Table, **settings: Any) -> None:
        self.table, self.settings = table, settings

    def encode(self, source: NDArray[np.int64]) -> onnx_search.Arrays:
        return {"source": source, "keys_0": source.sum(axis=1)[:, None, None, None]}

    def start(self, memory: onnx_search.Arrays) -> onnx_search.Arrays:
        return {"past_keys_0": memory["keys_0"]}

    def step(
        self,
        token: NDArray[np.int64],
        step: int,
        memory: onnx_search.Arrays,
        past: onnx_search.Arrays,
    ) -> tuple[NDArray[np.float32], onnx_search.Arrays]:
        assert len(memory["source"]) == len(token)
        now = (past["past_keys_0"] * 31 + token[:, None, None, None] * 7 + 1) % PRIME
        return self.table.logits.numpy()[now.ravel() % ROWS], {"past_keys_0": now}


@pytest.mark.parametrize("penalty", ["paper", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("leaning", [0.0, 2.0, -9.0])
@pytest.mark.parametrize("stopping", ["exact", "own_length"])
def test_it_finds_what_our_search_finds(
    stopping: Any, leaning: float, beam: int, alpha: float, penalty: Any
) -> None:
    for seed in range(6):
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


def test_padding_and_the_beginning_are_never_said() -> None:
    found = onnx_search.log_probabilities(np.zeros((1, 5), np.float32))
    assert found[0, 2:] == pytest.approx(np.log(1 / 5))
    assert np.isneginf(found[0, :2]).all()
