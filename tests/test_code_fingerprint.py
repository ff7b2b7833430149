"""What changes the fingerprint of code, and what does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seq2sweep.code_fingerprint import differences, modules, of_code, of_folder, parts
from seq2sweep.errors import UserError

ROOT = Path(__file__).parents[1]

CODE = '''"""What it is."""

import math
from os import path

RATE = 0.5
"""Of nothing."""


class Thing:
    """A thing."""

    def area(self, radius: float, *, note: str = "") -> str:
        """Of a circle."""
        area = math.pi * radius**2  # Archimedes
        return f"{area:.{len(note)}f}{note}" + path.sep
'''
SAME = {
    "comment": ("  # Archimedes", ""),
    "docstring": ("Of a circle", "Of any circle"),
    "docstring of the module": ('"""What it is."""\n', ""),
    "text below a name": ('"""Of nothing."""\n', ""),
    "layout": ("RATE = 0.5", "RATE = (\n    0.5\n)"),
    "quotes": ('note: str = ""', "note: str = ''"),
    "import": ("from os import path", "from os import sep, path"),
}
OTHER = {
    "number": ("0.5", "0.25"),
    "type of a number": ("radius**2", "radius**2.0"),
    "operator": ("math.pi * radius", "math.pi + radius"),
    "name": ("RATE", "RATIO"),
    "default": ('note: str = ""', 'note: str = "m"'),
    "format": (":.{len", ":0.{len"),
    "text": ("path.sep", "'/'"),
    "order": ("math.pi * radius**2", "radius**2 * math.pi"),
    "keyword": ("*, note", "note"),
}


def of(folder: Path, *texts: str) -> str:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"file{number}.py")
        files[-1].write_text(text, encoding="utf-8")
    return of_code(files)


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_result_is_the_same(change: str, tmp_path: Path) -> None:
    before, after = SAME[change]
    assert before in CODE
    assert of(tmp_path, CODE.replace(before, after)) == of(tmp_path, CODE)


@pytest.mark.parametrize("change", OTHER)
def test_what_may_change_a_result_differs(change: str, tmp_path: Path) -> None:
    before, after = OTHER[change]
    assert before in CODE
    assert of(tmp_path, CODE.replace(before, after)) != of(tmp_path, CODE)


def test_files_are_told_apart_but_not_their_places(tmp_path: Path) -> None:
    assert of(tmp_path, "a = 1", "b = 2") == of(tmp_path, "b = 2", "a = 1")
    assert of(tmp_path, "a = 1", "b = 2") != of(tmp_path, "a = 1\nb = 2")
    assert of(tmp_path, "a = 1", "a = 1") != of(tmp_path, "a = 1")


OTHER_PYTHONS = [
    found
    for version in ("3.11", "3.12", "3.13", "3.14")
    # A version manager may have a name for one that it has not set up.
    if (found := shutil.which(f"python{version}"))
    and not subprocess.call([found, "-c", "0"], stderr=subprocess.DEVNULL)
]


@pytest.mark.skipif(len(OTHER_PYTHONS) < 2, reason="one version of Python is here")
@pytest.mark.parametrize("python", OTHER_PYTHONS)
def test_it_is_the_same_on_every_version_of_python(python: str) -> None:
    ask = (
        "from pathlib import Path; from seq2sweep.code_fingerprint import of_code; "
        "print(of_code(Path('src').rglob('*.py')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [python, "-c", ask], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == of_code((ROOT / "src").rglob("*.py")), (sys.version, done.stderr)


def test_a_name_that_another_module_hands_on_is_told_with_where_that_has_it_from(
    tmp_path: Path,
) -> None:
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas/gates.py").write_text("soft, hard = 1, 2\n")
    (tmp_path / "program.py").write_text("from ideas import gate\n\nGATE = gate\n")
    seen = []
    for names in ("soft as gate", "hard as gate", "hard as gate, soft as other"):
        (tmp_path / "ideas/__init__.py").write_text(f"from ideas.gates import {names}\n")
        seen.append(parts("program", tmp_path))
    assert differences(seen[0], seen[1]) == ["imports"]
    assert seen[1] == seen[2]  # nobody has it from there


BRANCHES = "try:\n    from p.{} import f\nexcept ImportError:\n    from p.{} import f\nf()\n"
FUNCTIONS = (
    "def x():\n    from p.{} import f\n    f()\n\ndef y():\n    from p.{} import f\n    f()\n"
)
SHADOWED = "from p.{} import f\nfrom p.{} import f\nf()\n"
TOP = "try:\n    from {} import a\nexcept ImportError:\n    from {} import a\na()\n"
EVERYTHING = "from p.{} import *\nimport p.{}\nf()\n"


@pytest.mark.parametrize("code", [BRANCHES, FUNCTIONS, SHADOWED, TOP, EVERYTHING])
def test_which_of_two_imports_a_name_is_of_is_told(code: str, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"p/{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"p/{name}.py").write_text(f"def f(): print({name!r})", encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(f"def a(): print({name!r})", encoding="utf-8")
    found = []
    for names in ("ab", "ba", "ab"):
        (tmp_path / "main.py").write_text(code.format(*names), encoding="utf-8")
        found.append(parts("main", tmp_path))
    assert found[0] == found[2] != found[1]


def test_a_folder_of_packages_may_be_one_itself(tmp_path: Path) -> None:
    """As tools make an __init__.py where they find none."""
    (tmp_path / "program.py").write_text("import os\nprint(os)\n")
    before = parts("program", tmp_path)
    (tmp_path / "__init__.py").write_text("")
    assert parts("program", tmp_path) == before


def test_the_order_of_imports_is_layout(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for name in "ab":
        (tmp_path / f"p/{name}.py").write_text(f"def {name}(): print({name!r})", encoding="utf-8")
    lines = ["import p.a", "import p.b", "from p.a import a", "from p.b import b"]
    found = []
    for several in (lines, lines[::-1]):
        text = "\n".join([*several, "p.a.a(), p.b.b(), a(), b()"])
        (tmp_path / "main.py").write_text(text, encoding="utf-8")
        found.append(parts("main", tmp_path))
    assert found[0] == found[1]


def test_each_question_looks_at_the_files_as_they_are(tmp_path: Path) -> None:
    package = tmp_path / "kept"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "program.py").write_text("import kept.later\nPAGE = 'page.txt'\n")
    known = [parts("kept.program", tmp_path)]
    for name, text in (
        ("later.py", "A = 1\n"),  # is there now
        ("later.py", "A = 2\n"),
        ("page.txt", "words"),
        ("later.py", "A = 2\nCHANGES_NO_RESULT = 'no'\n"),
        ("__init__.py", "CHANGES_NO_RESULT = 'no'\n"),
    ):
        (package / name).write_text(text)
        known.append(parts("kept.program", tmp_path))
    seen = [{*found} - {"imports"} for found in known]
    page = "kept.program: page.txt"
    assert seen[0] == {"kept", "kept.program"}
    assert seen[1] == seen[2] == {*seen[0], "kept.later"}
    assert known[1]["kept.later"] != known[2]["kept.later"]
    assert seen[3] == {*seen[2], page}
    assert seen[4] == {*seen[0], page}
    assert seen[5] == set()


@pytest.mark.parametrize("name", [".wmt14.yaml.swp", "wmt14.yaml~", "#wmt14.yaml#", ".DS_Store"])
def test_what_editors_leave_in_a_folder_is_no_code(name: str, tmp_path: Path) -> None:
    """A stage of hours would end with `changed while this ran` where somebody reads a file."""
    registry = tmp_path / "kept/registry"
    registry.mkdir(parents=True)
    (tmp_path / "kept/__init__.py").write_text("PLACE = 'registry'\n")
    (registry / "wmt14.yaml").write_text("a: 1\n")

    def meanings() -> list[object]:
        of_text = of_folder(registry, bytewise=True)
        return [parts("kept", tmp_path), of_folder(registry), of_folder(tmp_path), of_text]

    before = meanings()
    assert "kept: registry/wmt14.yaml" in str(before[0])
    (registry / name).write_text("a: 2\n")
    after = meanings()
    assert after[:3] == before[:3]
    assert after[3] != before[3]  # of a corpus each file may be named in params.yaml
    (registry / "wmt15.yaml").write_text("a: 2\n")
    assert not [now for now, then in zip(meanings(), after, strict=True) if now == then]


@pytest.mark.parametrize("name", [".git/FETCH_HEAD", "deep/.git", ".hg/store", ".dvc/tmp/lock"])
def test_what_git_and_dvc_write_in_a_corpus_is_no_text(name: str, tmp_path: Path) -> None:
    """DVC does not look there either: no stage would record it, and each would end refused."""
    corpus = tmp_path / "__pycache__/mine"  # of the folders above nothing is asked
    (corpus / name).parent.mkdir(parents=True)
    (corpus / "train.en").write_text("a\n")
    before = of_folder(corpus, bytewise=True)
    (corpus / name).write_text("1")
    assert of_folder(corpus, bytewise=True) == before
    (corpus / "train.en").write_text("b\n")
    assert of_folder(corpus, bytewise=True) != before


def test_code_that_reads_texts_is_not_that_of_a_training() -> None:
    """Data and vocabulary have fingerprints of their own."""
    found = parts("seq2sweep.train.loop", ROOT / "src")
    assert "seq2sweep.data.vocabulary" in found
    for name in ("archives", "reading", "sgml", "tables", "sources"):
        assert f"seq2sweep.data.{name}" not in found


@pytest.mark.parametrize("whole", [False, True])
def test_a_module_that_is_no_python_is_named(tmp_path: Path, whole: bool) -> None:
    """Also where all of them are copied: a model is packaged at the end of a sweep."""
    (tmp_path / "program.py").write_text("import half\n")
    (tmp_path / "half.py").write_text("x = 1\ndef edited(\n")
    with pytest.raises(UserError, match=r"half\.py line 2 is not valid Python .*: fix it"):
        modules("program", tmp_path, whole=whole)
