"""The scores of section 6.1 and Table 2: figures that anyone can check, by hand or with Moses.

Constants that say so come from Moses' own Perl scripts (replace-unicode-punctuation.perl,
tokenizer.perl -l de as of 2017, the one-line split of compounds, n-gram counts of multi-bleu.perl).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacremoses.corpus import NonbreakingPrefixes

from seq2sweep.data.reading import read_lines
from seq2sweep.evaluate import bleu
from seq2sweep.evaluate.compare import compare

NEWSTEST2014 = Path(__file__).parents[3] / "shared/data/newstest/newstest2014.de.gz"
WAYS = ("sacrebleu", "paper", "tokenised")

# Matches and possible n-grams for n = 1 to 4, tokens of the hypothesis and of the reference.
Counts = tuple[list[int], list[int], int, int]


# --- The recipe a second time, from its description and without sacremoses' code ---

ASCII = {"”": '"', "“": '"', "’": "'", "…": "..."}
ESCAPES = {"&": "&amp;", "|": "&#124;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;"}
ESCAPES |= {"[": "&#91;", "]": "&#93;"}
PREFIXES = set(NonbreakingPrefixes().words("de"))
DOT_IN_A_ROW = "\ue000"


def plain_tokens(line: str) -> str:
    """Steps 1 to 3 for German, for the characters that the tests use."""
    for character, replacement in ASCII.items():
        line = line.replace(character, replacement)
    text = ""
    for character in line:
        if character in "\x1c\x1d\x1e\x1f":
            continue
        if character.isspace():
            text += " "
        elif character.isalnum() or character in ".'`,-":
            text += character
        elif ord(character) >= 32:
            text += f" {character} "
    text = re.sub(r"\.{2,}", lambda dots: f" {DOT_IN_A_ROW * len(dots.group())} ", text)
    text = re.sub(r"(?<=\D),|,(?=\D)|,$", " , ", text).replace("'", " ' ")
    words = text.split()
    tokens: list[str] = []
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        stem = word.removesuffix(".")
        full_stop = stem != word and stem != ""
        if full_stop and not keeps_its_dot(stem, following):
            tokens += [stem, "."]
        else:
            tokens.append(word)
    escaped = " ".join(tokens).replace(DOT_IN_A_ROW, ".")
    for character, replacement in ESCAPES.items():
        escaped = escaped.replace(character, replacement)
    return plain_split(escaped)


def keeps_its_dot(stem: str, following: str) -> bool:
    """An abbreviation, an ordinal before a number, or before a small letter."""
    return (
        ("." in stem and any(character.isalpha() for character in stem))
        or stem in PREFIXES
        or following[:1].islower()
        or (f"{stem} #NUMERIC_ONLY#" in PREFIXES and following[:1] in set("0123456789"))
    )


def plain_split(line: str) -> str:
    """Step 3, byte by byte."""
    text, split, at = line.encode(), b"", 0
    while at < len(text):
        before, hyphen, after = (text[i : i + 1] for i in range(at, at + 3))
        if hyphen == b"-" and before.strip() and after.strip():
            split += before + b" ##AT##-##AT## " + after
            at += 3
        else:
            split += before
            at += 1
    return split.decode()


def plain_counts(hypotheses: list[str], references: list[str]) -> Counts:
    """Step 4's sums over a corpus of tokens, from the definition (Papineni et al. 2002)."""
    matched, possible = [0] * 4, [0] * 4
    lengths = [0, 0]
    for pair in zip(hypotheses, references, strict=True):
        found, wanted = (line.split() for line in pair)
        lengths = [lengths[0] + len(found), lengths[1] + len(wanted)]
        for n in range(1, 5):
            grams, known = (
                Counter(tuple(side[i : i + n]) for i in range(len(side) - n + 1))
                for side in (found, wanted)
            )
            matched[n - 1] += sum((grams & known).values())
            possible[n - 1] += sum(grams.values())
    return matched, possible, lengths[0], lengths[1]


def multi_bleu(counts: Counts) -> float:
    matched, possible, length, wanted = counts
    mean = sum(math.log(m / p) for m, p in zip(matched, possible, strict=True)) / 4
    return 100 * math.exp(mean + min(0.0, 1 - wanted / length))


def counts_of(hypotheses: list[str], references: list[str]) -> Counts:
    """The sums that our paper BLEU is made from."""
    tokens = [bleu.paper_tokens(lines, "de") for lines in (hypotheses, references)]
    result: Any = bleu.token_metric(tokens[1]).corpus_score(tokens[0], None)
    return list(result.counts), list(result.totals), result.sys_len, result.ref_len


