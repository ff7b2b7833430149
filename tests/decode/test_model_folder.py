"""A model in one folder: whole, or refused in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.data.vocabulary import JSON_NAME, MODEL_NAME, Vocabulary
from seq2sweep.decode import model_folder
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.storage.atomic import sha256

from ..conftest import Corpus
from ..export.made_up_models import KINDS, translator
from ..refusal import refusal

LINES = ["alpha beta gamma", "", "rot grün gelb alpha", "delta"]


@pytest.fixture
def folder(tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus) -> Path:
    translator(tmp_path, tiny_config, tiny_corpus).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_the_weights_said_that_it_is_from(
    kind: str, tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    before = translator(tmp_path, tiny_config, tiny_corpus, kind)
    said = before.translate(LINES, 2)
    before.save(tmp_path / "model", {"bleu": 3.5})
    for other in ("weights", "vocabulary"):
        shutil.rmtree(tmp_path / other)
    shutil.move(tmp_path / "model", tmp_path / "moved")
    after = Translator.open(tmp_path / "moved")
    assert after.translate(LINES, 2) == said
    for name, parameter in before.model.named_parameters():
        assert torch.equal(after.model.get_parameter(name), parameter)
    assert (after.config, after.steps, after.weights) == (before.config, (7,), before.weights)
    assert (after.about["run"], after.about["bleu"]) == ("train-7", 3.5)
    assert "secret" not in (tmp_path / "moved" / "config.json").read_text()


def test_it_searches_as_it_was_set_to_or_as_it_is_told(folder: Path) -> None:
    kept = Translator.open(folder).config
    assert kept.max_extra_tokens == 6
    other = dataclasses.replace(kept, beam=1)
    assert Translator.open(folder, other).config == other


def test_one_that_was_opened_is_saved_as_it_was(folder: Path) -> None:
    Translator.open(folder).save(folder.with_name("again"))
    for file in folder.iterdir():
        assert file.read_bytes() == (folder.parent / "again" / file.name).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", MODEL_NAME, "symbols.json"])
def test_a_file_that_differs_is_refused(folder: Path, name: str) -> None:
    before = (folder / name).read_bytes() if name != "symbols.json" else b"{}"
    (folder / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(UserError, match=rf"{name} is not the file that manifest\.json .* again"):
        Translator.open(folder)
    (folder / name).unlink()
    if name != "symbols.json":
        with pytest.raises(UserError, match=rf"{name} is missing: export the model again"):
            Translator.open(folder)
    os.mkfifo(folder / name)  # it would be read for ever
    with pytest.raises(UserError, match="a named pipe, not a file"):
        Translator.open(folder)


def test_a_card_may_be_edited(folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    Translator.open(folder)


def wrong_manifests(sums: dict[str, str]) -> dict[str, Any]:
    return {
        "is missing: is ": None,
        "it is no JSON": "{",
        "it is a list, not an object": [],
        "sha256 is missing": {"format": 1},
        "of format 2, and this program reads 1": {"format": 2, "sha256": sums},
        "lists '../x', which no model has": {"format": 1, "sha256": {**sums, "../x": "0"}},
        "differs": {"format": 1, "sha256": sums | {"model.safetensors": 3}},
    }


@pytest.mark.parametrize("problem", [*wrong_manifests({})])
def test_a_wrong_manifest_is_one_line(folder: Path, problem: str) -> None:
    path = folder / "manifest.json"
    content = wrong_manifests(json.loads(path.read_text())["sha256"])[problem]
    path.unlink()
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError) as refused:
        Translator.open(folder)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("d_model", 64, r"the model has [\d,]+ parameters, its weights [\d,]+"),
        ("layers", 10**12, "parameters, its weights"),  # before anything of it is built
        ("heads", "2", "heads must be a whole number"),
        ("color", 1, "unknown key model.color"),
        ("norm", "pre", "parameters, its weights"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    folder: Path, key: str, value: object, problem: str
) -> None:
    held = json.loads((folder / "config.json").read_text())
    held["config"]["model"][key] = value
    (folder / "config.json").write_text(json.dumps(held))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["config.json"] = sha256(folder / "config.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=f"of another version of this program .*{problem}"):
        Translator.open(folder)


def test_sections_that_lack_are_not_written(
    tmp_path: Path, tiny_config: Config, tiny_corpus: Corpus
) -> None:
    vocabulary = Vocabulary.open(tiny_corpus.vocabulary)
    with pytest.raises(ValueError, match="config has no section data"):
        model_folder.write_model_folder(tmp_path, {}, vocabulary, {}, {})


def test_the_command_needs_nothing_else(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("lines").write_text("\n".join(LINES) + "\n")
    said = [best[0].text for best in Translator.open(folder).translate(LINES)]
    assert main(["translate", "lines", "--model", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == said
    (folder / JSON_NAME).write_text("{}")
    error = refusal(capsys, "translate", "lines", "--model", str(folder))
    assert "vocabulary.json is not the file" in error


def test_a_name_of_no_model_is_told_before_mlflow_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("a\n")
    for name in ("my-modle", "lines", "b9c"):
        assert main(["translate", "lines", "--model", name]) == 2
        assert f"--model {name}: there is no such folder" in capsys.readouterr().err
    for option in ("--weights", "--vocabulary"):
        assert main(["translate", "lines", option, "lines"]) == 2
        assert f"{option} lines: there is no such folder" in capsys.readouterr().err
