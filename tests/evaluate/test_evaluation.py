"""What is scored belongs together, to the byte; and every score is that of the files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import CHECKPOINTS, PHENOMENA, RECEIPT, write_header, write_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import EXIT_FAILURE, EXIT_USER_ERROR, OperationalError, UserError
from seq2sweep.evaluate import bleu, evaluation
from seq2sweep.evaluate.evaluation import (
    Data,
    evaluate,
    evaluate_weights,
    shown,
    shown_by_dvc,
)
from seq2sweep.evaluate.task import TASKS
from seq2sweep.evaluate.translations_table import table_rows, translations_table
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model import building
from seq2sweep.storage.atomic import sha256
from seq2sweep.train import loop
from seq2sweep.train.events import CheckpointDue
from seq2sweep.train.validation import negative_log_likelihood
from tests.conftest import Corpus, write_encoded
from tests.recompute import averaged, perplexity


def copied(corpus: Corpus, folder: Path) -> Data:
    for each in (corpus.clean, corpus.vocabulary, corpus.encoded):
        shutil.copytree(each, folder / each.name)
    return Data(folder / "clean", folder / "vocabulary", folder / "encoded")


@pytest.fixture
def data(tiny_corpus: Corpus, tmp_path: Path) -> Data:
    return copied(tiny_corpus, tmp_path)


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


# --- every figure --------------------------------------------------------------------------------

STEPS = (30, 60, 90)
WEIGHTS = Path("models/train")
DATA = Data(Path("data/clean"), Path("data/vocabulary"), Path("data/encoded"))


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    """All that evaluation reads away from its default."""
    return configuration.with_changes(
        tiny_config,
        {
            "evaluate.beam": 3,
            "evaluate.alpha": 1.7,
            "evaluate.length_penalty": "power",
            "evaluate.average_checkpoints": 2,
            "evaluate.max_extra_tokens": 7,
            "prepare.lowercase": True,
            "train.tokens_per_pass": 60,
        },
    )


@pytest.fixture(scope="module")
def trained(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Three checkpoints as training writes them, when it has learned how long a sentence is."""
    folder = tmp_path_factory.mktemp("trained")
    longer = configuration.with_changes(tiny_config, {"train.steps": 90} | dict.fromkeys(
        ("train.validate_every", "train.checkpoint_every"), 30))  # fmt: skip
    for due in loop.train(longer, tiny_corpus.encoded, device=torch.device("cpu")):
        if isinstance(due, CheckpointDue):
            due.capture().write(folder / str(due.step))
    return folder


def write_weights(config: Config, trained: Path) -> None:
    (WEIGHTS / CHECKPOINTS).mkdir(parents=True)
    entries = []
    for step in STEPS:
        file = WEIGHTS / CHECKPOINTS / f"{step}.safetensors"
        shutil.copy(trained / str(step) / "model.safetensors", file)
        entries.append({"step": step, "file": file.name, "sha256": sha256(file), "valid_loss": 1.0})
    values = configuration.to_dict(config)
    sections = ("data", "prepare", "vocabulary", "model", "train")
    receipt = {
        "checkpoints": entries,
        "config": {section: values[section] for section in sections},
        "lineage": {"data.vocabulary": Vocabulary.open(DATA.vocabulary).fingerprint},
    }
    (WEIGHTS / RECEIPT).write_text(json.dumps(receipt))


