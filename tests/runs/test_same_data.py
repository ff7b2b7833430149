"""Data that are checked out in the place of those that a run is of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seq2sweep.data.bitext import read_training_header
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import NodeError, UserError
from seq2sweep.runs.run_store import RunStore
from tests.conftest import Corpus, write_encoded

OTHER = r"encoded has changed since this began: check out the dvc\.lock of then"


@pytest.fixture
def encoded(tmp_path: Path, tiny_corpus: Corpus) -> Path:
    return Path(shutil.copytree(tiny_corpus.encoded, tmp_path / "encoded"))


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_worker_that_begins_later_opens_no_other_data(
    encoded: Path, tiny_corpus: Corpus, split: str
) -> None:
    store = RunStore(encoded.parent)
    told = store.publish(encoded)
    assert store.data(told) == encoded
    write_encoded(encoded, split, ["one"], ["eins"], Vocabulary.open(tiny_corpus.vocabulary))
    with pytest.raises(NodeError, match=OTHER):
        store.data(told)


def test_data_that_cannot_be_read_are_no_other_data(encoded: Path) -> None:
    """A node that does not see them: a trial of it fails, and may be tried on another one."""
    store = RunStore(encoded.parent)
    told = store.publish(encoded)
    for broken, said in (
        (lambda path: path.write_text("{"), "is damaged"),
        (Path.unlink, r"valid\.json is missing"),
    ):
        broken(encoded / "valid.json")
        with pytest.raises(UserError, match=said) as caught:
            store.data(told)
        assert not isinstance(caught.value, NodeError)


def test_another_test_set_may_come(encoded: Path, tiny_corpus: Corpus) -> None:
    store = RunStore(encoded.parent)
    told = store.publish(encoded)
    write_encoded(encoded, "test", ["one"], ["eins"], Vocabulary.open(tiny_corpus.vocabulary))
    assert store.data(told) == encoded


def test_the_data_are_those_that_the_run_is_named_by(encoded: Path) -> None:
    """A search publishes them again in each of its rounds."""
    store, named = RunStore(encoded.parent), read_training_header(encoded)["fingerprint"]
    assert store.publish(encoded, named) == store.publish(encoded)
    with pytest.raises(NodeError, match=OTHER):
        store.publish(encoded, "of another branch")


def test_what_an_earlier_version_published_names_no_data(encoded: Path) -> None:
    assert RunStore(encoded.parent).data({"encoded": str(encoded)}) == encoded