# --- By hand ---

# Split tokens of reference and hypothesis; n-grams of the hypothesis that match, of how many:
#   Der IT ##AT##-##AT## Chef sagte : „ Ja &quot; .
#   Der IT ##AT##-##AT## Chef sagte : &quot; Nein &quot; .     8/10  6/9  4/8  3/7
#   Die a ##AT##-##AT## b-c ##AT##-##AT## Regel gilt ...
#   the same                                                   8/8   7/7  6/6  5/5
#   Geht &apos; s gut , sagte Müller ##AT##-##AT## Lüdenscheidt ?
#   Geht &apos; s gut , Müller ##AT##-##AT## Lüdenscheidt ?    9/9   7/8  5/7  3/6
#   Der Preis stieg um 3,5 % .
#   nothing, and 7 tokens missing                              0/0   0/0  0/0  0/0
REFERENCES = [
    "Der IT-Chef sagte: „Ja“.",
    "Die a-b-c-Regel gilt …",
    "Geht's gut, sagte Müller-Lüdenscheidt?",
    "Der Preis stieg um 3,5 %.",
]
HYPOTHESES = [
    'Der IT-Chef sagte: "Nein".',
    "Die a-b-c-Regel gilt...",
    "Geht’s gut, Müller-Lüdenscheidt?",
    "",
]
BY_HAND: Counts = ([25, 20, 15, 11], [27, 24, 21, 18], 27, 35)


def test_paper_bleu_of_four_sentences_by_hand() -> None:
    assert counts_of(HYPOTHESES, REFERENCES) == BY_HAND
    expected = 100 * math.exp(1 - 35 / 27) * (25 / 27 * 20 / 24 * 15 / 21 * 11 / 18) ** 0.25
    assert expected == pytest.approx(56.6457, abs=1e-4)  # as Moses' scripts say
    scores = bleu.score(HYPOTHESES, REFERENCES, "de")["bleu"]
    assert scores["paper"]["score"] == pytest.approx(expected, abs=1e-4)
    # The split is what makes these two differ: unsplit, hyphenated words are one token each.
    assert scores["tokenised"]["score"] < scores["paper"]["score"] - 1


def test_the_plain_recipe_agrees_by_hand() -> None:
    tokens = [[plain_tokens(line) for line in lines] for lines in (HYPOTHESES, REFERENCES)]
    assert tokens[1][0] == "Der IT ##AT##-##AT## Chef sagte : „ Ja &quot; ."
    assert tokens[1][1] == "Die a ##AT##-##AT## b-c ##AT##-##AT## Regel gilt ..."
    assert plain_counts(*tokens) == BY_HAND


# --- On the paper's test set ---

STRAY = ["\u00ad", "\u00a0", "\u2028", "\t", "...", "…", "«", "»", "–", "„", "“", "’", "\u202f"]
STRAY += ["&", "[x]", "z.B.", "E-Mail-Adresse", "a-ä-b-c", "\x1f", "  ", "usw.", "3,5,", "..", "'"]
# What Moses' scripts count on `edited` against newstest2014, and multi-bleu.perl's score.
BY_MOSES: Counts = ([57642, 46627, 38475, 31421], [61011, 58016, 55021, 52029], 61011, 64496)
MOSES_BLEU = 71.0729


@pytest.fixture(scope="module")
def newstest2014() -> list[str]:
    if not NEWSTEST2014.exists():
        pytest.skip("newstest2014 is not beside this repository")
    return list(read_lines(NEWSTEST2014))


