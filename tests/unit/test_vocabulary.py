"""Word pieces: learned the same way each time, and text comes back as it went in."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import vocabulary
from seq2sweep.data.clean import normalise
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from seq2sweep.errors import UserError

LINES = [
    "The old dog sleeps in front of the house.",
    "Der alte Hund schläft vor dem Haus.",
    "The dogs sleep, the cats run (today)!",
    "Die Hunde schlafen, die Katzen laufen (heute)!",
    "2 plus 10 is 12; x < y.",
]
CONFIG = VocabularyConfig(size=120, character_coverage=1.0)
CHARACTERS = sorted(set("".join(LINES)))


@pytest.fixture(scope="module")
def model() -> bytes:
    return vocabulary.train(LINES, CONFIG)


@pytest.fixture(scope="module")
def pieces(model: bytes) -> Vocabulary:
    return Vocabulary(model)


def test_special_ids_and_size(pieces: Vocabulary) -> None:
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert len(pieces) == 120


def test_model_bytes_depend_on_text_and_config_only(
    model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert vocabulary.train(iter(LINES), CONFIG) == model
    assert os.listdir(tmp_path) == []
    smaller = VocabularyConfig(size=119, character_coverage=1.0)
    assert vocabulary.train(LINES, smaller) != model


def test_open_reads_the_folder(model: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.model is missing: run `dvc repro`"):
        Vocabulary.open(tmp_path)
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(model)
    opened = Vocabulary.open(tmp_path)
    assert opened.fingerprint == hashlib.sha256(model).hexdigest()
    assert opened.encode(LINES) == Vocabulary(model).encode(LINES)


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100])
def test_a_damaged_model_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"vocabulary\.model"):
        Vocabulary.open(tmp_path)


def test_encoded_sentences_end_with_eos_and_have_no_bos(pieces: Vocabulary) -> None:
    for sequence in pieces.encode([*LINES, ""]):
        assert sequence[-1] == EOS
        assert not {PAD, BOS, EOS, UNK} & set(sequence[:-1])
    assert pieces.encode([""]) == [[EOS]]
    assert pieces.encode([]) == []


@settings(max_examples=100)
@given(st.lists(st.text(alphabet=CHARACTERS), max_size=3))
def test_known_characters_come_back_as_they_went_in(pieces: Vocabulary, texts: list[str]) -> None:
    texts = [normalise(text) for text in texts]
    assert pieces.decode(pieces.encode(texts)) == texts


def test_markup_in_the_text_is_text(pieces: Vocabulary) -> None:
    (sequence,) = pieces.encode(["x </s> <s> <pad> y"])
    assert sequence.index(EOS) == len(sequence) - 1
    assert not {PAD, BOS} & set(sequence)


def test_decode_stops_at_the_first_end_and_skips_padding(pieces: Vocabulary) -> None:
    (sequence,) = pieces.encode(["The old dog"])
    rest = pieces.encode(["sleeps"])[0]
    assert pieces.decode([[BOS, *sequence, *rest, PAD, PAD]]) == ["The old dog"]
    assert pieces.decode([sequence[:-1], [EOS], []]) == ["The old dog", "", ""]
    assert pieces.decode([]) == []


def test_unknown_characters_are_one_visible_token(pieces: Vocabulary) -> None:
    (sequence,) = pieces.encode(["dog 漢"])
    assert UNK in sequence
    assert pieces.decode([sequence]) == ["dog ⁇"]


def test_a_size_the_text_cannot_fill_is_named_with_the_largest() -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size is 8000 .* at most (\d+); lower") as e:
        vocabulary.train(LINES, VocabularyConfig(size=8000, character_coverage=1.0))
    most = int(str(e.value).split("at most ")[1].split(";")[0])
    assert len(Vocabulary(vocabulary.train(LINES, VocabularyConfig(most, 1.0)))) == most


def test_a_size_below_the_characters_is_named_with_the_smallest() -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size is 16 .* alone need (\d+)") as caught:
        vocabulary.train(LINES, VocabularyConfig(size=16, character_coverage=1.0))
    least = int(str(caught.value).split("need ")[1].split(";")[0])
    assert len(Vocabulary(vocabulary.train(LINES, VocabularyConfig(least, 1.0)))) == least


def test_a_very_long_line_does_no_harm() -> None:
    long = "Donau" * 100_000
    learned = Vocabulary(vocabulary.train([*LINES, long], CONFIG))
    (sequence,) = learned.encode([long])
    assert learned.decode([sequence]) == [long]
