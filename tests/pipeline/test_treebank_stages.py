"""The data stages where the target is trees: files, the Penn Treebank's folders, a registry."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline import download, encode, prepare, vocabulary
from seq2sweep import config as configuration
from seq2sweep import presets, project_files
from seq2sweep.data.bitext import Bitext, read_training_header
from seq2sweep.data.reading import read_lines
from seq2sweep.data.treebank.symbols import WORD
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.planning.data import known_pairs
from seq2sweep.stages import stage

TREE = """( (S (NP-SBJ-1 (NNP John)) (VP (VBZ has)
    (NP (DT a) (NN dog)) (NP (-NONE- *T*-1))) (. .)) )"""
CLEAN = "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"
SECOND = "(TOP (FRAG (NP=2 (NN dog)) (NP|X (NN a))))"
THIRD = "(TOP (NP (DT a) (NN cow)))"
EMPTY = "( (S (NP (-NONE- *))) )"
WORDS = "John has a dog ."


def config_of(**changes: Any) -> configuration.Config:
    own = {
        "data.dataset": "files",
        "data.folder": "own",
        "data.files.train": ["a.mrg", "b.mrg"],
        "data.files.valid": ["valid.mrg"],
        "data.files.test": ["test.mrg"],
        "vocabulary.size": 16,
        "parsing.tags": False,
    }
    return configuration.with_changes(presets.load("parsing").config, own | changes)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: an empty project with trees of one's own in `own`."""
    monkeypatch.chdir(tmp_path)
    texts = {"a": f"{TREE}\n{EMPTY}\n", "b": SECOND, "valid": TREE * 2, "test": THIRD}
    (tmp_path / "own").mkdir()
    for name, text in texts.items():
        (tmp_path / "own" / f"{name}.mrg").write_text(text)
    return tmp_path


def made(config: configuration.Config) -> None:
    for one in (download, prepare, vocabulary, encode):
        one.work(config)


def read_and_cleaned(config: configuration.Config) -> None:
    download.work(config)
    prepare.work(config)


def test_files_become_words_and_symbols() -> None:
    config = config_of()
    made(config)
    assert [*read_lines(project_files.CLEAN / "train.source.txt")] == [WORDS, "dog a"]
    second = "(TOP (FRAG (NP (NN dog)) (NP|X (NN a))))"
    assert [*read_lines(project_files.CLEAN / "train.target.txt")] == [CLEAN, second]
    counts = json.loads((project_files.METRICS / "prepare.json").read_text())
    assert counts["train"] == {"read": 3, "kept": 2, "dropped": {"empty": 1}, "changed": {}}
    assert counts["valid"]["kept"] == 2
    assert [counts[split]["in_training"] for split in ("valid", "test")] == [2, 0]
    pieces = Vocabulary.open(project_files.VOCABULARY)
    assert pieces.symbols is not None
    assert pieces.symbols.labels == ("FRAG", "NP", "NP|X", "S", "VP")
    train = Bitext.open(project_files.ENCODED, "train")
    said = pieces.decode([train.target(i).tolist() for i in range(len(train))])
    assert said == [
        "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S",
        "(FRAG (NP XX )NP (NP|X XX )NP|X )FRAG",
    ]
    assert read_training_header(project_files.ENCODED)["symbols"] == len(pieces.symbols) == 15
    assert known_pairs(config) == {"train": 3, "valid": 2, "test": 1}


def test_a_link_to_a_folder_is_refused_but_for_data_folder_itself(project: Path) -> None:
    """DVC would not notice what changes behind it."""
    (project / "own").rename(project / "elsewhere")
    (project / "own").symlink_to("elsewhere")
    download.work(config_of())
    (project / "own/deep").mkdir()
    (project / "own/deep/wsj").symlink_to(project / "elsewhere/a.mrg")
    download.work(config_of())
    (project / "more").mkdir()
    (project / "own/deep/more").symlink_to(project / "more")
    with pytest.raises(UserError, match=r"more is a link to a folder, .* link data\.folder"):
        download.work(config_of())


@pytest.mark.parametrize("place", ["own", "own/deep"])
def test_a_dvc_repository_is_refused_in_a_project_alone(project: Path, place: str) -> None:
    """DVC would take that folder for empty; one that is elsewhere it reads as any other."""
    shutil.copytree(project / "own", project / "elsewhere/own")
    (project / "elsewhere" / place / ".dvc").mkdir(parents=True)
    download.work(config_of())
    (project / place / ".dvc").mkdir(parents=True)
    with pytest.raises(UserError, match=rf"^{place} is a DVC repository of its own, .* move it"):
        download.work(config_of())
    (project / "here").mkdir()
    os.chdir(project / "here")
    download.work(config_of(**{"data.folder": "../elsewhere/own"}))


def test_words_may_be_written_as_tags() -> None:
    made(config_of(**{"parsing.tags": True}))
    pieces = Vocabulary.open(project_files.VOCABULARY)
    assert pieces.symbols is not None
    assert pieces.symbols.tags == (".", "DT", "NN", "NNP", "VBZ")
    train = Bitext.open(project_files.ENCODED, "train")
    assert WORD not in train.target(0)
    assert pieces.decode([train.target(0).tolist()]) == [
        "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"
    ]


