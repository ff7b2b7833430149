"""Parquet files, and Arrow files as Hugging Face `datasets` saves them, read some rows at a time.

Two columns of text are read and nothing else: no script of a data set is run, nothing is unpickled.
A column is named as in `text`, or, inside of a struct, as in `translation.en`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from seq2sweep.data.archives import BOMB_BYTES, BOMB_RATIO, LONGEST_LINE, Text
from seq2sweep.errors import UserError
from seq2sweep.paths import open_regular, read_bytes

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".parquet", ".arrow")
STATE = "state.json"
"""In a folder of `Dataset.save_to_disk`: which files hold the rows."""
ROWS = 10_000
"""As Python's texts in memory at once. A batch of an Arrow file may have all rows of it."""
_FILE_MAGIC = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


def is_table(path: Path) -> bool:
    """Whether a file is one, by its name."""
    return path.name.endswith(SUFFIXES)


def shards(path: Path) -> list[Path]:
    """The files whose rows, one file after the other, are the table that `path` is.

    It is a file; a pattern such as `train-*.parquet`; or a folder, as `Dataset.save_to_disk` leaves
    it or of Parquet files alone. Of several, those that have rows: Spark and Dask write others too.
    Raises UserError where there is none.
    """
    if path.is_dir():
        found = _saved(path) if (path / STATE).exists() else sorted(path.glob("*.parquet"))
    elif any(sign in path.name for sign in "*?") and not path.exists():
        found = sorted(path.parent.glob(path.name))
    else:
        return [path]
    if not found:
        raise UserError(f"{path} has no .parquet file, and no {STATE} of datasets' save_to_disk")
    return [shard for shard in found if len(found) == 1 or _has_rows(shard)] or found[:1]


def _has_rows(path: Path) -> bool:
    with open_regular(path) as stream, _mistakes(path):
        reader = _reader(stream, path)
        if isinstance(reader, _Arrow):
            return any(True for _ in _batches(reader, path, ()))
        return bool(reader.metadata.num_rows)


def columns(path: Path) -> list[str]:
    """Names of all columns of text of a file, those inside of structs too."""
    with open_regular(path) as stream, _mistakes(path):
        return list(_texts_in(_reader(stream, path).schema_arrow))


def read_pairs(source: Text, target: Text) -> Iterator[tuple[str, str]]:
    """Rows of two columns of one file; a row without a value is an empty text, a line feed a blank.

    Raises UserError for a file that is missing, damaged, without a row or one of the columns, for
    values that are no UTF-8 or longer than LONGEST_LINE, and for decompression bombs.
    """
    path = source.path
    names = [text.member or "" for text in (source, target)]
    if target.path != path:
        raise UserError(f"{source} and {target}: name two columns of the same table")
    known = columns(path)
    for name in names:
        if name not in known:
            has = ", ".join(known) or "none"
            raise UserError(f"{path} has no column {name!r} of text; it has {has}")
        if known.count(name) > 1:
            raise UserError(f"{path} has {known.count(name)} columns {name!r}: rename one")
    rows = 0
    with open_regular(path) as stream, _mistakes(path):
        for batch in _batches(_reader(stream, path, names), path, names):
            sides = [_texts(_column(batch, name)) for name in names]
            for number, pair in enumerate(zip(*sides, strict=True), start=rows + 1):
                if max(map(len, pair)) > LONGEST_LINE:
                    raise UserError(f"{path} row {number} is longer than {LONGEST_LINE >> 20} MiB")
                yield pair
            rows += len(batch)
    if not rows:
        raise UserError(f"{path} is empty: it must hold one sentence pair a row")


def _saved(folder: Path) -> list[Path]:
    """The files that state.json of a folder lists: others there may be datasets' cache."""
    path = folder / STATE
    try:
        state = json.loads(read_bytes(path))
        names = [str(entry["filename"]) for entry in state["_data_files"]]
        odd = [name for name in names if "/" in name or "\\" in name or not is_table(Path(name))]
        if state.get("_indices_data_files"):
            raise UserError(f"{folder} is a selection of rows: save flatten_indices() of it")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UserError(f"{path} is damaged: call save_to_disk again") from None
    if odd:
        raise UserError(f"{path} names {odd[0]!r}, which is no .arrow file beside it")
    return [folder / name for name in names]


