"""The MLflow store: its address, how it is opened and shown, and what its errors mean."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy
from alembic.util.exc import CommandError
from google.protobuf.json_format import ParseError
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import SQLAlchemyError

from seq2sweep.config import Config, TrackingConfig
from seq2sweep.console import say
from seq2sweep.errors import OperationalError, UserError, first_line
from seq2sweep.health import Finding
from seq2sweep.ports import listening, port_number
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import first_of_processes
from seq2sweep.tracking import DATABASES, SERVERS, check_address, check_environment, is_server
from seq2sweep.tracking.outbox import outboxes_folder

HOST = "127.0.0.1"
PORT = "5000"
SECONDS_TO_END = 10
"""That the page's server has once it is asked to."""

# When it is away, is something else, or refuses a record. ImportError: a client of its database or
# of the bucket of its files is not installed.
STORE_ERRORS = (MlflowException, ParseError, SQLAlchemyError, CommandError, OSError, ImportError)
# The same of a bucket that files go to without a server between, by the module that has them.
BUCKET_ERRORS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "boto3.exceptions": ("Boto3Error",),
    "google.api_core.exceptions": ("GoogleAPIError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "azure.core.exceptions": ("AzureError",),
}

# Not BAD_REQUEST: MLflow says that of a database that has gone away, too.
REFUSALS = (
    *("INVALID_PARAMETER_VALUE", "INVALID_STATE"),
    *("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"),
)

# Of an experiment of models that are trained: MLflow's pages have others for language models.
KIND = {"mlflow.experimentKind": "custom_model_development"}
MACHINE_LEARNING = "workflowType=machine_learning"

VIEWS = "mlflow.sharedViewState."
"""With a name behind it, the tag of an experiment that holds a view which its page of runs offers.
Nothing documents what is in it: it is as `Save view` of MLflow 3.17 writes it."""
RUNS, VARIANTS = "runs", "variants"
"""The views of all runs, and of the newest sweep's variants."""
COLUMNS = (
    *(f"metrics.`{name}`" for name in ("score/bleu", "score/f1", "score/valid_bleu")),
    *(f"metrics.`{name}`" for name in ("score/valid_f1", "train/valid_perplexity")),
    *(f"metrics.`{name}`" for name in ("cost/flops", "cost/parameters", "cost/device_hours")),
    *("tags.`changes`", "attributes.`Models`", "attributes.`Source`", "attributes.`Dataset`"),
)

KEY = "seq2sweep.key"
"""The tag by which a run is found again: its outbox's name, a dot and what makes it unique."""
PARENT = "mlflow.parentRunId"


class Experiment:
    """One experiment in one MLflow store, with its client."""

    def __init__(self, uri: str, name: str, artifacts: Path) -> None:
        """Open or create the experiment `name` at `uri` (as `resolve_uri` gives it).

        Files of runs go below the folder `artifacts`; a server (http) chooses their place itself.
        Raises UserError when the store cannot be used.
        """
        location = artifacts.resolve().as_uri()
        try:
            self.client = open_store(uri, location)
            self.id = _open_experiment(self.client, name, None if is_server(uri) else location)
            self._arrange()
        except store_errors() as error:
            raise UserError(unusable(uri, error)) from None

    def _arrange(self) -> None:
        """Have its page as it is good for trainings; what a person has chosen stays."""
        view = saved_view("All runs", 0.0, {"selectedColumns": COLUMNS, "columnOrder": COLUMNS})
        known = self.client.get_experiment(self.id).tags
        for key, value in (KIND | {f"{VIEWS}{RUNS}": view}).items():
            if key not in known:
                with contextlib.suppress(MlflowException):  # to who may only read
                    self.client.set_experiment_tag(self.id, key, value)

    def page(self, uri: str, *views: str, port: str = PORT) -> str:
        """The address of its runs, in the first of these views that there is."""
        known = self.client.get_experiment(self.id).tags
        view = next((f"&viewStateShareKey={one}" for one in views if VIEWS + one in known), "")
        charts = "&compareRunsMode=CHART" * view.endswith(VARIANTS)
        return address(uri, f"{self.id}/runs", port) + view + charts

    def find(self, key: str) -> list[Any]:
        """The runs of this key as MLflow has them, the oldest first; without deleted ones."""
        return self.search(f"tags.`{KEY}` = '{key}'")

    def delete_duplicates(self, key: str, run_id: str) -> None:
        """Delete empty runs of a run's key: a request answered too late may have created two."""
        for found in self.find(key):
            empty = not (found.data.params or found.data.metrics)
            if empty and found.info.run_id != run_id and found.info.status == "RUNNING":
                self.client.delete_run(found.info.run_id)

    def has(self, run_id: str) -> bool:
        """Whether a run of this id is among its own, and was not deleted."""
        try:
            info = self.client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return (info.experiment_id, info.lifecycle_stage) == (self.id, "active")

    def newest(self, prefix: str) -> str | None:
        """The id of the newest run whose key begins like this."""
        found = self.search(f"tags.`{KEY}` LIKE '{prefix}%'")
        return str(found[-1].info.run_id) if found else None

    def search(self, filter_string: str) -> list[Any]:
        """The active runs that a filter finds, the oldest first; at most 1000."""
        order = ["attributes.start_time ASC"]  # then by id
        return list(self.client.search_runs([self.id], filter_string, order_by=order))