def test_frequent_words_may_be_written_as_themselves() -> None:
    made(config_of(**{"parsing.tags": True, "parsing.words": 2}))
    pieces = Vocabulary.open(project_files.VOCABULARY)
    assert pieces.symbols is not None
    assert pieces.symbols.words == ("a", "dog")  # twice each, as in the second tree
    assert read_training_header(project_files.ENCODED)["symbols"] == len(pieces.symbols)
    train = Bitext.open(project_files.ENCODED, "train")
    assert pieces.decode([train.target(0).tolist()]) == [
        "(S (NP NNP )NP (VP VBZ (NP XX XX )NP )VP . )S"
    ]


def test_there_may_be_more_symbols_than_two_bytes_tell_apart(project: Path) -> None:
    words, trees = 66_000, 60  # few trees: each takes more time than a word
    leaves = [f"(NN {i})" for i in range(words)]
    (project / "own/a.mrg").write_text(
        "".join(f"(S {' '.join(leaves[i::trees])})" for i in range(trees))
    )
    made(config_of(**{"parsing.words": words, "vocabulary.size": 24}))
    train = Bitext.open(project_files.ENCODED, "train")
    own = [symbol for i in range(trees) for symbol in train.target(i)[1:-2].tolist()]
    assert len({*own}) == len(own) == words
    assert max(own) > 65_535


def test_word_pieces_are_learned_from_sentences_alone() -> None:
    made(config_of())
    model = (project_files.VOCABULARY / "vocabulary.model").read_bytes()
    assert b"(" not in model
    assert b"XX" not in model


def test_the_vocabulary_is_another_when_labels_are(project: Path) -> None:
    made(config_of())
    before = Vocabulary.open(project_files.VOCABULARY).fingerprint
    (project / "own/b.mrg").write_text(SECOND.replace("FRAG", "INTJ"))
    made(config_of())
    assert Vocabulary.open(project_files.VOCABULARY).fingerprint != before
    symbols = project_files.VOCABULARY / "symbols.json"
    symbols.write_bytes(symbols.read_bytes().replace(b"INTJ", b"FRAG"))
    with pytest.raises(UserError, match=r"is not what vocabulary.json beside it describes"):
        Vocabulary.open(project_files.VOCABULARY)
    symbols.write_bytes(b"{")
    with pytest.raises(UserError, match=r"symbols.json is damaged"):
        Vocabulary.open(project_files.VOCABULARY)


def test_a_model_with_too_few_symbols_is_one_line() -> None:
    config = config_of(**{"model.target_symbols": 14})
    made(config)
    with pytest.raises(
        UserError, match=r"model.target_symbols is 14 but the trees have 15 symbols: set it to 15"
    ):
        stage.training_header(config)
    enough = config_of(**{"model.target_symbols": 15})
    stage.training_header(enough)


def test_trees_that_changed_since_they_were_read_are_refused(project: Path) -> None:
    download.work(config_of())
    (project / "own/b.mrg").write_text(SECOND.replace("dog", "cat"))
    with pytest.raises(UserError, match=r"b.mrg is not what the download stage read"):
        prepare.work(config_of())
    (project / "own/b.mrg").unlink()
    with pytest.raises(UserError, match=r"b.mrg is missing"):
        prepare.work(config_of())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is empty"),
        ("(S (NP (NN a))", "line 1: 1 brackets that begin here are not closed"),
        (f"{SECOND}\n)", "line 2: a bracket is closed that is not open"),
        (f"{SECOND}\nword", "line 2: 'word' outside of any tree"),
        ("(" * 10_000, "line 1: 10000 brackets that begin here are not closed"),
        (EMPTY, "no tree of test has a word"),
    ],
)
def test_hostile_trees_are_one_line(project: Path, content: str, what: str) -> None:
    (project / "own/test.mrg").write_text(content)
    with pytest.raises(UserError, match=what):
        read_and_cleaned(config_of())


def test_a_bracket_within_a_tree_may_have_no_label(project: Path) -> None:
    (project / "own/a.mrg").write_text("( (S ( (NN a) (NN b)) (=2 (VB c))) )")
    made(config_of())
    train, pieces = (
        Bitext.open(project_files.ENCODED, "train"),
        Vocabulary.open(project_files.VOCABULARY),
    )
    assert pieces.decode([train.target(0).tolist()]) == ["(S ( XX XX ) ( XX ) )S"]


def test_deep_trees_and_long_lines_are_trees(project: Path) -> None:
    deep = "(X " * 10_000 + "(N a)" + ")" * 10_000
    long = "(S " + "(N word) " * 110_000 + ")"
    (project / "own/a.mrg").write_text(f"{deep}\n{long}\n")
    made(config_of())
    train = Bitext.open(project_files.ENCODED, "train")
    assert train.target_lengths.tolist() == [20_002, 110_003, 9]