@contextlib.contextmanager
def _mistakes(path: Path) -> Iterator[None]:
    """What pyarrow raises becomes a UserError that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        what = f"is damaged or no {path.suffix} file"
        if isinstance(error, NotImplementedError):
            what = "is written in a way that pyarrow does not read: write it with pyarrow"
        elif isinstance(error, MemoryError):  # a damaged number may ask for any amount
            what = "needs more memory than there is, or is damaged: write smaller row groups"
        raise UserError(f"{path} {what} ({said[:200]})") from None


class _Arrow:
    """Batches of an Arrow file or stream, as ParquetFile gives them."""

    def __init__(self, stream: BinaryIO) -> None:
        import pyarrow.ipc

        self._file = stream.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        if not self._file:  # one that was cut between two batches would be read as whole
            stream.seek(-min(len(_STREAM_END), stream.seek(0, 2)), 2)
            if stream.read() != _STREAM_END:
                raise EOFError("it is cut off, or was not written to its end")
        stream.seek(0)
        opened = pyarrow.ipc.open_file if self._file else pyarrow.ipc.open_stream
        self._reader: Any = opened(stream)
        self.schema_arrow: pyarrow.Schema = self._reader.schema

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        if not self._file:
            yield from self._reader
            return
        for number in range(self._reader.num_record_batches):
            yield self._reader.get_batch(number)


def _reader(stream: BinaryIO, path: Path, names: Sequence[str] = ()) -> Any:
    """Of the schema, and of batches. names: columns that stay as Parquet's dictionaries."""
    if path.suffix == ".arrow":
        return _Arrow(stream)
    import pyarrow.parquet

    # A dictionary of one long text may stand for millions of rows: it is not written out.
    return pyarrow.parquet.ParquetFile(
        stream, read_dictionary=list(names), pre_buffer=False, buffer_size=1 << 20
    )


def _batches(reader: Any, path: Path, names: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    if isinstance(reader, _Arrow):
        batches = iter(reader)
    else:
        about = reader.metadata
        groups = range(about.num_row_groups)
        for group in groups:
            _refuse_bomb(about.row_group(group).total_byte_size, path)
        # Each has dictionaries of its own, and pyarrow gives no batch of structs over two of them.
        batches = (
            batch
            for group in groups
            for batch in reader.iter_batches(
                ROWS, row_groups=[group], columns=sorted(set(names)), use_threads=False
            )
        )
    for batch in batches:
        # Of a compressed Arrow file nothing says before how much a batch will be.
        _refuse_bomb(batch.nbytes, path)
        batch.validate(full=True)
        for start in range(0, len(batch), ROWS):
            yield batch.slice(start, ROWS)


def _refuse_bomb(decompressed: int, path: Path) -> None:
    """decompressed: bytes that would be, or are, in memory at once."""
    if decompressed > max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size):
        raise UserError(
            f"{path} is a decompression bomb: it decompresses to over {BOMB_RATIO} times its size"
        )


def _texts_in(schema: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of the columns of text."""
    import pyarrow.types as kinds

    for field in schema:
        kind = field.type.value_type if kinds.is_dictionary(field.type) else field.type
        if kinds.is_struct(kind) and not prefix:
            yield from _texts_in(kind, f"{field.name}.")
        elif kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
            yield prefix + field.name


def _column(batch: pyarrow.RecordBatch, name: str) -> Any:
    import pyarrow.compute

    if name in batch.schema.names:
        return batch.column(name)
    outer, _, inner = name.partition(".")
    return pyarrow.compute.struct_field(batch.column(outer), [inner])


def _texts(array: Any) -> list[str]:
    """Values of a column; a repeated one that is in a dictionary is in memory once."""
    import pyarrow

    if isinstance(array, pyarrow.DictionaryArray):
        # Of the dictionary what is used: a slice of a batch has that of all of the batch.
        indices, values = array.indices.to_pylist(), array.dictionary
        used = {index: _one_line(values[index].as_py()) for index in {*indices} - {None}}
        return ["" if index is None else used[index] for index in indices]
    return [_one_line(value) for value in array.to_pylist()]


def _one_line(value: str | None) -> str:
    return " ".join((value or "").replace("\r\n", "\n").split("\n"))
