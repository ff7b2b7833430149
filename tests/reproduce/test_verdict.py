"""Two records of a run are compared to the last bit, and what differs has a place and a cause."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any

import pytest

from seq2sweep.reproduce.verdict import Verdict, causes, digits, parts_of
from seq2sweep.runs import journal

RECORD: dict[str, Any] = {
    "stage": "train",
    "identity": {"data": "d" * 64, "code": "c" * 64},
    "trained": {"workers": 2, "threads": 1, "device": "CPU", "cpu_features": "AVX2"},
    "machine": {"python": "3.11.7", "processor": "AMD EPYC"},
    "packages": {"torch": "2.13.0", "absl-py": "2.1", "ray": "2.60.0"},
    "outcome": {
        "weights": {"12": "a" * 64, "6": "b" * 64},
        "curves": {
            "loss": [[6, 6.610524094125214], [12, 5.942409467164316], [18, 5.777097243073114]],
            "valid_loss": [[6, 6.25], [12, None]],
        },
        "scores": {"bleu": 79.4612, "translations": "e" * 64},
        "stopped_early": False,
    },
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The record with one value replaced."""
    again = copy.deepcopy(RECORD)
    *above, last = path
    place: Any = again
    for key in above:
        place = place[key]
    place[last] = to
    return again


def verdict(again: dict[str, Any], recorded: dict[str, Any] = RECORD) -> Verdict:
    return Verdict(parts_of([(recorded, again)]), causes(recorded, again))


def test_the_same_is_identical() -> None:
    found = verdict(copy.deepcopy(RECORD))
    assert found.identical
    assert (found.words, found.digits, found.first_step) == ("identical", None, None)
    assert [part.words for part in found.parts] == ["identical"] * 5
    assert found.causes == []
    assert "verdict: identical" in list(found.lines())


def test_nothing_to_compare_is_not_identical() -> None:
    nothing = changed(
        "outcome", to={"weights": {}, "curves": {}, "scores": {}, "stopped_early": False}
    )
    found = verdict(nothing, nothing)
    assert not found.identical
    assert found.words == "nothing could be compared"
    assert "causes" not in "".join(found.lines())


@pytest.mark.parametrize(
    ("path", "to", "step"),
    [
        (("outcome", "weights", "6"), "f" * 64, 6),
        (("outcome", "weights", "12"), "f" * 64, 12),
        (("outcome", "weights"), {"12": "a" * 64}, 6),
        (("outcome", "weights"), {"12": "f" * 64, "6": "f" * 64}, 6),
        (("outcome", "curves", "loss", 1, 1), math.nextafter(5.942409467164316, 6), 12),
        (("outcome", "curves", "loss"), [[6, 6.610524094125214], [12, 5.942409467164316]], 18),
        (("outcome", "curves"), {"loss": RECORD["outcome"]["curves"]["loss"]}, 6),
        (("outcome", "curves", "valid_loss", 1, 1), 6.0, 12),
        (("outcome", "scores", "bleu"), 79.46, None),
        (("outcome", "scores", "translations"), "f" * 64, None),
        (("outcome", "scores"), {"bleu": 79.4612}, None),
    ],
)
def test_one_value_that_differs_is_found_with_its_step(
    path: tuple[Any, ...], to: Any, step: int | None
) -> None:
    found = verdict(changed(*path, to=to))
    assert not found.identical
    assert found.first_step == step
    assert sum(part.words != "identical" for part in found.parts) == 1
    assert any("none that is recorded" in line for line in found.lines())
    if step is not None:
        assert found.words.endswith("though its numbers are the same") or "step" in found.words
        assert f"from step {step} on" in found.words


def test_near_numbers_are_equal_to_digits_and_far_ones_differ() -> None:
    near = changed("outcome", "curves", "loss", 2, 1, to=5.777098)
    assert verdict(near).words == "equal to 6 digits, not identical from step 18 on"
    far = changed("outcome", "curves", "loss", 0, 1, to=6.7)
    assert verdict(far).words == "differs from step 6 on"
    weights = changed("outcome", "weights", "6", to="f" * 64)
    assert verdict(weights).digits is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1.0, 1.1), (7.106, 7.107), (7.106, 7.1060001), (-2.0, 2.0), (0.0, 3.0), (1e300, 1e-300),
        (1.0, math.nextafter(1.0, 2)), (123456.0, 123457.0), (79, 79.5),
    ],
)  # fmt: skip
def test_digits_are_those_of_the_relative_difference(one: float, other: float) -> None:
    found = digits(one, other)
    relative = abs(Fraction(one) - Fraction(other)) / max(abs(Fraction(one)), abs(Fraction(other)))
    assert found == max(n for n in range(20) if n == 0 or relative * 10**n <= 1)


