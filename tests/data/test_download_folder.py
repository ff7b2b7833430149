"""The folder of downloads: files put there by hand, receipts, room, and what is missing."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2sweep.data import download
from seq2sweep.data.download import receipts
from seq2sweep.data.sources import Archive
from seq2sweep.errors import UserError
from tests.data.server import Page, Server, serving

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with serving({"/good": Page(CONTENT)}) as running:
        yield running


def archive(
    *addresses: str, file: str = "x.tgz", content: bytes = CONTENT, algorithm: str = "sha256"
) -> Archive:
    """An archive of which the registry knows everything."""
    digest = hashlib.new(algorithm, content).hexdigest()
    return Archive(file, addresses, len(content), algorithm, digest)


def without_sum(*addresses: str, size: int | None = None) -> Archive:
    return Archive("x.tgz", addresses, size, None, None)


def fetch(folder: Path, wanted: Archive) -> None:
    download.fetch([wanted], folder, {}, 1)


def refusal(folder: Path, wanted: Archive) -> str:
    with pytest.raises(UserError) as caught:
        fetch(folder, wanted)
    return str(caught.value)


def test_a_right_file_put_there_by_hand_is_taken(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(CONTENT)
    known = archive("http://does-not-exist.invalid/x", algorithm="md5")
    fetch(tmp_path, known)
    recorded = receipts.receipt(tmp_path, known)
    assert recorded["address"] is None
    assert recorded["bytes"] == len(CONTENT)
    assert (recorded["md5"], len(recorded["sha256"])) == (known.digest, 64)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has 0 bytes instead of 300000"),
        (CONTENT[:-1], "has 299999 bytes instead of 300000"),
        (OTHER, f"has sha256 {hashlib.sha256(OTHER).hexdigest()} instead of "),
    ],
)
def test_a_wrong_file_put_there_by_hand_is_refused_and_left_alone(
    tmp_path: Path, server: Server, content: bytes, problem: str
) -> None:
    path = tmp_path / "x.tgz"
    path.write_bytes(content)
    message = refusal(tmp_path, archive(server.address("/good")))
    assert message.startswith(f"{path} {problem}")
    assert "remove it" in message
    assert "\n" not in message
    assert path.read_bytes() == content
    assert server.requests == []
    path.unlink()
    fetch(tmp_path, archive(server.address("/good")))
    assert path.read_bytes() == CONTENT


def test_without_a_check_sum_the_first_download_sets_it(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = without_sum(server.address("/good"))
    fetch(tmp_path, plain)
    line = "x.tgz: not verified, as the registry has no checksum of it\n"
    assert capsys.readouterr().out == line
    fetch(tmp_path, plain)
    assert capsys.readouterr().out == ""
    (tmp_path / "x.tgz").write_bytes(OTHER)
    assert "has sha256" in refusal(tmp_path, plain)
    (tmp_path / "x.tgz").unlink()
    server.pages["/good"] = Page(OTHER)
    assert "serves sha256" in refusal(tmp_path, plain)
    (tmp_path / "x.tgz.json").unlink()
    fetch(tmp_path, plain)
    assert (tmp_path / "x.tgz").read_bytes() == OTHER
    assert capsys.readouterr().out == line


def test_without_size_and_check_sum_the_server_must_tell_where_the_end_is(
    tmp_path: Path, server: Server
) -> None:
    plain = without_sum(server.address("/x"))
    server.pages["/x"] = Page(CONTENT, headers={"Content-Length": "unknown"})
    assert "/x: does not say how long the file is" in refusal(tmp_path, plain)
    assert list(tmp_path.iterdir()) == []
    server.pages["/x"] = Page(CONTENT, chunked=True)
    fetch(tmp_path, plain)
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT


def test_a_web_page_is_no_archive_unless_its_name_says_so(tmp_path: Path, server: Server) -> None:
    """As the login page of a network, where neither size nor check sum would tell."""
    server.pages["/x"] = Page(b"<html>Log in</html>", headers={"Content-Type": "text/html"})
    wanted = without_sum(server.address("/x"))
    assert "/x: serves a web page (text/html)" in refusal(tmp_path, wanted)
    assert list(tmp_path.iterdir()) == []
    fetch(tmp_path, without_sum(server.address("/x"), server.address("/good")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    fetch(tmp_path, Archive("page.html", wanted.addresses, None, None, None))
    assert (tmp_path / "page.html").read_bytes() == b"<html>Log in</html>"


def test_a_receipt_of_an_older_registry_does_not_hold(tmp_path: Path, server: Server) -> None:
    fetch(tmp_path, without_sum(server.address("/good")))
    (tmp_path / "x.tgz").write_bytes(OTHER + b"!")
    fetch(tmp_path, without_sum(server.address("/good"), size=len(OTHER) + 1))
    fetch(tmp_path, known := archive(content=OTHER + b"!"))
    assert receipts.receipt(tmp_path, known)["bytes"] == len(OTHER) + 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"bytes": "1", "sha256": ""}', "\udcff"])
def test_a_damaged_receipt_is_an_error_only_where_it_is_needed(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.tgz").write_bytes(CONTENT)
    path = tmp_path / "x.tgz.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert refusal(tmp_path, without_sum()).startswith(f"{path} is damaged (")
    fetch(tmp_path, archive())
    assert json.loads(path.read_text())["bytes"] == len(CONTENT)
    path.unlink()
    with pytest.raises(UserError, match="is missing: run `dvc repro`"):
        receipts.receipt(tmp_path, archive())


@pytest.mark.parametrize("noted", [None, 3, {"": 5}, {"": {"lines": "3003"}}, {"": {}}])
def test_texts_that_somebody_has_edited_are_not_known(tmp_path: Path, noted: object) -> None:
    fetched = archive()
    (tmp_path / "x.tgz").write_bytes(CONTENT)
    fetch(tmp_path, fetched)
    path = tmp_path / "x.tgz.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"texts": noted}))
    assert receipts.texts(tmp_path, fetched) == {}
    receipts.note_texts(tmp_path, fetched, {"": {"lines": 3003}})
    assert receipts.texts(tmp_path, fetched) == {"": {"lines": 3003}}


def test_room_is_looked_for_first(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 302_999))
    message = refusal(tmp_path, archive(server.address("/good")))
    assert message == (
        f"{tmp_path} has 303kB free, and the downloads need 303kB more: make room, or set "
        "download.folder to another disk"
    )
    assert server.requests == []
    # What is there already needs no room.
    (tmp_path / "x.tgz.partial").write_bytes(CONTENT[:1000])
    fetch(tmp_path, archive(server.address("/good")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT


def test_what_is_no_folder_or_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert refusal(folder, archive()).endswith("which is not a folder")
    (tmp_path / "x.tgz").mkdir()
    assert "x.tgz is not a file: remove it" in refusal(tmp_path, archive())


def test_what_is_missing_is_known_without_network(tmp_path: Path) -> None:
    address = "http://does-not-exist.invalid/x"
    absent, partial, whole, wrong = (archive(address, file=name) for name in "abcd")
    unknown = Archive("e", (address,), None, None, None)
    (tmp_path / "b.partial").write_bytes(CONTENT[:1000])
    (tmp_path / "c").write_bytes(OTHER)  # by size only
    (tmp_path / "d").write_bytes(b"wrong")
    (tmp_path / "e").write_bytes(b"any")
    everything = [absent, partial, whole, wrong, unknown]
    assert download.missing(everything, tmp_path) == [(absent, 0), (partial, 1000), (wrong, 0)]
    assert download.missing(everything[:2], tmp_path / "no") == [(absent, 0), (partial, 0)]