def edited(references: list[str]) -> list[str]:
    """A hypothesis: words missing, swapped, taken apart, and odd characters, without a draw."""
    hypotheses = []
    seen = 0
    for number, line in enumerate(references):
        words = line.split(" ")
        if number % 3 == 0 and len(words) > 4:
            words[1], words[2] = words[2], words[1]
        kept = []
        for word in words:
            seen += 1
            if seen % 11 == 0:
                continue
            if seen % 29 == 0:
                word = word.replace("-", " ")
            if seen % 23 == 0:
                stray = STRAY[seen // 23 % len(STRAY)]
                word = (word + stray, stray + word, f"{word} {stray}", word[:2] + stray + word[2:])[
                    seen % 4
                ]
            kept.append(word)
        hypotheses.append(("  " if number % 50 == 0 else "") + " ".join(kept))
        if number % 400 == 7:
            hypotheses[-1] = ""
    return hypotheses


def test_newstest2014_against_itself_is_100(newstest2014: list[str]) -> None:
    assert len(newstest2014) == 3003
    result = bleu.score(newstest2014, newstest2014, "de")
    assert [result["bleu"][way]["score"] for way in WAYS] == [100.0] * 3
    assert result["chrf"]["score"] == result["exact_match"] == 100.0
    confidence = result["bleu"]["sacrebleu"]["confidence"]
    assert (confidence["mean"], confidence["margin"]) == (100.0, 0.0)


def test_paper_bleu_on_newstest2014_is_that_of_moses(newstest2014: list[str]) -> None:
    hypotheses = edited(newstest2014)
    assert counts_of(hypotheses, newstest2014) == BY_MOSES
    score = bleu.score(hypotheses, newstest2014, "de")["bleu"]["paper"]["score"]
    assert score == pytest.approx(MOSES_BLEU, abs=1e-4)


def test_paper_bleu_on_newstest2014_is_that_of_the_plain_recipe(newstest2014: list[str]) -> None:
    sides = [[plain_tokens(line) for line in side] for side in (edited(newstest2014), newstest2014)]
    ours = [bleu.paper_tokens(side, "de") for side in (edited(newstest2014), newstest2014)]
    assert ours == sides
    assert plain_counts(*sides) == BY_MOSES
    assert multi_bleu(BY_MOSES) == pytest.approx(MOSES_BLEU, abs=1e-4)


def test_output_that_is_split_already_scores_the_same(newstest2014: list[str]) -> None:
    references = newstest2014[:600]
    hypotheses = [
        " ".join(word for i, word in enumerate(line.split(" ")) if i % 9 != 5)
        for line in references
    ]
    plain = bleu.score(hypotheses, references, "de")["bleu"]
    assert 50 < plain["paper"]["score"] < 95
    # What a system trained on prepared data gives: Moses tokens, escaped, compounds split.
    split = [plain_tokens(line) for line in hypotheses]
    assert any("&quot;" in line and "##AT##-##AT##" in line for line in split)
    again = bleu.score(split, references, "de")
    assert again["detokenised"] == ["hypothesis"]
    assert again["bleu"]["paper"] == plain["paper"]
    assert again["bleu"]["tokenised"] == plain["tokenised"]
    both = bleu.score(split, [plain_tokens(line) for line in references], "de")
    assert both["detokenised"] == ["hypothesis", "reference"]
    assert both["bleu"]["paper"] == plain["paper"]


# --- sacreBLEU's own figures ---


def systems() -> tuple[list[str], list[str], list[str]]:
    """A good system, a slightly worse one, and the reference, 150 sentences each."""
    draw = random.Random(7)
    words = "der die das E-Mail-Client läuft nicht, „gut“ U-Bahn 3,5 z.B. heute & morgen".split()
    references = [" ".join(draw.choices(words, k=14)) + "." for _ in range(150)]

    def worse(share: float) -> list[str]:
        return [
            " ".join(w for w in line.split() if draw.random() > share) + "." for line in references
        ]

    return worse(0.1), worse(0.12), references


def command(*arguments: str | Path) -> str:
    """Standard output of the `sacrebleu` command."""
    environment = os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1"}
    environment.pop("SACREBLEU_FORMAT", None)
    environment.pop("SACREBLEU_SEED", None)
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-q", "-w", "4"],
        env=environment,
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout.decode()


def written(folder: Path, **texts: list[str]) -> list[Path]:
    paths = []
    for name, lines in texts.items():
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def test_scores_and_interval_are_those_of_sacrebleu(tmp_path: Path) -> None:
    hypotheses, _, references = systems()
    result = bleu.score(hypotheses, references, "de")
    standard = result["bleu"]["sacrebleu"]
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert standard["score"] == pytest.approx(expected, abs=1e-4)
    expected = sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert result["chrf"]["score"] == pytest.approx(expected, abs=1e-4)
    hypothesis, reference = written(tmp_path, hypothesis=hypotheses, reference=references)
    shown = json.loads(
        command(reference, "-i", hypothesis, "-m", "bleu", "--confidence", "-f", "json")
    )
    assert standard["score"] == shown["score"]
    assert standard["confidence"] == {
        "mean": shown["confidence_mean"],
        "margin": shown["confidence_var"],
        "samples": int(shown["bs"]),
        "seed": shown["seed"],
    }


def shown_by_paired_bs(*arguments: str | Path) -> tuple[list[list[float]], list[str]]:
    """Figures of each cell in `sacrebleu --paired-bs`' table, and the signatures below it."""
    table = command(*arguments, "--paired-bs", "-f", "latex")
    cells = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)(?: \(p = ([\d.]+)\))?", table)
    figures = [[float(number) for number in cell if number] for cell in cells]
    return figures, re.findall(r"nrefs:\S+", table)


