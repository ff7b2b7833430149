"""Objects on a server that talks S3."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from seq2sweep.errors import UserError
from seq2sweep.storage import object_store
from seq2sweep.storage.object_store import ObjectStore


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


def test_no_credentials(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"no credentials for s3://.*AWS_ACCESS_KEY_ID"):
        ObjectStore(bucket)


def test_the_keys_of_a_profile(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    keys = tmp_path / "credentials"
    keys.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = two\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    ObjectStore(bucket).write("a", b"1")
    assert ObjectStore(bucket).read("a") == b"1"


class Raises:
    """A store of obstore's that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def put(self, name: str, content: bytes) -> None:
        raise self.error


def test_no_permission(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ObjectStore(bucket)
    monkeypatch.setattr(here, "_store", Raises(PermissionDeniedError("403: secret")))
    with pytest.raises(UserError, match=r"no permission to read and write s3://.*/a:") as caught:
        here.write("a", b"")
    assert "secret" not in str(caught.value)


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
