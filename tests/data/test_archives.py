"""Reading text out of files and archives that may be damaged or hostile, and writing nothing."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.data import archives, reading
from seq2sweep.data.archives import Text, open_text
from seq2sweep.errors import UserError

WANTED = b"one\ntwo\n"
ARCHIVES = ("a.tar", "a.tgz", "a.tar.gz")
MANY_ZEROS = 10**9


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, two deep; after each test nothing but what the test wrote is there."""
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    yield folder
    found = {path for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {path.parent for path in found} <= {folder}
    assert {path.name for path in found} <= {*ARCHIVES, "text", "text.gz"}


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    return info


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % tarfile.BLOCKSIZE)


def member(name: str, content: bytes, form: int = tarfile.PAX_FORMAT) -> bytes:
    return entry(name, size=len(content)).tobuf(form) + padded(content)


def write(path: Path, *parts: bytes) -> Path:
    content = b"".join(parts)
    if ".tar" in path.suffixes or path.suffix == ".tgz":
        content += bytes(2 * tarfile.BLOCKSIZE)
    path.write_bytes(gzip.compress(content) if path.name.endswith("gz") else content)
    return path


def content_of(text: Text) -> bytes:
    with open_text(text) as stream:
        return stream.read()


def error_of(text: Text) -> str:
    with pytest.raises(UserError) as caught:
        content_of(text)
    message = str(caught.value)
    assert message.isprintable()  # so it is one line, too
    assert text.path.name in message
    return message


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_file_is_read_as_its_name_says(folder: Path, name: str) -> None:
    assert content_of(Text(write(folder / name, WANTED))) == WANTED


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("wanted", ["training/x.de-en.en", "long/" * 25 + "x", "schön.de"])
def test_a_member_is_read_from_every_kind_of_archive(
    folder: Path, name: str, form: int, wanted: str
) -> None:
    before = [member("training/x.de-en.de", b"x" * 3000, form), entry("dir", b"5").tobuf(form)]
    path = write(folder / name, *before, member(wanted, WANTED, form), member("z", b"z", form))
    assert content_of(Text(path, wanted)) == WANTED
    assert list(reading.read_lines(Text(path, wanted))) == ["one", "two"]


def test_a_leading_dot_in_the_archives_own_names_does_not_matter(folder: Path) -> None:
    path = write(folder / "a.tgz", member("./dev/x", WANTED))
    assert content_of(Text(path, "dev/x")) == WANTED


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_compressed_member_is_decompressed(folder: Path, name: str) -> None:
    path = write(folder / name, member("x.en.gz", gzip.compress(WANTED)), member("y", b"y"))
    assert content_of(Text(path, "x.en.gz")) == WANTED


def test_two_members_are_read_side_by_side(folder: Path) -> None:
    lines = [f"line {i}" for i in range(100_000)]
    both = [
        member(name, "".join(f"{name} {line}\n" for line in lines).encode()) for name in ("s", "t")
    ]
    path = write(folder / "a.tgz", *both)
    pairs = list(reading.read_pairs(Text(path, "s"), Text(path, "t")))
    assert pairs == [(f"s {line}", f"t {line}") for line in lines]


def test_the_first_of_two_members_of_one_name_is_read(folder: Path) -> None:
    path = write(folder / "a.tar", member("x", WANTED), member("x", b"later"))
    assert content_of(Text(path, "x")) == WANTED


def test_a_size_in_a_pax_header_counts(folder: Path) -> None:
    record = b"10 size=8\n"
    header = entry("pax", tarfile.XHDTYPE, len(record)).tobuf() + padded(record)
    path = write(folder / "a.tar", header, entry("x").tobuf(), padded(WANTED), member("y", b"y"))
    assert content_of(Text(path, "x")) == WANTED
    assert content_of(Text(path, "y")) == b"y"


