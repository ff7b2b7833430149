"""Parquet and Arrow files: the columns asked for, in bounded memory, and damage in one line."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from seq2sweep.data import archives, tables
from seq2sweep.data.archives import Text
from seq2sweep.data.reading import read_pairs
from seq2sweep.errors import UserError

PAIRS = [("The dog", "Der Hund"), ("a\nb", "c\r\nd"), ("", "leer"), ("x\u2028y", "ß")]
EXPECTED = [("The dog", "Der Hund"), ("a b", "c d"), ("", "leer"), ("x\u2028y", "ß")]


def columns(pairs: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table(
        {
            "en": pa.array([pair[0] for pair in pairs], pa.string()),
            "de": pa.array([pair[1] for pair in pairs], pa.string()),
        }
    )


def structs(pairs: list[tuple[Any, Any]]) -> pa.Table:
    kind = pa.struct([("en", pa.string()), ("de", pa.string())])
    values = [{"en": en, "de": de} for en, de in pairs]
    return pa.table({"id": list(range(len(pairs))), "translation": pa.array(values, kind)})


def parquet(path: Path, table: pa.Table, **how: Any) -> Path:
    pq.write_table(table, path, **how)
    return path


def stream(path: Path, table: pa.Table, rows: int = 1000, **how: Any) -> Path:
    """As Hugging Face datasets writes it."""
    with pyarrow.ipc.new_stream(path, table.schema, **how) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def file(path: Path, table: pa.Table, **how: Any) -> Path:
    with pyarrow.ipc.new_file(path, table.schema, **how) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def read(path: Path, source: str = "en", target: str = "de") -> list[tuple[str, str]]:
    return list(read_pairs(Text(path, source), Text(path, target)))


def refused(path: Path, source: str = "en", target: str = "de") -> str:
    with pytest.raises(UserError) as caught:
        read(path, source, target)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("write", [parquet, stream, file])
def test_rows_are_pairs(tmp_path: Path, write: Callable[[Path, pa.Table], Path]) -> None:
    path = tmp_path / ("a.parquet" if write is parquet else "a.arrow")
    assert read(write(path, columns(PAIRS))) == EXPECTED
    assert read(path, "de", "en") == [pair[::-1] for pair in EXPECTED]
    assert tables.columns(path) == ["en", "de"]
    write(path, structs(PAIRS))
    assert tables.columns(path) == ["translation.en", "translation.de"]
    assert read(path, "translation.en", "translation.de") == EXPECTED


@pytest.mark.parametrize("write", [parquet, stream])
def test_a_row_without_a_value_is_an_empty_text(
    tmp_path: Path, write: Callable[[Path, pa.Table], Path]
) -> None:
    path = tmp_path / ("a.parquet" if write is parquet else "a.arrow")
    write(path, columns([("a", None), (None, "b"), ("c", "d")]))
    assert read(path) == [("a", ""), ("", "b"), ("c", "d")]
    table = structs([("a", "b"), ("c", "d")])
    kind = table.schema.field("translation").type
    nothing = pa.array([{"en": "a", "de": None}, None], kind)
    write(path, table.set_column(1, "translation", nothing))
    assert read(path, "translation.en", "translation.de") == [("a", ""), ("", "")]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_all_kinds_of_text_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    table = columns([("a", "b"), ("a", "c"), (None, "c")])
    table = table.set_column(0, "en", table["en"].cast(kind))
    for path in (parquet(tmp_path / "a.parquet", table), stream(tmp_path / "a.arrow", table)):
        assert read(path) == [("a", "b"), ("a", "c"), ("", "c")]


def test_of_a_dictionary_what_a_slice_of_rows_uses_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it for each slice would take time that grows with the square of the rows."""
    monkeypatch.setattr(tables, "ROWS", 10)
    pairs = [(f"s{n}", "t") for n in range(95)]
    kinds = [pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.string_view())]
    read_once: list[str] = []
    one_line = tables._one_line
    monkeypatch.setattr(tables, "_one_line", lambda x: (read_once.append(str(x)), one_line(x))[1])
    for number, kind in enumerate(kinds):
        names = pa.DictionaryArray.from_arrays(
            pa.array(range(95), pa.int32()), pa.array([en for en, _ in pairs], kind.value_type)
        )
        table = columns(pairs).set_column(0, "en", names)
        assert read(stream(tmp_path / f"{number}.arrow", table)) == pairs
        assert read_once.count("s1") == 1
        read_once.clear()


def test_many_row_groups_and_batches_keep_their_order(tmp_path: Path) -> None:
    pairs = [(f"s{n % 7}", f"t{n}") for n in range(25_003)]
    for path in (
        parquet(tmp_path / "a.parquet", columns(pairs), row_group_size=9_999),
        stream(tmp_path / "a.arrow", columns(pairs), rows=17),
    ):
        assert read(path) == pairs


