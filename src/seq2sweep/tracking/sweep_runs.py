"""The runs of a sweep's variants and of their seeds in MLflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from seq2sweep import console, hardware
from seq2sweep.config import Config, SweepConfig
from seq2sweep.config.scores import SCORES, Score
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.report.aggregate import estimate
from seq2sweep.report.markdown import markdown_table
from seq2sweep.report.pareto import overview
from seq2sweep.runs import pass_size
from seq2sweep.runs.run_store import Status
from seq2sweep.sweep.trial_record import INTERRUPTED
from seq2sweep.sweep.variants import Variant
from seq2sweep.tracking.lineage import (
    LINEAGE,
    TOKENS_PER_PASS,
    UNKNOWN,
    dataset_name,
    document,
    made_by,
    of_several,
    origin_tags,
    other_tags,
    parameters,
    tags,
)
from seq2sweep.tracking.recorder import (
    COST,
    CURVES,
    SCORE,
    TRAIN,
    Recorder,
    clean_params,
    named,
    present,
)

COSTS = ("target_tokens", "wall_seconds", *hardware.COSTS)
_TOLD = (SCORE, f"{COST}flops", f"{COST}parameters", f"{COST}device_hours", f"{TRAIN}valid_")
STATUSES: tuple[Status, ...] = ("interrupted", "finished", "stopped early", "failed")
"""The first of these that a seed ended with is how the variant did."""
OTHER_FILES = 256
"""For what the process of a sweep opens beside its records: connections of Ray, data, logs."""


def require_files(sweep: SweepConfig, chosen: Sequence[Variant]) -> None:
    """Let this process open a file for each run of a sweep, which `Recorder` holds until its end.

    chosen: what is trained; of method optuna the base alone. Raises UserError where the process may
    not, before any trial is trained.
    """
    trials, runs = len(chosen), len({name for one in chosen for name in (one.name, one.variant)})
    if sweep.method == "optuna":
        trials += sweep.samples * sweep.seeds
        runs += sweep.samples * (sweep.seeds + (sweep.seeds > 1))
    if (most := hardware.may_open(needed := runs + OTHER_FILES)) < needed:
        raise UserError(
            f"the sweep's {trials:,} trials need {needed:,} open files, and this process may have "
            f"{most:,} (`ulimit -Hn`): raise that limit (LimitNOFILE of systemd, also of Slurm's "
            "slurmd), or train fewer variants or seeds"
        )


@dataclass
class Ended:
    """How a trial ended, the metrics that its run shows, and the size of a pass that it had."""

    status: Status
    metrics: dict[str, float]
    cause: str | None
    tokens_per_pass: int | str
    scores: dict[str, float] = field(default_factory=dict)


class SweepRecorder:
    """A run under the sweep's for each variant, and under it one for each seed where there are
    several; and console lines.

    A trial's run has its costs and curves as soon as it ends, as a sweep may take days and scores
    come last. Costs begin with FLOPs: the metric that came first is the one that MLflow's page of
    comparisons opens with.
    """

    def __init__(self, parent: Recorder, lineage: dict[str, str], header: dict[str, Any]) -> None:
        """lineage: of the sweep; header: of the encoded data."""
        self.parent, self.lineage, self.header = parent, lineage, header
        self.vocabulary_size = int(header["vocabulary"]["size"])
        self.variants: dict[str, VariantRun] = {}
        self.runs: dict[str, Recorder] = {}
        self.lineages: dict[str, dict[str, str]] = {}
        self.ended: dict[str, Ended] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End what has no end yet; scores may come after a trial's end."""
        for run in self.runs.values():
            run.__exit__(kind, error, traceback)
        for variant in self.variants.values():
            variant.log()
            variant.run.__exit__(kind, error, traceback)

    def hear(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        """What run_sweep tells of a trial; see seq2sweep.cluster.tune_runner.run_sweep."""
        if event == "started" or variant.name not in self.runs:
            self._start(variant, figures)
        if event == "started":
            line = "started" + (" (trained before)" if figures["done_before"] else "")
        elif event == "result":
            line = (
                f"step {figures['step']}/{variant.config.train.steps}  "
                f"valid perplexity {console.perplexity(figures['valid_perplexity'])}"
            )
        elif event == "scored":
            self._score(variant, figures)
            score = SCORES[variant.config.data.score]
            line = f"{score.label} {figures[score.name]:.2f} on the validation set"
        else:
            self._end(event, variant, figures)
            if figures.get("fitting_tokens", math.inf) < figures.get("tokens_per_pass", 0):
                console.say(f"{variant.name}: {pass_size.in_words(figures)}")
            line = event + (f" ({figures['cause']})" if figures["cause"] else "")
        console.say(f"{variant.name}: {line}")

    def tell_sharing(self, shared: Mapping[str, bool | None]) -> None:
        """Mark the device-hours of trials by name; see seq2sweep.report.sweep_report.sharing."""
        for name, known in shared.items():
            if known is not None:
                self.runs[name].tag({"run.shared_device": str(known).lower()})

    def variant_run(self, name: str) -> Recorder:
        """The run that is compared with those of other variants."""
        return self.variants[name].run if name in self.variants else self.runs[name]

    def _start(self, variant: Variant, figures: Mapping[str, Any]) -> None:
        config, root = variant.config, self.parent.folder.parent
        known = variant_tags(variant)
        # One that an earlier sweep trained has its code, libraries and machine.
        lineage = self._as_trained(figures) if figures.get("done_before") else self.lineage
        self.lineages[variant.name] = lineage
        params = parameters(config, "model", "train")
        params.pop(TOKENS_PER_PASS, None)  # an earlier sweep may have trained it with another
        params |= variant.changes
        # A try of Table 2 has one seed, however many the sweep has.
        above, several = self.parent.name, variant.name != variant.variant
        if several:
            if variant.variant not in self.variants:
                own = {key: value for key, value in params.items() if key != "train.seed"}
                about: dict[str, Any] = {"kind": "variant", "parent": above, "to": self.parent.to}
                run = Recorder(root, variant.variant, params=own, tags=known, **about)
                self.use_data(run, config)
                self.variants[variant.variant] = VariantRun(run, variant)
            self.variants[variant.variant].come_from(variant.seed, lineage)
            above = self.variants[variant.variant].run.name
        run = Recorder(
            root,
            variant.name,
            kind="trial" if several else "variant" if variant.scored else "try",
            parent=above,
            params=params,
            tags=known | tags(lineage) | {"seed": str(variant.seed)},
            to=self.parent.to,
        )
        self.runs[variant.name] = run
        self.use_data(run, config)

    def _as_trained(self, figures: Mapping[str, Any]) -> dict[str, str]:
        """The lineage with what trained a trial, as its event says, where that is known."""
        unknown = dict.fromkeys(made_by(self.lineage), UNKNOWN)
        return self.lineage | (figures.get("made_by") or unknown)

    def use_data(self, run: Recorder, config: Config) -> None:
        """Name the splits of the data that a run trains on and is scored on."""
        for split, context in (("train", "train"), ("valid", "eval")):
            run.dataset(dataset_name(config.data, split), self.header["fingerprint"], context)

    def _end(self, ended: str, variant: Variant, figures: dict[str, Any]) -> None:
        """End the run with a true status at a true time."""
        run, cause = self.runs[variant.name], figures["cause"]
        status = "interrupted" if cause == INTERRUPTED else cast(Status, ended)
        cost = present(figures, ("flops", *COSTS))
        cost["parameters"] = flops.parameter_count(variant.config.model, self.vocabulary_size)
        curves = {key: name for names in CURVES.values() for key, name in names.items()}
        newest = {curves[key]: value for key, value in present(figures, curves).items()}
        shown = named(COST, cost) | newest
        trained = variant.trained_with(figures.get("tokens_per_pass")).config
        tokens = figures.get("tokens_per_pass", trained.train.tokens_per_pass)
        trial = Ended(status, shown, cause, tokens)
        self.ended[variant.name] = trial
        nodes = figures["nodes"]
        begun = self.lineages[variant.name]
        lineage = self._as_trained(figures) if "made_by" in figures else begun
        if lineage != begun:  # it resumed, and was stopped again before it trained further
            self.lineages[variant.name] = lineage
            run.tag(other_tags(lineage))
        more = origin_tags(figures) | ({"nodes": " ".join(nodes)} if nodes else {})
        run.text(LINEAGE, document(lineage, trained, more))
        if tokens != "auto":
            run.params({TOKENS_PER_PASS: tokens})
        run.log(named(COST, cost))
        run.curves(Path(figures["journal"]), until=figures.get("step"))
        run.tag({"outcome": status})
        run.describe(described(variant, shown))
        run.finish(status, cause)
        if variant.variant in self.variants:
            self.variants[variant.variant].come_from(variant.seed, lineage)
            self.variants[variant.variant].end(variant.seed, trial)

    def _score(self, variant: Variant, figures: dict[str, Any]) -> None:
        score = SCORES[variant.config.data.score]
        found = present(figures, score.metrics)
        scores = named(SCORE, {f"valid_{name}": value for name, value in found.items()})
        scores |= head_metrics(figures.get("heads"))
        for run in {self.runs[variant.name], self.variant_run(variant.variant)}:
            run.tag({f"{score.name}.signature": figures["signature"]})
        run, trial = self.runs[variant.name], self.ended[variant.name]
        run.log(scores)
        trial.scores = scores
        run.describe(described(variant, scores | trial.metrics))
        if variant.variant in self.variants:
            self.variants[variant.variant].scored()


class VariantRun:
    """The run of a variant: of each metric of its seeds' runs the mean and the deviation, and of
    how many seeds they are where it is not of all."""

    def __init__(self, run: Recorder, variant: Variant) -> None:
        self.run, self.variant, self.seeds = run, variant, variant.config.sweep.seeds
        self.ended: dict[int, Ended] = {}
        self.lineages: dict[int, dict[str, str]] = {}
        self.logged = False

    def come_from(self, seed: int, lineage: dict[str, str]) -> None:
        """A seed has begun, or ended; lineage: of its run, maybe another than that of the seeds
        before it."""
        before = of_several(self.lineages.values())
        self.lineages[seed] = lineage
        whole = of_several(self.lineages.values())
        if whole != before:
            self.run.tag(other_tags(whole))
            self.run.text(LINEAGE, document(whole, self.variant.config, without=["train.seed"]))

    def end(self, seed: int, ended: Ended) -> None:
        """A seed has ended; with the last one the variant has."""
        self.ended[seed] = ended
        if len(self.ended) < self.seeds:
            return
        statuses = {trial.status for trial in self.ended.values()}
        status = next(status for status in STATUSES if status in statuses)
        tokens = {trial.tokens_per_pass for trial in self.ended.values()}
        if len(tokens) == 1 and tokens != {"auto"}:
            self.run.params({TOKENS_PER_PASS: tokens.pop()})
        self.run.tag({"outcome": status})
        causes = [f"seed={n}: {trial.cause}" for n, trial in self.ended.items() if trial.cause]
        self.run.finish(status, "; ".join(causes) or None)

    def scored(self) -> None:
        """A seed has its scores; with the last one the variant has."""
        measured = self._measured()
        if all(trial.scores for trial in measured):
            self.log()

    def log(self) -> None:
        """Record what is known of scores, then the rest, once; some seeds may have no scores."""
        if not self.logged and len(self.ended) == self.seeds:
            self.logged, measured = True, self._measured()
            pooled = self._pool([trial.scores for trial in measured])
            pooled |= self._pool([trial.metrics for trial in measured])
            self.run.describe(described(self.variant, pooled))

    def _measured(self) -> list[Ended]:
        """Whose metrics are compared, as in the report: of the finished ones, if there are any."""
        for status in ("finished", "stopped early"):
            found = [trial for trial in self.ended.values() if trial.status == status]
            if found:
                return found
        return []

    def _pool(self, trials: list[dict[str, float]]) -> dict[str, float]:
        pooled: dict[str, float] = {}
        for name in dict.fromkeys(name for metrics in trials for name in metrics):
            known = [metrics[name] for metrics in trials if name in metrics]
            if values := [value for value in known if math.isfinite(value)]:
                found = estimate(values)
                pooled[name] = found.mean
                if found.deviation is not None:
                    pooled[f"{name}_std"] = found.deviation
                if found.n < self.seeds:
                    pooled[f"{name}_n"] = found.n
        if pooled:
            self.run.log(pooled)
        return pooled


def described(variant: Variant, metrics: Mapping[str, float]) -> str:
    """A variant in Markdown, as MLflow shows it. metrics: as they are recorded."""
    changes = ", ".join(f"`{key}` = {value}" for key, value in variant.changes.items())
    table = [(key, f"{value:,.4g}") for key, value in metrics.items() if key.startswith(_TOLD)]
    what = f"A variant of the sweep's base: {changes}." if changes else "The base of the sweep."
    if not variant.scored:
        what = f"A try of a learning rate, {variant.name}."
    origin = "Where it comes from: [lineage.json](RUN_PAGE/artifacts/lineage.json)."
    return "\n".join([f"{what} {origin}", "", *markdown_table(("what", "value"), table)])


def described_sweep(report: Mapping[str, Any], data: str, view: str) -> str:
    """A sweep in Markdown, as MLflow shows it.

    report: as in reports/sweep.json; data: what is translated, in words; view: the title of that of
    its variants.
    """
    return "\n".join(
        [
            f"Variants of the model on {data}, trained and scored alike on the validation set; the "
            f"view *{view}* compares them. [All figures](RUN_PAGE/artifacts/table3.html) · "
            "[lineage](RUN_PAGE/artifacts/lineage.json)",
            "",
            *markdown_table(*overview(report)),
        ]
    )


def compared(score: Score, varied: Sequence[str]) -> dict[str, Any]:
    """How MLflow's page of runs shows variants: best score first, and drawn over what they cost and
    over what varies. For `Recorder.view`.

    varied: dotted keys of params.yaml. The page draws the other metrics below. Each key has a chart
    of its own behind that of all keys: MLflow may not take so many, and the last are left out.
    """
    best, flops = f"{SCORE}valid_{score.name}", f"{COST}flops"
    section = {"uuid": "compared", "name": f"{score.label} (dev), and what it costs"}
    over = [(flops, "METRIC"), (f"{COST}parameters", "METRIC"), *((key, "PARAM") for key in varied)]
    charts: list[dict[str, Any]] = [
        {
            "type": "SCATTER",
            "xaxis": {"key": key, "type": kind},
            "yaxis": {"key": best, "type": "METRIC"},
        }
        for key, kind in over
    ]
    charts.insert(1, {"type": "BAR", "metricKey": best})
    axes = {"selectedParams": [*varied], "selectedMetrics": [flops, best]}
    charts.insert(3, {"type": "PARALLEL", "showAllRuns": True, **axes})
    more = {"metricSectionId": "compared", "runsCountToCompare": 100, "deleted": False}
    columns = [f"metrics.`{name}`" for name in (best, flops, f"{COST}parameters")]
    columns += ["tags.`pareto_front`", *(f"params.`{key}`" for key in varied)]
    columns += [f"metrics.`{TRAIN}valid_perplexity`", f"metrics.`{COST}device_hours`"]
    columns += ["attributes.`Models`", "attributes.`Source`"]
    return {
        "orderByKey": f"metrics.`{best}`",
        "orderByAsc": False,
        "selectedColumns": columns,
        "columnOrder": columns,
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "compareRunSections": [section | {"display": True, "isReordered": True}],
        "compareRunCharts": [
            {"uuid": f"compared-{i}", "isGenerated": False, **more, **chart}
            for i, chart in enumerate(charts)
        ],
    }


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


def head_metrics(found: Mapping[str, Any] | None) -> dict[str, float]:
    """What `evaluate.attention.head_numbers.summary` says, as MLflow shows it."""
    names = ("cross_attention_entropy", "positional", "loss_without", "removable")
    return {f"heads/{name}": value for name, value in present(found or {}, names).items()}


def budget(sweep: SweepConfig, steps: int) -> str:
    """What a training may take, in words."""
    return f"{steps} steps" if sweep.budget == "steps" else f"{sweep.budget} of base"
