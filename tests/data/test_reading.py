"""Reading aligned text line by line, and writing folders whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.data import files, reading
from seq2sweep.data.archives import Text
from seq2sweep.errors import UserError
from seq2sweep.storage import atomic


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        list(reading.read_lines(path))
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\r two\n", ["one\r two"]),
        (b"\n", [""]),
        (b"one\n\n", ["one", ""]),
        (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"]),
        (b"one\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("a\u2028b\x0bc\x0cd\x85e\u0085f\x1cg\n".encode(), ["a\u2028b\x0bc\x0cd\x85e\u0085f\x1cg"]),
        (b"nul\x00byte\n", ["nul\x00byte"]),
    ],
)
def test_lines_end_at_newlines_only(
    tmp_path: Path, name: str, content: bytes, lines: list[str]
) -> None:
    assert list(reading.read_lines(write(tmp_path / name, content))) == lines


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    # "\r" before the line end and a mark at the start belong to the file, not to the text.
    expected = [line.rstrip("\r").lstrip("\ufeff") for line in lines] or ["x"]
    assert files.write_lines(path, expected) == len(expected)
    assert list(reading.read_lines(path)) == expected
    assert files.count_lines(path) == len(expected)


def test_long_lines_are_read_and_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    long = "word " * 1_000_000
    path = write(tmp_path / "text.gz", f"short\n{long}\nshort\n".encode())
    assert [len(line) for line in reading.read_lines(path)] == [5, len(long), 5]
    many = tmp_path / "many"
    many.write_bytes(b"just a line of text\n" * 500_000)
    tracemalloc.start()
    assert sum(1 for _ in reading.read_lines(many)) == 500_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_wrong_utf8_is_found_by_line_and_byte(tmp_path: Path, name: str) -> None:
    message = error_of(write(tmp_path / name, "gut\nschön \xff".encode("latin-1") + b"\nend\n"))
    assert "line 2: not UTF-8 at byte 4 of the line (0xf6)" in message


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_byte_order_mark_is_named(tmp_path: Path, encoding: str, name: str) -> None:
    """Each byte of such a text is UTF-8."""
    path = write(tmp_path / name, "The dog\nThe cat\n".encode(encoding))
    assert error_of(path) == f"{path} seems to be UTF-16: convert the file to UTF-8"
    write(path, b"\0" * 20 + b"\nThe dog\n")
    assert [*reading.read_lines(path)] == ["\0" * 20, "The dog"]


@pytest.mark.parametrize("content", [b"\xed\xa0\x80\n", b"\xc0\x80\n", b"\xf8\x88\x80\x80\x80\n"])
def test_surrogates_and_overlong_forms_are_not_utf8(tmp_path: Path, content: bytes) -> None:
    assert "line 1: not UTF-8" in error_of(write(tmp_path / "text", content))


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    assert "is empty" in error_of(write(tmp_path / name, content))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert "is missing" in error_of(tmp_path / "nowhere")
    assert "cannot be read" in error_of(tmp_path)


def test_broken_gzip_is_told_from_truncated_gzip(tmp_path: Path) -> None:
    plain = tmp_path / "plain.gz"
    plain.write_bytes(b"plain text\n")
    assert "not valid gzip" in error_of(plain)
    whole = gzip.compress("".join(f"line {i}\n" for i in range(10_000)).encode())
    cut = tmp_path / "cut.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "truncated" in error_of(cut)
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(whole[:200] + bytes(50) + whole[250:])
    assert "gzip" in error_of(damaged)


def test_gzip_under_the_name_of_a_text_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "text.de"
    path.write_bytes(gzip.compress(b"ein Satz\n"))
    assert error_of(path) == f"{path} is gzip: decompress it, or let its name end in .gz"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("xz", lzma.compress(b"ein Satz\n")),
        ("bzip2", bz2.compress(b"ein Satz\n")),
        ("zstd", bytes.fromhex("28b52ffd2009490000") + b"ein Satz\n"),
        ("zip", b"PK\x03\x04\x14\x00\x00\x00\x08\x00\xff"),
    ],
)
def test_another_compression_is_called_by_its_name(
    tmp_path: Path, kind: str, content: bytes
) -> None:
    path = tmp_path / f"text.{kind}"
    path.write_bytes(content)
    assert error_of(path) == f"{path} is {kind}, which is not read: decompress it"


def test_a_text_that_begins_as_bzip2_does_is_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"BZh is a word\n")
    assert list(reading.read_lines(path)) == ["BZh is a word"]


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (1, 2), (2, 1)])
def test_unequal_counts_are_both_named(tmp_path: Path, source: int, target: int) -> None:
    left = write(tmp_path / "left", b"x\n" * source)
    right = write(tmp_path / "right.gz", b"y\n" * target)
    with pytest.raises(UserError) as caught:
        list(reading.read_pairs(left, right))
    assert f"left has {source} lines" in str(caught.value)
    assert f"right.gz has {target} lines" in str(caught.value)


@pytest.fixture
def lines_of_a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most, instead of 16."""
    assert reading.LONGEST_LINE == 16 << 20
    monkeypatch.setattr(reading, "LONGEST_LINE", 1 << 20)


