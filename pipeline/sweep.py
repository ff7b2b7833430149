"""Train the variants of the `sweep` section with Ray Tune and score each on the validation set.

Writes reports/sweep.json and metrics/sweep.json; in MLflow a parent run with a child a variant.
Variants that are trained already (in `cluster.storage`) are not trained again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from pipeline import stage, tracking
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.data.bitext import read_header
from seq2sweep.evaluate.evaluation import score_checkpoint
from seq2sweep.model import flops
from seq2sweep.train import journal

CURVE_METRICS = ("valid_perplexity", "valid_loss", "loss", "tokens_per_second")


def work(config: Config) -> None:
    from seq2sweep.cluster.search import run_sweep, variants
    from seq2sweep.cluster.session import ray_session

    project = Path.cwd()
    header = read_header(stage.ENCODED)
    chosen = variants(config)
    console.say(f"{len(chosen)} variants: {', '.join(variant.name for variant in chosen)}")
    started = time.perf_counter()
    tracker = tracking.open_tracker(config)
    lineage = tracking.lineage(config, header)
    with contextlib.ExitStack() as stack:
        parent = stack.enter_context(
            tracker.start(
                f"sweep {config.sweep.method}",
                kind="sweep",
                params=tracking.logged_params(config) | configuration.flatten(config, "sweep"),
                tags=lineage,
            )
        )
        recorder = Recorder(tracker, parent.id, lineage, stack)
        with ray_session(config.cluster):
            results = run_sweep(
                config,
                encoded=stage.ENCODED.resolve(),
                project=project,
                name=sweep_name(header),
                score=functools.partial(
                    score_checkpoint,
                    clean=stage.CLEAN.resolve(),
                    vocabulary=stage.VOCABULARY.resolve(),
                ),
                on_trial=recorder.hear,
            )
        vocabulary_size = int(header["vocabulary"]["size"])
        trials = [describe(result, vocabulary_size, recorder.run_ids) for result in results]
        recorder.close(trials)
        base = next(variant for variant in chosen if variant.name == "base")
        base_values = configuration.to_dict(base.config)
        seconds = time.perf_counter() - started
        report = {
            "method": config.sweep.method,
            "scheduler": config.sweep.scheduler,
            "split": "valid",
            "dataset": config.data.dataset,
            "vocabulary_size": vocabulary_size,
            "base": {"model": base_values["model"], "train": base_values["train"]},
            "wall_seconds": seconds,
            "mlflow_run_id": parent.id,
            "trials": trials,
        }
        summary = summarise(trials)
        stage.write_json(stage.REPORTS / "sweep.json", report)
        stage.write_json(stage.METRICS / "sweep.json", summary)
        parent.artifact(stage.REPORTS / "sweep.json")
        if summary["best"] is not None:
            parent.log({"bleu": summary["best"]["bleu"]}, step=summary["best"]["steps"])
            parent.tag({"best": summary["best"]["name"]})
    best = summary["best"]
    console.say(
        f"{summary['finished']} finished, {summary['stopped_early']} stopped early, "
        f"{summary['failed']} failed in {console.duration(seconds)}"
        + (f"; best: {best['name']}, BLEU {best['bleu']:.2f} on valid" if best else "")
    )


def sweep_name(header: dict[str, Any]) -> str:
    """Folder of all variants trained on this data with this code; each has its own inside."""
    identity = [
        header["fingerprint"],
        header["vocabulary"]["fingerprint"],
        stage.code_fingerprint(),
    ]
    return f"sweep-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]}"


class Recorder:
    """A child run in MLflow for each trial, and a console line for what happens to it."""

    def __init__(
        self, tracker: Any, parent: str, lineage: dict[str, str], stack: contextlib.ExitStack
    ) -> None:
        self.tracker, self.parent, self.lineage, self.stack = tracker, parent, lineage, stack
        self.runs: dict[str, Any] = {}

    @property
    def run_ids(self) -> dict[str, str]:
        """Variant name to MLflow run id."""
        return {name: run.id for name, run in self.runs.items()}

    def hear(self, event: str, variant: Any, figures: dict[str, Any]) -> None:
        """What run_sweep tells of a trial; see seq2sweep.cluster.search.run_sweep."""
        if event == "started":
            self.runs[variant.name] = self.stack.enter_context(
                self.tracker.start(
                    variant.name,
                    kind="trial",
                    parent=self.parent,
                    params=tracking.logged_params(variant.config),
                    tags=self.lineage | {"variant": variant.name},
                )
            )
            console.say(f"{variant.name}: started")
        elif event == "result":
            console.say(
                f"{variant.name}: step {figures['step']}/{variant.config.train.steps}  "
                f"valid perplexity {figures['valid_perplexity']:.2f}"
            )
        elif event == "scored":
            console.say(f"{variant.name}: BLEU {figures['bleu']:.2f} on the validation set")
        else:
            self.runs[variant.name].tag({"outcome": event})
            cause = f" ({figures['cause']})" if figures.get("cause") else ""
            console.say(f"{variant.name}: {event}{cause}")

    def close(self, trials: list[dict[str, Any]]) -> None:
        """Store each trial's curve and scores, and end its run with a true status."""
        for trial in trials:
            run = self.runs.get(trial["name"])
            if run is None:
                continue
            run.log_many(
                [
                    (entry["time"], entry["step"], known(entry, CURVE_METRICS))
                    for entry in trial.pop("entries")
                    if entry["kind"] in ("logged", "validated")
                ]
            )
            scores = known(trial, ("bleu", "parameters", "flops", "wall_seconds"))
            run.log(scores, step=trial["steps"])
            if trial["signature"]:
                run.tag({"bleu.signature": trial["signature"]})
            if trial["cause"]:
                run.tag({"error": trial["cause"]})
            run.finish("FAILED" if trial["status"] == "failed" else "FINISHED")


