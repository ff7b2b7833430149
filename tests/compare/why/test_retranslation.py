"""`seq2sweep why` of runs: settings of decoding that cost a run something, and contamination."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seq2sweep import config as configuration
from seq2sweep.cli import main
from seq2sweep.compare.scored_run import NotComparableError, find
from seq2sweep.compare.why import retranslation
from seq2sweep.compare.why.explain import PAPER, Output, explain, output_of
from seq2sweep.compare.why.retranslation import papers_config, papers_row
from seq2sweep.config import Config, EvaluateConfig
from seq2sweep.data import files
from seq2sweep.data.bitext import read_training_header, write_split
from seq2sweep.data.files import CHECKPOINTS, RECEIPT, SIDES, write_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import Translation
from seq2sweep.errors import UserError
from seq2sweep.evaluate import bleu
from seq2sweep.evaluate.translations_table import translations_table
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name
from seq2sweep.storage.atomic import sha256

from ...conftest import Corpus
from ...refusal import refusal
from .made_up_output import references, translations

COUNT = 60
REFERENCES = references(COUNT)
SOURCES = [f"this is sentence {n}" for n in range(COUNT)]
SEEN = [*range(0, COUNT, 6)]
"""Sentences that were trained on, where some were."""
GOOD = translations(REFERENCES)
STEPS = (10, 20, 30, 40, 50)
PAPERS = papers_config("base", "de")["evaluate"]
LOSSES = {"beam": 0.1, "alpha": 0.07, "max_extra_tokens": 0.2}


def said(config: EvaluateConfig, averaged: int) -> list[str]:
    """What the made-up model says: good with the paper's settings, worse with others."""
    lines = GOOD
    for seed, (key, wrong) in enumerate(LOSSES.items()):
        if getattr(config, key) != PAPERS[key]:
            lines = translations(lines, seed, wrong)
    return lines if averaged == 5 else translations(lines, 9, 0.05)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Corpus, tiny_config: Config
) -> Path:
    """A trained project, without an evaluation."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(tiny_corpus, tiny_config)
    return folder


@pytest.fixture
def project(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the working folder."""
    folder = tmp_path / "project"
    shutil.copytree(trained, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def train(tiny_corpus: Corpus, tiny_config: Config) -> None:
    """Make a trained project of the working folder."""
    for folder in ("data/clean", "metrics", "reports", f"models/train/{CHECKPOINTS}"):
        Path(folder).mkdir(parents=True)
    Path("data/vocabulary").symlink_to(tiny_corpus.vocabulary)
    write_lines(Path("data/clean/test.source.txt"), SOURCES)
    write_lines(Path("data/clean/test.target.txt"), REFERENCES)
    entries = []
    for step in STEPS:
        torch.manual_seed(step)
        file = Path("models/train", CHECKPOINTS, f"{step}.safetensors")
        model = Transformer(tiny_config.model, tiny_corpus.size)
        save_file({name: p.detach() for name, p in model.named_parameters()}, file)
        entries.append({"step": step, "file": file.name, "sha256": sha256(file)})
    fingerprint = Vocabulary.open(tiny_corpus.vocabulary).fingerprint
    receipt = {
        "checkpoints": entries,
        "config": configuration.to_dict(tiny_config),
        "lineage": {"data.vocabulary": fingerprint},
    }
    Path("models/train", RECEIPT).write_text(json.dumps(receipt))
    trained_on(["something else"], ["etwas anderes"])


def trained_on(source: Sequence[str], target: Sequence[str]) -> None:
    """Have the project's run be trained on these sentences."""
    vocabulary = Vocabulary.open(Path("data/vocabulary"))
    Path("data/encoded").mkdir(exist_ok=True)
    for split in ("train", "valid"):
        texts = {side: Path(f"data/clean/{split}.{side}.txt") for side in SIDES}
        write_lines(texts["source"], source)
        write_lines(texts["target"], target)
        languages = {"source": "en", "target": "de"}
        write_split(Path("data/encoded"), split, texts, vocabulary, languages)
    path = Path("models/train", RECEIPT)
    receipt = json.loads(path.read_text())
    receipt["lineage"]["data.dataset"] = read_training_header(Path("data/encoded"))["fingerprint"]
    path.write_text(json.dumps(receipt))


def evaluated(config: Config, lines: Sequence[str] | None = None, **changes: Any) -> EvaluateConfig:
    """Write an evaluation with the paper's settings, changed, and these translations."""
    values = PAPERS | changes
    own = dataclasses.replace(config.evaluate, **values)
    entries = json.loads(Path("models/train", RECEIPT).read_text())["checkpoints"]
    used = entries[-own.average_checkpoints :]
    found = said(own, len(used)) if lines is None else lines
    table = translations_table(SOURCES, REFERENCES, found, None)
    Path("reports/translations.tsv").write_text(table, encoding="utf-8")
    metrics = bleu.score(found, REFERENCES, "de") | {
        "perplexity": 3.0,
        "averaged_checkpoints": [entry["step"] for entry in used],
        "made_from": {
            "weights": [entry["sha256"] for entry in used],
            "translations": hashlib.sha256(table.encode()).hexdigest(),
            "test_set": files.test_set(Path("data/clean"), "test"),
            "evaluate": values,
        },
    }
    Path("metrics/evaluate.json").write_text(json.dumps(metrics))
    return own


@pytest.fixture
def made_up_model(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """In the place of the real one; the settings that it was asked for."""
    asked = []

    def translate(
        weights: Sequence[Path],
        vocabulary: Vocabulary,
        lines: Sequence[str],
        config: EvaluateConfig,
        *others: Any,
    ) -> list[list[Translation]]:
        assert lines == SOURCES
        assert [int(file.stem) for file in weights] == [*STEPS[-len(weights) :]]
        asked.append({**vars(config), "averaged": len(weights)})
        return [[Translation(text, 0.0)] for text in said(config, len(weights))]

    monkeypatch.setattr(retranslation, "average", lambda files: files)
    monkeypatch.setattr(retranslation, "build", lambda config, weights, size: weights)
    monkeypatch.setattr(retranslation, "translate", translate)
    return asked


def run() -> Output:
    return output_of(find("models/train"))


def scored(lines: Sequence[str]) -> float:
    return bleu.corpus_bleu(lines, REFERENCES)


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("averaging", {"average_checkpoints": 2}),
        ("beam", {"beam": 1}),
        ("penalty", {"alpha": 2.0}),
        ("cut lengths", {"max_extra_tokens": 0}),
    ],
)
def test_a_planted_setting_is_named_first_with_its_share(
    project: Path,
    tiny_config: Config,
    made_up_model: list[dict[str, Any]],
    cause: str,
    changes: dict[str, Any],
) -> None:
    own = evaluated(tiny_config, **changes)
    found = explain(run())
    (step,) = found["steps"]
    assert step["cause"] == cause
    loss = scored(GOOD) - scored(said(own, own.average_checkpoints))
    assert step["share"] == pytest.approx(loss, abs=1e-3)
    assert next(iter(changes)) in step["evidence"]
    assert len(made_up_model) == 2  # its own settings, and the paper's


