"""Faults of text, on lines that are written out."""

from __future__ import annotations

import re

import pytest

from seq2sweep.compare.why import text_causes
from seq2sweep.compare.why.text_causes import NAMES, find, unescape
from seq2sweep.compare.why.waterfall import Texts

REFERENCES = ["Der Chef der IT sagte: „Das ist gut.“", "Sie sah ihn, als er kam.", "Ja!"]


def mended(
    hypotheses: list[str], references: list[str] | None = None, language: str = "de"
) -> tuple[list[str], Texts]:
    """The names of what was found, and the texts without it."""
    texts, names = Texts(hypotheses, references or hypotheses), []
    for cause in find(texts, language):
        names.append(cause.name)
        texts = cause.undo(texts)
    return names, texts


def test_references_are_without_fault() -> None:
    assert mended(REFERENCES) == ([], Texts(REFERENCES, REFERENCES))


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("un@@ glaub@@ lich gut", "unglaublich gut"),
        ("▁un glaub lich ▁gut", "unglaublich gut"),
        ("un ##glaub ##lich gut", "unglaublich gut"),
        ("<s> unglaublich gut </s> <pad> <pad>", "unglaublich gut"),
        ("unglaublich gut@@", "unglaublich gut"),
    ],
)
def test_pieces_are_joined(bad: str, good: str) -> None:
    assert mended([bad], [good]) == (["pieces left in"], Texts([good], [good]))


@pytest.mark.parametrize(
    "line", ["@@ -1 +1 @@", "## Titel", "a ## b", "a▁b", "IT-Chef", "s> x", "# 1", "user@@example"]
)
def test_what_looks_like_pieces_only_stays(line: str) -> None:
    assert mended([line]) == ([], Texts([line], [line]))


def test_hyphens_are_joined() -> None:
    bad = ["der IT ##AT##-##AT## Chef", "der IT @-@ Chef"]
    assert mended(bad, ["der IT-Chef"] * 2) == (
        ["compound split"],
        Texts(["der IT-Chef"] * 2, ["der IT-Chef"] * 2),
    )


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("a &quot;b&quot; &amp; c", 'a "b" & c'),
        ("&#91; a &#93; &#124; &#x27;b&#x27;", "[ a ] | 'b'"),
        ("&amp;quot;a&amp;quot;", '"a"'),
        ("M&amp;uuml;ll", "Müll"),
    ],
)
def test_entities_are_the_characters_they_stand_for(bad: str, good: str) -> None:
    assert unescape(bad) == good
    assert mended([bad], [good]) == (["entities"], Texts([good], [good]))


@pytest.mark.parametrize("line", ["A & B; C", "R&D", "&copy 2014", "&nosuch;", "&;", "AT&T; x"])
def test_other_signs_are_no_entities(line: str) -> None:
    assert unescape(line) == line


def test_tokens_are_put_together() -> None:
    bad = ["Der Chef der IT sagte : „ Das ist gut . “", "Sie sah ihn , als er kam .", "Ja !"]
    assert mended(bad, REFERENCES) == (["detokenised or not"], Texts(REFERENCES, REFERENCES))
    english = ["He said “ I don 't . ”"]
    assert mended(english, ["He said “I don't.”"], "en")[1].hypotheses == ["He said “I don't.”"]


def test_a_blank_before_a_mark_here_and_there_is_no_tokenisation() -> None:
    lines = [*REFERENCES, "Nun , ja.", "Wie bitte ? Was !"]
    assert mended(lines)[0] == []


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ('Er sagte "ja" und "nein".', "Er sagte „ja“ und „nein“."),
        ('Er sagte ("ja").', "Er sagte („ja“)."),
        ("Er sagte „ja“.", 'Er sagte "ja".'),
        ("Er sagte «ja».", "Er sagte “ja”."),
        ("Er sagte ``ja''.", 'Er sagte "ja".'),
        ("Wie geht's?", "Wie geht’s?"),
        ("Wie geht’s?", "Wie geht's?"),
    ],
)
def test_quotes_are_those_of_the_reference(bad: str, good: str) -> None:
    assert mended([bad], [good]) == (["quotes"], Texts([good], [good]))


def test_references_of_several_styles_are_matched_line_by_line() -> None:
    mixed = ["Er sagte „ja“.", 'Er sagte "ja".', "Er kam."]
    assert mended(mixed) == ([], Texts(mixed, mixed))
    bad = ['Er sagte "ja".', 'Er sagte "ja".', "Er „kam“."]
    good = ["Er sagte „ja“.", 'Er sagte "ja".', "Er „kam“."]
    assert mended(bad, mixed)[1].hypotheses == good


def test_case_is_that_of_the_reference() -> None:
    lower = [line.lower() for line in REFERENCES]
    assert mended(lower, REFERENCES) == (["case"], Texts(REFERENCES, REFERENCES))
    assert mended([line.upper() for line in REFERENCES], REFERENCES)[1].hypotheses == REFERENCES


def test_a_word_of_another_line_has_its_usual_case_and_a_sentence_a_capital() -> None:
    references = ["Der Mann sah den Garten.", "Er kam. Wir sahen Mann und Garten."]
    names, texts = mended(["ein garten.", "mann! garten, mann."], references)
    assert names == ["case"]
    assert texts.hypotheses == ["Ein Garten.", "Mann! Garten, Mann."]


def test_of_references_in_lower_case_translations_become_so() -> None:
    lower = [line.lower() for line in REFERENCES]
    assert mended(REFERENCES, lower) == (["case"], Texts(lower, lower))


