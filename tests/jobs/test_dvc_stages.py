"""Sums are those that DVC itself finds."""

from __future__ import annotations

from pathlib import Path

from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import HashFileDB
from dvc_objects.fs import LocalFileSystem

from seq2sweep.jobs import dvc_stages


def test_a_sum_is_that_of_dvc(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for name, text in {"b": "1", "a.txt": "", 'a/ä "x': "2", "a/deep/c": "3\r\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, newline="")
    system = LocalFileSystem()
    store = HashFileDB(system, str(tmp_path / "store"))
    for out in (folder, folder / "a" / "deep" / "c"):
        _, _, found = build(store, str(out), system, "md5", dry_run=True)
        assert dvc_stages.sum_of(out) == found.hash_info.value
