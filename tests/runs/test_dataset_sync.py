"""Encoded data by way of a bucket."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.runs import dataset_sync
from seq2sweep.storage.object_store import ObjectStore
from tests.conftest import Corpus


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of a machine that does not see the project."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))
    (tmp_path / "machine").mkdir()
    return tmp_path / "machine"


def test_data_comes_to_a_machine_once(
    bucket: str, tiny_corpus: Corpus, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    copy = dataset_sync.fetch(Path("/not/seen/here"), address)
    assert copy.is_relative_to(machine)
    for split in dataset_sync.SPLITS:
        here, there = (Bitext.open(folder, split) for folder in (tiny_corpus.encoded, copy))
        assert here.header == there.header
        assert [here.target(i).tolist() for i in range(len(here))] == [
            there.target(i).tolist() for i in range(len(there))
        ]
    monkeypatch.setattr(ObjectStore, "download", pytest.fail)
    assert dataset_sync.fetch(Path("/not/seen/here"), address) == copy
    assert dataset_sync.fetch(tiny_corpus.encoded, address) == tiny_corpus.encoded


def test_it_is_brought_there_once(
    bucket: str, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: list[str] = []
    upload = ObjectStore.upload

    def listen(there: ObjectStore, path: Path, name: str) -> None:
        if len(uploaded) == 5:
            uploaded.append("")
            raise OSError(5, "away")
        upload(there, path, name)
        uploaded.append(name)

    monkeypatch.setattr(ObjectStore, "upload", listen)
    with pytest.raises(OSError, match="away"):
        dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    assert len(uploaded) == len(set(uploaded)) == 15  # two headers, twelve files and the error
    assert uploaded[-2:] == ["train.json", "valid.json"]
    assert dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket)) == address
    assert len(uploaded) == 15


def test_a_file_that_a_bucket_has_lost_is_brought_there_again(
    bucket: str, tiny_corpus: Corpus, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a rule of expiry."""
    lost, cut = "train.source.tokens", "valid.target.tokens"
    place = ObjectStore(dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket)))
    place.delete(lost)
    place.write(cut, b"")
    uploaded: list[str] = []
    upload = ObjectStore.upload

    def listen(there: ObjectStore, path: Path, name: str) -> None:
        upload(there, path, name)
        uploaded.append(name)

    monkeypatch.setattr(ObjectStore, "upload", listen)
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    assert uploaded == [lost, cut, "train.json", "valid.json"]
    assert dataset_sync.fetch(Path("/not/seen/here"), address).is_relative_to(machine)


def test_other_data_with_the_same_name_is_not_taken(
    bucket: str, tiny_corpus: Corpus, machine: Path, tmp_path: Path
) -> None:
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    other = tmp_path / "encoded"
    shutil.copytree(tiny_corpus.encoded, other)
    (other / "valid.json").write_text("{}")
    assert dataset_sync.fetch(other, address) != other


def test_headers_that_are_not_those_published_write_nothing(
    bucket: str, tiny_corpus: Corpus, machine: Path, tmp_path: Path
) -> None:
    """Whoever may write to the bucket may not write files of this user's."""
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    place, outside = ObjectStore(address), tmp_path / "outside"
    header = json.loads((tiny_corpus.encoded / "valid.json").read_text())
    header["files"][str(outside)] = {"sha256": hashlib.sha256(b"theirs").hexdigest(), "bytes": 6}
    place.write("valid.json", json.dumps(header).encode())
    place.write(str(outside), b"theirs")
    with pytest.raises(UserError, match=f"{address} is damaged: remove {address}"):
        dataset_sync.fetch(Path("/not/seen/here"), address)
    assert not outside.exists()


def test_data_that_is_damaged_is_refused(bucket: str, tiny_corpus: Corpus, machine: Path) -> None:
    address = dataset_sync.publish(tiny_corpus.encoded, ObjectStore(bucket))
    name = "train.source.tokens"
    size = ObjectStore(address).size(name) or 0
    ObjectStore(address).write(name, bytes(size))
    for _ in range(2):
        with pytest.raises(UserError, match=f"{address}/{name} is damaged: remove {address}"):
            dataset_sync.fetch(Path("/not/seen/here"), address)