def test_several_settings_add_up(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config, beam=1, alpha=2.0, max_extra_tokens=0)
    found = explain(run())
    assert [step["cause"] for step in found["steps"]] == ["cut lengths", "beam", "penalty"]
    assert found["steps"][-1]["bleu"] == pytest.approx(scored(GOOD), abs=1e-3)


def test_of_the_papers_settings_nothing_is_found_and_nothing_translated(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config)
    found = explain(run())
    assert found["steps"] == []
    assert {"averaging", "beam", "penalty", "cut lengths"} <= {*found["not_found"]}
    assert made_up_model == []
    wanted = "300, of the paper's base 25000: that needs another training"
    assert found["not_tested"]["effective batch"] == wanted
    assert "model.layers" in found["not_tested"]
    assert not any(key.startswith("evaluate.") for key in found["not_tested"])


def test_translations_that_come_out_different_here_are_a_step_of_their_own(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    before = translations(GOOD, 7, 0.3)
    own = evaluated(tiny_config, before, beam=1)
    found = explain(run())
    assert [step["cause"] for step in found["steps"]] == ["translated again", "beam"]
    again = scored(said(own, 5)) - scored(before)
    assert found["steps"][0]["share"] == pytest.approx(again, abs=1e-3)
    assert found["bleu"] == pytest.approx(scored(before), abs=1e-3)


def test_faults_of_text_are_found_in_what_is_translated_again(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config, [line.lower() for line in GOOD])
    assert [step["cause"] for step in explain(run())["steps"]] == ["case"]


def test_fewer_checkpoints_than_the_paper_averages_are_said(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    path = Path("models/train", RECEIPT)
    receipt = json.loads(path.read_text())
    receipt["checkpoints"] = receipt["checkpoints"][2:]
    path.write_text(json.dumps(receipt))
    evaluated(tiny_config, average_checkpoints=3)
    why = explain(run())["not_tested"]["averaging"]
    assert why == "3 checkpoints are averaged, not 5, and no more were kept"


@pytest.mark.parametrize("side", ["source", "target"])
def test_sentences_that_were_trained_on_are_left_out(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]], side: str
) -> None:
    lines = SOURCES if side == "source" else REFERENCES
    texts = {"source": ["x"] * (len(SEEN) + 1), "target": ["y"] * (len(SEEN) + 1)}
    trained_on(**texts | {side: ["x", *(lines[i] for i in SEEN)]})
    bad = [REFERENCES[i] if i in SEEN else line for i, line in enumerate(GOOD)]
    evaluated(tiny_config, bad)
    (step,) = explain(run())["steps"]
    kept = [i for i in range(COUNT) if i not in SEEN]
    best = bleu.corpus_bleu([GOOD[i] for i in kept], [REFERENCES[i] for i in kept])
    assert step["cause"] == "contamination"
    assert step["share"] == pytest.approx(best - scored(bad), abs=1e-3)
    assert step["evidence"].startswith(f"{len(SEEN)} of {COUNT} sentences")


