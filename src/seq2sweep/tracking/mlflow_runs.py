"""Runs, models and registered models in MLflow: found or created, filled and ended.

Every call may be repeated without a second effect, since whoever delivers may die between MLflow's
answer and the note of it. Each call names its run; nothing depends on a global "active run".
Metrics go in synchronous batches: MLflow's asynchronous logging loses points when several runs
share a server. What comes here was cleaned when it was recorded (recorder.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelOutput,
    Metric,
    Param,
    RunTag,
)
from mlflow.exceptions import MlflowException

from seq2sweep.tracking.mlflow_store import KEY, Experiment, RefusedError

Point = tuple[float, int, Mapping[str, float]]
"""Unix seconds, step and metrics by name."""

TIME = "seq2sweep.time"
"""The tag of a registered version that says when it was recorded, in unix seconds."""

# By which the UI leads from a model of a run to its versions; a server sets it, a database alone
# does not.
_VERSIONS = "mlflow.modelVersions"


class Run:
    """A run in MLflow."""

    def __init__(self, experiment: Experiment, run_id: str) -> None:
        self.client, self.experiment_id, self.id = experiment.client, experiment.id, run_id

    @classmethod
    def begin(
        cls,
        experiment: Experiment,
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
        found = experiment.find(key)
        if found is None:
            created = experiment.client.create_run(
                experiment.id, start_time=round(started * 1000), tags=every_tag, run_name=title
            )
            return cls(experiment, created.info.run_id)
        run = cls(experiment, found.info.run_id)
        if found.info.status != "RUNNING":
            run.client.update_run(run.id, status="RUNNING")
        run.tag(every_tag)
        run.remove_tags("error", "closed")
        return run

    def params(self, values: Mapping[str, str]) -> None:
        """Record parameters, but for keys that are there: MLflow allows no other value for them."""
        known = self.client.get_run(self.id).data.params
        entities = [Param(key, value) for key, value in values.items() if key not in known]
        self.client.log_batch(self.id, params=entities, synchronous=True)

    def log(self, points: Sequence[Point]) -> None:
        """Record points of up to 1000 metrics in all. The same point twice is stored once.

        What is not finite is left out, and the tag `non_finite` names the first such number: MLflow
        would store infinity as the largest float, and hides a chart whose newest value is NaN.
        """
        entities, strange = [], []
        for seconds, step, metrics in points:
            for key, value in metrics.items():
                if math.isfinite(value):
                    entities.append(Metric(key, value, round(seconds * 1000), step))
                else:
                    strange.append(f"{key} at step {step}")
        if entities:
            self.client.log_batch(self.id, metrics=entities, synchronous=True)
        if strange and "non_finite" not in self.client.get_run(self.id).data.tags:
            self.tag({"non_finite": strange[0]})

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        entities = [RunTag(key, value) for key, value in tags.items()]
        self.client.log_batch(self.id, tags=entities, synchronous=True)

    def remove_tags(self, *keys: str) -> None:
        """Remove tags, where they are."""
        there = self.client.get_run(self.id).data.tags
        for key in keys:
            if key in there:
                self.client.delete_tag(self.id, key)

    def artifact(self, path: Path) -> None:
        """Store a file or a folder with the run."""
        self.client.log_artifact(self.id, str(path))

    def has_artifact(self, name: str) -> bool:
        """Whether the run has a file or a folder of this name."""
        return any(entry.path == name for entry in self.client.list_artifacts(self.id))

    def status(self) -> str:
        """RUNNING, FINISHED, FAILED or KILLED, as MLflow has it."""
        return str(self.client.get_run(self.id).info.status)

    def dataset(self, name: str, digest: str, context: str | None = None) -> None:
        """Name the data this run used; `digest` tells versions apart."""
        # "code" is the source type of data that MLflow itself cannot load.
        dataset = Dataset(name, digest, "code", json.dumps({"tags": {}}))
        tags = [InputTag("mlflow.data.context", context)] if context else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(dataset, tags)])

    def end(self, status: str, time: float | None = None) -> None:
        """End the run as FINISHED, FAILED or KILLED; `time` in unix seconds, now unless given."""
        self.client.set_terminated(self.id, status, None if time is None else round(time * 1000))

    def model(self, name: str) -> Any | None:
        """The model of this name that `log_model` began, perhaps not READY.

        The first one, should a late answer have created two.
        """
        found = self.client.search_logged_models(
            [self.experiment_id], filter_string=f"source_run_id = '{self.id}' AND name = '{name}'"
        )
        first, *others = sorted(found, key=lambda model: model.creation_timestamp) or [None]
        for other in others:
            self.client.delete_logged_model(other.model_id)
        return first


# --- models --------------------------------------------------------------------------------------


def log_model(
    run: Run,
    record: Mapping[str, Any],
    files: Sequence[Path],
    on_file: Callable[[Path], None] = lambda path: None,
) -> str:
    """Record a model of `run`, as `Recorder.model` says it, and give its id (`m-...`).

    `files` and folders are stored with the model as they are; `on_file` is called before each.
    The metrics are recorded on the run and on the model, tied to the dataset, so that
    `metrics.bleu > 20` finds models. The model is READY only once all of it is stored. A second
    call with the same resumes what the first could not.
    """
    client, params = run.client, record["params"]
    model = run.model(record["name"])
    if model is None:
        model = client.create_logged_model(
            run.experiment_id,
            name=record["name"],
            source_run_id=run.id,
            tags=record["tags"],
            params=params,
        )
    elif missing := {key: text for key, text in params.items() if key not in model.params}:
        client.log_model_params(model.model_id, missing)
    for path in files:
        on_file(path)
        if path.is_dir():
            client.log_model_artifacts(model.model_id, str(path), path.name)
        else:
            client.log_model_artifact(model.model_id, str(path))
    run.dataset(record["dataset_name"], record["dataset_digest"])
    scores = [
        Metric(
            key,
            value,
            round(record["time"] * 1000),
            record["step"],
            model_id=model.model_id,
            dataset_name=record["dataset_name"],
            dataset_digest=record["dataset_digest"],
        )
        for key, value in record["metrics"].items()
    ]
    client.log_batch(run.id, metrics=scores, synchronous=True)
    # The model knows its run by `source_run_id`; this tells the run of its model.
    outputs = client.get_run(run.id).outputs
    told = [output.model_id for output in outputs.model_outputs] if outputs else []
    if model.model_id not in told:
        client.log_outputs(run.id, models=[LoggedModelOutput(model.model_id, record["step"])])
    client.finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


def register_model(run: Run, record: Mapping[str, Any]) -> str:
    """Make a model of `run` a registered version, as `Recorder.register` says; give its number.

    The alias moves to it, unless it names a version that was recorded later. A second call with
    the same changes nothing, or resumes what the first could not. Raises RefusedError.
    """
    client, name, time = run.client, record["name"], record["time"]
    model = run.model(record["model"])
    if model is None or str(model.status) != "READY":
        raise RefusedError(f"the run has no whole model {record['model']!r} to register as {name}")
    version = _find_version(run, name, model)
    if version is None:
        version = _create_version(run, name, model, record["tags"] | {TIME: repr(time)})
    known = json.loads(model.tags.get(_VERSIONS, "[]"))
    if not any((v["name"], str(v["version"])) == (name, version) for v in known):
        versions = [*known, {"name": name, "version": int(version)}]
        client.set_logged_model_tags(model.model_id, {_VERSIONS: json.dumps(versions)})
    named = client.get_registered_model(name).aliases.get(record["alias"])
    # A version that somebody else made has no time.
    tags = {} if named is None else client.get_model_version(name, str(named)).tags
    if float(tags.get(TIME, 0.0)) <= time:
        client.set_registered_model_alias(name, record["alias"], version)
    return version


def _find_version(run: Run, name: str, model: Any) -> str | None:
    """The version that an earlier call created; the first, should a late answer have made two."""
    found = run.client.search_model_versions(f"name = '{name}' and run_id = '{run.id}'")
    of_model = [version for version in found if version.source == model.artifact_location]
    first, *others = sorted(of_model, key=lambda version: int(version.version)) or [None]
    for other in others:
        run.client.delete_model_version(name, other.version)
    return None if first is None else str(first.version)


def _create_version(run: Run, name: str, model: Any, tags: Mapping[str, str]) -> str:
    try:
        run.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    created = run.client.create_model_version(
        name,
        # Not models:/<id>: a database would look that up in whatever store MLflow's default is.
        model.artifact_location,
        run.id,
        tags=tags,
        model_id=model.model_id,
    )
    return str(created.version)
