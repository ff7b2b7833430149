"""Table 2: who is trained, for how long, at which learning rate; without Ray."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep import contest
from seq2sweep.sweep.budget import Budget, rivals_of
from seq2sweep.sweep.trial_record import TrialResult
from seq2sweep.sweep.variants import Refused, Variant, base_of, entries, variants
from tests.conftest import Corpus

CHANGES = {
    "sweep.method": "table2",
    "sweep.budget": "flops",
    "sweep.scheduler": "none",
    "sweep.space": {},
    "sweep.seeds": 2,
    "sweep.rows": ["recurrent", "convolutional"],
    "sweep.learning_rates": [0.25, 1, 3.0],
    "sweep.search_share": 0.3,
    "sweep.base": {"train.steps": 900, "train.warmup_steps": 40, "train.learning_rate_scale": 2.0},
}
NAMES = ["base", "recurrent", "convolutional"]


def asked(**changes: Any) -> Config:
    return configuration.with_changes(presets.load("phrasebook").config, CHANGES | changes)


@pytest.fixture
def data(tiny_corpus: Corpus) -> Bitext:
    return Bitext.open(tiny_corpus.encoded, "train")


def trained(variant: Variant, perplexity: float | None, status: Any = "finished") -> TrialResult:
    nowhere = Path("nowhere")
    metrics = {} if perplexity is None else {"valid_perplexity": perplexity}
    return TrialResult(
        variant, RunStore(nowhere), status, None, 12, None, metrics, nowhere, nowhere, 1.0, []
    )


def run_by(
    perplexity: Callable[[Variant], float | None],
    calls: list[list[str]],
    status: Callable[[Variant], str] = lambda variant: "finished",
) -> Callable[..., list[TrialResult]]:
    def run(chosen: Sequence[Variant], hear: Any) -> list[TrialResult]:
        calls.append([one.name for one in chosen])
        for one in chosen:
            hear("started", one, {})
        return [trained(one, perplexity(one), status(one)) for one in chosen]

    return run


def compared(
    config: Config, data: Bitext, run: Callable[..., list[TrialResult]]
) -> tuple[list[TrialResult], list[contest.Entrant]]:
    """Where nobody listens."""
    return contest.compare(
        config, data, run, on_trial=lambda *said: None, on_choice=lambda entrants: None
    )


def rate_of(variant: Variant) -> float:
    return variant.config.train.learning_rate_scale


def test_each_is_as_large_as_the_base() -> None:
    """At the base model's size: 8 and 8 layers of GNMT, 12 and 12 blocks of ConvS2S, 64.6M and 65M
    parameters; ByteNet, whose encoder is a fifth longer than the sentence, has fewer."""
    base = presets.load("base").config
    found = dict(rivals_of(["all"], base))
    assert found["recurrent"] == {"model.architecture": "recurrent", "model.layers": 8}
    assert found["convolutional"] == {"model.architecture": "convolutional", "model.layers": 12}
    assert found["bytenet"]["model.layers"] == 30
    for changes in found.values():
        own = configuration.with_changes(base, changes)
        ratio = flops.parameter_count(own.model, 37_000) / flops.parameter_count(base.model, 37_000)
        assert ratio == pytest.approx(1, abs=0.09 if "model.d_model" in changes else 0.04)
        cost = [flops.forward_flops(c.model, 37_000, *[np.array([25])] * 2) for c in (own, base)]
        assert cost[0] == pytest.approx(cost[1], rel=0.04)
        assert (own.model.dropout, own.model.tie_embeddings) == (0.1, True)
        assert configuration.flatten(own, "train") == configuration.flatten(base, "train")


def test_of_a_base_of_the_least_width_bytenet_has_its_own_least() -> None:
    width = {"model.d_model": 1, "model.positions": "learned"}
    base = configuration.with_changes(presets.load("phrasebook").config, width)
    found = dict(rivals_of(["all"], base))["bytenet"]
    assert found == {
        "model.architecture": "bytenet",
        "model.layers": 5 * base.model.layers,
        "model.d_model": 8,
    }


def test_of_what_architecture_a_number_is_that_no_model_may_have_is_said() -> None:
    deep = configuration.with_changes(presets.load("base").config, {"model.layers": 3_000})
    said = (
        r"^params.yaml: sweep.method table2: bytenet: model.layers must be at most 10000, not 15000"
    )
    with pytest.raises(UserError, match=said):
        list(rivals_of(["all"], deep))


def test_of_bytes_each_is_as_large_as_the_base_with_its_260_pieces() -> None:
    """Whatever `vocabulary.size` is: it sizes other kinds."""
    base = configuration.with_changes(presets.load("base").config, {"vocabulary.kind": "bytes"})
    assert base.vocabulary.size == 37_000
    found = dict(rivals_of(["all"], base))
    same = configuration.with_changes(base, {"vocabulary.size": 260})
    assert found == dict(rivals_of(["all"], same))
    own = configuration.with_changes(base, found["bytenet"])
    cost = [flops.forward_flops(c.model, 260, *[np.array([10])] * 2) for c in (own, base)]
    assert cost[0] == pytest.approx(cost[1], rel=0.02)


def test_where_there_is_data_each_is_as_large_as_the_base_with_its_vocabulary(data: Bitext) -> None:
    """Of characters there are fewer than `vocabulary.size`, which is only the most there may be."""
    pieces = int(data.header["vocabulary"]["size"])
    characters = {"vocabulary.kind": "characters", "vocabulary.size": 37_000}
    base = base_of(asked(**characters, **{"sweep.rows": ["bytenet"]}))
    made = entries(base, data, {})["bytenet"]
    assert not isinstance(made, Refused)
    models = made[0].config.model, base.model
    cost = [flops.forward_flops(model, pieces, *[np.array([10])] * 2) for model in models]
    assert cost[0] == pytest.approx(cost[1], rel=0.05)


def test_tries_and_training_together_take_the_flops_of_the_base(data: Bitext) -> None:
    base = base_of(asked())
    budget, total = Budget(base, data), 0.0
    best = {"base": 0.25, "recurrent": 3.0, "convolutional": 1.0}
    tries, after = entries(base, data, {}), entries(base, data, best)
    assert list(tries) == list(after) == NAMES
    total = budget._cost_of_update(base) * 900
    for name in NAMES:
        tried, final = tries[name], after[name]
        assert not isinstance(tried, Refused)
        assert not isinstance(final, Refused)
        update = budget._cost_of_update(tried[0].config)
        steps = [one.config.train.steps for one in tried]
        assert len(set(steps)) == 1
        assert len(steps) == 3
        assert sum(steps) * update == pytest.approx(0.3 * total, abs=3 * update)
        assert final[0].config.train.steps * update == pytest.approx(0.7 * total, abs=update)
        assert [rate_of(one) for one in tried] == [0.5, 2.0, 6.0]
        assert [rate_of(one) for one in final] == [2 * best[name]] * 2
        assert [one.seed for one in final] == [1, 2]
        assert {one.seed for one in tried} == {1}
        assert {one.scored for one in tried} == {False}  # of which the perplexity counts
        assert {one.scored for one in final} == {True}
        assert {one.variant for one in final} == {name}
        assert not any("learning_rate" in key for one in final for key in one.changes)


def test_the_lowest_perplexity_of_its_own_tries_counts(data: Bitext) -> None:
    best = {"transformer": 0.5, "recurrent": 6.0, "convolutional": 2.0}
    calls: list[list[str]] = []
    heard: list[str] = []

    def perplexity(variant: Variant) -> float:
        own = best[variant.config.model.architecture]
        return 5.0 + abs(math.log(rate_of(variant) / own)) + variant.config.model.layers

    results, entrants = contest.compare(
        asked(), data, run_by(perplexity, calls),
        on_trial=lambda event, variant, figures: heard.append(variant.name),
        on_choice=lambda entrants: heard.append("chosen"),
    )  # fmt: skip
    assert [one.best for one in entrants] == [0.25, 3.0, 1.0]
    assert [one.refused for one in entrants] == [None] * 3
    assert [result.variant.name for result in results] == [
        f"{name} seed={seed}" for name in NAMES for seed in (1, 2)
    ]
    assert [rate_of(result.variant) for result in results] == [0.5, 0.5, 6.0, 6.0, 2.0, 2.0]
    assert [len(call) for call in calls] == [9, 6]
    assert len(heard) == len(set(heard)) == 9 + 1 + 6
    assert heard[9] == "chosen"


def test_what_is_trained_just_as_a_try_was_is_heard_of_too(data: Bitext) -> None:
    config = asked(**{"sweep.learning_rates": [1.0], "sweep.search_share": 0.5, "sweep.seeds": 1})
    calls: list[list[str]] = []
    heard: list[str] = []
    results, entrants = contest.compare(
        config, data, run_by(lambda variant: 5.0, calls),
        on_trial=lambda event, variant, figures: heard.append(variant.name),
        on_choice=lambda entrants: None,
    )  # fmt: skip
    tries = [one.variant for entrant in entrants for one in entrant.tries]
    assert [one.variant.fingerprint for one in results] == [one.fingerprint for one in tries]
    assert [one.variant.name for one in results] == NAMES
    assert heard == [*calls[0], *NAMES]


@pytest.mark.parametrize("odd", [None, math.nan, math.inf])
def test_a_try_without_a_perplexity_is_never_the_best(odd: float | None, data: Bitext) -> None:
    def perplexity(variant: Variant) -> float | None:
        if variant.config.model.architecture == "convolutional":
            return odd
        return odd if rate_of(variant) < 6 else 7.0

    results, entrants = compared(asked(), data, run_by(perplexity, []))
    assert [one.best for one in entrants] == [3.0, 3.0, None]
    refused = entrants[2].refused
    assert refused is not None
    assert "none of its tries" in refused.cause
    assert refused.values["model"]["architecture"] == "convolutional"
    assert {result.variant.variant for result in results} == {"base", "recurrent"}


def test_without_a_try_of_the_base_nothing_else_is_trained(data: Bitext) -> None:
    calls: list[list[str]] = []
    run = run_by(lambda variant: None if variant.name.startswith("base") else 7.0, calls)
    results, entrants = compared(asked(), data, run)
    assert results == []
    assert len(calls) == 1
    assert [one.best for one in entrants] == [None, 0.25, 0.25]
    assert entrants[0].refused is not None


def test_a_try_that_failed_is_never_the_best_however_low_its_perplexity_was(data: Bitext) -> None:
    """It did not train for as long as the others."""
    run = run_by(
        lambda variant: 1.0 if rate_of(variant) == 0.5 else 5.0, [],
        lambda variant: "failed" if rate_of(variant) == 0.5 else "finished",
    )  # fmt: skip
    _, entrants = compared(asked(), data, run)
    # Of the two that are left, which are equally good, the first: 1 and not 0.25 times the base's.
    assert [one.best for one in entrants] == [1.0] * 3


def test_tries_that_end_before_the_warm_up_are_refused(data: Bitext) -> None:
    config = asked(**{"sweep.base": {"train.steps": 900, "train.warmup_steps": 300}})
    calls: list[list[str]] = []
    results, entrants = compared(config, data, run_by(lambda variant: 5.0, calls))
    assert results == []
    assert calls == [[]]
    for one in entrants:
        assert one.refused is not None
        assert "raise sweep.search_share" in one.refused.cause


@pytest.mark.parametrize(("share", "advice"), [(0.25, "raise"), (0.9, "lower")])
def test_trainings_that_end_before_the_warm_up_leave_the_search_less(
    share: float, advice: str
) -> None:
    """To raise its share would leave these fewer steps still."""
    changes = {"train.steps": 900, "train.warmup_steps": 300}
    tuned = {"sweep.base": changes, "sweep.search_share": share, "sweep.learning_rates": [1.0]}
    with pytest.raises(UserError, match=f"{advice} sweep.search_share, or raise train.steps"):
        variants(asked(**tuned))


def test_a_base_that_cannot_try_is_one_line() -> None:
    config = asked(**{"sweep.base": {"train.steps": 900, "train.warmup_steps": 300}})
    with pytest.raises(UserError, match=r"table2: base: its \d+ steps end before the warm-up"):
        variants(config)


def test_each_may_have_the_optimizer_of_its_own_paper() -> None:
    """Which has no warm-up but for the base, whose tries alone must be longer than that."""
    base = {"train.steps": 900, "train.warmup_steps": 40, "train.optimizer": "as_published"}
    planned, refused = variants(asked(**{"sweep.base": base}))
    assert refused == []
    assert {one.config.model.architecture: one.config.optimizer for one in planned} == {
        "transformer": "adam", "recurrent": "adam_then_sgd", "convolutional": "nesterov"
    }  # fmt: skip
    rates = {(one.config.model.architecture, rate_of(one)) for one in planned}
    architectures = ("transformer", "recurrent", "convolutional")
    assert rates == set(itertools.product(architectures, (0.25, 1.0, 3.0)))


def test_what_a_plan_counts_is_what_is_trained(data: Bitext) -> None:
    config = asked()
    planned, refused = variants(config, data)
    calls: list[list[str]] = []
    compared(config, data, run_by(lambda variant: 5.0, calls))
    assert refused == []
    assert [one.name for one in planned] == [*calls[0], *calls[1]]
    # Before there is data all is known but how many steps another architecture has.
    assert [one.name for one in variants(config)[0]] == [*calls[0], *calls[1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep.budget": "steps"}, "sweep.budget must be flops for sweep.method table2"),
        ({"sweep.scheduler": "asha"}, "sweep.scheduler must be none for sweep.method table2"),
        ({"sweep.space": {"model.heads": [1]}}, "sweep.space must be {} for sweep.method table2"),
        ({"sweep.learning_rates": []}, "sweep.learning_rates must be numbers above 0"),
        ({"sweep.learning_rates": [1, 1.0]}, "sweep.learning_rates must be numbers above 0"),
        ({"sweep.learning_rates": ["x"]}, "sweep.learning_rates must be a list of numbers"),
        ({"sweep.learning_rates": 0.5}, "sweep.learning_rates must be a list of numbers"),
        ({"sweep.search_share": 1}, "sweep.search_share must be in (0, 1)"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(**changes)
    assert message in str(caught.value)


def test_a_row_that_is_none_is_named() -> None:
    with pytest.raises(UserError, match=r"has no row recurent, did you mean recurrent\?"):
        variants(asked(**{"sweep.rows": ["recurent"]}))


@pytest.mark.parametrize("rows", [["all"], ["convolutional"]])
def test_a_base_that_is_a_rival_is_refused(rows: list[str]) -> None:
    """It would be in the table twice, trained in one folder, and the Transformer not at all."""
    changes = {"model.architecture": "recurrent", "model.layers": 3, "sweep.rows": rows}
    with pytest.raises(UserError, match=r"of the base variant is recurrent: set it to transformer"):
        variants(asked(**changes))
