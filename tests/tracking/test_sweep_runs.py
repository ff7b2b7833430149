"""A sweep's runs in MLflow: sweep, variants, seeds; told of trials that ended in every way."""

from __future__ import annotations

import json
import math
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.sweep.trial_record import INTERRUPTED
from seq2sweep.sweep.variants import Variant, variants
from seq2sweep.tracking import sweep_runs
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import sync
from seq2sweep.tracking.sweep_runs import SweepRecorder
from tests import rebuild

HEADER = {"fingerprint": "f" * 64, "vocabulary": {"size": 90}}
LINEAGE = {"git.commit": "abc", "params.sha256": "of params.yaml"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Address and artifacts of a store: making its tables takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    return f"sqlite:///{folder / 'mlflow.db'}", folder / "artifacts"


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

    def start(self, name: str) -> Variant:
        variant = self.trials[name]
        self.recorder.hear("started", variant, {"done_before": False})
        return variant

    def end(
        self, name: str, status: str = "finished", cause: str | None = None, **figures: Any
    ) -> None:
        """At step 12; figures: what its journal says besides, of validation and of cost."""
        variant = self.start(name)
        figures = {"loss": 3.0, "valid_loss": 2.0, "valid_perplexity": 9.0} | figures
        journal = self.root / f"{name}.jsonl"
        entries = [{"kind": kind, "step": 12, "time": 1e9} for kind in ("logged", "validated")]
        journal.write_text("".join(json.dumps(entry | figures) + "\n" for entry in entries))
        details = {"cause": cause, "wall_seconds": 2.0, "journal": str(journal)}
        nodes = {"nodes": ["one", "two"]}
        self.recorder.hear(status, variant, {"step": 12} | figures | details | nodes)

    def score(self, name: str, bleu: float) -> None:
        figures = {"bleu": bleu, "bleu_paper": bleu + 1, "chrf": 50.0, "signature": "tok:13a"}
        self.recorder.hear("scored", self.trials[name], figures)

    def recorded(self, store: tuple[str, Path]) -> dict[str, Any]:
        """What MLflow has, by titles; of no other sweep."""
        uri, artifacts = store
        experiment = uuid.uuid4().hex
        sync(self.root / "tracking", uri, experiment, artifacts)
        experiment = Experiment(uri, experiment, artifacts)
        found = experiment.client.search_runs([experiment.id])
        return {run.info.run_name: run for run in found}


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
        assert child.data.metrics["valid_bleu"] == 20.0 + 3 * seed
        assert child.data.metrics["valid_perplexity"] == 9.0
        tags = child.data.tags
        assert (tags["nodes"], tags["hardware.cpu_features"]) == ("one two", "AVX2")
        shown = [tags[f"run.{key}"] for key in ("workers", "threads", "precision")]
        assert shown == ["3", str(seed), "bf16"]
        assert "run.device" not in tags  # not known here
    marks = [runs[f"base seed={seed}"].data.tags.get("run.shared_device") for seed in (1, 2)]
    assert marks == ["true", None]
    # Every metric of the seeds, under its own name, at their step.
    metrics = base.data.metrics
    assert metrics["flops"] == 5e9
    assert metrics["flops_std"] == pytest.approx(math.sqrt(2) * 1e9)
    assert (metrics["valid_loss"], metrics["loss"]) == (1.5, 3.0)
    assert (metrics["valid_bleu"], metrics["valid_bleu_paper"]) == (24.5, 25.5)
    assert metrics["valid_bleu_std"] == pytest.approx(4.5 / math.sqrt(4.5))
    assert "mfu" not in metrics
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
    hashes = [runs[name].data.tags["params.sha256"] for name in (*names, "base", "A-heads-1")]
    assert len(set(hashes)) == len(hashes)
    for name in names:
        rebuilt = rebuild.from_params(runs[name].data.params)
        assert rebuilt == sweep.trials[name].config
        assert runs[name].data.tags["params.sha256"] == configuration.fingerprint(rebuilt)
        # As it is scored.
        assert rebuilt.evaluate.average_checkpoints == 1
    for name in ("base", "A-heads-1"):
        rebuilt = rebuild.from_params(runs[name].data.params | {"train.seed": "0"})
        own = configuration.fingerprint(rebuilt, without=["train.seed"])
        assert runs[name].data.tags["params.sha256"] == own


def test_one_seed_has_its_variant_above_it_and_no_deviation(
    tmp_path: Path, config: Config, store: tuple[str, Path]
) -> None:
    sweep = Sweep(tmp_path, configuration.with_changes(config, {"sweep.seeds": 1}))
    with sweep.parent, sweep.recorder:
        sweep.end("base", flops=4e9)
        sweep.score("base", 21.0)
    runs = sweep.recorded(store)
    assert runs.keys() == {"sweep", "base", "base seed=1"}
    assert runs["base"].data.metrics["valid_bleu"] == 21.0
    assert not [name for name in runs["base"].data.metrics if name.endswith("_std")]


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
            runs[name].data.metrics.get("valid_loss"),
            runs[name].data.metrics.get("valid_bleu"),
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
    assert runs["D-dropout-0.0"].data.metrics.keys() & {"valid_loss_std", "valid_bleu"} == set()


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
        shown = [found.metrics[f"valid_{one}"] for one in ("f1", "precision", "recall", "complete")]
        assert shown == [f1, 95.0, 85.0, 40.0]
        assert found.tags["f1.signature"] == "EVALB, COLLINS.prm"
        assert not [key for key in (*found.metrics, *found.tags) if "bleu" in key]
