"""Whether a variant differs from the base: its figures, and how often chance is taken for more."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence

import numpy as np
import pytest

from seq2sweep.errors import UserError
from seq2sweep.evaluate import bleu
from seq2sweep.evaluate.brackets import score_trees, tree_or_none
from seq2sweep.evaluate.scorers import BleuScorer, Counts, TreeScorer
from seq2sweep.evaluate.significance import against_base, confidence
from tests.evaluate.made_up_trees import GOLD, parsed

SAMPLES = 100
WORDS = "der U-Bahn-Plan läuft „gut“ nicht, a-b-c z.B. 3,5 sehr E-Mail heute wieder".split()


def references(count: int = 40, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(6, 14))) + "." for _ in range(count)]


def spoilt(lines: list[str], share: float, seed: int) -> list[str]:
    """Each word replaced by another one with this chance."""
    chance = random.Random(seed)
    return [
        " ".join(chance.choice(WORDS) if chance.random() < share else w for w in line.split())
        for line in lines
    ]


def test_figures_are_those_of_a_plain_loop() -> None:
    wanted = references()
    base = [spoilt(wanted, 0.20, seed) for seed in (1, 2)]
    system = [spoilt(wanted, 0.21, seed) for seed in (3, 4, 5)]
    found = against_base(base, system, BleuScorer(wanted, "de"), samples=SAMPLES)

    def mean(translations: list[list[str]], draw: list[int]) -> float:
        scores = [
            bleu.corpus_bleu([lines[i] for i in draw], [wanted[i] for i in draw])
            for lines in translations
        ]
        return sum(scores) / len(scores)

    chance = np.random.default_rng(12345)
    draws = [list(range(40))] + [chance.integers(40, size=40).tolist() for _ in range(SAMPLES)]
    measured, *drawn = [mean(system, draw) - mean(base, draw) for draw in draws]
    above = sum(difference >= 0 for difference in drawn)
    below = sum(difference <= 0 for difference in drawn)
    assert 0 < above < below  # so that p is neither its smallest value nor 1
    assert found["bleu_difference"] == pytest.approx(measured, abs=2e-4)
    assert found["p"] == pytest.approx(2 * (above + 1) / (SAMPLES + 1), abs=1e-4)
    assert found["low"] == pytest.approx(np.percentile(drawn, 2.5), abs=2e-4)
    assert found["high"] == pytest.approx(np.percentile(drawn, 97.5), abs=2e-4)
    assert found["seen"] is (found["p"] < 0.05)
    assert json.loads(json.dumps(found)) == found


def test_the_same_texts_give_the_same_figures_and_other_draws_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = references()
    base, system = [spoilt(wanted, 0.2, 1)], [spoilt(wanted, 0.5, 2)]
    found = against_base(base, system, BleuScorer(wanted, "de"))
    assert against_base(base, system, BleuScorer(wanted, "de")) == found
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = against_base(base, system, BleuScorer(wanted, "de"))
    assert other != found
    assert other["low"] == pytest.approx(found["low"], abs=2)
    assert other["bleu_difference"] == found["bleu_difference"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_systems_that_are_the_same_never_differ(seeds: int) -> None:
    wanted = references()
    texts = [spoilt(wanted, 0.3, seed) for seed in range(seeds)]
    found = against_base(texts, texts[::-1], BleuScorer(wanted, "de"), samples=SAMPLES)
    assert found == {"bleu_difference": 0.0, "p": 1.0, "low": 0.0, "high": 0.0, "seen": False}


def test_systems_that_clearly_differ_are_seen_to() -> None:
    wanted = references()
    base = [spoilt(wanted, 0.5, seed) for seed in (1, 2, 3)]
    better = [spoilt(wanted, 0.1, seed) for seed in (4, 5, 6)]
    up = against_base(base, better, BleuScorer(wanted, "de"), samples=SAMPLES)
    down = against_base(better, base, BleuScorer(wanted, "de"), samples=SAMPLES)
    assert up["seen"]
    assert up["p"] == down["p"] == round(2 / (SAMPLES + 1), 4)
    scorer = BleuScorer(wanted[:10], "de")
    many = against_base([base[0][:10]], [wanted[:10]], scorer, samples=5_000)
    assert 0 < many["p"] < 0.01
    assert 0 < up["low"] < up["bleu_difference"] < up["high"]
    assert (down["low"], down["high"]) == (-up["high"], -up["low"])


class Lots:
    """A scorer of twenty sentences whose system wins by 1, then loses 24 draws of 1000 and wins the
    others."""

    name, signature, sentences = "bleu", "", 20

    def __init__(self) -> None:
        each = [1.0, *[-1.0] * 24, *[1.0] * 976]
        self.scores = iter([score for difference in each for score in (difference, 0.0)])

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        return np.ones((20, 1), dtype=np.int64)

    def score(self, counts: Counts) -> float:
        return next(self.scores)


@pytest.mark.parametrize(
    ("count", "p"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.0312), (9, 0.0039)]
)
def test_a_few_sentences_are_never_more_certain_than_the_sign_test(count: int, p: float) -> None:
    """Of one sentence all draws are alike."""
    wanted = references(count)
    found = against_base([spoilt(wanted, 0.5, 3)], [wanted], BleuScorer(wanted, "de"))
    assert found["bleu_difference"] > 0
    assert (found["p"], found["seen"]) == (p, p < 0.05)


def test_what_is_seen_is_what_the_kept_p_says() -> None:
    found = against_base([["a"]], [["b"]], Lots(), samples=1000)
    assert 2 * 25 / 1001 < 0.05
    assert (found["p"], found["seen"]) == (0.05, False)


def test_chance_is_taken_for_a_difference_about_as_often_as_said() -> None:
    # Two systems of equal worth: who translated which sentence is drawn by lot.
    wanted = references(60)
    first, second = spoilt(wanted, 0.2, 1), spoilt(wanted, 0.3, 2)
    chance = random.Random(3)
    seen = 0
    for _ in range(200):
        lots = [chance.random() < 0.5 for _ in wanted]
        base = [a if lot else b for a, b, lot in zip(first, second, lots, strict=True)]
        system = [b if lot else a for a, b, lot in zip(first, second, lots, strict=True)]
        seen += bool(
            against_base([base], [system], BleuScorer(wanted, "de"), samples=SAMPLES)["seen"]
        )
    # 10 of 200 are expected; fewer than 2 or more than 20 come less than once in 500 times.
    assert 2 <= seen <= 20


def test_scores_are_those_of_score() -> None:
    # Tokens are taken back to text, and case is ignored where it was when the trial was scored.
    wanted = references()
    base, system = spoilt(wanted, 0.2, 1), bleu.paper_tokens(spoilt(wanted, 0.3, 2), "de")
    shouted = [line.upper() for line in base]
    for other, lowercase in ((system, False), (shouted, True)):
        found = against_base(
            [base], [other], BleuScorer(wanted, "de", lowercase=lowercase), samples=2
        )
        scores = [
            bleu.score(lines, wanted, "de", lowercase=lowercase)["bleu"]["sacrebleu"]["score"]
            for lines in (other, base)
        ]
        assert found["bleu_difference"] == pytest.approx(scores[0] - scores[1], abs=2e-4)


def test_empty_translations_are_scored() -> None:
    wanted = references()
    found = against_base([wanted], [[""] * 40], BleuScorer(wanted, "de"), samples=SAMPLES)
    assert found["bleu_difference"] == -100
    assert found["seen"]


@pytest.mark.parametrize(
    ("base", "system", "wanted"),
    [
        ([], [["a"]], ["a"]),
        ([["a"]], [], ["a"]),
        ([["a"]], [["a"], ["a", "b"]], ["a"]),
        ([[]], [[]], []),
    ],
)
def test_texts_that_do_not_match_are_refused(
    base: list[list[str]], system: list[list[str]], wanted: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"translations, . references"):
        against_base(base, system, BleuScorer(wanted, "de"))


def test_a_seed_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(UserError, match="SACREBLEU_SEED=abc"):
        against_base([["a"]], [["a"]], BleuScorer(["a"], "de"))


# --- trees ---------------------------------------------------------------------------------------


tree = functools.cache(tree_or_none)


def f1(lines: list[str], draw: list[int]) -> float:
    found, gold = [tree(lines[place]) for place in draw], [tree(GOLD[place]) for place in draw]
    return float(score_trees(found, [one for one in gold if one])["f1"])


def test_parsers_are_compared_by_the_f1_of_a_plain_loop() -> None:
    base = [parsed(0.3, seed) for seed in (1, 2)]
    system = [parsed(0.34, seed) for seed in (3, 4, 5)]
    found = against_base(base, system, TreeScorer(GOLD), samples=SAMPLES)

    def mean(seeds: list[list[str]], draw: list[int]) -> float:
        return sum(f1(lines, draw) for lines in seeds) / len(seeds)

    chance = np.random.default_rng(12345)
    draws = [list(range(40))] + [chance.integers(40, size=40).tolist() for _ in range(SAMPLES)]
    measured, *drawn = [mean(system, draw) - mean(base, draw) for draw in draws]
    above = sum(difference >= 0 for difference in drawn)
    assert 0 < above < SAMPLES / 2
    assert found == {
        "f1_difference": pytest.approx(measured, abs=2e-4),
        "p": pytest.approx(2 * (above + 1) / (SAMPLES + 1), abs=1e-4),
        "low": pytest.approx(np.percentile(drawn, 2.5), abs=2e-4),
        "high": pytest.approx(np.percentile(drawn, 97.5), abs=2e-4),
        "seen": found["p"] < 0.05,
    }


def test_parsers_that_clearly_differ_are_seen_to() -> None:
    found = against_base([parsed(0.6, 1)], [parsed(0.1, 2)], TreeScorer(GOLD), samples=SAMPLES)
    assert found["seen"]
    assert 0 < found["low"] < found["f1_difference"] < found["high"]


# --- one system ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, "7"])
def test_the_interval_of_bleu_is_sacrebleus(
    seed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed is not None:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
    wanted = references()
    lines = spoilt(wanted, 0.2, 1)
    expected = bleu.score(lines, wanted, "de")["bleu"]["sacrebleu"]["confidence"]
    assert confidence(lines, BleuScorer(wanted, "de")) == expected


def test_the_interval_of_f1_is_that_of_a_plain_loop() -> None:
    lines = parsed(0.3, 1)
    chance = np.random.default_rng(12345)
    scores = sorted(f1(lines, chance.integers(40, size=40).tolist()) for _ in range(SAMPLES))
    found = confidence(lines, TreeScorer(GOLD), samples=SAMPLES)
    assert found == {
        "mean": pytest.approx(sum(scores) / SAMPLES, abs=2e-4),
        # 2 of 100 are below, and as many above.
        "margin": pytest.approx((scores[97] - scores[2]) / 2, abs=2e-4),
        "samples": SAMPLES,
        "seed": "12345",
    }
    assert json.loads(json.dumps(found)) == found
    assert found["margin"] > 1


def test_what_is_always_right_has_no_margin() -> None:
    found = confidence(GOLD, TreeScorer(GOLD), samples=SAMPLES)
    assert (found["mean"], found["margin"]) == (100.0, 0.0)


def test_nothing_has_no_interval() -> None:
    with pytest.raises(ValueError, match="no references"):
        confidence([], TreeScorer([]))
    with pytest.raises(ValueError, match="1 translations, 40 references"):
        confidence(["(S)"], TreeScorer(GOLD))
