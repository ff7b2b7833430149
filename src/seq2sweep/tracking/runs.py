"""Runs in MLflow: started, resumed, filled and always ended.

Each call names its run; nothing depends on a global "active run", so several processes and
threads can record side by side. Each run has one writer, and metrics are logged in synchronous
batches: MLflow's asynchronous logging loses points when several runs share a server.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time as now
from types import TracebackType
from typing import Any, Literal, Self

import psutil
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.tracking.store import (
    LONGEST_DIGEST,
    METRICS_PER_BATCH,
    STORE_ERRORS,
    clean_tags,
    finite,
    open_database,
    open_experiment,
    param_text,
    reason,
    redact,
    unusable,
)

# The clock may be set by a little while a run goes on; a process number is not used again so soon.
_SAME_START_SECONDS = 5.0

Status = Literal["FINISHED", "FAILED", "KILLED"]
Point = tuple[float, int, Mapping[str, float]]


def resolve_uri(config: TrackingConfig, project: Path) -> str:
    """Where runs are recorded: `tracking.uri`, else $MLFLOW_TRACKING_URI, else mlflow.db.

    A path in a sqlite address is made absolute from the `project` folder, since workers run in
    folders of their own. Raises UserError for an address that is neither database nor server.
    """
    if config.uri:
        uri, key = config.uri, "params.yaml: tracking.uri"
    else:
        uri, key = os.environ.get("MLFLOW_TRACKING_URI", ""), "environment: MLFLOW_TRACKING_URI"
    if not uri:
        return f"sqlite:///{project.resolve() / 'mlflow.db'}"
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme == "file":
        raise UserError(
            f"{key} must be a database or a server, such as sqlite:///mlflow.db or "
            f"http://host:5000, not {redact(uri)!r}"
        )
    if scheme == "sqlite" and rest.startswith("/"):
        return f"sqlite:///{project.resolve() / rest[1:]}"
    return uri


class Tracker:
    """One experiment in one MLflow store.

    Make one in the driver before any worker: it creates the store and the experiment.
    """

    def __init__(self, uri: str, experiment: str, artifacts: Path) -> None:
        """Open or create `experiment` at `uri` (as `resolve_uri` gives it).

        Files of runs go below the folder `artifacts`; a server (http) chooses their place itself.
        Raises UserError when the store cannot be used.
        """
        self.uri = uri
        remote = uri.startswith(("http://", "https://"))
        location = artifacts.resolve().as_uri()
        try:
            if not remote:
                open_database(uri, location)
            # The registry's address is given too, else MLflow opens a default one for it.
            self.client: Any = MlflowClient(tracking_uri=uri, registry_uri=uri)
            self.experiment_id = open_experiment(
                self.client, experiment, None if remote else location
            )
        except (*STORE_ERRORS, ImportError) as error:
            raise UserError(unusable(uri, error)) from None

    def start(
        self,
        name: str,
        *,
        kind: str,
        parent: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Run:
        """Start a run; with `parent` (a run's id) it is shown nested under that run.

        `kind` (train, sweep, trial, ...) becomes the tag of that name; `params` have dotted keys.
        """
        every_tag = {**(tags or {}), "kind": kind, **_this_process()}
        if parent is not None:
            every_tag["mlflow.parentRunId"] = parent
        created = self.client.create_run(
            self.experiment_id, tags=clean_tags(every_tag), run_name=name
        )
        run = Run(self.client, created.info.run_id, self.experiment_id)
        try:
            run.params(params or {})
        except BaseException:
            run.finish("FAILED")
            raise
        return run

    def resume(self, run_id: str) -> Run | None:
        """Set a run back to RUNNING and go on with it; None if this experiment has it no more."""
        try:
            found = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        if found.info.lifecycle_stage != "active" or found.info.experiment_id != self.experiment_id:
            return None
        run = Run(self.client, run_id, self.experiment_id)
        run.reported_non_finite = "non_finite" in found.data.tags
        self.client.update_run(run_id, status="RUNNING")
        run.tag(_this_process())
        for stale in ("error", "closed"):
            if stale in found.data.tags:
                self.client.delete_tag(run_id, stale)
        return run

    def close_dead_runs(self) -> list[str]:
        """Mark as KILLED the RUNNING runs whose process on this host is gone; their ids.

        A process killed without notice (SIGKILL, out of memory, power) cannot end its runs
        itself. Runs of other hosts, and runs that were not started here, are left alone.
        """
        dead = [run for run in self._running_here() if not _alive(run.data.tags)]
        for found in dead:
            process = found.data.tags["process.id"]
            run = Run(self.client, found.info.run_id, self.experiment_id)
            run.tag({"closed": f"its process {process} was gone without having ended the run"})
            run.finish("KILLED")
        return [found.info.run_id for found in dead]

    def _running_here(self) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                filter_string="attributes.status = 'RUNNING' and "
                f"tags.`process.host` = '{socket.gethostname()}'",
                run_view_type=ViewType.ACTIVE_ONLY,
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                return found


class Run:
    """A run that is being recorded. As a context manager it ends itself, however that comes.

    An exception ends it as FAILED with the tag `error`, KeyboardInterrupt and SystemExit (which
    stages raise on SIGTERM) as KILLED, anything else as FINISHED.
    """

    def __init__(self, client: Any, run_id: str, experiment_id: str) -> None:
        self.client = client
        self.id = run_id
        self.experiment_id = experiment_id
        self.reported_non_finite = False
        self._ended = False

    def params(self, values: Mapping[str, Any]) -> None:
        """Record parameters. The same value again is fine, another value for a key raises."""
        entities = [Param(key, param_text(value)) for key, value in values.items()]
        self.client.log_batch(self.id, params=entities, synchronous=True)

    def log(self, metrics: Mapping[str, float], step: int, time: float | None = None) -> None:
        """Record numbers at a step; `time` in unix seconds, now unless given."""
        self.log_many([(now() if time is None else time, step, metrics)])

    def log_many(self, points: Sequence[Point]) -> None:
        """Record (unix seconds, step, metrics) points in few requests.

        A point is never split between two requests. The same point twice is stored once. What
        is not finite is left out, and the tag `non_finite` names the first such number: MLflow
        would store infinity as the largest float, and hides a chart whose newest value is NaN.
        """
        batch: list[Any] = []
        strange = None
        for seconds, step, metrics in points:
            entities = []
            for key, value in metrics.items():
                if finite(key, value):
                    entities.append(Metric(key, float(value), round(seconds * 1000), step))
                else:
                    strange = strange or f"{key} at step {step}"
            if batch and len(batch) + len(entities) > METRICS_PER_BATCH:
                self.client.log_batch(self.id, metrics=batch, synchronous=True)
                batch = []
            batch += entities
        if batch:
            self.client.log_batch(self.id, metrics=batch, synchronous=True)
        if strange is not None and not self.reported_non_finite:
            self.tag({"non_finite": strange})
            self.reported_non_finite = True

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags. Passwords in addresses are masked, long values cut with a note."""
        entities = [RunTag(key, value) for key, value in clean_tags(tags).items()]
        self.client.log_batch(self.id, tags=entities, synchronous=True)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a folder with the run, inside its artifact `folder` if given."""
        self.client.log_artifact(self.id, str(path), folder)

    def dataset(self, name: str, digest: str, context: str | None = None) -> None:
        """Name the data this run used; `digest` (cut to 36 characters) tells versions apart."""
        # "code" is the source type of data that MLflow itself cannot load.
        dataset = Dataset(name, digest[:LONGEST_DIGEST], "code", json.dumps({"tags": {}}))
        tags = [InputTag("mlflow.data.context", context)] if context else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(dataset, tags)])

    def last_step(self, metrics: Sequence[str]) -> int | None:
        """The newest step at which any of these metrics is recorded, or None."""
        steps = [
            entry.step for key in metrics for entry in self.client.get_metric_history(self.id, key)
        ]
        return max(steps, default=None)

    def finish(self, status: Status = "FINISHED") -> None:
        """End the run; a second call changes nothing."""
        if not self._ended:
            self.client.set_terminated(self.id, status)
            self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
            return
        try:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                self.finish("KILLED")
            else:
                ended_before = self._ended
                self.finish("FAILED")
                if not ended_before:
                    self.tag({"error": " ".join(f"{type(error).__name__}: {error}".split())})
        except STORE_ERRORS as failure:
            # The first error is what matters; the next start closes this run.
            error.add_note(f"the MLflow run {self.id} could not be ended: {reason(failure)}")


# --- processes ---------------------------------------------------------------------------------


def _this_process() -> dict[str, str]:
    process = psutil.Process()
    return {
        "process.host": socket.gethostname(),
        "process.id": str(process.pid),
        "process.started": f"{process.create_time():.2f}",
    }


def _alive(tags: Mapping[str, str]) -> bool:
    """Whether the process of these tags still lives on this host.

    A number alone would not do, the system uses it again: the start time must agree as well.
    """
    try:
        process = psutil.Process(int(tags["process.id"]))
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        started = float(process.create_time())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return abs(started - float(tags["process.started"])) < _SAME_START_SECONDS
