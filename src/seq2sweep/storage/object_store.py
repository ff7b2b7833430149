"""Objects under an address such as s3://bucket/prefix: the little that runs and jobs ask of it; and
a node's own folder for what belongs there.

Endpoint, region and credentials come from the environment: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, profiles and roles as boto3 finds them, GOOGLE_APPLICATION_CREDENTIALS or
GOOGLE_SERVICE_ACCOUNT_KEY.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2sweep.errors import NO_ROOM, NodeError
from seq2sweep.storage.atomic import naming

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

PART_BYTES = 32 << 20
"""A download is made of requests of so many bytes, each with a timeout and retries of its own."""
PARTS_AT_ONCE = 3
"""Of an upload, each in memory: all of them have to go within the client's timeout, on a slow
line."""
UPLOAD_BYTES, MOST_PARTS = 5 << 20, 10_000
"""A part of an upload, which S3 takes no smaller, and how many of them it takes for an object: of a
file above 48.8 GiB they are larger, 105 MiB of one of 1 TiB."""
KEYS_KEPT = timedelta(minutes=10)
"""How long keys of a role are used: botocore gives none that live for less."""
FILE_SECONDS = 60.0
"""For how long keys of a file are not read again, however many stores ask for them."""
_CLIENT = {"allow_http": True, "connect_timeout": "5s", "timeout": "120s"}
_RETRIES = {"max_retries": 2}
"""`storage.retry` does the rest."""
_NONE_FOUND, _NOT_GIVEN = "no credentials were found", "no credentials were given"
"""What waiting does not mend, and what it may: a role's source that does not answer."""
_OTHER_REGION = re.compile(
    "incorrectly configured region|<Code>AuthorizationHeaderMalformed<.*<Region>"
)
"""obstore's words for an answer that names no other address, and S3's."""
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")


class ObjectStore:
    """The objects whose names begin with a prefix; names here are relative to it.

    Errors: UserError for what waiting does not mend (no such bucket, no permission, no
    credentials), else an OSError with a number and without the server's text, which may hold a
    password.
    """

    def __init__(self, address: str) -> None:
        """address: `scheme://bucket/prefix`."""
        from obstore.store import from_url

        self.address = address.rstrip("/")
        with self._explained():
            options = _s3_credentials(self.address) if self.address.startswith("s3:") else {}
            self._store: Backend = from_url(  # type: ignore[call-overload]
                self.address, client_options=_CLIENT, retry_config=_RETRIES, **options
            )

    def at(self, name: str) -> ObjectStore:
        """The objects below a name."""
        return ObjectStore(f"{self.address}/{name}")

    def read(self, name: str, start: int = 0) -> bytes | None:
        """An object's content from byte `start`, which is in it, on; None if it is missing."""
        with contextlib.suppress(FileNotFoundError), self._explained(name):
            content = self._store.get(name, options={"range": {"offset": start}} if start else None)
            return bytes(content.bytes())
        return None

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if it is missing."""
        with contextlib.suppress(FileNotFoundError), self._explained(name):
            return int(self._store.head(name)["size"])
        return None

    def write(self, name: str, content: bytes) -> None:
        """Make an object, or replace it: whoever reads sees all of it, or what was there before."""
        with self._explained(name):
            self._store.put(name, content, max_concurrency=PARTS_AT_ONCE)

    def create(self, name: str, content: bytes) -> bool:
        """Make an object unless there is one of this name; of several who try, one gets True."""
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._explained(name):
                self._store.put(name, content, mode="create")
        except AlreadyExistsError:
            # Perhaps by this very call, whose first answer was lost on the way.
            return self.read(name) == content
        return True

    def upload(self, path: Path, name: str) -> None:
        """Make an object of a file, whole or not at all."""
        part = max(UPLOAD_BYTES, -(-path.stat().st_size // MOST_PARTS))
        with self._explained(name):
            self._store.put(name, path, chunk_size=part, max_concurrency=PARTS_AT_ONCE)

    def download(self, name: str, path: Path) -> None:
        """Write an object to a file; what an error leaves there is not whole."""
        with self._explained(name), naming(path, NO_ROOM), path.open("wb") as stream:
            size = int(self._store.head(name)["size"])
            for start in range(0, size, PART_BYTES):
                end = min(start + PART_BYTES, size)
                stream.write(self._store.get_range(name, start=start, end=end))

    def sizes(self) -> dict[str, int]:
        """Name and bytes of all objects here, in the order of their names."""
        with self._explained():
            found = {
                item["path"]: int(item["size"]) for part in self._store.list() for item in part
            }
        return dict(sorted(found.items()))

    def folders(self) -> list[str]:
        """What the names of objects here that have a `/` begin with; what is below is not read."""
        with self._explained():
            return [str(name) for name in self._store.list_with_delimiter()["common_prefixes"]]

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._explained(name):
            self._store.delete(name)

    @contextlib.contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except AlreadyExistsError:
            raise
        except (BaseError, FileNotFoundError) as error:
            raise _explanation(error, self.address, name) from None


def _s3_credentials(address: str) -> dict[str, Any]:
    """What boto3 finds where the environment has no key: profiles, roles, web identities."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    try:
        from botocore.exceptions import BotoCoreError

        return {"credential_provider": _boto3_credentials()}
    except ImportError:
        return {}
    except BotoCoreError as error:
        raise NodeError(
            f"cluster.storage: no credentials for {address} ({error}): fix AWS_PROFILE or "
            "~/.aws/config on all nodes"
        ) from None


