"""What MLflow keeps of a model loads from its own files alone, of every kind."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT
from safetensors import SafetensorError

import seq2sweep
from seq2sweep.config import Config, with_changes
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.to_safetensors import Safetensors
from seq2sweep.model import products
from seq2sweep.serving.packaging import NEEDED, write_package
from seq2sweep.serving.pyfunc import TIMEOUT, TranslationModel, _load_pyfunc

from ..conftest import Corpus
from ..export import made_up_models

LINES = ["alpha beta", "gamma alpha beta", ""]

LOAD = """
import json, sys
from pathlib import Path
code, *folders = sys.argv[1:]
sys.path.insert(0, code)
import pandas as pd
from seq2sweep.serving import pyfunc
found = {}
for folder in folders:
    table = pd.DataFrame({"text": json.loads(sys.stdin.readline())})
    found[folder] = pyfunc._load_pyfunc(folder).predict(table, {"n_best": 2}).values.tolist()
own = [m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] == "seq2sweep"]
print(json.dumps({
    "found": found,
    "strange": [file for file in own if not Path(file).is_relative_to(code)],
    "libraries": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def test_each_kind_loads_in_a_process_that_has_its_folder_alone(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    expected, folders = {}, []
    for number, kind in enumerate(made_up_models.KINDS):
        folder = tmp_path / str(number)
        translator = made_up_models.translator(folder, tiny_config, tiny_corpus, kind)
        if folders:  # whose code is that of the first
            Safetensors().write(translator, folder / "package")
        else:
            write_package(folder / "package", translator)
        folders.append(folder / "package")
        found = translator.translate(LINES, 2)
        expected[kind] = [[one.text for one in best] for best in found]
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, folders[0] / "code", *folders],
        input=f"{json.dumps(LINES)}\n" * len(folders),
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    for kind, folder in zip(expected, folders, strict=True):
        texts: list[list[str]] = [[] for _ in LINES]
        for line, rank, text, score in said["found"][str(folder)]:
            assert rank == len(texts[line])
            assert score <= 0
            texts[line].append(text)
        assert texts == expected[kind], kind
    assert said["strange"] == []
    assert not {"ray", "mlflow", "dvc", "sacrebleu", "matplotlib"} & {*said["libraries"]}


def test_the_requirements_name_what_is_installed(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    translator = made_up_models.translator(tmp_path, tiny_config, tiny_corpus)
    write_package(tmp_path / "package", translator)
    lines = (tmp_path / "package" / "requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == list(NEEDED)
    assert all(line.partition("==")[2] and "+" not in line for line in lines)
    assert (tmp_path / "package" / "README.md").read_text().startswith("---\nlanguage:")


def test_what_a_kind_of_ones_own_imports_comes_along(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "src" / "seq2sweep"
    shutil.copytree(Path(seq2sweep.__file__).parent, source)
    for name, text in {
        "model/feed_forward/gated.py": "from seq2sweep.ideas.gates import gate",
        "model/feed_forward/draft.py": "from seq2sweep.ideas.drafts import",
        "ideas/__init__.py": "",
        "ideas/gates.py": "from notes import shapes",
        "ideas/drafts.py": "",
        "../notes/__init__.py": "",
        "../notes/shapes.py": "",
    }.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    # As Emacs has it beside a file that is not saved.
    (source / "model/feed_forward/.#relu.py").symlink_to("me@here.1234")
    monkeypatch.setattr(seq2sweep, "__file__", str(source / "__init__.py"))
    monkeypatch.setitem(sys.modules, "seq2sweep.model.feed_forward.gated", ModuleType("gated"))
    translator = made_up_models.translator(tmp_path, tiny_config, tiny_corpus)
    write_package(tmp_path / "package", translator)
    code = tmp_path / "package" / "code"
    beside = [code / "notes", code / "seq2sweep" / "ideas"]
    assert [sorted(file.name for file in folder.iterdir()) for folder in beside] == [
        ["__init__.py", "shapes.py"],
        ["__init__.py", "gates.py"],
    ]


@pytest.fixture(scope="module")
def model(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> TranslationModel:
    folder = tmp_path_factory.mktemp("model")
    made_up_models.translator(folder, tiny_config, tiny_corpus).save(folder / "saved")
    return _load_pyfunc(str(folder / "saved"))  # type: ignore[no-any-return]


def test_parameters_are_those_of_the_search(model: TranslationModel) -> None:
    table = pd.DataFrame({"text": LINES[:2]})
    own = model.translator.config
    plain = model.predict(table)
    assert list(plain.columns) == ["line", "rank", "translation", "score"]
    assert plain["line"].tolist() == [0, 1]
    same = model.predict(table, {"beam": own.beam, "alpha": own.alpha, "n_best": 1})
    assert plain.equals(same)
    other = model.translator.searched(3, beam=3, alpha=0.0)
    wanted = model.translator.translate(LINES[:2], 3, config=other)
    found = model.predict(table, {"beam": 3, "alpha": 0.0, "n_best": 3})
    assert found["rank"].tolist() == [0, 1, 2] * 2
    assert found["translation"].tolist() == [one.text for best in wanted for one in best]
    assert found["score"].tolist() == [one.score for best in wanted for one in best]
    assert found["score"].tolist() != plain["score"].tolist()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"beam": 0}, "evaluate.beam must be at least 1"),
        ({"alpha": -1.0}, "evaluate.alpha must be at least 0"),
        ({"alpha": 11.0}, "evaluate.alpha must be at most 10"),
        ({"beam": 17}, "beam is 17: it must be at most 16"),
        ({"n_best": 0}, "n_best is 0: it must be from 1 to evaluate.beam"),
        ({"n_best": 99}, "n_best is 99: it must be from 1 to evaluate.beam"),
        ({"beam": 2, "n_best": 3}, "n_best is 3: it must be from 1 to evaluate.beam, 2"),
    ],
)
def test_a_search_that_cannot_be_is_told(
    model: TranslationModel, params: dict[str, float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        model.predict(pd.DataFrame({"text": ["alpha"]}), params)


def test_the_widest_beam_is_that_of_the_evaluation_where_it_is_wider(
    model: TranslationModel,
) -> None:
    wide = TranslationModel(copy.copy(model.translator))
    wide.translator.config = dataclasses.replace(model.translator.config, beam=32)
    with pytest.raises(ValueError, match="beam is 33: it must be at most 32"):
        wide.predict(pd.DataFrame({"text": ["alpha"]}), {"beam": 33})


def test_its_weights_may_be_read_by_whoever_reads_the_rest(
    model: TranslationModel, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        write_package(tmp_path / "model", model.translator)
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "model").iterdir() if path.is_file()]
    assert len({path.stat().st_mode & 0o777 for path in files}) == 1


def test_a_full_disk_is_named(
    model: TranslationModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be a trace after a sweep of hours."""

    def full(translator: Translator, *given: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: (os error 28)")

    monkeypatch.setattr(Translator, "save", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_package(tmp_path / "model", model.translator)
    assert (caught.value.errno, caught.value.filename) == (28, str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alpha " * 2000, "text 2 has .* tokens: send at most"),
        ("alpha " * 3000, "text 2 has 18000 characters: send at most 16384"),
        ("alpha\nbeta", "text 2 has a line break"),
        ("\ud800", "text 2 has an unpaired surrogate"),
    ],
)
def test_a_text_that_the_server_would_refuse_is_told(
    model: TranslationModel, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        model.predict(pd.DataFrame({"text": ["alpha", text]}, dtype=object))


def test_a_list_in_a_row_is_no_text(model: TranslationModel) -> None:
    """MLflow makes one row of `{"text": [...]}`."""
    with pytest.raises(ValueError, match="text must be a string, a row for each"):
        model.predict(pd.DataFrame({"text": [["alpha", "beta"]]}))


def test_the_time_limit_is_that_of_the_server() -> None:
    assert MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.name == TIMEOUT


def test_a_search_ends_when_the_server_has_given_it_up(
    model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({"text": LINES})
    monkeypatch.setenv(TIMEOUT, "0")
    with pytest.raises(TimeoutError, match=f"not done in the seconds of {TIMEOUT}"):
        model.predict(table)
    monkeypatch.setenv(TIMEOUT, "60")
    assert len(model.predict(table)) == len(LINES)


def test_calls_take_turns_and_none_waits_longer_than_the_server(
    model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({"text": LINES})
    searches, go_on = threading.Event(), threading.Event()
    translate, seen = model.translator.translate, []

    def slow(*given: Any, **options: Any) -> Any:
        seen.append(threading.current_thread())
        searches.set()
        assert go_on.wait(60)
        return translate(*given, **options)

    monkeypatch.setattr(model.translator, "translate", slow)
    first = threading.Thread(target=model.predict, args=(table,))
    first.start()
    try:
        assert searches.wait(60)
        monkeypatch.setenv(TIMEOUT, "0.1")
        with pytest.raises(TimeoutError, match=TIMEOUT):
            model.predict(table)
        assert seen == [first]
    finally:
        go_on.set()
        first.join()
    monkeypatch.delenv(TIMEOUT)
    assert len(model.predict(table)) == len(LINES)  # it is the next one's turn


@pytest.mark.skipif(not products._LAID_OUT, reason="PyTorch lays out nothing here")
def test_weights_are_laid_out_for_all_calls_once(
    model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({"text": LINES})
    first = model.predict(table)

    class Refused:
        _linear_pointwise = products.torch.ops.mkldnn._linear_pointwise

    monkeypatch.setattr(products.torch.ops, "mkldnn", Refused)
    assert model.predict(table).equals(first)


def test_a_model_is_copied_in_bfloat16_once(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_changes(tiny_config, {"evaluate.precision": "bf16"})
    made_up_models.translator(tmp_path, config, tiny_corpus).save(tmp_path / "model")
    model = _load_pyfunc(str(tmp_path / "model"))
    table = pd.DataFrame({"text": LINES})
    expected = [best[0].text for best in model.translator.translate(LINES)]
    monkeypatch.setattr(copy, "deepcopy", None)
    for _ in range(2):
        assert model.predict(table)["translation"].tolist() == expected
