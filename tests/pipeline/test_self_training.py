"""Self-training: what two parsers agree on, and what the third has gained."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline import download, encode, prepare, silver, student, teacher, vocabulary
from seq2sweep import config as configuration
from seq2sweep import parallel, presets, project_files
from seq2sweep.config import EvaluateConfig, kinds_of_parts
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import TRANSLATION_COLUMNS
from seq2sweep.data.reading import read_lines
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import Translation
from seq2sweep.decode.receipt import receipt, weights_entry
from seq2sweep.errors import UserError
from seq2sweep.evaluate import translator
from seq2sweep.evaluate.evaluation import Evaluation
from seq2sweep.evaluate.translator import Translator
from seq2sweep.jobs import entrypoint
from seq2sweep.parallel import serial
from seq2sweep.stages import stage
from seq2sweep.train import loop
from seq2sweep.train.events import CheckpointDue

CHANGES = {
    "data.phrasebook.train": 300,
    "data.phrasebook.valid": 12,
    "data.phrasebook.test": 24,
    "vocabulary.size": 150,
    "model.layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.heads": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "train.steps": 4,
    "train.warmup_steps": 2,
    "train.tokens_per_update": 300,
    "train.checkpoint_every": 4,
    "train.validate_every": 4,
    "evaluate.average_checkpoints": 1,
    "self_training.sentences": 50,
}


def config_of(**changes: Any) -> configuration.Config:
    return configuration.with_changes(presets.load("parsing").config, CHANGES | changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and in models/train and models/teacher what two trainings left."""
    folder = tmp_path_factory.mktemp("self_training")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for one in (download, prepare, vocabulary, encode):
            one.work(config_of())
        for place, seed in ((project_files.MODEL, 1), (project_files.TEACHER, 1001)):
            train(config_of(**{"train.seed": seed, "self_training.seed": 9}), place)
    return folder


def train(config: configuration.Config, place: Path) -> None:
    (place / "checkpoints").mkdir(parents=True)
    for due in loop.train(config, project_files.ENCODED, device=torch.device("cpu")):
        if isinstance(due, CheckpointDue):
            due.capture().write(place / "whole")
    file = place / "checkpoints" / "weights.safetensors"
    (place / "whole" / "model.safetensors").rename(file)
    pieces = Vocabulary.open(project_files.VOCABULARY)
    entry = weights_entry(place / "whole", file)
    about = receipt("run", [entry], config, {"data.vocabulary": pieces.fingerprint}, {})
    stage.write_json(place / "receipt.json", about)


