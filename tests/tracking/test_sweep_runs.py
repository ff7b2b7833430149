"""A sweep's runs in MLflow: sweep, variants, seeds; told of trials that ended in every way."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import uuid
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.config.scores import SCORES
from seq2sweep.errors import UserError
from seq2sweep.sweep.trial_record import INTERRUPTED
from seq2sweep.sweep.variants import Variant, variants
from seq2sweep.tracking import sweep_runs
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import sync
from seq2sweep.tracking.sweep_runs import OTHER_FILES, SweepRecorder, require_files
from tests import rebuild
from tests.artifacts import artifact_text

HEADER = {"fingerprint": "f" * 64, "vocabulary": {"size": 90}}
LINEAGE = {"git.commit": "abc", "params.sha256": "of params.yaml"}


@pytest.fixture(scope="module")
def store(experiment: Experiment, uri: str, folder: Path) -> tuple[str, Path]:
    """Address and artifacts of a store: each sweep has an experiment of its own there."""
    return uri, folder / "artifacts"


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "sweep.method": "table3",
            "sweep.rows": ["A-heads-1", "D-dropout-0.0", "E"],
            "sweep.space": {},
            "sweep.base": {"model.heads": 8, "train.steps": 12},
            "sweep.seeds": 2,
        },
    )


class Sweep:
    """A sweep whose trials end as a test says."""

    def __init__(self, root: Path, config: Config) -> None:
        self.root = root
        self.trials = {variant.name: variant for variant in variants(config)[0]}
        self.parent = Recorder(root / "tracking", "sweep", kind="sweep")
        self.recorder = SweepRecorder(self.parent, LINEAGE, HEADER)

    def start(self, name: str, **before: Any) -> Variant:
        variant = self.trials[name]
        self.recorder.hear("started", variant, {"done_before": False} | before)
        return variant

    def end(
        self, name: str, status: str = "finished", cause: str | None = None, **figures: Any
    ) -> None:
        """At step 12, and in its journal at step 16; figures: what that says besides, of
        validation and of cost."""
        variant = self.trials[name] if name in self.recorder.runs else self.start(name)
        figures = {"loss": 3.0, "valid_loss": 2.0, "valid_perplexity": 9.0} | figures
        journal = self.root / f"{name}.jsonl"
        entries = [
            {"kind": kind, "time": 1e9, "step": step} | figures
            for step in (12, 16)  # the last of which have no checkpoint
            for kind in ("logged", "validated")
        ]
        journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        details = {"cause": cause, "wall_seconds": 2.0, "journal": str(journal)}
        nodes = {"nodes": ["one", "two"]}
        self.recorder.hear(status, variant, {"step": 12} | figures | details | nodes)

    def score(self, name: str, bleu: float) -> None:
        figures = {"bleu": bleu, "bleu_paper": bleu + 1, "chrf": 50.0, "signature": "tok:13a"}
        figures["heads"] = {"heads": 12, "positional": bleu / 4, "loss_without": None}
        self.recorder.hear("scored", self.trials[name], figures)

    def recorded(self, store: tuple[str, Path]) -> dict[str, Any]:
        """What MLflow has, by titles; of no other sweep."""
        uri, artifacts = store
        experiment = uuid.uuid4().hex
        sync(self.root / "tracking", uri, experiment, artifacts)
        self.experiment = Experiment(uri, experiment, artifacts)
        found = self.experiment.client.search_runs([self.experiment.id])
        return {run.info.run_name: run for run in found}

    def lineage(self, run: Any) -> dict[str, Any]:
        """What a run's lineage.json says."""
        client = self.experiment.client
        found: dict[str, Any] = json.loads(artifact_text(client, run.info.run_id, "lineage.json"))
        return found


