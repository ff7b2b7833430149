"""Downloads from servers that fail in every way: the right bytes, or one clear error."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import hashlib
import os
import random
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.registry import _registry as drivers
from tqdm import tqdm

from seq2sweep.data import download
from seq2sweep.data.download import receipts, remote, transfer
from seq2sweep.data.sources import Archive
from seq2sweep.errors import UserError
from tests.data.server import Page, Server, serving

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short delays, and no proxy of the machine's between here and here."""
    monkeypatch.setattr(transfer, "FIRST_DELAY", 0.001)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def unknown_hosts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing leaves this machine: no name is looked up, and those that were to be are kept."""
    asked: list[str] = []
    known = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **options: Any) -> Any:
        if host == "127.0.0.1":
            return known(host, *rest, **options)
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"/good": Page(CONTENT), "/loop": Page(redirect="/loop")}) as running:
        yield running


def archive(
    *addresses: str, file: str = "x.tgz", content: bytes = CONTENT, algorithm: str = "sha256"
) -> Archive:
    """An archive of which the registry knows everything."""
    digest = hashlib.new(algorithm, content).hexdigest()
    return Archive(file, addresses, len(content), algorithm, digest)


def fetch(folder: Path, *archives: Archive, mirrors: dict[str, str] | None = None) -> None:
    download.fetch(archives, folder, mirrors or {}, 4)


def refusal(folder: Path, *archives: Archive, mirrors: dict[str, str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        fetch(folder, *archives, mirrors=mirrors)
    return str(caught.value)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def starts(server: Server, path: str = "/x") -> list[int]:
    return [request.start for request in server.asked(path)]


def test_archives_arrive_with_receipts(tmp_path: Path, server: Server) -> None:
    server.pages["/other"] = Page(OTHER)
    folder = tmp_path / "deep" / "folder"
    first = archive(server.address("/good"))
    second = archive(server.address("/other?key=1"), file="y.tar", content=OTHER, algorithm="md5")
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    fetch(folder, first, second)
    assert (folder / "x.tgz").read_bytes() == CONTENT
    assert (folder / "y.tar").read_bytes() == OTHER
    assert names(folder) == {"x.tgz", "x.tgz.json", "y.tar", "y.tar.json"}
    one, two = receipts.receipt(folder, first), receipts.receipt(folder, second)
    fetched = datetime.datetime.fromisoformat(one.pop("fetched"))
    assert before <= fetched <= datetime.datetime.now(datetime.UTC)
    assert one == {
        "file": "x.tgz",
        "bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "address": server.address("/good"),
        "source": server.address("/good"),
    }
    assert two["md5"] == second.digest
    assert two["sha256"] == hashlib.sha256(OTHER).hexdigest()
    assert two["address"] == server.address("/other")
    # A second time nothing is asked and nothing is written.
    texts = [(folder / name).read_text() for name in ("x.tgz.json", "y.tar.json")]
    count = len(server.requests)
    fetch(folder, first, second)
    assert len(server.requests) == count
    assert [(folder / name).read_text() for name in ("x.tgz.json", "y.tar.json")] == texts


HTML = {"Content-Type": "Text/HTML; charset=utf-8"}
SURVIVED: dict[str, tuple[Page, list[int]]] = {
    "cut once": (Page(cut_after=100_000, cuts=1), [0, 100_000]),
    "cut always": (Page(cut_after=80_000), [0, 80_000, 160_000, 240_000]),
    "errors": (Page(statuses=[500, 503, 502, 504]), [0] * 5),
    "too many requests": (Page(statuses=[429], retry_after="0"), [0, 0]),
    "range ignored": (Page(cut_after=100_000, cuts=2, ranges=False), [0, 100_000, 100_000]),
    "another range": (Page(cut_after=100_000, cuts=1, range_shift=-7), [0, 100_000, 0]),
    "chunked": (Page(chunked=True), [0]),
    "chunked and cut": (Page(chunked=True, cut_after=100_000, cuts=1), [0, 100_000]),
    "packed header": (Page(headers={"Content-Encoding": "gzip"}), [0]),
    "same version": (Page(etag='"1"', cut_after=100_000, cuts=1), [0, 100_000]),
    "new version": (Page(etag='"{}"', cut_after=100_000, cuts=1), [0, 100_000]),
    "new version, part sent": (
        Page(etag='"{}"', if_range=False, cut_after=100_000, cuts=1),
        [0, 100_000, 0],
    ),
    "weak tag": (Page(etag='W/"{}"', cut_after=100_000, cuts=1), [0, 100_000]),
    "odd length": (Page(headers={"Content-Length": "9" * 5000}), [0]),
    "called a web page": (Page(headers=HTML), [0]),
    "called a web page, chunked": (Page(chunked=True, headers=HTML), [0]),
    "no date to wait for": (Page(statuses=[503], retry_after="soon"), [0, 0]),
}


@pytest.mark.parametrize("fault", SURVIVED)
def test_faults_that_end_in_the_right_bytes(tmp_path: Path, server: Server, fault: str) -> None:
    page, asked = SURVIVED[fault]
    page.content = CONTENT
    server.pages["/x"] = page
    fetch(tmp_path, archive(server.address("/x")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    assert names(tmp_path) == {"x.tgz", "x.tgz.json"}
    assert starts(server) == asked
    assert all(request.headers["Accept-Encoding"] == "identity" for request in server.requests)


def test_redirects_are_followed_with_the_range(tmp_path: Path, server: Server) -> None:
    server.pages |= {
        "/x": Page(redirect="/there"),
        "/there": Page(CONTENT, cut_after=1000, cuts=1),
    }
    fetch(tmp_path, archive(server.address("/x")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    assert starts(server, "/there") == [0, 1000]


def test_what_a_redirect_says_besides_is_not_read(tmp_path: Path, server: Server) -> None:
    server.pages["/x"] = Page(OTHER, redirect="/good", block=1000, pause=0.05)
    fetch(tmp_path, archive(server.address("/x")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    [request] = server.asked("/x")
    assert request.sent < len(OTHER)


# The page, what the message says, and how often it is asked.
REFUSED: dict[str, tuple[Page, str, int]] = {
    "truncated": (Page(CONTENT[:1234]), "serves 1234 bytes instead of 300000", 1),
    "longer": (Page(CONTENT + b"x"), "serves 300001 bytes instead of 300000", 1),
    "empty": (Page(b""), "serves 0 bytes instead of 300000", 1),
    "another file": (Page(OTHER), f"serves sha256 {hashlib.sha256(OTHER).hexdigest()} instead", 1),
    "another file, cut": (Page(OTHER, cut_after=100_000, cuts=1), "serves sha256", 3),
    "not there": (Page(statuses=[404]), "404 Not Found", 1),
    "forbidden": (Page(statuses=[403]), "403 Forbidden", 1),
    "gone": (Page(statuses=[410]), "410 Gone", 1),
    "unheard of": (Page(statuses=[477]), "477", 1),
    "no content": (Page(statuses=[204]), "204 No Content", 1),
    "always an error": (Page(statuses=[500] * 99), "500 Internal Server Error", 5),
    "in a circle": (Page(redirect="/loop"), "redirects in a circle", 1),
    "to a file": (Page(redirect="file:///etc/passwd"), "request failed (InvalidSchema)", 1),
    "to nowhere": (Page(redirect="http://[::1"), "request failed", 1),
    "range ignored": (
        Page(CONTENT, cut_after=100_000, ranges=False),
        "the connection is cut",
        5,
    ),
    "a web page": (Page(b"<html>", chunked=True, headers=HTML), "serves a web page (text/html)", 1),
    "a web page with a mark": (
        Page(b"\xef\xbb\xbf \r\n<!-- a -->\n<!DOCTYPE HTML>", chunked=True, headers=HTML),
        "serves a web page (text/html)",
        1,
    ),
    "a web page in XML": (
        Page(b'<?xml version="1.0"?>\n<html xmlns="x">', chunked=True, headers=HTML),
        "serves a web page (text/html)",
        1,
    ),
    "chunked, too long": (Page(CONTENT + b"x", chunked=True), "serves more than 300000 bytes", 1),
    "chunked, too short": (Page(CONTENT[:1234], chunked=True), "serves 1234 bytes instead", 2),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_faults_that_end_in_an_error_or_at_the_next_address(
    tmp_path: Path, server: Server, fault: str
) -> None:
    page, reason, times = REFUSED[fault]
    address = server.address("/x")
    server.pages["/x"] = page
    statuses = list(page.statuses)
    message = refusal(tmp_path / "alone", archive(address))
    assert f"{address}: {reason}" in message
    assert "x.tgz (300000 bytes, sha256 " in message
    assert str(tmp_path / "alone") in message
    assert len(server.asked("/x")) == times
    assert "x.tgz" not in names(tmp_path / "alone")
    assert "x.tgz.json" not in names(tmp_path / "alone")

    page.statuses = statuses
    fetch(tmp_path / "two", archive(address, server.address("/good")))
    assert (tmp_path / "two" / "x.tgz").read_bytes() == CONTENT
    assert names(tmp_path / "two") == {"x.tgz", "x.tgz.json"}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 1000 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 300000\r\n\r\n" + CONTENT,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"HTTP/1.1 206 OK\r\nContent-Length: 300000\r\n\r\n" + CONTENT,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n" + CONTENT,
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff:99999999/\r\n\r\n",
        b"HTTP/1.1 404 N\x1b[31m\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[:40]),
)
def test_what_is_hardly_http_is_refused(tmp_path: Path, server: Server, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            with contextlib.suppress(OSError):  # until it is closed
                while True:
                    with listening.accept()[0] as connection, contextlib.suppress(OSError):
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        threading.Thread(target=reply, daemon=True).start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        message = refusal(tmp_path, archive(address))
        assert message.replace("\n", "").isprintable()
        fetch(tmp_path, archive(address, server.address("/good")))
        listening.shutdown(socket.SHUT_RDWR)
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT


def test_a_trickle_counts_as_a_failure(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "SLOW_WINDOW", 0.1)
    monkeypatch.setattr(transfer, "SLOWEST", 1_000_000)
    server.pages["/x"] = Page(CONTENT, block=10, pause=0.02)
    fetch(tmp_path, archive(server.address("/x"), server.address("/good")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    asked = starts(server)
    assert len(asked) == 5
    assert sorted(set(asked)) == asked  # each went on where the one before was given up
    assert starts(server, "/good")[0] > asked[-1]


def test_answers_that_are_all_cut_soon_count_as_failures(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each brings something, and none takes as long as the window."""
    monkeypatch.setattr(transfer, "SLOW_WINDOW", 0.1)
    monkeypatch.setattr(transfer, "SLOWEST", 10_000_000)
    server.pages["/x"] = Page(CONTENT, cut_after=100)
    fetch(tmp_path, archive(server.address("/x"), server.address("/good")))
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    assert starts(server, "/good") == [starts(server)[-1] + 100]
    assert starts(server)[-1] < len(CONTENT) - 200