@pytest.fixture
def project(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    shutil.rmtree(silver.PARSED, ignore_errors=True)  # of another test's parsers
    return made


POSITIONS = 1000
"""Tokens that a parser's model takes at most."""


class Double:
    """In place of a parser: flat trees, of which it gets some wrong; calls are counted."""

    def __init__(self, name: str, wrong: set[str], calls: list[int]) -> None:
        self.weights, self.wrong, self.calls = (name,), wrong, calls
        self.config = config_of().evaluate

    @property
    def longest_input(self) -> int:
        return min(self.config.max_input_tokens, POSITIONS)

    def translate(self, sentences: list[str], mapper: object) -> list[list[Translation]]:
        self.calls.append(len(sentences))
        labels = ["FRAG" if one in self.wrong else "S" for one in sentences]
        leaves = [" ".join(f"(NN {word})" for word in one.split(" ")) for one in sentences]
        trees = map("(TOP ({} {}))".format, labels, leaves)
        return [[Translation(tree, 0.0)] for tree in trees]


def parse_with(monkeypatch: pytest.MonkeyPatch, *wrong: set[str]) -> list[int]:
    """Doubles that get these sentences wrong; what they are called with."""
    calls: list[int] = []
    doubles = iter([Double(str(number), one, calls) for number, one in enumerate(wrong)])

    def opened(weights: object, vocabulary: object, search: EvaluateConfig) -> Double:
        double = next(doubles)
        double.config = search
        return double

    monkeypatch.setattr(translator, "Translator", opened)
    monkeypatch.setattr(silver, "CHUNK", 20)
    return calls


def unlabelled() -> list[str]:
    return [*silver.unlabelled.sentences(config_of())]


def test_what_both_parse_alike_is_trained_on_after_the_treebank(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = unlabelled()
    assert len(sentences) == 50
    # Both get the fourth wrong in the same way: that they agree is all that is known.
    parse_with(monkeypatch, {sentences[3], sentences[30]}, {sentences[3], sentences[44]})
    silver.work(config_of())
    gold = [
        [*read_lines(project_files.CLEAN / f"train.{side}.txt")] for side in ("source", "target")
    ]
    source, target = (
        [*read_lines(project_files.SILVER / f"train.{side}.txt")] for side in ("source", "target")
    )
    assert (source[:300], target[:300]) == (gold[0], gold[1])
    assert source[300:] == [one for n, one in enumerate(sentences) if n not in (30, 44)]
    labels = ["FRAG" if one == sentences[3] else "S" for one in source[300:]]
    for sentence, tree, label in zip(source[300:], target[300:], labels, strict=True):
        assert parse_tree(tree).brackets[-1].label == label
        assert " ".join(parse_tree(tree).words) == sentence
    trained, pieces = (
        Bitext.open(project_files.SILVER_ENCODED, "train"),
        Vocabulary.open(project_files.VOCABULARY),
    )
    assert len(trained) == 348
    assert trained.target(347).tolist() == pieces.encode([target[347]], "target")[0]
    valid = [
        Bitext.open(place, "valid")
        for place in (project_files.SILVER_ENCODED, project_files.ENCODED)
    ]
    assert valid[0].header["fingerprint"] == valid[1].header["fingerprint"]
    metrics = json.loads((project_files.METRICS / "silver.json").read_text())
    assert {key: metrics[key] for key in ("read", "known", "parsed", "agreed", "gold")} == {
        "read": 50,
        "known": 0,
        "parsed": 50,
        "agreed": 48,
        "gold": 300,
    }
    assert metrics["agreed_share"] == 0.96
    words = sum(len(one.split(" ")) for one in source[300:]) / 48
    assert metrics["words"]["agreed"] == pytest.approx(words)
    assert metrics["made_from"]["weights"] == [["0"], ["1"]]


@pytest.mark.parametrize("by_model", [False, True])
def test_a_sentence_that_would_be_cut_is_left_out(
    project: Path, monkeypatch: pytest.MonkeyPatch, by_model: bool
) -> None:
    """Parsers that see its beginning alone may agree on a tree without a bracket."""
    pieces = Vocabulary.open(project_files.VOCABULARY)
    lengths = [len(pieces.encode([sentence])[0]) for sentence in unlabelled()]
    most = sorted(lengths)[25]
    if by_model:
        monkeypatch.setattr(sys.modules[__name__], "POSITIONS", most)
    parse_with(monkeypatch, set(), set())
    silver.work(config_of(**({} if by_model else {"evaluate.max_input_tokens": most})))
    metrics = json.loads((project_files.METRICS / "silver.json").read_text())
    too_long = sum(length > most for length in lengths)
    assert 0 < too_long <= 24
    assert {key: metrics[key] for key in ("read", "too_long", "parsed", "agreed")} == {
        "read": 50,
        "too_long": too_long,
        "parsed": 50 - too_long,
        "agreed": 50 - too_long,
    }


def test_what_was_parsed_before_a_kill_is_not_parsed_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = silver.write_json, []

    def killed(path: Path, content: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write(path, content)

    parse_with(monkeypatch, set(), set())
    monkeypatch.setattr(silver, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        silver.work(config_of())
    monkeypatch.setattr(silver, "write_json", write)
    resumed = parse_with(monkeypatch, set(), set())
    written[1].write_text('{"text": "of another", "agreed": []}')  # what does not fit is made anew
    silver.work(config_of())
    assert resumed == [20, 20, 10, 10]
    assert json.loads((project_files.METRICS / "silver.json").read_text())["agreed"] == 50
    config = config_of()
    places = [silver._parts_folder([Double(name, set(), [])], config) for name in ("0", "1", "0")]
    assert places[0] == places[2] != places[1]  # of other weights nothing is taken
    for changes, same in (({"tokens_per_batch": 7}, True), ({"alpha": 0.9}, False)):
        parser = Double("0", set(), [])
        parser.config = dataclasses.replace(parser.config, **changes)
        assert (silver._parts_folder([parser], config) == places[0]) is same
    recurrent = presets.load("phrasebook-recurrent").config
    for code, same in (("old", False), ("new", False), ("new", True)):
        monkeypatch.setattr(kinds_of_parts, "code", lambda *_, code=code: code)
        places.append(silver._parts_folder([Double("0", set(), [])], recurrent))
        assert (places[-1] in places[:-1]) is same


def test_a_cluster_parses_chunks_together_and_any_other_takes_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two wrong sentences is in a chunk of its own."""
    sentences = unlabelled()
    places = [40]

    class Cluster:
        __call__ = staticmethod(serial)

        def places(self) -> int:
            return places[0]

    monkeypatch.setattr(stage, "mapper", lambda cluster: contextlib.nullcontext(Cluster()))
    monkeypatch.setattr(parallel, "SENTENCES_A_PLACE", 1)

    def again() -> list[int]:
        calls = parse_with(monkeypatch, {sentences[3]}, {sentences[44]})
        silver.work(config_of())
        source = [*read_lines(project_files.SILVER / "train.source.txt")]
        assert source[300:] == [one for n, one in enumerate(sentences) if n not in (3, 44)]
        return calls

    assert again() == [40, 40, 10, 10]
    assert again() == []
    first, second, third = sorted(silver.PARSED.glob("*/*"))
    assert len(json.loads(first.read_text())["agreed"]) == 19
    second.unlink()
    places[0] = 1000
    assert again() == [20, 20]
    first.unlink()
    third.unlink()
    assert again() == [30, 30]
    second.unlink()
    third.unlink()
    places[0] = 1
    assert again() == [20, 20, 10, 10]


def test_what_was_parsed_is_kept_until_other_weights_parse(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC may fail to record silver, as on a full disk; and it runs silver again for another file
    in data.folder, long after the student has been trained."""
    of_other_parsers = silver.PARSED / "0123456789ab"
    of_other_parsers.mkdir(parents=True)
    parse_with(monkeypatch, set(), set())
    silver.work(config_of())
    (kept,) = silver.PARSED.iterdir()
    assert kept != of_other_parsers
    monkeypatch.setattr(stage, "run", lambda *_, **__: None)
    monkeypatch.delitem(sys.modules, "pipeline.student")
    runpy.run_module("pipeline.student", run_name="__main__")
    again = parse_with(monkeypatch, set(), set())
    silver.work(config_of())
    assert again == []


def test_two_do_not_parse_in_one_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make clean` looks at the same lock."""
    taken: list[str] = []

    def again(self: Double, sentences: list[str], mapper: object) -> list[list[Translation]]:
        with pytest.raises(UserError) as refused:
            silver.work(config_of())
        taken.append(str(refused.value))
        raise KeyboardInterrupt

    parse_with(monkeypatch, set(), set())
    monkeypatch.setattr(Double, "translate", again)
    with pytest.raises(KeyboardInterrupt):
        silver.work(config_of())
    said = "another process is working in models/.silver.parsed: wait for its end, or end it"
    assert taken == [said]
    assert not silver.LOCK.exists()


@pytest.mark.parametrize("first", [download, teacher])
def test_a_file_that_is_missing_or_no_text_is_told_before_anything_is_trained(
    first: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    config = config_of(
        **{
            "data.dataset": "files",
            "data.folder": "own",
            **{f"data.files.{split}": [f"{split}.mrg"] for split in ("train", "valid", "test")},
            "self_training.files": ["more.txt"],
        }
    )
    with pytest.raises(UserError, match=r"^own/more.txt is missing: check data.folder and self_tr"):
        first.work(config)
    # A job has none of what it does not read, and goes on to the trees.
    with monkeypatch.context() as patch:
        patch.setattr(entrypoint, "is_inside", lambda: True)
        if first is download:
            with pytest.raises(UserError, match=r"train.mrg is missing"):
                first.work(config)
        else:
            assert first.trains(config)
    (tmp_path / "own/more.txt").write_bytes(b"a b\nf\xfcr\n")
    with pytest.raises(UserError, match=r"^own/more.txt line 2: not UTF-8 at byte 2 of the line"):
        first.work(config)


def test_sentences_that_are_all_in_the_treebank_are_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [*read_lines(project_files.CLEAN / "test.source.txt")]
    parse_with(monkeypatch, set(), set())
    monkeypatch.setattr(silver.unlabelled, "sentences", lambda config: iter([*known, ""]))
    said = r"none is parsed: 0 are too long, 24 are in the treebank, 0 repeated, 1 empty: name"
    with pytest.raises(UserError, match=f"^of 25 lines {said}"):
        silver.work(config_of())
    parse_with(monkeypatch, set(), set())
    monkeypatch.setattr(silver.unlabelled, "sentences", lambda config: iter(["a " * 3000]))
    with pytest.raises(UserError, match=r"^of 1 lines none is parsed: 1 are too long"):
        silver.work(config_of())


def test_parsers_that_never_agree_are_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_with(monkeypatch, {*unlabelled()}, set())
    with pytest.raises(UserError, match=r"^of 50 sentences both parsers parsed none alike"):
        silver.work(config_of())


def test_real_parsers_write_tags_that_can_be_trained_on(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model agrees with itself on everything; the trees have its own tags."""
    opened, open_one = [], translator.Translator

    def twice_the_first(folder: Path, *given: Any) -> Translator:
        opened.append(open_one(folder, *given))
        return opened[0]

    monkeypatch.setattr(translator, "Translator", twice_the_first)
    silver.work(config_of(**{"self_training.sentences": 6}))
    first, second = opened
    assert first.weights != second.weights
    assert first.config.beam == second.config.beam == config_of().self_training.beam == 4
    lines = [
        [*read_lines(project_files.SILVER / f"train.{side}.txt")] for side in ("source", "target")
    ]
    symbols = Vocabulary.open(project_files.VOCABULARY).symbols
    assert symbols is not None
    assert lines[0][300:] == unlabelled()[:6]
    for sentence, tree in zip(*(side[300:] for side in lines), strict=True):
        assert " ".join(parse_tree(tree).words) == sentence
        assert {*parse_tree(tree).tags} <= {*symbols.tags}
        assert 3 not in symbols.encode([tree])[0]  # no symbol is unknown


def test_the_gain_is_over_the_first_parser(project: Path) -> None:
    gold = [*read_lines(project_files.CLEAN / "test.target.txt")]
    flat = [
        "(TOP (S " + " ".join(f"(X {word})" for word in parse_tree(tree).words) + "))"
        for tree in gold
    ]
    rows = [
        TRANSLATION_COLUMNS,
        *(("a", tree, one, "") for tree, one in zip(gold, flat, strict=True)),
    ]
    project_files.REPORTS.mkdir(exist_ok=True)
    path = project_files.REPORTS / "translations.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    better = student.gain(Evaluation(gold, {}))["gain"]
    assert isinstance(better, dict)
    assert better["f1_difference"] > 0
    assert better["seen"]
    same = student.gain(Evaluation(flat, {}))["gain"]
    assert isinstance(same, dict)
    assert (same["f1_difference"], same["seen"]) == (0, False)
    table = path.read_text()
    for damaged, said in (
        ("\t".join(TRANSLATION_COLUMNS) + "\n", "is damaged: remove it"),
        (table.removesuffix("\t\n") + "\n", "must have the columns source, reference, "),
    ):
        path.write_text(damaged)
        with pytest.raises(UserError, match=rf"translations.tsv {said}"):
            student.gain(Evaluation(gold, {}))


def test_without_self_training_the_stages_say_so_and_leave_no_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_of(**{"self_training.sentences": 0})
    for one in (teacher, silver, student):
        one.work(config)
        assert capsys.readouterr().out == "nothing to do: self_training.sentences is 0\n"
    for place in (project_files.TEACHER, project_files.SILVER, project_files.STUDENT):
        # DVC warns of an empty folder, four times each.
        assert [file.name for file in place.iterdir()] == ["unused.txt"]
    for name in ("teacher", "silver", "student", "semi_supervised"):
        assert json.loads((project_files.METRICS / f"{name}.json").read_text()) == {}
    table = (project_files.REPORTS / "semi_supervised.tsv").read_text()
    assert table == "source\treference\ttranslation\tphenomena\n"
