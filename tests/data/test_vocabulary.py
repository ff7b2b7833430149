"""Word pieces: learned the same way each time, and text comes back as it went in."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import vocabulary as stage
from seq2sweep import presets
from seq2sweep.config import VocabularyConfig, with_changes
from seq2sweep.data import vocabulary, word_piece
from seq2sweep.data.clean import Normaliser
from seq2sweep.data.files import write_header, write_lines
from seq2sweep.data.reading import read_lines
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from seq2sweep.errors import UserError

LINES = [
    "The old dog sleeps in front of the house.",
    "Der alte Hund schläft vor dem Haus.",
    "The dogs sleep, the cats run (today)!",
    "Die Hunde schlafen, die Katzen laufen (heute)!",
    "2 plus 10 is 12; x < y.",
]
NORMALISER = Normaliser()
CHARACTERS = sorted(set("".join(LINES)))
CONFIG = VocabularyConfig(
    kind="bpe", size=120, character_coverage=1.0, byte_fallback=False, sentences=1000
)
CONFIGS = {
    "bpe": CONFIG,
    "unigram": dataclasses.replace(CONFIG, kind="unigram", size=58),  # more it cannot make of this
    "word_piece": dataclasses.replace(CONFIG, kind="word_piece"),
}
BYTES = {
    "bpe": dataclasses.replace(CONFIG, size=350, byte_fallback=True),
    "unigram": dataclasses.replace(CONFIG, kind="unigram", size=310, byte_fallback=True),
}
SUM_OF_FIRST_RELEASE = "5e8c9e626521c7e9422a2457b24ec18290edd8e0d71c33842cdfe99c69c580fc"
DATA = Path(__file__).parents[3] / "shared/data"
REAL_TEXT = [
    DATA / name
    for language in ("en", "de")
    for name in (
        *(f"multi30k/{split}.{language}.gz" for split in ("train", "val", "test_2016_flickr")),
        f"newstest/newstest2014.{language}.gz",
    )
]


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> VocabularyConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def model(config: VocabularyConfig) -> bytes:
    return vocabulary.train(LINES, config)


@pytest.fixture(scope="module")
def pieces(model: bytes) -> Vocabulary:
    return Vocabulary(model)


@pytest.fixture(scope="module", params=BYTES)
def byte_pieces(request: pytest.FixtureRequest) -> Vocabulary:
    return Vocabulary(vocabulary.train(LINES, BYTES[request.param]))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UserError("line 3"), OSError(5, "x")])
def test_what_goes_wrong_in_reading_is_told_as_it_is(error: BaseException) -> None:
    def lines() -> Iterator[str]:
        yield from LINES
        raise error

    with pytest.raises(type(error)) as caught:
        vocabulary.train(lines(), CONFIG)
    assert caught.value is error


def test_a_line_with_the_mark_of_unknown_ones_is_learned_from() -> None:
    marked = [*LINES, "Ÿþý ▅▅▅ ŽžÐ"]
    pieces = Vocabulary(vocabulary.train(marked, CONFIG))
    assert pieces.decode(pieces.encode(["Ÿþý ŽžÐ"])) == ["Ÿþý ŽžÐ"]


def test_a_model_is_what_its_description_says(tmp_path: Path) -> None:
    model = vocabulary.train(LINES, CONFIG)
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(model)
    assert len(Vocabulary.open(tmp_path)) == CONFIG.size
    description = tmp_path / vocabulary.JSON_NAME
    description.write_text(json.dumps({"sha256": hashlib.sha256(model).hexdigest()}))
    assert len(Vocabulary.open(tmp_path)) == CONFIG.size
    for content in ('{"sha256": "12"}', "{}"):
        description.write_text(content)
        with pytest.raises(UserError, match=r"is not what vocabulary\.json beside it describes"):
            Vocabulary.open(tmp_path)
    for content in ("[]", "{", "[" * 100_000):
        description.write_text(content)
        with pytest.raises(UserError, match=r"vocabulary\.json is damaged \(.+\): remove it"):
            Vocabulary.open(tmp_path)


def test_special_ids_and_size(pieces: Vocabulary, config: VocabularyConfig) -> None:
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert len(pieces) == config.size


def test_model_bytes_depend_on_text_and_config_only(
    model: bytes, config: VocabularyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert vocabulary.train(iter(LINES), config) == model
    assert os.listdir(tmp_path) == []
    smaller = dataclasses.replace(config, size=config.size - 1)
    assert vocabulary.train(LINES, smaller) != model
    assert vocabulary.train([*LINES[:-1], "2 plus 10 is 12; y > x!"], config) != model


def test_another_process_learns_the_same_bytes() -> None:
    program = (
        "import hashlib, pickle, sys\n"
        "from seq2sweep.data import vocabulary\n"
        "lines, configs = pickle.load(sys.stdin.buffer)\n"
        "for config in configs:\n"
        "    print(hashlib.sha256(vocabulary.train(lines, config)).hexdigest())\n"
    )
    configs = [*CONFIGS.values()]
    sums = [hashlib.sha256(vocabulary.train(LINES, config)).hexdigest() for config in configs]
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps((LINES, configs)),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert found.stdout.decode().split() == sums


def test_settings_of_memory_do_not_enter_the_model(model: bytes, config: VocabularyConfig) -> None:
    assert vocabulary.train(LINES, dataclasses.replace(config, sentences=5)) == model


def test_bpe_joins_as_it_always_did() -> None:
    """The sum of what the first release learned: a change would make all its data stale."""
    assert hashlib.sha256(vocabulary.train(LINES, CONFIG)).hexdigest() == SUM_OF_FIRST_RELEASE


def test_word_pieces_are_learned_as_bpe_is() -> None:
    joined = Vocabulary(vocabulary.train(LINES, CONFIG))
    cut = Vocabulary(vocabulary.train(LINES, CONFIGS["word_piece"]))
    assert len(joined) == len(cut)
    # Both know these words whole, so joins and longest match agree.
    assert joined.encode(["the dog"]) == cut.encode(["the dog"])


ODD = [
    "  two  blanks   at  the ends ",
    "a\u2581low block \u2581 alone \u2581\u2581",
    "no\xa0break, \u3000ideographic\u3000, line\u2028separator, form\x0cfeed, next\x85line",
    "a return at the end\r",
    "a\0b \0\0",
    "\ufeffmark <s> <unk> x\u2585y e\u0301",
    # At the bound of bytes, above it, and above it in bytes alone.
    "Wind " * 13_107,
    "Regen " * 13_107,
    "Bäche " * 9_500,
]


def whole_sentences(lines: Iterable[str], config: VocabularyConfig) -> bytes:
    """What SentencePiece learns from the lines themselves."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.replace("\u2585", " ") for line in lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=config.size,
        character_coverage=config.character_coverage,
        byte_fallback=config.byte_fallback,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
        normalization_rule_name="identity",
        max_sentence_length=vocabulary.LONGEST_SENTENCE,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("lines", "config"),
    [
        (LINES, CONFIG),
        (LINES, BYTES["bpe"]),
        ([*LINES, *ODD], CONFIG),
        ([*LINES, *ODD[:6]], dataclasses.replace(CONFIG, character_coverage=0.98)),
    ],
)
def test_counted_words_give_the_bytes_that_whole_sentences_give(
    lines: list[str], config: VocabularyConfig
) -> None:
    assert vocabulary.train(lines, config) == whole_sentences(lines, config)


