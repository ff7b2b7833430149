"""Files and folders are written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seq2sweep.errors import UserError
from seq2sweep.storage import atomic


def test_several_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(50):
            atomic.write_whole(tmp_path / "x.json", f"{number}\n" * 1000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    lines = (tmp_path / "x.json").read_text().splitlines()
    assert len(lines) == 1000
    assert len(set(lines)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_what_a_kill_leaves_of_a_file_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a name by which whoever works in a run's folder knows it."""
    found: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.extend(tmp_path.iterdir()))
    atomic.write_whole(tmp_path / "run.json", "{}")
    assert len(found) == 1
    assert found[0].match(".run.json.*.partial")


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "data").write_bytes(content)
    assert atomic.sha256(tmp_path / "data") == hashlib.sha256(content).hexdigest()


def test_whole_folder_replaces_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "folder"
    for content in ("old", "new"):
        with atomic.whole_folder(final) as folder:
            assert folder != final
            (folder / content).write_text(content)
    assert [path.name for path in final.iterdir()] == ["new"]
    assert list(final.parent.iterdir()) == [final]


@pytest.mark.parametrize(("umask", "rights"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_weights_have_the_rights_of_other_files(tmp_path: Path, umask: int, rights: int) -> None:
    before = os.umask(umask)
    try:
        with atomic.whole_folder(tmp_path / "model") as folder:
            (folder / "config.json").touch()
            save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    finally:
        os.umask(before)
    found = {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert found == {rights}


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_weights_whose_rights_cannot_be_changed_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*about: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    with atomic.whole_folder(tmp_path / "model") as folder:
        (folder / "model.safetensors").touch()
        monkeypatch.setattr(Path, "chmod", refuse)
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_an_old_folder_is_renamed_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while it is removed would leave a part of it under its name."""
    final, removed, remove = tmp_path / "folder", list[Path](), shutil.rmtree

    def noting(path: Path, **options: Any) -> None:
        removed.append(path)
        remove(path, **options)

    final.mkdir()
    (final / "old").write_text("old")
    monkeypatch.setattr(shutil, "rmtree", noting)
    with atomic.whole_folder(final) as folder:
        (folder / "new").write_text("new")
    assert [path.name for path in final.iterdir()] == ["new"]
    assert removed
    assert final not in removed


def test_whole_folder_behind_a_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    other_disk, link = tmp_path / "disk" / "encoded", tmp_path / "encoded"
    other_disk.mkdir(parents=True)
    link.symlink_to(other_disk)
    for content in ("old", "new"):
        with atomic.whole_folder(link) as folder:
            (folder / "x").write_text(content)
            assert folder.parent == other_disk.parent
    assert link.readlink() == other_disk
    assert (other_disk / "x").read_text() == "new"
    assert sorted(tmp_path.rglob("*")) == [other_disk.parent, other_disk, other_disk / "x", link]


@pytest.mark.parametrize("error", [UserError, KeyboardInterrupt])
def test_whole_folder_leaves_the_old_one_when_the_block_fails(
    tmp_path: Path, error: type[BaseException]
) -> None:
    final = tmp_path / "folder"
    with atomic.whole_folder(final) as folder:
        (folder / "old").write_text("old")

    def fail() -> None:
        with atomic.whole_folder(final) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert [path.name for path in final.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [final]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    named = re.escape(str(tmp_path / "final"))
    with pytest.raises(OSError, match=named), atomic.whole_folder(tmp_path / "final"):
        raise full
    monkeypatch.setattr(os, "fsync", lambda number: (_ for _ in ()).throw(full))
    full.filename = None
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "text"))):
        atomic.write_whole(tmp_path / "text", "x")


@pytest.mark.parametrize("name", ["folder.html", 245 * "x" + ".html"])
def test_the_file_is_named_and_not_the_one_beside_it(tmp_path: Path, name: str) -> None:
    """Where a folder is in its place, and where there can be none beside it."""
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as caught:
        atomic.write_whole(tmp_path / name, "text")
    assert "partial" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_whole_folder_clears_what_a_killed_stage_left(tmp_path: Path) -> None:
    final = tmp_path / "folder"
    for suffix, part in itertools.product((".partial", ".old.partial"), ("a", "b")):
        left = tmp_path / f".folder{suffix}"
        left.mkdir(exist_ok=True)
        (left / part).write_text("left over")
    with atomic.whole_folder(final) as folder:
        (folder / "new").write_text("new")
    assert list(tmp_path.iterdir()) == [final]
    assert [path.name for path in final.iterdir()] == ["new"]
