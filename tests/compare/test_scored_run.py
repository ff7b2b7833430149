"""`seq2sweep compare` of two folders of weights: what made them differ, and what they scored."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.cli import main
from seq2sweep.compare.runs import differences
from seq2sweep.compare.scored_run import find
from seq2sweep.config import Config
from seq2sweep.errors import UserError

from ..conftest import Corpus
from ..export import made_up_models
from ..refusal import refusal

CONFIG = configuration.to_dict(presets.load("phrasebook").config)
RECEIPT = {
    "run": "train-0123456789ab",
    "checkpoints": [{"step": 800, "file": "step-00000800.safetensors", "sha256": "0" * 64}],
    "config": {section: CONFIG[section] for section in ("data", "vocabulary", "model", "train")},
    "lineage": {
        "git.commit": "a" * 40,
        "git.dirty": "false",
        "data.dataset": "1" * 64,
        "data.vocabulary": "2" * 64,
        "input.raw": "3" * 32,
        "host": "here",
        "version.torch": "2.13.0",
    },
}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders, first and second, with the same receipt."""
    monkeypatch.chdir(tmp_path)
    write("first", RECEIPT)
    write("second", RECEIPT)
    return tmp_path


def write(folder: str, receipt: Any) -> None:
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / "receipt.json").write_text(json.dumps(receipt), encoding="utf-8")


def changed(**lineage: str) -> dict[str, Any]:
    receipt = copy.deepcopy(RECEIPT)
    receipt["lineage"] |= {key.replace("__", "."): value for key, value in lineage.items()}  # type: ignore[operator]
    return receipt


def found(capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["compare", "first", "second", "--json"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    result = json.loads(out)
    return {key: result[key] for key in ("parameters", "code", "data")}


def of_folders() -> dict[str, Any]:
    return differences(find("first"), find("second"))


def test_a_model_in_one_folder_is_that_of_its_weights(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    made_up_models.translator(tmp_path, tiny_config, tiny_corpus).save(tmp_path / "model")
    weights, model = find(str(tmp_path / "weights")), find(str(tmp_path / "model"))
    assert model.about == weights.about == "weights of steps 7"
    assert model.config == weights.config
    assert differences(weights, model)["parameters"] == {}


def test_what_differs_is_named_with_both_values(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = changed(git__commit="b" * 40, data__dataset="9" * 64, host="there", input__raw="8" * 32)
    other["config"]["model"] |= {"heads": 8, "d_k": 16}
    other["config"]["data"]["phrasebook"]["seed"] = 2
    write("second", other)
    assert found(capsys) == {
        "parameters": {
            "data.phrasebook.seed": [1, 2],
            "model.heads": [4, 8],
            "model.d_k": [32, 16],
        },
        "code": {"git.commit": ["a" * 40, "b" * 40]},
        "data": {"data.dataset": ["1" * 64, "9" * 64]},
    }


@pytest.mark.parametrize("dirty", ["true", "unknown"])
def test_a_commit_that_is_not_all_of_the_code_is_said_so(folders: Path, dirty: str) -> None:
    for folder in ("first", "second"):
        write(folder, changed(git__dirty=dirty))
    assert of_folders()["code"] == {"git.dirty": [dirty, dirty]}


def test_a_key_that_a_model_does_not_have_is_null(folders: Path) -> None:
    """Not the default that a model of another architecture has for it; what one had before there
    was the key is that default."""
    base, other = presets.load("phrasebook").config, copy.deepcopy(RECEIPT)
    recurrent = configuration.with_changes(base, {"model.architecture": "recurrent"})
    model = configuration.to_dict(recurrent)["model"]
    del model["context"]
    other["config"]["model"] = model  # type: ignore[index]
    write("second", other)
    found = of_folders()["parameters"]
    assert found.pop("model.architecture") == ["transformer", "recurrent"]
    assert found.pop("model.context") == [None, "current"]
    assert found["model.feed_forward"] == ["relu", None]
    assert found.keys() == {f"model.{key}" for key in CONFIG["model"].keys() - model}
    assert all(theirs is None for _, theirs in found.values())


def test_a_key_that_one_version_does_not_have_is_null(folders: Path) -> None:
    other = copy.deepcopy(RECEIPT)
    del other["config"]["train"]["keep_best"]  # type: ignore[index]
    other["config"]["train"]["warmth"] = 3  # type: ignore[index]
    write("second", other)
    assert of_folders()["parameters"] == {
        "train.keep_best": [0, None],
        "train.warmth": [None, 3],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["first", "empty"], "empty has no weights, and is no project whose models/train has some"),
        (["first", "models/student"], "trains them there where self_training.sentences is above 0"),
        (["first", "damaged"], "damaged/receipt.json is damaged"),
        (["first", "odd"], "odd/receipt.json: lineage is a list, not an object"),
        (["first", "a.txt"], "a.txt is a file: two files of translations are compared by a ref"),
        (["a.txt", "second"], "a.txt is a file"),
        (["a.txt", "first", "a.txt", "--to", "de"], "first is a folder: only files are compared"),
        (["first", "second", "a.txt", "--to", "de"], "first is a folder: only files are compared"),
        (["first", "second", "--to", "de"], "--to and --from go with files of translations"),
        (["a.txt", "a.txt"], "add REFERENCE --to LANGUAGE"),
        (["a.txt", "a.txt", "a.txt"], "add --to LANGUAGE"),
        (["first", "second", "--samples", "0"], "--samples must be a whole number from 1, not 0"),
        (["first", "nowhere"], "nowhere is missing, and there is no reports/sweep.json"),
        (["models/train", "first"], "of that name: run `dvc repro`, which makes it"),
        (["a.txt", "nowhere", "a.txt", "--to", "de"], "nowhere is missing"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    folders: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text("eins\n", encoding="utf-8")
    Path("empty").mkdir()
    Path("models/student").mkdir(parents=True)
    write("odd", RECEIPT | {"lineage": ["no", "names"]})
    write("damaged", "")
    Path("damaged/receipt.json").write_text('{"config": ', encoding="utf-8")
    assert message in refusal(capsys, "compare", *arguments)


@pytest.mark.parametrize(
    ("receipt", "problem"),
    [
        ([], r" is damaged \(it holds a list, not an object"),
        ("text", r" is damaged \(it holds a string, not an object"),
        (None, r" is damaged \(it holds null, not an object"),
        ({"config": {}, "lineage": {}}, " lists no weights"),
    ],
)
def test_a_receipt_of_another_shape_is_refused(folders: Path, receipt: Any, problem: str) -> None:
    write("second", receipt)
    with pytest.raises(UserError, match=r"second/receipt\.json" + problem):
        of_folders()
