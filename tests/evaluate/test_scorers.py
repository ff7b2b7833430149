"""Sums over sentences score as the whole corpus does: BLEU of text, F1 of trees."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2sweep.config.scores import SCORES, Score
from seq2sweep.data.treebank.trees import Tree, parse_tree
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import rounded, score
from seq2sweep.evaluate.brackets import score_trees
from seq2sweep.evaluate.scorers import BleuScorer, TreeScorer, scorer
from tests.data.treebank.random_trees import trees
from tests.evaluate.made_up_trees import GOLD, parsed

S = "(TOP (S (NP (NN a)) (VP (VB b))))"


# --- trees ---------------------------------------------------------------------------------------


def of_trees(hypotheses: list[str], references: list[str]) -> float:
    """As `seq2sweep score --trees` has it; a line that is no tree is an error."""
    found: list[Tree | None] = []
    for line in hypotheses:
        try:
            found.append(parse_tree(line))
        except ValueError:
            found.append(None)
    return float(score_trees(found, [parse_tree(line) for line in references])["f1"])


def test_outputs_of_one_set_are_scored_alike_whichever_has_a_mark() -> None:
    """Seeds and variants are compared: of tokens that one has no mark in, it may by chance."""
    references = ["It &apos;s a well @-@ known fact .", "He doesn &apos;t know that ."]
    with_mark = BleuScorer(references, "en").counts(references)
    unmarked = [references[0].replace(" @-@ ", " "), references[1]]
    without = BleuScorer(references, "en").counts(unmarked)
    assert without[1].tolist() == with_mark[1].tolist()
    # References that are text say nothing of tokens, as a published test set's do not.
    text = ["It's a well-known fact.", "He doesn't know that."]
    assert BleuScorer(text, "en").counts(references).tolist() == with_mark.tolist()
    assert BleuScorer(text, "en").counts(unmarked)[1].tolist() != with_mark[1].tolist()


@given(st.lists(st.tuples(trees(), trees()), min_size=1, max_size=6), st.data())
def test_f1_of_trees_is_that_of_score_trees(
    pairs: list[tuple[Tree, Tree]], data: st.DataObject
) -> None:
    references = [str(reference) for reference, _ in pairs]
    hypotheses = []
    for reference, other in pairs:
        # Brackets of another tree over the same words, other words, the same tree, or no tree.
        words, tags = reference.words, reference.tags
        cut = [b._replace(end=min(b.end, len(words))) for b in other.brackets]
        kept = tuple(b for b in cut if b.start < b.end)
        choices = [str(Tree(words, tags, kept)), str(other), str(reference), "(S"]
        hypotheses.append(data.draw(st.sampled_from(choices)))
    of = TreeScorer(references)
    counts = of.counts(hypotheses)
    assert counts.shape == (len(pairs), 3)
    assert counts.dtype == np.int64
    assert rounded(of.score(counts.sum(axis=0))) == of_trees(hypotheses, references)
    # Of any choice of sentences, some of them twice.
    some = data.draw(st.lists(st.sampled_from(range(len(pairs))), min_size=1))
    assert rounded(of.score(counts[some].sum(axis=0))) == of_trees(
        [hypotheses[place] for place in some], [references[place] for place in some]
    )


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        (S, (3, 3, 3)),
        ("(TOP (S (NN a) (VP (VB b))))", (2, 3, 2)),
        # Other words, no tree, no words: left out of all three, of gold too.
        ("(TOP (S (NP (NN a)) (VP (VB c))))", (0, 0, 0)),
        ("(TOP (S (NP (NN a))", (0, 0, 0)),
        ("", (0, 0, 0)),
        ("(TOP (, ,))", (0, 0, 0)),
    ],
)
def test_counts_by_hand(hypothesis: str, expected: tuple[int, int, int]) -> None:
    of = TreeScorer([S, S])
    counts = of.counts([hypothesis, S])
    assert counts.tolist() == [list(expected), [3, 3, 3]]
    matched, gold, found = counts.sum(axis=0).tolist()
    assert of.score(counts.sum(axis=0)) == 100 * 2 * matched / (gold + found)
    assert of.score(np.zeros(3, dtype=np.int64)) == 0.0


def test_a_reference_that_is_no_tree_is_told() -> None:
    with pytest.raises(UserError, match="references line 2: 2 brackets that begin here are not"):
        TreeScorer([S, "(TOP (S"])


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_text_is_that_of_score(lowercase: bool) -> None:
    chance = random.Random(2)
    words = "der U-Bahn-Plan läuft „gut“ nicht, a-b-c z.B. 3,5 sehr E-Mail HEUTE wieder".split()
    references = [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(60)]
    hypotheses = [
        " ".join(chance.choice(words) if chance.random() < 0.2 else word for word in line.split())
        for line in references
    ]
    hypotheses[3], hypotheses[4] = "", hypotheses[4].upper()
    of = BleuScorer(references, "de", lowercase=lowercase)
    counts = of.counts(hypotheses)
    assert counts.dtype == np.int64
    places = chance.sample(range(60), 25)
    for some in (list(range(60)), places):
        expected = score(
            [hypotheses[place] for place in some],
            [references[place] for place in some],
            "de",
            lowercase=lowercase,
        )["bleu"]["sacrebleu"]
        assert rounded(of.score(counts[some].sum(axis=0))) == expected["score"]
        assert of.signature == expected["signature"]


def test_text_that_was_tokenised_is_taken_back() -> None:
    references = ["Der IT-Chef sagt: „ja“.", "Das Haus ist alt und klein."]
    tokens = ["der IT ##AT##-##AT## Chef sagt &quot; ja &quot; .", "das Haus ist alt ."]
    of = BleuScorer(references, "de")
    expected = score(tokens, references, "de")["bleu"]["sacrebleu"]["score"]
    assert rounded(of.score(of.counts(tokens).sum(axis=0))) == expected


# --- which ---------------------------------------------------------------------------------------


def test_the_target_says_by_what_is_scored() -> None:
    assert isinstance(scorer([S], "trees"), TreeScorer)
    of = scorer(["a b"], "de", lowercase=True)
    assert isinstance(of, BleuScorer)
    assert "case:lc" in of.signature
    assert scorer([S], "trees", lowercase=True).signature == "EVALB, COLLINS.prm"
    with pytest.raises(UserError, match="no language code"):
        scorer(["a"], "german")


@pytest.mark.parametrize("of", [TreeScorer([S, S]), BleuScorer(["a", "b"], "de")])
def test_texts_that_do_not_match_are_refused(of: TreeScorer | BleuScorer) -> None:
    assert of.sentences == 2
    with pytest.raises(ValueError, match="1 translations, 2 references"):
        of.counts([S])


@pytest.mark.parametrize("of", [TreeScorer([S]), BleuScorer(["a"], "de")])
def test_a_scorer_is_called_as_the_score_is(of: TreeScorer | BleuScorer) -> None:
    assert SCORES[of.name].name == of.name


# --- records -------------------------------------------------------------------------------------


def test_a_record_says_its_score_unless_that_is_bleu() -> None:
    assert Score.of({}) is SCORES["bleu"]
    for one in SCORES.values():
        assert Score.of(one.mark) is one
        assert one.columns[0] == one.name
        assert set(one.columns) <= set(one.metrics)
    assert SCORES["bleu"].mark == {}


def test_made_up_trees_have_all_kinds_of_mistakes() -> None:
    """What other tests are made from: right, wrong, other words, no tree."""
    hypotheses = parsed(0.5, 1)
    counts = TreeScorer(GOLD).counts(hypotheses)
    assert np.any(counts[:, 1] == 0)
    assert np.any((counts[:, 0] < counts[:, 1]) & (counts[:, 1] > 0))
    assert np.any((counts[:, 0] == counts[:, 2]) & (counts[:, 1] > 0))
