"""Runs, models and registered models in MLflow: found or created, filled and ended.

Every call may be repeated without a second effect, since whoever delivers may die between MLflow's
answer and the note of it. Each call names its run; nothing depends on a global "active run".
Metrics go in synchronous batches: MLflow's asynchronous logging loses points when several runs
share a server. What comes here was cleaned when it was recorded (recorder.py).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import pyfunc
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
from mlflow.models import Model
from mlflow.models.signature import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.utils.environment import _PythonEnv

from seq2sweep.runs.run_store import Status
from seq2sweep.tracking import recorded_later, timeout_of_upload
from seq2sweep.tracking.mlflow_store import (
    KEY,
    PARENT,
    VIEWS,
    Experiment,
    RefusedError,
    saved_at,
    saved_view,
)
from seq2sweep.tracking.recorder import LONGEST_TAG, cut

Point = tuple[float, int, Mapping[str, float | None]]
"""Unix seconds, step and metrics by name; None is no number."""

NOTE = "mlflow.note.content"
"""The tag of a run, and of an experiment, that MLflow shows as its description, in Markdown."""
WRITTEN, WRITTEN_AT = "mlflow.seq2sweep.note", "mlflow.seq2sweep.note.time"
"""Tags of an experiment: the hash of the description that was written last, as one that a person
has changed since stays, and its time in unix seconds. As all of that prefix they are not shown."""
REPLACED_AT = "mlflow.seq2sweep.replaced.time"
"""The tag of a run that says when what replaced its files last was recorded, in unix seconds."""
TIME = "seq2sweep.time"
"""The tag of a registered version that says when it was recorded, in unix seconds."""

MLFLOW_STATUS: dict[Status, str] = {
    "finished": "FINISHED",
    "stopped early": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
"""How a run ended, in MLflow's words."""

# By which the UI leads from a model of a run to its versions; a server sets it, a database alone
# does not.
_VERSIONS = "mlflow.modelVersions"


