"""Objects on a server that talks S3."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import CredentialRetrievalError
from moto.s3.models import S3Backend
from obstore.exceptions import GenericError, PermissionDeniedError

from seq2sweep.errors import NodeError, UserError
from seq2sweep.storage import object_store, retry
from seq2sweep.storage.object_store import ObjectStore, _Boto3Credentials
from seq2sweep.storage.retry import with_retries


def test_objects_come_and_go(bucket: str, tmp_path: Path) -> None:
    here, other = ObjectStore(bucket), ObjectStore(bucket)
    assert (here.sizes(), here.read("a"), here.size("a")) == ({}, None, None)
    here.write("a", b"0123")
    here.write("folder/b", b"")
    assert other.sizes() == {"a": 4, "folder/b": 0}
    assert (other.read("a"), other.read("a", 2), other.size("a")) == (b"0123", b"23", 4)
    here.write("a", b"4")
    assert other.read("a") == b"4"
    assert other.at("folder").sizes() == {"b": 0}
    here.write("folder/below/c", b"")
    assert (other.folders(), other.at("folder").folders()) == (["folder"], ["below"])
    here.delete("folder/below/c")
    for _ in range(2):
        here.delete("a")
    assert other.sizes() == {"folder/b": 0}


def test_files_go_there_and_come_back(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 300_000)
    content, here = os.urandom(1 << 20), ObjectStore(bucket)
    (tmp_path / "file").write_bytes(content)
    here.upload(tmp_path / "file", "there")
    here.download("there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    with pytest.raises(OSError, match="no such object") as caught:
        here.download("nothing", tmp_path / "back")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == f"{bucket}/nothing"


def test_few_parts_of_an_object_are_on_their_way_at_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow line more of them would not get there within the time of a request."""
    take, lock, counts = S3Backend.upload_part, threading.Lock(), [0]

    def slow(*arguments: Any, **options: Any) -> Any:
        with lock:
            counts.append(counts[-1] + 1)
        time.sleep(0.3)
        with lock:
            counts.append(counts[-1] - 1)
        return take(*arguments, **options)

    monkeypatch.setattr(S3Backend, "upload_part", slow)
    content = bytes(26 << 20)  # 6 parts
    (tmp_path / "file").write_bytes(content)
    ObjectStore(bucket).write("bytes", content)
    ObjectStore(bucket).upload(tmp_path / "file", "file")
    assert ObjectStore(bucket).sizes() == {"bytes": len(content), "file": len(content)}
    assert len(counts) == 1 + 2 * 6 * 2
    assert max(counts) <= object_store.PARTS_AT_ONCE


