"""The program of a job: download the inputs made at home, run the stages, upload the results.

It runs in the job's copy of the project, in the cluster, as `python -m seq2sweep.jobs.entrypoint`.
Its exit status is that of the stage that failed, where DVC tells it: 2 and 75 as everywhere.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from seq2sweep import console, project_files
from seq2sweep.config import KEEPING_FAILURES
from seq2sweep.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    OperationalError,
    UserError,
)
from seq2sweep.jobs import dvc_stages, results
from seq2sweep.paths import read_json
from seq2sweep.redaction import redact

DESCRIPTION = ".seq2sweep-job.json"
"""In the uploaded project, so that each job has a copy of its own: Ray keeps one for the same
content."""
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the environment of a job's program, and nowhere else."""
VALUES = "environment"
"""Key of the job's metadata: the file with the variables that it gets."""
KILLED = 137
"""The exit status of a job whose stage was killed by SIGKILL, as shells have it."""
LAG_SECONDS = 60.0
"""How long a network file system may take to show here what another machine has written."""
TAIL = 1 << 16


@dataclass(frozen=True)
class Description:
    """What a job is told: its id, the stage, the commit of its code, the storage, and the sum of
    each path that comes from home."""

    job: str
    stage: str
    commit: str
    storage: str
    inputs: dict[str, str]


def is_inside() -> bool:
    """Whether this process belongs to a job: what it is asked for, it does itself."""
    return JOB_CONFIG in os.environ


def results_of_stage() -> str:
    """Inside a job where its results will be, so that whoever removes them can have it run again;
    elsewhere ''."""
    file = Path(DESCRIPTION)
    if not is_inside() or not file.exists():
        return ""
    about = Description(**json.loads(file.read_text(encoding="utf-8")))
    return f"{results.storage_at(about.storage).address}/{results.of_job(about.job)}"


def seen_by_all_nodes(made: Path, storage: Path, name: str) -> Path:
    """The full path of a folder that workers read.

    In a job the project lies on the head's own disk: what the stages before made there is put into
    the storage for the workers on other nodes, as `name`.
    """
    place = made.resolve()
    if not is_inside() or place.is_relative_to(storage.resolve()):
        return place
    where = results.of_input(name, place.name)
    results.put(place.parent, [place.name], results.storage_at(str(storage)), where)
    return storage / where / place.name


def reason(log: str) -> str:
    """The line that says why a job ended: a stage's own, or else its last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    own = [line for line in lines[-50:] if re.match(r"seq2sweep \w+: ", line)]
    return (own or lines or ["no output"])[-1]


def main() -> int:
    """Do what the description says; gives the exit status."""
    console.ready_streams(lasting=True)  # the head's disk may be full of logs
    description = Description(**json.loads(Path(DESCRIPTION).read_text(encoding="utf-8")))
    try:
        line, status = _work(description)
    except (UserError, OperationalError, OSError) as error:
        line = f"seq2sweep {description.stage}: {error}"
        status = EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_FAILURE
    print(redact(line), flush=True)  # the last of the log
    return status


def _work(description: Description) -> tuple[str, int]:
    """The last line of the log, and the exit status."""
    project, storage = Path.cwd(), results.storage_at(description.storage)
    order = results.of_job(description.job, results.ORDER)
    if not results.wait_for(storage, order, LAG_SECONDS):
        raise UserError(
            f"cluster.storage {storage.address} is another on this node than where the job was "
            "submitted: mount the same folder on both, or name the same bucket of the same server"
        )
    results.check_writable(storage, results.of_job(description.job))
    values = json.loads(os.environ[JOB_CONFIG])["metadata"].get(VALUES)
    environment = os.environ | (results.take_values(storage, values) if values else {})
    if _has_lost_trials(project, description):
        # In what Ray has kept of this copy DVC would take the sweep for done.
        (project / "dvc.lock").write_bytes(dvc_stages.lock_of_inputs(project, "sweep"))
    for path, total in description.inputs.items():
        results.get_input(storage, total, path, project)
    # The copy has no git.
    (project / ".dvc").mkdir(exist_ok=True)
    (project / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    command = [sys.executable, "-m", "dvc", "repro", "--no-commit", "--allow-missing"]
    if description.inputs:
        # What lies before the inputs is not here, nor `data.folder` where git does not have it, and
        # DVC would look for both: it is to run these stages alone.
        command += ["--single-item", *dvc_stages.running_in_job(project, description.stage)]
    elif description.stage != dvc_stages.ALL:
        command += [description.stage]
    status, tail = _run(command, environment)
    if status != 0:
        return reason(tail), KILLED if status < 0 else _status_of_stage(tail)
    where = results.of_job(description.job)
    results.put(project, dvc_stages.outputs(project, description.stage), storage, where)
    # Whoever removes them wants all but the data made again, in what Ray may keep of this copy. A
    # job that failed goes on there.
    made = description.stage if description.inputs else dvc_stages.ALL
    (project / "dvc.lock").write_bytes(dvc_stages.lock_of_inputs(project, made))
    return f"results are in {storage.address}/{where}", 0


def _has_lost_trials(project: Path, description: Description) -> bool:
    """Whether trials of the sweep have failed, or have no score, that an attempt before ran here:
    who submits the job again has them tried again."""
    path = project / project_files.SWEEP
    if str(project_files.SWEEP) in description.inputs or not path.exists():
        return False
    report = read_json(path)
    if report["method"] in KEEPING_FAILURES:
        return False
    return any(trial["cause"] and trial["status"] != "refused" for trial in report["trials"])


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command with its output passed on as it comes; gives its status and the output's end.

    The folder of this Python comes first on the path: dvc.yaml says `python`.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment | {"PATH": path},
    )
    assert process.stdout is not None
    tail = b""
    while piece := os.read(process.stdout.fileno(), TAIL):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        tail = (tail + piece)[-TAIL:]
    return process.wait(), tail.decode(errors="replace")


def _status_of_stage(tail: str) -> int:
    """What the stage ended with, of which DVC only speaks."""
    found = re.findall(r"exited with (-?\d+)", tail)
    status = int(found[-1]) if found else EXIT_FAILURE
    if was_killed(status):
        return KILLED
    return status if status in (EXIT_USER_ERROR, EXIT_INTERRUPTED) else EXIT_FAILURE


def was_killed(status: int | None) -> bool:
    """By the exit status of a job or stage; None: Ray's process above it has ended before."""
    return status is None or status < 0 or status == KILLED


if __name__ == "__main__":
    sys.exit(main())
