"""Reasons to drop a training pair, each by itself."""

from __future__ import annotations

import pytest

from seq2sweep.data.filters import (
    LANGUAGES_OF_SCRIPT,
    is_copied,
    is_empty,
    is_other_script,
    is_out_of_proportion,
    is_too_long,
)


@pytest.mark.parametrize("text", ["", " ", "\t\u3000\u2028"])
def test_white_space_is_empty(text: str) -> None:
    assert is_empty(text)
    assert not is_empty(text + ".")


def test_too_long_counts_words() -> None:
    assert not is_too_long("a " * 19 + "a", 20)
    assert is_too_long("a " * 20 + "a", 20)
    assert is_too_long("a\t" * 20 + "a", 20)
    assert not is_too_long("a" + "  " * 30 + "a", 20)


def test_too_long_bounds_text_without_blanks() -> None:
    assert not is_too_long("漢" * 400, 20)
    assert is_too_long("漢" * 401, 20)


@pytest.mark.parametrize(
    ("source", "target", "dropped"),
    [
        ("word " * 4, "word", False),  # short pairs are not judged
        ("word " * 10, "word", False),
        ("word " * 11, "word", True),
        ("word " * 12, "word " * 4, False),  # exactly the ratio
        ("word " * 13, "word " * 4, True),
        ("word " * 30, "word " * 29, False),
        ("word " * 11, "", True),
        # One "word" against 12, but in proportion by bytes.
        ("今日は天気がとても良いので公園へ行きます。", "word " * 12, False),
        ("a b c d e f g h i j k l m", "Donaudampfschiffahrtsgesellschaft", False),
    ],
)
def test_ratio_is_symmetric_and_spares_short_pairs(source: str, target: str, dropped: bool) -> None:
    source, target = source.strip(), target.strip()
    assert is_out_of_proportion(source, target, 3.0) is dropped
    assert is_out_of_proportion(target, source, 3.0) is dropped


@pytest.mark.parametrize(
    ("source", "target", "dropped"),
    [
        ("Monsieur, je veux vous dire quelque", "Monsieur, je veux vous dire quelque", True),
        ("one TWO three four five six", "One two three four five SIX", True),
        ("one two three four five six", "one two three four five sex", False),
        ("one two three four five six", "one two three four five six.", False),
        ("one two three four five", "one two three four five", False),  # too short to judge
        ("Berlin", "Berlin", False),
        ("2000 , 2001 , 2002 , 2003 ...", "2000 , 2001 , 2002 , 2003 ...", False),
        ("Inc. 1 2 3 4 5 6 7", "Inc. 1 2 3 4 5 6 7", False),
        ("a1 b2 c3 d4 e5 f6", "a1 b2 c3 d4 e5 f6", True),
        ("ÄPFEL ÄPFEL ÄPFEL ÄPFEL ÄPFEL ÄPFEL", "äpfel äpfel äpfel äpfel äpfel äpfel", True),
    ],
)
def test_copied_sentences_are_found(source: str, target: str, dropped: bool) -> None:
    assert is_copied(source, target) is dropped
    assert is_copied(target, source) is dropped


@pytest.mark.parametrize(
    ("text", "language", "other"),
    [
        ("Grüße aus Zürich – naïve façade, 20 €", "de", False),
        ("Tiếng Việt", "vi", False),
        ("Добрый день", "en", True),
        ("Добрый день", "ru", False),
        ("Добрый день", "sr", False),
        ("Dobar dan", "sr", False),
        ("Добрый day", "en", True),
        ("Добрый morning", "en", False),
        ("Ωμέγα omega", "en", False),  # half is not more than half
        ("今日は天気がいい", "en", True),
        ("今日は天気がいい", "ja", False),
        ("コーヒー", "ja", False),  # the long vowel mark belongs to no script alone
        ("今天天气很好", "zh-Hant", False),
        ("안녕하세요", "zh_CN", True),
        ("안녕하세요", "ko", False),
        ("请打开 Microsoft Word 文件。", "zh", False),  # names
        ("LG전자와 Samsung Electronics", "ko", False),
        ("Я купил iPhone 15 Pro Max.", "ru", False),
        ("Good morning Иван", "ru", False),
        ("The cat is sleeping in Тверь", "ru", False),
        ("The cat is sleeping in the Дом", "ru", True),
        ("Good morning", "de", False),  # another language, but not another script
        ("Good morning", "ru", True),
        ("Good morning", "RU", True),
        ("नमस्ते", "hi", False),
        ("Добрый день", "xx", False),  # a language we do not know
        ("12 + 5 = 17 \u00b5", "en", False),
        ("12 + 5 = 17 \u00b5", "ru", False),
        ("\U0001d400\U0001d401", "en", False),  # mathematical letters are nobody's
        ("👨‍👩‍👧", "en", False),
        ("", "en", False),
        ("", "ru", False),
    ],
)
def test_script(text: str, language: str, other: bool) -> None:
    assert is_other_script(text, language) is other


def test_every_script_is_one_that_unicode_has() -> None:
    for codes in LANGUAGES_OF_SCRIPT.values():
        for code in codes.split():
            assert is_other_script("Ⲁⲃⲅ", code)  # Coptic is none of them
