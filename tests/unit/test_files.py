"""Reading aligned text line by line, and writing folders whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.data import files
from seq2sweep.errors import UserError


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        list(files.read_lines(path))
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
    assert list(files.read_lines(write(tmp_path / name, content))) == lines


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    # "\r" before the line end and a mark at the start belong to the file, not to the text.
    expected = [line.rstrip("\r").lstrip("\ufeff") for line in lines] or ["x"]
    assert files.write_lines(path, expected) == len(expected)
    assert list(files.read_lines(path)) == expected
    assert files.count_lines(path) == len(expected)


def test_long_lines_are_read_and_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    long = "word " * 1_000_000
    path = write(tmp_path / "text.gz", f"short\n{long}\nshort\n".encode())
    assert [len(line) for line in files.read_lines(path)] == [5, len(long), 5]
    many = tmp_path / "many"
    many.write_bytes(b"just a line of text\n" * 500_000)
    tracemalloc.start()
    assert sum(1 for _ in files.read_lines(many)) == 500_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_wrong_utf8_is_found_by_line_and_byte(tmp_path: Path, name: str) -> None:
    message = error_of(write(tmp_path / name, "gut\nschön \xff".encode("latin-1") + b"\nend\n"))
    assert "line 2: not UTF-8 at byte 4 of the line (0xf6)" in message


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


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (1, 2), (2, 1)])
def test_unequal_counts_are_both_named(tmp_path: Path, source: int, target: int) -> None:
    left = write(tmp_path / "left", b"x\n" * source)
    right = write(tmp_path / "right.gz", b"y\n" * target)
    with pytest.raises(UserError) as caught:
        list(files.read_pairs(left, right))
    assert f"left has {source} lines" in str(caught.value)
    assert f"right.gz has {target} lines" in str(caught.value)


def test_pairs_are_written_and_read_aligned(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("", "c\u2028d"), ("e", "")]
    assert files.write_pairs(tmp_path / "s", tmp_path / "t", pairs) == 3
    assert list(files.read_pairs(tmp_path / "s", tmp_path / "t")) == pairs


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "data", bytes(range(256)) * 5000)
    assert files.sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_whole_folder_replaces_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "folder"
    for content in ("old", "new"):
        with files.whole_folder(final) as folder:
            assert folder != final
            (folder / content).write_text(content)
    assert [path.name for path in final.iterdir()] == ["new"]
    assert list(final.parent.iterdir()) == [final]


@pytest.mark.parametrize("error", [UserError, KeyboardInterrupt])
def test_whole_folder_leaves_the_old_one_when_the_block_fails(
    tmp_path: Path, error: type[BaseException]
) -> None:
    final = tmp_path / "folder"
    with files.whole_folder(final) as folder:
        (folder / "old").write_text("old")

    def fail() -> None:
        with files.whole_folder(final) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert [path.name for path in final.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [final]


def test_whole_folder_clears_what_a_killed_stage_left(tmp_path: Path) -> None:
    final = tmp_path / "folder"
    for suffix, part in itertools.product((".partial", ".replaced"), ("a", "b")):
        left = tmp_path / f"folder{suffix}"
        left.mkdir(exist_ok=True)
        (left / part).write_text("left over")
    with files.whole_folder(final) as folder:
        (folder / "new").write_text("new")
    assert list(tmp_path.iterdir()) == [final]
    assert [path.name for path in final.iterdir()] == ["new"]