@pytest.mark.parametrize("side", ["both", "ours", "theirs", "unknown"])
def test_what_one_side_was_trained_on_is_left_out_of_both(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]], side: str
) -> None:
    """Else two outputs of the same text would differ by what one has seen."""
    trained_on([SOURCES[i] for i in SEEN], ["y"] * len(SEEN))
    bad = [REFERENCES[i] if i in SEEN else line for i, line in enumerate(GOOD)]
    evaluated(tiny_config, bad)
    first, here = run(), Path.cwd()
    shutil.copytree(here, here.parent / "other")
    os.chdir(here.parent / "other")
    if side == "unknown":
        Path("data/clean/train.source.txt").unlink()
    elif side != "both":
        trained_on(["x"], ["y"])
        evaluated(tiny_config, bad)
    os.chdir(here)
    second = output_of(find(str(here.parent / "other")))
    ours, theirs = (second, first) if side == "theirs" else (first, second)
    found = explain(ours, theirs)
    goal = found["against"]
    assert goal["left"] == 0
    for (step,) in (found["steps"], goal["steps"]):
        assert step["cause"] == "contamination"
        said = f"{len(SEEN)} of {COUNT} sentences are in the training text of one of the two, and"
        assert step["evidence"].startswith(said)
        assert ("train.source.txt is missing" in step["evidence"]) == (side == "unknown")


