"""What a job and those who submit it hand each other, by the storage that both see.

`data/<sum>` is what the stages before made, `jobs/<id>` what a job made: files, and a manifest with
their sha256 sums that is written last, so that whatever has one is whole.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from seq2sweep.cluster.shelf import Shelf, files_of, progress, remove
from seq2sweep.data.files import sha256
from seq2sweep.errors import Failure, UserError

MANIFEST = "manifest.json"
ORDER = "order.json"
"""Written by who submits; a job that does not find it looks at another storage."""


def of_job(job: str, name: str) -> str:
    """The name of what belongs to a job."""
    return f"jobs/{job}/{name}"


def of_data(total: str) -> str:
    """The name of what the stages before made, of this sum."""
    return f"data/{total}"


# --- on the way there ----------------------------------------------------------------------------


def leave_values(names: Sequence[str], storage: Shelf) -> str | None:
    """Leave the values of variables for one job, readable by this user only; gives its name.

    In the job's settings they would be written into Ray's logs.
    """
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(
            f"cluster.job_environment names {missing[0]}, which is not set here: set it, or take "
            "it out"
        )
    if not names:
        return None
    name = f"jobs/.{uuid.uuid4().hex}.environment"
    values = {name: os.environ[name] for name in names}
    storage.write_private(name, json.dumps(values).encode())
    return name


def take_values(storage: Shelf, name: str) -> dict[str, str]:
    """What `leave_values` left, which is gone then."""
    content = storage.read(name)
    if content is None:
        raise Failure(
            f"the variables of cluster.job_environment are gone from {storage.address}: submit "
            "again"
        )
    storage.delete(name)
    values: dict[str, str] = json.loads(content)
    return values


# --- on the way back -----------------------------------------------------------------------------


def put_results(project: Path, outputs: Sequence[str], storage: Shelf, job: str) -> None:
    """Copy those outputs that are there into a job's place, the manifest last."""
    storage.delete(of_job(job, MANIFEST))
    there = [output for output in outputs if (project / output).exists()]
    files = [file for output in there for file in files_of(project / output)]
    sums: dict[str, str] = {}
    with progress(files, "leave results") as bar:
        for file in files:
            name = file.relative_to(project).as_posix()
            sums[name] = sha256(file)
            storage.put(file, of_job(job, name))
            bar.update(file.stat().st_size)
    manifest = {"outputs": there, "files": sums}
    storage.write(of_job(job, MANIFEST), (json.dumps(manifest, indent=2) + "\n").encode())


def has_results(storage: Shelf, job: str) -> bool:
    """Whether a job has left its results."""
    return storage.read(of_job(job, MANIFEST)) is not None


def bring_home(storage: Shelf, job: str, project: Path, expected: Sequence[str]) -> list[str]:
    """Put a job's results in their places in the project, each whole; gives their names.

    expected: what the stage makes; nothing else is taken. Raises Failure, and leaves all as it was,
    when a sum does not match.
    """
    where = f"{storage.address}/{of_job(job, MANIFEST)}"
    content = storage.read(of_job(job, MANIFEST))
    if content is None:
        raise Failure(f"{where} is gone: submit again, which runs what is missing")
    manifest = json.loads(content)
    outputs, sums = list(manifest["outputs"]), dict(manifest["files"])
    _check_names(outputs, sums, expected, where)
    # Ignored by git, as the next upload must not find it.
    beside = project / ".dvc" / "tmp" / f"{job}.partial"
    remove(beside)
    try:
        _fetch(storage, job, beside, sums, where)
        for output in outputs:
            (beside / output).parent.mkdir(parents=True, exist_ok=True)
            if not (beside / output).exists():  # a folder without a file
                (beside / output).mkdir()
        for output in outputs:
            place = project / output
            place.parent.mkdir(parents=True, exist_ok=True)
            remove(place)
            (beside / output).rename(place)
    finally:
        remove(beside)
    return outputs


def wait_for(storage: Shelf, name: str, seconds: float) -> bool:
    """Wait until that shows which another machine has written: network file systems lag."""
    give_up = time.monotonic() + seconds
    while storage.read(name) is None:
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.5)
    return True


def _fetch(storage: Shelf, job: str, beside: Path, sums: Mapping[str, str], where: str) -> None:
    for name, total in sums.items():
        storage.get(of_job(job, name), beside / name)
        if sha256(beside / name) != total:
            raise Failure(
                f"{storage.address}/{of_job(job, name)} is not what the job wrote: remove {where} "
                "and submit again, which runs what is missing"
            )


def _check_names(
    outputs: Sequence[str], files: Mapping[str, str], expected: Sequence[str], where: str
) -> None:
    for name in (*outputs, *files):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Failure(f"{where} names {name}, which is outside of the project")
    for output in outputs:
        if output not in expected:
            raise Failure(f"{where} names {output}, which its stage does not make")
    for name in files:
        if not any(name == output or name.startswith(f"{output}/") for output in outputs):
            raise Failure(f"{where} names {name}, which belongs to no output")