@pytest.fixture(scope="module")
def evaluated(
    config: Config,
    tiny_corpus: Corpus,
    trained: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A project with all that the stage `evaluate` leaves.

    Every other reference is what the model says, so that scores are above zero.
    """
    project = tmp_path_factory.mktemp("project")
    copied(tiny_corpus, project / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SACREBLEU_SEED", raising=False)
        patch.chdir(project)
        Path("params.yaml").write_text(configuration.dump(config))
        write_weights(config, trained)
        write_evaluation(config)
    return project


@pytest.fixture
def metrics(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The current folder is a copy of the project; what its metrics/evaluate.json says."""
    monkeypatch.chdir(shutil.copytree(evaluated, tmp_path / "project"))
    found: dict[str, Any] = json.loads(Path("metrics/evaluate.json").read_text())
    del found["mlflow_run_id"]
    return found


def write_evaluation(config: Config) -> None:
    translator = Translator(WEIGHTS, DATA.vocabulary, config.evaluate)
    said = evaluate(config, translator.model, DATA, "test").translations
    sources = DATA.lines("test", "source")
    pairs = enumerate(zip(said, sources, strict=True))
    mixed = [own if i % 2 else source for i, (own, source) in pairs]  # of another case
    write_lines(DATA.clean / "test.target.txt", mixed)
    write_lines(DATA.clean / PHENOMENA, ["long even" if i % 2 else "" for i in range(len(mixed))])
    write_header(DATA.clean, "test", len(mixed))
    write_encoded(DATA.encoded, "test", sources, mixed, Vocabulary.open(DATA.vocabulary))
    found = evaluate_weights(config, translator, DATA, "test")
    store(found.metrics, found.table)


def store(metrics: dict[str, Any], table: str | None = None) -> None:
    for folder in ("metrics/dvc", "reports"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    all_of_them = metrics | {"mlflow_run_id": "of no file"}
    Path("metrics/evaluate.json").write_text(json.dumps(all_of_them))
    few = shown_by_dvc(metrics, configuration.load(Path("params.yaml")))
    Path("metrics/dvc/evaluate.json").write_text(json.dumps(few))
    if table is not None:
        Path("reports/translations.tsv").write_text(table)


def rows() -> list[list[str]]:
    text = Path("reports/translations.tsv").read_text()
    return [line.split("\t") for line in text.splitlines()[1:]]


def test_where_training_found_its_tokens_a_pass_they_are_those_of_the_perplexity(
    metrics: dict[str, Any], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noting(*given: Any, tokens_per_pass: int, **how: Any) -> tuple[float, int]:
        asked.append(tokens_per_pass)
        return negative_log_likelihood(*given, tokens_per_pass=tokens_per_pass, **how)

    monkeypatch.setattr(evaluation, "negative_log_likelihood", noting)
    auto = configuration.with_changes(config, {"train.tokens_per_pass": "auto"})
    translator = Translator(WEIGHTS, DATA.vocabulary, config.evaluate)
    translator.about["trained"] = {"tokens_per_pass": 70}
    found = [evaluate_weights(each, translator, DATA, "test") for each in (auto, auto.sized(70))]
    assert asked == [70, 70]
    assert found[0].metrics["perplexity"] == found[1].metrics["perplexity"]


def test_every_score_is_that_of_the_stored_translations(metrics: dict[str, Any]) -> None:
    sources, references, translations, tags = zip(*rows(), strict=True)
    assert list(sources) == DATA.lines("test", "source")
    assert list(references) == DATA.lines("test", "target")
    bleu = sacrebleu.corpus_bleu(translations, [references], lowercase=True)
    assert metrics["bleu"]["sacrebleu"]["score"] == pytest.approx(bleu.score, abs=6e-5)
    assert 1 < bleu.score < 99
    lowered = ([line.lower() for line in lines] for lines in (translations, references))
    chrf = sacrebleu.corpus_chrf(next(lowered), [next(lowered)])
    assert metrics["chrf"]["score"] == pytest.approx(chrf.score, abs=6e-5)
    exact = [t.lower() == r.lower() for t, r in zip(translations, references, strict=True)]
    assert metrics["exact_match"] == pytest.approx(100 * sum(exact) / len(exact))
    assert set(tags) == {"", "long even"}
    assert metrics["phenomena"].keys() == {"long", "even"}
    assert metrics["phenomena"]["long"]["sentences"] == len(rows()) // 2
    assert metrics["phenomena"]["long"]["exact_match"] == 100


def test_scores_by_length_are_those_of_the_stored_translations(metrics: dict[str, Any]) -> None:
    _, references, translations, _ = zip(*rows(), strict=True)
    lengths = Bitext.open(DATA.encoded, "test").source_lengths.tolist()
    assert sum(one["sentences"] for one in metrics["by_length"]) == len(lengths)
    assert len(metrics["by_length"]) > 2
    for one in metrics["by_length"]:
        places = [i for i, n in enumerate(lengths) if one["shortest"] <= n <= one["longest"]]
        some, wanted = ([texts[i] for i in places] for texts in (translations, references))
        bleu = sacrebleu.corpus_bleu(some, [wanted], lowercase=True)
        assert one["sentences"] == len(places)
        assert one["bleu"] == pytest.approx(bleu.score, abs=6e-5)


def test_perplexity_and_speed_are_those_of_the_averaged_weights(
    metrics: dict[str, Any], config: Config
) -> None:
    assert metrics["averaged_checkpoints"] == [60, 90]
    files = [WEIGHTS / CHECKPOINTS / f"{step}.safetensors" for step in (60, 90)]
    vocabulary = Vocabulary.open(DATA.vocabulary)
    model = averaged(config.model, files, len(vocabulary))
    known = perplexity(model, Bitext.open(DATA.encoded, "test"))
    assert metrics["perplexity"] == pytest.approx(known, rel=1e-5)
    translated = sum(len(line) for line in vocabulary.encode([row[2] for row in rows()]))
    assert metrics["decode_tokens_per_second"] * metrics["decode_seconds"] == (
        pytest.approx(translated, rel=1e-9)
    )


def test_what_was_evaluated_is_known_by_its_sums(metrics: dict[str, Any], config: Config) -> None:
    files = [WEIGHTS / CHECKPOINTS / f"{step}.safetensors" for step in (60, 90)]
    assert metrics["made_from"] == {
        "weights": [sha256(file) for file in files],
        "translations": sha256(Path("reports/translations.tsv")),
        "test_set": {
            "split": "test",
            "source": sha256(DATA.clean / "test.source.txt"),
            "target": sha256(DATA.clean / "test.target.txt"),
        },
        "evaluate": configuration.to_dict(config)["evaluate"],
    }


def test_what_mlflow_shows_has_the_right_names(config: Config) -> None:
    metrics = {
        "bleu": {"sacrebleu": {"score": 1.0}, "paper": {"score": 2.0}, "tokenised": {"score": 3.0}},
        "chrf": {"score": 4.0},
        "exact_match": 5.0,
        "perplexity": 6.0,
        "decode_tokens_per_second": 7.0,
        "decode_seconds": 8.0,
    }
    assert shown(metrics, config) == {
        "bleu": 1.0,
        "bleu_paper": 2.0,
        "chrf": 4.0,
        "exact_match": 5.0,
        "test_perplexity": 6.0,
        "decode_tokens_per_second": 7.0,
    }


def test_a_project_is_what_its_files_say(
    metrics: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def speaking(*given: Any, **more: Any) -> Any:
        console.say("the fused loss does not work on this GPU")
        return negative_log_likelihood(*given, **more)

    monkeypatch.setattr(evaluation, "negative_log_likelihood", speaking)
    # Settings of another experiment meanwhile.
    other = configuration.with_changes(
        configuration.load(Path("params.yaml")), {"evaluate.beam": 1, "train.tokens_per_pass": 500}
    )
    # One whose other sections do not go with these weights.
    trees: dict[str, Any] = {"data.target": "trees", "self_training.sentences": 5}
    trees |= {"sweep.method": "optuna", "sweep.objectives": ["f1"], "model.tie_embeddings": False}
    trees |= {"model.target_symbols": 64}
    trees |= {"sweep.space": {"model.dropout": [0.0, 0.1]}, "sweep.scheduler": "none"}
    other = configuration.with_changes(other, trees)
    Path("params.yaml").write_text(configuration.dump(other))
    assert main(["evaluate", "--check"]) == 0
    told = capsys.readouterr().out
    count, of = told.split()[0], told.split()[2]
    assert (count, told.splitlines()) == (of, [f"{of} of {of} metrics are those of the files"])
    assert int(of) > 30
    assert main(["evaluate"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for key in ("bleu", "chrf", "perplexity", "phenomena", "made_from", "averaged_checkpoints"):
        assert printed[key] == metrics[key]


@pytest.mark.usefixtures("metrics")
def test_a_file_that_is_missing_is_told_before_anything_is_translated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the scores themselves need none of what they are compared with."""
    Path("reports/translations.tsv").unlink()
    Path("metrics/dvc/evaluate.json").unlink()
    assert main(["evaluate"]) == 0
    assert "bleu" in json.loads(capsys.readouterr().out)
    monkeypatch.setattr("seq2sweep.evaluate.check.Translator", pytest.fail)
    assert main(["evaluate", "--check"]) == EXIT_USER_ERROR
    assert "reports/translations.tsv is missing: run `dvc repro ev" in capsys.readouterr().err


@pytest.mark.usefixtures("metrics")
def test_a_seed_that_is_none_is_told_before_anything_is_translated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    monkeypatch.setattr("seq2sweep.evaluate.evaluation.negative_log_likelihood", pytest.fail)
    assert main(["evaluate"]) == EXIT_USER_ERROR
    assert "SACREBLEU_SEED=abc: unset it" in capsys.readouterr().err


def set_at(metrics: dict[str, Any], key: str, value: object) -> None:
    *path, last = key.split(".")
    for part in path:
        metrics = metrics[part]
    metrics[last] = value


def test_figures_that_are_not_those_of_the_files_are_named_and_no_others(
    metrics: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    bleu, paper = (metrics["bleu"][way]["score"] for way in ("sacrebleu", "paper"))
    wrong = {
        "chrf.score": bleu,
        "bleu.paper.score": paper + 0.01,
        "bleu.sacrebleu.score": bleu - 0.01,
        "bleu.sacrebleu.signature": "nrefs:1|case:mixed",
        "perplexity": metrics["perplexity"] * 1.0001,
        "decode_tokens_per_second": 2 * metrics["decode_tokens_per_second"],
        "exact_match": 50.1,
        "phenomena.even.bleu": 12.0,
        "averaged_checkpoints": [90],
        "sentences": 41,
        "alpha": 0.6,
    }
    for key, value in wrong.items():
        set_at(metrics, key, value)
    store(metrics)
    assert main(["evaluate", "--check"]) == EXIT_FAILURE
    told = capsys.readouterr()
    assert "metrics differ: run `dvc repro -f evaluate`" in told.err
    named = re.findall(r"^metrics/evaluate\.json: (\S+) is ", told.out, re.MULTILINE)
    assert sorted(named) == sorted(wrong)


@pytest.mark.parametrize("value", [99.5, None])
def test_a_figure_that_dvc_alone_shows_wrong_or_not_at_all_is_named(
    metrics: dict[str, Any], capsys: pytest.CaptureFixture[str], value: float | None
) -> None:
    """value: None is a file without the figure."""
    path = Path("metrics/dvc/evaluate.json")
    few = json.loads(path.read_text())
    right = few.pop("bleu")
    path.write_text(json.dumps(few if value is None else few | {"bleu": value}))
    assert main(["evaluate", "--check"]) == EXIT_FAILURE
    differ = capsys.readouterr().out.splitlines()[:-1]
    assert differ == [f"{path}: bleu is {value}, but {right} by the files"]


@pytest.mark.parametrize(
    ("key", "shown", "default"),
    [("stopping", "stopping", "exact"), ("precision", "search_precision", "float32")],
)
def test_scores_from_before_there_was_a_key_are_of_its_default(
    metrics: dict[str, Any], key: str, shown: str, default: str
) -> None:
    assert metrics.pop(shown) == metrics["made_from"]["evaluate"].pop(key) == default
    store(metrics)
    assert main(["evaluate", "--check"]) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluate.beam": 1},
        {"evaluate.alpha": 0.0},
        {"evaluate.length_penalty": "paper"},
        {"evaluate.average_checkpoints": 1},
        {"evaluate.max_extra_tokens": 2},
    ],
)
def test_each_setting_is_used(
    metrics: dict[str, Any], config: Config, changes: dict[str, Any]
) -> None:
    other = configuration.with_changes(config, changes)
    translator = Translator(WEIGHTS, DATA.vocabulary, other.evaluate)
    found = evaluate_weights(other, translator, DATA, "test")
    assert found.table != Path("reports/translations.tsv").read_text()


def test_edited_translations_are_named(
    metrics: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("reports/translations.tsv")
    path.write_text(path.read_text().replace("\tlong even", "\tlong", 1))
    assert main(["evaluate", "--check"]) == EXIT_FAILURE
    assert "reports/translations.tsv: sha256 is " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("split", 3, "metrics/evaluate.json: split is a number, not a string"),
        ("split", "dev", "data/encoded/dev.json is missing"),
        ("decode_seconds", "1", "metrics/evaluate.json: decode_seconds is a string, not a number"),
        ("made_from.evaluate", None, "made_from.evaluate is null, not an object"),
        ("made_from.evaluate.beam", 0, "metrics/evaluate.json, models/train/receipt.json"),
    ],
)
def test_damaged_metrics_are_one_line(
    metrics: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    key: str,
    value: object,
    problem: str,
) -> None:
    set_at(metrics, key, value)
    Path("metrics/evaluate.json").write_text(json.dumps(metrics))
    assert main(["evaluate", "--check"]) == EXIT_USER_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


# --- phenomena ------------------------------------------------------------------------------------

REFERENCES = [
    "der Mann liest heute ein Buch .",
    "die Frau liest heute kein Buch .",
    "wir sehen den alten Hund nicht .",
]
HYPOTHESES = [REFERENCES[0], "die Frau liest heute ein Buch .", REFERENCES[2]]
TAGS = [["article"], ["negation", "article"], ["negation", "accusative", "negation"]]


def test_each_sentence_counts_once_under_each_of_its_tags() -> None:
    result = TASKS["translation"].by_phenomenon(HYPOTHESES, REFERENCES, TAGS)
    assert list(result) == ["accusative", "article", "negation"]
    assert {tag: (v["sentences"], v["exact_match"]) for tag, v in result.items()} == {
        "accusative": (1, 100.0),
        "article": (2, 50.0),
        "negation": (2, 50.0),
    }


def test_bleu_is_over_the_tagged_sentences_alone() -> None:
    result = TASKS["translation"].by_phenomenon(HYPOTHESES, REFERENCES, TAGS)
    assert result["accusative"]["bleu"] == 100.0
    expected = bleu.score(HYPOTHESES[1:], REFERENCES[1:], "de")["bleu"]["sacrebleu"]["score"]
    assert result["negation"]["bleu"] == expected < 100


def test_a_sentence_without_tags_counts_nowhere() -> None:
    result = TASKS["translation"].by_phenomenon(HYPOTHESES, REFERENCES, [[], [], ["order"]])
    assert result == {"order": {"sentences": 1, "exact_match": 100.0, "bleu": 100.0}}
    assert TASKS["translation"].by_phenomenon(HYPOTHESES, REFERENCES, [[], [], []]) == {}


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        TASKS["translation"].by_phenomenon(HYPOTHESES, REFERENCES, TAGS[:2])


def test_a_row_of_the_table_ends_at_its_line_feed_alone() -> None:
    odd = [f"one{space}two" for space in "\u2028\u0085\x0b\x0c\x1c\r"]
    written = translations_table(odd, odd, odd, None)
    assert table_rows(written)[1:] == [[text, text, text, ""] for text in odd]


# --- sentences that are longer than the model's positions -----------------------------------------


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_sentence_beyond_the_positions_is_named_before_any_is_decoded(
    tiny_config: Config, data: Data, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    bitext = Bitext.open(data.encoded, "test")
    sides = {"source": bitext.source_lengths, "target": bitext.target_lengths}
    longest = max(int(lengths.max()) for lengths in sides.values())
    lines = {name: data.lines("test", name) for name in sides}
    # Twice as long as the longest of both sides.
    lines[side][7] = " ".join(2 * longest * ["x"])
    for name in sides:
        write_lines(data.clean / f"test.{name}.txt", lines[name])
    write_header(data.clean, "test", len(bitext))
    write_encoded(data.encoded, "test", *lines.values(), Vocabulary.open(data.vocabulary))
    model = building.build(tiny_config.model, len(Vocabulary.open(data.vocabulary))).eval()
    monkeypatch.setattr(TASKS["translation"], "decode", lambda *_: pytest.fail("it was decoded"))
    monkeypatch.setattr(type(model), "max_length", longest)
    message = rf"^line 8 of the test set has \d+ tokens as {side}, and the .* are for {longest}: "
    with pytest.raises(UserError, match=message):
        evaluate(tiny_config, model, data, "test")


def test_a_line_that_memory_is_refused_for_is_named_before_any_is_decoded(
    tiny_config: Config, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    bitext = Bitext.open(data.encoded, "test")
    pairs = zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True)
    longest = [*map(max, pairs)]
    line = longest.index(max(longest)) + 1

    def refused(*given: Any, **how: Any) -> tuple[float, int]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    monkeypatch.setattr(evaluation, "negative_log_likelihood", refused)
    monkeypatch.setattr(TASKS["translation"], "decode", lambda *_: pytest.fail("it was decoded"))
    model = building.build(tiny_config.model, len(Vocabulary.open(data.vocabulary))).eval()
    for tokens, what in (
        (max(longest), f"passes have {max(longest)} tokens, as in training: evaluate where more "),
        (max(longest) - 1, f"line {line} of the test set has {max(longest)} tokens: split it "),
    ):
        config = configuration.with_changes(tiny_config, {"train.tokens_per_pass": tokens})
        with pytest.raises(OperationalError, match=rf"^out of memory \(.*\): {what}"):
            evaluate(config, model, data, "test")
