"""Sentences without trees: which there are, and which are left out."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import phrasebook
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data.treebank import unlabelled
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.errors import UserError


def config_of(**changes: Any) -> configuration.Config:
    return configuration.with_changes(presets.load("parsing").config, changes)


def test_the_phrasebook_goes_on_where_its_training_split_ends() -> None:
    config = config_of(
        **{"data.phrasebook.train": 30, "data.phrasebook.seed": 7, "self_training.sentences": 12}
    )
    trees = [parse_tree(pair.tree) for pair in phrasebook.generate("train", 42, 7)]
    found = [*unlabelled.sentences(config)]
    assert found == [" ".join(tree.words) for tree in trees[30:]]
    # The full stop is a word, as in the treebank.
    assert {line.split(" ")[-1] for line in found} <= {".", "?"}


def test_the_phrasebook_has_an_end() -> None:
    most = phrasebook.CAPACITY["train"]
    config = config_of(
        **{"data.phrasebook.train": most - 5, "self_training.sentences": 6},
    )
    with pytest.raises(UserError, match=r"sentences is 6 but the phrasebook has 5 beside its"):
        next(unlabelled.sentences(config))


def test_files_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress("vier fünf\n".encode()))
    own = {
        "data.dataset": "craft",
        "data.folder": str(tmp_path),
        "self_training.sentences": 9,
        "self_training.files": ["b.gz", "a.txt"],
    }
    assert [*unlabelled.sentences(config_of(**own))] == ["vier fünf", "one two", "three"]
    for name, told in (
        ("../a.txt", "self_training.files names ../a.txt, which is outside of data.folder"),
        ("none.txt", "none.txt is missing"),
    ):
        with pytest.raises(UserError, match=told):
            next(unlabelled.sentences(config_of(**own | {"self_training.files": [name]})))
    # Made after the stage download, which would have refused it.
    (tmp_path / "more").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UserError, match="more is a link to a folder"):
        next(unlabelled.sentences(config_of(**own)))


def test_what_is_known_or_repeated_or_empty_is_left_out_and_counted() -> None:
    counts: Counter[str] = Counter()
    lines = [
        "a \t b\t",
        "c",
        "",
        " ",
        "a b",
        "d\u2009e",
        "\u00a0 \u3000",
        "known one",
        "c",
        "d\u2009e f",
        "( a )",
        "( b )",
    ]
    found = [*unlabelled.fresh(lines, {"known one", "-LRB- a -RRB-"}, counts)]
    # U+2009 is part of a word, as in trees, and no word alone; brackets are written as there.
    assert found == ["a b", "c", "d\u2009e", "d\u2009e f", "-LRB- b -RRB-"]
    assert counts == {"read": 12, "empty": 3, "known": 2, "repeated": 2}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"self_training.seed": 1}, "self_training.seed must be another than train.seed, not 1"),
        ({"self_training.files": ["a"]}, r"self_training.files must be \[\] for data.dataset phr"),
        ({"data.dataset": "craft"}, r"must be files of sentences in data.folder, not \[\]"),
        ({"self_training.beam": 0}, "self_training.beam must be at least 1, not 0"),
        (
            {"data.target": "de", "model.target_symbols": 0},
            "self_training.sentences must be 0 unless data.target is trees, not 5",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        config_of(**{"self_training.sentences": 5} | changes)
    if "self_training.beam" not in changes:
        config_of(**changes | {"self_training.sentences": 0})  # nothing is asked of what is off
