"""Downloads that end in the middle go on: after a kill, in another process, elsewhere."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.data import download
from seq2sweep.data.download import transfer
from seq2sweep.data.download.transfer import Partial, StoppedError
from seq2sweep.data.sources import Archive
from seq2sweep.errors import UserError
from tests.data.server import Page, Server, serving

ROOT = Path(__file__).parents[2]
CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
FETCH = """
import json, sys
from pathlib import Path
from seq2sweep.data import download
from seq2sweep.data.sources import Archive
download.fetch([Archive(*json.loads(sys.argv[1]))], Path(sys.argv[2]), {}, 2)
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FIRST_DELAY", 0.001)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"/x": Page(CONTENT), "/other": Page(OTHER)}) as running:
        yield running


def archive(*addresses: str, content: bytes = CONTENT, size: bool = True) -> Archive:
    digest = hashlib.sha256(content).hexdigest()
    return Archive("x", addresses, len(content) if size else None, "sha256", digest)


def without_sum(*addresses: str, size: int | None = None) -> Archive:
    return Archive("x", addresses, size, None, None)


def fetch(folder: Path, wanted: Archive) -> bytes:
    download.fetch([wanted], folder, {}, 1)
    assert {path.name for path in folder.iterdir()} == {"x", "x.json"}
    return (folder / "x").read_bytes()


def fails(folder: Path, wanted: Archive) -> str:
    with pytest.raises(UserError) as caught:
        download.fetch([wanted], folder, {}, 1)
    assert not (folder / "x").exists()
    return str(caught.value)


def starts(server: Server, path: str = "/x") -> list[int]:
    return [request.start for request in server.asked(path)]


def start(folder: Path, wanted: Archive) -> subprocess.Popen[str]:
    """Another process that fetches it."""
    values = [wanted.file, wanted.addresses, wanted.bytes, wanted.algorithm, wanted.digest]
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, json.dumps(values), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_download_goes_on_where_it_was(
    tmp_path: Path, server: Server, number: signal.Signals
) -> None:
    content = random.Random(2).randbytes(4_000_000)
    server.pages["/x"] = Page(content, block=1 << 15, pause=0.01)
    wanted = archive(server.address("/x"), content=content)
    partial = tmp_path / "x.partial"
    with start(tmp_path, wanted) as killed:
        wait_until(lambda: size_of(partial) > 1_000_000)
        killed.send_signal(number)
        killed.communicate(timeout=30)
    assert killed.returncode == -number
    reached = size_of(partial)
    assert 1_000_000 < reached < len(content)
    assert not (tmp_path / "x").exists()
    server.pages["/x"].pause = 0
    assert fetch(tmp_path, wanted) == content
    assert starts(server) == [0, reached]
    first, second = server.asked("/x")
    assert first.sent + second.sent < 1.05 * len(content)


def test_an_interruption_does_not_wait_for_a_silent_server(tmp_path: Path, server: Server) -> None:
    server.pages["/x"] = Page(CONTENT, cut_after=1000, silent=30)
    with start(tmp_path, archive(server.address("/x"))) as interrupted:
        wait_until(lambda: size_of(tmp_path / "x.partial") == 1000)
        began = time.monotonic()
        interrupted.send_signal(signal.SIGINT)
        _, errors = interrupted.communicate(timeout=30)
        assert time.monotonic() - began < 10
    assert "KeyboardInterrupt" in errors
    assert size_of(tmp_path / "x.partial") == 1000