def test_a_silent_server_counts_as_a_failure(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "READ_TIMEOUT", 0.8)  # in which a busy machine answers
    server.pages["/x"] = Page(CONTENT, cut_after=100_000, cuts=1, silent=1.6)
    fetch(tmp_path / "once", archive(server.address("/x")))
    assert (tmp_path / "once" / "x.tgz").read_bytes() == CONTENT
    assert starts(server) == [0, 100_000]
    server.pages["/x"] = Page(CONTENT, cut_after=0, silent=8.0)
    message = refusal(tmp_path / "always", archive(server.address("/x")))
    assert "sends nothing for 0.8 s" in message
    assert names(tmp_path / "always") == set()


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [
        ("7", 7),
        ("3600", 60),
        ("9" * 5000, 60),
        ("Fri, 31 Dec 2100 00:00:00 GMT", 60),
        ("Fri, 13 Nov 2026 00:00:00 GMT", 0),
        ("Sat, 01 Jan 2000 00:00:00 -0000", 0),
        ("-1", 0),
        ("soon", 0),
    ],
)
def test_a_server_may_ask_for_a_pause_of_up_to_a_minute(
    server: Server, retry_after: str, wait: float
) -> None:
    server.pages["/x"] = Page(statuses=[503], retry_after=retry_after)
    with pytest.raises(remote.UnavailableError) as caught:
        remote.open_at(server.address("/x"), 0, None)
    assert caught.value.wait == wait


