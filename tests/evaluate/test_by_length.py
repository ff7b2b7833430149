"""BLEU by the length of the source: which sentences are in a bin, and what they score."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu

from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import score
from seq2sweep.evaluate.brackets import score_trees, tree_or_none
from seq2sweep.evaluate.by_length import Lengths, ScoresByLength, TrainedOn, edges
from seq2sweep.evaluate.scorers import BleuScorer, TreeScorer
from tests.evaluate.made_up_trees import GOLD, parsed


def lengths_of(*values: int) -> Lengths:
    return np.array(values, dtype=np.int32)


def random_set(sentences: int = 300) -> tuple[Lengths, list[str], list[str]]:
    """Lengths of 2 to 30 tokens, references, and translations that get worse with length."""
    chance = random.Random(5)
    lengths = [chance.randint(2, 30) for _ in range(sentences)]
    references = [" ".join(f"w{chance.randint(0, 9)}" for _ in range(n)) for n in lengths]
    translations = [
        " ".join(word if chance.random() > n / 40 else "x" for word in text.split())
        for n, text in zip(lengths, references, strict=True)
    ]
    return lengths_of(*lengths), references, translations


# --- lengths -------------------------------------------------------------------------------------


def test_usual_is_what_99_percent_of_the_training_data_have_at_most() -> None:
    assert TrainedOn.of(lengths_of(*[5] * 99, 40)) == TrainedOn(5, 40)
    assert TrainedOn.of(lengths_of(*[5] * 98, 30, 40)) == TrainedOn(30, 40)
    assert TrainedOn.of(lengths_of(7)) == TrainedOn(7, 7)


@pytest.mark.parametrize(
    ("lengths", "trained_on", "expected"),
    [
        (range(1, 9), None, [(1, 2), (3, 4), (5, 6), (7, 8)]),
        (range(1, 9), TrainedOn(8, 9), [(1, 2), (3, 4), (5, 6), (7, 8)]),
        # Of exactly the usual length is usual, and of exactly the longest trained on is rare.
        ([1, 2, 3, 4], TrainedOn(4, 6), [(1, 1), (2, 2), (3, 3), (4, 4)]),
        ([4, 5, 6, 7, 9], TrainedOn(4, 6), [(4, 4), (5, 6), (7, 9)]),
        ([4, 7, 9], TrainedOn(4, 4), [(4, 4), (5, 9)]),
        ([4, 5], TrainedOn(4, 6), [(4, 4), (5, 5)]),
        # A length of more than a quarter closes one bin only; there are fewer bins then.
        ([3] * 5 + [4] * 5 + [6], None, [(3, 3), (4, 4), (5, 6)]),
        ([3] * 9, None, [(3, 3)]),
        ([9, 7], TrainedOn(3, 5), [(6, 9)]),
    ],
)
def test_bins_by_hand(
    lengths: list[int], trained_on: TrainedOn | None, expected: list[tuple[int, int]]
) -> None:
    shuffled = random.Random(1).sample(list(lengths), len(lengths))
    assert edges(lengths_of(*shuffled), trained_on) == expected


@pytest.mark.parametrize("trained_on", [None, TrainedOn(20, 25), TrainedOn(1, 1), TrainedOn(9, 40)])
def test_each_sentence_is_in_one_bin(trained_on: TrainedOn | None) -> None:
    lengths, references, _ = random_set()
    bins = ScoresByLength(BleuScorer(references, "de"), lengths, trained_on=trained_on).bins
    for length in lengths.tolist():
        assert sum(one["shortest"] <= length <= one["longest"] for one in bins) == 1
    assert sum(one["sentences"] for one in bins) == len(lengths)
    assert all(one["sentences"] for one in bins)


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu_over_the_sentences_of_a_bin(lowercase: bool) -> None:
    lengths, references, translations = random_set()
    translations = [t.upper() if i % 3 else t for i, t in enumerate(translations)]
    scorer = BleuScorer(references, "de", lowercase=lowercase)
    scores = ScoresByLength(scorer, lengths, trained_on=TrainedOn(20, 25))

    def independent(shortest: int, longest: int) -> float:
        pairs = [
            (translation, reference)
            for n, translation, reference in zip(
                lengths.tolist(), translations, references, strict=True
            )
            if shortest <= n <= longest
        ]
        some, wanted = zip(*pairs, strict=True)
        return float(sacrebleu.corpus_bleu(some, [wanted], lowercase=lowercase).score)

    found = scores.score(translations)
    assert [one["shortest"] for one in scores.bins[-2:]] == [21, 26]
    for one, bleu in zip(scores.bins, found["bins"], strict=True):
        assert bleu == pytest.approx(independent(one["shortest"], one["longest"]), abs=6e-5)
    assert found["within"] == pytest.approx(independent(1, 20), abs=6e-5)
    assert len(set(found["bins"])) == len(scores.bins)


def test_a_single_bin_scores_as_the_whole_set_does() -> None:
    """The same BLEU, with the same signature: also of text that was tokenised before."""
    references = ["der IT ##AT##-##AT## Chef sagt &quot; ja &quot; .", "Das Haus ist alt ."] * 4
    translations = [*references[:5], "der alte Chef", "ein Haus", "x"]
    scorer = BleuScorer(references, "de")
    scores = ScoresByLength(scorer, lengths_of(*[9] * 8))
    whole = score(translations, references, "de")["bleu"]["sacrebleu"]
    assert scores.score(translations) == {"bins": [whole["score"]], "within": whole["score"]}
    assert scorer.signature == whole["signature"]
    lower = BleuScorer(references, "de", lowercase=True)
    expected = score(translations, references, "de", lowercase=True)["bleu"]["sacrebleu"]
    assert lower.signature == expected["signature"]


def test_trees_are_scored_by_the_f1_of_a_bin() -> None:
    lines = parsed(0.4, 1)
    lengths = lengths_of(*[line.count("(NN ") for line in GOLD])
    limit = int(np.median(lengths))
    scores = ScoresByLength(TreeScorer(GOLD), lengths, trained_on=TrainedOn(limit, limit))
    found = scores.score(lines)

    def independent(shortest: int, longest: int) -> float:
        places = [place for place, n in enumerate(lengths) if shortest <= n <= longest]
        gold = [parse_tree(GOLD[place]) for place in places]
        return float(score_trees([tree_or_none(lines[place]) for place in places], gold)["f1"])

    assert len(set(found["bins"])) == len(scores.bins) > 2
    assert found["bins"] == [independent(one["shortest"], one["longest"]) for one in scores.bins]
    assert found["within"] == independent(1, limit)


@pytest.mark.parametrize(
    ("words", "trained_on", "expected"),
    [
        # Of the references of so many words each is of so many source tokens.
        ([1, 2, 7, 8], None, [(1, 3), (4, 4)]),
        ([1, 7, 2, 8], None, [(1, 3), (4, 4)]),
        ([7, 1, 8, 2], None, [(1, 2), (3, 4)]),
        ([1, 2, 3, 3], None, [(1, 4)]),
        ([7, 4, 8, 9], None, [(1, 1), (2, 2), (3, 3), (4, 4)]),
        # What is rare, and what is beyond all that was trained on, stays apart.
        ([7, 8, 1, 2], TrainedOn(2, 3), [(1, 1), (2, 2), (3, 3), (4, 4)]),
        ([1, 2, 7, 8], TrainedOn(2, 3), [(1, 2), (3, 3), (4, 4)]),
    ],
)
def test_a_bin_in_which_nothing_could_score_is_one_with_its_neighbour(
    words: list[int], trained_on: TrainedOn | None, expected: list[tuple[int, int]]
) -> None:
    references = [" ".join("abcdefghi"[:n]) for n in words]
    scorer = BleuScorer(references, "de")
    scores = ScoresByLength(scorer, lengths_of(1, 2, 3, 4), trained_on=trained_on)
    assert [(one["shortest"], one["longest"]) for one in scores.bins] == expected
    perfect = [
        100.0 if any(n > 3 for n in words[first - 1 : last]) else 0.0 for first, last in expected
    ]
    assert scores.score(references)["bins"] == perfect


def test_without_a_sentence_of_a_usual_length_there_is_no_score_within() -> None:
    scores = ScoresByLength(
        BleuScorer(["a b c d e"], "de"), lengths_of(9), trained_on=TrainedOn(3, 5)
    )
    found = scores.score(["a b c d e"])
    assert found["within"] is None
    assert found["bins"] == [pytest.approx(100)]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 references, 1 lengths"):
        ScoresByLength(BleuScorer(["a", "b"], "de"), lengths_of(1))
    with pytest.raises(ValueError, match="0 references, 0 lengths"):
        ScoresByLength(BleuScorer([], "de"), lengths_of())
    with pytest.raises(ValueError, match="1 translations, 2 references"):
        ScoresByLength(BleuScorer(["a", "b"], "de"), lengths_of(1, 2)).score(["a"])
    with pytest.raises(UserError, match="no language code"):
        ScoresByLength(BleuScorer(["a"], "german"), lengths_of(1))