def test_an_empty_member_is_an_empty_text(folder: Path) -> None:
    path = write(folder / "a.tgz", member("x", b""), member("x.gz", b""))
    for name in ("x", "x.gz"):
        assert content_of(Text(path, name)) == b""
        with pytest.raises(UserError, match="is empty"):
            list(reading.read_lines(Text(path, name)))


@pytest.mark.parametrize("name", ["../../evil", "/evil", "a/../../evil", "C:\\evil", "nul\x07\n"])
def test_names_of_members_lead_nowhere(folder: Path, name: str) -> None:
    path = write(folder / "a.tgz", member(name, b"evil"), member("x", WANTED))
    assert content_of(Text(path, "x")) == WANTED
    assert content_of(Text(path, name)) == b"evil"
    assert "evil" in error_of(Text(path, "y")) or "nul" in error_of(Text(path, "y"))


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a named pipe"),
        (tarfile.DIRTYPE, "a folder"),
        (b"Z", "of an unknown kind"),
    ],
)
def test_only_regular_files_are_read(folder: Path, kind: bytes, called: str) -> None:
    path = write(folder / "a.tgz", entry("x", kind).tobuf(), member("y", WANTED))
    assert error_of(Text(path, "x")) == f"{path} (x) is {called}, not a regular file"
    assert content_of(Text(path, "y")) == WANTED


def test_sparse_files_are_refused(folder: Path) -> None:
    old = bytearray(entry("old", tarfile.GNUTYPE_SPARSE, 512).tobuf())
    path = write(folder / "a.tar", bytes(old), bytes(512), member("y", WANTED))
    assert "the sparse file 'old'" in error_of(Text(path, "y"))
    record = b"22 GNU.sparse.major=1\n"
    header = entry("pax", tarfile.XHDTYPE, len(record)).tobuf() + padded(record)
    path = write(folder / "a.tgz", header, member("new", WANTED))
    assert "the sparse file 'new'" in error_of(Text(path, "new"))


def test_a_missing_member_is_told_with_those_that_are_there(folder: Path) -> None:
    names = [f"train/{i}" for i in range(7)]
    path = write(folder / "a.tgz", *(member(name, b"x" * i * 600) for i, name in enumerate(names)))
    there = ", ".join(f"'train/{i}'" for i in range(5))
    assert error_of(Text(path, "train")) == (
        f"{path} has no member train; it has {there} and 2 more"
    )
    empty = write(folder / "a.tar")
    assert error_of(Text(empty, "x")) == f"{empty} has no member x; it has none"


def test_path_and_member_must_go_together(folder: Path) -> None:
    assert "is missing" in error_of(Text(folder / "a.tgz", "x"))
    assert "cannot be read" in error_of(Text(folder))
    assert "unpack it, and name the file" in error_of(
        Text(write(folder / "a.tgz", member("x", WANTED)))
    )
    assert "only .tar" in error_of(Text(write(folder / "text.gz", WANTED), "x"))


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "text.gz"])
@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"\n <!DOCTYPE html>\n<html><body>404 Not Found" + b" " * 600, "an HTML page"),
        (b"<html>short", "an HTML page"),
        (b"PK\3\4" + bytes(600), "zip"),
        (b"BZh9" + bytes(600), "bzip2"),
        (b"\xfd7zXZ\0" + bytes(600), "xz"),
        (b"just text\n" * 60, "plain text"),
        (b"\1\2\0" * 200, "binary data"),
    ],
)
def test_a_file_of_another_format_is_told_what_it_is(
    folder: Path, name: str, content: bytes, looks: str
) -> None:
    (folder / name).write_bytes(content)
    message = error_of(Text(folder / name, None if name == "text.gz" else "x"))
    assert f"it looks like {looks}" in message