def open_store(uri: str, artifacts: str) -> Any:
    """A client of a store. artifacts: where files go of a database that is made here.

    A database is connected to once, since MLflow would retry for minutes, and a missing SQLite file
    made. Making the tables takes seconds. Two processes at it at once, or one that is interrupted,
    leave a file that is broken for good: so they are made in a file of our own, and the whole
    is put in place only if no other process was faster.
    """
    path = sqlite_file(uri)
    if path and not path.exists():
        with first_of_processes(path) as beside:
            SqlAlchemyStore(f"sqlite:///{beside}", artifacts).engine.dispose()
    if not is_server(uri):
        engine = sqlalchemy.create_engine(uri)
        try:
            with engine.connect() as connection:
                sqlalchemy.inspect(connection).get_table_names()
        finally:
            engine.dispose()
    # The registry's address is given too, else MLflow opens a default one for it.
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _open_experiment(client: Any, name: str, location: str | None) -> str:
    """The id of an experiment, created if missing with its artifacts at `location`."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another process was faster
    if found.lifecycle_stage != "active":
        command, uri = f"mlflow experiments restore -x {found.experiment_id}", client.tracking_uri
        how = f"`MLFLOW_TRACKING_URI={shlex.quote(uri)} {command}`"
        if redact(uri) != uri:
            how = f"`{command}`, with MLFLOW_TRACKING_URI set to the store's address"
        raise UserError(
            f"tracking.experiment: {name!r} was deleted in MLflow: restore it ({how}) or choose "
            "another name"
        )
    place = urlsplit(found.artifact_location)
    folder = Path(unquote(place.path))
    if location and place.scheme == "file" and folder.resolve().as_uri() != location:
        say(
            f"tracking.experiment: files of {name!r} go to {folder}: name another to have them here"
        )
    return str(found.experiment_id)


# --- its address ---------------------------------------------------------------------------------


def destination(config: Config, project: Path) -> tuple[Path, str, str, Path]:
    """The folder of all outboxes, and what they go to, as of `store_of`. Raises as both do."""
    return outboxes_folder(config.cluster, project), *store_of(config, project)


def store_of(config: Config, project: Path) -> tuple[str, str, Path]:
    """What is recorded to: URI, experiment and folder of artifacts. Raises as `resolve_uri`."""
    uri = resolve_uri(config.tracking, project)
    # Beside SQLite's file: the project may be a copy, which goes when a job has ended.
    place = file.parent if (file := sqlite_file(uri)) else project
    return uri, config.tracking.experiment, place / "mlartifacts"


def resolve_uri(config: TrackingConfig, project: Path) -> str:
    """Where runs are recorded: `tracking.uri`, else $MLFLOW_TRACKING_URI, else mlflow.db.

    A path in a sqlite address is made absolute from the `project` folder, since workers run in
    folders of their own; for PostgreSQL the driver is named that the extra `postgresql` installs,
    since SQLAlchemy would choose another. Raises UserError for an address that cannot be read or is
    neither a database nor a server, a path that it cannot have, and an environment that MLflow
    refuses.
    """
    check_environment()
    key = "params.yaml: tracking.uri" if config.uri else "environment: MLFLOW_TRACKING_URI"
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    check_address(uri, key)
    folder = project.resolve()
    scheme, separator, rest = uri.partition("://")
    # A database's driver may be named too: postgresql+psycopg2.
    scheme, file = scheme.removesuffix("+pysqlite"), rest.partition("?")[0].strip("/")
    known = separator and scheme.partition("+")[0] in SERVERS + DATABASES
    if not known or (scheme == "sqlite" and file in ("", ":memory:")):
        raise UserError(
            f"{key} must be a database or a server, such as sqlite:///mlflow.db or "
            f"http://host:5000, not {redact(uri)!r}"
        )
    if scheme == "sqlite" and rest.startswith("/"):
        # SQLAlchemy ends a path at a ?, and reads %2F as a slash.
        unfit = re.search(r"\?|%[0-9A-Fa-f]{2}", str(folder))
        if unfit and not rest.startswith("//"):
            raise UserError(
                f"{folder}: no address of SQLite's can have {unfit[0]} in it, so that runs would "
                "be recorded elsewhere: rename the folder, or name a server in tracking.uri"
            )
        return f"sqlite:///{folder / rest[1:]}"
    return f"postgresql+psycopg2://{rest}" if scheme == "postgresql" else uri


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store, whose address may end in options; None for another store."""
    name = sqlalchemy.make_url(uri).database if uri.startswith("sqlite:") else None
    return Path(name) if name else None


def saved_view(title: str, time: float, state: Mapping[str, Any]) -> str:
    """What the tag of a view holds. state: as the page keeps it; time: in unix seconds."""
    return json.dumps({"name": title, "createdAt": round(time * 1000), "state": json.dumps(state)})


