"""Do the paper's findings hold: the verdicts, from the figures of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.findings import Finding, findings
from tests.report.made_up_results import failed, sweep, table3_sweep

CLAIMS = (
    "a single head is worse",
    "too many heads are worse",
    "a small d_k is worse",
    "bigger models are better",
    "dropout helps",
    "learned positions are as good as sinusoids",
)


def said(record: dict[str, Any]) -> dict[str, Finding]:
    return {finding.claim: finding for finding in findings(aggregate(record))}


def record_of(
    differences: dict[str, float], *, p: float | None = 0.002, margin: float = 0.3
) -> dict[str, Any]:
    """The table at the demonstration's size with these BLEU differences, all else 0."""
    record = table3_sweep(noise=0)
    for one in record["trials"]:
        one["bleu"] = 60 + differences.get(one["variant"], 0.0)
        one["status"] = "finished"
    record["significance"] = None
    if p is not None:
        record["significance"] = {
            one["variant"]: {
                "bleu_difference": one["bleu"] - 60,
                "p": p if one["bleu"] != 60 else 1.0,
                "low": one["bleu"] - 60 - margin,
                "high": one["bleu"] - 60 + margin,
                "seen": p < 0.05 and one["bleu"] != 60,
            }
            for one in record["trials"]
            if one["variant"] != "base"
        }
    return record


AS_IN_THE_PAPER = {
    "A-heads-1": -2.0,
    "A-heads-32": -1.0,
    "B-d_k-16": -1.0,
    "B-d_k-32": -0.5,
    "C-layers-2": -4.0,
    "C-layers-4": -1.0,
    "C-layers-8": 0.5,
    "C-d_model-256": -3.0,
    "C-d_model-1024": 2.0,
    "C-d_ff-1024": -1.0,
    "C-d_ff-4096": 1.0,
    "big": 3.0,
    "D-dropout-0.0": -3.0,
    "E-learned-positions": 0.1,
}


def test_what_is_as_in_the_paper_holds() -> None:
    found = said(record_of(AS_IN_THE_PAPER))
    assert tuple(found) == CLAIMS
    assert {finding.verdict for finding in found.values()} == {"holds"}
    assert found["a single head is worse"].evidence == (
        "A-heads-1 −2.0 BLEU (p 0.002, 95 % −2.3 to −1.7)"
    )
    assert "big +3.0 BLEU" in found["bigger models are better"].evidence
    assert "A-heads-16" not in str(found)


def test_the_opposite_does_not_hold() -> None:
    found = said(record_of({name: -change for name, change in AS_IN_THE_PAPER.items()}))
    verdicts = [finding.verdict for finding in found.values()]
    assert verdicts == ["does not hold"] * 5 + ["holds"]


def test_models_that_have_not_learned_to_translate_tell_nothing() -> None:
    """Near 0 BLEU a bootstrap tells apart what no reader would call a difference."""
    record = record_of(AS_IN_THE_PAPER)
    for one in record["trials"]:
        one["bleu"] = (one["bleu"] or 0) / 1000
    assert {finding.verdict for finding in said(record).values()} == {"can not be told"}


def test_a_difference_that_rounds_to_nothing_is_no_evidence() -> None:
    found = said(record_of({"A-heads-1": -0.04}))
    assert found["a single head is worse"].verdict == "can not be told"
    found = said(record_of({"A-heads-1": -0.06}))
    assert found["a single head is worse"].verdict == "holds"


@pytest.mark.parametrize("p", [0.2, None])
def test_what_chance_explains_can_not_be_told(p: float | None) -> None:
    found = said(record_of(AS_IN_THE_PAPER, p=p, margin=5))
    assert {finding.verdict for finding in found.values()} == {"can not be told"}


@pytest.mark.parametrize(
    ("change", "margin", "seen", "verdict"),
    [
        (0.2, 0.2, True, "holds"),  # there is a difference, and it is nearly none
        (0.2, 0.4, False, "can not be told"),
        (-1.0, 0.4, True, "does not hold"),
        (-1.0, 1.4, False, "can not be told"),
    ],
)
def test_learned_positions_are_equal_within_an_interval(
    change: float, margin: float, seen: bool, verdict: str
) -> None:
    p = 0.01 if seen else 0.3
    found = said(record_of({"E-learned-positions": change}, p=p, margin=margin))
    assert found[CLAIMS[-1]].verdict == verdict


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"B-d_k-16": -1.0}, "holds"),  # one of two, and none against
        ({"B-d_k-16": -1.0, "B-d_k-32": 1.0}, "does not hold"),
        ({"B-d_k-16": 1.0}, "does not hold"),
        ({}, "can not be told"),
    ],
)
def test_several_rows_decide_together(changes: dict[str, float], verdict: str) -> None:
    assert said(record_of(changes))["a small d_k is worse"].verdict == verdict


def test_few_of_many_rows_are_not_enough() -> None:
    found = said(record_of({"C-layers-2": -4.0, "C-layers-4": -1.0}))
    assert found["bigger models are better"].verdict == "can not be told"


def test_findings_without_variants_are_left_out() -> None:
    found = said(sweep())
    assert "too many heads are worse" not in found  # twice the heads are not yet too many
    assert found["dropout helps"].evidence == "dropout 0 +1.9 BLEU"
    record = sweep()
    record["trials"] = record["trials"][:1]
    assert said(record) == {}


def test_a_base_that_failed_leaves_nothing_to_tell() -> None:
    record = table3_sweep()
    record["trials"][0] |= failed("failed", "out of memory")
    found = said(record)
    assert {finding.verdict for finding in found.values()} == {"can not be told"}
    assert found["dropout helps"].evidence == "D-dropout-0.0 finished, not compared"
