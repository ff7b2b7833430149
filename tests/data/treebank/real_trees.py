"""Trees of treebanks that are no part of the project; what needs them skips where they are not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2sweep.data.treebank.corpora import read_trees
from seq2sweep.data.treebank.trees import Tree, clean

SHARED = Path(__file__).parents[4] / "shared/data"
REAL = ("craft/penn.tar.gz", "treebank_sample/treebank.zip")


def real_trees(archive: str, folder: Path, every: bool) -> Iterator[Tree]:
    """Cleaned, of one of REAL, unpacked into the folder; not `every`: of an eighth of its files."""
    if not (SHARED / archive).is_file():
        pytest.skip(f"{archive} is not here: it is no part of the project")
    shutil.unpack_archive(SHARED / archive, folder)
    files = sorted([*folder.rglob("*.tree"), *folder.rglob("wsj_*.mrg")])
    for file in files if every else files[::8]:
        yield from map(clean, read_trees(file))
