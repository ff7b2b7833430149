"""The MLflow store: how it is opened, and in which form it takes values."""

from __future__ import annotations

import json
import math
import numbers
import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy
from alembic.util.exc import CommandError
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import SQLAlchemyError

from seq2sweep.errors import UserError

# What the store may raise when it is away or refuses a record.
STORE_ERRORS = (MlflowException, SQLAlchemyError, CommandError, OSError)

METRICS_PER_BATCH = 1000
LONGEST_PARAM = 6000
# MLflow 3 takes 8000 characters in a tag, older servers 5000.
LONGEST_TAG = 5000
LONGEST_DIGEST = 36


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
            "start it, mend tracking.uri (or $MLFLOW_TRACKING_URI), "
            "or set it to null to record in mlflow.db"
        )
    return f"tracking.uri: the MLflow store {redact(uri)} cannot be used ({reason(error)}): {mend}"


# --- values ------------------------------------------------------------------------------------


def redact(text: str) -> str:
    """Mask passwords: the `user:password@` part of addresses, and secrets in their queries."""
    text = re.sub(r"://[^/\s]*@", "://***@", text)
    return re.sub(
        r"([?&][^=&\s]*(?:password|token|secret|key)[^=&\s]*=)[^&\s'\"]+",
        r"\1***",
        text,
        flags=re.IGNORECASE,
    )


def reason(error: BaseException) -> str:
    """What an error says, as one short line without passwords."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return cut(redact(lines[0]), 200)


def cut(text: str, longest: int) -> str:
    """Shorten text to `longest` characters, and say so at its end."""
    if len(text) <= longest:
        return text
    note = f"... [cut, {len(text)} characters in all]"
    return text[: longest - len(note)] + note


def finite(key: str, value: Any) -> bool:
    """Whether a metric's value is finite. Raises TypeError if it is no number at all."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"metric {key} must be a number, not {value!r}")
    return math.isfinite(value)


def param_text(value: Any) -> str:
    """A parameter's value as MLflow holds it: JSON but for text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(redact(text), LONGEST_PARAM)


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with passwords masked and long values cut with a note."""
    return {key: cut(redact(value), LONGEST_TAG) for key, value in tags.items()}
