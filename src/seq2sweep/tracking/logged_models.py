"""Models in MLflow: the file by which MLflow loads one, and the folder of one by its name.

A model's files are what `serving.packaging` writes. MLflow's file MLmodel beside them names the
module that loads them, the columns that it takes and gives, and its parameters.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import mlflow.artifacts
from mlflow import pyfunc
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.signature import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.utils.environment import _PythonEnv

from seq2sweep.config import Config
from seq2sweep.data.files import MANIFEST
from seq2sweep.errors import UserError
from seq2sweep.tracking.mlflow_store import reason, refuses, resolve_uri
from seq2sweep.tracking.run_reader import RunReader


def signature(beam: int, alpha: float, stopping: str) -> ModelSignature:
    """Of a model that translates, and how it is searched where nothing else is asked for."""
    text = ColSpec(DataType.string, "text")
    columns = {"line": "long", "rank": "long", "translation": "string", "score": "double"}
    return ModelSignature(
        inputs=Schema([text]),
        outputs=Schema([ColSpec(DataType[kind], name) for name, kind in columns.items()]),
        params=ParamSchema(
            [
                ParamSpec("beam", DataType.long, beam),
                ParamSpec("alpha", DataType.double, alpha),
                ParamSpec("stopping", DataType.string, stopping),
                ParamSpec("n_best", DataType.long, 1),
            ]
        ),
    )


def flavor_files(
    folder: Path, model_id: str, run_id: str, loader: str, **search: Any
) -> list[Path]:
    """Write what makes files of a model one that MLflow loads into `folder`, and list it.

    loader: dotted name of the module, below the model's folder `code`; search: of `signature`.
    """
    environment = _PythonEnv(dependencies=["-r requirements.txt"], python=_python_version())
    environment.to_yaml(str(folder / "python_env.yaml"))
    made = Model(
        run_id=run_id, model_id=model_id, model_uuid=model_id, signature=signature(**search)
    )
    pyfunc.add_to_model(
        made, loader_module=loader, code="code", python_env="python_env.yaml", data="."
    )
    made.save(str(folder / "MLmodel"))
    # What says that it can be loaded comes last.
    return [folder / "python_env.yaml", folder / "MLmodel"]


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


# --- by name -------------------------------------------------------------------------------------


@contextlib.contextmanager
def model_folder(name: str, config: Config, project: Path) -> Iterator[Path]:
    """The folder of a model: `models:/NAME@ALIAS`, `models:/NAME/VERSION`, `models:/m-...`, or the
    id of a run, or how it begins; of a training that of its newest evaluation.

    What is kept elsewhere is downloaded, and removed when the block ends. Raises UserError when
    there is none, and when MLflow cannot be used.
    """
    reader = RunReader(resolve_uri(config.tracking, project))
    place = _of_uri(reader, name) if name.startswith("models:/") else _of_run(reader, name)
    local = place.startswith("file:") or "://" not in place
    with TemporaryDirectory(prefix="seq2sweep-model-") as folder:
        with reader.reading():
            found = Path(
                mlflow.artifacts.download_artifacts(
                    artifact_uri=place, dst_path=None if local else folder, tracking_uri=reader.uri
                )
            )
        if not (found / MANIFEST).exists():
            raise UserError(
                f"{name} is no model that this version of seq2sweep can load: evaluate it "
                "again, by `dvc repro -f evaluate`"
            )
        yield found


def _of_uri(reader: RunReader, name: str) -> str:
    """Where the files of a model are that is named as MLflow does. Raises UserError."""
    client, rest = reader.client, name.removeprefix("models:/")
    with reader.reading():
        try:
            if "@" in rest:
                registered, _, alias = rest.partition("@")
                return str(client.get_model_version_by_alias(registered, alias).source)
            if "/" in rest:
                registered, _, version = rest.rpartition("/")
                return str(client.get_model_version(registered, version).source)
            return str(client.get_logged_model(rest).artifact_location)
        except MlflowException as error:
            if refuses(error):
                raise UserError(f"{name}: MLflow has no such model ({reason(error)})") from None
            raise


def _of_run(reader: RunReader, name: str) -> str:
    """Where the files of the newest model of a run are, or else of the runs below it."""
    run_id = reader.find(name)
    with reader.reading():
        experiment = reader.client.get_run(run_id).info.experiment_id
    ids, models = [run_id], list[Any]()
    while ids and not models:
        with reader.reading():
            models = [
                model
                for one in ids
                for model in reader.client.search_logged_models(
                    [experiment], filter_string=f"source_run_id = '{one}'"
                )
                if str(model.status) == "READY"
            ]
        ids = [child for one in ids for child in reader.children(one)]
    if not models:
        raise UserError(
            f"the run {run_id} has no model: evaluations have one, and the best variants of "
            "sweeps; a training or a sweep stands for its newest"
        )
    return str(max(models, key=lambda model: model.creation_timestamp).artifact_location)
