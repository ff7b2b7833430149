"""Runs in MLflow: found or made, filled and ended.

Every call may be repeated without a second effect, since whoever delivers may die between MLflow's
answer and the note of it. Each call names its run; nothing depends on a global "active run".
Metrics go in synchronous batches: MLflow's asynchronous logging loses points when several runs
share a server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag, ViewType

from seq2sweep.errors import UserError
from seq2sweep.tracking.curves import Point
from seq2sweep.tracking.store import STORE_ERRORS, open_database, open_experiment, unusable
from seq2sweep.tracking.values import LONGEST_DIGEST, clean_tags, finite, param_text

KEY = "seq2sweep.key"
"""The tag by which a run is found again: its outbox's name, a dot and what makes it unique."""

METRICS_PER_BATCH = 1000


class Tracker:
    """One experiment in one MLflow store."""

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

    def begin(
        self,
        key: str,
        title: str,
        *,
        started: float,
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
    ) -> Run:
        """The run of this key, RUNNING: the one that is there, else a new one.

        started: unix seconds. parent: id of the run that it is shown under.
        """
        every_tag = {**(tags or {}), KEY: key}
        if parent is not None:
            every_tag["mlflow.parentRunId"] = parent
        found = self.find(key)
        if found is None:
            created = self.client.create_run(
                self.experiment_id,
                start_time=round(started * 1000),
                tags=clean_tags(every_tag),
                run_name=title,
            )
            return self.run(created.info.run_id)
        run = self.run(found.info.run_id)
        if found.info.status != "RUNNING":
            self.client.update_run(run.id, status="RUNNING")
        run.tag(every_tag)
        run.remove_tags("error", "closed")
        return run

    def run(self, run_id: str) -> Run:
        """A run by its id."""
        return Run(self.client, run_id, self.experiment_id)

    def find(self, key: str) -> Any | None:
        """The run of this key as MLflow has it; None if it was never made, or deleted."""
        return next(iter(self._of_key(key)), None)

    def remove_twins(self, key: str, run_id: str) -> None:
        """Delete other runs of a run's key: a request answered too late may have made it twice."""
        for found in self._of_key(key):
            if found.info.run_id != run_id:
                self.client.delete_run(found.info.run_id)

    def _of_key(self, key: str) -> list[Any]:
        found = self._search(f"tags.`{KEY}` = '{key}'")
        return sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))

    def newest(self, name: str) -> str | None:
        """The id of the newest run of an outbox's name."""
        found = self._search(f"tags.`{KEY}` LIKE '{name}.%'")
        newest = max(found, key=lambda run: run.info.start_time, default=None)
        return str(newest.info.run_id) if newest else None

    def _search(self, filter_string: str) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                filter_string=filter_string,
                run_view_type=ViewType.ACTIVE_ONLY,
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                return found


class Run:
    """A run in MLflow."""

    def __init__(self, client: Any, run_id: str, experiment_id: str) -> None:
        self.client = client
        self.id = run_id
        self.experiment_id = experiment_id

    def params(self, values: Mapping[str, Any], *, only_new: bool = False) -> None:
        """Record parameters. The same value again is fine, another value for a key raises.

        only_new: leave the keys alone that are there.
        """
        known = self.client.get_run(self.id).data.params if only_new else {}
        entities = [Param(k, param_text(value)) for k, value in values.items() if k not in known]
        self.client.log_batch(self.id, params=entities, synchronous=True)

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
        if strange and "non_finite" not in self.client.get_run(self.id).data.tags:
            self.tag({"non_finite": strange})

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags, as `clean_tags` makes them."""
        entities = [RunTag(key, value) for key, value in clean_tags(tags).items()]
        self.client.log_batch(self.id, tags=entities, synchronous=True)

    def remove_tags(self, *keys: str) -> None:
        """Remove tags, where they are."""
        there = self.client.get_run(self.id).data.tags
        for key in keys:
            if key in there:
                self.client.delete_tag(self.id, key)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a folder with the run, inside its artifact `folder` if given."""
        self.client.log_artifact(self.id, str(path), folder)

    def has_artifact(self, name: str, folder: str | None = None) -> bool:
        """Whether the run has a file or a folder of this name, inside its artifact `folder`."""
        found = self.client.list_artifacts(self.id, folder)
        return any(Path(entry.path).name == name for entry in found)

    def status(self) -> str:
        """RUNNING, FINISHED, FAILED or KILLED, as MLflow has it."""
        return str(self.client.get_run(self.id).info.status)

    def dataset(self, name: str, digest: str, context: str | None = None) -> None:
        """Name the data this run used; `digest` (cut to 36 characters) tells versions apart."""
        # "code" is the source type of data that MLflow itself cannot load.
        dataset = Dataset(name, digest[:LONGEST_DIGEST], "code", json.dumps({"tags": {}}))
        tags = [InputTag("mlflow.data.context", context)] if context else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(dataset, tags)])

    def end(self, status: str, time: float | None = None) -> None:
        """End the run as FINISHED, FAILED or KILLED; `time` in unix seconds, now unless given."""
        self.client.set_terminated(self.id, status, None if time is None else round(time * 1000))