def test_an_object_has_no_more_parts_than_s3_takes(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    take, size = S3Backend.upload_part, (30 << 20) + 1  # 7 parts of the usual size

    def count(*arguments: Any, **options: Any) -> Any:
        taken.append("a part")
        return take(*arguments, **options)

    monkeypatch.setattr(S3Backend, "upload_part", count)
    monkeypatch.setattr(object_store, "MOST_PARTS", 4)
    (tmp_path / "file").write_bytes(bytes(size))
    ObjectStore(bucket).upload(tmp_path / "file", "file")
    assert ObjectStore(bucket).size("file") == size
    assert len(taken) == 4


def test_of_two_who_make_an_object_one_does(bucket: str) -> None:
    assert ObjectStore(bucket).create("claim", b"one")
    assert not ObjectStore(bucket).create("claim", b"two")
    assert ObjectStore(bucket).create("claim", b"one"), "as when the answer to it was lost"
    assert ObjectStore(bucket).read("claim") == b"one"


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    nowhere = ObjectStore("s3://there-is-none/runs")
    for work in (nowhere.sizes, lambda: nowhere.write("a", b""), lambda: nowhere.create("a", b"")):
        with pytest.raises(UserError, match="there is no bucket for s3://there-is-none/runs"):
            work()


# --- credentials by boto3 -------------------------------------------------------------------------


@pytest.fixture
def without_key(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[dict[str, Path]]:
    """An environment without a key, for boto3 as in a new process; gives its two files."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    files = {name: tmp_path / name for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")}
    for name, path in files.items():
        monkeypatch.setenv(name, str(path))
    forget = object_store._boto3_credentials.cache_clear
    forget()
    yield files
    forget()


def test_no_credentials(bucket: str, without_key: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"no credentials for s3://.*AWS_ACCESS_KEY_ID"):
        ObjectStore(bucket).sizes()


def test_a_profile_that_is_not_there(
    bucket: str, without_key: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mistyped")
    with pytest.raises(UserError, match=r"no credentials for s3://.*\(mistyped\).*AWS_PROFILE"):
        ObjectStore(bucket)


def test_the_keys_of_a_profile_are_asked_for_once(
    bucket: str, without_key: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Session(boto3.Session):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(boto3, "Session", Session)
    without_key["AWS_SHARED_CREDENTIALS_FILE"].write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = two\n"
    )
    ObjectStore(bucket).write("a", b"1")
    assert ObjectStore(bucket).at("").read("a") == b"1"
    assert len(made) == 1


def test_keys_that_another_program_renews_in_a_file_are_read_again(
    without_key: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as temporary ones of a login: the old ones expire."""
    file = without_key["AWS_SHARED_CREDENTIALS_FILE"]

    def renew(name: str) -> None:
        lines = ("[default]", f"aws_access_key_id = {name}", "aws_secret_access_key = secret")
        file.write_text("\n".join([*lines, f"aws_session_token = token of {name}", ""]))

    renew("one")
    credentials = _Boto3Credentials(boto3.Session())
    assert credentials()["access_key_id"] == "one"
    renew("two")
    assert credentials()["access_key_id"] == "one", "each store asks, one after the other"
    monkeypatch.setattr(object_store, "FILE_SECONDS", 0.0)
    found = credentials()
    assert (found["access_key_id"], found["token"]) == ("two", "token of two")


class Role:
    """A session of boto3 whose role is given keys, or not: by what each request is answered."""

    region_name = "us-east-1"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    def get_credentials(self) -> Role:
        return self

    def get_frozen_credentials(self) -> Any:
        if error := self.answers.pop(0):
            raise error
        return SimpleNamespace(access_key="one", secret_key="two", token=None)


def test_keys_of_a_role_are_not_asked_for_in_a_new_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "FILE_SECONDS", 0.0)
    role = Role(None, None)
    credentials = _Boto3Credentials(role)
    assert [credentials()["access_key_id"] for _ in range(2)] == ["one", "one"]
    assert role.answers == []


def test_keys_of_a_role_are_not_used_for_longer_than_they_live() -> None:
    """botocore gives none that end within 10 minutes; obstore asks again 5 minutes before."""
    found = _Boto3Credentials(Role(None))()
    assert found["expires_at"] - datetime.now(UTC) < timedelta(minutes=10.1)


@pytest.mark.parametrize(
    "error",
    [CredentialRetrievalError(provider="role", error_msg="secret"), RuntimeError("secret")],
    ids=["boto3's own", "another"],
)
def test_a_role_that_is_not_given_its_keys_is_waited_for(
    bucket: str, without_key: dict[str, Path], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    role = Role(error, error, None)
    monkeypatch.setattr(object_store, "_boto3_credentials", lambda: _Boto3Credentials(role))
    here = ObjectStore(bucket)
    with pytest.raises(OSError, match=r"no credentials were given \(\w+Error\)") as caught:
        here.sizes()
    assert caught.value.errno == errno.EIO
    assert "secret" not in str(caught.value)
    monkeypatch.setattr(retry, "PAUSES", (0,))
    assert with_retries(here.sizes) == {}
    assert role.answers == []


class Raises:
    """A store of obstore's that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def put(self, name: str, content: bytes, **options: Any) -> None:
        raise self.error


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        PermissionDeniedError("403: secret"),
        # As of a listing.
        GenericError("- Server returned non-2xx status code: 403 Forbidden: <Error>secret</Error>"),
    ],
)
def test_no_permission(bucket: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    here = ObjectStore(bucket)
    monkeypatch.setattr(here, "_store", Raises(error))
    with pytest.raises(UserError, match=r"no permission to read and write s3://.*/a:") as caught:
        here.write("a", b"")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("RequestTimeTooSkewed", PermissionDeniedError, r"the clock of .+ is not that .*: set it$"),
        ("ExpiredToken", GenericError, r"the credentials for s3://.* have expired: put new ones"),
    ],
)
def test_a_wrong_clock_and_expired_credentials(
    bucket: str, monkeypatch: pytest.MonkeyPatch, code: str, kind: type[Exception], said: str
) -> None:
    """What the server says of them is no lack of permission, and no reason to wait."""
    here = ObjectStore(bucket)
    answer = f"status code: 403 Forbidden: <Error><Code>{code}</Code><Key>secret</Key></Error>"
    monkeypatch.setattr(here, "_store", Raises(kind(answer)))
    with pytest.raises(UserError, match=said) as caught:
        here.write("a", b"")
    assert "secret" not in str(caught.value)


class OfAnotherRegion(BaseHTTPRequestHandler):
    """S3 where the bucket is not: it names no other address, or says which region signed."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        signed = self.path.startswith("/signed")
        code = "AuthorizationHeaderMalformed" if signed else "PermanentRedirect"
        body = f"<Error><Code>{code}</Code><Message>secret</Message><Region>there</Region></Error>"
        self.send_response(400 if signed else 301)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """On no test's output."""


@pytest.mark.parametrize("name", ["bucket", "signed"])
def test_a_bucket_of_another_region(
    bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Waiting does not mend it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OfAnotherRegion) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        there = ObjectStore(f"s3://{name}/runs")
        try:
            for work in (there.sizes, lambda: there.read("a"), lambda: there.write("a", b"")):
                with pytest.raises(NodeError, match="another region: set AWS_REGION") as caught:
                    work()
                assert "secret" not in str(caught.value)
        finally:
            server.shutdown()


def test_the_environments_region_is_used_before_a_profiles(
    without_key: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_key["AWS_CONFIG_FILE"].write_text("[default]\nregion = eu-west-1\n")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert _Boto3Credentials(boto3.Session()).config == {"region": "eu-west-1"}
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert _Boto3Credentials(boto3.Session()).config == {}


def test_an_answer_that_is_an_error(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ObjectStore(bucket)
    said = "Server returned non-2xx status code: 503 Slow Down: <Error>secret</Error>"
    monkeypatch.setattr(here, "_store", Raises(GenericError(said)))
    with pytest.raises(OSError, match="503 Slow Down") as caught:
        here.write("a", b"")
    assert "secret" not in str(caught.value)


def test_a_server_that_is_away(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of storage, which is waited for, and no endpoint stands in it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="no answer") as caught:
        ObjectStore(bucket).read("a")
    assert caught.value.errno == errno.EIO
    assert "127.0.0.1" not in str(caught.value)


def test_a_disk_of_this_machine_that_is_full(bucket: str, small_disk: Path, tmp_path: Path) -> None:
    ObjectStore(bucket).write("large", bytes(1 << 20))
    with pytest.raises(OSError, match="No space left") as caught:
        ObjectStore(bucket).download("large", small_disk / "file")
    assert caught.value.errno == errno.ENOSPC
    assert "s3://" not in str(caught.value)


def test_a_mistake_of_the_program_stays_one(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ObjectStore(bucket)
    monkeypatch.setattr(here, "_store", Raises(TypeError("a bug")))
    with pytest.raises(TypeError, match="a bug"):
        here.write("a", b"")