class Run:
    """A run in MLflow."""

    RECORDED = (
        *("params", "log", "tag", "describe", "view", "dataset", "artifact", "model", "register"),
    )
    """The methods that a record names (outbox.py)."""

    def __init__(self, experiment: Experiment, run_id: str, asked_again: bool = False) -> None:
        """asked_again: it was FINISHED when it was begun, and keeps its folders as they are."""
        self.client, self.experiment_id, self.id = experiment.client, experiment.id, run_id
        self.asked_again = asked_again

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
        run_id: str | None = None,
    ) -> Run:
        """The run of this key, RUNNING: the one that is there, else a new one.

        One that is FINISHED was only asked for again, and stays as it is. started: unix seconds.
        parent: id of the run that it is shown under. run_id: which one it was before, as of several
        runs of a key one may have been deleted and restored.
        """
        every_tag = {**(tags or {}), KEY: key} | ({PARENT: parent} if parent else {})
        there = sorted(experiment.find(key), key=lambda found: found.info.run_id != run_id)
        if not there:
            created = experiment.client.create_run(
                experiment.id, start_time=round(started * 1000), tags=every_tag, run_name=title
            )
            return cls(experiment, created.info.run_id)
        run, status = cls(experiment, there[0].info.run_id), there[0].info.status
        if status != "FINISHED":
            if status != "RUNNING":
                run.client.update_run(run.id, status="RUNNING")
            run.tag(every_tag)
            run._remove_error(there[0])
        else:
            run.asked_again = True
        return run

    def stored(self) -> Any:
        """What MLflow has of it."""
        return self.client.get_run(self.id)

    def end(self, status: Status, time: float, error: str | None = None) -> None:
        """End the run at `time`, in unix seconds; one that is FINISHED stays as it is.

        Another end is replaced: another host may have taken the run for dead, where locks do not
        reach. error: why, as the tag of that name.
        """
        stored = self.stored()
        if stored.info.status == "FINISHED":
            return
        if error:
            self.tag({"error": error})
        else:
            self._remove_error(stored)
        at = max(round(time * 1000), stored.info.start_time)
        self.client.set_terminated(self.id, MLFLOW_STATUS[status], at)

    def _remove_error(self, stored: Any) -> None:
        if "error" in stored.data.tags:
            self.client.delete_tag(self.id, "error")

    def points(self, points: Sequence[Point]) -> None:
        """Record points of up to 1000 metrics in all. The same point twice is stored once.

        What is not finite is left out, and the tag `non_finite` names the first such number: MLflow
        would store infinity as the largest float, and hides a chart whose newest value is NaN.
        """
        entities, strange = [], []
        for seconds, step, metrics in points:
            for key, value in metrics.items():
                if value is not None and math.isfinite(value):
                    entities.append(Metric(key, value, round(seconds * 1000), step))
                else:
                    strange.append(f"{key} at step {step}")
        if entities:
            self.client.log_batch(self.id, metrics=entities, synchronous=True)
        if strange and "non_finite" not in self.stored().data.tags:
            self.tag({"non_finite": strange[0]})

    def _model(self, name: str) -> Any | None:
        """The model of this name that `model` began, perhaps not READY.

        The first one, should a late answer have created two.
        """
        found = self.client.search_logged_models(
            [self.experiment_id], filter_string=f"source_run_id = '{self.id}' AND name = '{name}'"
        )
        first, *others = sorted(found, key=lambda model: model.creation_timestamp) or [None]
        for other in others:
            self.client.delete_logged_model(other.model_id)
        return first

    # --- what records say -----------------------------------------------------------------------

    def params(self, values: Mapping[str, str]) -> None:
        """Record parameters, but for keys that are there: MLflow allows no other value for them."""
        known = self.stored().data.params
        entities = [Param(key, value) for key, value in values.items() if key not in known]
        self.client.log_batch(self.id, params=entities, synchronous=True)

    def log(self, metrics: Mapping[str, float | None], step: int, time: float) -> None:
        """Record numbers at a step; `time` in unix seconds."""
        self.points([(time, step, metrics)])

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self.client.log_batch(self.id, tags=[*map(RunTag, tags, tags.values())], synchronous=True)

    def describe(self, markdown: str, experiment: bool = False, time: float = 0.0) -> None:
        """Describe the run, or its experiment unless a person or a record of later `time` has."""
        text = _whole_rows(markdown)
        if not experiment:
            self.tag({NOTE: text})
            return
        tags = self.client.get_experiment(self.experiment_id).tags
        there, later = tags.get(NOTE, ""), recorded_later(float(tags.get(WRITTEN_AT, 0.0)), time)
        if not later and (there in ("", text) or tags.get(WRITTEN) == _sha256(there)):
            news = {NOTE: text, WRITTEN: _sha256(text), WRITTEN_AT: repr(time)}
            for key, value in news.items():
                self.client.set_experiment_tag(self.experiment_id, key, value)

    def view(self, name: str, title: str, state: Mapping[str, Any], time: float) -> None:
        """Save a view of the page of runs, with as many charts as MLflow takes, of the variants
        under this run alone, unless one of that name was saved later: another's, delivered before.

        name: by which an address asks for it (`viewStateShareKey`). The rest as in `saved_view`.
        """
        tags = self.client.get_experiment(self.experiment_id).tags
        if recorded_later(saved_at(tags.get(f"{VIEWS}{name}")) / 1000, round(time * 1000) / 1000):
            return
        own = {"searchFilter": f"tags.`{PARENT}` = '{self.id}' AND tags.kind = 'variant'", **state}
        charts = own["compareRunCharts"] = [*own.get("compareRunCharts", ())]
        while len(view := saved_view(title, time, own)) > LONGEST_TAG and charts:
            charts.pop()
        self.client.set_experiment_tag(self.experiment_id, f"{VIEWS}{name}", view)

    def dataset(self, name: str, digest: str, context: str | None = None) -> None:
        """Name the data this run used; `digest` tells versions apart."""
        # "code" is the source type of data that MLflow itself cannot load.
        dataset = Dataset(name, digest, "code", json.dumps({"tags": {}}))
        tags = [InputTag("mlflow.data.context", context)] if context else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(dataset, tags)])

    def artifact(self, files: Sequence[Path], replace: bool = False, time: float = 0.0) -> None:
        """Store files and folders with the run; one that is FINISHED keeps those that it has,
        unless they are to be replaced, and of a folder gets what is missing, unless it was only
        asked for again.

        time: when what replaces was recorded, in unix seconds; it is dropped where what was
        recorded later has come before.
        """
        if replace and recorded_later(float(self.stored().data.tags.get(REPLACED_AT, 0.0)), time):
            return
        finished = not replace and self.stored().info.status == "FINISHED"
        known = {e.path for e in self.client.list_artifacts(self.id)} if finished else set()
        for path in files:
            if path.name not in known:
                with timeout_of_upload(path):
                    self.client.log_artifact(self.id, str(path))
            elif path.is_dir() and not self.asked_again:
                self._complete(path)
        if replace:
            self.tag({REPLACED_AT: repr(time)})

    def _complete(self, folder: Path) -> None:
        """Store what the run has not all of: who stored it file by file may have died."""
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            name = place.relative_to(folder.parent).as_posix()
            stored = {e.path: e.file_size for e in self.client.list_artifacts(self.id, name)}
            for file in place.iterdir():
                size = file.stat().st_size
                if file.is_file() and stored.get(f"{name}/{file.name}") != size:
                    with timeout_of_upload(file):
                        self.client.log_artifact(self.id, str(file), name)

    def model(
        self,
        name: str,
        files: Sequence[Path],
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        dataset: tuple[str, str],
        step: int,
        tags: Mapping[str, str],
        time: float,
        flavor: Mapping[str, Any] | None = None,
    ) -> str:
        """Record a model, and give its id (`m-...`).

        `files` and folders are stored with the model as they are. With a `flavor`, the arguments of
        `_write_flavor`, MLflow can load it. The metrics are recorded on the
        run and on the model, tied to the dataset, so that `metrics.bleu > 20` finds models. The
        model is READY only once all of it is stored. A second call with the same resumes what the
        first could not.
        """
        client, model = self.client, self._model(name)
        if model is None:
            model = client.create_logged_model(
                self.experiment_id, name=name, source_run_id=self.id, tags=tags, params=params
            )
        elif missing := {key: text for key, text in params.items() if key not in model.params}:
            client.log_model_params(model.model_id, missing)
        for path in files:
            with timeout_of_upload(path):
                if path.is_dir():
                    client.log_model_artifacts(model.model_id, str(path), path.name)
                else:
                    client.log_model_artifact(model.model_id, str(path))
        if flavor is not None:
            with TemporaryDirectory(prefix="seq2sweep-") as folder:
                _write_flavor(Path(folder), model.model_id, self.id, **flavor)
                # What says that it can be loaded comes last.
                for file in ("python_env.yaml", "MLmodel"):
                    client.log_model_artifact(model.model_id, f"{folder}/{file}")
        self.dataset(*dataset)
        of = (model.model_id, *dataset)
        scores = [Metric(k, value, round(time * 1000), 0, *of) for k, value in metrics.items()]
        client.log_batch(self.id, metrics=scores, synchronous=True)
        # The model knows its run by `source_run_id`; this tells the run of its model.
        outputs = self.stored().outputs
        told = [output.model_id for output in outputs.model_outputs] if outputs else []
        if model.model_id not in told:
            client.log_outputs(self.id, models=[LoggedModelOutput(model.model_id, step)])
        client.finalize_logged_model(model.model_id, "READY")
        return str(model.model_id)

    def register(
        self, model: str, name: str, alias: str, tags: Mapping[str, str], time: float
    ) -> str:
        """Make a model of this run a registered version, and give its number.

        The alias moves to it, unless it names a version that was recorded later. A second call with
        the same changes nothing, or resumes what the first could not. Raises RefusedError.
        """
        client, found = self.client, self._model(model)
        if found is None or str(found.status) != "READY":
            raise RefusedError(f"the run has no whole model {model!r} to register as {name}")
        version = self._version(name, found, {**tags, TIME: repr(time)})
        known = json.loads(found.tags.get(_VERSIONS, "[]"))
        if not any((v["name"], str(v["version"])) == (name, version) for v in known):
            versions = [*known, {"name": name, "version": int(version)}]
            client.set_logged_model_tags(found.model_id, {_VERSIONS: json.dumps(versions)})
        named = client.get_registered_model(name).aliases.get(alias)
        other = None if named is None else client.get_model_version(name, str(named))
        # A version that somebody else made has no time; none was recorded after the store got it.
        times = [float(other.tags.get(TIME, 0.0)), other.creation_timestamp / 1000] if other else []
        if not recorded_later(min(times, default=0.0), time):
            client.set_registered_model_alias(name, alias, version)
        return version

    def _version(self, name: str, model: Any, tags: Mapping[str, str]) -> str:
        """The version that an earlier call created, else a new one.

        The first, should a late answer have created two.
        """
        found = self.client.search_model_versions(f"name = '{name}' and run_id = '{self.id}'")
        of_model = [version for version in found if version.source == model.artifact_location]
        first, *others = sorted(of_model, key=lambda version: int(version.version)) or [None]
        for other in others:
            self.client.delete_model_version(name, other.version)
        if first is not None:
            return str(first.version)
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        created = self.client.create_model_version(
            name,
            # Not models:/<id>: a database would look that up in whatever store MLflow's default is.
            model.artifact_location,
            self.id,
            tags=tags,
            model_id=model.model_id,
        )
        return str(created.version)


