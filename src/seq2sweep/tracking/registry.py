"""Registered models in MLflow: a name, its versions, and an alias that moves to the newest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

from seq2sweep.tracking.models import find_model
from seq2sweep.tracking.runs import Run
from seq2sweep.tracking.values import clean_tags

TIME = "seq2sweep.time"
"""The tag of a version that says when it was recorded, in unix seconds."""

# By which the UI leads from a model of a run to its versions; a server sets it, a database alone
# does not.
_VERSIONS = "mlflow.modelVersions"


class NoModel(Exception):  # noqa: N818 - as the other reasons for which a record is refused
    """The run has no model of that name, or not all of it."""


def register_model(
    run: Run,
    *,
    model: str,
    name: str,
    alias: str,
    time: float,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Make the model `model` of `run` a version of the registered model `name`; give its number.

    `alias` moves to it, unless it names a version of a later `time` (unix seconds). A second call
    with the same changes nothing, or goes on with what the first could not. Raises NoModel.
    """
    logged = find_model(run, model)
    if logged is None or str(logged.status) != "READY":
        raise NoModel(f"the run has no whole model {model!r} to register as {name}")
    version = _find(run, name, logged) or _make(
        run, name, logged, clean_tags(tags or {}) | {TIME: repr(time)}
    )
    _tell_model(run, logged, name, version)
    if _recorded(run.client, name, alias) <= time:
        run.client.set_registered_model_alias(name, alias, version)
    return version


def _find(run: Run, name: str, logged: Any) -> str | None:
    """The version that an earlier call made; the first, should a late answer have made two."""
    found = run.client.search_model_versions(f"name = '{name}' and run_id = '{run.id}'")
    of_model = [version for version in found if version.source == logged.artifact_location]
    first, *twins = sorted(of_model, key=lambda version: int(version.version)) or [None]
    for twin in twins:
        run.client.delete_model_version(name, twin.version)
    return None if first is None else str(first.version)


def _make(run: Run, name: str, logged: Any, tags: Mapping[str, str]) -> str:
    try:
        run.client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
            raise
    made = run.client.create_model_version(
        name,
        # Not models:/<id>: a database would look that up in whatever store MLflow's default is.
        logged.artifact_location,
        run.id,
        tags=tags,
        model_id=logged.model_id,
    )
    return str(made.version)


def _tell_model(run: Run, logged: Any, name: str, version: str) -> None:
    known = json.loads(logged.tags.get(_VERSIONS, "[]"))
    ours = {"name": name, "version": int(version)}
    if not any((v["name"], str(v["version"])) == (name, version) for v in known):
        run.client.set_logged_model_tags(logged.model_id, {_VERSIONS: json.dumps([*known, ours])})


def _recorded(client: Any, name: str, alias: str) -> float:
    """When the version was recorded that an alias names, in unix seconds; 0 if nobody knows."""
    version = client.get_registered_model(name).aliases.get(alias)
    if version is None:
        return 0.0
    return float(client.get_model_version(name, str(version)).tags.get(TIME, 0.0))
