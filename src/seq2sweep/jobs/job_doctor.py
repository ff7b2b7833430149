"""Would a job be taken? What `seq2sweep doctor` looks at where cluster.job_server is set."""

from __future__ import annotations

from pathlib import Path

from seq2sweep.cluster.job_client import JobServer
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.health import Finding
from seq2sweep.jobs import bundle, submit

HERE = "this machine"


def examine(config: Config, address: str, project: Path) -> list[Finding]:
    """What would be uploaded, what records, and whether the job server answers and takes our token.

    Nothing leaves this machine but a question to the server.
    """
    return [_package(project), _records(config), _server(address)]


def nodes_line(address: str) -> str:
    """How to have each node looked at, which only the cluster itself can do."""
    return (
        "each node is looked at from inside of the cluster: ray job submit "
        f"--address {address} --working-dir . -- python -m seq2sweep.cli doctor"
    )


def _package(project: Path) -> Finding:
    try:
        content = bundle.collect(project)
    except UserError as error:
        return _problem("package", error)
    text = f"{len(content.files)} files, {bundle.mebibytes(content.bytes)}"
    return Finding(HERE, "package", "well", text)


def _records(config: Config) -> Finding:
    try:
        submit.check_records_stay(config)
    except UserError as error:
        return _problem("records of a job", error)
    return Finding(HERE, "records of a job", "well", "go to a store that outlives the job")


def _server(address: str) -> Finding:
    try:
        JobServer(address)
    except UserError as error:
        return _problem("job server", error)
    return Finding(HERE, "job server", "well", f"{address} answers, and takes our token")


def _problem(what: str, error: UserError) -> Finding:
    text, _, remedy = str(error).rpartition(": ")
    return Finding(HERE, what, "problem", text, remedy)
