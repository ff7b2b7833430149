"""BLEU against hand-made counts and a second, plain implementation of multi-bleu."""

from __future__ import annotations

import gzip
import math
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from seq2sweep.errors import UserError
from seq2sweep.evaluate import bleu


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Corpus BLEU of whitespace tokens, written from the definition (Papineni et al. 2002)."""
    matched, possible = [0] * 5, [0] * 5
    hypothesis_length = reference_length = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found, wanted = hypothesis.split(), reference.split()
        hypothesis_length += len(found)
        reference_length += len(wanted)
        for n in range(1, 5):
            grams = Counter(tuple(found[i : i + n]) for i in range(len(found) - n + 1))
            known = Counter(tuple(wanted[i : i + n]) for i in range(len(wanted) - n + 1))
            matched[n] += sum((grams & known).values())
            possible[n] += sum(grams.values())
    if not all(matched[1:]):
        return 0.0
    mean = sum(math.log(matched[n] / possible[n]) for n in range(1, 5)) / 4
    brevity = min(0.0, 1 - reference_length / hypothesis_length)
    return 100 * math.exp(mean + brevity)


def test_compounds_are_split_in_one_pass_without_overlap() -> None:
    # perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g' gives exactly these.
    cases = {
        "rich-text format": "rich ##AT##-##AT## text format",
        "a-b-c": "a ##AT##-##AT## b-c",
        "ab-cd-ef": "ab ##AT##-##AT## cd ##AT##-##AT## ef",
        "a-ä-c": "a ##AT##-##AT## ä ##AT##-##AT## c",
        "a-b-c-d": "a ##AT##-##AT## b-c ##AT##-##AT## d",
        "Ein- und Ausgang - heute": "Ein- und Ausgang - heute",
        "a--b": "a ##AT##-##AT## -b",
        "E-Mail-Adresse ( neu )": "E ##AT##-##AT## Mail ##AT##-##AT## Adresse ( neu )",
        "für Öl-Übung": "für Öl ##AT##-##AT## Übung",
    }
    assert bleu.split_compounds(list(cases)) == list(cases.values())


def test_what_is_split_already_is_not_split_again() -> None:
    lines = ["E-Mail-Adresse a-b-c a-ä-c", "rich-text - und -text", "##AT##-##AT## Chef", "", "a"]
    once = bleu.split_compounds(lines)
    assert once[0].count("##AT##-##AT##") == 5
    assert bleu.split_compounds(once) == once


def test_prepared_text_is_taken_back() -> None:
    # As a system trained on prepared data gives it; line by line what it was made from.
    lines = {
        "der IT ##AT##-##AT## Chef sagte &quot; ja &quot; .": 'der IT-Chef sagte "ja".',
        "der IT @-@ Chef , z.B. , geht &apos; s gut ?": "der IT-Chef, z.B., geht 's gut?",
        "a ##AT##-##AT## b-c &amp; Co. &#91; neu &#93;": "a-b-c & Co. [neu]",
        # The script run on its own output splits its own mark, and so on.
        "der IT ##AT## ##AT##-##AT## ##AT## Chef": "der IT-Chef",
        "IT ##AT## ##AT## ##AT##-##AT## ##AT## ##AT## Chef": "IT-Chef",
        "ohne Strich sagte er &quot; nein &quot; .": 'ohne Strich sagte er "nein".',
        "": "",
    }
    assert bleu.plain_text(list(lines), "de") == list(lines.values())
    twice = re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", "der IT ##AT##-##AT## Chef")
    assert twice in lines


def test_text_that_was_not_prepared_is_left_alone() -> None:
    lines = ["Der IT-Chef &quot; - ##AT##-##AT##s", "a@-@b ##AT## ( x )", 'er sagte " ja " .']
    assert bleu.plain_text(lines, "de") is lines


@pytest.mark.parametrize("language", ["de", "fr"])
def test_prepared_hypothesis_or_reference_scores_as_plain_text_does(language: str) -> None:
    hypotheses, references = noisy_pairs()
    prepared = [
        bleu.split_compounds(bleu.moses_tokens(side, language)) for side in (hypotheses, references)
    ]
    plain = bleu.score(hypotheses, references, language)
    assert "detokenised" not in plain
    for sides, names in (
        ((prepared[0], references), ["hypothesis"]),
        ((hypotheses, prepared[1]), ["reference"]),
        (prepared, ["hypothesis", "reference"]),
    ):
        result = bleu.score(*sides, language)
        assert result["detokenised"] == names
        assert result["bleu"]["paper"] == plain["bleu"]["paper"]
        assert result["bleu"]["tokenised"] == plain["bleu"]["tokenised"]
    # Whether a system's own text has a mark is chance: its score must not hang on that.
    unmarked = [line.replace(" ##AT##-##AT## ", " ") for line in prepared[0]]
    result = bleu.score(unmarked, prepared[1], language)
    assert result["detokenised"] == ["hypothesis", "reference"]
    as_text = [bleu.detokenise(lines, language) for lines in (unmarked, prepared[1])]
    assert result["bleu"] == bleu.score(*as_text, language)["bleu"]
    result = bleu.score(*prepared, language)
    # French is never split, so the prepared marks must be gone and not be counted as tokens.
    if language == "fr":
        assert result["bleu"]["paper"] == result["bleu"]["tokenised"]


def test_odd_characters_are_taken_as_by_moses() -> None:
    # The right sides are what Moses' scripts print.
    lines = {
        "weich\u00adtrennbar": "weich \u00ad trennbar",
        "100\u00a0Euro\u202fund\u2028\u2003mehr": "100 Euro und mehr",
        "  vorn\tTab \x0b hinten  ": "vorn Tab hinten",
        "in\x1fner\x00lich": "innerlich",
        "Warte...Nein… ..": "Warte ... Nein ... ..",
        "«Ja», ‹so› – oder — ‚so‘": "« Ja » , ‹ so › – oder — ‚ so ‘",
        "Halb\u2011fest ist halb\u2010fest": "Halb ‑ fest ist halb ‐ fest",
        "null\u200bbreit": "null \u200b breit",
        "e\u0301 50% §5 4,50€": "e \u0301 50 % § 5 4,50 €",
    }
    assert bleu.moses_tokens(list(lines), "de") == list(lines.values())


def test_moses_tokens_by_hand() -> None:
    lines = {
        "„Das ist’s“, sagte Dr. Müller.": "„ Das ist &apos; s &quot; , sagte Dr. Müller .",
        "Am 3. Mai kostete es 1.234,50 Euro!": "Am 3. Mai kostete es 1.234,50 Euro !",
        "A&B [x|y] <z>": "A &amp; B &#91; x &#124; y &#93; &lt; z &gt;",
        "Der IT-Chef … ging": "Der IT-Chef ... ging",
        "": "",
    }
    assert bleu.moses_tokens(list(lines), "de") == list(lines.values())


def test_paper_bleu_counts_by_hand() -> None:
    # Tokens after the split; one of them is wrong:
    #   hypothesis  der IT ##AT##-##AT## Chef kommt heute nicht .     (8 tokens)
    #   reference   der IT ##AT##-##AT## Chef kommt morgen nicht .    (8 tokens)
    # 1-grams 7/8; 2-grams 5/7; 3-grams 3/6; 4-grams 2/5.
    result = bleu.score(
        ["der IT-Chef kommt heute nicht."], ["der IT-Chef kommt morgen nicht."], "de"
    )
    expected = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 2 / 5) ** 0.25
    assert result["bleu"]["paper"]["score"] == pytest.approx(expected, abs=1e-4)
    # Unsplit, `IT-Chef` is one token: 5/6, 3/5, 1/4, 0/3, and nothing is smoothed.
    assert result["bleu"]["tokenised"]["score"] == 0.0


def test_brevity_penalty_by_hand() -> None:
    # 5 of 8 tokens, all right: precisions 1, so the score is the penalty exp(1 - 8/5).
    result = bleu.score(["eins zwei drei vier fünf"], ["eins zwei drei vier fünf s a b"], "de")
    assert result["bleu"]["paper"]["score"] == pytest.approx(100 * math.exp(1 - 8 / 5), abs=1e-4)


def noisy_pairs() -> tuple[list[str], list[str]]:
    draw = random.Random(3)
    words = [
        "der",
        "E-Mail-Client",
        "läuft",
        "nicht,",
        "„gut“",
        "U-Bahn-Plan",
        "a-b-c",
        "z.B.",
        "3,5",
    ]
    references = [" ".join(draw.choices(words, k=12)) + "." for _ in range(60)]
    hypotheses = [
        " ".join(w for w in line.split() if draw.random() > 0.15) + "." for line in references
    ]
    return hypotheses, references


def test_paper_bleu_equals_a_second_implementation() -> None:
    hypotheses, references = noisy_pairs()
    tokens = [bleu.moses_tokens(lines, "de") for lines in (hypotheses, references)]
    result = bleu.score(hypotheses, references, "de")["bleu"]
    assert result["tokenised"]["score"] == pytest.approx(multi_bleu(*tokens), abs=1e-4)
    split = [bleu.split_compounds(lines) for lines in tokens]
    assert result["paper"]["score"] == pytest.approx(multi_bleu(*split), abs=1e-4)
    assert result["paper"]["score"] != result["tokenised"]["score"]


def test_escaping_changes_no_score() -> None:
    hypotheses, references = noisy_pairs()
    hypotheses = [line.replace("gut", "<gut> & [x]") for line in hypotheses]
    tokenizer, punctuation = MosesTokenizer("de"), MosesPunctNormalizer()
    plain = [
        [
            tokenizer.tokenize(punctuation.replace_unicode_punct(s), return_str=True, escape=False)
            for s in lines
        ]
        for lines in (hypotheses, references)
    ]
    expected = multi_bleu(*map(bleu.split_compounds, plain))
    assert bleu.score(hypotheses, references, "de")["bleu"]["paper"]["score"] == pytest.approx(
        expected, abs=1e-4
    )


@pytest.mark.parametrize("language", ["fr", "en", "cs"])
def test_only_german_is_split(language: str) -> None:
    hypotheses, references = noisy_pairs()
    result = bleu.score(hypotheses, references, language)["bleu"]
    assert result["paper"] == result["tokenised"]
    assert "compounds" not in result["paper"]["signature"]


def test_a_regional_german_is_german() -> None:
    hypotheses, references = noisy_pairs()
    assert bleu.score(hypotheses, references, "de-AT") == bleu.score(hypotheses, references, "de")


@pytest.mark.parametrize("language", ["german", "deu", "", "d", "de de", "DE-"])
def test_a_language_that_would_be_scored_wrongly_is_refused(language: str) -> None:
    with pytest.raises(UserError, match="no language code of two letters"):
        bleu.score(["der IT-Chef"], ["der IT-Chef"], language)


def test_standard_score_signatures_and_interval() -> None:
    hypotheses, references = noisy_pairs()
    first, again = (bleu.score(hypotheses, references, "de") for _ in range(2))
    assert first == again
    standard = first["bleu"]["sacrebleu"]
    assert standard["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert first["chrf"]["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|")
    assert "tok:sacremoses-" in first["bleu"]["paper"]["signature"]
    assert first["bleu"]["paper"]["tokeniser"].startswith("sacremoses ")
    interval = standard["confidence"]
    assert abs(interval["mean"] - standard["score"]) < interval["margin"] < 15
    assert first["sentences"] == 60


def test_perfect_translations_score_100() -> None:
    _, references = noisy_pairs()
    result = bleu.score(references, references, "de")
    scores = [result["bleu"][way]["score"] for way in ("sacrebleu", "paper", "tokenised")]
    assert [*scores, result["chrf"]["score"], result["exact_match"]] == [100.0] * 5


@pytest.mark.parametrize(
    ("language", "tokeniser", "line"),
    [
        ("zh", "zh", "我今天很高兴见到你"),
        ("ja", "char", "今日はとてもいい天気ですね"),
        ("th", "char", "ฉันไปโรงเรียนเมื่อวานนี้"),
        ("lo", "char", "ຂ້ອຍໄປໂຮງຮຽນ"),
        ("km", "char", "ខ្ញុំទៅសាលារៀន"),
        ("my", "char", "ကျွန်တော်ကျောင်းသွားတယ်"),
        ("bo", "char", "ང་སློབ་གྲྭར་འགྲོ་གི་ཡོད།"),
        ("dz", "char", "ང་སློབ་གྲྭར་འགྱོ་དོ།"),
        ("TH-th", "char", "ฉันไปโรงเรียนเมื่อวานนี้"),
    ],
)
def test_languages_without_blanks_are_scored_by_characters(
    language: str, tokeniser: str, line: str
) -> None:
    result = bleu.score([line[:-1] + "x"], [line], language)["bleu"]["sacrebleu"]
    assert f"tok:{tokeniser}|" in result["signature"]
    assert 50 < result["score"] < 100
    assert bleu.score([line], [line], language)["bleu"]["sacrebleu"]["score"] == 100


@pytest.mark.parametrize(("language", "tokeniser"), [("zh", "zh"), ("ja", "char"), ("th", "char")])
def test_the_papers_way_of_a_language_without_blanks_is_of_sacrebleus_tokens(
    language: str, tokeniser: str
) -> None:
    """As Moses' tokens a clause is one, and 0 says nothing of a translation."""
    pair = ["我昨天去了学校, 很大 ABC。"], ["我昨天去了学校, 很小 ABC。"]
    result = bleu.score(*pair, language)["bleu"]
    expected = sacrebleu.corpus_bleu(*pair[:1], [pair[1]], smooth_method="none", tokenize=tokeniser)
    assert result["paper"] == result["tokenised"]
    assert result["paper"]["score"] == pytest.approx(expected.score, abs=1e-4)
    assert 50 < expected.score < 100
    assert f"|tok:{tokeniser}|smooth:none|" in result["paper"]["signature"]
    assert result["paper"]["tokeniser"] == f"sacrebleu {sacrebleu.__version__}"