def test_lines_that_are_left_out_do_not_move_those_of_other_causes(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    trained_on([SOURCES[i] for i in SEEN], ["y"] * len(SEEN))
    evaluated(tiny_config, [*GOOD[:30], "Ja.", *GOOD[30:-1]])
    found = explain(run())
    kept, left = [i for i in range(COUNT) if i not in SEEN], [*GOOD[:-1], ""]
    assert {step["cause"] for step in found["steps"]} == {"line shift", "contamination"}
    best = bleu.corpus_bleu([left[i] for i in kept], [REFERENCES[i] for i in kept])
    assert found["steps"][-1]["bleu"] == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(
    ("remove", "cause", "why"),
    [
        ("models/train/checkpoints/30.safetensors", "beam", "30.safetensors is missing or differs"),
        ("data/clean/test.source.txt", "penalty", "test.source.txt is not what was translated"),
        ("data/clean/train.source.txt", "contamination", "train.source.txt is missing"),
        ("data/encoded/valid.json", "contamination", "valid.json is missing"),
        ("data/vocabulary", "beam", "vocabulary.model is missing"),
    ],
)
def test_what_is_not_there_is_said(
    project: Path, tiny_config: Config, remove: str, cause: str, why: str
) -> None:
    evaluated(tiny_config, beam=1)
    if cause == "contamination":
        evaluated(tiny_config)
    Path(remove).unlink()
    found = explain(run())
    assert why in found["not_tested"][cause]
    assert found["steps"] == []


def test_text_that_it_was_not_trained_on_is_no_contamination(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    """As after a change of `prepare`, with the weights of before."""
    evaluated(tiny_config)
    write_lines(Path("data/clean/train.source.txt"), [SOURCES[0]])
    said = "data/clean/train.source.txt is not what it was trained on: run `dvc repro`"
    assert explain(run())["not_tested"]["contamination"] == said
    before = Path("models/train", RECEIPT).read_text()
    trained_on([SOURCES[0]], ["y"])
    Path("models/train", RECEIPT).write_text(before)
    found = explain(run())
    said = "data/encoded is not the data that it was trained on"
    assert (found["steps"], found["not_tested"]["contamination"]) == ([], said)


def test_checkpoints_to_average_that_are_not_here_leave_the_other_settings_tested(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config, beam=1)
    again = to_be_decoded_with({"checkpoint_steps": [30, 60]})
    assert [cause.name for cause in again.causes()] == ["beam"]
    assert "60" in again.untested()["averaging"]


def test_as_many_checkpoints_are_named_as_are_averaged(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config, average_checkpoints=2)
    again = to_be_decoded_with({"average_checkpoints": 20})
    (cause,) = again.causes()
    said = "translated again with average_checkpoints 2 → 20, of which 5 were kept"
    assert cause.evidence == said


@pytest.mark.parametrize(
    ("changes", "averaged", "why"),
    [
        ({"average_checkpoints": 2}, [20, 30], None),
        ({"checkpoint_steps": [20, 10]}, [10, 20], None),
        ({"checkpoint_steps": [20, 40]}, None, "no checkpoint of step 40"),
        ({"checkpoints": "best"}, None, "keeps its newest checkpoints, and not its best"),
    ],
)
def test_of_a_trial_the_checkpoints_that_are_named_are_averaged(
    project: Path,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    averaged: list[int] | None,
    why: str | None,
) -> None:
    """Or none: another mean would be told as that of those."""
    evaluated(tiny_config, average_checkpoints=1)
    trial = tmp_path / "trial"
    for step in (10, 20, 30):
        (trial / checkpoint_name(step)).mkdir(parents=True)
    (trial / JOURNAL_NAME).touch()
    again = to_be_decoded_with(changes, weights=trial)
    read: list[Path] = []

    def average(files: list[Path]) -> None:
        read.extend(files)
        raise NotComparableError("is enough")

    monkeypatch.setattr(retranslation, "average", average)
    if averaged is None:
        assert "averaging" not in [cause.name for cause in again.causes()]
        assert str(why) in again.untested()["averaging"]
        return
    with pytest.raises(NotComparableError, match="is enough"):
        again.texts(["averaging"])
    assert read == [trial / checkpoint_name(step) / "model.safetensors" for step in averaged]


def to_be_decoded_with(changes: dict[str, Any], **of_run: Any) -> retranslation.Retranslation:
    """The run, or one with these attributes, compared with the paper's settings and these."""
    output = run()
    assert output.run is not None
    wanted = {"evaluate": PAPERS | changes}
    changed = dataclasses.replace(output.run, **of_run)
    return retranslation.Retranslation(changed, output.texts, wanted, no_one, no_one)


def no_one(sentences: int) -> None:
    """Hears how many are translated."""


def test_the_real_search_takes_the_settings(
    project: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    own = evaluated(tiny_config, beam=1, average_checkpoints=1, max_extra_tokens=3)
    output = run()
    assert output.run is not None
    wanted = {"evaluate": PAPERS | {"beam": 3, "average_checkpoints": 2, "max_extra_tokens": 5}}
    done = [0, 0]

    def start(sentences: int) -> None:
        done[0] += sentences

    def more(sentences: int) -> None:
        done[1] += sentences

    again = retranslation.Retranslation(output.run, output.texts, wanted, start, more)
    changes = {
        "averaging": {"average_checkpoints": 2},
        "beam": {"beam": 3},
        "cut lengths": {"max_extra_tokens": 5},
    }
    assert [cause.name for cause in again.causes()] == [*changes]
    for names in ((), ("beam",), ("averaging",), ("cut lengths",), (*changes,)):
        values = {key: value for name in names for key, value in changes[name].items()}
        config = dataclasses.replace(own, **values)
        translator = Translator(Path("models/train"), tiny_corpus.vocabulary, config)
        expected = [best[0].text for best in translator.translate(SOURCES)]
        assert [*again.texts(names).hypotheses] == expected
    assert done == [5 * COUNT] * 2


def test_a_wide_run_is_compared_with_the_papers_big_model(
    project: Path, tiny_config: Config
) -> None:
    evaluated(tiny_config)
    output = run()
    assert output.run is not None
    assert papers_row(output.run) == "base"
    wide = {**output.run.config, "model": {**output.run.config["model"], "d_model": 1024}}
    assert papers_row(dataclasses.replace(output.run, config=wide)) == "big"
    assert papers_config("big", "de")["evaluate"]["average_checkpoints"] == 20


@pytest.mark.parametrize(("code", "of_table_2"), [("fr-CA", "fr"), ("FR", "fr"), ("de-AT", "de")])
def test_the_papers_settings_are_found_by_the_language_alone(code: str, of_table_2: str) -> None:
    assert papers_config("big", code) == papers_config("big", of_table_2)
    assert papers_config("big", "fr") != papers_config("big", "de")


def test_a_pair_that_the_paper_has_not_is_refused_before_anything_is_translated(
    project: Path, tiny_config: Config, made_up_model: list[dict[str, Any]]
) -> None:
    evaluated(tiny_config, beam=1)
    german = dataclasses.replace(run(), source="de", target="en")
    with pytest.raises(UserError, match=r"of de-en, but of en-de, en-fr: name another run by"):
        explain(german, PAPER)
    assert made_up_model == []


def test_against_another_run_its_settings_count(
    project: Path,
    tiny_config: Config,
    made_up_model: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluated(tiny_config, beam=1)
    first = run()
    evaluated(tiny_config)
    other = run()
    found = explain(first, other)
    assert [step["cause"] for step in found["steps"]] == ["beam"]
    assert found["against"]["left"] == pytest.approx(0, abs=1e-3)
    assert "effective batch" in found["not_found"]
    assert main(["why", "models/train", "--against", "models/train"]) == 0
    assert "Nothing was found." in capsys.readouterr().out


def test_a_run_without_its_evaluation_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(capsys, "why", "models/train")
    assert error.startswith("seq2sweep why: models/train has no known score: metrics/evaluate.json")
