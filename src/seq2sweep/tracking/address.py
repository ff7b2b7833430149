"""Where runs are recorded, and what is wrong with it in a line; needs no mlflow."""

from __future__ import annotations

import os
from pathlib import Path

from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.redaction import redact

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def resolve_uri(config: TrackingConfig, project: Path) -> str:
    """Where runs are recorded: `tracking.uri`, else $MLFLOW_TRACKING_URI, else mlflow.db.

    A path in a sqlite address is made absolute from the `project` folder, since workers run in
    folders of their own; for PostgreSQL the driver is named that the extra `postgresql` installs,
    since SQLAlchemy would choose another. Raises UserError for an address that is neither a
    database nor a server.
    """
    if config.uri:
        uri, key = config.uri, "params.yaml: tracking.uri"
    else:
        uri, key = os.environ.get("MLFLOW_TRACKING_URI", ""), "environment: MLFLOW_TRACKING_URI"
    if not uri:
        return f"sqlite:///{project.resolve() / 'mlflow.db'}"
    scheme, separator, rest = uri.partition("://")
    # A database's driver may be named too: postgresql+psycopg2.
    if not separator or scheme.partition("+")[0] not in SERVERS + DATABASES:
        raise UserError(
            f"{key} must be a database or a server, such as sqlite:///mlflow.db or "
            f"http://host:5000, not {redact(uri)!r}"
        )
    if scheme == "sqlite" and rest.startswith("/"):
        return f"sqlite:///{project.resolve() / rest[1:]}"
    if scheme == "postgresql":
        return f"postgresql+psycopg2://{rest}"
    return uri


def reason(error: BaseException) -> str:
    """What an error says, as one short line without passwords."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = redact(lines[0])
    return line if len(line) <= 200 else f"{line[:197]}..."