@pytest.mark.usefixtures("lines_of_a_mebibyte")
@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_line_has_a_limit(tmp_path: Path, name: str) -> None:
    longest = b"x" * reading.LONGEST_LINE
    path = write(tmp_path / name, b"short\n" + longest + b"\nshort\n" + longest)
    assert [len(line) for line in reading.read_lines(path)] == [5, len(longest), 5, len(longest)]
    for end in (b"\nshort\n", b""):
        path = write(tmp_path / name, b"short\n\n" + longest + b"y" + end)
        assert "line 3 is longer than 1 MiB" in error_of(path)


@pytest.mark.usefixtures("lines_of_a_mebibyte")
def test_an_endless_line_is_never_whole_in_memory(tmp_path: Path) -> None:
    endless = write(tmp_path / "endless.gz", bytes(10 * reading.LONGEST_LINE))
    tracemalloc.start()
    assert "line 1 is longer than 1 MiB" in error_of(endless)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * reading.LONGEST_LINE


LINES = st.lists(
    st.text(st.sampled_from("ab\r\n \u00a0\u2028\x0b\x0c\x85\0ß€😀")), min_size=1, max_size=30
)


@settings(max_examples=200)
@given(LINES, st.integers(1, 40), st.booleans())
def test_where_blocks_end_does_not_matter(lines: list[str], block: int, mark: bool) -> None:
    content = "\n".join(lines)
    expected = [
        line.removesuffix("\r") if place < content.count("\n") else line
        for place, line in enumerate(content.split("\n"))
    ]
    if expected[-1] == "":
        expected.pop()
    raw = (reading.BYTE_ORDER_MARK if mark else b"") + content.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        assert list(reading.lines_of(io.BytesIO(raw), "x")) == expected


@pytest.mark.parametrize("block", [1, 2, 3, 5, 100])
def test_wrong_utf8_is_found_wherever_blocks_end(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(reading, "BLOCK", block)
    content = "eins\n\nß\nß".encode() + b"\xff\n\n"
    with pytest.raises(UserError, match=r"^x line 4: not UTF-8 at byte 3 of the line \(0xff\)"):
        list(reading.lines_of(io.BytesIO(content), "x"))


def test_errors_in_a_member_name_archive_member_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("train.de")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"ok\n\xff\n"))
    with pytest.raises(UserError) as caught:
        list(reading.read_lines(Text(path, "train.de")))
    assert str(caught.value).startswith(f"{path} (train.de) line 2: not UTF-8")


@pytest.mark.parametrize("count", [0, 1, 3, 40_000])
def test_the_sum_of_lines_is_that_of_the_file_they_make(tmp_path: Path, count: int) -> None:
    lines = [f"Zeile {i} ß\u2028" if i % 3 else "" for i in range(count)]
    files.write_lines(tmp_path / "text", lines)
    total, other = reading.TextSum(), reading.TextSum()
    pairs = list(zip(lines, reversed(lines), strict=True))
    assert list(reading.summed(iter(pairs), (total, other))) == pairs
    assert other.lines == count
    assert total.lines == count
    for _ in range(2):  # asking changes nothing
        assert total.sha256() == atomic.sha256(tmp_path / "text")
    total.add("more")
    assert total.lines == count + 1
    files.write_lines(tmp_path / "text", [*lines, "more"])
    assert total.sha256() == atomic.sha256(tmp_path / "text")


def test_the_sum_of_lines_holds_few_of_them() -> None:
    total = reading.TextSum()
    tracemalloc.start()
    for number in range(100_000):
        total.add(f"line {number}")
    total.add("x" * 10_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total.lines == 100_001
    assert peak < 50_000_000


def test_pairs_are_read_one_at_a_time(tmp_path: Path) -> None:
    left = write(tmp_path / "left", b"x\n" * 100_000)
    right = write(tmp_path / "right", b"y\n" * 99_999 + b"\xff\n")
    assert next(reading.read_pairs(left, right)) == ("x", "y")


def test_pairs_are_written_and_read_aligned(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("", "c\u2028d"), ("e", "")]
    assert files.write_pairs(tmp_path / "s", tmp_path / "t", pairs) == 3
    assert list(reading.read_pairs(tmp_path / "s", tmp_path / "t")) == pairs
