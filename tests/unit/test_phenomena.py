"""Accuracy by phenomenon on a test set small enough to count by hand."""

from __future__ import annotations

import pytest

from seq2sweep.evaluate import bleu
from seq2sweep.evaluate.phenomena import accuracy_by_phenomenon

REFERENCES = [
    "der Mann liest heute ein Buch .",
    "die Frau liest heute kein Buch .",
    "wir sehen den alten Hund nicht .",
]
HYPOTHESES = [REFERENCES[0], "die Frau liest heute ein Buch .", REFERENCES[2]]
TAGS = [["article"], ["negation", "article"], ["negation", "accusative", "negation"]]


def test_each_sentence_counts_once_under_each_of_its_tags() -> None:
    result = accuracy_by_phenomenon(HYPOTHESES, REFERENCES, TAGS)
    assert list(result) == ["accusative", "article", "negation"]
    assert {tag: (v["sentences"], v["exact_match"]) for tag, v in result.items()} == {
        "accusative": (1, 100.0),
        "article": (2, 50.0),
        "negation": (2, 50.0),
    }


def test_bleu_is_over_the_tagged_sentences_alone() -> None:
    result = accuracy_by_phenomenon(HYPOTHESES, REFERENCES, TAGS)
    assert result["accusative"]["bleu"] == 100.0
    expected = bleu.score(HYPOTHESES[1:], REFERENCES[1:], "de")["bleu"]["sacrebleu"]["score"]
    assert result["negation"]["bleu"] == expected < 100


def test_a_sentence_without_tags_counts_nowhere() -> None:
    result = accuracy_by_phenomenon(HYPOTHESES, REFERENCES, [[], [], ["order"]])
    assert result == {"order": {"sentences": 1, "exact_match": 100.0, "bleu": 100.0}}
    assert accuracy_by_phenomenon(HYPOTHESES, REFERENCES, [[], [], []]) == {}


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        accuracy_by_phenomenon(HYPOTHESES, REFERENCES, TAGS[:2])
