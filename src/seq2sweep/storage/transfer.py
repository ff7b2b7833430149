"""The storage that a job and those who submit it share, for what they hand each other.

A folder that both see, or the objects of a bucket, behind the same few verbs; names are relative,
with slashes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import ClusterConfig, is_address
from seq2sweep.errors import Failure, UserError
from seq2sweep.storage.atomic import sha256, write_whole
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import with_retries

T = TypeVar("T")

BLOCK_BYTES = 1 << 22


class Shelf(Protocol):
    """Where parcels lie. All verbs raise UserError or Failure, in one line."""

    address: str
    """As cluster.storage says it."""

    def read(self, name: str) -> bytes | None:
        """What lies there; None where nothing does."""

    def write(self, name: str, content: bytes) -> None:
        """Put it there, whole or not at all."""

    def write_private(self, name: str, content: bytes) -> None:
        """Put it there for this user only: of a bucket, for whoever may read that."""

    def delete(self, name: str) -> None:
        """Take it away, if it is there."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder: of one on a disk, what belongs to this user."""

    def put(self, file: Path, name: str) -> None:
        """Copy a file there."""

    def get(self, name: str, file: Path) -> None:
        """Copy it here; the folder is made."""

    def publish(self, source: Path, name: str) -> None:
        """Put a folder, or a file, there once: what is there already is the same."""

    def lay_out(self, name: str, place: Path) -> None:
        """Have what was published at a place of this machine, in place of what is there."""


def shelf(storage: str) -> Shelf:
    """That of an address or of a full path, whose folder is made if it is missing."""
    return BucketShelf(ObjectStore(storage)) if is_address(storage) else FolderShelf(Path(storage))


def shelf_of(cluster: ClusterConfig) -> Shelf:
    """The storage that this machine and the cluster share."""
    if not is_address(cluster.storage) and not Path(cluster.storage).is_absolute():
        raise UserError(
            f"cluster.storage is {cluster.storage}: a job needs the full path of a folder that "
            "this machine and all nodes see under this name, or an address such as s3://bucket/runs"
        )
    return shelf(cluster.storage)


def files_of(path: Path) -> Iterator[Path]:
    """The files of a folder in order, or the file itself."""
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
    else:
        yield path


def remove(path: Path) -> None:
    """A folder with all in it, a link, a file, or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def progress(files: list[Path], what: str) -> tqdm[None]:
    """A bar for the bytes of all the files."""
    total = sum(file.stat().st_size for file in files)
    return tqdm(total=total, **console.bar(what, "B"))


class FolderShelf:
    """A folder that this machine and all nodes see under the same path."""

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

    def write(self, name: str, content: bytes) -> None:
        write_whole(self._place(name), content.decode())

    def write_private(self, name: str, content: bytes) -> None:
        rights = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(self._place(name), rights, 0o600), "wb") as stream:
            stream.write(content)

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder / folder):
                with contextlib.suppress(FileNotFoundError):  # taken in this moment
                    if entry.stat().st_uid == os.getuid():
                        found.append(entry.name)
        return sorted(found)

    def put(self, file: Path, name: str) -> None:
        _copy(file, self._place(name))

    def get(self, name: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        _copy(self.folder / name, file)

    def publish(self, source: Path, name: str) -> None:
        place = self._place(name)
        if place.exists():
            return
        beside = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.partial")
        files = list(files_of(source))
        try:
            with progress(files, f"copy {source.name}") as bar:
                for file in files:
                    copy = beside / file.relative_to(source)  # itself for a single file
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    _copy(file, copy)
                    bar.update(file.stat().st_size)
            beside.rename(place)
        except BaseException as error:
            remove(beside)
            # Somebody else was faster.
            if not (isinstance(error, OSError) and place.exists()):
                raise

    def lay_out(self, name: str, place: Path) -> None:
        remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.folder / name)

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


class BucketShelf:
    """Objects below an address. What is published has a list of its files, written last."""

    def __init__(self, bucket: ObjectStore) -> None:
        self.bucket, self.address = bucket, bucket.address

    def read(self, name: str) -> bytes | None:
        return self._do(lambda: self.bucket.read(name))

    def write(self, name: str, content: bytes) -> None:
        self._do(lambda: self.bucket.write(name, content))

    write_private = write

    def delete(self, name: str) -> None:
        self._do(lambda: self.bucket.delete(name))

    def names(self, folder: str) -> list[str]:
        found = self._do(lambda: self.bucket.at(folder).sizes())
        return [name for name in found if "/" not in name]

    def put(self, file: Path, name: str) -> None:
        self._do(lambda: self.bucket.upload(file, name))

    def get(self, name: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._do(lambda: self.bucket.download(name, file))

    def publish(self, source: Path, name: str) -> None:
        listing = f"{name}.json"
        if self.read(listing) is not None:
            return
        files = list(files_of(source))
        sums: dict[str, str] = {}
        with progress(files, f"upload {source.name}") as bar:
            for file in files:
                inner = file.relative_to(source).as_posix()
                sums[inner] = sha256(file)
                self.put(file, f"{name}/{inner}")
                bar.update(file.stat().st_size)
        self.write(listing, json.dumps(sums, indent=2).encode())

    def lay_out(self, name: str, place: Path) -> None:
        content = self.read(f"{name}.json")
        if content is None:
            raise Failure(f"{self.address}/{name} is gone: submit again")
        sums: dict[str, str] = json.loads(content)
        beside = place.with_name(f".{place.name}.partial")
        remove(beside)
        for inner, total in sums.items():
            self.get(f"{name}/{inner}", beside / inner)
            if sha256(beside / inner) != total:
                raise Failure(
                    f"{self.address}/{name}/{inner} is not what was put there: remove "
                    f"{name}.json from the bucket and submit again"
                )
        remove(place)
        beside.rename(place)

    def _do(self, work: Callable[[], T]) -> T:
        try:
            return with_retries(work)
        except OSError as error:
            raise Failure(
                f"{self.address} cannot be used ({error.strerror}): fix the storage, and submit "
                "again"
            ) from None


def _copy(source: Path, target: Path) -> None:
    """All bytes, on the disk when this returns."""
    with source.open("rb") as stream, target.open("wb") as copy:
        for block in iter(functools.partial(stream.read, BLOCK_BYTES), b""):
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