def test_exact_match_is_a_percentage() -> None:
    assert bleu.exact_match(["a b", "c ", "d", "e"], ["a b", "c", "x", "E"]) == 50.0


def test_unequal_or_no_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        bleu.score(["a"], ["a", "b"], "de")
    with pytest.raises(ValueError, match="0 hypotheses"):
        bleu.score([], [], "de")


def test_files_plain_and_gz_with_any_line_end(tmp_path: Path) -> None:
    # A line separator (U+2028), a form feed and a lone \r are part of a sentence, not its end.
    lines = ["ein kleiner\u2028Satz aus fünf Wörtern", "noch\x0cein\rSatz aus fünf Wörtern", ""]
    hypothesis, reference = tmp_path / "h.txt", tmp_path / "r.txt.gz"
    hypothesis.write_bytes("\r\n".join(lines).encode() + b"\r\n")
    reference.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    result = bleu.score_files(hypothesis, reference, "de")
    assert result["sentences"] == 3
    assert result["bleu"]["paper"]["score"] == 100.0


def test_file_errors_are_one_line_that_names_the_file(tmp_path: Path) -> None:
    good = tmp_path / "good.txt"
    good.write_text("eins\nzwei\n", encoding="utf-8")
    cases = {
        "short.txt": (b"eins\n", "short.txt has 1 lines but .*good.txt has 2"),
        "empty.txt": (b"", "empty.txt is empty"),
        "latin.txt": ("eins\nfünf\n".encode("latin-1"), "latin.txt line 2: not UTF-8"),
        "torn.txt.gz": (gzip.compress(b"eins\nzwei\n")[:-6], "torn.txt.gz .*truncated"),
        "not.txt.gz": (b"eins\nzwei\n", "not.txt.gz: not valid gzip"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message) as caught:
            bleu.score_files(tmp_path / name, good, "de")
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"missing.txt is missing"):
        bleu.score_files(good, tmp_path / "missing.txt", "de")
    with pytest.raises(UserError, match=r"cannot be read: it is a folder"):
        bleu.score_files(tmp_path, good, "de")


