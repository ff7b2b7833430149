"""The texts that `data.files` names inside of `data.folder`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seq2sweep.config import DataConfig
from seq2sweep.data import tables
from seq2sweep.data.archives import Text
from seq2sweep.data.files import SPLITS
from seq2sweep.data.reading import read_pairs
from seq2sweep.data.sources import check_inside
from seq2sweep.errors import UserError

Corpus = tuple[Text, Text]
"""Source and target."""


def named(data: DataConfig) -> dict[str, list[Corpus]]:
    """What there is of each split that has files; of a table of several files each by itself.

    Raises UserError for a name outside of data.folder, and a folder that is missing.
    """
    folder = Path(data.folder)
    if not folder.is_dir():
        raise UserError(f"data.folder is {data.folder}, which is not a folder: put the files there")
    found = {}
    for split in SPLITS:
        if names := getattr(data.files, split):
            found[split] = _corpora(folder, f"data.files.{split}", names)
    return found


def texts(folder: Path, name: str) -> list[Text]:
    """A file, or `TABLE:COLUMN` of all files of a table (`tables.shards`)."""
    table, colon, column = name.rpartition(":")
    path = folder / table
    if colon and not (folder / name).exists() and (tables.is_table(path) or path.is_dir()):
        return [Text(shard, column) for shard in tables.shards(path)]
    return [Text(folder / name)]


def shown(text: Text) -> str:
    """A text as `data.files` names it."""
    return str(text.path) if text.member is None else f"{text.path}:{text.member}"


def name(split: str, corpora: Sequence[Corpus], number: int) -> str:
    """What one of the corpora of a split is called where they are counted."""
    return split if len(corpora) == 1 else f"{split} {number + 1}"


def pairs(corpora: Iterable[Corpus]) -> Iterator[tuple[str, str]]:
    """Of all of them, one after the other."""
    return itertools.chain.from_iterable(read_pairs(*texts) for texts in corpora)


def _corpora(folder: Path, key: str, names: Sequence[str]) -> list[Corpus]:
    check_inside(key, names)
    source, target = (texts(folder, name) for name in names)
    if len(source) != len(target):
        raise UserError(f"{key} names {len(source)} files of sources and {len(target)} of targets")
    return list(zip(source, target, strict=True))