def test_tar_and_gzip_are_told_apart(folder: Path) -> None:
    (folder / "a.tgz").write_bytes(member("x", WANTED))
    assert "it looks like a tar archive" in error_of(Text(folder / "a.tgz", "x"))
    (folder / "a.tar").write_bytes(gzip.compress(WANTED))
    assert "it looks like gzip" in error_of(Text(folder / "a.tar", "x"))
    path = write(folder / "a.tar", member("x.gz", WANTED))
    assert "(x.gz): not valid gzip, it looks like plain text" in error_of(Text(path, "x.gz"))


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
def test_a_cut_archive_is_found_wherever_it_is_cut(folder: Path, name: str) -> None:
    noise = bytes(i * i % 251 for i in range(5000))
    whole = write(folder / name, member("w", noise), member("x", noise)).read_bytes()
    end = len(whole) - (0 if name == "a.tgz" else 2 * tarfile.BLOCKSIZE + 120)
    for cut in range(0, end, 97):
        (folder / name).write_bytes(whole[:cut])
        message = error_of(Text(folder / name, "x"))
        if cut < tarfile.BLOCKSIZE:
            assert "truncated" in message or "no tar archive, it looks like" in message
        else:
            assert "truncated" in message or "damaged" in message


def test_a_header_with_a_broken_sum_is_not_the_end(folder: Path) -> None:
    good = member("w", WANTED)
    broken = bytearray(member("x", WANTED))
    broken[0] ^= 1
    path = write(folder / "a.tar", good, bytes(broken), member("y", WANTED))
    assert error_of(Text(path, "y")) == (
        f"{path}: the archive is damaged after 'w' (bad checksum); copy it again"
    )
    assert content_of(Text(path, "w")) == WANTED


@pytest.mark.parametrize(
    "record", [b"x", b"0 path=x\n", b"8 path=x\n", b"99999 path=x", b"-5 a=b\n", b"11 size=-1\n"]
)
def test_bad_pax_headers_are_damage(folder: Path, record: bytes) -> None:
    header = entry("pax", tarfile.XHDTYPE, len(record)).tobuf() + padded(record)
    message = error_of(Text(write(folder / "a.tar", header, member("x", WANTED)), "x"))
    assert "the archive is damaged at its start (bad" in message


def test_gzip_with_damage_or_garbage_is_refused(folder: Path) -> None:
    whole = gzip.compress("".join(f"line {i}\n" for i in range(10_000)).encode())
    path = folder / "text.gz"
    path.write_bytes(whole + b"garbage")
    assert "not valid gzip" in error_of(Text(path))
    path.write_bytes(whole + bytes(100))  # padding, as on tapes
    assert len(content_of(Text(path)).split(b"\n")) == 10_001
    path.write_bytes(whole + whole)
    assert len(content_of(Text(path)).split(b"\n")) == 20_001
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    assert "CRC check failed" in error_of(Text(path))
    path.write_bytes(whole[:-3])
    assert "truncated" in error_of(Text(path))


def sample_archive() -> bytes:
    """Every kind of header: pax, GNU long name, link, compressed member."""
    parts = [
        member("long/" * 30, b"x" * 700),
        member("long/" * 40, b"y", tarfile.GNU_FORMAT),
        entry("link", tarfile.SYMTYPE).tobuf(),
        member("x.gz", gzip.compress(WANTED * 20)),
        bytes(1024),
    ]
    return b"".join(parts)


@settings(max_examples=300, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    st.sampled_from(["x.gz", "link", "nowhere"]),
)
def test_whatever_is_damaged_there_is_text_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory,
    compressed: bool,
    changes: list[tuple[float, int]],
    wanted: str,
) -> None:
    content = bytearray(gzip.compress(sample_archive()) if compressed else sample_archive())
    for place, value in changes:
        content[int(place * len(content))] = value
    path = tmp_path_factory.mktemp("damaged") / ("a.tgz" if compressed else "a.tar")
    path.write_bytes(content)
    message = ""
    try:
        assert content_of(Text(path, wanted)) == WANTED * 20
    except UserError as error:
        message = str(error)
    assert message.isprintable()


