"""What a job and those who submit it hand each other, by the storage that both see.

`inputs/<sum>-<path>` is what the stages before made, `jobs/<id>` what a job made: files, and a
manifest with their sha256 sums that is written last, so that whatever has one is complete.
`environment/` holds the variables of jobs that have not begun.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, ParamSpec, TypeAlias, TypeVar

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import is_address
from seq2sweep.errors import NO_RIGHT, NO_ROOM, OperationalError, UserError
from seq2sweep.storage.atomic import naming, remove, sha256
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import storage_serves

P = ParamSpec("P")
T = TypeVar("T")

MANIFEST = "manifest.json"
ORDER = "order.json"
"""What the job is told, by who submits; a job that does not find it sees another storage."""
PROBE = "may-write"
VALUES = "environment"
STALE_SECONDS = 86400.0
"""For the values of an attempt that this cluster does not know: it may be of another one that has
the same storage, or be forgotten. For a file that is being written: whoever did may be dead."""
BLOCK_BYTES = 1 << 22


def _retried(method: Callable[P, T]) -> Callable[P, T]:
    """Of a storage: tries again for two minutes what fails.

    Then raises OperationalError; UserError at once for what waiting does not mend.
    """

    @functools.wraps(method)
    def work(*arguments: P.args, **options: P.kwargs) -> T:
        address = arguments[0].address  # type: ignore[attr-defined]
        return storage_serves(lambda: method(*arguments, **options), address, "submit again")

    return work


class Bucket(ObjectStore):
    """An object store that this machine and the cluster share."""

    read = _retried(ObjectStore.read)
    write = write_private = _retried(ObjectStore.write)
    """Whoever may read the bucket may read it."""
    delete = _retried(ObjectStore.delete)
    upload = _retried(ObjectStore.upload)
    download = _retried(ObjectStore.download)
    sizes = _retried(ObjectStore.sizes)

    def remove_partial(self) -> None:
        """There are none: an object is there when all of it is."""

    def values(self) -> list[str]:
        """The names of the files with variables."""
        return [*Bucket(f"{self.address}/{VALUES}").sizes()]


class SharedFolder:
    """A folder that this machine and all nodes see under one path, used as a `Bucket` is.

    A file has its name when all of it is there; a private one is for this user only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, str(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cluster.storage {folder} cannot be made here ({error.strerror}): mount it, as "
                "all nodes do"
            ) from None

    @_retried
    def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None

    @_retried
    def write(self, name: str, content: bytes) -> None:
        self._copy(io.BytesIO(content), name)

    @_retried
    def write_private(self, name: str, content: bytes) -> None:
        self._copy(io.BytesIO(content), name, 0o600)

    @_retried
    def upload(self, path: Path, name: str) -> None:
        with path.open("rb") as source:
            self._copy(source, name)

    @_retried
    def download(self, name: str, path: Path) -> None:
        with naming(path, NO_ROOM):
            shutil.copyfile(self.folder / name, path)

    @_retried
    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def values(self) -> list[str]:
        """The names of this user's files with variables."""
        files = sorted((self.folder / VALUES).glob("*"))
        with contextlib.suppress(FileNotFoundError):  # taken in this moment
            return [file.name for file in files if file.lstat().st_uid == os.getuid()]
        return self.values()

    def remove_partial(self) -> None:
        """Files of uploads that were killed; they may be large. Another user's may have to stay."""
        for path in self.folder.glob(".*.partial"):
            with contextlib.suppress(OSError):
                age = time.time() - path.stat().st_mtime
                if re.fullmatch(r"\.[0-9a-f]{32}\.partial", path.name) and age > STALE_SECONDS:
                    path.unlink()

    def _copy(self, source: BinaryIO, name: str, rights: int = 0o666) -> None:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # Not in the same folder: what a kill leaves would be part of a stage's input there.
        beside = self.folder / f".{uuid.uuid4().hex}.partial"
        try:
            made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
            with open(made, "wb") as stream:
                shutil.copyfileobj(source, stream, BLOCK_BYTES)
                stream.flush()
                os.fsync(made)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)


