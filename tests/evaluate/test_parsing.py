"""Trees of sentences, by a model that was trained on a few of the built-in ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline import download, encode, prepare, vocabulary
from seq2sweep import config as configuration
from seq2sweep import presets, project_files
from seq2sweep.config import Config
from seq2sweep.data.treebank.linearisation import linearise
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.evaluate import evaluation, parsing
from seq2sweep.evaluate.brackets import score_files
from seq2sweep.evaluate.task import TASKS
from seq2sweep.train import loop
from seq2sweep.train.events import CheckpointDue

CHANGES = {
    "data.phrasebook.train": 400,
    "data.phrasebook.valid": 12,
    "data.phrasebook.test": 24,
    "vocabulary.size": 150,
    "model.layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.heads": 2,
    "model.d_k": 16,
    "model.d_v": 16,
    "train.steps": 60,
    "train.warmup_steps": 20,
    "train.tokens_per_update": 600,
    "train.checkpoint_every": 60,
    "train.validate_every": 60,
    "evaluate.beam": 3,
    "evaluate.alpha": 0.7,
    "evaluate.max_extra_tokens": 40,
    "evaluate.average_checkpoints": 1,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and in `checkpoint` what training left."""
    folder = tmp_path_factory.mktemp("parsing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for one in (download, prepare, vocabulary, encode):
            one.work(config())
        for due in loop.train(config(), project_files.ENCODED, device=torch.device("cpu")):
            if isinstance(due, CheckpointDue):
                due.capture().write(folder / "checkpoint")
    return folder


def config() -> Config:
    return configuration.with_changes(presets.load("parsing").config, CHANGES)


@pytest.fixture
def data(project: Path, monkeypatch: pytest.MonkeyPatch) -> evaluation.Data:
    monkeypatch.chdir(project)
    return evaluation.Data(project_files.CLEAN, project_files.VOCABULARY, project_files.ENCODED)


@pytest.fixture
def found(data: evaluation.Data) -> evaluation.Evaluation:
    weights = average([Path("checkpoint/model.safetensors")])
    model = build(config().model, weights, len(Vocabulary.open(data.vocabulary)))
    return evaluation.evaluate(config(), model, data, "test", beside=True)


def test_every_tree_is_over_its_own_words_with_gold_tags(
    found: evaluation.Evaluation, data: evaluation.Data
) -> None:
    for line, sentence, gold in zip(
        found.translations, data.lines("test", "source"), data.lines("test", "target"), strict=True
    ):
        tree = parse_tree(line)
        assert " ".join(tree.words) == sentence
        assert tree.tags == parse_tree(gold).tags
    metrics = found.metrics
    assert (metrics["errors"], metrics["skipped"], metrics["sentences"]) == (0, 0, 24)
    faults = metrics["well_formed"]
    assert (faults["malformed"], faults["cut"], sum(faults["repairs"].values())) == (0, 0, 0)


def test_scores_are_those_of_the_files(
    found: evaluation.Evaluation, data: evaluation.Data, tmp_path: Path
) -> None:
    """As `seq2sweep score --trees` has them of what stands in reports/translations.tsv."""
    ours, gold = tmp_path / "ours", tmp_path / "gold"
    ours.write_text("\n".join(found.translations))
    gold.write_text("\n".join(data.lines("test", "target")))
    scores = score_files(ours, gold)
    for key in ("f1", "precision", "recall", "complete", "by_label", "no_crossing"):
        assert found.metrics[key] == scores[key]
    assert 0 < scores["f1"] < 100
    assert "tagging" not in found.metrics


def test_the_search_of_the_paper_is_repaired_and_counted(
    found: evaluation.Evaluation, data: evaluation.Data
) -> None:
    """What the model says without a mask is rebuilt; its figures and ours are beside each other."""
    free = found.metrics["unconstrained"]
    assert free["difference"] == pytest.approx(found.metrics["f1"] - free["f1"], abs=1e-3)
    # After so few steps it cannot count words.
    assert 0 < free["malformed"] <= 24
    assert sum(free["repairs"].values()) >= free["malformed"]


def test_outputs_that_were_cut_are_counted(project: Path, data: evaluation.Data) -> None:
    pieces = Vocabulary.open(data.vocabulary)
    weights = [project / "checkpoint/model.safetensors"]
    model = build(config().model, average(weights), len(pieces))
    settings = dataclasses.replace(config().evaluate, max_extra_tokens=0, beam=1)
    sentences = data.lines("test", "source")
    free = parsing.parse(model, pieces, sentences, settings, well_formed=False)
    assert free.cut > 0
    assert free.malformed >= free.cut
    # A tree fits all the same where each word is at least a piece: it has fewer brackets.
    masked = parsing.parse(model, pieces, sentences, settings)
    assert masked.malformed == 0
    # And where it has all that fit, nobody knows whether it would have had more.
    assert masked.cut > 0
    wide = dataclasses.replace(settings, max_extra_tokens=200)
    assert parsing.parse(model, pieces, sentences, wide).cut < masked.cut
    for line, sentence in zip(masked.trees, sentences, strict=True):
        symbols = linearise(parse_tree(line))
        assert symbols.count("XX") == len(sentence.split(" "))
        assert {*parse_tree(line).tags} <= {*pieces.symbols.tags}  # as the model writes them


GOLD = [
    "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))",
    "(TOP (NP (NN Results)))",
]


def test_floors_by_hand() -> None:
    """Flat: one S a sentence; of six brackets of gold one is found, of two that are said.

    Right-branching: S, NP John, and VPs from each word on, in which the full stop does not count:
    S, NP, VP(1), VP(2), VP(3), of which the last is one word, and VP of the full stop, which is
    empty, is none; of gold S, NP and VP. And in the second S and NP, of which NP is in gold.
    """
    assert parsing.floors(GOLD) == {
        "flat": {"f1": 28.5714, "precision": 50.0, "recall": 20.0},
        "right_branching": {"f1": 66.6667, "precision": 57.1429, "recall": 80.0},
    }


def test_figures_by_phenomenon() -> None:
    flat = "(TOP (S (NNP John) (VBZ has) (DT a) (NN dog) (. .)))"
    found = TASKS["parsing"].by_phenomenon([flat, GOLD[1]], GOLD, [["a", "b", "a"], ["b"]])
    assert found == {
        "a": {"sentences": 1, "f1": 40.0, "complete": 0.0},
        "b": {"sentences": 2, "f1": 57.1429, "complete": 50.0},
    }


def test_a_trial_of_a_sweep_has_f1(project: Path, data: evaluation.Data) -> None:
    weights = average([project / "checkpoint/model.safetensors"])
    model = build(config().model, weights, len(Vocabulary.open(data.vocabulary)))
    found: dict[str, Any] = evaluation.validation_scores(config(), model, data)
    assert {*found} == {"f1", "precision", "recall", "complete", "signature", "translations"}
    assert found["signature"] == "EVALB, COLLINS.prm"
    assert len(found["translations"]) == 12


def test_what_dvc_and_mlflow_show(found: evaluation.Evaluation) -> None:
    metrics = found.metrics
    assert evaluation.shown(metrics, config()) == {
        "f1": metrics["f1"],
        "precision": metrics["precision"],
        "recall": metrics["recall"],
        "complete": metrics["complete"],
        "f1_unconstrained": metrics["unconstrained"]["f1"],
        "test_perplexity": metrics["perplexity"],
        "decode_tokens_per_second": metrics["decode_tokens_per_second"],
    }
    assert [*evaluation.shown_by_dvc(metrics, config())] == [
        "f1",
        "complete",
        "f1_unconstrained",
        "test_perplexity",
    ]