# --- bombs -------------------------------------------------------------------------------------


def zeros(count: int, unit: bytes = b"\0") -> bytes:
    """Gzip data of `unit` many times over, made in no time: gzip data may follow gzip data."""
    block = gzip.compress(unit * (10_000_000 // len(unit)))
    return block * (count // (10_000_000 // len(unit)))


def bomb(kind: str, path: Path) -> Text:
    header = gzip.compress(entry("x", size=MANY_ZEROS).tobuf(tarfile.GNU_FORMAT))
    end = gzip.compress(member("wanted", WANTED) + bytes(1024))
    if kind == "file":
        (path / "text.gz").write_bytes(zeros(MANY_ZEROS))
        return Text(path / "text.gz")
    if kind == "nested":
        return Text(write(path / "a.tar", member("x.gz", zeros(MANY_ZEROS))), "x.gz")
    if kind in ("pax", "long name"):
        extension = tarfile.XHDTYPE if kind == "pax" else tarfile.GNUTYPE_LONGNAME
        info = entry("x", extension, size=MANY_ZEROS)
        header = gzip.compress(info.tobuf(tarfile.GNU_FORMAT))
    if kind == "many pax":  # each with a record of its own
        records = (f"1003 {i:05}={991 * '0'}\n".encode() for i in range(20_000))
        headers = (entry("x", tarfile.XHDTYPE, len(r)).tobuf() + padded(r) for r in records)
        return Text(write(path / "a.tar", *headers), "wanted")
    body = zeros(MANY_ZEROS)
    if kind == "entries":  # each of nothing but a header
        header, body = b"", zeros(MANY_ZEROS // 10 // 512, entry("empty").tobuf())
    (path / "a.tgz").write_bytes(header + body + end)
    return Text(path / "a.tgz", "x" if kind == "member" else "wanted")


# The work is done in a fork: after an exec, Linux still counts the peak of whoever started it.
MEASURE = """
import os, sys
from pathlib import Path
from seq2sweep.data.archives import Text, open_text
from seq2sweep.errors import UserError

def read(text):
    try:
        with open_text(text) as stream:
            while stream.read(1 << 16):
                pass
    except UserError as error:
        print(error, flush=True)

def peak(text):
    child = os.fork()
    if child == 0:
        read(text)
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

small = peak(Text(Path(sys.argv[1])))
print(peak(Text(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)) - small)
"""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("file", "a decompression bomb"),
        ("member", "a decompression bomb"),
        ("skipped", "a decompression bomb"),
        ("nested", "a decompression bomb"),
        ("entries", "a decompression bomb"),
        ("pax", "a header of 1,000,000,000 bytes"),
        ("many pax", "a header of 1,049,138 bytes"),
        ("long name", "a header of 1,000,000,000 bytes"),
    ],
)
def test_a_bomb_is_refused_in_little_memory(folder: Path, kind: str, why: str) -> None:
    text = bomb(kind, folder)
    (folder / "text").write_bytes(WANTED)
    places = [str(folder / "text"), str(text.path), *([text.member] if text.member else [])]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *places],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    message, grown = done.stdout.splitlines()
    assert why in message
    assert int(grown) < 16 << 20


def test_what_shrinks_well_but_is_small_is_no_bomb(folder: Path) -> None:
    path = write(folder / "text.gz", b"a\n" * 10_000_000)
    assert path.stat().st_size * archives.BOMB_RATIO < 20_000_000
    with open_text(Text(path)) as stream:
        assert sum(len(block) for block in iter(lambda: stream.read(1 << 20), b"")) == 20_000_000


def test_a_stream_can_be_wrapped_as_any_other(folder: Path) -> None:
    path = write(folder / "a.tgz", member("x", WANTED))
    with open_text(Text(path, "x")) as stream:
        assert io.TextIOWrapper(stream).readlines() == ["one\n", "two\n"]
