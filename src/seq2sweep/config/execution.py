"""Typed sections of params.yaml: what is compared and measured, and where all of it runs."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from seq2sweep.config.fields import NOT_EMPTY, PATH, PLAIN, SEED, Rule, field, is_address, must
from seq2sweep.redaction import secrets_in

HOME = "runs"
"""Folder of the project for runs that train with a bucket, when they have ended."""
BUCKETS = ("s3", "gs")
LEAST_SHARE = 0.0001
"""Of a CPU or a GPU: Ray knows no smaller one."""
KEEPING_FAILURES = "table2", "optuna"
"""Methods of a sweep whose later trials follow from how those before ended: a failure stays one."""
SIZES: Rule = (
    "two or more whole numbers from 2 to 65536, each larger than the one before",
    lambda sizes: (
        len(sizes) > 1
        and sizes[0] >= 2
        and sizes[-1] <= 65536
        and all(first < second for first, second in itertools.pairwise(sizes))
    ),
)
"""An exponent needs two sizes at least."""
CENTRED: Rule = (
    "an odd number from 3 to 4095, so that it has a middle",
    lambda width: 3 <= width <= 4095 and width % 2 == 1,
)


def _is_all_or_some(names: tuple[str, ...]) -> bool:
    return 0 < len(names) == len(set(names)) and ("all" not in names or len(names) == 1)


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    method: Literal[
        "none", "table2", "table3", "one_at_a_time", "grid", "random", "optuna"
    ] = field(
        "none (trains no variants), table2 (other architectures), table3 (the paper's rows), "
        "one_at_a_time, grid (all combinations), random or optuna (which learns from the trials "
        "before)"
    )  # fmt: skip
    rows: tuple[str, ...] = field(
        "of table3: rows (A-heads-1), groups (base, A to E, big) or all; of table2: recurrent, "
        "convolutional, bytenet or all; sized to the base variant"
    )
    base: dict[str, Any] = field("dotted keys that differ from above in every trial", rule=PLAIN)
    space: dict[str, Any] = field(
        "dotted key: list of values, or {low:, high:, log:} for random and optuna", rule=PLAIN
    )
    learning_rates: tuple[float, ...] = field(
        "of table2: what each architecture tries as multiples of train.learning_rate_scale",
        rule=(
            "numbers above 0 that are not repeated",
            lambda rates: (
                0 < len(rates) == len(set(rates)) and all(0 < rate < math.inf for rate in rates)
            ),
        ),
        default=(0.5, 1.0, 2.0),
    )
    search_share: float = field(
        "of table2: share of each architecture's budget that is spent on these tries",
        rule=("in (0, 1)", lambda share: 0 < share < 1),
        default=0.25,
    )
    samples: int = field("variants drawn when method is random or optuna", at_least=1)
    seed: int = field("for random and optuna", at_least=0, rule=SEED)
    objectives: tuple[
        Literal["bleu", "bleu_paper", "chrf", "perplexity", "flops", "parameters", "f1"], ...
    ] = field(
        "what optuna looks for, one or several of bleu, bleu_paper, chrf, of trees f1 (high), "
        "perplexity, flops, parameters (low)"
    )
    round: int = field(
        "variants that optuna proposes together; it sees their metrics before the next", at_least=1
    )
    seeds: int = field(
        "trainings of each variant: with train.seed and the seeds after it", at_least=1
    )
    budget: Literal["steps", "tokens", "flops"] = field(
        "what is equal for all: their train.steps, or as many tokens or flops as the base variant"
    )
    scheduler: Literal["asha", "median", "none"] = field(
        "asha or median stop bad trials early; none runs all to the end"
    )
    grace_steps: int = field(
        "no trial is stopped before this step, nor before its warm-up has ended", at_least=1
    )
    reduction_factor: int = field("asha keeps one in this many at each rung", at_least=2)
    workers_per_trial: int = field("processes that train a trial together", at_least=1)
    cpus_per_trial: float = field(
        "CPUs each of them gets; how many trials run at once follows from the cluster",
        rule=(f"at least {LEAST_SHARE}", lambda cpus: cpus >= LEAST_SHARE),
    )
    gpus_per_trial: float = field(
        "GPUs each of them gets; a fraction lets several trials share one",
        at_least=0,
        rule=(
            f"0, or from {LEAST_SHARE} to 1: a worker trains on one GPU",
            lambda gpus: gpus == 0 or LEAST_SHARE <= gpus <= 1,
        ),
    )
    max_failures: int = field("times a failed trial is retried", at_least=0)

    def problems(self) -> Iterator[str]:
        if self.method in ("table2", "table3") and self.space:
            yield (
                f"sweep.space must be {{}} for sweep.method {self.method}, which varies what the "
                "rows of sweep.rows say"
            )
        if self.method == "table2":
            for key, wanted in (("budget", "flops"), ("scheduler", "none")):
                if (value := getattr(self, key)) != wanted:
                    rule = f"{wanted} for sweep.method table2, which trains all at equal cost"
                    yield must(f"sweep.{key}", rule, value)
        for key in ("cpus_per_trial", "gpus_per_trial"):
            value = getattr(self, key)
            if self.workers_per_trial > 1 and value != int(value):
                rule = "a whole number where sweep.workers_per_trial is above 1"
                yield must(f"sweep.{key}", rule, value)
        if self.method == "optuna":
            yield from self._problems_of_search()

    def _problems_of_search(self) -> Iterator[str]:
        objectives = self.objectives
        if not self.space:
            yield "sweep.space must name what sweep.method optuna may vary: it is {}"
        if not objectives:
            yield "sweep.objectives must name what sweep.method optuna looks for, such as [bleu]"
        if len(set(objectives)) < len(objectives):
            yield f"sweep.objectives names one twice: {', '.join(objectives)}"
        if len(objectives) > 1 and self.scheduler != "none":
            yield (
                f"sweep.scheduler must be none for several sweep.objectives, not {self.scheduler}: "
                "it stops trials by their perplexity alone"
            )
        if "flops" in objectives and self.budget == "flops":
            yield (
                "sweep.objectives names flops, which sweep.budget flops makes equal for all: leave "
                "it out, or set sweep.budget to steps or tokens"
            )


@dataclass(frozen=True)
class Table1Config:
    """Every key has a default: the sizes that the stage measures in some 20 seconds."""

    layers: tuple[
        Literal[
            "all",
            "self_attention",
            "restricted",
            "recurrent",
            "convolutional",
            "dilated",
            "separable",
            "multi_head",
            "multi_head_restricted",
            "lstm",
        ],
        ...,
    ] = field(
        "all, or some of the paper's self_attention, restricted, recurrent, convolutional, "
        "dilated, separable, and of the whole layers multi_head, multi_head_restricted, lstm",
        rule=("all, or one or more that are not repeated", _is_all_or_some),
        default=("all",),
    )
    lengths: tuple[int, ...] = field(
        "n: tokens of the one sentence", rule=SIZES, default=(32, 64, 128, 256, 512)
    )
    widths: tuple[int, ...] = field("d: numbers of a token", rule=SIZES, default=(64, 128, 256))
    kernel: int = field("k: width of the kernels of convolutions", rule=CENTRED, default=3)
    neighbourhood: int = field(
        "r: positions that restricted attention sees, its own among them",
        rule=CENTRED,
        default=31,
    )
    repeats: int = field(
        "timings of each, of which the median counts",
        rule=("from 3 to 1000", lambda repeats: 3 <= repeats <= 1000),
        default=5,
    )
    threads: int = field(
        "compute threads; with more than one, small layers wait for each other",
        rule=("from 1 to 1024", lambda threads: 1 <= threads <= 1024),
        default=1,
    )
    precision: Literal["float32", "bf16"] = field("of inputs and weights", default="float32")


@dataclass(frozen=True)
class AttentionConfig:
    """Every key has a default."""

    sentences: int = field(
        "test sentences on the page, reports/attention.html; 0: no page, and nothing is measured",
        rule=("from 0 to 100", lambda sentences: 0 <= sentences <= 100),
        default=8,
    )
    measured: int = field(
        "test sentences that each head is measured on, and left out of", at_least=1, default=200
    )
    alignments: str | None = field(
        "gold word alignments of the test set, a file inside data.folder with a line a sentence: "
        "0-0 1-2 3p4 (p: possible); null: none",
        rule=NOT_EMPTY,
        default=None,
    )


@dataclass(frozen=True)
class ClusterConfig:
    address: str | None = field("null starts Ray on this machine; else a running cluster's address")
    job_server: str | None = field(
        "http://host:8265 of a cluster: trainings and sweeps are jobs there; null: here"
    )
    job_environment: tuple[str, ...] = field(
        "names of environment variables that a job gets from here, such as [MLFLOW_TRACKING_URI]",
        rule=(
            "names of variables, without their values",
            lambda names: all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) for name in names),
        ),
    )
    workers: int = field("processes that train together", at_least=1)
    min_workers: int | None = field(
        "fewest to resume with while nodes are missing; null: all of them", at_least=1
    )
    cpus_per_worker: int | None = field("null divides the CPUs of this machine", at_least=1)
    gpus_per_worker: int = field(
        "0 trains on the CPU",
        at_least=0,
        rule=(
            "0 or 1: a worker trains on one GPU, and more GPUs want more workers",
            (0, 1).__contains__,
        ),
    )
    fsdp: bool = field(
        "shard weights, gradients and moments: for a model that does not fit a device"
    )
    storage: str = field(
        "folder of checkpoints, which all nodes see; or s3://bucket/prefix, gs://bucket/prefix",
        rule=PATH,
    )
    max_failures: int = field(
        "times in a row that workers restart without a new checkpoint", at_least=0
    )
    hang_seconds: int = field(
        "a worker that gets no update done for so long is restarted",
        at_least=10,
        rule=("at most 1000000000", lambda seconds: seconds <= 10**9),
    )

    @property
    def running_address(self) -> str | None:
        """Of the running cluster that is joined: `address`, else $RAY_ADDRESS, as in every job.

        None where a Ray is started here, which Ray calls `local`.
        """
        found = self.address or os.environ.get("RAY_ADDRESS")
        return None if found in ("", "local") else found

    @property
    def folder(self) -> str:
        """Where this machine has its runs: `storage`, or where they come home to from a bucket."""
        return HOME if is_address(self.storage) else self.storage

    def problems(self) -> Iterator[str]:
        """Addresses are not shown: they may hold a password."""
        if (self.min_workers or 1) > self.workers:
            rule = f"at most cluster.workers ({self.workers})"
            yield must("cluster.min_workers", rule, self.min_workers)
        if (server := self.job_server) is not None:
            if not is_address(server) or urlsplit(server).scheme not in ("http", "https"):
                yield "cluster.job_server must be as http://host:8265"
            if secrets_in(server):
                yield (
                    "cluster.job_server holds a user or password: put the cluster's token into "
                    "~/.ray/auth_token or $RAY_AUTH_TOKEN instead"
                )
        if "://" in self.storage:
            address = urlsplit(self.storage) if is_address(self.storage) else None
            if address is None or address.scheme not in BUCKETS or not address.hostname:
                yield "cluster.storage must be a folder, s3://bucket/prefix or gs://bucket/prefix"
            elif "@" in address.netloc or address.query or address.fragment:
                yield (
                    "cluster.storage must be no more than s3://bucket/prefix: what the bucket asks "
                    "for belongs into the environment of all nodes (AWS_ACCESS_KEY_ID, ...)"
                )


@dataclass(frozen=True)
class TrackingConfig:
    uri: str | None = field("null: $MLFLOW_TRACKING_URI, else mlflow.db in this folder")
    experiment: str = field(
        "name of the MLflow experiment",
        rule=(
            "a name of 1 to 500 characters",
            lambda name: bool(name.strip()) and len(name) <= 500,
        ),
    )
