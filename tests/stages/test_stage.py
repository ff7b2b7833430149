"""A result that DVC would record under a parameter or code that did not make it is refused."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seq2sweep
from pipeline import fingerprint
from seq2sweep import code_fingerprint, presets
from seq2sweep import config as configuration
from seq2sweep.config import ClusterConfig, Config
from seq2sweep.errors import UserError
from seq2sweep.jobs import dvc_stages, entrypoint
from seq2sweep.runs.warm_start import run_name
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import write_json
from tests.clone import copy_project
from tests.conftest import Corpus

RECIPE = """\
stages:
  train:
    cmd: python -m pipeline.train
    params: [model, data.source, vocabulary.size]
    deps: [data/encoded/train.json]
  download:
    cmd: python -m pipeline.download
    params: [data, {code.json: [download, folder]}]
"""
LOCK = """\
schema: '2.0'
stages:
  encode:
    cmd: python -m pipeline.encode
    deps:
    - path: data/clean
      hash: md5
      md5: 1111111111111111111111111111dddd.dir
    outs:
    - path: data/encoded
      hash: md5
      md5: 2222222222222222222222222222eeee.dir
      size: 10
    - path: data/raw
      md5: 3333333333333333333333333333ffff
"""
HEADER = {"fingerprint": "abc", "vocabulary": {"fingerprint": "def"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    (tmp_path / "pipeline/model").mkdir(parents=True)
    (tmp_path / "pipeline/train.py").write_text("from pipeline import loop\n")
    (tmp_path / "pipeline/download.py").write_text("")
    (tmp_path / "pipeline/loop.py").write_text("import pipeline.model.layers\nsteps = 1\n")
    (tmp_path / "pipeline/model/layers.py").write_text("heads = 8\n")
    (tmp_path / "dvc.yaml").write_text(RECIPE)
    set_params(tmp_path)
    return tmp_path


def set_params(project: Path, **changes: int | str) -> None:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    config = configuration.with_changes(presets.load("phrasebook").config, named)
    (project / "params.yaml").write_text(configuration.dump(config))


def status_of(work: Callable[[Config], None], name: str = "train") -> object:
    with pytest.raises(SystemExit) as ended:
        stage.run(name, "about", work)
    return ended.value.code


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda p: set_params(p, model__heads=2, model__d_ff=8), "model.d_ff, params.yaml: "),
        (lambda p: set_params(p, data__source="de", data__target="en"), "params.yaml: data.source"),
        (lambda p: set_params(p, vocabulary__size=99), "params.yaml: vocabulary.size"),
        (lambda p: (p / "pipeline/loop.py").write_text("steps = 2\n"), "pipeline.loop"),
        (lambda p: (p / "pipeline/model/layers.py").unlink(), "pipeline.model.layers"),
        (
            lambda p: (p / "pipeline/loop.py").write_text("steps =\n"),
            "loop.py line 1 is not valid Python",
        ),
    ],
)
def test_what_changes_meanwhile_is_refused(
    project: Path, change: Callable[[Path], object], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(lambda config: change(project) and None) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2sweep train: ")
    assert named in line
    assert "changed while this ran: " in line or "not valid Python" in line


@pytest.mark.parametrize(
    "change",
    [
        lambda p: None,
        lambda p: set_params(
            p, cluster__workers=3, data__phrasebook__seed=3, vocabulary__sentences=99
        ),
        lambda p: (p / "params.yaml").write_text((p / "params.yaml").read_text() + "# more\n"),
        lambda p: (p / "pipeline/train.py").write_text("from pipeline import loop  # it\n"),
        lambda p: (p / "pipeline/model/layers.py").write_text('"""All."""\nheads = (8)\n'),
        lambda p: (p / "pipeline/other.py").write_text("none = 0\n"),
    ],
)
def test_what_the_stage_does_not_read_may_change(
    project: Path, change: Callable[[Path], object]
) -> None:
    assert status_of(lambda config: change(project) and None) == 0


@pytest.mark.parametrize(
    ("name", "text", "status"),
    [
        ("download", "a\n", 0),
        ("download", "b\n", 2),
        ("download", None, 2),
        ("train", "b\n", 0),  # which reads none of it
    ],
)
def test_a_corpus_that_changes_while_a_stage_reads_it_is_refused(
    project: Path, name: str, text: str | None, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Put back after that, it would stand for good beside data of the other text."""
    set_params(project, data__folder="mine")
    corpus = project / "mine/train.en"
    corpus.parent.mkdir()
    corpus.write_text("a\n")
    fingerprint.work(configuration.load(project / "params.yaml"))

    def work(config: Config) -> None:
        corpus.unlink()
        if text is not None:
            corpus.write_text(text)

    assert status_of(work, name) == status
    said = "seq2sweep download: changed while this ran: mine; the result is that of the old values"
    assert capsys.readouterr().err.startswith(said if status else "")


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("data/encoded/train.json", "data/encoded/train.json"),
        ("models/train/receipt.json", "models/train/receipt.json"),
        ("models/train/encoded/valid.json", "models/train/encoded/valid.json"),
        ("models/train/large.safetensors", None),  # of which a receipt has the sum
        ("data/encoded/valid.json", None),  # which the stage does not read
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_data_that_are_checked_out_meanwhile_are_refused(
    project: Path, name: str, named: str | None, linked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """DVC would record the result as of the data that are there at its end, and push it."""
    recipe = RECIPE.replace("train.json]", "train.json, models/train]")
    (project / "dvc.yaml").write_text(recipe)
    for folder in ("data/encoded", "models/train"):
        if linked:
            (project / "disk" / folder).mkdir(parents=True)
            (project / folder).parent.mkdir()
            (project / folder).symlink_to(project / "disk" / folder)
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one")
    assert status_of(lambda config: path.write_text("one") and None) == 0

    def check_out(config: Config) -> None:
        path.unlink()
        path.write_text("two")

    assert status_of(check_out) == (2 if named else 0)
    said = capsys.readouterr().err
    assert said.startswith(f"seq2sweep train: changed while this ran: {named}; " if named else "")
    assert status_of(lambda config: path.unlink()) == (2 if named else 0)


def test_a_job_that_reads_no_corpus_needs_none(project: Path) -> None:
    """Where the folder is not in git it stays at home, and what code.json says of it is from
    there."""
    set_params(project, data__folder="mine")
    write_json(project / "code.json", {"folder": "of the texts at home"})
    assert status_of(lambda config: None, "download") == 0


@pytest.mark.parametrize(("changes", "status"), [(False, 0), (True, 2)])
def test_a_job_that_has_a_part_of_the_corpus_compares_that(
    changes: bool, status: int, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_params(project, data__folder="mine")
    (project / "mine").mkdir()
    (project / "mine/test.en").write_text("a\n")
    write_json(project / "code.json", {"folder": "of the texts at home, train.en too"})
    monkeypatch.setattr(entrypoint, "is_inside", lambda: True)

    def work(config: Config) -> None:
        if changes:
            (project / "mine/test.en").write_text("b\n")

    assert status_of(work, "download") == status


@pytest.mark.parametrize(("name", "status"), [("sweep", 2), ("download", 0)])
def test_a_seed_that_is_none_is_told_before_anything_is_trained(
    name: str, status: int, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "-3")
    worked: list[Config] = []
    assert status_of(worked.append, name) == status
    assert bool(worked) == (status == 0)


def test_code_that_has_changed_since_it_was_recorded_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While an earlier stage of the same `dvc repro` ran."""
    code = code_fingerprint.of_parts(dvc_stages.code(project, "train"))
    write_json(project / "code.json", {"train": code})
    assert status_of(lambda config: None) == 0
    (project / "pipeline/loop.py").write_text("steps = 1  # of them\n")
    write_json(project / "code.json", {"train": "of other code"})
    done: list[str] = []
    assert status_of(lambda config: done.append("it")) == 2
    assert not done
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "seq2sweep train: the code, or what params.yaml names of it, has changed"
    )


def test_the_library_of_another_folder_computes_nothing_here(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a new worktree, or a copy with its .venv: an editable install has a full path."""
    ours, place = Path(seq2sweep.__path__[0]), project / "src/seq2sweep"
    place.parent.mkdir()
    place.symlink_to(ours)
    assert status_of(lambda config: None) == 0
    place.unlink()
    place.mkdir()
    done: list[str] = []
    assert status_of(lambda config: done.append("it")) == 2
    assert not done
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"seq2sweep train: this Python has the seq2sweep of {ours.parent}, not")
    assert line.endswith(f"run `make install` here, or set PYTHONPATH={project / 'src'}")


def test_stages_run_the_library_beside_them(tmp_path: Path) -> None:
    """As in a git worktree, or where DVC runs an experiment, whatever this Python has."""
    copy_project(tmp_path, "pipeline/__init__.py")
    (tmp_path / "pipeline/where.py").write_text("import seq2sweep; print(seq2sweep.__file__)")
    own = tmp_path / "src/seq2sweep"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("")
    (own / "console.py").write_text("def quiet_environment(): pass")
    command = [sys.executable, "-m", "pipeline.where"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == own / "__init__.py"


@pytest.mark.parametrize(
    ("storage", "uri", "taken"),
    [
        ("runs", None, False),
        ("/shared/runs", None, False),
        ("/shared/runs", "sqlite:///mlflow.db", False),
        ("runs", "http://mlflow:5000", False),
        ("/shared/runs", "sqlite:////shared/mlflow.db", True),
        ("/shared/runs", "https://mlflow:5000", True),
        ("/shared/runs", "postgresql://host/runs", False),
        ("s3://bucket/runs", "http://mlflow:5000", False),
    ],
)
def test_a_folder_that_dvc_removes_keeps_no_training(
    storage: str,
    uri: str | None,
    taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / ".dvc/tmp/exps/tmp1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    changes = {"cluster.storage": storage, "tracking.uri": uri}
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    (folder / "params.yaml").write_text(configuration.dump(config))
    done: list[str] = []
    assert status_of(lambda config: done.append("it")) == (0 if taken else 2)
    assert done == ["it"] * taken
    if not taken:
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("seq2sweep train: DVC removes this folder when the experiment has ")


def test_outside_of_a_dvc_project_nothing_is_recorded(project: Path) -> None:
    (project / "dvc.yaml").unlink()
    assert status_of(lambda config: set_params(project, model__heads=2)) == 0


def test_an_interruption_is_told_first(project: Path) -> None:
    def work(config: Config) -> None:
        set_params(project, model__heads=2)
        raise KeyboardInterrupt

    assert status_of(work) == 75


def test_garbage_is_collected_but_what_was_imported_is_not_walked(project: Path) -> None:
    found = []
    gc.disable()
    try:
        status = status_of(lambda config: found.append((gc.isenabled(), gc.get_freeze_count() > 0)))
    finally:
        gc.enable()
        gc.unfreeze()
    assert (status, found) == (0, [(True, True)])


def test_each_thing_that_determines_a_training_gives_its_run_another_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would resume, or be taken for, a training of other data, vocabulary or code."""
    config = configuration.load(project / "params.yaml")
    seed = configuration.with_changes(config, {"train.seed": config.train.seed + 1})
    other_data = HEADER | {"fingerprint": "abd"}
    other_vocabulary = HEADER | {"vocabulary": {"fingerprint": "deg"}}

    def name(header: dict[str, Any], config: Config, code: str = "1") -> str:
        monkeypatch.setattr(stage, "code_of", lambda program: {"a": code})
        return run_name(stage.origin(header, config).identity)

    names = [
        name(HEADER, config),
        name(other_data, config),
        name(other_vocabulary, config),
        name(HEADER, config, code="2"),
        name(HEADER, seed),
    ]
    assert len(set(names)) == len(names)
    assert name(dict(HEADER), config) == names[0]


@pytest.mark.parametrize("file", ["train.target.tokens", "valid.source.lengths"])
def test_a_training_begins_with_no_data_that_has_changed(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, file: str
) -> None:
    encoded = tmp_path / "encoded"
    shutil.copytree(tiny_corpus.encoded, encoded)
    assert stage.training_header(tiny_config, encoded)["fingerprint"]
    content = bytearray((encoded / file).read_bytes())
    content[len(content) // 2] ^= 1
    (encoded / file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{file} has changed since it was written"):
        stage.training_header(tiny_config, encoded)


def test_a_lineage_has_the_sums_of_what_it_is_made_of(project: Path) -> None:
    config = configuration.load(project / "params.yaml")
    more = {"file": Path("data/encoded/header.json")}
    assert stage.lineage(config, HEADER)["input.encoded"] == "unknown"
    (project / "dvc.lock").write_text(LOCK)
    tags = stage.lineage(config, HEADER, **more)
    assert tags["input.encoded"] == "2222222222222222222222222222eeee.dir"
    assert tags["input.file"] == "2222222222222222222222222222eeee.dir"
    assert tags["input.raw"] == "3333333333333333333333333333ffff"
    assert tags["input.clean"] == "unknown"
    assert (tags["data.dataset"], tags["data.vocabulary"]) == ("abc", "def")


def test_projects_that_share_a_training_evaluate_it_apart(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in an outbox of its own, as only one may write there."""
    names = {stage.evaluation_of({"run": "a-run"}) for _ in range(2)}
    (project / "another").mkdir()
    monkeypatch.chdir(project / "another")
    names.add(stage.evaluation_of({"run": "a-run"}))
    assert len(names) == 2
    assert all(name.startswith("a-run-evaluation-") for name in names)


@pytest.mark.parametrize(("variable", "there"), [("auto", True), ("local", False), ("", False)])
def test_work_is_shared_out_where_a_cluster_is_named(
    variable: str, there: bool, local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", variable)
    assert stage.on_cluster(local) == there


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "stages: [1]\n", "", "a: b: c\n"])
def test_a_damaged_lock_is_a_user_error(project: Path, text: str) -> None:
    (project / "dvc.lock").write_text(text)
    with pytest.raises(UserError, match=r"dvc\.lock is damaged.*dvc repro"):
        stage.lineage(configuration.load(project / "params.yaml"), HEADER)


def test_a_training_is_known_by_the_metrics_of_its_stage(project: Path) -> None:
    receipt, model = {"run": "train-1"}, Path("models/student")
    by_name = {"parent": "train-1", "parent_id": None}
    assert stage.training_run(model, receipt) == by_name
    for content in ({}, {"mlflow_run_id": None}):
        write_json(project / "metrics/student.json", content)
        assert stage.training_run(model, receipt) == by_name
    write_json(project / "metrics/train.json", {"mlflow_run_id": "of another"})
    write_json(project / "metrics/student.json", {"mlflow_run_id": "ours"})
    assert stage.training_run(model, receipt) == {"parent": "train-1", "parent_id": "ours"}


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (["--help"], 0, "stage train of `dvc repro`: about. It takes no arguments: values are"),
        (["model.heads=8"], 2, "seq2sweep train: a stage takes no arguments, not model.heads=8: "),
    ],
)
def test_a_stage_that_is_called_with_arguments_does_no_work(
    given: list[str],
    status: int,
    said: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `python -m pipeline.train --help`."""
    program = SimpleNamespace(__spec__=SimpleNamespace(name="pipeline.train"))
    monkeypatch.setitem(sys.modules, "__main__", program)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["pipeline/train.py", *given])
    assert status_of(pytest.fail) == status
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert line.startswith(said)
    assert line.endswith("`dvc exp run -S KEY=VALUE` sets one for a run")
