"""Exported weights: which are chosen, and translations of any text with them."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import math
import pickle
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from seq2sweep import config as configuration
from seq2sweep import console, parallel
from seq2sweep.cli import main
from seq2sweep.config import ClusterConfig, Config, EvaluateConfig
from seq2sweep.data import utf8
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode import forced, streaming
from seq2sweep.decode.average import average
from seq2sweep.decode.beam import OurSearch, Translation, search
from seq2sweep.decode.exported_weights import choose
from seq2sweep.errors import UserError
from seq2sweep.evaluate import translator
from seq2sweep.evaluate.attention import attention_maps, head_numbers
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.parallel import Mapper, serial
from seq2sweep.storage.atomic import sha256
from seq2sweep.train.checkpointing import load_weights

from ..conftest import Corpus
from ..export import made_up_models

STEPS = (10, 20, 30)
LOSSES = {10: 3.0, 20: 1.0, 30: None}


@pytest.fixture
def config(tiny_config: Config) -> Config:
    changes = {"evaluate.beam": 3, "evaluate.max_extra_tokens": 4, "prepare.lowercase": True}
    return configuration.with_changes(tiny_config, changes)


@pytest.fixture
def folder(tmp_path: Path, config: Config, tiny_corpus: Corpus) -> Path:
    """Random weights of three checkpoints, laid out as training leaves them."""
    folder = tmp_path / "weights"
    (folder / CHECKPOINTS).mkdir(parents=True)
    entries = []
    for step in STEPS:
        torch.manual_seed(step)
        file = folder / CHECKPOINTS / f"{step}.safetensors"
        model = Transformer(config.model, tiny_corpus.size)
        save_file({name: p.detach() for name, p in model.named_parameters()}, file)
        entry = {"step": step, "file": file.name, "sha256": sha256(file)}
        entries.append(entry | {"valid_loss": LOSSES[step]})
    fingerprint = Vocabulary.open(tiny_corpus.vocabulary).fingerprint
    receipt = {
        "checkpoints": entries,
        "config": configuration.to_dict(config),
        "lineage": {"data.vocabulary": fingerprint},
    }
    (folder / RECEIPT).write_text(json.dumps(receipt))
    return folder


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"evaluate.average_checkpoints": 2}, [20, 30]),
        ({"evaluate.average_checkpoints": 1}, [30]),
        ({"evaluate.checkpoint_steps": [30, 10]}, [10, 30]),
        ({"evaluate.average_checkpoints": 9}, [10, 20, 30]),
        ({"evaluate.average_checkpoints": 1, "evaluate.checkpoints": "best"}, [20]),
        ({"evaluate.average_checkpoints": 2, "evaluate.checkpoints": "best"}, [10, 20]),
        ({"evaluate.average_checkpoints": 9, "evaluate.checkpoints": "best"}, [10, 20]),
    ],
)
def test_the_newest_or_the_best_or_a_list(
    config: Config, folder: Path, changes: dict[str, object], expected: list[int]
) -> None:
    long = {
        "train.steps": 30,
        "train.validate_every": 10,
        "train.checkpoint_every": 10,
        "train.keep_checkpoints": 9,
        "train.keep_best": 9,
    }
    chosen = choose(folder, configuration.with_changes(config, long | changes).evaluate)
    assert [entry.step for entry in chosen] == expected


def test_what_cannot_be_chosen_is_said(config: Config, folder: Path) -> None:
    missing = dataclasses.replace(config.evaluate, checkpoint_steps=(15,))
    with pytest.raises(UserError, match=r"step 15, but .* 10, 20, 30: .* repro -f -s train"):
        choose(folder, missing)
    receipt = json.loads((folder / RECEIPT).read_text())
    for entry in receipt["checkpoints"]:
        del entry["valid_loss"]
    (folder / RECEIPT).write_text(json.dumps(receipt))
    with pytest.raises(UserError, match=r"no validation losses .* set it to newest"):
        choose(folder, dataclasses.replace(config.evaluate, checkpoints="best"))
    (folder / CHECKPOINTS / "30.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"30\.safetensors is missing or differs"):
        choose(folder, config.evaluate)
    (folder / RECEIPT).write_text("{")
    with pytest.raises(UserError, match=r"receipt\.json is damaged"):
        choose(folder, config.evaluate)
    weights = (
        '{"config": {}, "lineage": {}, "checkpoints": [{"step": "1", "file": "", "sha256": ""}]}'
    )
    for content, problem in (
        ("[]", "it holds a list, not an object"),
        ("{}", "lists no weights"),
        ('{"checkpoints": [{}]}', "config is missing"),
        (weights.replace("{}", '"x"', 1), "config is a string, not an object"),
        ('{"config": {}, "lineage": {}, "checkpoints": []}', "lists no weights"),
        (weights, r"checkpoints\[0\]\.step is a string, not a number"),
    ):
        (folder / RECEIPT).write_text(content)
        with pytest.raises(UserError, match=problem):
            choose(folder, config.evaluate)
    with pytest.raises(UserError, match="cannot be read: Not a directory"):
        choose(folder / RECEIPT, config.evaluate)
    (folder / RECEIPT).unlink()
    with pytest.raises(UserError, match=r"receipt\.json is missing"):
        choose(folder, config.evaluate)


def test_it_translates_as_its_averaged_model_does(
    config: Config, folder: Path, tiny_corpus: Corpus
) -> None:
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    found = translator.translate(["  Alpha\u00a0BETA ", ""], n_best=3)
    model = Transformer(config.model, tiny_corpus.size)
    files = [folder / CHECKPOINTS / f"{step}.safetensors" for step in STEPS[1:]]
    load_weights(model, average(files))
    vocabulary = Vocabulary.open(tiny_corpus.vocabulary)
    source = torch.tensor(vocabulary.encode(["alpha beta"]))
    expected = search(model, source, beam=3, alpha=0.6, max_extra_tokens=4, n_best=3)[0]
    assert [t.text for t in found[0]] == vocabulary.decode([h.pieces for h in expected])
    assert [t.score for t in found[0]] == pytest.approx([h.score for h in expected], abs=1e-5)
    assert found[0][0].score >= found[0][1].score >= found[0][2].score
    assert [t.text for t in found[1]] == [""]


def test_words_of_trees_are_parted_as_in_treebanks(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    """By ASCII white space alone: words of CRAFT hold other kinds."""
    trees = made_up_models.TREES
    parser = made_up_models.translator(tmp_path, tiny_config, tiny_corpus, trees)
    line = "5\u2009mg\tof  X\u00a0Y "
    assert parser.clean([line]) == ["5\u2009mg of X\u00a0Y"]
    [[best, *_]] = parser.translate([line])
    assert parse_tree(best.text).words == ("5\u2009mg", "of", "X\u00a0Y")
    # Brackets in a sentence would be some of its tree.
    words = ["the", "-LRB-", "old", "-RRB-", "f-LRB-x-RRB-"]
    assert parser.clean(["the ( old ) f(x)"]) == [" ".join(words)]
    [[best, *_]] = parser.translate(["the ( old ) f(x)"])
    assert parse_tree(best.text).words == tuple(words)


def test_it_streams_what_it_translates(config: Config, folder: Path, tiny_corpus: Corpus) -> None:
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    lines = ["  Alpha\u00a0BETA ", "", "ROT grün"]
    said = dict.fromkeys(range(len(lines)), "")
    for part in translator.stream(lines):
        said[part.line] += part.text
    assert [*said.values()] == [best.text for best, *_ in translator.translate(lines)]
    assert [*said.values()] == [best.text for best, *_ in translator.translate(
        ["alpha beta", "", "rot grün"])]  # fmt: skip


def test_groups_that_others_translate_come_back_in_order(
    config: Config, folder: Path, tiny_corpus: Corpus
) -> None:
    """Groups of one sentence each, by copies of the search, as tasks on other machines have."""

    def elsewhere(function: Any, items: Any) -> Iterator[Any]:
        copied = pickle.dumps(function)
        return (pickle.loads(copied)(item) for item in items)

    evaluate = dataclasses.replace(config.evaluate, tokens_per_batch=1)
    translator = Translator(folder, tiny_corpus.vocabulary, evaluate)
    lines = ["alpha beta gamma delta", "", "eins", "rot grün", "gelb gelb gelb"]
    done: list[int] = []
    found = translator.translate(lines, 2, done.append, mapper=elsewhere)
    assert found == translator.translate(lines, 2)
    assert len({each[0].text for each in found}) > 2
    assert done == [1] * 5


def test_another_vocabulary_is_refused(config: Config, folder: Path, tiny_corpus: Corpus) -> None:
    receipt = json.loads((folder / RECEIPT).read_text())
    receipt["lineage"]["data.vocabulary"] = "another"
    (folder / RECEIPT).write_text(json.dumps(receipt))
    with pytest.raises(UserError, match="another vocabulary"):
        Translator(folder, tiny_corpus.vocabulary, config.evaluate)


@pytest.mark.parametrize(
    ("name", "stage"),
    [("train", "train"), ("teacher", "teacher"), ("student", "student"), ("mine", "train")],
)
def test_the_stage_is_named_that_trains_such_weights(
    config: Config, folder: Path, tiny_corpus: Corpus, name: str, stage: str
) -> None:
    weights = folder.rename(folder.with_name(name))
    first = json.loads((weights / RECEIPT).read_text())
    best = dataclasses.replace(config.evaluate, checkpoints="best")
    steps = dataclasses.replace(config.evaluate, checkpoint_steps=(15,))

    def said(evaluate: EvaluateConfig = config.evaluate, **changes: Any) -> str:
        (weights / RECEIPT).write_text(json.dumps(first | changes))
        with pytest.raises(UserError) as told:
            Translator(weights, tiny_corpus.vocabulary, evaluate)
        return str(told.value)

    without = [entry | {"valid_loss": None} for entry in first["checkpoints"]]
    again = f"`dvc repro -f -s {stage}`"
    assert said(best, checkpoints=without).endswith(f"set it to newest, or run {again}")
    # A run that has finished trains to no step again while it has later checkpoints.
    removed = "remove the checkpoints after step 15 from train-1 in cluster.storage"
    assert said(steps, run="train-1").endswith(
        f"or {removed}, and run {again} to train these steps again"
    )
    assert f"`dvc repro {stage}`, or give" in said(lineage={"data.vocabulary": "another"})
    assert said(config={}).endswith(f"train again by `dvc repro {stage}`")
    (weights / CHECKPOINTS / "30.safetensors").unlink()
    assert said().endswith(f"run `dvc checkout {weights}` or {again}")


def test_weights_of_another_version_are_refused(
    config: Config, folder: Path, tiny_corpus: Corpus
) -> None:
    receipt = json.loads((folder / RECEIPT).read_text())
    receipt["config"]["model"]["d_ff"] = 65
    (folder / RECEIPT).write_text(json.dumps(receipt))
    with pytest.raises(UserError, match="another version of this program"):
        Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    del receipt["config"]["model"]["attention"]
    (folder / RECEIPT).write_text(json.dumps(receipt))
    with pytest.raises(UserError, match="another version of this program"):
        Translator(folder, tiny_corpus.vocabulary, config.evaluate)


@pytest.fixture
def project(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is one with params.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")


@pytest.mark.usefixtures("project")
def test_ctranslate2_says_what_our_search_says(
    config: Config,
    folder: Path,
    tiny_corpus: Corpus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Greedily: random weights have many hypotheses that are nearly as good."""
    pytest.importorskip("ctranslate2")
    changes = {"evaluate.beam": 1, "evaluate.length_penalty": "power"}
    config = configuration.with_changes(config, changes)
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    Path("lines").write_text("alpha beta\n\nbeta alpha\n", encoding="utf-8")
    command = ["translate", "lines", "--n-best", "1", "--weights", str(folder)]
    command += ["--vocabulary", str(tiny_corpus.vocabulary)]
    said = []
    for engine in ("own", "ctranslate2"):
        assert main([*command, "--engine", engine]) == 0
        said.append([line.split("\t") for line in capsys.readouterr().out.splitlines()])
    assert [(number, text) for number, _, text in said[0]] == [
        (number, text) for number, _, text in said[1]
    ]
    assert main([*command, "--engine", "ctranslate2", "--tasks"]) == 2
    assert "leave out --engine" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_lines_of_a_ray_that_starts_are_no_translations(
    folder: Path,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextlib.contextmanager
    def slow(cluster: ClusterConfig) -> Iterator[Mapper]:
        console.say("Ray is still starting after 31s")
        yield serial

    monkeypatch.setattr("seq2sweep.cluster.tasks.ray_mapper", slow)
    Path("lines").write_text("alpha beta\nbeta\n", encoding="utf-8")
    command = ["translate", "lines", "--weights", str(folder)]
    command += ["--vocabulary", str(tiny_corpus.vocabulary)]
    assert main(command) == 0
    alone = capsys.readouterr().out
    assert main([*command, "--tasks"]) == 0
    told = capsys.readouterr()
    assert told.out == alone
    assert "Ray is still starting" in told.err


def test_a_model_in_a_folder_is_enough_for_tasks(
    config: Config,
    folder: Path,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is wrong in a params.yaml that is there is told before a model is opened."""
    joined: list[str | None] = []

    def mapper(cluster: ClusterConfig) -> contextlib.nullcontext[Mapper]:
        joined.append(cluster.running_address)
        return contextlib.nullcontext(serial)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seq2sweep.cluster.tasks.ray_mapper", mapper)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    Translator(folder, tiny_corpus.vocabulary, config.evaluate).save(Path("saved"))
    Path("lines").write_text("alpha beta\n", encoding="utf-8")
    command = ["translate", "lines", "--tasks", "--model", "saved"]
    assert main(command) == 0
    assert joined == [None]
    opened = Mock()
    monkeypatch.setattr(Translator, "open", opened)
    Path("params.yaml").write_text("cluster: 1\n", encoding="utf-8")
    assert main(command) == 2
    assert "params.yaml" in capsys.readouterr().err
    Path("params.yaml").unlink()
    assert main([*command, "--weights", str(folder)]) == 2
    assert "params.yaml is missing" in capsys.readouterr().err
    assert not opened.called


@pytest.mark.usefixtures("project")
def test_a_large_cluster_gets_more_lines_at_once(
    folder: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster:
        __call__ = staticmethod(serial)
        places = staticmethod(lambda: 3)

    asked: list[int] = []

    def search(self: Translator, lines: list[str], *given: Any, **more: Any) -> Any:
        asked.append(len(lines))
        return [[Translation(line, 0.0)] for line in lines]

    monkeypatch.setattr(
        "seq2sweep.cluster.tasks.ray_mapper", lambda cluster: contextlib.nullcontext(Cluster())
    )
    monkeypatch.setattr(Translator, "translate", search)
    monkeypatch.setattr(translator, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(parallel, "SENTENCES_A_PLACE", 1)
    Path("lines").write_text("alpha\n" * 5, encoding="utf-8")
    given = [*("--weights", str(folder)), *("--vocabulary", str(tiny_corpus.vocabulary))]
    assert main(["translate", "lines", *given]) == 0
    assert main(["translate", "lines", "--tasks", *given]) == 0
    assert asked == [2, 2, 1, 3, 2]


@pytest.mark.usefixtures("project")
def test_it_is_said_beside_the_translations_what_is_waited_for(
    folder: Path,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    say, told = console.say, threading.Event()

    def heard(text: str, *given: Any, **more: Any) -> None:
        say(text, *given, **more)
        if text.startswith("waiting for resources, "):
            told.set()

    def waits(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        console.doing("waiting for resources")
        assert told.wait(5)
        yield from serial(function, items)

    monkeypatch.setattr(console, "say", heard)
    monkeypatch.setattr(console, "SILENT_SECONDS", 0.02)
    mapper = contextlib.nullcontext(waits)
    monkeypatch.setattr("seq2sweep.cluster.tasks.ray_mapper", lambda cluster: mapper)
    Path("lines").write_text("alpha beta\n", encoding="utf-8")
    given = [*("--weights", str(folder)), *("--vocabulary", str(tiny_corpus.vocabulary))]
    assert main(["translate", "lines", "--tasks", *given]) == 0
    shown = capsys.readouterr()
    assert "waiting for resources, 0s\n" in shown.err
    assert len(shown.out.splitlines()) == 1


@pytest.mark.usefixtures("project")
def test_a_model_keeps_its_own_settings_and_the_remedies_say_so(
    config: Config,
    folder: Path,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """params.yaml is not read for it."""
    Translator(folder, tiny_corpus.vocabulary, config.evaluate).save(Path("saved"))
    Path("lines").write_text("alpha\nbeta\n")
    weights = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    monkeypatch.setattr(OurSearch, "begin", Mock(side_effect=MemoryError))
    # It is refused before the model is exported for it.
    monkeypatch.setattr("seq2sweep.decode.ctranslate.export", Mock(side_effect=AssertionError))
    for given, and_then in (
        (weights, ""),
        (["--model", "saved"], " in params.yaml and export the model again, which keeps its own"),
    ):
        assert main(["translate", "lines", *given, "--engine", "ctranslate2"]) == 2
        mend = f"alpha: leave out --engine, or set evaluate.length_penalty to power{and_then}"
        (line,) = capsys.readouterr().err.splitlines()
        assert mend in line
        assert line.endswith("settings" if and_then else "power")
        assert main(["translate", "lines", *given]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert f"): lower evaluate.tokens_per_batch{and_then}" in line
        assert line.endswith("settings" if and_then else "batch")


def another(folder: Path, name: str, changes: dict[str, Any]) -> Path:
    """A folder of other random weights, with other entries in sections of its receipt."""
    other = folder.with_name(name)
    shutil.copytree(folder, other)
    receipt = json.loads((other / RECEIPT).read_text())
    for entry in receipt["checkpoints"]:
        file = other / CHECKPOINTS / entry["file"]
        tensors = {key: tensor.flip(0) for key, tensor in load_file(file).items()}
        save_file(tensors, file)
        entry["sha256"] = sha256(file)
    for section, values in changes.items():
        receipt[section] |= values
    (other / RECEIPT).write_text(json.dumps(receipt))
    return other


@pytest.mark.usefixtures("project")
def test_the_commands_take_an_ensemble(
    config: Config, folder: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    other = another(folder, "other", {})
    opened = [Translator(each, tiny_corpus.vocabulary, config.evaluate) for each in (folder, other)]
    opened[1].save(Path("saved"))
    Path("lines").write_text("alpha beta\n\nROT\n", encoding="utf-8")

    def printed(*arguments: str) -> list[list[str]]:
        assert main([*arguments, "--vocabulary", str(tiny_corpus.vocabulary)]) == 0
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]

    first, second = (["--weights", str(each)] for each in (folder, other))
    command = ["translate", "lines", "--n-best", "2"]
    both = printed(*command, *first, *second)
    together = Translator.together(opened)
    expected = together.translate(["alpha beta", "", "ROT"], 2)
    assert [row[2] for row in both] == [one.text for best in expected for one in best]
    assert printed(*command, *first) == printed(*command, *first, *first) != both
    assert printed(*command, *second, *first) == both
    assert printed(*command, *first, "--model", "saved") == both
    # The first one's settings count, whichever way it is named.
    narrow = dataclasses.replace(config.evaluate, beam=1)
    Translator(other, tiny_corpus.vocabulary, narrow).save(Path("narrow"))
    assert printed(*command, *first, "--model", "narrow") == both
    named = [*command, "--model", "narrow", *first, "--vocabulary", str(tiny_corpus.vocabulary)]
    assert main(named) == 2
    assert "--n-best is 2: it must be from 1 to evaluate.beam, 1" in capsys.readouterr().err
    assert together.steps == (20, 30, 20, 30)
    assert len(set(together.weights)) == 4
    assert Translator.together(opened[:1]) is opened[0]

    command = ["score-pairs", "lines", "lines"]
    one, two, mean = (printed(*command, *given) for given in (first, second, [*first, *second]))
    assert len(mean) == 3
    # Of the empty line, one token, the probabilities can be averaged by hand.
    probabilities = [math.exp(float(rows[1][0])) for rows in (one, two, mean)]
    assert probabilities[2] == pytest.approx(sum(probabilities[:2]) / 2, rel=1e-4)
    assert probabilities[0] != pytest.approx(probabilities[1], rel=1e-2)


@pytest.mark.usefixtures("project")
def test_what_is_translated_is_printed_before_an_interruption(
    monkeypatch: pytest.MonkeyPatch,
    config: Config,
    folder: Path,
    tiny_corpus: Corpus,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = configuration.with_changes(config, {"evaluate.max_input_tokens": 6})
    Path("params.yaml").write_text(configuration.dump(short), encoding="utf-8")
    given = [*("--weights", str(folder)), *("--vocabulary", str(tiny_corpus.vocabulary))]
    long = "alpha " * 7
    Path("lines").write_text(f"rot\n\n{long}\nvier\n{long}\n", encoding="utf-8")
    assert main(["translate", "lines", "--n-best", "2", *given]) == 0
    together = capsys.readouterr()
    monkeypatch.setattr(translator, "LINES_AT_ONCE", 2)
    assert main(["translate", "lines", "--n-best", "2", *given]) == 0
    apart = capsys.readouterr()
    assert apart.out == together.out
    assert [line.rpartition(": ")[2] for line in apart.err.splitlines() if " cut " in line] == [
        "line 3",
        "line 5",
    ]

    def search(self: Translator, lines: list[str], *given: Any, **more: Any) -> Any:
        if more["first"] > 2:
            raise KeyboardInterrupt
        return [[Translation(line, 0.0)] for line in lines]

    monkeypatch.setattr(Translator, "translate", search)
    assert main(["translate", "lines", *given]) == 75
    assert capsys.readouterr().out == "rot\n\n"


@pytest.mark.usefixtures("project")
def test_a_signal_to_end_loses_no_translation_that_is_whole(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tiny_corpus: Corpus
) -> None:
    Path("lines").write_text("rot\ngelb\nvier\nalpha\nbeta\n", encoding="utf-8")
    seen: list[str] = []

    def search(self: Translator, lines: list[str], *given: Any, **more: Any) -> Any:
        seen.append(Path("out").read_text())
        if more["first"] > 4:
            signal.raise_signal(signal.SIGTERM)
        return [[Translation(line, 0.0)] for line in lines]

    monkeypatch.setattr(translator, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(Translator, "translate", search)
    given = [*("--weights", str(folder)), *("--vocabulary", str(tiny_corpus.vocabulary))]
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with Path("out").open("w", encoding="utf-8") as out:
            monkeypatch.setattr(sys, "stdout", out)
            assert main(["translate", "lines", *given]) == 75
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["", "rot\ngelb\n", "rot\ngelb\nvier\nalpha\n"]
    assert heard == [signal.SIGTERM]  # it is as before again


@pytest.mark.usefixtures("project")
def test_models_that_do_not_go_together_are_one_line(
    folder: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = json.loads((folder / RECEIPT).read_text())["config"]["prepare"]
    cased = {"config": {"prepare": prepare | {"lowercase": False}}}
    foreign = {"lineage": {"data.vocabulary": "another"}}
    data = json.loads((folder / RECEIPT).read_text())["config"]["data"]
    french = {"config": {"data": data | {"target": "fr"}}}
    Path("lines").write_text("alpha\n")
    for other, further, problem in (
        (another(folder, "cased", cased), [], "model 2 was trained with prepare.lowercase False"),
        (another(folder, "foreign", foreign), [], "was trained with another vocabulary"),
        (another(folder, "french", french), [], "translates en to fr, model 1 en to de: an ensem"),
        (folder, ["--engine", "ctranslate2"], "an ensemble goes with this program's own search"),
    ):
        command = ["translate", "lines", "--weights", str(folder), "--weights", str(other)]
        assert main([*command, "--vocabulary", str(tiny_corpus.vocabulary), *further]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert problem in line


def test_an_ensemble_has_one_vocabulary(config: Config, folder: Path, tiny_corpus: Corpus) -> None:
    opened = [Translator(folder, tiny_corpus.vocabulary, config.evaluate) for _ in range(2)]
    opened[1].vocabulary = Vocabulary(utf8.MODEL)
    with pytest.raises(UserError, match="model 2 has another vocabulary than model 1"):
        Translator.together(opened)


@pytest.mark.usefixtures("project")
def test_lack_of_memory_is_one_line(
    folder: Path,
    tiny_corpus: Corpus,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")

    # Loaded while that is replaced, it would keep what takes its place.
    assert head_numbers.maps is attention_maps.maps
    Path("lines").write_text("alpha\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"alpha\n")))
    trained = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    monkeypatch.setattr(translator, "best_device", lambda: torch.device("cuda"))
    for module, name, command, mend in (
        (Transformer, "to", ["translate", "lines"], "free the GPU, or set CUDA_VISIBLE_DEVICES= "),
        (streaming, "_final", ["translate", "--interactive"], "type a shorter line, or lower"),
        (forced, "_log_probabilities", ["score-pairs", "lines", "lines"], "lower evaluate.tokens"),
        (attention_maps, "maps", ["attend", "alpha"], "give shorter sentences"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            assert main([*command, *trained]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert re.search(rf"out of memory \(OutOfMemoryError: .* 9.00 GiB\): {mend}", line), line


@pytest.mark.usefixtures("project")
def test_the_command_shows_what_it_attends_to(
    config: Config, folder: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    command = ["attend", " Alpha  BETA", "rot", *trained]
    assert main([*command, "--out", "maps.json"]) == 0
    found = json.loads(Path("maps.json").read_text())
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    vocabulary = translator.vocabulary
    said = [best.pieces for best, *_ in translator.translate(["alpha beta", "rot"])]
    for pair, line, pieces in zip(found["pairs"], ("alpha beta", "rot"), said, strict=True):
        assert pair["source"] == vocabulary.tokens(vocabulary.encode([line])[0])
        assert pair["predicted"] == vocabulary.tokens(pieces)
        assert pair["read"] == ["<s>", *pair["predicted"][:-1]]
    # The model's own weights, of the pieces that it was said to have read.
    source = torch.tensor(vocabulary.encode(["alpha beta"]))
    with torch.no_grad():
        expected = translator.model.attention_weights(source, torch.tensor([[1, *said[0][:-1]]]))
    for layer, weights in found["pairs"][0]["weights"].items():
        torch.testing.assert_close(torch.tensor(weights), expected[layer][0])
    assert len(found["heads"]) == sum(len(weights[0]) for weights in expected.values())
    assert all(isinstance(entry["loss_without"], float) for entry in found["heads"])

    forced = ["--target", "GRÜN drei", "--target", "vier"]
    assert main([*command, *forced, "--out", "maps.json"]) == 0
    pair = json.loads(Path("maps.json").read_text())["pairs"][0]
    assert pair["predicted"] == vocabulary.tokens(vocabulary.encode(["grün drei"])[0])
    assert main([*command, *forced]) == 0
    assert "attention.html shows" in capsys.readouterr().out
    text = Path("attention.html").read_text(encoding="utf-8")
    assert f"{folder}, checkpoints 20, 30" in text
    assert '"start":{"joined":true,' in text
    assert main([*command, *forced, "--tokens"]) == 0
    assert '"start":{"joined":false,' in Path("attention.html").read_text(encoding="utf-8")
    figure = ["--out", "x.svg", "--of", "encoder", "--layer", "1", "--head", "2", "--word", "beta"]
    assert main([*command, *figure]) == 0
    assert Path("x.svg").read_text().count("<text") == 6  # alpha, beta and the end, twice


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["a", "--out", "x.png"], "--out x.png: name a file that ends in .html, .svg or .json"),
        (["a", "b", "--target", "c"], "2 sentences but 1 --target: give one each"),
        (["a", " "], "sentence 2 is empty"),
        (["a", "--target", " "], "target 1 is empty"),
        (["alpha " * 2000], r"sentence 1 has \d+ tokens: at most \d+ are taken"),
        (["a", "b", *["--target", "b " * 2000] * 2], r"target 1 has \d+ tokens: at most \d+"),
        (["a", "--layer", "9"], "--layer 9: memory attention has layers 1"),
        (["alpha", "--word", "its"], "--word its: the words are"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    folder: Path,
    tiny_corpus: Corpus,
    given: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trained = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    assert main(["attend", *given, *trained]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(problem, line)
    assert not Path("attention.html").exists()


@pytest.mark.usefixtures("project")
def test_the_command_reads_files_and_standard_input(
    config: Config,
    folder: Path,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["translate", "--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    lines = ["alpha rot", "", "grün drei vier"]
    Path("text.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert main([*command, "text.gz"]) == 0
    translations = capsys.readouterr().out.split("\n")[:-1]
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    assert translations == [found[0].text for found in translator.translate(lines)]

    text = io.TextIOWrapper(io.BytesIO("\r\n".join([*lines, ""]).encode()))
    monkeypatch.setattr("sys.stdin", text)
    assert main([*command, "--n-best", "2"]) == 0
    rows = [row.split("\t") for row in capsys.readouterr().out.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert [rows[i][2] for i in (0, 2, 3)] == translations
    assert float(rows[0][1]) >= float(rows[1][1])

    assert main([*command, "--n-best", "4", "text.gz"]) == 2
    assert "--n-best is 4: it must be from 1 to evaluate.beam, 3" in capsys.readouterr().err
    assert main([*command, "nowhere.txt"]) == 2
    assert "nowhere.txt is missing" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("fünf".encode("latin-1"))))
    assert main(command) == 2
    assert "standard input line 1: not UTF-8" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_standard_input_is_translated_while_it_comes(
    folder: Path,
    tiny_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A block at a time; what is wrong in a file is told before any of it is translated."""
    blocks = [b"alpha\nbeta\n", b"rot\nvier\n", b"gelb\nf\xfcnf\n"]
    translated: list[int] = []
    read_after: list[int] = []

    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            read_after.append(len(translated))
            return blocks[len(read_after) - 1]

    def search(self: Translator, lines: list[str], *given: Any, **more: Any) -> Any:
        translated.append(more["first"])
        return [[Translation(line, 0.0)] for line in lines]

    monkeypatch.setattr(translator, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(Translator, "translate", search)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Pipe()))
    given = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    assert main(["translate", *given]) == 2
    shown = capsys.readouterr()
    assert read_after == [0, 1, 2]
    assert translated == [1, 3]
    assert shown.out == "alpha\nbeta\nrot\nvier\n"
    assert "standard input line 6: not UTF-8" in shown.err

    Path("lines").write_bytes(b"".join(blocks))
    assert main(["translate", "lines", *given]) == 2
    shown = capsys.readouterr()
    assert (shown.out, translated) == ("", [1, 3])
    assert "lines line 6: not UTF-8" in shown.err
