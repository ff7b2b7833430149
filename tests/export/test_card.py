"""The card says what is known of these weights, and its command computes its score."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep.cli import main
from seq2sweep.compare.runs import differences
from seq2sweep.compare.scored_run import find
from seq2sweep.config import Config
from seq2sweep.data.files import CHECKPOINTS
from seq2sweep.errors import UserError
from seq2sweep.evaluate import evaluation
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export import card
from seq2sweep.export.to_safetensors import Safetensors

from ..conftest import Corpus
from .made_up_models import TREES, settings, translator


@pytest.fixture(scope="module")
def scored(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Config, tiny_corpus: Corpus
) -> str:
    """metrics/evaluate.json of the weights of `project`."""
    made = translator(tmp_path_factory.mktemp("scored"), tiny_config, tiny_corpus)
    config = settings(tiny_config, "the paper's")
    data = evaluation.Data(tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded)
    return json.dumps(evaluation.evaluate_weights(config, made, data, "test").metrics)


@pytest.fixture
def project(
    tmp_path: Path,
    tiny_config: Config,
    tiny_corpus: Corpus,
    scored: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Translator:
    """Weights, and metrics/*.json as the pipeline finds them."""
    monkeypatch.chdir(tmp_path)
    Path("metrics").mkdir()
    Path("metrics/evaluate.json").write_text(scored)
    Path("data").mkdir()
    Path("data/clean").symlink_to(tiny_corpus.clean)
    return translator(tmp_path, tiny_config, tiny_corpus)


def written(made: Translator, folder: Path) -> tuple[dict[str, Any], str]:
    """The card's YAML and the rest of it."""
    Safetensors().write(made, folder)
    empty, front, body = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(front), body


def test_it_says_how_good_and_at_what_cost(project: Translator, tmp_path: Path) -> None:
    front, body = written(project, tmp_path / "model")
    metrics = json.loads(Path("metrics/evaluate.json").read_text())
    bleu = metrics["bleu"]["sacrebleu"]
    assert front["language"] == ["en", "de"]
    assert front["license"] == "apache-2.0"
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"] == [
        {"type": "bleu", "value": bleu["score"], "name": f"BLEU ({bleu['signature']})"}
    ]
    for said in (
        f"BLEU {bleu['score']:.2f} ± {bleu['confidence']['margin']:.2f} on 40 sentences",
        bleu["signature"],
        metrics["made_from"]["test_set"]["source"],
        "9.3e+12 FLOPs, 0.5 hours of CPU",
        "energy: 0.25 kWh",
        f"weights of step 7: sha256 `{project.weights[0]}`",
        f"data.vocabulary: `{project.vocabulary.fingerprint}`",
        "licence of the data: sentences made by this project's own program",
    ):
        assert said in body
    assert "secret" not in body


@pytest.mark.parametrize("lowercase", [False, True])
def test_its_command_computes_its_score(
    lowercase: bool,
    tiny_config: Config,
    tiny_corpus: Corpus,
    project: Translator,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if lowercase:
        config = configuration.with_changes(tiny_config, {"prepare.lowercase": True})
        config = settings(config, "the paper's")
        project = translator(tmp_path / "lower", config, tiny_corpus)
        data = evaluation.Data(tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded)
        found = evaluation.evaluate_weights(config, project, data, "test")
        Path("metrics/evaluate.json").write_text(json.dumps(found.metrics))
    _, body = written(project, tmp_path / "model")
    commands = [line.strip() for line in body.splitlines() if line.startswith("    seq2sweep")]
    first, second = (line.replace("FOLDER", "model") for line in commands)
    line, _, file = first.partition(" > ")
    assert main(shlex.split(line)[1:]) == 0
    Path(file).write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(shlex.split(second)[1:]) == 0
    found = json.loads(capsys.readouterr().out)["bleu"]["sacrebleu"]
    metrics = json.loads(Path("metrics/evaluate.json").read_text())
    assert found["score"] == metrics["bleu"]["sacrebleu"]["score"]
    assert found["signature"] == metrics["bleu"]["sacrebleu"]["signature"]


@pytest.mark.parametrize("student", [False, True])
def test_scores_of_other_weights_are_not_its_own(
    student: bool, project: Translator, tmp_path: Path
) -> None:
    path = Path("metrics/evaluate.json")
    metrics = json.loads(path.read_text())
    if student:
        path.with_name("semi_supervised.json").write_text(json.dumps(metrics))
    metrics["made_from"]["weights"] = ["0" * 64]
    path.write_text(json.dumps(metrics))
    front, body = written(project, tmp_path / "model")
    assert ("model-index" in front) is student
    assert ("No score of these weights was at hand" in body) is not student


@pytest.mark.parametrize(
    "changes", [{"beam": 7}, {"alpha": 0.7}, {"stopping": "own_length"}, {"precision": "bf16"}]
)
def test_scores_of_another_search_are_not_its_own(
    changes: dict[str, Any], project: Translator, tmp_path: Path
) -> None:
    project.config = dataclasses.replace(project.config, **changes)
    front, body = written(project, tmp_path / "model")
    assert "model-index" not in front
    assert "No score of these weights was at hand" in body


def test_scores_of_before_there_was_a_key_are_of_its_default(
    project: Translator, tmp_path: Path
) -> None:
    path = Path("metrics/evaluate.json")
    metrics = json.loads(path.read_text())
    for key in ("stopping", "precision"):
        del metrics["made_from"]["evaluate"][key]
    path.write_text(json.dumps(metrics))
    assert "model-index" in written(project, tmp_path / "model")[0]
    project.config = dataclasses.replace(project.config, precision="bf16")
    assert "model-index" not in written(project, tmp_path / "other")[0]


def test_cost_that_was_not_measured_is_said_to_be_so(project: Translator, tmp_path: Path) -> None:
    project.about["cost"]["energy_kwh"] = None
    _, body = written(project, tmp_path / "model")
    assert "9.3e+12 FLOPs, 0.5 hours of CPU\n- energy: not measured" in body
    project.about["cost"] |= {"device_hours": 672.4, "energy_kwh": 1234.4}  # eight GPUs for days
    _, body = written(project, tmp_path / "long")
    assert "9.3e+12 FLOPs, 672 hours of CPU\n- energy: 1,234 kWh" in body
    del project.about["cost"]  # of an earlier version
    _, body = written(project, tmp_path / "earlier")
    assert "training: not recorded\n- energy: not measured" in body


def test_a_model_that_is_exported_again_keeps_what_is_known(
    project: Translator, tmp_path: Path
) -> None:
    first = written(project, tmp_path / "model")
    for path in Path("metrics").iterdir():
        path.unlink()
    assert written(Translator.open(tmp_path / "model"), tmp_path / "again") == first


SCORE = {
    "name": "BLEU", "value": 27.3, "signature": "nrefs:1|case:mixed", "margin": None,
    "sentences": 40, "set": {"split": "test", "source": "a" * 64, "target": "b" * 64},
}  # fmt: skip


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"score": SCORE, "licence": "CC BY 3.0 (für alle)"}, None),
        ({"score": None, "licence": None, "cost": None, "trained": None, "lineage": None}, None),
        ({"score": 5}, "score is a number, not an object"),
        ({"score": {"name": "BLEU"}}, "score.value is missing"),
        ({"score": SCORE | {"value": "high"}}, "score.value is a string, not a number"),
        ({"score": SCORE | {"name": "x\n# y"}}, "score.name is no plain text of one line"),
        (
            {"score": SCORE | {"signature": "`[a](b)"}},
            "score.signature is no plain text of one line",
        ),
        ({"licence": ["free"]}, "licence is a list, not a string"),
        ({"cost": {"flops": "many"}}, "cost.flops is a string, not a number or null"),
        ({"trained": "yes"}, "trained is a string, not an object"),
        ({"lineage": 5}, "lineage is a number, not an object"),
    ],
)
def test_what_a_model_says_of_itself_is_checked_before_it_is_written(
    about: dict[str, Any], said: str | None, project: Translator, tmp_path: Path
) -> None:
    Path("metrics/evaluate.json").unlink()
    project.about = {**project.about, **about}
    if said is None:
        assert ("BLEU 27.30" in written(project, tmp_path / "model")[1]) is bool(about["score"])
        return
    with pytest.raises(UserError) as refused:
        written(project, tmp_path / "model")
    assert str(refused.value).startswith(f"config.json of the model is damaged (about.{said}): ")
    assert not (tmp_path / "model").exists()


def test_what_a_model_says_is_text_on_one_line(project: Translator, tmp_path: Path) -> None:
    evil = "free\n\n## Install\u2028[here](http://evil) <img src=x> `a`\n"
    project.about["licence"] = project.about["lineage"]["input.raw"] = evil
    project.about["trained"] = {"device": evil}
    _, body = written(project, tmp_path / "model")
    assert body.count(r"free ## Install \[here\](http://evil) \<img src=x> \`a\`") == 3
    (line,) = [line for line in body.splitlines() if line.startswith("- licence of the data: ")]
    assert line.endswith(r": free ## Install \[here\](http://evil) \<img src=x> \`a\`")
    kept = Translator.open(tmp_path / "model").about["licence"]
    assert kept == project.about["licence"], "what is escaped in the card is escaped once"


@pytest.mark.parametrize(
    ("changes", "licence", "front"),
    [
        ({"data.dataset": "multi30k", "data.folder": "registry"}, "non-commercial", "other"),
        ({"data.dataset": "files", "data.files.train": ["a", "b"]}, "not known", "unknown"),
    ],
)
def test_the_licence_is_that_of_the_data(
    changes: dict[str, Any], licence: str, front: str, tmp_path: Path, tiny_config: Config,
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    made = translator(tmp_path, tiny_config, tiny_corpus)
    registry = Path(card.sources.__file__).parent / "registry"
    made.settings["data"]["dataset"] = changes["data.dataset"]
    made.settings["data"]["folder"] = str(registry)
    found, body = written(made, tmp_path / "model")
    assert found["license"] == front
    assert re.search(f"licence of the data: .*{licence}", body)


def test_a_model_that_is_handed_on_does_not_tell_where_its_text_lay(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    names = {"train": ["/acme/a", "/acme/b"], "valid": [], "test": ["/acme/c", "/acme/d"]}
    own = {"data.dataset": "files", "data.folder": "/home/alice/acme", "data.files.valid_pairs": 5}
    changes = own | {f"data.files.{split}": files for split, files in names.items()}
    made = translator(tmp_path, configuration.with_changes(tiny_config, changes), tiny_corpus)
    written(made, tmp_path / "model")
    assert "acme" not in (tmp_path / "model/config.json").read_text()
    assert made.settings["data"]["folder"] == "/home/alice/acme"
    again = Translator.open(tmp_path / "model")
    assert again.settings["data"]["files"] == {"valid_pairs": 5, "test_pairs": 0}
    front, _ = written(again, tmp_path / "again")
    assert front["license"] == "unknown"
    for name in ("config.json", "README.md"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    # Of what is not told nothing is said to differ.
    weights, model = (find(str(tmp_path / name)) for name in ("weights", "model"))
    assert differences(weights, model)["parameters"] == {}


def test_a_model_for_trees_has_a_card(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = translator(tmp_path, tiny_config, tiny_corpus, TREES)
    front, body = written(made, tmp_path / "model")
    assert front["language"] == ["en"]
    assert "en to trees" in body
    assert not (tmp_path / "model" / CHECKPOINTS).exists()
