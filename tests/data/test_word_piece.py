"""Word pieces: each word cut by longest match first, a character without a piece alone unknown."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2sweep.data import word_piece
from seq2sweep.data.word_piece import WordPieces

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PAD, BOS, EOS, UNK = range(4)
PIECES = [*SPECIAL, "▁", "a", "b", "c", "▁a", "▁ab", "bc", "abc", "bcab", "<s>a"]


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    return WordPieces(PIECES, special=4, unknown=UNK, end=EOS)


def cut(pieces: WordPieces, line: str) -> list[str]:
    """The pieces of a line as text, without its end."""
    (ids,) = pieces.encode([line])
    assert ids[-1] == EOS
    return [PIECES[i] for i in ids[:-1]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("ab", ["▁ab"]),
        ("abc", ["▁ab", "c"]),  # though "▁" and "abc" would do
        ("babc", ["▁", "b", "abc"]),
        ("bcabc", ["▁", "bcab", "c"]),
        ("a abc c", ["▁a", "▁ab", "c", "▁", "c"]),
    ],
)
def test_longest_match_first(pieces: WordPieces, line: str, expected: list[str]) -> None:
    assert cut(pieces, line) == expected


@given(st.lists(st.text("abc"), max_size=4).map(" ".join))
def test_as_an_alternation_of_all_pieces_cuts(pieces: WordPieces, line: str) -> None:
    longest_first = sorted(PIECES[4:], key=len, reverse=True)
    alternation = re.compile("|".join(map(re.escape, longest_first)))
    expected = [piece for word in line.split() for piece in alternation.findall("▁" + word)]
    assert cut(pieces, line) == expected
    assert pieces.decode([pieces.encode([line])[0][:-1]]) == [
        "".join(f" {w}" for w in line.split())
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ab漢c", ["▁ab", "<unk>", "c"]),
        ("漢", ["▁", "<unk>"]),
        ("漢字bc", ["▁", "<unk>", "<unk>", "bc"]),
    ],
)
def test_only_the_character_without_a_piece_is_unknown(
    pieces: WordPieces, word: str, expected: list[str]
) -> None:
    assert cut(pieces, word) == expected
    (ids,) = pieces.encode([word])
    assert pieces.decode([ids[:-1]]) == [" " + re.sub("[漢字]", "⁇", word)]


def test_names_of_special_tokens_are_text(pieces: WordPieces) -> None:
    assert cut(pieces, "<s>") == ["▁", "<unk>", "<unk>", "<unk>"]
    assert cut(pieces, "c<s>a") == ["▁", "c", "<s>a"]


@pytest.mark.parametrize("length", [99, 100, 101, 300_000])
def test_a_long_word_is_cut_like_any_other(pieces: WordPieces, length: int) -> None:
    word = ("bcab" * length)[:length]
    (ids,) = pieces.encode([word])
    assert pieces.decode([ids[:-1]]) == [" " + word]
    assert len(ids) == pytest.approx(2 + length / 4, abs=2)


def test_a_word_gets_the_same_pieces_however_often_it_comes(
    pieces: WordPieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_piece, "REMEMBERED_WORDS", 2)
    forgetful = WordPieces(PIECES, special=4, unknown=UNK, end=EOS)
    lines = ["a bc cab abc", "abc a", "cab bc abc bc"] * 2
    assert forgetful.encode(lines) == pieces.encode(lines) == [pieces.encode([x])[0] for x in lines]


def test_length_is_that_of_the_list(pieces: WordPieces) -> None:
    assert len(pieces) == len(PIECES)


def test_a_model_file_comes_back() -> None:
    difficult = [*PIECES, '"', "\\", "\u2028", "ß", "\U0001f600"]
    model = word_piece.dump(difficult)
    assert word_piece.load(model) == difficult
    assert model.decode().count("\n") == len(difficult) + 5  # one a line, for a person to read


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "Expecting"),
        (b"{}", "not of kind word_piece"),
        (b'{"version": "1.0", "model": {"type": "WordPiece"}}', "not of kind word_piece"),
        (b'["word_piece"]', "not of kind word_piece"),
        (b'{"kind": "word_piece"}', "not a list of texts"),
        (b'{"kind": "word_piece", "pieces": {"a": 1}}', "not a list of texts"),
        (b'{"kind": "word_piece", "pieces": ["a", 1]}', "not a list of texts"),
        (b'{"kind": "word_piece", "pieces": ["a", ""]}', "not a list of texts"),
        (json.dumps({"kind": "word_piece", "pieces": [*PIECES, "a"]}).encode(), "appears twice"),
        (b'{"kind": "word_piece", "pieces": ["a"]}', "none begins a word"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b'{"kind": "word_piece\xff"}', "utf-8"),
    ],
)
def test_a_damaged_model_file_says_what_is_wrong(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        word_piece.load(content)