def known(figures: dict[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """The named figures that are there and not null."""
    return {name: figures[name] for name in names if figures.get(name) is not None}


def describe(result: Any, vocabulary_size: int, run_ids: dict[str, str]) -> dict[str, Any]:
    """One entry of reports/sweep.json."""
    config: Config = result.variant.config
    entries, _ = journal.read(result.journal)
    values = configuration.to_dict(config)
    curve = {e["step"]: e["valid_loss"] for e in entries if e["kind"] == "validated"}
    perplexities = [e["valid_perplexity"] for e in entries if e["kind"] == "validated"]
    return {
        "name": result.variant.name,
        "changes": result.variant.changes,
        "model": values["model"],
        "train": values["train"],
        "status": result.status,
        "cause": result.cause,
        "steps": result.steps,
        "valid_perplexity": perplexities[-1] if perplexities else None,
        "bleu": result.metrics.get("bleu"),
        "signature": result.metrics.get("signature"),
        "parameters": flops.parameter_count(config.model, vocabulary_size),
        "flops": result.metrics.get("flops"),
        "wall_seconds": result.wall_seconds,
        "curve": sorted(curve.items()),
        "mlflow_run_id": run_ids.get(result.variant.name),
        "entries": entries,
    }


def summarise(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """metrics/sweep.json: counts, and the variant with the best BLEU on the validation set."""
    scored = [trial for trial in trials if trial["bleu"] is not None]
    best = max(scored, key=lambda trial: trial["bleu"], default=None)
    return {
        "trials": len(trials),
        "finished": sum(trial["status"] == "finished" for trial in trials),
        "stopped_early": sum(trial["status"] == "stopped early" for trial in trials),
        "failed": sum(trial["status"] == "failed" for trial in trials),
        "best": {key: best[key] for key in ("name", "bleu", "steps")} if best else None,
        "bleu": {trial["name"]: trial["bleu"] for trial in trials},
    }


if __name__ == "__main__":
    stage.run("sweep", "variants of the Transformer, on Ray Tune", work)
