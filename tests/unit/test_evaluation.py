"""What is scored belongs together, to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seq2sweep.data.files import write_header, write_lines
from seq2sweep.errors import UserError
from seq2sweep.evaluate.evaluation import Data
from tests.conftest import Corpus


@pytest.fixture
def data(tiny_corpus: Corpus, tmp_path: Path) -> Data:
    for folder in (tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded):
        shutil.copytree(folder, tmp_path / folder.name)
    return Data(tmp_path / "clean", tmp_path / "vocabulary", tmp_path / "encoded")


def test_folders_of_one_making_are_taken(data: Data) -> None:
    for split in ("valid", "test"):
        data.verify(split)


@pytest.mark.parametrize(
    "file", ["clean/valid.target.txt", "clean/valid.source.txt", "encoded/valid.target.tokens"]
)
def test_a_changed_byte_is_named(data: Data, tmp_path: Path, file: str) -> None:
    content = bytearray((tmp_path / file).read_bytes())
    content[3] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{file} has changed since it was written"):
        data.verify("valid")
    data.verify("test")


def test_a_removed_file_is_named(data: Data, tmp_path: Path) -> None:
    (tmp_path / "clean/test.target.txt").unlink()
    with pytest.raises(UserError, match=r"clean/test.target.txt is missing"):
        data.verify("test")


@pytest.mark.parametrize("content", ['{"files": 3}', '{"files": {"a": 1}}', "{}", '{"files": {"'])
def test_a_damaged_header_is_named(data: Data, tmp_path: Path, content: str) -> None:
    (tmp_path / "clean/test.json").write_text(content)
    with pytest.raises(UserError, match=r"clean/test.json is damaged"):
        data.verify("test")


def test_text_that_was_cleaned_again_is_not_that_which_was_encoded(data: Data) -> None:
    write_lines(data.clean / "test.target.txt", ["ANOTHER"] * 40)
    write_header(data.clean, "test", 40)
    with pytest.raises(UserError, match=r"not made from .*clean/test.target.txt: run `dvc repro"):
        data.verify("test")


def test_another_vocabulary_is_not_that_which_encoded(data: Data, tiny_corpus: Corpus) -> None:
    model = data.vocabulary / "vocabulary.model"
    content = model.read_bytes()
    # The same pieces, in a file of other bytes: an unknown field of protobuf at the end.
    model.write_bytes(content + b"\xfa\x3e\x01x")
    with pytest.raises(UserError, match=r"another vocabulary than .*vocabulary"):
        data.verify("test")
