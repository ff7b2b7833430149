"""Section 3.5: learned positions and sinusoids, within the lengths trained on and beyond them."""

from __future__ import annotations

from typing import Any

import pytest

from seq2sweep.config.scores import BLEU
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.findings import Finding, findings, notes
from seq2sweep.report.positions import length_scores
from tests.report.made_up_results import failed, seeded_sweep
from tests.report.positions.made_up_lengths import BASE, BINS, LEARNED, positions_sweep

AS_GOOD = "within the lengths trained on learned positions are as good"
LOSE_LESS = "beyond the lengths trained on sinusoids lose less"


def said(record: dict[str, Any]) -> dict[str, Finding]:
    found = findings(aggregate(record), length_scores.read(record))
    return {finding.claim: finding for finding in found}


def test_positions_that_are_as_the_paper_supposes() -> None:
    found = said(positions_sweep())
    assert (found[AS_GOOD].verdict, found[AS_GOOD].source) == ("holds", "section 3.5")
    assert found[AS_GOOD].evidence == (
        "learned less sinusoidal, within +0.1 BLEU (95 % −0.1 to +0.3)"
    )
    assert found[LOSE_LESS].verdict == "holds"
    assert found[LOSE_LESS].source == "section 3.5, a hypothesis"
    assert found[LOSE_LESS].evidence == (
        "sinusoids 40.0 within, 20.0 beyond, learned 40.1 within, 10.0 beyond: change of learned "
        "less that of sinusoids −10.1 BLEU (95 % −10.6 to −9.6)"
    )


@pytest.mark.parametrize("base", ["sinusoidal", "learned"])
@pytest.mark.parametrize(
    ("sinusoidal", "learned", "as_good", "lose_less"),
    [
        ((40.0, 20.0), (40.0, 25.0), "holds", "does not hold"),
        ((40.0, 20.0), (35.0, 20.0), "does not hold", "does not hold"),
        # Better beyond only because it is better everywhere: nothing is lost there.
        ((45.0, 25.0), (40.0, 20.0), "does not hold", "can not be told"),
        ((40.0, 20.0), (50.0, 20.0), "does not hold", "holds"),
        # Nothing is left of either to compare.
        ((30.0, 0.2), (40.0, 0.1), "does not hold", "can not be told"),
        ((40.0, 1.5), (40.0, 0.1), "holds", "holds"),
    ],
)
def test_verdicts_follow_planted_differences(
    base: str,
    sinusoidal: tuple[float, float],
    learned: tuple[float, float],
    as_good: str,
    lose_less: str,
) -> None:
    found = said(positions_sweep(sinusoidal, learned, base=base, spread=0.05))
    assert (found[AS_GOOD].verdict, found[LOSE_LESS].verdict) == (as_good, lose_less)


@pytest.mark.parametrize(("spread", "seeds"), [(9.0, 3), (0.1, 1)])
def test_seeds_that_differ_as_much_or_a_single_one_tell_nothing(spread: float, seeds: int) -> None:
    found = said(positions_sweep(learned=(40.1, 19.0), spread=spread, seeds=seeds))
    assert found[AS_GOOD].verdict == found[LOSE_LESS].verdict == "can not be told"


@pytest.mark.parametrize(
    ("bins", "said_of_them"),
    [
        (BINS[:3], "no validation sentences of more than 16 tokens"),
        ([*BINS[:3], (17, 20, 1)], "1 validation sentence of more than 16 tokens"),
        ([*BINS[:3], (17, 20, 29)], "29 validation sentences of more than 16 tokens"),
    ],
)
def test_without_enough_longer_sentences_it_can_not_be_told(
    bins: list[tuple[int, int, int]], said_of_them: str
) -> None:
    found = said(positions_sweep(bins=bins))
    assert found[LOSE_LESS].verdict == "can not be told"
    assert found[LOSE_LESS].evidence == said_of_them
    assert found[AS_GOOD].verdict == "holds"
    enough = positions_sweep(bins=[*BINS[:3], (17, 20, 30)])
    assert said(enough)[LOSE_LESS].verdict == "holds"


def test_only_seeds_that_both_finished_are_compared() -> None:
    record = positions_sweep()
    # It would turn the difference round.
    record["by_length"]["bleu"][f"{LEARNED} seed=3"] = {"bins": [1, 1, 1, 90], "within": 1}
    for trial in record["trials"]:
        if trial["variant"] == BASE and trial["seed"] == 3:
            trial |= failed("failed", "out of memory")
    found = said(record)
    assert found[LOSE_LESS].verdict == "holds"
    assert found[LOSE_LESS].evidence.startswith("sinusoids 40.0 within, 20.1 beyond, learned 40.0 ")
    for trial in record["trials"]:
        if trial["variant"] == LEARNED:
            trial |= failed("failed", "out of memory")
    found = said(record)
    assert {one.verdict for one in found.values()} == {"can not be told"}
    assert found[AS_GOOD].evidence == "learned less sinusoidal, within failed, not compared"
    assert found[LOSE_LESS].evidence == (
        "sinusoids – within, – beyond, learned – within, – beyond: change of learned less that of "
        "sinusoids failed, not compared"
    )


@pytest.mark.parametrize("stopped", [BASE, LEARNED])
def test_positions_of_which_the_weaker_seeds_were_stopped_tell_nothing(stopped: str) -> None:
    record = positions_sweep()
    for trial in record["trials"]:
        if trial["variant"] == stopped and trial["seed"] == 3:
            trial |= {"status": "stopped early", "steps": 100}
    found = said(record)
    assert {one.verdict for one in found.values()} == {"can not be told"}
    status = "2 of 3 seeds finished, 1 stopped early, not compared"
    assert found[AS_GOOD].evidence == f"learned less sinusoidal, within {status}"
    assert found[LOSE_LESS].evidence.endswith(f"change of learned less that of sinusoids {status}")


def test_models_that_have_not_learned_tell_nothing() -> None:
    record = positions_sweep()
    for trial in record["trials"]:
        trial["bleu"] /= 1000
    assert {found.verdict for found in said(record).values()} == {"can not be told"}


def test_without_scores_by_length_or_both_kinds_there_is_no_finding() -> None:
    record = positions_sweep()
    del record["by_length"]
    assert said(record).keys() & {AS_GOOD, LOSE_LESS} == set()
    assert said(record)  # Table 3 (E) is still told
    other = seeded_sweep({BASE: [40.0, 41.0], "d_k=4": [39.0, 38.0]})
    other["by_length"] = positions_sweep()["by_length"]
    assert said(other).keys() & {AS_GOOD, LOSE_LESS} == set()


def test_a_variant_that_changes_more_than_positions_is_not_compared() -> None:
    record = positions_sweep()
    for trial in record["trials"]:
        if trial["variant"] == LEARNED:
            trial["model"] = trial["model"] | {"layers": 7}
    assert said(record).keys() & {AS_GOOD, LOSE_LESS} == set()


def test_notes_say_what_is_within_and_beyond() -> None:
    text = " ".join(notes(list(said(positions_sweep()).values()), BLEU))
    assert "“may allow the model to extrapolate”" in text
    assert "a hypothesis" in text
    assert "fewer than 30 sentences" in text
    without = positions_sweep()
    del without["by_length"]
    assert "extrapolate" not in " ".join(notes(list(said(without).values()), BLEU))
