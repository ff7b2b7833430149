"""Would a job be taken? What `seq2sweep doctor` looks at where cluster.job_server is set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seq2sweep.cluster.job_client import JobServer
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.health import Finding
from seq2sweep.jobs import bundle, submit


def examine(config: Config, address: str, project: Path) -> list[Finding]:
    """What would be uploaded, what records, and whether the job server answers and takes our token.

    Nothing leaves this machine but a question to the server.
    """

    def package() -> str:
        content = bundle.collect(project)
        return f"{len(content.files)} files, {bundle.mebibytes(content.bytes)}"

    def records() -> str:
        submit.check_records_stay(config)
        return "go to a store that outlives the job"

    def server() -> str:
        JobServer(address)
        return f"{address} answers, and takes our token"

    checks = {"package": package, "records of a job": records, "job server": server}
    return [_finding(what, check) for what, check in checks.items()]


def nodes_line(address: str) -> str:
    """How to have each node looked at, which only the cluster itself can do."""
    return (
        "each node is looked at from inside of the cluster: ray job submit "
        f"--address {address} --working-dir . -- python -m seq2sweep.cli doctor"
    )


def _finding(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding("this machine", what, "well", check())
    except UserError as error:
        text, _, remedy = str(error).rpartition(": ")
        return Finding("this machine", what, "problem", text, remedy)