def test_of_two_processes_the_second_waits_for_the_first(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pages["/x"] = Page(CONTENT, block=10_000, pause=0.02)
    wanted = archive(server.address("/x"))
    with start(tmp_path, wanted) as first:
        wait_until(lambda: size_of(tmp_path / "x.partial") > 0)
        assert fetch(tmp_path, wanted) == CONTENT
        _, errors = first.communicate(timeout=30)
    assert first.returncode == 0, errors
    assert capsys.readouterr().out == "x.partial: another process is downloading it; waiting\n"
    assert starts(server) == [0]


def test_when_the_first_is_killed_the_second_goes_on(tmp_path: Path, server: Server) -> None:
    content = random.Random(2).randbytes(6_000_000)
    server.pages["/x"] = Page(content, block=10_000, pause=0.05)
    wanted = archive(server.address("/x"), content=content)
    with start(tmp_path, wanted) as first:
        wait_until(lambda: size_of(tmp_path / "x.partial") > 0)
        with start(tmp_path, wanted) as second:
            assert second.stdout is not None
            assert "waiting" in second.stdout.readline()
            first.kill()
            server.pages["/x"].pause = 0
            _, errors = second.communicate(timeout=30)
        assert second.returncode == 0, errors
        first.communicate()
    assert (tmp_path / "x").read_bytes() == content
    assert len(starts(server)) == 2
    assert starts(server)[1] > 0


def leave(folder: Path, content: bytes) -> None:
    """What an earlier run may have left, without a word on where it is from."""
    (folder / "x.partial").write_bytes(content)


@pytest.mark.parametrize("size", [True, False], ids=["size known", "size not known"])
@pytest.mark.parametrize(
    ("left", "asked"),
    [
        (CONTENT[:1], [1]),
        (CONTENT[:-1], [299_999]),
        # Wrong bytes show when it is complete, and are thrown away.
        (b"wrong" * 100, [500, 0]),
        (b"wrong" * 60_000, [0]),
        (CONTENT + b"more", [0]),
        (CONTENT, []),
    ],
    ids=["a byte", "all but one", "wrong", "all wrong", "too much", "all"],
)
def test_what_an_earlier_run_left_is_used_if_it_is_right(
    tmp_path: Path, server: Server, left: bytes, asked: list[int], size: bool
) -> None:
    leave(tmp_path, left)
    assert fetch(tmp_path, archive(server.address("/x"), size=size)) == CONTENT
    if size:
        assert starts(server) == asked
    else:  # whether there is more must be asked
        assert starts(server) == ([len(left), *asked] if len(left) >= len(CONTENT) else asked)


def test_what_is_wrong_is_not_left_for_the_next_run(tmp_path: Path, server: Server) -> None:
    leave(tmp_path, b"wrong" * 100)
    assert "serves sha256" in fails(tmp_path, archive(server.address("/other")))
    assert list(tmp_path.iterdir()) == []


def test_what_is_right_is_left_for_the_next_run(tmp_path: Path, server: Server) -> None:
    server.pages["/x"] = Page(CONTENT, cut_after=100_000, cuts=1)
    leave(tmp_path, CONTENT[:1000])
    fails(tmp_path, archive(server.address("/absent")))
    server.pages["/y"] = Page(statuses=[500] * 5)
    fails(tmp_path, archive(server.address("/y")))
    assert size_of(tmp_path / "x.partial") == 1000
    assert fetch(tmp_path, archive(server.address("/x"))) == CONTENT
    assert starts(server) == [1000, 101_000]


@pytest.mark.parametrize("size", [True, False])
def test_a_web_page_costs_nothing_of_what_is_there(
    tmp_path: Path, server: Server, size: bool
) -> None:
    server.pages["/login"] = Page(b"<html>", chunked=size, headers={"Content-Type": "text/html"})
    leave(tmp_path, CONTENT[:1000])
    message = fails(tmp_path, archive(server.address("/login"), size=size))
    assert "serves a web page (text/html)" in message
    assert size_of(tmp_path / "x.partial") == 1000
    assert fetch(tmp_path, archive(server.address("/login"), server.address("/x"))) == CONTENT
    assert starts(server) == [1000]


def test_another_address_goes_on_where_there_is_a_check_sum(tmp_path: Path, server: Server) -> None:
    server.pages["/x"].etag = '"2"'
    server.pages["/first"] = Page(CONTENT, cut_after=100_000, ranges=False, etag='"1"')
    wanted = archive(server.address("/first"), server.address("/x"))
    assert fetch(tmp_path, wanted) == CONTENT
    assert starts(server) == [100_000]
    assert "If-Range" not in server.asked("/x")[0].headers


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize("etag", [None, '"same"'])
def test_without_a_check_sum_another_address_begins_anew(
    tmp_path: Path, server: Server, size: int | None, etag: str | None
) -> None:
    server.pages["/other"] = Page(OTHER, cut_after=100_000, ranges=False, etag=etag)
    server.pages["/x"].etag = etag
    wanted = without_sum(server.address("/other"), server.address("/x"), size=size)
    assert fetch(tmp_path, wanted) == CONTENT
    assert starts(server) == [0]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ({"etag": '"1"'}, {"etag": '"1"'}, [0, 100_000]),
        ({"etag": '"1"'}, {"etag": '"2"'}, [0, 100_000]),  # answered from the start
        ({"etag": '"1"'}, {"etag": '"2"', "if_range": False}, [0, 100_000, 0]),
        ({"etag": 'W/"1"'}, {"etag": 'W/"1"'}, [0, 0]),
        ({}, {}, [0, 0]),
    ],
    ids=["same", "changed", "changed, part sent", "weak", "none"],
)
def test_without_a_check_sum_only_the_same_version_goes_on(
    tmp_path: Path,
    server: Server,
    size: int | None,
    before: dict[str, str],
    after: dict[str, str],
    asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause = Partial.pause

    def interrupted(self: Partial, seconds: float = 0.0) -> None:
        if seconds:
            raise StoppedError
        pause(self)

    monkeypatch.setattr(Partial, "pause", interrupted)
    content = CONTENT if before == after else OTHER
    server.pages["/x"] = Page(content, cut_after=100_000, **before)  # type: ignore[arg-type]
    wanted = without_sum(server.address("/x"), size=size)
    with pytest.raises(StoppedError):
        fetch(tmp_path, wanted)
    assert size_of(tmp_path / "x.partial") == 100_000
    server.pages["/x"] = Page(CONTENT, **after)  # type: ignore[arg-type]
    assert fetch(tmp_path, wanted) == CONTENT
    assert starts(server) == asked


def test_a_last_modified_date_is_a_version_too(tmp_path: Path, server: Server) -> None:
    date = "Sat, 01 Jan 2000 00:00:00 GMT"
    server.pages["/x"] = Page(
        CONTENT, cut_after=100_000, cuts=1, if_range=False, headers={"Last-Modified": date}
    )
    assert fetch(tmp_path, without_sum(server.address("/x"))) == CONTENT
    assert [request.headers.get("If-Range") for request in server.asked("/x")] == [None, date]
    assert starts(server) == [0, 100_000]


def test_a_damaged_note_on_the_origin_costs_a_fresh_start_at_most(
    tmp_path: Path, server: Server
) -> None:
    for text in (b"{", b"[]", b"\xff", b"7"):
        leave(tmp_path, CONTENT[:1000])
        (tmp_path / "x.partial.json").write_bytes(text)
        assert fetch(tmp_path, without_sum(server.address("/x"))) == CONTENT
        assert starts(server)[-1] == 0
        (tmp_path / "x").unlink()
        (tmp_path / "x.json").unlink()


def test_a_mirror_on_disk_goes_on_as_well(tmp_path: Path) -> None:
    mirror, folder = tmp_path / "mirror", tmp_path / "folder"
    folder.mkdir()
    mirror.write_bytes(OTHER[:1000] + CONTENT[1000:])
    leave(folder, CONTENT[:1000])
    # What is there already is not read again, or the sum would be wrong.
    assert fetch(folder, archive(mirror.as_uri())) == CONTENT


def test_a_full_disk_keeps_its_error_and_what_was_written(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Partial.append

    def nearly_full(self: Partial, block: bytes) -> None:
        append(self, block[: 100_000 - self.size])
        if self.size == 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Partial, "append", nearly_full)
    with pytest.raises(OSError, match="No space left") as caught:
        fetch(tmp_path, archive(server.address("/x")))
    assert caught.value.errno == errno.ENOSPC
    assert size_of(tmp_path / "x.partial") == 100_000
    monkeypatch.setattr(Partial, "append", append)
    assert fetch(tmp_path, archive(server.address("/x"))) == CONTENT
    assert starts(server) == [0, 100_000]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_device_without_room_is_an_error_of_the_system(tmp_path: Path, server: Server) -> None:
    (tmp_path / "x.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        fetch(tmp_path, archive(server.address("/x")))
    assert not (tmp_path / "x").exists()


def test_what_grew_before_the_lock_was_had_is_counted(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, path = transfer.try_lock, tmp_path / "x.partial"

    def grown(*arguments: Any) -> bool:
        if not path.stat().st_size:
            path.write_bytes(CONTENT[:5000])  # by the process that had it
        return lock(*arguments)

    monkeypatch.setattr(transfer, "try_lock", grown)
    assert fetch(tmp_path, archive(server.address("/x"))) == CONTENT
    assert starts(server) == [5000]


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    message = fails(tmp_path, archive(server.address("/x")))
    assert message.startswith(f"{tmp_path} is on a file system without locks (No locks available")
    assert "download.folder" in message


def test_a_mistake_of_ours_ends_it_with_its_own_error(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Partial, block: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Partial, "append", broken)
    with pytest.raises(ZeroDivisionError):
        fetch(tmp_path, archive(server.address("/x")))