def test_a_number_that_is_none_agrees_with_none_alone() -> None:
    assert digits(None, None) == digits(2.5, 2.5) == math.inf
    assert digits(None, 2.5) == digits(2.5, None) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [(1e308, -1e308), (math.inf, 1.0), (math.inf, -math.inf), (math.nan, 1.0), (10**400, 1.0)],
)
def test_numbers_that_floats_hardly_hold_agree_in_no_digit(one: float, other: float) -> None:
    assert digits(one, other) == digits(other, one) == 0


@pytest.mark.parametrize(
    ("path", "to", "line"),
    [
        (("identity", "data"), "f" * 64, "data: another sum than recorded"),
        (("trained", "threads"), 2, "threads: 1 recorded, 2 here"),
        (("trained", "workers"), 1, "workers: 2 recorded, 1 here"),
        (("machine", "processor"), "Xeon", "processor: AMD EPYC recorded, Xeon here"),
        (("packages", "torch"), "2.12.0", "torch: 2.13.0 recorded, 2.12.0 here"),
        (("packages",), {"torch": "2.13.0", "ray": "2.60.0"}, "absl-py: 2.1 recorded, none here"),
        (("machine", "OMP_NUM_THREADS"), "4", "OMP_NUM_THREADS: none recorded, 4 here"),
    ],
)
def test_each_cause_is_named(path: tuple[Any, ...], to: Any, line: str) -> None:
    again = changed(*path, to=to)
    assert causes(RECORD, again) == [line]
    assert any(line in shown for shown in verdict(again).lines())


def test_of_long_lists_the_words_that_differ_are_shown() -> None:
    words = " ".join(f"avx512_{n}" for n in range(20))
    one = changed("trained", "cpu_features", to=f"AVX512 {words}")
    other = changed("trained", "cpu_features", to=f"AVX2 {words}")
    assert causes(one, other) == ["cpu_features: AVX512 recorded, AVX2 here"]
    fewer = changed("trained", "cpu_features", to=words)
    assert causes(one, fewer) == ["cpu_features: AVX512 recorded, none besides here"]


def test_what_computes_is_named_before_other_packages() -> None:
    again = changed("packages", to={"torch": "1", "absl-py": "1", "ray": "1"})
    assert [line.partition(":")[0] for line in causes(RECORD, again)] == ["ray", "torch", "absl-py"]


def test_a_trial_that_was_stopped_is_compared_as_far_as_its_curves() -> None:
    stopped = changed("outcome", "stopped_early", to=True)
    longer = copy.deepcopy(RECORD)
    longer["outcome"]["weights"] = {"24": "f" * 64}
    longer["outcome"]["scores"] = {"bleu": 1.0, "translations": "f" * 64}
    longer["outcome"]["curves"]["loss"].append([24, 5.0])
    found = verdict(longer, stopped)
    assert found.identical
    assert [part.name for part in found.parts] == ["loss at 3 steps", "valid_loss at 2 steps"]


def test_points_that_the_longer_curve_has_no_more_are_passed_over() -> None:
    points = [[step, 1 / step] for step in range(1, 10)]
    stopped = changed("outcome", to=RECORD["outcome"] | {
        "stopped_early": True, "curves": {"loss": points[:4]}
    })  # fmt: skip
    longer = changed("outcome", "curves", to={"loss": copy.deepcopy(journal.thinned(points, 6))})
    assert [step for step, _ in longer["outcome"]["curves"]["loss"]] == [1, 3, 5, 7, 9]
    found = verdict(longer, stopped)
    assert found.identical
    assert [part.name for part in found.parts] == ["loss at 2 steps"]
    longer["outcome"]["curves"]["loss"][1][1] = 0.5
    assert verdict(longer, stopped).first_step == 3
    # What it never had is no matter of its length.
    longer["outcome"]["curves"]["loss"] = points[:2]
    assert verdict(longer, stopped).first_step == 3
    longer["outcome"]["curves"]["loss"] = [[9, 1 / 9]]
    assert verdict(longer, stopped).first_step == 1


def test_a_training_and_its_evaluation_are_one_verdict() -> None:
    scored = changed("outcome", "curves", to={})
    again = copy.deepcopy(scored)
    again["outcome"]["scores"]["bleu"] = 79.0
    found = Verdict(parts_of([(RECORD, RECORD), (scored, again)]), [])
    assert len(found.parts) == 5
    assert found.identical  # each name once, as of the first pair that has it
    only = changed("outcome", "scores", to={})
    found = Verdict(parts_of([(only, only), (scored, again)]), [])
    assert not found.identical
    assert found.as_json()["parts"]["bleu"]["again"] == "79.0"
