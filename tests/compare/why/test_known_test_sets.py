"""Test sets by their sum, and others of sacreBLEU's cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from seq2sweep.compare.why import known_test_sets
from seq2sweep.compare.why.waterfall import Texts
from seq2sweep.data.reading import read_lines
from seq2sweep.evaluate.bleu import corpus_bleu

from .made_up_output import references, translations

NEWSTEST = Path(__file__).parents[4] / "shared/data/newstest"


def score(texts: Texts) -> float:
    return corpus_bleu(texts.hypotheses, texts.references)


def test_a_sum_is_of_normalised_lines() -> None:
    expected = hashlib.sha256("Köln ist groß.\nJa.\n".encode()).hexdigest()
    assert known_test_sets.fingerprint(["Ko\u0308ln  ist\u00a0groß. ", "\u200bJa."]) == expected
    assert known_test_sets.fingerprint(["Köln ist groß. Ja."]) != expected


def test_newstest_is_known() -> None:
    if not NEWSTEST.is_dir():
        pytest.skip("newstest is not on this machine")
    for year, sentences in (("2013", 3000), ("2014", 3003)):
        for language in ("de", "en"):
            lines = [*read_lines(NEWSTEST / f"newstest{year}.{language}.gz")]
            assert known_test_sets.known(lines) == f"newstest{year} ({sentences} sentences)"
            assert known_test_sets.known(lines[:-1]) is None
            assert known_test_sets.known([line.lower() for line in lines]) is None


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of sacreBLEU, with two sets of en-de as long, and one of another pair."""
    sets = {("wmt15", "en-de"): 5, ("wmt16", "en-de"): 6, ("wmt17", "de-en"): 7}
    for dataset in DATASETS.values():
        monkeypatch.setattr(dataset, "_outdir", str(tmp_path / dataset.name))
    for (name, pair), seed in sets.items():
        put(name, pair, "ref", references(30, seed))
    return tmp_path


def put(name: str, pair: str, field: str, lines: list[str]) -> None:
    """Into the cache."""
    path = Path(DATASETS[name]._get_txt_file_path(pair, field))  # type: ignore[no-untyped-call]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_the_set_that_was_translated_is_found(cache: Path) -> None:
    given = Texts(translations(references(30, 6)), references(30, 8))
    cause, tried = known_test_sets.find_better(given, "en", "de", score)
    assert sorted(tried) == ["wmt15", "wmt16"]
    assert cause is not None
    assert cause.name == "test set"
    assert "wmt16" in cause.evidence
    assert cause.undo(given) == Texts(given.hypotheses, references(30, 6))


def test_the_set_that_was_given_stays(cache: Path) -> None:
    given = Texts(translations(references(30, 6)), references(30, 6))
    assert known_test_sets.find_better(given, "en", "de", score) == (None, ["wmt15"])
    shorter = Texts(given.hypotheses[:-1], given.references)
    assert known_test_sets.find_better(shorter, "en", "de", score) == (None, [])


CHANGES: dict[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "tokens": lambda line: re.sub("([.,„“!-])", r" \1 ", line),
    "entities": lambda line: line.replace("&", "&amp;").replace("„", "&bdquo;"),
    "compounds": lambda line: line.replace("-", " ##AT##-##AT## "),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_set_that_was_given_is_known_by_its_letters(cache: Path, change: str) -> None:
    changed = [CHANGES[change](line) for line in references(30, 6)]
    given = Texts(translations(references(30, 6)), changed)
    assert changed != references(30, 6)
    assert known_test_sets.find_better(given, "en", "de", score) == (None, ["wmt15"])


def test_other_references_of_the_same_sentences_are_no_other_set(cache: Path) -> None:
    sources = [f"Sentence {number}." for number in range(30)]
    put("wmt19", "en-de", "ref", references(30, 9))
    put("wmt19/google/ar", "en-de", "ref", references(30, 10))
    given = Texts(translations(references(30, 10)), references(30, 9))
    for name in ("wmt16", "wmt19"):
        put(name, "en-de", "src", [line + name for line in sources])
    # Of which sentences they are is not known without their source.
    cause, tried = known_test_sets.find_better(given, "en", "de", score)
    assert cause is not None
    assert sorted(tried) == ["wmt15", "wmt16", "wmt19/google/ar"]
    put("wmt19/google/ar", "en-de", "src", [line + "wmt19 " for line in sources])
    cause, tried = known_test_sets.find_better(given, "en", "de", score)
    assert cause is None
    assert sorted(tried) == ["wmt15", "wmt16"]
