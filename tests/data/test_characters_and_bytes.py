"""Vocabularies of single characters and of bytes: text comes back, and what is unknown shows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import vocabulary as stage
from seq2sweep import presets
from seq2sweep.config import VocabularyConfig, with_changes
from seq2sweep.data import utf8, vocabulary
from seq2sweep.data.clean import Normaliser
from seq2sweep.data.files import write_header, write_lines
from seq2sweep.data.vocabulary import BOS, EOS, PAD, SPECIAL, UNK, Vocabulary
from seq2sweep.errors import UserError

LINES = [
    "The old dog sleeps in front of the house.",
    "Der alte Hund schläft vor dem Haus.",
    "2 plus 10 is 12; x < y.",
]
NORMALISER = Normaliser()
KNOWN = sorted(set("".join(LINES)))
CHARACTERS = VocabularyConfig(
    kind="characters", size=1000, character_coverage=1.0, byte_fallback=False, sentences=1000
)
CONFIGS = {
    "characters": CHARACTERS,
    "characters, bytes for others": dataclasses.replace(CHARACTERS, byte_fallback=True),
    "bytes": dataclasses.replace(CHARACTERS, kind="bytes"),
}
HARD = [
    "👩‍👩‍👧 and 🇩🇪",  # joined emoji, a flag of two letters
    "e\u0301 is not é, a\u0308\u0323 neither ä",  # combining marks
    "漢字 مرحبا नमस्ते ไทย",
    "<s> </s> <unk> <pad> <0x41> ▅ ⁇",
]
DAMAGED = (
    utf8.MODEL[:-1], utf8.MODEL + b"\n", b'{"kind": "bytes", "pieces": ["a"]}\n', b'{"kind":',
)  # fmt: skip


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> VocabularyConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def made(config: VocabularyConfig) -> Vocabulary:
    return Vocabulary(vocabulary.train(LINES, config))


@pytest.fixture(scope="module")
def characters() -> Vocabulary:
    return Vocabulary(vocabulary.train(LINES, CHARACTERS))


# --- both ----------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(st.text(alphabet=KNOWN).map(NORMALISER), max_size=3))
def test_known_characters_come_back_as_they_went_in(made: Vocabulary, texts: list[str]) -> None:
    sequences = made.encode(texts)
    assert made.decode(sequences) == texts
    for sequence in sequences:
        assert sequence[-1] == EOS
        assert not {PAD, BOS, EOS, UNK} & set(sequence[:-1])


@pytest.mark.parametrize("kind", ["characters, bytes for others", "bytes"])
def test_any_clean_text_comes_back_with_bytes(kind: str) -> None:
    made = Vocabulary(vocabulary.train(LINES, CONFIGS[kind]))

    @settings(max_examples=300)
    @given(st.text().map(NORMALISER).filter(lambda text: kind == "bytes" or "▁" not in text))
    def comes_back(text: str) -> None:
        (sequence,) = made.encode([text])
        assert UNK not in sequence
        assert made.decode([sequence]) == [text]

    comes_back()
    assert made.decode(made.encode(HARD)) == HARD


def test_bytes_of_the_model_depend_on_text_and_config_alone(
    config: VocabularyConfig, made: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = (
        "import hashlib, pickle, sys\n"
        "from seq2sweep.data import vocabulary\n"
        "lines, config = pickle.load(sys.stdin.buffer)\n"
        "print(hashlib.sha256(vocabulary.train(iter(lines), config)).hexdigest())\n"
    )
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps((LINES, config)),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert found.stdout.decode().strip() == made.fingerprint
    assert os.listdir(tmp_path) == []


def test_a_pickled_vocabulary_is_the_same_and_is_opened_by_its_sum(
    made: Vocabulary, config: VocabularyConfig, tmp_path: Path
) -> None:
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.fingerprint, copy.encode(HARD)) == (made.fingerprint, made.encode(HARD))
    model = vocabulary.train(LINES, config)
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(model)
    description = tmp_path / vocabulary.JSON_NAME
    description.write_text(json.dumps({"sha256": hashlib.sha256(model).hexdigest()}))
    assert Vocabulary.open(tmp_path).encode(LINES) == made.encode(LINES)
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(vocabulary.train(["other"], CHARACTERS))
    with pytest.raises(UserError, match=r"is not what vocabulary\.json beside it describes"):
        Vocabulary.open(tmp_path)


def test_flat_tokens_are_the_sequences_in_a_row(made: Vocabulary) -> None:
    lines = ["", LINES[0], "漢", *LINES]
    tokens, lengths = made.encode_flat(lines)
    sequences = made.encode(lines)
    assert tokens.dtype == np.uint16
    assert lengths.tolist() == [len(sequence) for sequence in sequences]
    assert tokens.tolist() == [token for sequence in sequences for token in sequence]


def test_decode_stops_at_the_first_end_and_skips_padding(made: Vocabulary) -> None:
    (sequence,) = made.encode(["the old dog"])
    assert made.decode([[BOS, *sequence, *sequence, PAD]]) == ["the old dog"]
    assert made.decode([sequence[:-1], [EOS], []]) == ["the old dog", "", ""]
    # A model may write it; SentencePiece sets it between blanks.
    assert made.decode([[*sequence[:3], UNK]])[0].replace(" ", "") == "the⁇"


# --- characters ----------------------------------------------------------------------------------


def test_each_character_is_a_token_and_the_blank_one_of_them(characters: Vocabulary) -> None:
    assert len(characters) == len(SPECIAL) + len(KNOWN)
    (sequence,) = characters.encode([LINES[0]])
    assert len(sequence) == len(LINES[0]) + 1
    assert Counter(Counter(sequence[:-1]).values()) == Counter(Counter(LINES[0]).values())
    # The most frequent first.
    counts = Counter("".join(LINES))
    by_id = sorted(KNOWN, key=lambda character: characters.encode([f"h{character}h"])[0][1])
    assert [counts[character] for character in by_id] == sorted(counts.values(), reverse=True)


def test_an_unknown_character_is_one_visible_token() -> None:
    made = Vocabulary(vocabulary.train(LINES, CHARACTERS))
    (sequence,) = made.encode(["the 漢 dog"])
    assert sequence.count(UNK) == 1
    assert made.decode([sequence]) == ["the ⁇ dog"]


def test_size_caps_and_leaves_the_rarest_out() -> None:
    lines = [*LINES * 20, "Ω"]
    wholly, capped = (
        Vocabulary(vocabulary.train(lines, dataclasses.replace(CHARACTERS, size=size)))
        for size in (1000, len(SPECIAL) + len(KNOWN))
    )
    assert len(wholly) == len(capped) + 1
    assert UNK not in wholly.encode(["Ω"])[0]
    assert UNK in capped.encode(["Ω"])[0]
    partly = dataclasses.replace(CHARACTERS, character_coverage=0.99)
    assert UNK in Vocabulary(vocabulary.train(lines, partly)).encode(["Ω"])[0]


@pytest.mark.parametrize("lines", [[], ["", ""], ["Donau" * 20_000]])
def test_nothing_to_learn_characters_from_is_named(lines: list[str]) -> None:
    with pytest.raises(UserError, match="no text to learn word pieces from"):
        vocabulary.train(lines, CHARACTERS)


# --- bytes ---------------------------------------------------------------------------------------


def test_a_byte_is_the_token_of_its_number_after_the_special_ones() -> None:
    made = Vocabulary(vocabulary.train(["whatever"], CONFIGS["bytes"]))
    assert len(made) == 260
    assert made.encode(["aß", ""]) == [[4 + 0x61, 4 + 0xC3, 4 + 0x9F, EOS], [EOS]]
    assert made.encode(["a\ud83db"]) == made.encode(["a?b"])


def test_bytes_that_are_no_utf8_show() -> None:
    made = Vocabulary(utf8.MODEL)
    assert made.decode([[4 + 0x61, 4 + 0xC3, EOS], [4 + 0xFF, 4 + 0x62]]) == ["a\ufffd", "\ufffdb"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_model_of_bytes_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"vocabulary\.model is damaged .*`dvc repro`"):
        Vocabulary.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 259}, "vocabulary.size must be at least 260 for kind bytes: 256"),
        ({"byte_fallback": True}, "vocabulary.byte_fallback must be false for kind bytes"),
        (
            {"kind": "characters", "byte_fallback": True, "size": 260},
            "vocabulary.size must be more than 260 for kind characters with vocabulary.byte_fall",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    keys = {f"vocabulary.{key}": value for key, value in ({"kind": "bytes"} | changes).items()}
    with pytest.raises(UserError, match=message):
        with_changes(presets.load("phrasebook").config, keys)


def test_the_stage_of_bytes_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clean = tmp_path / "data/clean"
    clean.mkdir(parents=True)
    for side in ("source", "target"):
        write_lines(clean / f"train.{side}.txt", ["one", "two"])
    write_header(clean, "train", 2)
    stage.work(with_changes(presets.load("phrasebook").config, {"vocabulary.kind": "bytes"}))
    described = json.loads((tmp_path / "data/vocabulary/vocabulary.json").read_text())
    made = Vocabulary.open(tmp_path / "data/vocabulary")
    found = described["kind"], described["size"], described["sentences"], described["sha256"]
    assert found == ("bytes", 260, 0, made.fingerprint)
