"""Encoded sentence pairs: what is written is mapped back, and damage is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import bitext, vocabulary
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.data.vocabulary import EOS, UNK, Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.parallel import Processes

from ..conftest import write_encoded

TEXT = {
    "source": ["a cat", "the dog sleeps", "a house", "dog", "the cat sleeps a lot"],
    "target": ["eine Katze", "der Hund schläft", "ein Haus", "Hund 漢", "die Katze schläft viel"],
}
LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def pieces() -> Vocabulary:
    known = [line.replace("漢", "") for lines in TEXT.values() for line in lines]
    return Vocabulary(vocabulary.train(known, VocabularyConfig("bpe", 60, 1.0, False, 1000)))


@pytest.fixture
def folder(tmp_path: Path, pieces: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bitext, "BYTES_PER_CHUNK", 10)
    for split in SPLITS:
        write_encoded(tmp_path, split, TEXT["source"], TEXT["target"], pieces)
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
    assert text.sides["source"].offsets.tolist() == [0, *np.cumsum(text.source_lengths)]
    assert text.source(0).dtype == np.uint16


def test_maps_are_read_only(folder: Path) -> None:
    text = Bitext.open(folder, "train")
    with pytest.raises(ValueError, match="read-only"):
        text.source(0)[0] = 5


def test_header_counts(folder: Path, pieces: Vocabulary) -> None:
    header = Bitext.open(folder, "valid").header
    sequences = pieces.encode(TEXT["target"])
    tokens = [token for sequence in sequences for token in sequence]
    assert header["format"] == 2
    assert header["languages"] == LANGUAGES
    assert header["vocabulary"] == {"fingerprint": pieces.fingerprint, "size": 60}
    assert header["sentences"] == 5
    assert header["target"]["tokens"] == len(tokens)
    assert math.isclose(
        header["target"]["unknown_share"],
        tokens.count(UNK) / (len(tokens) - len(sequences)),
    )
    assert header["source"]["unknown_share"] == 0
    assert len(header["files"]) == 6


def test_fingerprint_is_the_identity_of_the_data(
    folder: Path, pieces: Vocabulary, tmp_path: Path
) -> None:
    def made(changed: str) -> str:
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        source = [*TEXT["source"][:-1], changed]
        return str(write_encoded(other, "train", source, TEXT["target"], pieces)["fingerprint"])

    assert made(TEXT["source"][-1]) == bitext.read_header(folder, "train")["fingerprint"]
    assert made("a dog") != bitext.read_header(folder, "train")["fingerprint"]


def test_training_is_told_from_other_training_and_validation_but_not_from_other_tests(
    folder: Path, pieces: Vocabulary
) -> None:
    def identity() -> str:
        header = bitext.read_training_header(folder)
        assert header["sentences"] == 5
        return str(header["fingerprint"])

    before = identity()
    write_encoded(folder, "test", ["a cat"], ["eine Katze"], pieces)
    assert identity() == before
    write_encoded(folder, "valid", ["a cat"], ["eine Katze"], pieces)
    other_valid = identity()
    write_encoded(folder, "valid", TEXT["source"], TEXT["target"], pieces)
    assert identity() == before
    write_encoded(folder, "train", TEXT["source"], list(reversed(TEXT["target"])), pieces)
    assert len({before, other_valid, identity()}) == 3


def test_any_number_of_processes_writes_the_same_bytes(
    folder: Path, pieces: Vocabulary, tmp_path: Path
) -> None:
    texts = {side: folder / f"train.{side}.text" for side in SIDES}
    for processes in (1, 2):
        other = tmp_path / str(processes)
        other.mkdir()
        done: list[int] = []
        bitext.write_split(
            other, "train", texts, pieces, LANGUAGES, Processes(processes), done.append
        )
        for name in ("train.json", *bitext.read_header(folder, "train")["files"]):
            assert (other / name).read_bytes() == (folder / name).read_bytes()
        assert sum(done) == 10
        assert len(done) > 4  # in several chunks


def test_sides_of_different_length_are_refused(pieces: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"source.text has 2 sentences but .*target.text has 1:"):
        write_encoded(tmp_path, "train", ["a", "b"], ["c"], pieces)
    with pytest.raises(UserError, match="missing: run `dvc repro`"):
        bitext.write_split(
            tmp_path, "x", dict.fromkeys(SIDES, tmp_path / "nothing"), pieces, LANGUAGES
        )


@pytest.mark.parametrize(
    ("size", "kind"), [(65_535, "uint16"), (65_536, "uint32"), (100_000, "uint32")]
)
def test_large_vocabularies_get_wider_tokens(size: int, kind: str, tmp_path: Path) -> None:
    class Large:
        fingerprint = "x"

        def __len__(self) -> int:
            return size

        symbols = None

        def encode_flat(self, lines: list[str], side: str) -> tuple[np.ndarray, np.ndarray]:
            tokens = np.array([size - 1, EOS] * len(lines), vocabulary.token_type(size))
            return tokens, np.full(len(lines), 2, np.int32)

    write_encoded(tmp_path, "train", ["a", "b"], ["c", "d"], cast(Vocabulary, Large()))
    text = Bitext.open(tmp_path, "train")
    assert text.source(1).dtype == np.dtype(kind)
    assert text.source(1).tolist() == [size - 1, EOS]


def test_a_sentence_beyond_the_positions_is_told_with_what_any_architecture_can_do(
    folder: Path,
) -> None:
    """Those of ConvS2S are learned as well, and it has no key `model.positions`."""
    text = Bitext.open(folder, "train")
    longest = int(text.source_lengths.max())
    bitext.require_positions(text, "train", max(longest, int(text.target_lengths.max())))
    with pytest.raises(UserError, match=rf"^line 5 .* has {longest} tokens as source") as caught:
        bitext.require_positions(text, "train", longest - 1)
    assert str(caught.value).endswith(
        "or use a model without such a limit: model.architecture bytenet, recurrent, or "
        "transformer with model.positions sinusoidal"
    )


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
        ("train.source.lengths", truncate, "bytes long instead of"),
        ("train.json", Path.unlink, "is missing: run `dvc repro`"),
        ("train.json", truncate, "is damaged"),
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


def test_a_header_of_another_format_is_refused(folder: Path) -> None:
    path = folder / "train.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    with pytest.raises(UserError, match="has format 1, this program reads 2"):
        Bitext.open(folder, "train")


@pytest.mark.parametrize("content", ["", "[]", "{}", "3", "null"])
def test_a_header_that_is_none_is_damaged(folder: Path, content: str) -> None:
    (folder / "train.json").write_text(content)
    with pytest.raises(UserError, match="is damaged"):
        Bitext.open(folder, "train")