def test_delays_double_and_the_pause_asked_for_is_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(
        transfer.Partial, "pause", lambda _, seconds=0.0: delays.extend([seconds] * (seconds > 0))
    )
    monkeypatch.setattr(transfer, "FIRST_DELAY", 1.0)
    server.pages["/x"] = Page(CONTENT, statuses=[503, 503, 503, 503])
    fetch(tmp_path / "a", archive(server.address("/x")))
    assert [round(delay / 2**n) for n, delay in enumerate(delays)] == [1, 1, 1, 1]
    server.pages["/x"] = Page(CONTENT, statuses=[503], retry_after="42")
    fetch(tmp_path / "b", archive(server.address("/x")))
    assert delays[4:] == [42]


def test_without_network_it_is_told_fast_and_what_is_there_is_had(
    tmp_path: Path, server: Server, unknown_hosts: list[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        message = refusal(
            tmp_path,
            archive(f"http://127.0.0.1:{port}/x", "http://does-not-exist.invalid/x"),
            archive(server.address("/good"), file="y.tgz"),
            Archive("z", ("gopher://host/z",), None, None, None),
        )
    assert unknown_hosts == ["does-not-exist.invalid"] * 2  # one more try, no more
    assert message.splitlines() == [
        "2 of 3 archives could not be downloaded:",
        f"  x.tgz (300000 bytes, sha256 {hashlib.sha256(CONTENT).hexdigest()})",
        f"    http://127.0.0.1:{port}/x: no connection",
        "    http://does-not-exist.invalid/x: no connection (host name not found)",
        "  z (size not known, no checksum)",
        "    gopher://host/z: not an address that fsspec knows",
        f"Put each into {tmp_path} under that name by hand, or name a mirror in "
        "download.mirrors, and run `dvc repro` again",
    ]
    assert names(tmp_path) == {"y.tgz", "y.tgz.json"}


SECRETS = ("user", "secret", "token", "key")


def test_credentials_are_shown_nowhere(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.server_address[1]
    server.pages["/bad"] = Page(OTHER)
    good = f"http://user:secret@127.0.0.1:{port}/good?key=token#key"
    bad = [
        f"http://user:secret@127.0.0.1:{port}/{path}?key=token"
        for path in ("bad", "absent", "loop")
    ]
    closed = "http://user:secret@does-not-exist.invalid/x?key=token"
    message = refusal(tmp_path / "a", archive(*bad, closed, "s3://user:secret@host/x?key=token"))
    fetch(tmp_path / "b", archive(good))
    out, err = capsys.readouterr()
    written = (tmp_path / "b" / "x.tgz.json").read_text()
    for secret in SECRETS:
        assert secret not in message + out + err + written
    assert f'"address": "http://127.0.0.1:{port}/good"' in written
    # They are used, though.
    assert "Authorization" in server.asked("/good")[0].headers


def test_a_secret_that_only_looks_like_a_path_is_shown_nowhere(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A password with a slash that nobody has quoted, and a parameter of a path."""
    server.pages["/x;token=SECRET"] = server.pages["/good"]
    bad, good = "https://user:SEC/RET@127.0.0.1/x.tgz", server.address("/x;token=SECRET")
    fetch(tmp_path, archive(bad, good))
    written = (tmp_path / "x.tgz.json").read_text()
    assert "SEC" not in "".join(capsys.readouterr()) + written
    # A receipt of an earlier version has it.
    (tmp_path / "x.tgz.json").write_text(written.replace("token=***", "token=SECRET"))
    unknown = Archive("x.tgz", (good,), None, None, None)
    fetch(tmp_path, unknown)


def test_a_file_of_another_data_set_is_not_taken_for_this_ones(
    tmp_path: Path, server: Server
) -> None:
    """Where no check sum tells them apart; what somebody put there by hand is trusted."""
    server.pages["/other"] = Page(OTHER)
    fetch(tmp_path, archive(server.address("/good")))
    unknown = Archive("x.tgz", (server.address("/other?key=secret"),), None, None, None)
    for ask in (lambda: fetch(tmp_path, unknown), lambda: download.missing([unknown], tmp_path)):
        with pytest.raises(UserError) as caught:
            ask()
        assert str(caught.value) == (
            f"{tmp_path}/x.tgz was downloaded from {server.address('/good')}, which is no address "
            "of this data set: remove it and x.tgz.json, or set another download.folder (if it is "
            "the right file, remove x.tgz.json alone)"
        )
    # A registry's check sum says that it is the right one, wherever it is from.
    digest = hashlib.sha256(CONTENT).hexdigest()
    fetch(tmp_path, dataclasses.replace(unknown, algorithm="sha256", digest=digest))
    (tmp_path / "x.tgz.json").unlink()
    fetch(tmp_path, unknown)
    assert (tmp_path / "x.tgz").read_bytes() == CONTENT
    for name in ("x.tgz", "x.tgz.json"):
        (tmp_path / name).unlink()
    fetch(tmp_path, unknown)
    assert (tmp_path / "x.tgz").read_bytes() == OTHER


def test_a_folder_that_cannot_be_flushed_has_its_files(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network file systems."""
    fsync = os.fsync

    def no_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", no_folders)
    fetch(tmp_path, archive(server.address("/good")))
    assert names(tmp_path) == {"x.tgz", "x.tgz.json"}


def test_a_mirror_takes_the_place_of_an_address(tmp_path: Path, server: Server) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "x.tgz").write_bytes(CONTENT)
    mirrors = {"https://host/": mirror.as_uri() + "/", "https://host/b/": server.address("/")}
    fetch(tmp_path / "a", archive("https://host/x.tgz"), mirrors=mirrors)
    assert (tmp_path / "a" / "x.tgz").read_bytes() == CONTENT
    fetch(tmp_path / "b", archive("https://host/b/good"), mirrors=mirrors)
    assert (tmp_path / "b" / "x.tgz").read_bytes() == CONTENT
    # Without a check sum the file is this data set's all the same, from whatever mirror.
    unknown = Archive("x.tgz", ("https://host/x.tgz",), None, None, None)
    known = receipts.receipt(tmp_path / "a", unknown)
    assert known["source"] == "https://host/x.tgz"
    assert known["address"] == f"{mirror.as_uri()}/x.tgz"
    fetch(tmp_path / "a", unknown)

    (mirror / "wrong").write_bytes(OTHER)
    (mirror / "short").write_bytes(b"short")
    (mirror / "folder").mkdir()
    addresses = [f"https://host/{name}" for name in ("absent", "wrong", "short", "folder")]
    message = refusal(tmp_path / "c", archive(*addresses), mirrors=mirrors)
    for line in (
        f"{mirror.as_uri()}/absent: not there",
        f"{mirror.as_uri()}/wrong: serves sha256",
        f"{mirror.as_uri()}/short: serves 5 bytes instead of 300000",
        f"{mirror.as_uri()}/folder: a folder, not a file",
    ):
        assert line in message
    assert names(tmp_path / "c") == set()


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    # Which a test before may have loaded.
    monkeypatch.delitem(drivers, "s3", raising=False)
    message = refusal(tmp_path, archive("s3://bucket/x.tgz"))
    assert "s3://bucket/x.tgz: Install s3fs to access S3" in message


def test_the_bar_counts_what_is_there(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Any] = []

    def bar_of(**options: Any) -> Any:
        bars.append(tqdm(**options))
        return bars[-1]

    monkeypatch.setattr(download, "tqdm", bar_of)
    server.pages["/x"] = Page(CONTENT, cut_after=200_000, cuts=2, ranges=False)
    (tmp_path / "x.tgz.partial").write_bytes(CONTENT[:1000])
    unknown = Archive("y.tgz", (server.address("/good"),), None, None, None)
    fetch(tmp_path, archive(server.address("/x")), unknown)
    _, bar = bars
    assert (bar.desc, bar.initial, bar.n, bar.total) == ("download", 1000, 600_000, 600_000)