def test_a_batch_of_structs_ends_with_its_row_group(tmp_path: Path) -> None:
    """As Hugging Face datasets writes translations; each group has dictionaries of its own."""
    pairs = [(f"s{n % 7}", f"t{n}") for n in range(2_503)]
    path = parquet(tmp_path / "a.parquet", structs(pairs), row_group_size=1000)
    assert read(path, "translation.en", "translation.de") == pairs


def test_a_folder_is_what_save_to_disk_lists(tmp_path: Path) -> None:
    for number in range(2):
        stream(tmp_path / f"data-0000{number}-of-00002.arrow", columns([(str(number), "x")]))
    stream(tmp_path / "cache-123.arrow", columns(PAIRS))
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    state: dict[str, Any] = {"_data_files": [{"filename": name} for name in names]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert tables.shards(tmp_path) == [tmp_path / name for name in names]
    for wrong, message in (
        (state | {"_indices_data_files": [{"filename": "x"}]}, "is a selection of rows"),
        ({"_data_files": [{"filename": "../a.arrow"}]}, "'../a.arrow', which is no .arrow file"),
        ({"_data_files": [{"filename": "a.pkl"}]}, "'a.pkl', which is no .arrow file"),
        ({"_data_files": 3}, "is damaged: call save_to_disk again"),
        ([], "is damaged"),
    ):
        (tmp_path / "state.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=message):
            tables.shards(tmp_path)


def test_shards_are_a_pattern_or_all_of_a_folder(tmp_path: Path) -> None:
    for name in ("train-00001-of-00002", "train-00000-of-00002", "test"):
        parquet(tmp_path / f"{name}.parquet", columns(PAIRS))
    train = [tmp_path / f"train-0000{n}-of-00002.parquet" for n in range(2)]
    assert tables.shards(tmp_path / "train-*.parquet") == train
    assert tables.shards(tmp_path) == [tmp_path / "test.parquet", *train]
    assert tables.shards(tmp_path / "a.parquet") == [tmp_path / "a.parquet"]
    with pytest.raises(UserError, match=r"has no \.parquet file"):
        tables.shards(tmp_path / "valid-*.parquet")


# --- hostile -------------------------------------------------------------------------------------


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", structs(PAIRS))
    assert "has no column 'en' of text; it has translation.en, translation.de" in refused(path)
    assert "'id' of text" in refused(path, "id", "translation.de")
    assert "has no column '' of text" in refused(path, "", "translation.de")
    assert "is missing" in refused(tmp_path / "b.parquet")
    twice = pa.Table.from_arrays([["a"], ["b"], ["c"]], names=["en", "en", "de"])
    assert "has 2 columns 'en': rename one" in refused(parquet(tmp_path / "d.parquet", twice))
    other = parquet(tmp_path / "c.parquet", structs(PAIRS))
    with pytest.raises(UserError, match="two columns of the same table"):
        list(read_pairs(Text(path, "translation.en"), Text(other, "translation.de")))


@pytest.mark.parametrize("write", [parquet, stream, file])
def test_damage_is_told_wherever_it_is(
    tmp_path: Path, write: Callable[[Path, pa.Table], Path]
) -> None:
    path = tmp_path / ("a.parquet" if write is parquet else "a.arrow")
    pairs = [(f"source {n} " * 9, f"target {n} " * 9) for n in range(300)]
    whole = write(path, columns(pairs)).read_bytes()
    for length in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:length])
        assert "is damaged or no " in refused(path)
    for start in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:start] + b"\xff" * 7 + whole[start + 7 :])
        with contextlib.suppress(UserError):
            read(path)
    for junk in (b"", b"text\n", b"PAR1PAR1", b"ARROW1\0\0", bytes(100)):
        path.write_bytes(junk)
        assert "is damaged or no " in refused(path) or "is empty" in refused(path)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (pa.ArrowNotImplementedError, "is written in a way that pyarrow does not read"),
        (pa.ArrowMemoryError, "needs more memory than there is, or is damaged"),
        (pa.ArrowInvalid, r"is damaged or no \.parquet file"),
    ],
)
def test_what_pyarrow_cannot_do_is_not_called_damage(error: type[Exception], message: str) -> None:
    with (
        pytest.raises(UserError, match=rf"^a\.parquet {message}.* \(why\)$"),
        tables._mistakes(Path("a.parquet")),
    ):
        raise error("why")