Storage: TypeAlias = SharedFolder | Bucket
"""What this machine and the cluster share; names are relative, with slashes."""


def storage_at(address: str) -> Storage:
    """That of cluster.storage. Raises UserError for one that only this machine sees."""
    if is_address(address):
        return Bucket(address)
    if not Path(address).is_absolute():
        raise UserError(
            f"cluster.storage is {address}: a job needs the full path of a folder that this "
            "machine and all nodes see under this name, or an address such as s3://bucket/runs"
        )
    return SharedFolder(Path(address))


def of_job(job: str, name: str = "") -> str:
    """The name of what belongs to a job."""
    return f"jobs/{job}/{name}"


def of_input(total: str, path: str) -> str:
    """The name of what the stages before made at this path, of this sum."""
    return f"inputs/{total}-{path.replace('/', '-')}/"


# --- files and their sums ------------------------------------------------------------------------


def put(project: Path, paths: Sequence[str], storage: Storage, where: str) -> None:
    """Copy those files and folders that are there, the manifest last.

    Once: what is there already, with a manifest and its files, is the same.
    """
    storage.remove_partial()
    if is_complete(storage, where) and not _lacks_files(storage, where):
        return
    there = [path for path in paths if (project / path).exists()]
    files = [file for path in there for file in _files_of(project / path)]
    total = sum(file.stat().st_size for file in files)
    sums: dict[str, str] = {}
    with tqdm(total=total, **console.bar(f"upload {where}", "B")) as bar:
        for file in files:
            name = file.relative_to(project).as_posix()
            sums[name] = sha256(file)
            storage.upload(file, where + name)
            bar.update(file.stat().st_size)
    manifest = {"outputs": there, "files": sums}
    storage.write(where + MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())


def is_complete(storage: Storage, where: str) -> bool:
    return storage.read(where + MANIFEST) is not None


def get(storage: Storage, where: str, project: Path, expected: Sequence[str]) -> list[str]:
    """Put what lies there in its places in the project, each complete; gives their names.

    expected: the outputs that may be among it. Raises OperationalError, and leaves all as it was,
    when a sum does not match.
    """
    told = f"{storage.address}/{where}{MANIFEST}"
    content = storage.read(where + MANIFEST)
    if content is None:
        raise OperationalError(f"{told} is gone: submit again, which runs what is missing")
    manifest = json.loads(content)
    outputs, sums = list(manifest["outputs"]), dict(manifest["files"])
    for name in (*outputs, *sums):
        inside = any(name == output or name.startswith(f"{output}/") for output in expected)
        if not inside or ".." in PurePosixPath(name).parts:
            raise OperationalError(f"{told} names {name}, which its stage does not make")
    # Ignored by git, as the next upload must not find it.
    beside = project / ".dvc" / "tmp" / f"{PurePosixPath(where).name}.partial"
    remove(beside)
    try:
        for name, total in sums.items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            if not _downloaded(storage, where + name, beside / name, total):
                raise OperationalError(
                    f"{storage.address}/{where}{name} is missing or differs from what was "
                    f"uploaded: remove {told} and submit again, which runs what is missing"
                )
        for output in outputs:
            if not (beside / output).exists():  # a folder without a file
                (beside / output).mkdir(parents=True)
            _put(beside / output, project / output)
    finally:
        remove(beside)
    return outputs


def _put(made: Path, place: Path) -> None:
    """Have what was made in its place, which may be on another disk, as `models` may, or a link
    to a folder there."""
    if place.is_symlink() and place.is_dir():
        place = place.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{place.name}.partial")
    remove(beside)
    try:
        shutil.move(made, beside)
        remove(place)
        beside.rename(place)
    finally:
        remove(beside)


