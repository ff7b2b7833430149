"""Runs, models and lineage in MLflow; the only package that imports mlflow.

lineage       where a result comes from: code, data, parameters, libraries and machine
recorder      what a stage says of a run, on disk when a call returns
sweep_runs    the runs of a sweep's variants and seeds, recorded as its trials end
outbox        what is recorded and not delivered yet: files, locks, how far MLflow has it
relay         from the outboxes to MLflow, each record once and in order
delivery      of one outbox: its records, applied in order
relay_thread  that beside a stage's work, and for `seq2sweep sync`
mlflow_store  the store: its address, how it is opened and shown, what its errors mean
mlflow_runs   a run in MLflow, written; every call may be repeated
store_reader  runs and models of a store, for who reads only

The first four need no mlflow, and importing this package costs nothing. What is set here must stand
in the environment before mlflow is imported; what the user has set is left alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from seq2sweep import console
from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "what is recorded of a result"

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
FILES = ("sqlite", "file")
"""Their addresses have no password, and paths may have spaces and an @."""
_ONE_HOST = re.compile("([^:/]*(:[^@]*)?@)?[^@]*")
"""A database's address behind its scheme, as SQLAlchemy reads it, with no @ but the one before its
host, and those of a user (`ada@server`)."""

SLOWEST_UPLOAD = 1e6
"""Bytes a second that are waited for: to a store, and from a server on to its bucket."""
TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"

console.quiet_environment()
for _name, _value in {
    # relay.py tries again itself, and knows what may be done twice; MLflow's own values are
    # 120 s and seven retries.
    TIMEOUT: "30",
    RETRIES: "0",
    # For a PostgreSQL server that accepts connections and never answers.
    "PGCONNECT_TIMEOUT": "30",
    # Its errors come with tracebacks; one line of ours says what fails.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    # The "View run" lines show the server's address, and a password in it.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}.items():
    os.environ.setdefault(_name, _value)

_upload = threading.Lock()


def check_environment() -> None:
    """Raise UserError where the user's timeout, or number of retries, is none that MLflow takes."""
    for name, form, most in (
        (TIMEOUT, "whole seconds, such as 30", math.inf),
        (RETRIES, "a number from 0 to 10", 10),
    ):
        given = os.environ[name].strip()
        if not given.isdecimal() or int(given) > most:
            raise UserError(f"environment: {name} must be {form}, not {given!r}")


def is_server(uri: str) -> bool:
    """Whether a store's address is a server's, not a database's."""
    return uri.partition("://")[0] in SERVERS


def check_address(uri: str, key: str) -> None:
    """Raise UserError, which shows none of it, where an address from this key cannot be read.

    Nor is one taken in which a special character of a password stands unquoted: what reads it would
    take a part of the password for the host, and say it where that does not answer.
    """
    scheme, separator, _ = uri.partition("://")
    kind = scheme.partition("+")[0]
    readable = kind in FILES or re.search(r"\s", uri) is None
    if kind in SERVERS:
        readable = readable and _is_of_server(uri)
    elif kind in DATABASES:
        readable = readable and _is_of_database(uri)
    if separator and not readable:
        raise UserError(
            f"{key}: the address of the server or the database cannot be read: it must be like "
            "http://host:5000 or postgresql://host:5432/name, with USER:PASSWORD@ before the host; "
            "inside a name or password write % as %25, then white space and @ # / ? [ ] \\ as "
            "%20 %40 %23 %2F %3F %5B %5D %5C; in a path white space and @ as %20 %40"
        )


def _is_of_server(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    # What sends the requests ends a host at a \, too.
    return bool(host) and port != 0 and "@" not in "".join(parts[2:]) and "\\" not in uri


def _is_of_database(uri: str) -> bool:
    import sqlalchemy

    try:
        sqlalchemy.make_url(uri)
    except (ValueError, sqlalchemy.exc.SQLAlchemyError):
        return False
    scheme, _, rest = uri.partition("://")
    return scheme.partition("+")[0] in FILES or _ONE_HOST.fullmatch(rest) is not None


def recorded_later(at: float, than: float) -> bool:
    """Whether what the store has of time `at` is later than what is delivered, in unix seconds.

    Nothing was recorded after it came to the store: a time ahead of the clock here is of a machine
    whose clock was wrong, and would keep out all others for as long as it is ahead.
    """
    return than < at <= time.time()


def sizes(path: Path) -> list[int]:
    """Bytes of a file, or of each in a folder; none where it is gone."""
    files = path.rglob("*") if path.is_dir() else [path]
    return [file.stat().st_size for file in files if file.is_file()]


@contextlib.contextmanager
def timeout_of_upload(path: Path) -> Iterator[None]:
    """In the block a request may take as long as the file, or the largest of the folder, asks for.

    A server answers when all of a file is in its bucket. MLflow knows one timeout, in seconds, for
    every request of a process: that of other threads is as long meanwhile, and one uploads at once.
    """
    largest = max(sizes(path), default=0)
    with _upload:
        usual = os.environ[TIMEOUT]
        os.environ[TIMEOUT] = str(int(usual) + math.floor(largest / SLOWEST_UPLOAD))
        try:
            yield
        finally:
            os.environ[TIMEOUT] = usual