def test_a_stream_that_is_cut_between_batches_is_not_taken_for_whole(tmp_path: Path) -> None:
    path = stream(tmp_path / "a.arrow", columns(PAIRS), rows=2)
    whole = path.read_bytes()
    with pyarrow.ipc.open_stream(pa.BufferReader(whole)) as reader:
        first = reader.read_next_batch()
    with pyarrow.ipc.new_stream(tmp_path / "one", first.schema) as writer:
        writer.write_batch(first)
    end = b"\xff\xff\xff\xff\0\0\0\0"
    cut = (tmp_path / "one").read_bytes().removesuffix(end)
    assert whole.startswith(cut)
    assert whole.endswith(end)
    path.write_bytes(cut)
    assert "it is cut off" in refused(path)


def test_text_must_be_utf_8(tmp_path: Path) -> None:
    table = columns([("fine", "fein"), ("x\u00e4y", "b")])
    wrong = table["en"].combine_chunks()
    buffers = wrong.buffers()
    data = buffers[2].to_pybytes().replace("ä".encode(), b"\xff\xff")
    bad = pa.StringArray.from_buffers(2, buffers[1], pa.py_buffer(data))
    table = table.set_column(0, "en", bad)
    for path in (parquet(tmp_path / "a.parquet", table), stream(tmp_path / "a.arrow", table)):
        assert "UTF" in refused(path)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    for path in (
        parquet(tmp_path / "a.parquet", columns([])),
        stream(tmp_path / "a.arrow", columns([])),
    ):
        assert "is empty: it must hold one sentence pair a row" in refused(path)


@pytest.mark.parametrize("write", [parquet, stream, file])
def test_of_a_table_some_files_may_have_no_rows(
    write: Callable[[Path, pa.Table], Path], tmp_path: Path
) -> None:
    ending = "parquet" if write is parquet else "arrow"
    pairs = [[], [("a", "b")], [], [("c", "d")]]
    written = [
        write(tmp_path / f"part-{number}.{ending}", columns(each))
        for number, each in enumerate(pairs)
    ]
    assert tables.shards(tmp_path / f"part-*.{ending}") == [written[1], written[3]]
    for path in (written[1], written[3]):
        path.unlink()
    assert tables.shards(tmp_path / f"part-*.{ending}") == [written[0]]


def test_a_value_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_LINE", 100)
    monkeypatch.setattr(tables, "ROWS", 1)
    pairs = [("x" * 100, "y"), ("x", "y"), ("x", "y" * 101)]
    assert "row 3 is longer than" in refused(parquet(tmp_path / "a.parquet", columns(pairs)))


def test_a_repeated_text_is_in_memory_once(tmp_path: Path) -> None:
    """A dictionary of one text of 1 MB stands for 20 000 rows, 20 GB if written out."""
    rows = 20_000
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 1_000_000])
    table = pa.table({"en": long, "de": ["y"] * rows})
    for path in (parquet(tmp_path / "a.parquet", table), stream(tmp_path / "a.arrow", table)):
        tracemalloc.start()
        try:
            pairs = read_pairs(Text(path, "en"), Text(path, "de"))
            before = pa.total_allocated_bytes()
            assert sum(len(source) for source, _ in pairs) == rows * 1_000_000
            assert tracemalloc.get_traced_memory()[1] < 30e6
            assert pa.total_allocated_bytes() - before < 30e6
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("columns_of", [columns, structs])
def test_a_batch_of_all_rows_is_read_some_at_a_time(
    tmp_path: Path, columns_of: Callable[[Any], pa.Table]
) -> None:
    rows = 50_003
    path, names = tmp_path / "a.arrow", ("en", "de")
    table = columns_of([(f"{n} " + "x" * 100, f"{n}") for n in range(rows)])
    if columns_of is structs:
        names = ("translation.en", "translation.de")
    stream(path, table, rows)
    tracemalloc.start()
    try:
        pairs = enumerate(read_pairs(*(Text(path, name) for name in names)))
        assert sum(source[:-101] == target == str(n) for n, (source, target) in pairs) == rows
        # The batch as it is in the file, and of its texts, of 10 MB, some.
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + 5e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("write", [stream, file])
def test_a_bomb_of_compressed_batches_is_refused(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BOMB_BYTES", 1 << 20)
    table = columns([("a" * 2_000_000, "b")] * 2)
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "a.arrow"
    assert "is a decompression bomb" in refused(write(path, table, options=options))
    assert path.stat().st_size * archives.BOMB_RATIO < 2_000_000
    assert len(read(write(path, table))) == 2


def test_a_bomb_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(f"{n}" + "a" * 2000, "b") for n in range(2000)]
    path = parquet(tmp_path / "a.parquet", columns(pairs), compression="zstd", use_dictionary=False)
    assert read(path) == pairs
    monkeypatch.setattr(tables, "BOMB_BYTES", 1 << 20)
    assert path.stat().st_size * archives.BOMB_RATIO < 2000 * 2000
    assert "is a decompression bomb" in refused(path)