@functools.cache
def _boto3_credentials() -> _Boto3Credentials:
    """One a process: the source of a role's credentials is not to be asked by every store."""
    import boto3

    return _Boto3Credentials(boto3.Session())


class _Boto3Credentials:
    """Called by obstore for credentials; its session keeps them, and renews those of a role.

    Keys of a file another program may renew there, and a session reads it once.
    config: obstore's settings that go with them. Of an error obstore hands on no more than a text,
    which is why it is in words that `_explanation` knows.
    """

    def __init__(self, session: Any) -> None:
        self._session, self._lock = session, threading.Lock()  # its first use is by one thread
        self._begun = time.monotonic()
        # obstore reads AWS_REGION, boto3 does not.
        region = None if os.environ.get("AWS_REGION") else session.region_name
        self.config = {"region": region} if region else {}

    def __call__(self) -> Any:
        import boto3
        from botocore.credentials import Credentials
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            with self._lock:
                old = time.monotonic() - self._begun >= FILE_SECONDS
                if old and type(self._session.get_credentials()) is Credentials:
                    self._session, self._begun = boto3.Session(), time.monotonic()
                if self._session.get_credentials() is not None:
                    return Boto3CredentialProvider(self._session, ttl=KEYS_KEPT)()
        # Its sources are many, and so are their errors. Their text may hold a key.
        except Exception as error:
            raise RuntimeError(f"{_NOT_GIVEN} ({type(error).__name__})") from None
        raise RuntimeError(_NONE_FOUND)


def _explanation(error: Exception, address: str, name: str) -> Exception:
    """A NodeError or an OSError that says what an error of the store means."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    where, text = (f"{address}/{name}" if name else address), str(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return error  # of a disk here
    if "NoSuchBucket" in text:
        return NodeError(
            f"cluster.storage: there is no bucket for {address}: make it, or fix the name"
        )
    if _OTHER_REGION.search(text):
        return NodeError(
            f"cluster.storage: the bucket of {address} is in another region: set AWS_REGION to its "
            "region in the environment of all nodes"
        )
    if _NONE_FOUND in text:
        return NodeError(
            f"cluster.storage: no credentials for {address}: put them into the environment of all "
            "nodes (for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    if given := re.search(rf"{_NOT_GIVEN} \(\w+\)", text):
        return OSError(errno.EIO, given.group(), where)
    if "<Code>RequestTimeTooSkewed<" in text:
        return NodeError(
            f"cluster.storage: the clock of {socket.gethostname()} is not that of the server of "
            f"{address}: set it"
        )
    if "<Code>ExpiredToken<" in text:
        return NodeError(
            f"cluster.storage: the credentials for {address} have expired: put new ones into the "
            "environment of all nodes"
        )
    status = _STATUS.search(text)
    said = status.group(1).strip() if status else "no answer"
    # Of a listing that is refused obstore says no more than the status.
    refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if refused or said.startswith(("401", "403")):
        return NodeError(
            f"cluster.storage: no permission to read and write {where}: fix the credentials in the "
            "environment of all nodes, or the bucket's policy"
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", where)
    return OSError(errno.EIO, said, where)


def user_folder() -> Path:
    """This user's folder on this node, in $TMPDIR, made if it is missing.

    Raises NodeError where others can enter it.
    """
    root = Path(tempfile.gettempdir()) / f"seq2sweep-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise NodeError(
            f"{root} must be a folder of this user that nobody else can enter: remove it, or set "
            "TMPDIR to another disk before Ray starts there"
        )
    return root


def node_folder(address: str) -> Path:
    """This node's folder for an address, made if it is missing: always the same for the same user.

    It lies in `user_folder`.
    """
    folder = user_folder() / hashlib.sha256(address.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder
