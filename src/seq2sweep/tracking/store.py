"""The MLflow store: where it is, how it is opened, and what its errors mean."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy
from alembic.util.exc import CommandError
from google.protobuf.json_format import ParseError
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import SQLAlchemyError

from seq2sweep.errors import UserError
from seq2sweep.redaction import redact
from seq2sweep.tracking.address import reason

# What the store may raise when it is away, is something else, or refuses a record.
STORE_ERRORS = (MlflowException, ParseError, SQLAlchemyError, CommandError, OSError)

# Not BAD_REQUEST: MLflow says that of a database that has gone away, too.
REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
)


def open_database(uri: str, artifacts: str) -> None:
    """Connect once, since MLflow would retry for minutes, and make a missing SQLite file.

    Making the tables takes seconds. Two processes at it at once, or one that is interrupted,
    leave a file that is broken for good: so they are made in a file of our own, and the whole
    is put in place only if no other process was faster.
    """
    url = sqlalchemy.make_url(uri)
    path = Path(url.database or "")
    if url.drivername == "sqlite" and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            beside = Path(folder) / path.name
            SqlAlchemyStore(f"sqlite:///{beside}", artifacts).engine.dispose()
            try:
                os.link(beside, path)
            except FileExistsError:
                pass  # another process was faster
            except OSError:
                beside.rename(path)  # a file system without hard links
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.connect() as connection:
            sqlalchemy.inspect(connection).get_table_names()
    finally:
        engine.dispose()


def open_experiment(client: Any, name: str, location: str | None) -> str:
    """The id of an experiment, made if missing with its artifacts at `location`."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another process was faster
    if found.lifecycle_stage != "active":
        raise UserError(
            f"tracking.experiment: {name!r} was deleted in MLflow; restore it "
            f"(`mlflow experiments restore -x {found.experiment_id}`) or choose another name"
        )
    return str(found.experiment_id)


def refuses(error: BaseException) -> bool:
    """Whether the store has answered that it will never take a request as it is."""
    return isinstance(error, MlflowException) and error.error_code in REFUSALS


def unusable(uri: str, error: BaseException) -> str:
    """The line that tells a user why a store cannot be used and how to mend it."""
    # MLflow wraps "connection refused" in four layers of text.
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if uri.startswith("sqlite:"):
        mend = (
            "make sure that you may read and write it, move it away to begin a new one, "
            "or name another in tracking.uri"
        )
    else:
        mend = (
            "start it, fix tracking.uri (or $MLFLOW_TRACKING_URI), "
            "or set it to null to record in mlflow.db"
        )
    return f"tracking.uri: the MLflow store {redact(uri)} cannot be used ({reason(error)}): {mend}"