@pytest.mark.parametrize("mark", ["<unk>", "<UNK>", "< unk >", "[UNK]", "⁇", "UNK"])
def test_an_unknown_word_is_what_the_reference_has_between_the_same(mark: str) -> None:
    references = ["Sie sah Herrn Peters dort gern."]
    assert mended([f"Sie sah Herrn {mark} dort."], references) == (
        ["unknowns"],
        Texts(["Sie sah Herrn Peters dort."], references),
    )
    assert mended([f"Sie sah {mark} dort gern."], references)[1].hypotheses == [
        "Sie sah ⁇ dort gern."
    ]


def test_other_words_are_not_unknown() -> None:
    lines = ["Die UNKW und unk und <unkraut> sagen: Ja?"]
    assert mended(lines)[0] == []


def sentence(words: int, end: str = ".") -> str:
    return " ".join(f"Wort{n}" for n in range(words)) + end


def test_references_are_cut_where_translations_are() -> None:
    references = [sentence(n) for n in (5, 9, 12, 15, 18, 20)]
    bad = [" ".join(line.split()[:12]) for line in references]
    names, texts = mended(bad, references)
    assert names == ["cut lengths"]
    assert texts.hypotheses == bad
    assert texts.references == references[:3] + [sentence(12, "")] * 3


@pytest.mark.parametrize("end", ["。", "！", "？」", "।", "؟"])
def test_sentences_end_in_other_scripts_too(end: str) -> None:
    references = [sentence(n, end) for n in (5, 9, 12, 15, 18, 20)]
    bad = [" ".join(line.split()[:12]) for line in references]
    assert mended(bad, references)[0] == ["cut lengths"]


def test_lines_without_blanks_are_cut_and_compared_by_their_characters() -> None:
    """Also where a word of another script stands between blanks."""
    references = [f"在2020年 Python {'很' * n}好。" for n in range(5, 40, 5)]
    bad = [line[:25] for line in references]
    names, texts = mended(bad, references)
    assert names == ["cut lengths"]
    assert texts.references == [references[0], *(line[:25] for line in references[1:])]
    # The first lines of a file are not the longest ones.
    references = [f"{'很' * n}好。" for n in range(5, 40)]
    assert mended([line[:-1] for line in references[:3]] + references[3:], references)[0] == []


def test_of_the_longest_lines_a_few_may_be_whole() -> None:
    """Here the longest of all does not break off."""
    references = [sentence(n) for n in (5, 9, 15, 18, 20, 14)]
    bad = [" ".join(line.split()[:12]) for line in references[:-1]] + references[-1:]
    (cause,) = find(Texts(bad, references), "de")
    assert cause.evidence == "3 translations, most of the longest, break off"
    assert cause.undo(Texts(bad, references)).references[-1] == references[-1]


def test_lines_that_break_off_are_not_cut_where_most_as_long_do_not() -> None:
    references = [sentence(20) for _ in range(9)]
    hypotheses = [sentence(20, "")] * 4 + references[4:]
    hypotheses[:4] = [sentence(16, "")] * 4
    assert mended(hypotheses, references)[0] == []
    assert mended([sentence(16, "")] * 2 + [sentence(9)] * 7, references)[0] == []
    headlines = [sentence(20, "") for _ in range(9)]
    assert mended([sentence(12, "")] * 9, headlines)[0] == []


def test_each_is_found_in_text_where_those_before_are_undone() -> None:
    good = ["Er sagte „ja“ zum IT-Chef, und kam.", "Sie kam, sah, und ging."] * 3
    bad = [
        "er sagte &quot; ja &quot; zum it @-@ ch@@ ef , und kam .",
        "sie kam , sah , und gi@@ ng .",
    ] * 3
    names, texts = mended(bad, good)
    assert names == [name for name in NAMES if name not in ("unknowns", "cut lengths")]
    assert texts == Texts(good, good)


def test_empty_lines_do_no_harm() -> None:
    assert mended(["", ""], ["a", ""]) == ([], Texts(["", ""], ["a", ""]))


class Watched:
    """A pattern that knows of how many characters at most it was asked."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.most = pattern, 0

    def search(self, text: str, start: int = 0, *end: int) -> re.Match[str] | None:
        self.most = max(self.most, *(at - start for at in end or (len(text),)))
        return self.pattern.search(text, start, *end)


def test_of_a_long_line_each_word_is_looked_at_with_what_stands_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patterns = {name: Watched(getattr(text_causes, name)) for name in ("_START", "_OPENS")}
    for name, pattern in patterns.items():
        monkeypatch.setattr(text_causes, name, pattern)
    good = " ".join(["Er sagte „ja“ zum IT-Chef."] * 100)
    bad = good.lower().translate(str.maketrans("„“", '""'))
    names, texts = mended([bad], [good])
    assert (names, texts.hypotheses) == (["quotes", "case"], [good])
    assert all(0 < pattern.most <= text_causes.NEAR for pattern in patterns.values())


def test_many_blanks_begin_no_sentence() -> None:
    good = "Er sah" + 50 * " " + "ihn."
    assert mended([good.lower()], [good])[1].hypotheses == [good]


def test_what_is_escaped_over_and_over_is_not_followed_to_its_end() -> None:
    assert unescape("&amp;amp;amp;quot;") == '"'
    assert unescape("&" + "amp;" * 9 + "lt;").startswith("&amp;")
