"""Runs and models of an MLflow store by their ids or names, for who reads them only."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

import mlflow.artifacts
from mlflow.exceptions import MlflowException
from tqdm import tqdm

from seq2sweep.config import Config
from seq2sweep.data.files import MANIFEST
from seq2sweep.decode.model_folder import NEEDED, SOMETIMES
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.redaction import redact
from seq2sweep.tracking.mlflow_store import (
    PARENT,
    open_store,
    reason,
    refuses,
    resolve_uri,
    sqlite_file,
    store_errors,
    unusable,
)

MODEL_FILES = {MANIFEST, *NEEDED, *SOMETIMES}
LONGEST_VERSION = 18
"""Digits of a model's version that a database takes."""
DEEPEST = 10
"""Levels of runs below one whose model is asked for: a person may have put them in a circle."""
AT_ONCE = 500
"""Ids in one search for runs."""


def _is_local(place: str) -> bool:
    """Whether files at this address of MLflow's are in a folder of this machine."""
    return urlsplit(place).scheme in ("", "file")


def gone(name: str, place: str) -> str:
    """The line that says that the files of a run or a model are not where MLflow has them."""
    return (
        f"{name}: its files are not in {redact(place)}: was the project moved, or were they "
        "removed? Name another"
    )


class StoreReader:
    """Reads what a store has of runs and models of any experiment, and changes nothing there."""

    def __init__(self, uri: str) -> None:
        """uri: as `resolve_uri` gives it. Raises UserError when the store cannot be used."""
        self.uri = uri
        file = sqlite_file(uri)
        if file and not file.is_file():
            raise UserError(
                f"there are no runs here, as {file} is missing: set tracking.uri or "
                "$MLFLOW_TRACKING_URI to the store that has the run, such as "
                "sqlite:////home/me/project/mlflow.db"
            )
        with self.reading():
            self.client = open_store(uri, "")

    def find(self, run_id: str) -> str:
        """The id of the one run whose id begins like this. Raises UserError."""
        if not re.fullmatch("[0-9a-f]{4,32}", run_id):
            raise UserError(
                f"{run_id[:80]!r} is no run id: give one as MLflow shows it, 32 of 0-9 and a-f, or "
                "at least its first 4"
            )
        found = self._search(f"attributes.run_id LIKE '{run_id}%'")
        if len(found) != 1:
            several = f"those of {len(found)} runs begin so: give more of it"
            none = f"{redact(self.uri)} has no such run, or it was deleted there"
            raise UserError(f"run id {run_id}: {several if found else none}")
        return str(found[0].info.run_id)

    def children(self, run_id: str) -> list[str]:
        """The ids of the runs right under a run, the newest first."""
        found = self._search(f"tags.`{PARENT}` = '{run_id}'")
        return [str(run.info.run_id) for run in reversed(found)]

    def parent(self, run_id: str) -> str | None:
        """The id of the run that a run is under."""
        with self.reading():
            tags = self.client.get_run(run_id).data.tags
        found = tags.get(PARENT)
        return None if found is None else str(found)

    def runs(self, ids: Collection[str]) -> dict[str, Any]:
        """The active ones of these runs by their ids, as MLflow has them."""
        wanted = [f"'{run_id}'" for run_id in ids]
        found = [
            run
            for i in range(0, len(wanted), AT_ONCE)
            for run in self._search(f"attributes.run_id IN ({', '.join(wanted[i : i + AT_ONCE])})")
        ]
        return {str(run.info.run_id): run for run in found}

    def models(self, run_id: str) -> list[Any]:
        """The whole models of a run's experiment."""
        with self.reading():
            experiment = self.client.get_run(run_id).info.experiment_id
            found = _every(self.client.search_logged_models, [experiment])
        return [model for model in found if str(model.status) == "READY"]

    def fetch(self, run_id: str, folder: str, names: Collection[str], most: int, to: Path) -> None:
        """Copy files of a run's artifact folder into a folder here, those that are there.

        most: bytes that each may have. Raises UserError for a larger one.
        """
        to.mkdir(parents=True)
        with self.reading():
            for file in self.client.list_artifacts(run_id, folder):
                name = file.path.removeprefix(f"{folder}/")
                if name not in names:
                    continue
                if file.is_dir or (file.file_size or 0) > most:
                    raise UserError(
                        f"run {run_id}: {folder}/{name} is no file of at most {most} bytes"
                    )
                # Some stores put it below the folder's name, others do not.
                Path(self.client.download_artifacts(run_id, file.path, str(to))).replace(to / name)

    def lost(self, run_id: str) -> str | None:
        """Where the files of a run were, if its experiment has no folder on this machine any more.

        One that has recorded no file has none either.
        """
        with self.reading():
            place = str(self.client.get_run(run_id).info.artifact_uri)
        folder = Path(unquote(urlsplit(place).path))
        return place if _is_local(place) and not folder.parent.parent.is_dir() else None

    def _search(self, filter_string: str) -> list[Any]:
        """The active runs of all experiments that a filter finds, the oldest first."""
        with self.reading():
            experiments = [e.experiment_id for e in _every(self.client.search_experiments)]
            order = ["attributes.start_time ASC"]
            return _every(self.client.search_runs, experiments, filter_string, order_by=order)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raises UserError where the store cannot be used."""
        try:
            yield
        except store_errors() as error:
            raise UserError(unusable(self.uri, error)) from None


def _every(search: Callable[..., Any], *what: Any, **how: Any) -> list[Any]:
    """What a search of MLflow's finds, of which one answer has the first thousand."""
    page = search(*what, **how)
    found = list(page)
    while page.token:
        page = search(*what, page_token=page.token, **how)
        found += page
    return found