def cells_of(result: dict[str, Any]) -> list[list[float]]:
    """A compared metric as that table shows it."""
    baseline, system = (
        [result[name]["score"], *result[name]["confidence"].values()]
        for name in ("baseline", "system")
    )
    return [baseline, [*system, result["p_value"]]]


def test_paired_bootstrap_is_that_of_sacrebleu(tmp_path: Path) -> None:
    baseline, system, references = systems()
    result = compare(baseline, system, references, "de")
    assert 0.001 < result["bleu"]["sacrebleu"]["p_value"] < 0.9  # not one of the ends
    files = written(tmp_path, reference=references, baseline=baseline, system=system)
    figures, signatures = shown_by_paired_bs(files[0], "-i", *files[1:], "-m", "bleu", "chrf")
    standard, chrf = cells_of(result["bleu"]["sacrebleu"]), cells_of(result["chrf"])
    assert figures == [standard[0], chrf[0], standard[1], chrf[1]]
    assert signatures == [result["bleu"]["sacrebleu"]["signature"], result["chrf"]["signature"]]


def test_paired_bootstrap_of_the_paper_bleu_is_that_of_its_tokens(tmp_path: Path) -> None:
    baseline, system, references = systems()
    result = compare(baseline, system, references, "de")["bleu"]["paper"]
    sides = {"reference": references, "baseline": baseline, "system": system}
    files = written(
        tmp_path, **{name: [plain_tokens(s) for s in side] for name, side in sides.items()}
    )
    as_is = ["-m", "bleu", "--tokenize", "none", "--smooth-method", "none", "--force"]
    figures, signatures = shown_by_paired_bs(files[0], "-i", *files[1:], *as_is)
    assert figures == cells_of(result)
    named = re.sub(r"tok:[^|]+", "tok:none", result["signature"])
    assert signatures == [named]
    assert result["signature"] != named


def test_a_clearly_worse_system_is_told_from_a_lucky_one() -> None:
    good, _, references = systems()
    bad = [" ".join(line.split()[::-1]) for line in good]
    result = compare(good, bad, references, "de", samples=200)
    for figures in (result["bleu"]["sacrebleu"], result["bleu"]["paper"], result["chrf"]):
        assert figures["difference"] < -5
        assert figures["p_value"] < 0.01


def test_systems_that_differ_by_chance_are_not_told_apart() -> None:
    _, _, references = systems()
    # One word too many in every other sentence, or in the others: equally good.
    even = [line if i % 2 else "ja " + line for i, line in enumerate(references)]
    odd = ["ja " + line if i % 2 else line for i, line in enumerate(references)]
    result = compare(even, odd, references, "de", samples=200)
    for figures in (result["bleu"]["sacrebleu"], result["bleu"]["paper"], result["chrf"]):
        assert abs(figures["difference"]) < 1
        assert figures["p_value"] > 0.1


def test_a_system_against_itself_does_not_differ() -> None:
    system, _, references = systems()
    result = compare(system, list(system), references, "de", samples=200)
    for figures in (result["bleu"]["sacrebleu"], result["bleu"]["paper"], result["chrf"]):
        assert figures["difference"] == 0.0
        assert figures["p_value"] == 1.0
        assert figures["baseline"] == figures["system"]


def test_swapped_systems_swap_the_sign() -> None:
    baseline, system, references = systems()
    there = compare(baseline, system, references, "de", samples=200)
    back = compare(system, baseline, references, "de", samples=200)
    for one, other in (
        (there["bleu"]["sacrebleu"], back["bleu"]["sacrebleu"]),
        (there["bleu"]["paper"], back["bleu"]["paper"]),
        (there["chrf"], back["chrf"]),
    ):
        assert one["difference"] == -other["difference"] != 0.0
        assert one["p_value"] == other["p_value"]
        assert (one["baseline"], one["system"]) == (other["system"], other["baseline"])
