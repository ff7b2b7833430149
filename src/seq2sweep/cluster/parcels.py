"""What a job and those who submit it hand each other: folders in the storage that both see.

`data/<sum>` is what the stages before made, `jobs/<id>` what a job made: files, and a manifest with
their sha256 sums that is written last, so that whatever has one is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import ClusterConfig
from seq2sweep.data.files import sha256, write_whole
from seq2sweep.errors import Failure, UserError

MANIFEST = "manifest.json"
ORDER = "order.json"
"""Written by who submits; a job that does not find it looks at another storage."""


def storage_folder(cluster: ClusterConfig) -> Path:
    """The storage that this machine and the cluster share, made if it is missing."""
    folder = Path(cluster.storage)
    if "://" in cluster.storage or not folder.is_absolute():
        raise UserError(
            f"cluster.storage is {cluster.storage}: a job needs the full path of a folder that "
            "this machine and all nodes see under this name"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cluster.storage {folder} cannot be made here ({error.strerror}): mount it, as all "
            "nodes do"
        ) from None
    return folder


def job_folder(storage: Path, job: str) -> Path:
    """Where a job's order and results lie."""
    return storage / "jobs" / job


# --- on the way there ----------------------------------------------------------------------------


def publish(source: Path, storage: Path, name: str) -> Path:
    """Put what the cluster shall read under `data/<name>`, unless it is there; gives its place."""
    place = storage / "data" / name
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        _copy_all(source, beside)
        beside.rename(place)
    except BaseException as error:
        _remove(beside)
        # Somebody else was faster.
        if not (isinstance(error, OSError) and place.exists()):
            raise
    return place


def leave_values(names: Sequence[str], storage: Path) -> str | None:
    """Leave the values of variables for one job, readable by this user only; gives the file's name.

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
    file = storage / "jobs" / f".{uuid.uuid4().hex}.environment"
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        json.dump({name: os.environ[name] for name in names}, stream)
    return file.name


def take_values(storage: Path, name: str) -> dict[str, str]:
    """What `leave_values` left, which is gone then."""
    file = storage / "jobs" / name
    try:
        values: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Failure(
            f"the variables of cluster.job_environment are gone from {file.parent}: submit again"
        ) from None
    drop_values(storage, name)
    return values


def drop_values(storage: Path, name: str) -> None:
    """Remove what `leave_values` left, for a job that was not started."""
    (storage / "jobs" / name).unlink(missing_ok=True)


# --- on the way back -----------------------------------------------------------------------------


def put_results(project: Path, outputs: Sequence[str], folder: Path) -> None:
    """Copy those outputs that are there into a job's folder, the manifest last."""
    (folder / MANIFEST).unlink(missing_ok=True)
    there = [output for output in outputs if (project / output).exists()]
    for output in there:
        _remove(folder / output)
        _copy_all(project / output, folder / output)
    files = {
        path.relative_to(folder).as_posix(): sha256(path)
        for output in there
        for path in _files(folder / output)
    }
    manifest = {"outputs": there, "files": files}
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def has_results(folder: Path) -> bool:
    """Whether a job has left its results."""
    return (folder / MANIFEST).is_file()


def bring_home(folder: Path, project: Path, expected: Sequence[str]) -> list[str]:
    """Put a job's results in their places in the project, each whole; gives their names.

    expected: what the stage makes; nothing else is taken. Raises Failure, and leaves all as it was,
    when a sum does not match.
    """
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    _check_names([*manifest["outputs"], *manifest["files"]])
    if odd := [output for output in manifest["outputs"] if output not in expected]:
        raise Failure(f"{folder / MANIFEST} names {odd[0]}, which its stage does not make")
    # Ignored by git, as the next upload must not find it.
    beside = project / ".dvc" / "tmp" / f"{folder.name}.partial"
    _remove(beside)
    try:
        for output in manifest["outputs"]:
            _copy_all(folder / output, beside / output)
        _check_sums(beside, manifest["files"], folder)
        for output in manifest["outputs"]:
            place = project / output
            place.parent.mkdir(parents=True, exist_ok=True)
            _remove(place)
            (beside / output).rename(place)
    finally:
        _remove(beside)
    return list(manifest["outputs"])


def wait_for(file: Path, seconds: float) -> bool:
    """Wait until a file shows that another machine has written: network file systems lag."""
    give_up = time.monotonic() + seconds
    while not file.is_file():
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.2)
    return True


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Failure(f"a job's manifest names {name}, which is outside of the project")


def _check_sums(copied: Path, sums: Mapping[str, str], folder: Path) -> None:
    found = {path.relative_to(copied).as_posix(): sha256(path) for path in _files(copied)}
    wrong = sorted(name for name in {*found, *sums} if found.get(name) != sums.get(name))
    if wrong:
        raise Failure(
            f"{folder / wrong[0]} is not what the job wrote: remove {folder / MANIFEST} and submit "
            "again, which runs what is missing"
        )


# --- files ---------------------------------------------------------------------------------------


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
    else:
        yield path


def _copy_all(source: Path, target: Path) -> None:
    total = sum(file.stat().st_size for file in _files(source))
    with tqdm(total=total, **console.bar(f"copy {source.name}", "B")) as bar:
        for file in _files(source):
            place = target / file.relative_to(source)  # the target itself for a single file
            place.parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as stream, place.open("wb") as copy:
                while block := stream.read(1 << 22):
                    copy.write(block)
                    bar.update(len(block))
                copy.flush()
                os.fsync(copy.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
