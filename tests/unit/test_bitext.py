"""Encoded sentence pairs: what is written is mapped back, and damage is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import bitext, vocabulary
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.data.vocabulary import EOS, UNK, Vocabulary
from seq2sweep.errors import UserError

TEXT = {
    "source": ["a cat", "the dog sleeps", "a house", "dog", "the cat sleeps a lot"],
    "target": ["eine Katze", "der Hund schläft", "ein Haus", "Hund 漢", "die Katze schläft viel"],
}
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def pieces() -> Vocabulary:
    known = [line.replace("漢", "") for lines in TEXT.values() for line in lines]
    return Vocabulary(vocabulary.train(known, VocabularyConfig(60, 1.0)))


@pytest.fixture
def folder(tmp_path: Path, pieces: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bitext, "SENTENCES_PER_CHUNK", 2)
    counts = {
        split: {
            side: bitext.write_side(tmp_path, split, side, iter(TEXT[side]), pieces)
            for side in SIDES
        }
        for split in SPLITS
    }
    header = bitext.make_header(tmp_path, pieces, LANGUAGES, counts)
    (tmp_path / "header.json").write_text(json.dumps(header))
    return tmp_path


def test_sentences_come_back(folder: Path, pieces: Vocabulary) -> None:
    text = Bitext.open(folder, "train")
    source, target = (pieces.encode(TEXT[side]) for side in SIDES)
    assert len(text) == 5
    for i in range(5):
        assert text.source(i).tolist() == source[i]
        assert text.target(i).tolist() == target[i]
        assert text.source(i)[-1] == EOS
    assert text.source_lengths.tolist() == [len(sequence) for sequence in source]
    assert text.target_lengths.tolist() == [len(sequence) for sequence in target]
    assert text.source_lengths.dtype == np.int32
    assert text.source(0).dtype == np.uint16


def test_maps_are_read_only(folder: Path) -> None:
    text = Bitext.open(folder, "train")
    with pytest.raises(ValueError, match="read-only"):
        text.source(0)[0] = 5


def test_header_counts(folder: Path, pieces: Vocabulary) -> None:
    header = Bitext.open(folder, "valid").header
    sequences = pieces.encode(TEXT["target"])
    tokens = [token for sequence in sequences for token in sequence]
    assert header["format"] == 1
    assert header["languages"] == LANGUAGES
    assert header["vocabulary"] == {"fingerprint": pieces.fingerprint, "size": 60}
    assert header["splits"]["valid"]["sentences"] == 5
    assert header["splits"]["valid"]["target"]["tokens"] == len(tokens)
    assert math.isclose(
        header["splits"]["valid"]["target"]["unknown_share"],
        tokens.count(UNK) / (len(tokens) - len(sequences)),
    )
    assert header["splits"]["valid"]["source"]["unknown_share"] == 0
    assert len(header["files"]) == 12


def test_fingerprint_is_the_identity_of_the_data(
    folder: Path, pieces: Vocabulary, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def made(changed: str) -> str:
        other = tmp_path_factory.mktemp("other")
        lines = {**TEXT, "source": [*TEXT["source"][:-1], changed]}
        counts = {
            split: {
                side: bitext.write_side(other, split, side, lines[side], pieces) for side in SIDES
            }
            for split in SPLITS
        }
        return str(bitext.make_header(other, pieces, LANGUAGES, counts)["fingerprint"])

    assert made(TEXT["source"][-1]) == bitext.read_header(folder)["fingerprint"]
    assert made("a dog") != bitext.read_header(folder)["fingerprint"]


@pytest.mark.parametrize(
    ("size", "kind"), [(65_535, "uint16"), (65_536, "uint32"), (100_000, "uint32")]
)
def test_large_vocabularies_get_wider_tokens(size: int, kind: str, tmp_path: Path) -> None:
    class Large:
        fingerprint = "x"

        def __len__(self) -> int:
            return size

        def encode(self, lines: list[str]) -> list[list[int]]:
            return [[size - 1, EOS] for _ in lines]

    large: Any = Large()
    counts = {
        "train": {side: bitext.write_side(tmp_path, "train", side, "ab", large) for side in SIDES}
    }
    header = bitext.make_header(tmp_path, large, LANGUAGES, counts)
    (tmp_path / "header.json").write_text(json.dumps(header))
    text = Bitext.open(tmp_path, "train")
    assert text.source(1).dtype == np.dtype(kind)
    assert text.source(1).tolist() == [size - 1, EOS]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def change_offsets(path: Path) -> None:
    offsets = np.fromfile(path, "<i8")
    offsets[-1] += 1
    path.write_bytes(offsets.tobytes())


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("train.source.tokens", Path.unlink, "is missing: remove"),
        ("train.target.offsets", Path.unlink, "is missing: remove"),
        ("train.target.tokens", truncate, "bytes long instead of"),
        ("train.source.offsets", change_offsets, "does not fit its tokens"),
        ("header.json", Path.unlink, "is missing: run `dvc repro`"),
        ("header.json", truncate, "is damaged"),
    ],
)
def test_damage_is_named(
    folder: Path, name: str, harm: Callable[[Path], None], message: str
) -> None:
    harm(folder / name)
    with pytest.raises(UserError) as caught:
        Bitext.open(folder, "train")
    assert name in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2, this program reads 1"),
        ({"splits": {}}, "has no split train"),
    ],
)
def test_a_header_of_another_kind_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        Bitext.open(folder, "train")


@pytest.mark.parametrize("content", ["", "[]", "{}", "3", "null"])
def test_a_header_that_is_none_is_damaged(folder: Path, content: str) -> None:
    (folder / "header.json").write_text(content)
    with pytest.raises(UserError, match="is damaged"):
        Bitext.open(folder, "train")