# --- models --------------------------------------------------------------------------------------


@contextlib.contextmanager
def model_folder(name: str, config: Config, project: Path) -> Iterator[Path]:
    """The folder of a model: `models:/NAME@ALIAS`, `models:/NAME/VERSION`, `models:/m-...`, or the
    id of a run, or how it begins; of a training that of its newest evaluation.

    What is kept elsewhere is downloaded, and removed when the block ends. Raises UserError when
    there is none, and when MLflow cannot be used.
    """
    reader = StoreReader(resolve_uri(config.tracking, project))
    place = _of_uri(reader, name) if name.startswith("models:/") else _of_run(reader, name)
    with TemporaryDirectory(prefix="seq2sweep-model-") as folder:
        with reader.reading():
            try:
                if _is_local(place):
                    found = _copy(reader, place, None)
                else:
                    found = Path(folder)
                    _download(reader, name, place, found)
            except MlflowException as error:
                if refuses(error):
                    raise UserError(gone(name, place)) from None
                raise
        if not (found / MANIFEST).exists():
            raise UserError(
                f"{name} is no model that this version of seq2sweep can load: evaluate it "
                "again, by `dvc repro -f evaluate`"
            )
        yield found


def _download(reader: StoreReader, name: str, place: str, folder: Path) -> None:
    """Copy a model's files into a folder. What else lies beside them, of any size, stays there."""
    listed = mlflow.artifacts.list_artifacts(artifact_uri=place, tracking_uri=reader.uri)
    if not listed:
        raise UserError(gone(name, place))
    sizes = {PurePosixPath(one.path).name: one.file_size or 0 for one in listed if not one.is_dir}
    files = sorted(sizes.keys() & MODEL_FILES)
    # MLflow would tell of a disk that is full in many lines, as the store's fault.
    needed, free = sum(sizes[file] for file in files), shutil.disk_usage(folder).free
    if needed > free:
        raise OperationalError(
            f"{name} has {tqdm.format_sizeof(needed, 'B')}, and {folder.parent} "
            f"{tqdm.format_sizeof(free, 'B')} free: make room there, or set TMPDIR"
        )
    for file in files:
        # Some stores put it below the folder's name, others do not.
        _copy(reader, f"{place.rstrip('/')}/{file}", folder).replace(folder / file)


def _copy(reader: StoreReader, place: str, folder: Path | None) -> Path:
    """Where a copy of what is at an address is; None: it itself, which is on this machine."""
    return Path(
        mlflow.artifacts.download_artifacts(
            artifact_uri=place, dst_path=folder and str(folder), tracking_uri=reader.uri
        )
    )


def _of_uri(reader: StoreReader, name: str) -> str:
    """Where the files of a model are that is named as MLflow does. Raises UserError."""
    client, rest = reader.client, name.removeprefix("models:/")
    with reader.reading():
        try:
            if "@" in rest:
                registered, _, alias = rest.partition("@")
                version = str(client.get_model_version_by_alias(registered, alias).version)
            elif "/" in rest:
                registered, _, version = rest.rpartition("/")
                if len(version) > LONGEST_VERSION:
                    raise UserError(f"{name}: MLflow has no such model")
            else:
                return str(client.get_logged_model(rest).artifact_location)
            # Not its source, which may be the name of another model.
            return str(client.get_model_version_download_uri(registered, version))
        except MlflowException as error:
            if refuses(error):
                raise UserError(f"{name}: MLflow has no such model ({reason(error)})") from None
            raise


def _of_run(reader: StoreReader, name: str) -> str:
    """Where the files of a run's model are, or else of the newest run below it that has one."""
    run_id = reader.find(name)
    models = reader.models(run_id)
    # Up from the few runs that have one: below a sweep there may be thousands.
    above = {str(model.source_run_id): str(model.source_run_id) for model in models}
    begun: dict[str, int] = {}
    for _ in range(DEEPEST):
        runs = reader.runs({*above.values()})
        begun = begun or {run: found.info.start_time for run, found in runs.items()}
        if found := [model for model in models if above.get(model.source_run_id) == run_id]:
            # MLflow's time of a model is that of its delivery, which may come days after.
            times = [(begun[model.source_run_id], model.creation_timestamp) for model in found]
            return str(found[times.index(max(times))].artifact_location)
        parents = {run: runs[at].data.tags.get(PARENT) for run, at in above.items() if at in runs}
        above = {run: str(parent) for run, parent in parents.items() if parent is not None}
    raise UserError(
        f"the run {run_id} has no model: evaluations have one, and the best variants of "
        "sweeps; a training or a sweep stands for its newest"
    )
