"""Train the variants of the `sweep` section with Ray Tune and score each on the validation set.

Writes reports/sweep.json and metrics/sweep.json; in MLflow a parent run with a child a variant.
Variants that are trained already (in `cluster.storage`) are not trained again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from pipeline import stage, tracking
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster.record import TrialResult
from seq2sweep.cluster.search import INTERRUPTED, run_sweep, variants
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.variants import Variant
from seq2sweep.config import Config
from seq2sweep.data.bitext import read_training_header
from seq2sweep.evaluate.evaluation import score_checkpoint
from seq2sweep.model import flops
from seq2sweep.tracking.follow import JournalFollower
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.tracking.store import STORE_ERRORS, reason
from seq2sweep.train import devices, journal


def work(config: Config) -> None:
    project = Path.cwd()
    header = read_training_header(stage.ENCODED)
    chosen = variants(config)
    console.say(f"{len(chosen)} variants: {', '.join(variant.name for variant in chosen)}")
    started = time.perf_counter()
    tracker = tracking.open_tracker(config)
    lineage = tracking.lineage(config, header)
    with tracker.start(
        f"sweep {config.sweep.method}",
        kind="sweep",
        params=tracking.logged_params(chosen[0].config) | configuration.flatten(config, "sweep"),
        tags=lineage,
    ) as parent:
        tracking.name_dataset(parent, config, header, "train")
        recorder = Recorder(parent, tracker, lineage, header)
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
                scorer=stage.code_fingerprint(stage.SCORING_CODE),
                on_trial=recorder.hear,
            )
        vocabulary_size = recorder.vocabulary_size
        run_ids = {name: run.id for name, run in recorder.runs.items()}
        trials = [describe(result, vocabulary_size, run_ids) for result in results]
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
            parent.log({"valid_bleu": summary["best"]["bleu"]}, step=summary["best"]["steps"])
            parent.tag({"best": summary["best"]["name"]})
    best = summary["best"]
    console.say(
        f"{summary['finished']} finished, {summary['stopped_early']} stopped early, "
        f"{summary['failed']} failed in {console.duration(seconds)}"
        + (f"; best: {best['name']}, BLEU {best['bleu']:.2f} on valid" if best else "")
    )
    ended = [result.metrics for result in results if "device" in result.metrics]
    warnings = {devices.no_peak_warning(m["device"], m["precision"]) for m in ended}
    for warning in sorted(warning for warning in warnings if warning):
        console.say(warning)


def sweep_name(header: dict[str, Any]) -> str:
    """Folder of all variants trained on this data with this code; each has its own inside."""
    identity = [
        header["fingerprint"],
        header["vocabulary"]["fingerprint"],
        stage.code_fingerprint(stage.TRIAL_CODE),
    ]
    return f"sweep-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]}"


class Recorder:
    """A child run in MLflow for each trial, and a console line for what happens to it."""

    def __init__(
        self, parent: Run, tracker: Tracker, lineage: dict[str, str], header: dict[str, Any]
    ) -> None:
        self.parent, self.tracker, self.lineage, self.header = parent, tracker, lineage, header
        self.vocabulary_size = int(header["vocabulary"]["size"])
        self.runs: dict[str, Run] = {}
        self.steps: dict[str, int] = {}

    def hear(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        """What run_sweep tells of a trial; see seq2sweep.cluster.search.run_sweep.

        A tracking server that fails costs the sweep nothing but what it would have recorded.
        """
        try:
            self._hear(event, variant, figures)
        except STORE_ERRORS as error:
            console.say(f"{variant.name}: {event}, not recorded by MLflow ({reason(error)})")

    def _hear(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        if event != "started" and variant.name not in self.runs:
            self._start(variant)
        if event == "started":
            self._start(variant)
            done = " (trained before)" if figures["done_before"] else ""
            console.say(f"{variant.name}: started{done}")
        elif event == "result":
            console.say(
                f"{variant.name}: step {figures['step']}/{variant.config.train.steps}  "
                f"valid perplexity {figures['valid_perplexity']:.2f}"
            )
        elif event == "scored":
            run = self.runs[variant.name]
            run.log({"valid_bleu": figures["bleu"]}, step=self.steps[variant.name])
            run.tag({"bleu.signature": figures["signature"]})
            console.say(f"{variant.name}: BLEU {figures['bleu']:.2f} on the validation set")
        else:
            self._end(event, variant, figures)
            cause = f" ({figures['cause']})" if figures["cause"] else ""
            console.say(f"{variant.name}: {event}{cause}")

    def _start(self, variant: Variant) -> None:
        run = self.tracker.start(
            variant.name,
            kind="trial",
            parent=self.parent.id,
            params=tracking.logged_params(variant.config),
            tags=self.lineage | {"variant": variant.name},
        )
        self.runs[variant.name] = run
        tracking.name_dataset(run, variant.config, self.header, "train")

    def _end(self, outcome: str, variant: Variant, figures: dict[str, Any]) -> None:
        """Store the curve and the cost, and end the run with a true status at a true time."""
        run = self.runs[variant.name]
        JournalFollower(run, functools.partial(journal.read, Path(figures["journal"]))).close()
        cost = known(figures, ("target_tokens", "wall_seconds", *devices.COSTS))
        cost["parameters"] = flops.parameter_count(variant.config.model, self.vocabulary_size)
        self.steps[variant.name] = int(figures.get("step", 0))
        run.log(cost, step=self.steps[variant.name])
        run.tag({"outcome": outcome} | ({"error": figures["cause"]} if figures["cause"] else {}))
        if figures["cause"] == INTERRUPTED:
            run.finish("KILLED")
        else:
            run.finish("FAILED" if outcome == "failed" else "FINISHED")


def known(figures: dict[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """The named figures that are there and not null."""
    return {name: figures[name] for name in names if figures.get(name) is not None}


def describe(result: TrialResult, vocabulary_size: int, run_ids: dict[str, str]) -> dict[str, Any]:
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
        "mfu": result.metrics.get("mfu"),
        "device_hours": result.metrics.get("device_hours"),
        "energy_kwh": result.metrics.get("energy_kwh"),
        "wall_seconds": result.wall_seconds,
        "curve": sorted(curve.items()),
        "mlflow_run_id": run_ids.get(result.variant.name),
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