def test_a_tab_is_a_blank() -> None:
    tabs = [line.replace(" ", "\t") for line in LINES]
    assert vocabulary.train(tabs, CONFIG) == vocabulary.train(LINES, CONFIG)


@pytest.mark.parametrize("kind", ["bpe", "word_piece"])
def test_each_word_is_held_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory grows with the words that differ, not with the sentences."""
    given: list[str] = []

    def train(sentence_iterator: Iterator[str], **options: object) -> None:
        given.extend(sentence_iterator)
        learn(sentence_iterator=iter(given), **options)

    learn = sentencepiece.SentencePieceTrainer.train
    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", train)
    vocabulary.train(LINES * 500, CONFIGS[kind])
    assert len(given) == len(set(" ".join(LINES).split()))
    assert "The\t1000" in given


def test_unigram_learns_from_a_bounded_sample(config: VocabularyConfig) -> None:
    assert vocabulary.most_sentences(config) == 1000
    large = dataclasses.replace(config, sentences=2_000_000)
    expected = 400_000 if config.kind == "unigram" else 2_000_000
    assert vocabulary.most_sentences(large) == expected


def test_open_reads_the_folder(model: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.model is missing: run `dvc repro`"):
        Vocabulary.open(tmp_path)
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(model)
    opened = Vocabulary.open(tmp_path)
    assert opened.fingerprint == hashlib.sha256(model).hexdigest()
    assert opened.encode(LINES) == Vocabulary(model).encode(LINES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no model",
        b"\x00" * 100,
        b"[]",
        b"{",
        b'{"model": {"type": "WordPiece", "vocab": {"a": 0}}}',
        b'{"kind": "word_piece", "pieces": []}',
    ],
)
def test_a_damaged_model_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / vocabulary.MODEL_NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"vocabulary\.model is .*`dvc repro`"):
        Vocabulary.open(tmp_path)


def test_half_a_model_is_damaged(model: bytes) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.model is damaged"):
        Vocabulary(model[: len(model) // 2])


def test_word_pieces_with_other_special_ones_are_not_ours() -> None:
    model = word_piece.dump(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "▁", "a"])
    with pytest.raises(UserError, match=r"not a vocabulary of seq2sweep: it begins with .*CLS"):
        Vocabulary(model)


def test_a_pickled_vocabulary_is_the_same(pieces: Vocabulary) -> None:
    copy = pickle.loads(pickle.dumps(pieces))
    assert copy.fingerprint == pieces.fingerprint
    assert copy.encode(LINES) == pieces.encode(LINES)


def test_encoded_sentences_end_with_eos_and_have_no_bos(pieces: Vocabulary) -> None:
    for sequence in pieces.encode([*LINES, ""]):
        assert sequence[-1] == EOS
        assert not {PAD, BOS, EOS, UNK} & set(sequence[:-1])
    assert pieces.encode([""]) == [[EOS]]
    assert pieces.encode([]) == []


@pytest.mark.parametrize("lines", [[], [""], ["", LINES[0], "漢", *LINES]])
def test_flat_tokens_are_the_sequences_in_a_row(pieces: Vocabulary, lines: list[str]) -> None:
    tokens, lengths = pieces.encode_flat(lines)
    sequences = pieces.encode(lines)
    assert (tokens.dtype, lengths.dtype) == (np.uint16, np.int32)
    assert lengths.tolist() == [len(sequence) for sequence in sequences]
    assert tokens.tolist() == [token for sequence in sequences for token in sequence]


@pytest.mark.parametrize(("size", "kind"), [(65_535, np.uint16), (65_536, np.uint32)])
def test_flat_tokens_are_as_wide_as_the_ids_need(size: int, kind: type) -> None:
    listed = [*vocabulary.SPECIAL, "▁", *(f"x{i}" for i in range(size - 6)), "z"]
    wide = Vocabulary(word_piece.dump(listed))
    tokens, lengths = wide.encode_flat(["z"])
    assert (tokens.dtype, tokens.tolist(), lengths.tolist()) == (kind, [4, size - 1, EOS], [3])


@settings(max_examples=100)
@given(st.lists(st.text(alphabet=CHARACTERS), max_size=3))
def test_known_characters_come_back_as_they_went_in(pieces: Vocabulary, texts: list[str]) -> None:
    texts = [NORMALISER(text) for text in texts]
    assert pieces.decode(pieces.encode(texts)) == texts


@settings(max_examples=300)
@given(st.text().map(NORMALISER).filter(lambda text: "▁" not in text))
def test_with_byte_fallback_any_clean_text_comes_back(byte_pieces: Vocabulary, text: str) -> None:
    (sequence,) = byte_pieces.encode([text])
    assert UNK not in sequence
    assert byte_pieces.decode([sequence]) == [text]


def test_a_byte_written_as_text_is_text(byte_pieces: Vocabulary) -> None:
    text = "<0x41> a<0xE6>b </s> 漢"
    assert byte_pieces.decode(byte_pieces.encode([text])) == [text]


@pytest.fixture(scope="module")
def real_text() -> list[str]:
    if not DATA.is_dir():
        pytest.skip("needs Multi30k and newstest2014 beside the project")
    lines = [NORMALISER(line) for path in REAL_TEXT for line in read_lines(path)]
    assert len(lines) == 2 * (29_000 + 1_014 + 1_000 + 3_003)
    return lines


@pytest.mark.parametrize("kind", CONFIGS)
def test_real_text_comes_back(real_text: list[str], kind: str) -> None:
    config = dataclasses.replace(CONFIGS[kind], size=4000)
    learned = Vocabulary(vocabulary.train(real_text, config))
    assert len(learned) == 4000
    sequences = learned.encode(real_text)
    assert not any(UNK in sequence for sequence in sequences)
    assert learned.decode(sequences) == real_text


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
    assert sequence.count(UNK) == 1
    assert pieces.decode([sequence]) == ["dog ⁇"]


def test_an_unknown_character_leaves_the_rest_of_its_word(
    pieces: Vocabulary, config: VocabularyConfig
) -> None:
    (text,) = pieces.decode(pieces.encode(["the do漢gs sleep"]))
    # SentencePiece sets an unknown character between blanks.
    assert text == ("the do⁇gs sleep" if config.kind == "word_piece" else "the do ⁇ gs sleep")


def test_rare_characters_are_left_out_when_coverage_says_so(config: VocabularyConfig) -> None:
    lines = [*LINES * 20, "Ω"]
    size = config.size - 5
    partly = dataclasses.replace(config, size=size, character_coverage=0.99)
    assert UNK in Vocabulary(vocabulary.train(lines, partly)).encode(["Ω"])[0]
    wholly = dataclasses.replace(config, size=size)
    assert UNK not in Vocabulary(vocabulary.train(lines, wholly)).encode(["Ω"])[0]


def test_a_size_the_text_cannot_fill_is_named_with_the_largest(config: VocabularyConfig) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size is 8000 .* at most (\d+); lower") as e:
        vocabulary.train(LINES, dataclasses.replace(config, size=8000))
    most = int(str(e.value).split("at most ")[1].split(";")[0])
    largest = dataclasses.replace(config, size=most)
    assert len(Vocabulary(vocabulary.train(LINES, largest))) == most


def test_a_size_below_the_characters_is_named_with_the_smallest(config: VocabularyConfig) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size is 16 .* alone need (\d+)") as caught:
        vocabulary.train(LINES, dataclasses.replace(config, size=16))
    least = int(str(caught.value).split("need ")[1].split(";")[0])
    smallest = dataclasses.replace(config, size=least)
    assert len(Vocabulary(vocabulary.train(LINES, smallest))) == least


@pytest.mark.parametrize("kind", BYTES)
def test_a_size_below_bytes_and_characters_is_named(kind: str) -> None:
    with pytest.raises(UserError, match=r"need \d+; .* turn off vocabulary\.byte_fallback"):
        vocabulary.train(LINES, dataclasses.replace(BYTES[kind], size=100))


@pytest.mark.parametrize("lines", [[], ["", ""], ["Donau" * 20_000]])
def test_nothing_to_learn_from_is_named(lines: list[str], config: VocabularyConfig) -> None:
    with pytest.raises(UserError, match="no text to learn word pieces from"):
        vocabulary.train(lines, config)


def test_a_line_of_ten_megabytes_does_no_harm(model: bytes, config: VocabularyConfig) -> None:
    long = "Donau" * 2_000_000
    learned = Vocabulary(vocabulary.train([*LINES, long], config))
    assert learned.fingerprint == Vocabulary(model).fingerprint
    # Word pieces are cut one by one, in Python.
    part = long[: 250_000 if config.kind == "word_piece" else 1_000_000]
    (sequence,) = learned.encode([part])
    assert learned.decode([sequence]) == [part]


def test_nul_and_other_debris_do_no_harm(config: VocabularyConfig) -> None:
    debris = ["a\0b \0\0", "a\ufffdb \ufffe", "a<s>b</s>c<unk>d<pad>" * 50, "\u2585 ▁ ▁▁ a▁b ⁇"]
    learned = Vocabulary(vocabulary.train([*LINES, *debris], config))
    assert len(learned) == config.size
    for sequence in learned.encode(debris):
        assert sequence.index(EOS) == len(sequence) - 1
        assert not {PAD, BOS} & set(sequence)
    assert learned.decode(learned.encode(LINES)) == LINES


@pytest.mark.parametrize(("sentences", "chosen"), [(8, [0, 2, 4, 6]), (5, [0, 4]), (99, range(8))])
def test_the_stage_learns_from_evenly_spaced_pairs(
    sentences: int, chosen: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clean = tmp_path / "data/clean"
    clean.mkdir(parents=True)
    write_lines(clean / "train.source.txt", (f"source {i}" for i in range(8)))
    write_lines(clean / "train.target.txt", (f"target {i}" for i in range(8)))
    write_header(clean, "train", 8)
    read: list[str] = []

    def train(lines: Iterable[str], config: VocabularyConfig) -> bytes:
        read.extend(lines)
        return learn(LINES, CONFIGS["word_piece"])

    learn = vocabulary.train
    monkeypatch.setattr(vocabulary, "train", train)
    changes = {"vocabulary.kind": "word_piece", "vocabulary.sentences": sentences}
    stage.work(with_changes(presets.load("phrasebook").config, changes))
    # As many of one language as of the other, whatever the number.
    assert read == [f"{side} {i}" for i in chosen for side in ("source", "target")]
    described = json.loads((tmp_path / "data/vocabulary/vocabulary.json").read_text())
    made = Vocabulary.open(tmp_path / "data/vocabulary")
    assert (described["kind"], described["size"], described["sentences"]) == (
        "word_piece",
        120,
        len(read),
    )
    assert described["sha256"] == made.fingerprint
    assert set(described) == {"kind", "size", "sha256", "sentencepiece", "languages", "sentences"}
