"""Do the paper's findings hold: the verdicts, from the figures of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from seq2sweep.config.scores import BLEU, F1
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.evaluate.brackets import score_trees
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.findings import LEARNED, Finding, findings, notes
from seq2sweep.report.positions import length_scores
from tests.report.made_up_results import failed, seeded_sweep, sweep, table3_sweep
from tests.report.parsing_sweep import of_parsing
from tests.report.positions.made_up_lengths import positions_sweep

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
    assert [finding.source for finding in found.values()] == [
        f"Table 3 ({group})" for group in "AABCDE"
    ]
    assert found["a single head is worse"].evidence == (
        "A-heads-1 −2.0 BLEU (p 0.002, 95 % −2.3 to −1.7)"
    )
    assert "big +3.0 BLEU" in found["bigger models are better"].evidence
    assert "A-heads-16" not in str(found)


def test_a_bigger_model_that_a_budget_gave_fewer_steps_than_the_papers_does_not_count() -> None:
    """Alone it would decide: all other sizes are as good as the base."""
    record = record_of({"big": -7.0})
    claim = "bigger models are better"
    assert said(record)[claim].verdict == "does not hold"
    big = next(one for one in record["trials"] if one["row"] == "big")
    del big["changes"]["train.steps"]
    assert said(record)[claim].verdict == "can not be told"
    assert "big" not in said(record)[claim].evidence
    assert "C-layers-8" in said(record)[claim].evidence


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


# --- two variants with each other ----------------------------------------------------------------

BASE = 60.0
AS_GOOD, BEHIND, AHEAD = (
    "at small d_k unscaled dot-product attention is as good",
    "at large d_k unscaled dot-product attention falls behind",
    "at large d_k additive attention outperforms unscaled",
)
MATTERS = "self-attention matters more in the encoder than in the decoder"


def over_seeds(mean: float, spread: float, seeds: int = 3) -> list[float]:
    """Scores about a mean; of two such of 3 seeds Welch's margin is 2.27 spreads."""
    return [mean + spread * (seed - (seeds + 1) / 2) for seed in range(1, seeds + 1)]


def kinds_of_attention(
    unscaled: dict[int, float],
    additive: dict[int, float] | None = None,
    *,
    spread: float = 0.1,
    seeds: int = 3,
) -> dict[str, Any]:
    """A sweep where scaled attention has BASE at each d_k, and these differences to it."""
    scores = {"base": over_seeds(BASE, spread, seeds)}
    for kind, changes in (
        ("scaled_dot_product", dict.fromkeys((4, 64, 128), 0.0)),
        ("dot_product", unscaled),
        ("additive", additive or {}),
    ):
        for d_k, change in changes.items():
            scores[f"attention={kind} d_k={d_k}"] = over_seeds(BASE + change, spread, seeds)
    return seeded_sweep(scores)


ALIKE = {4: 0.0, 16: 0.1, 64: 0.0, 128: 0.1}


def test_kinds_of_attention_that_are_as_section_3_2_1_says() -> None:
    unscaled = {4: 0.0, 16: 0.1, 64: -1.0, 128: -3.0}
    found = said(kinds_of_attention(unscaled, ALIKE))
    assert [found[claim].verdict for claim in (AS_GOOD, BEHIND, AHEAD)] == ["holds"] * 3
    assert {found[claim].source for claim in (AS_GOOD, BEHIND, AHEAD)} == {"section 3.2.1"}
    assert found[AS_GOOD].evidence == (
        "d_k 4 less scaled 0.0 BLEU (95 % −0.2 to +0.2); "
        "d_k 16 less scaled +0.1 BLEU (95 % −0.1 to +0.3); "
        "d_k 4 less additive 0.0 BLEU (95 % −0.2 to +0.2); "
        "d_k 16 less additive 0.0 BLEU (95 % −0.2 to +0.2)"
    )
    assert found[BEHIND].evidence == (
        "d_k 64 less scaled −1.0 BLEU (95 % −1.2 to −0.8); "
        "d_k 128 less scaled −3.0 BLEU (95 % −3.2 to −2.8)"
    )
    assert found[AHEAD].evidence == (
        "d_k 64 less unscaled +1.0 BLEU (95 % +0.8 to +1.2); "
        "d_k 128 less unscaled +3.1 BLEU (95 % +2.9 to +3.3)"
    )


def test_kinds_of_attention_that_are_the_opposite() -> None:
    unscaled = {4: -2.0, 16: -1.0, 64: 1.0, 128: 3.0}
    found = said(kinds_of_attention(unscaled, ALIKE))
    verdicts = [found[claim].verdict for claim in (AS_GOOD, BEHIND, AHEAD)]
    assert verdicts == ["does not hold"] * 3