def test_the_same_trees_in_two_splits_are_refused(project: Path) -> None:
    for name in ("a", "test"):  # laid out in another way
        (project / f"own/{name}.mrg").write_text(f"{TREE}{SECOND}".replace(" (", "\n("))
    with pytest.raises(
        UserError, match=r"^test.mrg \(test\) holds the same trees as a.mrg \(train\): give each"
    ):
        download.work(config_of())
    (project / "own/test.mrg").write_text(f"{TREE}{THIRD}")
    (project / "own/b.mrg").write_bytes((project / "own/a.mrg").read_bytes())
    download.work(config_of())  # trees that weigh more in training are the user's choice


def test_files_outside_of_the_folder_are_refused() -> None:
    with pytest.raises(UserError, match=r"names ../x.mrg, which is outside of data.folder"):
        download.work(config_of(**{"data.files.train": ["../x.mrg"]}))


def penn(root: Path, *sections: int) -> None:
    for section in sections:
        folder = root / f"wsj/{section:02}"
        folder.mkdir(parents=True)
        (folder / f"wsj_{section:02}01.mrg").write_text(TREE.replace("dog", f"dog{section}"))
        (folder / f"wsj_{section:02}02.mrg").write_text(SECOND.replace("dog", f"dog{section}"))


def test_the_penn_treebank_is_read_by_its_standard_sections(project: Path) -> None:
    penn(project / "ptb", *range(25))
    config = config_of(**{"data.dataset": "ptb", "data.folder": "ptb"})
    download.work(config)
    splits = json.loads((project_files.RAW / "provenance.json").read_text())["splits"]
    read = {
        split: sorted({entry["name"].split("/")[1] for entry in entries})
        for split, entries in splits.items()
    }
    assert read == {
        "train": [f"{section:02}" for section in range(2, 22)],
        "valid": ["22"],
        "test": ["23"],
    }
    assert known_pairs(config) == {"train": 40, "valid": 2, "test": 2}
    others = config_of(
        **{"data.dataset": "ptb", "data.folder": "ptb", "parsing.test_sections": [24, 0]}
    )
    assert known_pairs(others)["test"] == 4


def test_a_section_without_files_is_one_line(project: Path) -> None:
    penn(project / "ptb", 2)
    with pytest.raises(UserError, match=r"wsj/03 holds no \*.mrg files: data.folder must be"):
        download.work(config_of(**{"data.dataset": "ptb", "data.folder": "ptb"}))


def test_sections_are_of_one_split() -> None:
    with pytest.raises(UserError, match=r"names section 22, which parsing.train_sections names"):
        config_of(**{"parsing.train_sections": [21, 22]})
    with pytest.raises(UserError, match="sections from 0 to 24"):
        config_of(**{"parsing.test_sections": [25]})


def test_a_registry_may_describe_trees(project: Path) -> None:
    content = (project / "own/a.mrg").read_bytes()
    (project / "mirror").mkdir()
    (project / "mirror/a.tree").write_bytes(content)
    others = {"b.tree": b"(S (NN b))\n", "c.tree": b"(S (NN c))\n"}
    for name, tree in others.items():
        (project / "mirror" / name).write_bytes(tree)
    (project / "registry").mkdir()
    (project / "registry/mine.yaml").write_text(
        f"""
archives:
  a.tree:
    addresses: [https://example.invalid/a.tree]
    bytes: {len(content)}
    sha256: {hashlib.sha256(content).hexdigest()}
  b.tree:
    addresses: [https://example.invalid/b.tree]
  c.tree:
    addresses: [https://example.invalid/c.tree]
datasets:
  mine:
    about: trees
    licence: mine
    languages: [en, trees]
    pairs: 2
    train: [{{name: b, archive: b.tree}}]
    valid: [{{name: c, archive: c.tree}}]
    test: [{{name: a, archive: a.tree}}]
"""
    )
    mirror = (project / "mirror").as_uri() + "/"
    config = config_of(
        **{
            "data.dataset": "mine",
            "data.folder": "registry",
            "download.folder": "downloads",
            "download.mirrors": {"https://example.invalid/": mirror},
        }
    )
    download.work(config)
    prepare.work(config)
    assert [*read_lines(project_files.CLEAN / "test.source.txt")] == [WORDS]
    provenance = json.loads((project_files.RAW / "provenance.json").read_text())
    assert provenance["licence"] == "mine"
    assert provenance["archives"]["a.tree"]["bytes"] == len(content)
    registry = project / "registry/mine.yaml"
    registry.write_text(
        registry.read_text().replace("name: c, archive: c.", "name: c, archive: a.")
    )
    with pytest.raises(UserError, match=r"^a \(test\) holds the same trees as c \(valid\): give"):
        download.work(config)


def test_the_built_in_sentences_have_trees() -> None:
    changes = {f"data.phrasebook.{split}": n for split, n in (("train", 300), ("valid", 20))}
    config = config_of(
        **{"data.dataset": "phrasebook", "data.phrasebook.test": 30, "vocabulary.size": 200},
        **changes,
    )
    made(config)
    assert len(Bitext.open(project_files.ENCODED, "train")) == 300
    tags = [*read_lines(project_files.CLEAN / "test.phenomena.txt")]
    assert len(tags) == 30
    assert all(tags)
