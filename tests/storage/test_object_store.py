"""What is asked of object storage, of a server that talks S3."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import s3fs

from seq2sweep.errors import UserError
from seq2sweep.storage import object_store as buckets
from seq2sweep.storage.object_store import Bucket


def test_objects_come_and_go(bucket: str, tmp_path: Path) -> None:
    here, other = Bucket(bucket), Bucket(bucket)
    assert (here.sizes(), here.read("a"), here.size("a")) == ({}, None, None)
    here.write("a", b"0123")
    here.write("folder/b", b"")
    assert other.sizes() == {"a": 4, "folder/b": 0}
    assert (other.read("a"), other.read("a", 2), other.size("a")) == (b"0123", b"23", 4)
    here.write("a", b"4")
    assert other.read("a") == b"4"
    assert other.at("folder").sizes() == {"b": 0}
    for _ in range(2):
        here.delete("a")
    assert other.sizes() == {"folder/b": 0}


def test_files_go_there_and_come_back(bucket: str, tmp_path: Path) -> None:
    content, here = os.urandom(1 << 20), Bucket(bucket)
    (tmp_path / "file").write_bytes(content)
    here.upload(tmp_path / "file", "there")
    here.download("there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    with pytest.raises(OSError, match="NoSuchKey") as caught:
        here.download("nothing", tmp_path / "back")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == f"{bucket}/nothing"


def test_of_two_who_make_an_object_one_does(bucket: str) -> None:
    assert Bucket(bucket).create("claim", b"one")
    assert not Bucket(bucket).create("claim", b"two")
    assert Bucket(bucket).create("claim", b"one"), "as when the answer to it was lost"
    assert Bucket(bucket).read("claim") == b"one"


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    nowhere = Bucket("s3://there-is-none/runs")
    for work in (nowhere.sizes, lambda: nowhere.write("a", b""), lambda: nowhere.create("a", b"")):
        with pytest.raises(UserError, match="there is no bucket for s3://there-is-none/runs"):
            work()


@pytest.fixture
def anew() -> Iterator[None]:
    """Let the driver read the environment."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def test_no_credentials(
    bucket: str, anew: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"no credentials for s3://.*AWS_ACCESS_KEY_ID"):
        Bucket(bucket).read("a")


def test_no_right(bucket: str) -> None:
    class Refuses:
        def pipe_file(self, path: str, content: bytes) -> None:
            client = boto3.client("s3")
            error = client.exceptions.ClientError(
                {"Error": {"Code": "AccessDenied", "Message": "secret"}}, "PutObject"
            )
            raise PermissionError("secret") from error

    with pytest.raises(
        UserError, match=r"no right to read and write s3://.*/a \(AccessDenied\)"
    ) as e:
        Bucket(bucket, Refuses()).write("a", b"")
    assert "secret" not in str(e.value)


def test_a_server_that_is_away(bucket: str, anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of storage, which is waited for, and no endpoint stands in it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    with pytest.raises(OSError, match="EndpointConnectionError") as caught:
        Bucket(bucket).read("a")
    assert caught.value.errno == errno.EIO


def test_a_disk_of_this_machine_that_is_full(bucket: str, small_disk: Path, tmp_path: Path) -> None:
    Bucket(bucket).write("large", bytes(1 << 20))
    with pytest.raises(OSError, match="No space left") as caught:
        Bucket(bucket).download("large", small_disk / "file")
    assert caught.value.errno == errno.ENOSPC
    assert "s3://" not in str(caught.value)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> None:
        raise ImportError("Install gcsfs to access Google Storage")

    monkeypatch.setattr(buckets, "_open", missing)
    with pytest.raises(UserError, match=r"gs://b/x, which needs .* -e '\.\[gs\]'") as caught:
        Bucket("gs://b/x")
    assert "\n" not in str(caught.value)


def test_a_mistake_of_the_program_stays_one(bucket: str) -> None:
    class Broken:
        def cat_file(self, path: str, start: int | None) -> bytes:
            raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        Bucket(bucket, Broken()).read("a")