def saved_at(tag: str | None) -> int:
    """When the view was saved that a tag holds, in unix milliseconds; 0 where it holds none."""
    try:
        return int(json.loads(tag or "")["createdAt"])
    except (ValueError, TypeError, KeyError):
        return 0


def address(uri: str, page: str, port: str = PORT) -> str:
    """Of a page of MLflow, in its view for trainings; of a database's, as `make ui` serves it.

    page: behind `experiments/`. Without the view's name 3.17 opens that for language models,
    whatever kind an experiment is of.
    """
    server = redact(uri) if is_server(uri) else f"http://{HOST}:{port}"
    return f"{server}/#/experiments/{page}?{MACHINE_LEARNING}"


def compare_page(config: Config, project: Path) -> str | None:
    """The address where variants are compared, or all runs; None where there is no store."""
    uri, name, artifacts = store_of(config, project)
    if (file := sqlite_file(uri)) and not file.exists():
        return None
    with contextlib.suppress(UserError, *store_errors()):
        return Experiment(uri, name, artifacts).page(uri, VARIANTS, RUNS)
    return None


# --- its errors ----------------------------------------------------------------------------------


def store_errors() -> tuple[type[Exception], ...]:
    """STORE_ERRORS, and BUCKET_ERRORS of what has been imported: nothing else can have raised."""
    found = [
        getattr(sys.modules.get(module), name, None)
        for module, names in BUCKET_ERRORS.items()
        for name in names
    ]
    return (*STORE_ERRORS, *(kind for kind in found if kind is not None))


class RefusedError(Exception):
    """A record cannot be delivered as it is; the message says why."""


def reason(error: BaseException) -> str:
    """What an error says, as one short line without passwords."""
    line = redact(first_line(error))
    return line if len(line) <= 200 else f"{line[:197]}..."


def refuses(error: BaseException) -> bool:
    """Whether the store has answered that it will never take a request as it is."""
    return isinstance(error, MlflowException) and error.error_code in REFUSALS


def unusable(uri: str, error: BaseException) -> str:
    """The line that tells a user why a store cannot be used and how to mend it."""
    # MLflow wraps "connection refused" in four layers of text.
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    mend = "start it, fix tracking.uri (or $MLFLOW_TRACKING_URI), "
    mend += "or set it to null to record in mlflow.db"
    if uri.startswith("sqlite:"):
        mend = "make sure that you may read and write it, move it away to begin a new one, "
        mend += "or name another in tracking.uri"
    return f"tracking.uri: the MLflow store {redact(uri)} cannot be used ({reason(error)}): {mend}"


def examine(config: Config, project: Path) -> Finding:
    """Whether MLflow can be reached and written to, for `seq2sweep doctor`.

    Opens the experiment, which is created if it is missing, and sets a tag of it.
    """
    uri = config.tracking.uri or ""
    try:
        uri, name, artifacts = store_of(config, project)
        file = sqlite_file(uri)
        above = next(place for place in file.parents if place.exists()) if file else project
        if file and not file.exists() and above.is_dir() and os.access(above, os.W_OK):
            made = f"{file} is made by the first stage that trains"
            return Finding("MLflow", "store", "well", made)
        experiment = Experiment(uri, name, artifacts)
        experiment.client.set_experiment_tag(experiment.id, "seq2sweep.doctor", "was here")
        return Finding("MLflow", "store", "well", f"{redact(uri)} answers and takes records")
    except UserError as error:
        said = str(error)
    except store_errors() as error:
        said = unusable(uri, error)
    return Finding.of_error("MLflow", "store", said)


# --- its page ------------------------------------------------------------------------------------


def serve(config: Config, project: Path, port: str) -> None:
    """Show the store on a page of this machine until a KeyboardInterrupt; of a server, say where
    its page is.

    It is opened here: making its tables is not the server's job. Raises UserError where nothing can
    listen at the port, and OperationalError when the server fails.
    """
    number = port_number(port)
    uri, name, artifacts = store_of(config, project)
    if not (remote := is_server(uri)):
        listening(HOST, number, "make ui PORT=").close()
    experiment = Experiment(uri, name, artifacts)
    runs = experiment.page(uri, RUNS, port=port)
    variants = experiment.page(uri, VARIANTS, RUNS, port=port)
    say(f"Runs are recorded by a server: {runs}" if remote else f"Open {runs}")
    if variants != runs:
        say(f"Variants and what they cost: {variants}")
    if remote:
        return
    say("(Ctrl-C ends it)")
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(number)]
    command += ["--workers", "1", "--uvicorn-opts", "--log-level warning"]
    defaults = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    # Not among the arguments, which every user of this machine can read.
    status = _run_together(command, defaults | os.environ | {"MLFLOW_BACKEND_STORE_URI": uri})
    if status != 0:
        raise OperationalError(f"the MLflow server ended with status {status}: its log is above")


def _run_together(command: list[str], environment: dict[str, str]) -> int:
    """The status of a command; 0 where a KeyboardInterrupt ends the wait, and with it all that the
    command has started."""
    with subprocess.Popen(command, env=environment, start_new_session=True) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            for last in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, last)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(SECONDS_TO_END)
            return 0
