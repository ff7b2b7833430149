"""What `seq2sweep attend` shows by its options."""

from __future__ import annotations

import argparse
import errno
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from seq2sweep.cli import main
from seq2sweep.commands import models
from seq2sweep.commands.models import _shown_attention, choose
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import attention_maps
from seq2sweep.evaluate.attention.head_numbers import LONGEST
from seq2sweep.export import agreement, exporting
from tests.evaluate.attention.test_attention_maps import maps

# --- what is exported, and translated by another engine -------------------------------------------


@pytest.mark.parametrize("arguments", [["export", "out"], ["translate", "--engine", "ctranslate2"]])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("can't allocate memory"), "out of memory (RuntimeError: can't allocate"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_what_another_engine_lacks_is_one_line(
    arguments: list[str],
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of its table of positions, and of a folder that the user has not named."""
    translator: Any = Mock()
    translator.config.beam, translator.settings = 4, {"data": {"target": "de"}}
    translator.remedy = lambda change: change
    translator.ctranslate2.side_effect = error
    for name in ("opened", "opened_together"):
        monkeypatch.setattr(models, name, lambda options: translator)
    monkeypatch.setattr(agreement, "sentences", lambda *given: (["a"], ["b"]))
    monkeypatch.setattr(exporting, "export", Mock(side_effect=error))
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert said in line
    if isinstance(error, RuntimeError):
        assert line.endswith("lower evaluate.max_input_tokens")
    elif arguments[0] == "translate":
        assert f"{gettempdir()}; make room there" in line


# --- what is chosen ------------------------------------------------------------------------------


def test_a_layer_heads_and_a_word_are_chosen() -> None:
    weights = {f"{part}.{i}.attention": np.ones((2, 3, 3)) for part in ("encoder",) for i in (0, 1)}
    one = maps(weights, ["▁a", "b", "</s>"], ["▁x", "</s>"])
    assert choose(one, "encoder") == ("encoder.1.attention", [0, 1], None)
    found = choose(one, "encoder", 1, [2], "ab")
    assert found == ("encoder.0.attention", [1], 0)
    by_token = choose(one, "encoder", 1, [2], "b", words=False)
    assert by_token == ("encoder.0.attention", [1], 1)
    none = maps({}, ["▁a", "</s>"], ["▁x", "</s>"])
    for given, problem in (
        ((none, "memory"), "this model has no attention to show"),
        ((one, "memory"), "has no attention of the kind memory"),
        ((one, "encoder", 3), "--layer 3: encoder attention has layers 1, 2"),
        ((one, "encoder", 0), "--layer 0"),
        ((one, "encoder", 1, [3]), "--head 3: the layer has heads 1 to 2"),
        ((one, "encoder", 1, [0]), "--head 0"),
        ((one, "encoder", 1, None, "its"), "--word its: the words are ab </s>"),
    ):
        with pytest.raises(UserError, match=problem):
            choose(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [".html", ".json", ".svg"])
@pytest.mark.parametrize("lengths", [(LONGEST + 1, 2), (2, LONGEST + 1)])
def test_a_paragraph_is_refused_before_its_maps_fill_the_memory(
    kind: str, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [attention_maps.Pair(*([2] * n for n in lengths)), attention_maps.Pair([2], [2])]
    monkeypatch.setattr(attention_maps, "pairs", lambda *about: made)
    monkeypatch.setattr(attention_maps, "maps", lambda *about: pytest.fail("it was measured"))
    options = argparse.Namespace(sentences=["a", "b"], target=None)
    translator: Any = SimpleNamespace(model=None, vocabulary=None)
    with pytest.raises(UserError, match=r"^sentence 1 has 129 tokens .* of at most 128$"):
        _shown_attention(options, translator, kind)
