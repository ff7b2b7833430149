"""A stage runs again when its code means something else, and for nothing else."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import fingerprint
from seq2sweep import code_fingerprint, presets
from seq2sweep import config as configuration
from seq2sweep.code_fingerprint import (
    IMPORTS,
    MARK,
    differences,
    modules,
    names_imported,
    of_parts,
    parts,
)
from seq2sweep.jobs import dvc_stages
from tests.clone import copy_project

ROOT = Path(__file__).parents[2]
STAGES = list(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])


class Copy:
    """The code of the project, to change."""

    def __init__(self, folder: Path) -> None:
        self.roots = (folder / "src", folder)
        copy_project(folder, "src", "pipeline")

    def files(self) -> list[Path]:
        return sorted(file for name in ("src", "pipeline") for file in self.of(name))

    def of(self, name: str) -> Iterator[Path]:
        return (self.roots[1] / name).rglob("*.py")

    def meanings(self) -> dict[str, str]:
        return {stage: of_parts(parts(f"pipeline.{stage}", *self.roots)) for stage in STAGES}

    def members(self) -> dict[str, set[Path]]:
        """The modules that are part of each stage."""
        return {s: set(modules(f"pipeline.{s}", *self.roots).values()) for s in STAGES}


@pytest.mark.parametrize(("dataset", "counts"), [("phrasebook", False), ("files", True)])
def test_a_comment_counts_in_a_text_and_not_in_code(
    dataset: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text may be a translation to Python."""
    monkeypatch.chdir(tmp_path)
    changes: dict[str, Any] = {"data.dataset": dataset, "data.folder": "mine"}
    if dataset == "files":
        held_out = {"data.files.valid_pairs": 10, "data.files.test_pairs": 10}
        changes |= {"data.files.train": ["train.en", "train.py"]} | held_out
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    monkeypatch.setattr(dvc_stages, "described", lambda project: {})
    (tmp_path / "mine").mkdir()

    def meaning(text: str) -> str:
        (tmp_path / "mine/train.py").write_text(text)
        fingerprint.work(config)
        return str(json.loads((tmp_path / dvc_stages.CODE_FILE).read_text())["folder"])

    assert (meaning("f(x)\n") != meaning("f( x)  # y\n")) == counts


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def before(copy: Copy) -> dict[str, str]:
    """The meanings of a copy that is as it was, as each test leaves it."""
    return copy.meanings()


def test_comments_docstrings_and_layout_of_every_module(copy: Copy, before: dict[str, str]) -> None:
    for file in copy.files():
        text = file.read_text()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                said = ast.Expr(ast.Constant("Something else."))
                node.body = [said, *node.body[bool(ast.get_docstring(node)) :]]
        # A docstring before `from __future__` is the first statement; all else is laid out anew.
        file.write_text(ast.unparse(ast.fix_missing_locations(tree)) + "\n# a comment\n")
        assert file.read_text() != text
    after = copy.meanings()
    copy_project(copy.roots[1], "src", "pipeline")
    assert after == before


def test_each_planted_change_runs_the_stages_that_use_it(
    copy: Copy, before: dict[str, str], thorough: bool
) -> None:
    members, files = copy.members(), copy.files()
    chosen = random.Random(18).sample(files, 100 if thorough else 8)
    for file in chosen:
        text = file.read_text()
        users = {stage for stage in STAGES if file in members[stage]}
        file.write_text(text + "\nPLANTED = 1\n")
        after = copy.meanings()
        file.write_text(text)
        assert {stage for stage in STAGES if after[stage] != before[stage]} == users, file
    assert copy.meanings() == before


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("mine.yaml", "", "about: {}\nextends: phrasebook\nchanges: {}\n", set()),
        ("phrasebook.yaml", "layers: 2", "layers: 3", set()),
        ("multi30k-en-de.yaml", "train.steps: ", "train.steps: 1", set()),
        ("table3.yaml", "model.heads: 4,", "model.heads: 2,", {"sweep", "report"}),
        ("wmt14-en-de-base.yaml", "not run here yet", "28.4", set()),
    ],
)
def test_a_preset_runs_no_stage_but_by_what_the_sweep_takes_of_it(
    copy: Copy, before: dict[str, str], name: str, old: str, new: str, changed: set[str]
) -> None:
    """A sweep of the rows of Table 3 takes these and what they change."""
    path = copy.roots[0] / "seq2sweep/presets" / name
    text = path.read_text() if old else ""
    assert old in text
    path.write_text(text.replace(old, new, 1))
    after = copy.meanings()
    path.write_text(text) if old else path.unlink()
    assert {stage for stage in STAGES if after[stage] != before[stage]} == changed


def test_no_stage_computes_with_what_is_in_the_meaning_of_none() -> None:
    """As with what the catalogue of presets says."""
    for stage in STAGES:
        files = modules(f"pipeline.{stage}", ROOT / "src", ROOT)
        named = [name for name in names_imported(files) if name.startswith(presets.__name__)]
        assert presets.__name__ not in named, stage  # which hands on what the catalogue has
        assert {".".join(name.split(".")[:3]) for name in named} <= set(files), stage