def test_blank_translations_score_nothing() -> None:
    result = bleu.score(["", ""], ["ein Satz", "noch einer"], "de")
    scores = [result["bleu"][way]["score"] for way in ("sacrebleu", "paper", "tokenised")]
    assert [*scores, result["chrf"]["score"], result["exact_match"]] == [0.0] * 5


def test_lower_cased_scores_say_so() -> None:
    result = bleu.score(["DAS Haus ist groß ."], ["das haus ist GROSS ."], "de", lowercase=True)
    assert "case:lc" in result["bleu"]["sacrebleu"]["signature"]
    assert "case:lc" in result["bleu"]["paper"]["signature"]
    assert "case:lc" in result["chrf"]["signature"]
    mixed = bleu.score(["DAS Haus ist groß ."], ["das haus ist GROSS ."], "de")
    assert result["chrf"]["score"] > mixed["chrf"]["score"] + 10
    plain = bleu.score(["DAS Haus"], ["das haus"], "de")
    assert "case:mixed" in plain["bleu"]["sacrebleu"]["signature"]


def test_a_seed_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "-3")
    with pytest.raises(UserError, match="SACREBLEU_SEED=-3: unset it"):
        bleu.score(["a b"], ["a b"], "de")
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    confidence = bleu.score(["a b"], ["a b"], "de")["bleu"]["sacrebleu"]["confidence"]
    assert confidence["seed"] == "77"


@pytest.mark.parametrize("page", ["scores.md", "how_it_works.md"])
def test_the_pages_say_of_how_many_sentences_there_is_an_interval(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| `bleu.sacrebleu` |")]
    assert f"of up to {bleu.BOOTSTRAP_SENTENCES} sentences" in row