def _downloaded(storage: Storage, name: str, path: Path, total: str) -> bool:
    """Whether it is there and has this sum."""
    try:
        storage.download(name, path)
    except OperationalError as error:
        if isinstance(error.__context__, FileNotFoundError):
            return False
        raise
    return sha256(path) == total


def get_input(storage: Storage, total: str, path: str, project: Path) -> None:
    """Have what was made at home in its place: a link to what all nodes see, or a copy.

    Raises OperationalError where some of it is gone.
    """
    if isinstance(storage, SharedFolder):
        place = storage.folder / of_input(total, path)
        if _lacks_files(storage, of_input(total, path)):
            raise OperationalError(f"files are missing from {place}: remove it and submit again")
        remove(project / path)
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).symlink_to(place / path)
    else:
        get(storage, of_input(total, path), project, [path])


def _lacks_files(storage: Storage, where: str) -> bool:
    """Whether a folder lacks its manifest or files of it, as cleaners of scratch file systems
    remove what is old; of a bucket, which has none, never."""
    if not isinstance(storage, SharedFolder):
        return False
    manifest = json.loads(storage.read(where + MANIFEST) or b"{}")
    names = manifest.get("files", [MANIFEST])
    return not all((storage.folder / where / name).exists() for name in names)


def wait_for(storage: Storage, name: str, seconds: float) -> bool:
    """Wait until that shows which another machine has written: network file systems lag."""
    give_up = time.monotonic() + seconds
    while not (found := storage.read(name) is not None) and time.monotonic() < give_up:
        time.sleep(0.5)
    return found


def check_writable(storage: Storage, where: str) -> None:
    """Write a small file there, and delete it.

    Raises UserError where this user must not. Whoever submitted made the folder, and may be another
    one; a job would learn of it as it uploads its results.
    """
    try:
        storage.write(where + PROBE, b"")
        storage.delete(where + PROBE)
    except OperationalError as error:
        refused = error.__context__
        if not isinstance(refused, OSError) or refused.errno not in NO_RIGHT:
            raise
        named = refused.filename2 or refused.filename  # NFS may refuse as a file is written
        folder = Path(named).parent if named else storage.address
        raise UserError(
            f"{folder} may not be written by the user that this Ray runs as ({refused.strerror}): "
            "start Ray as the user who submits, or give its user the right to write there"
        ) from None


def _files_of(path: Path) -> list[Path]:
    return [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]


# --- the values of variables ---------------------------------------------------------------------


def values_name(attempt: str) -> str:
    """A new name for the values that one attempt at a job is to take."""
    return f"{VALUES}/{attempt}.{time.time():.0f}.{uuid.uuid4().hex}"


def values_of(names: Sequence[str]) -> bytes:
    """The values of variables here. Raises UserError for one that is not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(
            f"cluster.job_environment names {missing[0]}, which is not set here: set it, or take "
            "it out"
        )
    return json.dumps({name: os.environ[name] for name in names}).encode()


def take_values(storage: Storage, name: str) -> dict[str, str]:
    """What was left for this attempt, which is gone then."""
    content = storage.read(name)
    if content is None:
        raise OperationalError(
            f"the variables of cluster.job_environment are missing from {storage.address}: submit "
            "again"
        )
    storage.delete(name)
    values: dict[str, str] = json.loads(content)
    return values


def remove_values(storage: Storage, over: Callable[[str], bool | None]) -> None:
    """Remove the values that no job will take any more.

    over: whether the attempt that is to take those of a name (`values_name`) has ended. None where
    none is known here: they may be of another cluster, and are removed after a day.
    """
    for name in storage.values():
        found = re.fullmatch(r".+\.(\d+)\.[0-9a-f]+", name)
        if found is None:
            continue  # not ours
        ended = over(f"{VALUES}/{name}")
        if ended is None:
            ended = time.time() - int(found[1]) > STALE_SECONDS
        if ended:
            storage.delete(f"{VALUES}/{name}")