IMPORTED = """
import json, os, sys
# The slow ones once, and none of ours.
import mlflow.store.tracking.sqlalchemy_store, ray.train, ray.tune, sacrebleu, sacremoses, torch

for stage in sys.argv[1:]:
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{stage} cannot be imported")
        continue
    __import__(f"pipeline.{stage}")
    own = [m for m in sys.modules if m.split(".")[0] in ("seq2sweep", "pipeline")]
    print("imported", json.dumps([stage, own]), flush=True)
    os._exit(0)
"""


def test_what_a_stage_imports_when_it_runs_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against Python's own account of what has been imported, which knows nothing of marks."""
    monkeypatch.setattr(code_fingerprint, "_is_marked", lambda *_: False)
    stages = ["download", "evaluate", "sweep", "report"]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *stages],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("imported ")]
    found = dict(json.loads(line.removeprefix("imported ")) for line in lines)
    assert list(found) == stages
    for stage, imported in found.items():
        known = modules(f"pipeline.{stage}", ROOT / "src", ROOT)
        assert set(imported) - set(known) == set(), stage


def test_a_name_imported_from_another_module_is_another_meaning(tmp_path: Path) -> None:
    for name, text in {"a": "def f(): return 1\n", "b": "def f(): return 2\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    main = tmp_path / "main.py"

    def meaning(text: str) -> str:
        main.write_text(text)
        return of_parts(parts("main", tmp_path))

    first = meaning("import a, b\nfrom a import f\nf()\n")
    assert first == meaning("from a import f\nimport a, b, os\nf()  # more\n")
    assert first != meaning("import a, b\nfrom b import f\nf()\n")
    assert meaning("from math import floor as f\nf(1)\n") != meaning(
        "from math import ceil as f\nf(1)\n"
    )


def test_code_may_move(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for place in ("a.py", "deep/a.py"):
        (tmp_path / place).write_text("x = 1\n")
    (tmp_path / "main.py").write_text("from a import x\nprint(x)\n")
    (tmp_path / "other.py").write_text("from deep.a import x\nprint(x)\n")
    assert of_parts(parts("main", tmp_path)) == of_parts(parts("other", tmp_path))


def test_a_marked_module_is_no_part_nor_what_only_it_imports(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import shown, used\n")
    (tmp_path / "shown.py").write_text(f'import only, used\n{MARK} = "it prints"\n')
    (tmp_path / "only.py").write_text("x = 1\n")
    (tmp_path / "used.py").write_text("x = 1\n")
    assert set(parts("main", tmp_path)) == {"main", "used", IMPORTS}


def test_files_besides_python_belong_to_what_names_them(tmp_path: Path) -> None:
    package = tmp_path / "report"
    package.mkdir()
    for name, text in {
        "__init__.py": "",
        "page.py": "TEMPLATE = 'page.html'\n",
        "numbers.py": "x = 1\n",
        "page.html": "{% include 'style.css' %}",
        "style.css": "a { color: red }  /* said */",
        "rows.yaml": "a: 1  # said\n",
        "rows.py": "def read(name): return f'{name}.yaml'\n",
    }.items():
        (package / name).write_text(text)
    (tmp_path / "main.py").write_text("from report import page, numbers, rows\n")
    before = parts("main", tmp_path)
    assert {"report.page: page.html", "report.page: style.css", "report.rows: rows.yaml"} == {
        name for name in before if ":" in name
    }
    (package / "style.css").write_text("a {\n  color: red\n}")
    (package / "rows.yaml").write_text("{a: 1}")
    assert parts("main", tmp_path) == before
    (package / "style.css").write_text("a { color: blue }")
    assert differences(before, parts("main", tmp_path)) == ["report.page: style.css"]
    (package / "rows.yaml").write_text("a: 2")
    assert "report.rows: rows.yaml" in differences(before, parts("main", tmp_path))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the stages up to the clean text, made once."""
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, "src", "pipeline", ".dvcignore")
    described = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    kept = {name: described["stages"][name] for name in ("fingerprint", "download", "prepare")}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": kept}, sort_keys=False))
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["data"]["phrasebook"] |= {"train": 60, "valid": 10, "test": 10}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    dvc(folder, "init", "--no-scm", "-q")
    assert runs(folder) == ["fingerprint", "download", "prepare"]
    return folder


def dvc(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=folder,
        env=environment | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs(folder: Path) -> list[str]:
    said = dvc(folder, "repro").splitlines()
    return [line.split("'")[1] for line in said if line.startswith("Running stage")]


def test_no_module_is_hidden_from_dvc(project: Path) -> None:
    modules = [str(path.relative_to(project)) for path in sorted(project.glob("*/**/*.py"))]
    assert len(modules) > 300
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "check-ignore", *modules],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, ""), "1 says that none is ignored"


def test_dvc_runs_what_has_other_code(project: Path) -> None:
    """That without a change nothing runs at all is shown by test_repro, of every stage."""
    library, registry = project / "src/seq2sweep", project / "src/phrasebook"
    clean = library / "data/clean_writer.py"
    # The last is in a folder that is called as one of the project's.
    for file in (registry / "grammar.py", library / "runs/journal.py"):
        add(file, "# a comment")
    add(library / "console.py", "MORE = 1")  # it is marked
    add(clean, "MORE = 1")
    assert runs(project) == ["fingerprint", "prepare"]
    add(registry / "lexicon.py", "MORE = 1")
    assert runs(project)[:2] == ["fingerprint", "download"]


def add(file: Path, line: str) -> None:
    file.write_text(f"{file.read_text()}\n{line}\n")