@pytest.mark.parametrize(("spread", "seeds"), [(4.0, 3), (0.1, 1)])
def test_seeds_that_differ_as_much_or_a_single_one_tell_nothing(spread: float, seeds: int) -> None:
    unscaled = {4: -2.0, 16: 0.0, 64: -1.0, 128: -3.0}
    found = said(kinds_of_attention(unscaled, ALIKE, spread=spread, seeds=seeds))
    verdicts = [found[claim].verdict for claim in (AS_GOOD, BEHIND, AHEAD)]
    assert verdicts == ["can not be told"] * 3
    assert ("95 %" in found[BEHIND].evidence) == (seeds > 1)


def test_kinds_of_attention_without_their_rivals_are_left_out() -> None:
    found = said(kinds_of_attention({4: 0.0, 64: -1.0}))
    assert {AS_GOOD, BEHIND} <= found.keys()
    assert AHEAD not in found  # nothing is additive
    assert "less additive" not in found[AS_GOOD].evidence
    found = said(kinds_of_attention({16: 0.0}))
    assert AS_GOOD in found
    assert "d_k 4" not in found[AS_GOOD].evidence
    assert BEHIND not in found
    assert said(kinds_of_attention({32: 0.0})).keys() & {AS_GOOD, BEHIND, AHEAD} == set()


def mixers(
    encoder: dict[str, float],
    decoder: dict[str, float],
    *,
    spread: float = 0.1,
    seeds: int = 3,
) -> dict[str, Any]:
    scores = {"base": over_seeds(BASE, spread, seeds)}
    for place, changes in (("encoder", encoder), ("decoder", decoder)):
        for mixer, change in changes.items():
            scores[f"{place}_mixer={mixer}"] = over_seeds(BASE + change, spread, seeds)
    return seeded_sweep(scores)


LESS = {"recurrent": -3.0, "convolutional": -2.0}
MORE = {"recurrent": -1.0, "convolutional": 1.0}


def test_where_self_attention_matters_more() -> None:
    found = said(mixers(LESS, MORE))[MATTERS]
    assert found.verdict == "holds"
    assert found.source == "Domhan 2018 (ACL, P18-1167), no claim of the paper"
    assert found.evidence == (
        "recurrent −3.0 in the encoder, −1.0 in the decoder, difference −2.0 BLEU "
        "(95 % −2.2 to −1.8); convolutional −2.0 in the encoder, +1.0 in the decoder, difference "
        "−3.0 BLEU (95 % −3.2 to −2.8); mean of all, difference −2.5 BLEU (95 % −2.7 to −2.3)"
    )
    assert said(mixers(MORE, LESS))[MATTERS].verdict == "does not hold"


@pytest.mark.parametrize(("spread", "seeds"), [(4.0, 3), (0.1, 1)])
def test_what_seeds_do_not_tell_of_mixers(spread: float, seeds: int) -> None:
    found = said(mixers(LESS, MORE, spread=spread, seeds=seeds))[MATTERS]
    assert found.verdict == "can not be told"


def test_one_layer_of_four_is_not_enough() -> None:
    same = dict.fromkeys(("restricted", "convolutional", "separable"), -1.0)
    found = said(mixers(same | {"recurrent": -9.0}, same | {"recurrent": -1.0}))[MATTERS]
    assert found.verdict == "can not be told"
    assert "mean of all, difference −2.0 BLEU" in found.evidence


def test_a_layer_is_compared_where_it_is_in_both_places_alone() -> None:
    found = said(mixers(LESS | {"separable": -9.0}, {"recurrent": -1.0}))[MATTERS]
    assert (found.verdict, "separable" in found.evidence) == ("holds", False)
    assert MATTERS not in said(mixers(LESS, {}))
    assert MATTERS not in said(mixers({}, MORE))


def test_a_layer_in_both_places_at_once_or_beside_one_says_nothing() -> None:
    record = mixers(LESS, {})
    one = dict(record["trials"][-1])
    one["model"] = one["model"] | {"decoder_mixer": "recurrent"}
    record["trials"].append(one | {"variant": "both", "name": "both"})
    assert MATTERS not in said(record)
    record = mixers(LESS, MORE)
    for place in ("base", *record["trials"]):
        model = record["base"]["model"] if place == "base" else place["model"]
        if model["decoder_mixer"] == "self_attention":
            model["decoder_mixer"] = "separable"
    assert MATTERS not in said(record)


def test_variants_are_compared_over_the_seeds_that_both_finished() -> None:
    record = mixers({"recurrent": -3.0}, {"recurrent": -1.0})
    for one in record["trials"]:
        if one["variant"] == "encoder_mixer=recurrent" and one["seed"] == 3:
            one |= failed("failed", "out of memory")
        elif one["variant"] == "decoder_mixer=recurrent" and one["seed"] == 3:
            one["bleu"] = 0.0  # it would take the mean down
    found = said(record)[MATTERS]
    assert "difference −2.0 BLEU" in found.evidence
    for one in record["trials"]:
        if one["variant"] == "encoder_mixer=recurrent":
            one |= failed("failed", "out of memory")
    found = said(record)[MATTERS]
    assert found.verdict == "can not be told"
    assert found.evidence == (
        "recurrent – in the encoder, −20.7 in the decoder, difference failed, not compared; "
        "mean of all, difference incomplete, not compared"
    )


