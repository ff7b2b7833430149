"""What a job and those who submit it hand each other, by the storage that both see.

`data/<sum>` is what the stages before made, `jobs/<id>` what a job made: files, and a manifest with
their sha256 sums that is written last, so that whatever has one is whole. `environment/` holds the
variables of jobs that have not begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from seq2sweep.errors import Failure, UserError
from seq2sweep.storage.atomic import sha256
from seq2sweep.storage.transfer import Shelf, files_of, progress, remove

MANIFEST = "manifest.json"
ORDER = "order.json"
"""Written by who submits; a job that does not find it looks at another storage."""
VALUES = "environment"
STALE_SECONDS = 86400.0
"""For the values of an attempt that this cluster does not know: it may be of another one that has
the same storage, or be forgotten."""


@dataclass
class Values:
    """Where the values for a job lie (None: it needs none), and whether the job will take them."""

    name: str | None
    taken: bool = False


def of_job(job: str, name: str) -> str:
    """The name of what belongs to a job."""
    return f"jobs/{job}/{name}"


def of_data(total: str) -> str:
    """The name of what the stages before made, of this sum."""
    return f"data/{total}"


# --- on the way there ----------------------------------------------------------------------------


@contextlib.contextmanager
def values_for(names: Sequence[str], storage: Shelf, attempt: str) -> Iterator[Values]:
    """Leave the values of variables for one attempt at a job, readable by this user only.

    In the job's settings they would be written into Ray's logs. They are gone at the end, however
    that comes, unless `taken` was set: then the job takes them, or `remove_values` does.
    """
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(
            f"cluster.job_environment names {missing[0]}, which is not set here: set it, or take "
            "it out"
        )
    if not names:
        yield Values(None)
        return
    values = Values(f"{VALUES}/{attempt}.{time.time():.0f}.{uuid.uuid4().hex}")
    try:
        content = json.dumps({name: os.environ[name] for name in names})
        storage.write_private(str(values.name), content.encode())
        yield values
    finally:
        if not values.taken:
            storage.delete(str(values.name))


def remove_values(storage: Shelf, over: Callable[[str], bool | None]) -> None:
    """Remove the values that no job will take any more.

    over: whether an attempt has ended; None of one that is not known, whose values are removed a
    day after it was submitted.
    """
    for name in storage.names(VALUES):
        found = re.fullmatch(r"(.+)\.(\d+)\.[0-9a-f]+", name)
        if found is None:
            continue  # not ours
        ended = over(found[1])
        if ended is None:
            ended = time.time() - int(found[2]) > STALE_SECONDS
        if ended:
            storage.delete(f"{VALUES}/{name}")


def take_values(storage: Shelf, name: str) -> dict[str, str]:
    """What `values_for` left, which is gone then."""
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
