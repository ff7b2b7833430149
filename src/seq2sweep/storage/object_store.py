"""Objects under an address such as s3://bucket/prefix: the little that is asked of object storage.

Endpoint and credentials come from the environment, as the bucket's own tools take them.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2sweep.errors import NO_ROOM, UserError

EXTRAS = {"s3": "s3", "gs": "gs"}
"""For each scheme, the extra of this project that can talk to it."""
_DRIVERS = {"botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "requests"}
_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"}
_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    TimeoutError: errno.ETIMEDOUT,
}


class Bucket:
    """The objects whose names begin with a prefix; names here are relative to it.

    Errors: UserError for what waiting does not mend (no such bucket, no right, no credentials, a
    package that is missing), else an OSError with a number.
    """

    def __init__(self, address: str, system: Any = None) -> None:
        """address: `scheme://bucket/prefix`; system: of fsspec, made from the address if None."""
        self.address = address.rstrip("/")
        scheme, _, self._path = self.address.partition("://")
        if system is None:
            with self._explaining():
                system = _open(scheme)
        self._system = system

    def at(self, name: str) -> Bucket:
        """The objects below a name."""
        return Bucket(f"{self.address}/{name}", self._system)

    def read(self, name: str, start: int = 0) -> bytes | None:
        """An object's content from byte `start`, which is in it, on; None if it is not there."""
        with contextlib.suppress(FileNotFoundError), self._explaining(name):
            return bytes(self._system.cat_file(self._full(name), start=start or None))
        return None

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where there is none of this name."""
        with contextlib.suppress(FileNotFoundError), self._explaining(name):
            return int(self._system.info(self._full(name))["size"])
        return None

    def write(self, name: str, content: bytes) -> None:
        """Make an object, or replace it: whoever reads sees all of it, or what was there before."""
        with self._explaining(name):
            self._system.pipe_file(self._full(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Make an object unless there is one of this name; of several who try, one gets True."""
        try:
            with self._explaining(name):
                self._system.pipe_file(self._full(name), content, mode="create")
        except FileNotFoundError:
            raise _no_bucket(self.address) from None
        except FileExistsError:
            # Perhaps by this very call, whose first answer was lost on the way.
            return self.read(name) == content
        return True

    def upload(self, path: Path, name: str) -> None:
        """Make an object of a file, whole or not at all."""
        with self._explaining(name):
            self._system.put_file(str(path), self._full(name))

    def download(self, name: str, path: Path) -> None:
        """Write an object to a file; what an error leaves there is not whole."""
        with self._explaining(name):
            self._system.get_file(self._full(name), str(path))

    def sizes(self) -> dict[str, int]:
        """Name and bytes of all objects here, in the order of their names."""
        with contextlib.suppress(FileNotFoundError), self._explaining():
            found = self._system.find(self._path, detail=True)
            before = f"{self._path}/"
            return {
                path.partition(before)[2]: int(about["size"])
                for path, about in sorted(found.items())
            }
        return {}

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._explaining(name):
            self._system.rm_file(self._full(name))

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}"

    @contextlib.contextmanager
    def _explaining(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except Exception as error:
            explained = _explained(error, self.address, name)
            if explained is None:
                raise
            raise explained from error


def _open(scheme: str) -> Any:
    import fsspec

    # Another node's objects must be seen at once.
    return fsspec.filesystem(scheme, use_listings_cache=False)


def _explained(error: Exception, address: str, name: str) -> Exception | None:
    """What a driver's error means; None for one that is not of a driver.

    Texts of drivers may hold a password, so they are named by their kind only.
    """
    where, kind = (f"{address}/{name}" if name else address), type(error).__name__
    if isinstance(error, ImportError):
        extra = EXTRAS.get(address.partition("://")[0], "s3")
        return UserError(
            f"cluster.storage is {address}, which needs a package more: run `pip install -c "
            f"constraints.txt -e '.[{extra}]'` in this project's folder, on all nodes"
        )
    if kind in _CREDENTIALS:
        return UserError(
            f"cluster.storage: no credentials for {address}: put them into the environment of all "
            "nodes (for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    code = _code(error)
    if code == "NoSuchBucket":
        return _no_bucket(address)
    if isinstance(error, PermissionError) or code in ("401", "403") or "Forbidden" in str(error):
        return UserError(
            f"cluster.storage: no right to read and write {where} ({code or kind}): fix the "
            "credentials in the environment of all nodes, or the bucket's policy"
        )
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return None  # on this machine: a bucket knows no such end
    if isinstance(error, OSError):
        number = error.errno or next(
            (number for kind, number in _NUMBERS.items() if isinstance(error, kind)), errno.EIO
        )
        text = error.strerror if error.errno else None
        return OSError(number, text or f"{kind} {code}".rstrip(), where)
    if type(error).__module__.partition(".")[0] in _DRIVERS:
        return OSError(errno.EIO, f"{kind} {code}".rstrip(), where)
    return None


def _no_bucket(address: str) -> UserError:
    return UserError(f"cluster.storage: there is no bucket for {address}: make it, or fix the name")


def _code(error: BaseException) -> str:
    """The server's own word for what went wrong, if it said one."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        if getattr(one, "code", None):
            return str(getattr(one, "code", ""))
    return ""