def test_tokens_a_pass_are_recorded_when_they_are_known(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    auto = configuration.with_changes(config, {"train.tokens_per_pass": "auto", "sweep.seeds": 1})
    sweep = Sweep(tmp_path, auto)
    (name, *others) = sweep.trials
    with sweep.parent, sweep.recorder:
        sweep.end(name, tokens_per_pass=1250)
        for other in others:
            sweep.end(other)
    runs = sweep.recorded(store)
    assert runs[name].data.params["train.tokens_per_pass"] == "1250"
    assert all("train.tokens_per_pass" not in runs[other].data.params for other in others)


def test_a_run_has_the_size_of_a_pass_that_it_was_trained_with(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    """An earlier sweep may have trained it with another: of two seeds, with one or with two."""
    space = {"train.tokens_per_pass": [70]}
    changes = {"sweep.method": "one_at_a_time", "sweep.rows": [], "sweep.space": space}
    sweep = Sweep(tmp_path, configuration.with_changes(config, changes))
    with sweep.parent, sweep.recorder:
        for seed in (1, 2):
            sweep.end(f"base seed={seed}", tokens_per_pass=150)
            sweep.end(f"tokens_per_pass=70 seed={seed}", "failed", "it diverged")
    runs = sweep.recorded(store)
    for name, expected in (("base seed=1", "150"), ("tokens_per_pass=70 seed=1", "70")):
        assert sweep.lineage(runs[name])["params"]["train.tokens_per_pass"] == expected
    shown = {name: run.data.params.get("train.tokens_per_pass") for name, run in runs.items()}
    assert {name: tokens for name, tokens in shown.items() if "seed" not in name} == {
        "sweep": None,
        "base": "150",
        "tokens_per_pass=70": "70",
    }
    assert (shown["base seed=2"], shown["tokens_per_pass=70 seed=2"]) == ("150", "70")


def test_seeds_of_several_sizes_of_a_pass_are_of_none_together(
    sweep: Sweep, store: tuple[str, Path]
) -> None:
    asked = sweep.trials["base seed=2"].config.train.tokens_per_pass
    with sweep.parent, sweep.recorder:
        sweep.end("base seed=1", tokens_per_pass=150)
        sweep.end("base seed=2", "failed", "before its first update")
        sweep.start("D-dropout-0.0 seed=1")
    runs = sweep.recorded(store)
    names = ("base seed=1", "base seed=2", "base", "D-dropout-0.0 seed=1")
    shown = [runs[name].data.params.get("train.tokens_per_pass") for name in names]
    assert shown == ["150", str(asked), None, None]


def test_what_an_earlier_sweep_trained_comes_from_the_libraries_of_then(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    sweep = Sweep(tmp_path, configuration.with_changes(config, {"sweep.seeds": 1}))
    now = {"git.commit": "b", "version.torch": "2.13.0", "data.dataset": "sum"}
    then = {"git.commit": "a", "version.torch": "2.12.0"}
    sweep.recorder.lineage = now
    new, known, unknown, stopped_again, *_ = sweep.trials
    with sweep.parent, sweep.recorder:
        sweep.start(stopped_again, made_by=now)
        sweep.end(stopped_again, "stopped early", made_by=then)
        sweep.start(new, made_by=now)
        sweep.start(known, done_before=True, made_by=then)
        sweep.start(unknown, done_before=True, made_by=None)
        for name in (new, known, unknown):
            sweep.end(name)
    runs = sweep.recorded(store)
    nobody = dict.fromkeys(then, "unknown")
    for name, made_by in ((new, now), (known, then), (unknown, nobody), (stopped_again, then)):
        told = sweep.lineage(runs[name])
        assert {key: told[key] for key in now} == now | made_by
        assert runs[name].data.tags["git.commit"] == made_by["git.commit"]


def test_a_variant_comes_from_what_trained_its_seeds(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    sweep = Sweep(tmp_path, config)
    now = {"git.commit": "b", "git.dirty": "true", "host": "new", "data.dataset": "sum"}
    then = {"git.commit": "a", "git.dirty": "false", "host": "old"}
    sweep.recorder.lineage = now
    resumed = [*sweep.trials.values()][-1].variant
    with sweep.parent, sweep.recorder:
        for seed in (1, 2):  # resumed, and stopped before they were trained further
            sweep.start(f"{resumed} seed={seed}", made_by=now)
            sweep.end(f"{resumed} seed={seed}", "stopped early", made_by=then)
        for seed in (1, 2):
            sweep.start(f"base seed={seed}", done_before=True, made_by=then)
        sweep.start("A-heads-1 seed=1", done_before=True, made_by=then)
        sweep.start("A-heads-1 seed=2")
        for seed in (1, 2):
            sweep.start(f"D-dropout-0.0 seed={seed}")
    runs = sweep.recorded(store)
    both = {"git.commit": "a, b", "git.dirty": "false, true", "host": "old, new"}
    made = {"base": then, "A-heads-1": both, "D-dropout-0.0": now, resumed: then}
    for name, made_by in made.items():
        told, tags = sweep.lineage(runs[name]), runs[name].data.tags
        assert {key: told[key] for key in now} == now | made_by
        assert "train.seed" not in told["params"]
        assert tags["git.commit"] == tags["mlflow.source.git.commit"] == made_by["git.commit"]
        assert tags.get("git.dirty", "false") == made_by["git.dirty"]


@pytest.fixture
def sweep(tmp_path: Path, config: Config) -> Sweep:
    return Sweep(tmp_path, config)


def test_three_levels_and_the_mean_of_the_seeds(sweep: Sweep, store: tuple[str, Path]) -> None:
    with sweep.parent, sweep.recorder:
        for seed, flops in ((1, 4e9), (2, 6e9)):
            origin = {"workers": 3, "threads": seed, "precision": "bf16", "cpu_features": "AVX2"}
            sweep.end(f"base seed={seed}", flops=flops, valid_loss=float(seed), mfu=None, **origin)
        for seed in (1, 2):
            sweep.score(f"base seed={seed}", 20.0 + 3 * seed)
        sweep.recorder.tell_sharing({"base seed=1": True, "base seed=2": None})
    runs = sweep.recorded(store)
    assert runs.keys() == {"sweep", "base", "base seed=1", "base seed=2"}
    base, parent = runs["base"], runs["sweep"]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert base.data.tags["mlflow.parentRunId"] == parent.info.run_id
    for seed in (1, 2):
        child = runs[f"base seed={seed}"]
        assert child.data.tags["mlflow.parentRunId"] == base.info.run_id
        assert child.data.params.items() - base.data.params.items() == {("train.seed", str(seed))}
        assert child.data.params.keys() - base.data.params.keys() == {"train.seed"}
        assert child.data.metrics["score/valid_bleu"] == 20.0 + 3 * seed
        assert child.data.metrics["train/valid_perplexity"] == 9.0
        told = sweep.lineage(child)
        assert (told["nodes"], told["hardware.cpu_features"]) == ("one two", "AVX2")
        shown = [told[f"run.{key}"] for key in ("workers", "threads", "precision")]
        assert shown == ["3", str(seed), "bf16"]
        assert "run.device" not in told  # not known here
        assert [used.dataset.name for used in child.inputs.dataset_inputs] == [
            f"{sweep.trials['base seed=1'].config.data.dataset} en-de {split}"
            for split in ("train", "valid")
        ]
    marks = [runs[f"base seed={seed}"].data.tags.get("run.shared_device") for seed in (1, 2)]
    assert marks == ["true", None]
    # Every metric of the seeds, under its own name, at their step.
    metrics = base.data.metrics
    assert metrics["cost/flops"] == 5e9
    assert metrics["cost/flops_std"] == pytest.approx(math.sqrt(2) * 1e9)
    assert (metrics["train/valid_loss"], metrics["train/loss"]) == (1.5, 3.0)
    assert (metrics["score/valid_bleu"], metrics["score/valid_bleu_paper"]) == (24.5, 25.5)
    assert metrics["score/valid_bleu_std"] == pytest.approx(4.5 / math.sqrt(4.5))
    assert "cost/mfu" not in metrics
    assert {name for name in metrics if "heads/" in name} == {
        *("heads/positional", "heads/positional_std")
    }
    assert metrics["heads/positional"] == pytest.approx(24.5 / 4)
    names = {name.removesuffix("_std") for name in metrics}
    assert names == runs["base seed=1"].data.metrics.keys()
    assert names == {name for name in metrics if not name.endswith("_std")}


def test_tags_say_what_a_variant_is(
    sweep: Sweep, config: Config, store: tuple[str, Path], tmp_path: Path
) -> None:
    with sweep.parent, sweep.recorder:
        for name in ("base seed=1", "A-heads-1 seed=1", "A-heads-1 seed=2"):
            sweep.end(name)
    runs = sweep.recorded(store)
    tags = runs["A-heads-1"].data.tags
    assert (tags["row"], tags["group"], tags["variant"]) == ("A-heads-1", "A", "A-heads-1")
    assert tags["changes"] == "model.heads=1 model.d_k=128 model.d_v=128"
    assert tags["changed"] == "model.d_k model.d_v model.heads"
    assert (tags["budget"], tags["method"], tags["kind"]) == ("12 steps", "table3", "variant")
    assert (tags["outcome"], tags["git.commit"]) == ("finished", "abc")
    assert "seed" not in tags
    seed = runs["A-heads-1 seed=2"].data.tags
    same = ("row", "group", "variant", "changes", "changed", "budget", "method", "outcome")
    assert [seed[key] for key in same] == [tags[key] for key in same]
    assert (seed["kind"], seed["seed"]) == ("trial", "2")
    assert not {"changes", "changed"} & runs["base"].data.tags.keys()
    # Its other seed was never begun.
    assert "outcome" not in runs["base"].data.tags
    equal = configuration.with_changes(config, {"sweep.budget": "flops", "sweep.method": "grid"})
    assert sweep_runs.budget(equal.sweep, 12) == "flops of base"


def test_each_run_has_its_own_parameters_and_their_hash(
    sweep: Sweep, store: tuple[str, Path]
) -> None:
    names = ("base seed=1", "base seed=2", "A-heads-1 seed=2")
    with sweep.parent, sweep.recorder:
        for name in names:
            sweep.end(name)
    runs = sweep.recorded(store)
    told = {name: sweep.lineage(runs[name]) for name in (*names, "base", "A-heads-1")}
    hashes = [one["params.sha256"] for one in told.values()]
    assert len(set(hashes)) == len(hashes)
    for name in names:
        rebuilt = rebuild.from_params(told[name]["params"])
        assert rebuilt == sweep.trials[name].config
        assert told[name]["params.sha256"] == configuration.fingerprint(rebuilt)
        # What a person compares, and nothing that is the same for every variant anyway.
        shown = runs[name].data.params
        assert shown.items() <= told[name]["params"].items()
        assert {key.partition(".")[0] for key in shown} == {"model", "train"}
        assert "null" not in shown.values()
        # As it is scored.
        assert rebuilt.evaluate.average_checkpoints == 1
    for name in ("base", "A-heads-1"):
        rebuilt = rebuild.from_params(told[name]["params"] | {"train.seed": "0"})
        own = configuration.fingerprint(rebuilt, without=["train.seed"])
        assert told[name]["params.sha256"] == own


def test_one_seed_is_its_variant_and_has_no_deviation(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    sweep = Sweep(tmp_path, configuration.with_changes(config, {"sweep.seeds": 1}))
    with sweep.parent, sweep.recorder:
        sweep.end("base", flops=4e9)
        sweep.score("base", 21.0)
    runs = sweep.recorded(store)
    assert runs.keys() == {"sweep", "base"}
    base = runs["base"].data
    assert base.tags["mlflow.parentRunId"] == runs["sweep"].info.run_id
    assert (base.tags["kind"], base.tags["seed"], base.params["train.seed"]) == (
        "variant",
        "1",
        "1",
    )
    # By it MLflow unfolds the sweep, and draws the row that follows below another.
    assert "mlflow.runType" not in base.tags
    assert base.metrics["score/valid_bleu"] == 21.0
    assert base.metrics["cost/flops"] == 4e9
    assert not [name for name in base.metrics if name.endswith("_std")]
    assert sweep.recorder.variant_run("base") is sweep.recorder.runs["base"]


def test_a_try_of_table_2_is_a_run_of_one_seed(
    tiny_config: Config, store: tuple[str, Path], tmp_path: Path
) -> None:
    """However many the trainings after it have."""
    changes = {
        "sweep.method": "table2",
        "sweep.rows": ["recurrent"],
        "sweep.space": {},
        "sweep.budget": "flops",
        "sweep.scheduler": "none",
        "sweep.seeds": 2,
        "sweep.learning_rates": [1.0],
        "sweep.base": {"train.steps": 90},
        "train.warmup_steps": 4,
    }
    sweep = Sweep(tmp_path, configuration.with_changes(tiny_config, changes))
    tried, failed = (f"{name} at 1 x the learning rate" for name in ("base", "recurrent"))
    with sweep.parent, sweep.recorder:
        sweep.end(tried, flops=1e9)
        sweep.end(failed, "failed", "diverged")
        sweep.score(tried, 21.0)
        for seed in (1, 2):
            sweep.end(f"base seed={seed}", flops=4e9)
        sweep.parent.view("variants", "Variants", sweep_runs.compared(SCORES["bleu"], []))
    runs = sweep.recorded(store)
    seeds = {f"base seed={seed}" for seed in (1, 2)}
    assert runs.keys() == {"sweep", "base", tried, failed, *seeds}
    for name, what, kind in (
        (tried, f"A try of a learning rate, {tried}.", "try"),
        (failed, f"A try of a learning rate, {failed}.", "try"),
        ("base", "The base of the sweep.", "variant"),
    ):
        tags = runs[name].data.tags
        assert tags["mlflow.note.content"].startswith(f"{what} Where it comes from: [lineage.json]")
        assert (tags["kind"], tags["mlflow.parentRunId"]) == (kind, runs["sweep"].info.run_id)
    assert runs[tried].data.metrics["score/valid_bleu"] == 21.0
    assert runs[failed].info.status == "FAILED"
    assert runs[failed].data.tags["error"] == "diverged"
    assert runs["base"].data.metrics["cost/flops"] == 4e9
    # What is compared is the trainings that follow.
    client = sweep.experiment.client
    tags = client.get_experiment(sweep.experiment.id).tags
    state = json.loads(json.loads(tags["mlflow.sharedViewState.variants"])["state"])
    compared = client.search_runs([sweep.experiment.id], state["searchFilter"])
    assert [run.info.run_name for run in compared] == ["base"]


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_has_one_number_is_a_bar_and_flops_or_the_score_come_first(
    tmp_path: Path, config: Config, store: tuple[str, Path], seeds: int
) -> None:
    """MLflow draws a line of what has a step, and its page of comparisons opens with the metric
    that a run had first."""
    sweep = Sweep(tmp_path, configuration.with_changes(config, {"sweep.seeds": seeds}))
    names = ["base"] if seeds == 1 else ["base seed=1", "base seed=2"]
    with sweep.parent, sweep.recorder:
        for name in names:
            sweep.end(name, flops=4e9)
        for name in names:
            sweep.score(name, 21.0)
        sweep.end(names[0].replace("base", "A-heads-1"), flops=4e9)  # gets no score
    runs = sweep.recorded(store)
    client = sweep.experiment.client
    # Of a variant of several seeds, which has its numbers once they are scored, the score.
    first = "cost/flops" if seeds == 1 else "score/valid_bleu"
    assert next(iter(runs["base"].data.metrics)) == first
    for name in ("base", names[0]):
        for key in ("score/valid_bleu", "cost/flops", "cost/parameters"):
            history = client.get_metric_history(runs[name].info.run_id, key)
            assert [point.step for point in history] == [0], (name, key)
    points = client.get_metric_history(runs[names[0]].info.run_id, "train/valid_loss")
    assert [point.step for point in points] == [12]
    unscored = runs[names[0].replace("base", "A-heads-1")].data.metrics
    assert (unscored["cost/flops"], unscored["train/valid_loss"]) == (4e9, 2.0)


def test_costs_and_curves_do_not_wait_for_scores(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    """A sweep may train for days."""
    sweep = Sweep(tmp_path, configuration.with_changes(config, {"sweep.seeds": 1}))
    with sweep.parent, sweep.recorder:
        sweep.end("base", flops=4e9)
        metrics = sweep.recorded(store)["base"].data.metrics
    assert (metrics["cost/flops"], metrics["train/valid_loss"]) == (4e9, 2.0)


def test_the_view_of_variants_names_metrics_and_parameters_that_they_have(
    sweep: Sweep, store: tuple[str, Path]
) -> None:
    """A chart of what no run has stays empty, and a column is left out, without a word."""
    with sweep.parent, sweep.recorder:
        for seed in (1, 2):
            sweep.end(f"A-heads-1 seed={seed}", flops=4e9, device_hours=1.0)
        for seed in (1, 2):
            sweep.score(f"A-heads-1 seed={seed}", 20.0)
        changes = sweep.trials["A-heads-1 seed=1"].changes
        sweep.parent.view("variants", "Variants", sweep_runs.compared(SCORES["bleu"], [*changes]))
    runs = sweep.recorded(store)
    tag = sweep.experiment.client.get_experiment(sweep.experiment.id).tags
    view = json.loads(tag["mlflow.sharedViewState.variants"])
    assert (view["name"], set(view)) == ("Variants", {"name", "createdAt", "state"})
    state = json.loads(view["state"])
    data = runs["A-heads-1"].data
    known = {"METRIC": data.metrics, "PARAM": data.params}
    scatter = [one for one in state["compareRunCharts"] if one["type"] == "SCATTER"]
    over = [chart["xaxis"]["key"] for chart in scatter]
    assert over == ["cost/flops", "cost/parameters", *changes]
    for chart in scatter:
        for axis in (chart["xaxis"], chart["yaxis"]):
            assert axis["key"] in known[axis["type"]]
    columns = [re.match(r"(metrics|params)\.`(.*)`", one) for one in state["selectedColumns"]]
    for column in filter(None, columns):
        assert column[2] in (data.metrics if column[1] == "metrics" else data.params), column[0]
    # Of this sweep alone, and of its variants rather than their seeds.
    found = sweep.experiment.client.search_runs([sweep.experiment.id], state["searchFilter"])
    assert [run.info.run_name for run in found] == ["A-heads-1"]
    assert state["orderByKey"] == "metrics.`score/valid_bleu`"


def test_a_variant_ends_as_its_seeds_did(sweep: Sweep, store: tuple[str, Path]) -> None:
    with sweep.parent, sweep.recorder:
        sweep.end("base seed=1", "stopped early", valid_loss=9.0)
        sweep.end("base seed=2", "finished", valid_loss=1.0)
        sweep.end("A-heads-1 seed=1", "failed", "out of memory", valid_loss=9.0)
        sweep.end("A-heads-1 seed=2", "failed", "diverged")
        sweep.end("D-dropout-0.0 seed=1", "failed", "out of memory", valid_loss=9.0)
        sweep.end("D-dropout-0.0 seed=2", "finished", valid_loss=2.0)
        sweep.end("E-learned-positions seed=1", "stopped early", valid_loss=3.0)
        sweep.end("E-learned-positions seed=2", "stopped early", valid_loss=5.0)
        sweep.score("base seed=1", 1.0)
        sweep.score("base seed=2", 30.0)
        sweep.score("E-learned-positions seed=2", 7.0)  # the other had no checkpoint
    runs = sweep.recorded(store)
    said = {
        name: (
            runs[name].info.status,
            runs[name].data.tags["outcome"],
            runs[name].data.tags.get("error"),
            runs[name].data.metrics.get("train/valid_loss"),
            runs[name].data.metrics.get("score/valid_bleu"),
        )
        for name in ("base", "A-heads-1", "D-dropout-0.0", "E-learned-positions")
    }
    assert said == {
        "base": ("FINISHED", "finished", None, 1.0, 30.0),
        "A-heads-1": (
            *("FAILED", "failed", "seed=1: out of memory; seed=2: diverged"),
            *(None, None),
        ),
        "D-dropout-0.0": ("FINISHED", "finished", "seed=1: out of memory", 2.0, None),
        "E-learned-positions": ("FINISHED", "stopped early", None, 4.0, 7.0),
    }
    assert runs["A-heads-1 seed=2"].info.status == "FAILED"
    assert runs["A-heads-1 seed=2"].data.tags["error"] == "diverged"
    assert (
        runs["D-dropout-0.0"].data.metrics.keys() & {"train/valid_loss_std", "score/valid_bleu"}
        == set()
    )


def test_a_mean_of_fewer_seeds_says_of_how_many(sweep: Sweep, store: tuple[str, Path]) -> None:
    with sweep.parent, sweep.recorder:
        sweep.end("base seed=1", valid_perplexity=None)  # it diverged
        sweep.end("base seed=2")
        sweep.score("base seed=2", 30.0)  # the other could not be scored
    metrics = sweep.recorded(store)["base"].data.metrics
    of = {name: n for name, n in metrics.items() if name.endswith("_n")}
    assert of.keys() > {"train/valid_perplexity_n", "score/valid_bleu_n"}
    assert set(of.values()) == {1}
    assert "train/valid_loss_n" not in of
    assert (metrics["train/valid_perplexity"], metrics["score/valid_bleu"]) == (9.0, 30.0)


def test_an_interruption_ends_all_that_had_no_end(sweep: Sweep, store: tuple[str, Path]) -> None:
    def work() -> None:
        with sweep.parent, sweep.recorder:
            sweep.end("base seed=1")
            sweep.end("base seed=2")
            sweep.end("A-heads-1 seed=1")
            sweep.end("D-dropout-0.0 seed=1")
            sweep.start("D-dropout-0.0 seed=2")
            sweep.end("E-learned-positions seed=1")
            # As run_sweep does for what was in training.
            sweep.end("E-learned-positions seed=2", "failed", INTERRUPTED)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    runs = sweep.recorded(store)
    finished = {name for name, run in runs.items() if run.info.status == "FINISHED"}
    assert finished == {
        *("base", "base seed=1", "base seed=2", "A-heads-1 seed=1", "D-dropout-0.0 seed=1"),
        "E-learned-positions seed=1",
    }
    assert {run.info.status for run in runs.values()} == {"FINISHED", "KILLED"}
    assert runs["E-learned-positions seed=2"].data.tags["outcome"] == "interrupted"
    assert runs["E-learned-positions"].data.tags["error"] == f"seed=2: {INTERRUPTED}"
    assert "outcome" not in runs["D-dropout-0.0"].data.tags


def test_what_a_killed_driver_left_is_ended_by_the_next(
    sweep: Sweep, store: tuple[str, Path]
) -> None:
    sweep.end("base seed=1")
    sweep.end("base seed=2")
    sweep.end("A-heads-1 seed=1")
    sweep.start("A-heads-1 seed=2")
    variant_runs = [variant.run for variant in sweep.recorder.variants.values()]
    for run in (sweep.parent, *variant_runs, *sweep.recorder.runs.values()):
        run.close()  # as the end of its process does
    runs = sweep.recorded(store)
    killed = {name for name, run in runs.items() if run.info.status == "KILLED"}
    assert killed == {"sweep", "A-heads-1", "A-heads-1 seed=2"}
    assert {run.info.status for run in runs.values()} == {"FINISHED", "KILLED"}


def test_a_large_sweep_holds_one_file_a_run(tmp_path: Path, config: Config) -> None:
    """Three hundred rows of three seeds would reach 1024, if Ray did not raise that limit."""
    changes = {"sweep.rows": ["all"]}
    sweep = Sweep(tmp_path, configuration.with_changes(config, changes))
    before = len(os.listdir("/proc/self/fd"))
    with sweep.parent, sweep.recorder:
        for name in sweep.trials:
            sweep.end(name)
            sweep.score(name, 20.0)
        trained = len({trial.variant for trial in sweep.trials.values()})
        assert len(os.listdir("/proc/self/fd")) - before == len(sweep.trials) + trained
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_a_sweep_of_parsing_records_f1(
    config: Config, store: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = {"data.target": "trees", "model.target_symbols": 64, "model.tie_embeddings": False}
    sweep = Sweep(tmp_path, configuration.with_changes(config, trees))
    with sweep.parent, sweep.recorder:
        for seed in (1, 2):
            sweep.end(f"base seed={seed}")
        for seed in (1, 2):
            figures = {"f1": 90.0 + seed, "precision": 95.0, "recall": 85.0, "complete": 40.0}
            figures |= {"signature": "EVALB, COLLINS.prm"}
            sweep.recorder.hear("scored", sweep.trials[f"base seed={seed}"], figures)
    assert "base seed=1: F1 91.00 on the validation set" in capsys.readouterr().out
    runs = sweep.recorded(store)
    for name, f1 in (("base", 91.5), ("base seed=2", 92.0)):
        found = runs[name].data
        shown = [
            found.metrics[f"score/valid_{one}"] for one in ("f1", "precision", "recall", "complete")
        ]
        assert shown == [f1, 95.0, 85.0, 40.0]
        assert found.tags["f1.signature"] == "EVALB, COLLINS.prm"
        assert not [key for key in (*found.metrics, *found.tags) if "bleu" in key]


OPTUNA = {
    "sweep.method": "optuna",
    "sweep.space": {"model.dropout": [0.0, 0.1]},
    "sweep.samples": 30,
}


@pytest.mark.parametrize(
    ("changes", "trials", "runs"),
    [
        ({}, 8, 12),  # a run of each of four variants, and of two seeds of each
        ({"sweep.seeds": 1}, 4, 4),
        (OPTUNA, 62, 93),
        (OPTUNA | {"sweep.seeds": 1}, 31, 31),
    ],
)
def test_a_sweep_may_open_a_file_for_each_of_its_runs(
    config: Config,
    changes: dict[str, Any],
    trials: int,
    runs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configuration.with_changes(config, changes)
    chosen, _ = variants(config)
    needed, unlimited = OTHER_FILES + runs, resource.RLIM_INFINITY
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked.append(both))

    def require(soft: int, hard: int) -> None:
        asked.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        require_files(config.sweep, chosen)

    for soft, hard in ((needed, needed), (unlimited, unlimited), (needed + 1, unlimited)):
        require(soft, hard)
        assert asked == []
    for hard in (needed, needed + 1, unlimited):
        require(needed - 1, hard)
        assert asked == [(needed, hard)]
    with pytest.raises(UserError) as refused:
        require(100, needed - 1)
    assert str(refused.value) == (
        f"the sweep's {trials} trials need {needed} open files, and this process may have "
        f"{needed - 1} (`ulimit -Hn`): raise that limit (LimitNOFILE of systemd, also of Slurm's "
        "slurmd), or train fewer variants or seeds"
    )


def test_a_run_of_a_trial_holds_one_file(tmp_path: Path, config: Config) -> None:
    """By which they are counted."""
    sweep = Sweep(tmp_path, config)
    before = len(os.listdir("/proc/self/fd"))
    for trial in sweep.trials.values():
        sweep.recorder.hear("started", trial, {"done_before": False})
    assert len(os.listdir("/proc/self/fd")) - before == 12