def _whole_rows(markdown: str) -> str:
    """A description that MLflow takes: of a table at its end the rows that fit, and how many are
    left out."""
    if len(markdown) <= LONGEST_TAG:
        return markdown
    note = "\n\nRows left out here: {}. The link above leads to the whole table."
    digits = len(str(len(markdown)))
    shown = markdown[: LONGEST_TAG - len(note) - digits].rpartition("\n")[0]
    left = markdown.count("\n") - shown.count("\n")
    return shown + note.format(left) if shown else cut(markdown, LONGEST_TAG)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_flavor(folder: Path, model_id: str, run_id: str, loader: str, **search: Any) -> None:
    """Write what makes files of a model one that MLflow loads: MLmodel names the module that loads
    them, the columns that it takes and gives, and its parameters.

    The files are what `serving.packaging` writes. loader: dotted name of the module, below the
    model's folder `code`; search: `beam`, `alpha` and `stopping`, where nothing else is asked for.
    """
    _PythonEnv(dependencies=["-r requirements.txt"]).to_yaml(str(folder / "python_env.yaml"))
    columns = {"line": "long", "rank": "long", "translation": "string", "score": "double"}
    kinds = {"beam": "long", "alpha": "double", "stopping": "string", "n_best": "long"}
    values = {**search, "n_best": 1}
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.string, "text")]),
        outputs=Schema([ColSpec(DataType[kind], name) for name, kind in columns.items()]),
        params=ParamSchema([ParamSpec(n, DataType[k], values[n]) for n, k in kinds.items()]),
    )
    made = Model(run_id=run_id, model_id=model_id, model_uuid=model_id, signature=signature)
    pyfunc.add_to_model(
        made, loader_module=loader, code="code", python_env="python_env.yaml", data="."
    )
    made.save(str(folder / "MLmodel"))
