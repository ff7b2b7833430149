"""The runs of a sweep's variants and of their seeds in MLflow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from seq2sweep import config as configuration
from seq2sweep import console, hardware
from seq2sweep.config import SweepConfig
from seq2sweep.config.scores import SCORES
from seq2sweep.model import flops
from seq2sweep.report.aggregate import estimate
from seq2sweep.runs.run_store import Status
from seq2sweep.sweep.trial_record import INTERRUPTED
from seq2sweep.sweep.variants import Variant
from seq2sweep.tracking.lineage import dataset_name, origin_tags, with_params
from seq2sweep.tracking.recorder import CURVES, Recorder, clean_params

CHANGES_NO_RESULT = "what is recorded of a result"

COST = ("target_tokens", "wall_seconds", *hardware.COSTS)
STATUSES: tuple[Status, ...] = ("interrupted", "finished", "stopped early", "failed")
"""The first of these that a seed ended with is how the variant did."""


@dataclass
class Ended:
    """How a trial ended, and the metrics that its run shows."""

    status: Status
    step: int
    metrics: dict[str, float]
    cause: str | None
    scores: dict[str, float] = field(default_factory=dict)


class SweepRecorder:
    """A run under the sweep's for each variant, under it one for each seed; and console lines."""

    def __init__(self, parent: Recorder, lineage: dict[str, str], header: dict[str, Any]) -> None:
        """lineage: of the sweep; header: of the encoded data."""
        self.parent, self.lineage, self.header = parent, lineage, header
        self.vocabulary_size = int(header["vocabulary"]["size"])
        self.variants: dict[str, VariantRun] = {}
        self.runs: dict[str, Recorder] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what has no end yet; scores may come after a trial's end."""
        for run in self.runs.values():
            run.__exit__(kind, error, traceback)
        for variant in self.variants.values():
            variant.log_scores()
            variant.run.__exit__(kind, error, traceback)

    def hear(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        """What run_sweep tells of a trial; see seq2sweep.cluster.tune_runner.run_sweep."""
        if event == "started" or variant.name not in self.runs:
            self._start(variant)
        if event == "started":
            line = "started" + (" (trained before)" if figures["done_before"] else "")
        elif event == "result":
            line = (
                f"step {figures['step']}/{variant.config.train.steps}  "
                f"valid perplexity {figures['valid_perplexity']:.2f}"
            )
        elif event == "scored":
            self._score(variant, figures)
            score = SCORES[variant.config.data.score]
            line = f"{score.label} {figures[score.name]:.2f} on the validation set"
        else:
            self._end(event, variant, figures)
            line = event + (f" ({figures['cause']})" if figures["cause"] else "")
        console.say(f"{variant.name}: {line}")

    def tell_sharing(self, shared: Mapping[str, bool | None]) -> None:
        """Mark the device-hours of trials by name; see seq2sweep.report.sweep_report.sharing."""
        for name, known in shared.items():
            if known is not None:
                self.runs[name].tag({"run.shared_device": str(known).lower()})

    def _start(self, variant: Variant) -> None:
        config, tags = variant.config, variant_tags(variant)
        params = configuration.flatten(config)
        if variant.variant not in self.variants:
            run = Recorder(
                self.parent.folder.parent,
                variant.variant,
                kind="variant",
                parent=self.parent.name,
                params={key: value for key, value in params.items() if key != "train.seed"},
                tags=with_params(self.lineage, config, without=["train.seed"]) | tags,
            )
            self.variants[variant.variant] = VariantRun(run, config.sweep.seeds)
        run = Recorder(
            self.parent.folder.parent,
            f"{variant.variant} seed={variant.seed}",
            kind="trial",
            parent=self.variants[variant.variant].run.name,
            params=params,
            tags=with_params(self.lineage, config) | tags | {"seed": str(variant.seed)},
        )
        self.runs[variant.name] = run
        run.dataset(dataset_name(config.data, "train"), self.header["fingerprint"], "train")

    def _end(self, ended: str, variant: Variant, figures: dict[str, Any]) -> None:
        """Store the curve and the cost, and end the run with a true status at a true time."""
        run, cause = self.runs[variant.name], figures["cause"]
        status = "interrupted" if cause == INTERRUPTED else cast(Status, ended)
        run.curves(Path(figures["journal"]))
        cost = known(figures, COST)
        cost["parameters"] = flops.parameter_count(variant.config.model, self.vocabulary_size)
        step = int(figures.get("step", 0))
        run.log(cost, step=step)
        nodes = {"nodes": " ".join(figures["nodes"])} if figures["nodes"] else {}
        run.tag({"outcome": status} | nodes | origin_tags(figures))
        run.finish(status, cause)
        shown = known(figures, tuple(name for names in CURVES.values() for name in names)) | cost
        self.variants[variant.variant].end(variant.seed, Ended(status, step, shown, cause))

    def _score(self, variant: Variant, figures: dict[str, Any]) -> None:
        score = SCORES[variant.config.data.score]
        found = known(figures, tuple(score.metrics))
        scores = {f"valid_{name}": value for name, value in found.items()}
        run, parent = self.runs[variant.name], self.variants[variant.variant]
        for each in (run, parent.run):
            each.tag({f"{score.name}.signature": figures["signature"]})
        run.log(scores, step=parent.ended[variant.seed].step)
        parent.score(variant.seed, scores)


class VariantRun:
    """The run of a variant: of each metric of its seeds' runs the mean and the deviation."""

    def __init__(self, run: Recorder, seeds: int) -> None:
        self.run, self.seeds = run, seeds
        self.ended: dict[int, Ended] = {}
        self.scores_logged = False

    def end(self, seed: int, ended: Ended) -> None:
        """A seed has ended; with the last one the variant has."""
        self.ended[seed] = ended
        if len(self.ended) < self.seeds:
            return
        self._log([trial.metrics for trial in self._measured()])
        statuses = {trial.status for trial in self.ended.values()}
        status = next(status for status in STATUSES if status in statuses)
        self.run.tag({"outcome": status})
        causes = [f"seed={n}: {trial.cause}" for n, trial in self.ended.items() if trial.cause]
        self.run.finish(status, "; ".join(causes) or None)

    def score(self, seed: int, scores: dict[str, float]) -> None:
        """A seed has its scores; with the last one the variant has."""
        self.ended[seed].scores = scores
        if all(trial.scores for trial in self._measured()):
            self.log_scores()

    def log_scores(self) -> None:
        """Record what is known of them, once; some may have none."""
        scores = [trial.scores for trial in self._measured() if trial.scores]
        if scores and not self.scores_logged:
            self._log(scores)
            self.scores_logged = True

    def _measured(self) -> list[Ended]:
        """Whose metrics are compared, as in the report: of the finished ones, if there are any."""
        for status in ("finished", "stopped early"):
            found = [trial for trial in self.ended.values() if trial.status == status]
            if found:
                return found
        return []

    def _log(self, trials: list[dict[str, float]]) -> None:
        pooled: dict[str, float] = {}
        for name in dict.fromkeys(name for metrics in trials for name in metrics):
            values = [metrics[name] for metrics in trials if name in metrics]
            if all(map(math.isfinite, values)):
                found = estimate(values)
                pooled[name] = found.mean
                if found.deviation is not None:
                    pooled[f"{name}_std"] = found.deviation
        if pooled:
            self.run.log(pooled, step=max(trial.step for trial in self._measured()))


def variant_tags(variant: Variant) -> dict[str, str]:
    """What tells variants apart in MLflow; what is the base's is left out."""
    row, sweep = variant.row, variant.config.sweep
    changes = clean_params(variant.changes)
    tags = {
        "variant": variant.variant,
        "row": row.name if row else "",
        "group": row.group if row else "",
        "changes": " ".join(f"{key}={value}" for key, value in changes.items()),
        "changed": " ".join(sorted(changes)),
        "budget": budget(sweep, variant.config.train.steps),
        "method": sweep.method,
    }
    return {key: value for key, value in tags.items() if value}


def budget(sweep: SweepConfig, steps: int) -> str:
    """What a training may take, in words."""
    return f"{steps} steps" if sweep.budget == "steps" else f"{sweep.budget} of base"


def known(figures: dict[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """The named figures that are there and not null."""
    return {name: figures[name] for name in names if figures.get(name) is not None}
