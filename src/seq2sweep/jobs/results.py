"""What a job and those who submit it hand each other, by the storage that both see.

`inputs/<sum>-<path>` is what the stages before made, `jobs/<id>` what a job made: files, and a
manifest with their sha256 sums that is written last, so that whatever has one is complete.
`environment/` holds the variables of jobs that have not begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import ClusterConfig, is_address
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.storage.atomic import sha256
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import with_retries

T = TypeVar("T")

MANIFEST = "manifest.json"
ORDER = "order.json"
"""Written by who submits; a job that does not find it looks at another storage."""
VALUES = "environment"
STALE_SECONDS = 86400.0
"""For the values of an attempt that this cluster does not know: it may be of another one that has
the same storage, or be forgotten."""
BLOCK_BYTES = 1 << 22


class SharedFolder:
    """A folder that this machine and all nodes see under one path, used as an `ObjectStore` is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, str(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cluster.storage {folder} cannot be made here ({error.strerror}): mount it, as "
                "all nodes do"
            ) from None

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes, rights: int = 0o666) -> None:
        with self._complete(name, rights) as stream:
            stream.write(content)

    def upload(self, path: Path, name: str) -> None:
        with path.open("rb") as source, self._complete(name) as stream:
            shutil.copyfileobj(source, stream, BLOCK_BYTES)

    def download(self, name: str, path: Path) -> None:
        shutil.copyfile(self.folder / name, path)

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def own_files(self, name: str) -> Iterator[str]:
        """What lies in a folder here and belongs to this user."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder / name):
                with contextlib.suppress(FileNotFoundError):  # taken in this moment
                    if entry.stat().st_uid == os.getuid():
                        yield entry.name

    @contextlib.contextmanager
    def _complete(self, name: str, rights: int = 0o666) -> Iterator[BinaryIO]:
        """A file that takes its name when all of it is on the disk."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # Not in the same folder: what a kill leaves would be part of a stage's input there.
        beside = self.folder / f".{uuid.uuid4().hex}.partial"
        try:
            made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights)
            with open(made, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(made)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)


class Storage:
    """The storage that this machine and the cluster share; names are relative, with slashes.

    A file has its name when all of it is there. Tries again for two minutes what fails; then raises
    OperationalError, and UserError for what waiting does not mend.
    """

    def __init__(self, backend: SharedFolder | ObjectStore) -> None:
        self.backend, self.address = backend, backend.address

    @classmethod
    def at(cls, address: str) -> Storage:
        """That of an address such as s3://bucket/runs, or of a folder, which is made if missing."""
        return cls(ObjectStore(address) if is_address(address) else SharedFolder(Path(address)))

    @classmethod
    def of(cls, cluster: ClusterConfig) -> Storage:
        """That of cluster.storage. Raises UserError for one that only this machine sees."""
        if not is_address(cluster.storage) and not Path(cluster.storage).is_absolute():
            raise UserError(
                f"cluster.storage is {cluster.storage}: a job needs the full path of a folder that "
                "this machine and all nodes see under this name, or an address such as "
                "s3://bucket/runs"
            )
        return cls.at(cluster.storage)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        return self._retried(lambda: self.backend.read(name))

    def write(self, name: str, content: bytes, *, private: bool = False) -> None:
        """private: readable by this user only; in a bucket, by whoever may read that."""
        if private and isinstance(self.backend, SharedFolder):
            self.backend.write(name, content, 0o600)
        else:
            self._retried(lambda: self.backend.write(name, content))

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._retried(lambda: self.backend.delete(name))

    def upload(self, path: Path, name: str) -> None:
        """Copy a file there."""
        self._retried(lambda: self.backend.upload(path, name))

    def download(self, name: str, path: Path) -> None:
        """Copy a file here; its folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._retried(lambda: self.backend.download(name, path))

    def values(self) -> list[str]:
        """The names of the files with variables: in a folder, of those of this user."""
        if isinstance(self.backend, SharedFolder):
            return sorted(self.backend.own_files(VALUES))
        bucket = self.backend.at(VALUES)
        return self._retried(lambda: [*bucket.sizes()])

    def _retried(self, work: Callable[[], T]) -> T:
        try:
            return with_retries(work)
        except OSError as error:
            raise OperationalError(
                f"{self.address} cannot be used ({error.strerror}): fix the storage, and submit "
                "again"
            ) from None


def of_job(job: str, name: str = "") -> str:
    """The name of what belongs to a job."""
    return f"jobs/{job}/{name}"


def of_input(total: str, path: str) -> str:
    """The name of what the stages before made at this path, of this sum."""
    return f"inputs/{total}-{path.replace('/', '-')}/"


# --- files and their sums ------------------------------------------------------------------------


def put(project: Path, paths: Sequence[str], storage: Storage, where: str) -> None:
    """Copy those files and folders that are there, the manifest last.

    Once: what is there already, with a manifest, is the same.
    """
    if is_complete(storage, where):
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
    """Whether all has been put there."""
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
            storage.download(where + name, beside / name)
            if sha256(beside / name) != total:
                raise OperationalError(
                    f"{storage.address}/{where}{name} is not what was put there: remove {told} and "
                    "submit again, which runs what is missing"
                )
        for output in outputs:
            if not (beside / output).exists():  # a folder without a file
                (beside / output).mkdir(parents=True)
            remove(project / output)
            (project / output).parent.mkdir(parents=True, exist_ok=True)
            (beside / output).rename(project / output)
    finally:
        remove(beside)
    return outputs


def get_input(storage: Storage, total: str, path: str, project: Path) -> None:
    """Have what was made at home in its place: a link to what all nodes see, or a copy."""
    if isinstance(storage.backend, SharedFolder):
        remove(project / path)
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).symlink_to(storage.backend.folder / of_input(total, path) / path)
    else:
        get(storage, of_input(total, path), project, [path])


def wait_for(storage: Storage, name: str, seconds: float) -> bool:
    """Wait until that shows which another machine has written: network file systems lag."""
    give_up = time.monotonic() + seconds
    while storage.read(name) is None:
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.5)
    return True


def remove(path: Path) -> None:
    """A folder with all in it, a link, a file, or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [path]


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
            f"the variables of cluster.job_environment are gone from {storage.address}: submit "
            "again"
        )
    storage.delete(name)
    values: dict[str, str] = json.loads(content)
    return values


def remove_values(storage: Storage, over: Callable[[str], bool | None]) -> None:
    """Remove the values that no job will take any more.

    over: whether an attempt has ended; None of one that is not known, whose values are removed a
    day after it was submitted.
    """
    for name in storage.values():
        found = re.fullmatch(r"(.+)\.(\d+)\.[0-9a-f]+", name)
        if found is None:
            continue  # not ours
        ended = over(found[1])
        if ended is None:
            ended = time.time() - int(found[2]) > STALE_SECONDS
        if ended:
            storage.delete(f"{VALUES}/{name}")