@pytest.mark.parametrize(
    ("stopped", "changes"),
    [
        ("encoder_mixer=recurrent", "– in the encoder, −1.0 in the decoder"),
        ("base", "– in the encoder, – in the decoder"),
    ],
)
def test_the_change_of_what_was_stopped_early_is_not_told(stopped: str, changes: str) -> None:
    record = mixers({"recurrent": -3.0}, {"recurrent": -1.0})
    for one in record["trials"]:
        if one["variant"] == stopped:
            one |= {"status": "stopped early", "steps": 100}
    evidence = said(record)[MATTERS].evidence
    assert evidence.startswith(f"recurrent {changes}, difference ")


@pytest.mark.parametrize(
    ("stopped", "changes"),
    [
        ("encoder_mixer=recurrent", "– in the encoder, −1.0 in the decoder"),
        ("decoder_mixer=recurrent", "−3.0 in the encoder, – in the decoder"),
    ],
)
def test_a_pair_of_which_the_weaker_seeds_were_stopped_tells_nothing(
    stopped: str, changes: str
) -> None:
    record = mixers({"recurrent": -3.0}, {"recurrent": -1.0})
    for one in record["trials"]:
        if one["variant"] == stopped and one["seed"] == 3:
            one |= {"status": "stopped early", "steps": 100}
    found = said(record)[MATTERS]
    assert found.verdict == "can not be told"
    assert found.evidence == (
        f"recurrent {changes}, difference 2 of 3 seeds finished, 1 stopped early, not compared; "
        "mean of all, difference incomplete, not compared"
    )


def test_pairs_of_models_that_have_not_learned_tell_nothing() -> None:
    record = mixers(LESS, MORE)
    for one in record["trials"]:
        one["bleu"] /= 1000
    assert said(record)[MATTERS].verdict == "can not be told"


def test_notes_say_what_the_findings_need() -> None:
    attention = said(kinds_of_attention(ALIKE)).values()
    of_attention, of_mixers = (
        " ".join(notes(list(found), BLEU))
        for found in (attention, said(mixers(LESS, MORE)).values())
    )
    assert "small up to 16, and large from 64 on" in of_attention
    assert "place of self-attention there alone" in of_mixers
    assert "small up to" not in of_mixers
    assert "Welch" not in " ".join(notes(list(said(sweep()).values()), BLEU))


# --- parsing -------------------------------------------------------------------------------------


def test_parsers_are_asked_for_signs_alone() -> None:
    record = table3_sweep(3, noise=0)
    translators, parsers = said(record), said(of_parsing(record))
    assert parsers.keys() == translators.keys() - {"learned positions are as good as sinusoids"}
    for claim, found in parsers.items():
        assert found.verdict == translators[claim].verdict
        assert found.evidence == translators[claim].evidence.replace(" BLEU", " F1")
    text = " ".join(notes(list(parsers.values()), F1))
    assert "BLEU" not in text
    assert "F1 is below 50" in text


def test_what_needs_a_threshold_of_bleu_is_not_asked_of_parsers() -> None:
    for record, left_out in (
        (kinds_of_attention(ALIKE), {"at small d_k unscaled dot-product attention is as good"}),
        (mixers(LESS, MORE), set()),
    ):
        there, here = said(record), said(of_parsing(record))
        assert there.keys() - here.keys() == left_out
        assert {one.verdict for one in here.values()} <= {one.verdict for one in there.values()}
        assert all("F1" in one.evidence for one in here.values())
    record = of_parsing(positions_sweep())
    assert findings(aggregate(record), length_scores.read(record)) == []


@pytest.mark.parametrize(("base", "verdict"), [(49.9, "can not be told"), (50.1, "holds")])
def test_of_a_base_row_that_parses_as_a_flat_tree_does_nothing_is_told(
    base: float, verdict: str
) -> None:
    record = of_parsing(record_of(AS_IN_THE_PAPER))
    for trial in record["trials"]:
        trial["f1"] += base - 60
    assert said(record)["a single head is worse"].verdict == verdict


def test_one_bracket_around_a_sentence_has_that_f1() -> None:
    gold = parse_tree("(TOP (S (NP (NN a)) (VP (VB b))))")
    flat = parse_tree("(TOP (S (NN a) (VB b)))")
    assert score_trees([flat], [gold])["f1"] == LEARNED["f1"]
