"""Searches: what is proposed, told and trained, without Ray. Trials end as their hash says."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep import config as configuration
from seq2sweep.config import Config, SweepConfig
from seq2sweep.data.bitext import Bitext
from seq2sweep.model import flops
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.optuna_search import HIGHER_IS_BETTER, STARTUP, Outcome, Proposals
from seq2sweep.sweep.search import Proposal, search
from seq2sweep.sweep.search_space import spelt_out
from seq2sweep.sweep.trial_record import OnTrial, TrialResult
from seq2sweep.sweep.variants import Refused, Variant
from tests.conftest import Corpus

SPACE: dict[str, Any] = {
    # With sinusoidal positions 33 is refused.
    "model.d_model, model.d_ff": [[32, 64], [32, 128], [33, 64], [64, 64]],
    "model.dropout": {"low": 0.0, "high": 0.5},
    "model.layers": {"low": 1, "high": 3},
    "train.warmup_steps": {"low": 1, "high": 1000, "log": True},
}
SMALL: dict[str, Any] = {"model.heads": [1, 2, 4], "model.d_model": [32, 33]}

Fate = Callable[[Variant], TrialResult]


class KilledError(Exception):
    """In place of SIGKILL."""


def by_hash(variant: Variant) -> TrialResult:
    """One trial in six fails, one in six has no score or a strange one.

    One in six is stopped, unless there are several objectives.
    """
    number = int(variant.fingerprint[:12], 16)
    stopped = "stopped early" if len(variant.config.sweep.objectives) == 1 else "finished"
    status = {0: "failed", 1: stopped}.get(number % 6, "finished")
    metrics: dict[str, Any] = {
        "bleu": number % 997 / 10,
        "chrf": number % 991 / 10,
        "flops": 1e12 + number % 983 * 1e9,
        "valid_perplexity": 1 + number % 977 / 100,
    }
    if number % 6 == 2:
        metrics["bleu"] = [None, math.nan][number % 2]
        if number % 4 < 2:
            del metrics["bleu"]
    return result(variant, metrics if status != "failed" else {}, status)


def result(variant: Variant, metrics: dict[str, Any], status: Any = "finished") -> TrialResult:
    nowhere = Path("nowhere")
    store = RunStore(nowhere)
    return TrialResult(variant, store, status, None, 12, None, metrics, nowhere, nowhere, 1.0, [])


class Machine:
    """Trains in no time, in any order, and forgets nothing that was trained before it is killed."""

    def __init__(self, fate: Fate = by_hash, order: int | None = None) -> None:
        self.fate, self.chance = fate, random.Random(order)
        self.shuffled = order is not None
        self.ended: dict[str, TrialResult] = {}
        self.trained: list[str] = []
        self.asked: list[list[str]] = []
        self.left = math.inf

    def run(self, variants: Sequence[Variant], on_trial: OnTrial) -> list[TrialResult]:
        self.asked.append([variant.name for variant in variants])
        order = list(variants)
        if self.shuffled:
            self.chance.shuffle(order)
        for variant in order:
            on_trial("started", variant, {})
            if variant.fingerprint not in self.ended:
                if self.left == 0:
                    raise KilledError
                self.left -= 1
                self.trained.append(variant.fingerprint)
                self.ended[variant.fingerprint] = self.fate(variant)
            on_trial("ended", variant, {})
        return [self.ended[variant.fingerprint] for variant in variants]


def searched(
    config: Config, corpus: Corpus, machine: Machine, on_trial: OnTrial = lambda *told: None
) -> tuple[list[TrialResult], list[Proposal]]:
    data = Bitext.open(corpus.encoded, "train")
    return search(config, data, machine.run, on_trial=on_trial, on_round=lambda asked: None)


def of(config: Config, space: dict[str, Any] = SPACE, **sweep: Any) -> Config:
    changes = {"sweep.method": "optuna", "sweep.space": space, "sweep.scheduler": "none"}
    return configuration.with_changes(
        config, changes | {f"sweep.{key}": value for key, value in sweep.items()}
    )


# --- the same however often it is killed --------------------------------------------------------


@settings(max_examples=25)
@given(
    seed=st.integers(0, 99),
    samples=st.integers(1, 14),
    together=st.integers(1, 5),
    seeds=st.integers(1, 2),
    space=st.sampled_from([SPACE, SMALL]),
    objectives=st.sampled_from([["bleu"], ["perplexity"], ["bleu", "flops"], ["chrf", "bleu"]]),
    kills=st.lists(st.integers(0, 6), max_size=6),
    order=st.integers(0, 9),
)
def test_a_search_that_is_killed_and_begun_again_is_the_undisturbed_one(
    tiny_config: Config,
    tiny_corpus: Corpus,
    seed: int,
    samples: int,
    together: int,
    seeds: int,
    space: dict[str, Any],
    objectives: list[str],
    kills: list[int],
    order: int,
) -> None:
    config = of(
        tiny_config,
        space,
        seed=seed,
        samples=samples,
        round=together,
        seeds=seeds,
        objectives=objectives,
    )
    calm, rough = Machine(), Machine(order=order)
    undisturbed = searched(config, tiny_corpus, calm)
    for lived in kills:
        rough.left = lived
        try:
            searched(config, tiny_corpus, rough)
        except KilledError:
            continue
        break
    rough.left = math.inf
    assert searched(config, tiny_corpus, rough) == undisturbed
    assert set(rough.trained) == set(calm.trained)
    assert len(rough.trained) == len(set(rough.trained)) == len(calm.trained)

    results, proposals = undisturbed
    assert [p.number for p in proposals] == list(range(1, samples + 1))
    assert [p.round for p in proposals] == [place // together + 1 for place in range(samples)]
    kept = [p for p in proposals if not p.repeats and not isinstance(p.made, Refused)]
    assert [r.variant.variant for r in results[::seeds]] == ["base", *(p.variant for p in kept)]


@pytest.mark.parametrize("scheduler", ["none", "median"])
def test_each_trial_is_heard_of_once_and_all_are_compared_by_a_scheduler(
    tiny_config: Config, tiny_corpus: Corpus, scheduler: str
) -> None:
    """Without one the trials of earlier rounds, perhaps in a bucket, are left alone."""
    machine, heard = Machine(), Counter[tuple[str, str]]()
    config = of(tiny_config, samples=10, round=3, scheduler=scheduler)
    results, proposals = searched(
        config, tiny_corpus, machine, lambda event, v, _: heard.update([(event, v.name)])
    )
    names = [found.variant.name for found in results]
    assert heard == Counter([(event, name) for event in ("started", "ended") for name in names])
    assert len(machine.asked) == 4
    if scheduler == "none":
        assert [*itertools.chain(*machine.asked)] == names
    else:
        assert machine.asked[-1] == names
        for before, after in zip(machine.asked, machine.asked[1:], strict=False):
            assert after[: len(before)] == before
    refused = [p.made for p in proposals if isinstance(p.made, Refused)]
    assert refused
    assert all("model.d_model must be even" in variant.cause for variant in refused)


def test_what_was_proposed_before_is_not_trained_again(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """Of three valid variants and the base, which is one of them; three more are refused."""
    machine = Machine()
    config = of(tiny_config, SMALL, samples=20, round=4)
    results, proposals = searched(config, tiny_corpus, machine)
    assert len(machine.trained) == len(results) <= 3
    assert results[0].variant.variant == "base"
    assert not any(p.variant == "heads=2 d_model=32" for p in proposals), "that is the base"
    for place, proposal in enumerate(proposals):
        earlier = {"base"} | {p.variant for p in proposals[:place]}
        assert proposal.repeats == (proposal.variant in earlier)
    assert {p.variant for p in proposals if p.repeats} >= {"base"}
    # Nothing was left to train in the last rounds, so nobody was asked to.
    assert len(machine.asked) < 5


def test_the_size_of_a_pass_that_the_base_has_makes_no_other_variant(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    machine = Machine()
    sizes = [tiny_config.train.tokens_per_pass, 64]
    config = of(tiny_config, {"train.tokens_per_pass": sizes}, samples=8, round=2)
    results, proposals = searched(config, tiny_corpus, machine)
    assert len(machine.trained) == len(results) == 2
    assert {p.variant for p in proposals if not p.repeats} == {"tokens_per_pass=64"}


def test_the_first_round_is_told_by_the_seed_alone_and_the_next_by_the_figures(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    def other(variant: Variant) -> TrialResult:
        return result(variant, {"bleu": 100 - variant.config.model.dropout})

    asked = {}
    for seed in (1, 2):
        for name, fate in (("hash", by_hash), ("other", other)):
            config = of(tiny_config, samples=12, seed=seed)
            _, proposals = searched(config, tiny_corpus, Machine(fate))
            asked[seed, name] = [proposal.variant for proposal in proposals]
    assert asked[1, "hash"][:4] == asked[1, "other"][:4]
    assert asked[1, "hash"][4:] != asked[1, "other"][4:]
    assert asked[1, "hash"][:4] != asked[2, "hash"][:4]


@settings(max_examples=10)
@given(short=st.integers(1, 12), more=st.integers(1, 9), together=st.integers(1, 5))
def test_a_longer_search_begins_as_the_shorter_one(
    tiny_config: Config, tiny_corpus: Corpus, short: int, more: int, together: int
) -> None:
    machine = Machine()
    _, first = searched(of(tiny_config, samples=short, round=together), tiny_corpus, machine)
    trained = list(machine.trained)
    _, then = searched(of(tiny_config, samples=short + more, round=together), tiny_corpus, machine)
    assert [p.variant for p in then[:short]] == [p.variant for p in first]
    assert machine.trained[: len(trained)] == trained
    assert len(machine.trained) == len(set(machine.trained))


# --- it learns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["bleu", "perplexity", "flops", "parameters"])
def test_a_search_goes_where_the_objective_is_good(
    tiny_config: Config, tiny_corpus: Corpus, objective: str
) -> None:
    """Each figure grows with d_ff, drawn evenly between 8 and 1000 at first."""

    def fate(variant: Variant) -> TrialResult:
        width = variant.config.model.d_ff
        return result(
            variant, {"bleu": width / 50, "valid_perplexity": width, "flops": 1e9 * width}
        )

    space = {"model.d_ff": {"low": 8, "high": 1000}, "model.dropout": {"low": 0.0, "high": 0.5}}
    config = of(tiny_config, space, samples=40, objectives=[objective])
    _, proposals = searched(config, tiny_corpus, Machine(fate))
    late = [p.made[0].config.model.d_ff for p in proposals[20:] if isinstance(p.made, list)]
    # Of 20 even draws the mean has a standard deviation of 64 around 504.
    if HIGHER_IS_BETTER[objective]:
        assert statistics.fmean(late) > 504 + 3 * 64
    else:
        assert statistics.fmean(late) < 504 - 3 * 64


def test_every_objective_has_a_direction() -> None:
    hint = typing.get_type_hints(SweepConfig)["objectives"]
    assert set(HIGHER_IS_BETTER) == set(typing.get_args(typing.get_args(hint)[0]))


# --- what is told -------------------------------------------------------------------------------


class Ear(Proposals):
    """Remembers what the study is told."""

    told: typing.ClassVar[list[Outcome]] = []
    base: typing.ClassVar[list[Outcome]] = []

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        self.told.extend(outcomes)
        super().tell(outcomes)

    def add(self, values: Any, outcome: Outcome) -> None:
        self.base.append(outcome)
        super().add(values, outcome)


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> type[Ear]:
    Ear.told, Ear.base = [], []
    monkeypatch.setattr("seq2sweep.sweep.search.Proposals", Ear)
    return Ear


def test_means_over_seeds_are_told_of_those_that_finished(
    tiny_config: Config, tiny_corpus: Corpus, ear: type[Ear]
) -> None:
    """heads=1: two of three finish; heads=4: none does; heads=8: none ends well; base: no BLEU."""

    def fate(variant: Variant) -> TrialResult:
        heads, seed = variant.config.model.heads, variant.seed
        metrics = {"bleu": 10.0 * seed, "flops": 1e12 * heads}
        if heads == 1 and seed == 3:
            return result(variant, {}, "failed")
        if heads == 2 and seed == 2:
            return result(variant, {"bleu": None, "flops": 1e12})
        if heads == 4:
            return result(variant, metrics, "stopped early")
        return result(variant, metrics, "failed" if heads == 8 else "finished")

    space = {"model.heads": [1, 4, 8], "model.d_model": [32]}
    config = of(tiny_config, space, samples=12, seeds=3, objectives=["bleu"], seed=3)
    _, proposals = searched(config, tiny_corpus, Machine(fate))
    told = {p.variant: outcome for p, outcome in zip(proposals, ear.told, strict=True)}
    assert told == {
        "heads=1 d_model=32": Outcome("finished", (15.0,)),
        "heads=4 d_model=32": Outcome("stopped early", (20.0,), 12),
        "heads=8 d_model=32": Outcome("failed"),
    }
    assert ear.base == [Outcome("failed")]
    for proposal, outcome in zip(proposals, ear.told, strict=True):
        assert outcome == told[proposal.variant], "a repeated one is told alike"


def test_several_objectives_are_told_in_order(
    tiny_config: Config, tiny_corpus: Corpus, ear: type[Ear]
) -> None:
    config = of(
        tiny_config, {"model.layers": [2]}, samples=1, objectives=["parameters", "perplexity"]
    )
    metrics = {"valid_perplexity": 3.5, "bleu": 9.0}
    [_, found], _ = searched(config, tiny_corpus, Machine(lambda variant: result(variant, metrics)))
    counted = flops.parameter_count(found.variant.config.model, tiny_corpus.size)
    assert ear.told == [Outcome("finished", (float(counted), 3.5))]


def proposals_after(config: Config, space: dict[str, Any], base: dict[str, Any]) -> list[Any]:
    """What is asked for when the base variant was told so often that nothing is random any more."""
    made = of(config, space)
    source = Proposals(made.sweep, spelt_out(made))
    for _ in range(STARTUP):
        source.add(configuration.flatten(config) | base, Outcome("finished", (1.0,)))
    return source.ask(6)


@pytest.mark.parametrize(
    ("key", "entry", "inside", "outside"),
    [
        ("model.dropout", {"low": 0.0, "high": 0.3}, [0.0, 0.3, 0.1], [0.31, "much"]),
        ("model.d_ff", {"low": 8, "high": 64}, [8, 64, 64.0], [7, 65, 8.5]),
        ("model.heads", [1, 2, 4], [1, 4], [3, None]),
        ("train.learning_rate_scale", ["1e-1", 1], [0.1, 1.0], [0.2]),
    ],
)
def test_the_base_variant_is_told_if_it_lies_in_the_space(
    tiny_config: Config, key: str, entry: Any, inside: list[Any], outside: list[Any]
) -> None:
    space = {key: entry, "train.warmup_steps": {"low": 1, "high": 1000}}
    nothing = of(tiny_config, space)
    untold = Proposals(nothing.sweep, spelt_out(nothing)).ask(6)
    for value in inside:
        assert proposals_after(tiny_config, space, {key: value}) != untold, value
    for value in outside:
        assert proposals_after(tiny_config, space, {key: value}) == untold, value


def test_a_base_variant_that_failed_is_not_told(tiny_config: Config) -> None:
    made = of(tiny_config, SPACE)
    silent, told = (Proposals(made.sweep, spelt_out(made)) for _ in range(2))
    for _ in range(STARTUP):
        told.add(configuration.flatten(tiny_config), Outcome("failed"))
    assert told.ask(6) == silent.ask(6)


def test_a_base_variant_that_lacks_a_key_of_the_space_is_not_told(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """A Transformer has no kernel."""
    space = {"model.architecture": ["bytenet", "transformer"], "model.kernel": [3, 5]}
    made = of(tiny_config, space, samples=6, round=3)
    silent, told = (Proposals(made.sweep, spelt_out(made)) for _ in range(2))
    for _ in range(STARTUP):
        told.add(configuration.flatten(made), Outcome("finished", (1.0,)))
    assert told.ask(6) == silent.ask(6)
    results, _ = searched(made, tiny_corpus, Machine())
    trained = {found.variant.config.model.architecture for found in results}
    assert trained == {"bytenet", "transformer"}


def test_values_are_drawn_from_the_space(tiny_config: Config) -> None:
    made = of(tiny_config, SPACE | {"train.precision": ["float32", None, [1]]}, samples=200)
    source = Proposals(made.sweep, spelt_out(made))
    drawn = source.ask(200)
    assert {(c["model.d_model"], c["model.d_ff"]) for c in drawn} == {
        (32, 64),
        (32, 128),
        (33, 64),
        (64, 64),
    }
    assert {c["model.layers"] for c in drawn} == {1, 2, 3}
    assert [type(c["model.layers"]) for c in drawn] == [int] * 200
    assert all(0 <= c["model.dropout"] <= 0.5 for c in drawn)
    assert all(float(f"{c['model.dropout']:.4g}") == c["model.dropout"] for c in drawn)
    below = sum(c["train.warmup_steps"] < math.sqrt(1000) for c in drawn)
    assert abs(below - 100) < 4 * math.sqrt(50)
    assert all(c["train.precision"] in ("float32", None, [1]) for c in drawn)


def test_decimals_are_drawn_between_whole_ends(tiny_config: Config) -> None:
    made = of(tiny_config, {"train.learning_rate_scale": {"low": 1, "high": 4, "log": True}})
    drawn = Proposals(made.sweep, spelt_out(made)).ask(20)
    assert len({c["train.learning_rate_scale"] for c in drawn} - {1, 2, 3, 4}) > 10


def test_a_stopped_trial_counts_as_worse_than_all_that_finished(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """Their figures are of fewer steps: a good one must not draw the search there."""

    def fate(variant: Variant) -> TrialResult:
        stopped = variant.config.model.dropout < 0.25
        metrics = {"bleu": 90.0 if stopped else 100 * variant.config.model.dropout}
        return result(variant, metrics, "stopped early" if stopped else "finished")

    config = of(tiny_config, {"model.dropout": {"low": 0.0, "high": 0.5}}, samples=40)
    _, proposals = searched(config, tiny_corpus, Machine(fate))
    late = [p.made[0].config.model.dropout for p in proposals[20:] if isinstance(p.made, list)]
    assert statistics.fmean(late) > 0.35


def test_nothing_of_optuna_is_printed(
    tiny_config: Config,
    tiny_corpus: Corpus,
    capfd: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    searched(of(tiny_config, samples=8, objectives=["bleu", "flops"]), tiny_corpus, Machine())
    assert capfd.readouterr() == ("", "")
    assert [str(w.message) for w in recwarn] == []


def test_the_variant_of_a_proposal_has_the_budget_of_the_base(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    config = of(tiny_config, {"train.tokens_per_update": [150, 600]}, samples=4, budget="tokens")
    results, _ = searched(config, tiny_corpus, Machine())
    steps = {r.variant.variant: r.variant.config.train.steps for r in results}
    assert steps == {"base": 12, "tokens_per_update=150": 24, "tokens_per_update=600": 6}
    assert dataclasses.is_dataclass(results[0])
