"""What code means, as a hash: what changes no result does not change it.

Of a Python file, comments, docstrings, layout and unused imports are not in it, nor where the file
lies. Of a program it is made of the modules that the program imports, used or not, found in the
imports themselves. A module that can change no result says so, in a line of its own, and why;
nothing that only such modules import is in it either:

    CHANGES_NO_RESULT = "what a person sees while a stage runs"

In the `__init__` of a package it stands for all modules of the package.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from seq2sweep import yaml_text
from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "computes fingerprints of code"

MARK = "CHANGES_NO_RESULT"
IMPORTS = "imports"

_OF_NO_MEANING = {"ctx", "kind", "type_comment", "type_ignores"}
"""Fields of syntax trees that repeat what their place says, or that only type checkers read."""

_LEFT_OUT = {".git", ".hg", ".dvc", "__pycache__"}
"""What no folder is made of, nor does DVC look into: git writes there while nobody edits."""


def of_code(files: Iterable[Path], imported: Iterable[str] = ()) -> str:
    """sha256 (hex) of Python files by their meaning.

    imported: what else they mean, as the text of an import, of which `meaning` has nothing. Code
    that is moved is the same, and it is the same on every version of Python that can read the
    files. Raises UserError for one that is no Python.
    """
    _look_again()
    return _of_all([*(_parsed(file).meaning for file in files), *imported])


def of_parts(parts: Mapping[str, str]) -> str:
    """sha256 (hex) of what `parts` gives: the same wherever the parts lie."""
    return _of_all(parts.values())


def parts(program: str, *roots: Path) -> dict[str, str]:
    """sha256 (hex) by meaning of each module that can change what a program results in.

    program: dotted name of its main module. roots: folders that packages lie in. A file of another
    kind that a package holds, such as a template, is a part of each module that names it; and which
    names the modules have from each other is the part IMPORTS.
    """
    found: dict[str, str] = {}
    imported: list[tuple[str, ...]] = []
    files = modules(program, *roots)
    wanted = names_imported(files)
    for module, path in files.items():
        found[module] = _parsed(path).meaning
        found |= files_named(module, path)
        imported += ((found[module], *one) for one in _targets(_used(module, path, wanted), roots))
    return found | {IMPORTS: _sha256(json.dumps(sorted(imported)))}


def files_named(module: str, path: Path) -> dict[str, str]:
    """sha256 (hex) by meaning of each file of another kind that a module names, by `module: name`;
    see `parts`."""
    return {part: _of_file(file) for part, file in _files_of(module, path).items()}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of what differs between `parts`, sorted."""
    found = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    # It differs with each module that another one imports.
    return [name for name in found if name != IMPORTS] or found


def modules(
    program: str, *roots: Path, whole: bool = False, without: Collection[str] = ()
) -> dict[str, Path]:
    """The files of a program's modules, by dotted name: its own and all that it imports.

    Left out are those that change no result, unless `whole`, and those named in `without`, with
    what only they import. Raises UserError for one that is no Python.
    """
    _look_again()
    found: dict[str, Path] = {}
    waiting = [program]
    while waiting:
        module, path = _locate(waiting.pop(), roots)
        if path is None or module in found or module in without:
            continue
        if not whole and _is_marked(module, path, roots):
            continue
        found[module] = path
        try:
            waiting += [name for _, name in imports(text_of(path), module, _is_package(path))]
        except SyntaxError:
            _parsed(path)  # which says where it is no Python
            raise
        waiting += [module.rpartition(".")[0]]  # a package is imported before what it holds
    return dict(sorted(found.items()))


def of_folder(folder: Path, *, bytewise: bool = False) -> str:
    """sha256 (hex) of the files of a folder, or of one file, by their meaning and names.

    bytewise: of a folder without code; every byte of every file has a meaning, but for _LEFT_OUT.
    """
    _look_again()
    of_file = _of_bytes if bytewise else _of_file
    return _of_all(
        f"{path.relative_to(folder).as_posix()} {of_file(path)}"
        for path in (folder.rglob("*") if folder.is_dir() else [folder])
        if _LEFT_OUT.isdisjoint(path.relative_to(folder).parts) and path.is_file()
        if bytewise or not _is_left_by_editor(path.relative_to(folder))
    )


def imports(text: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports, inside functions too."""
    for node in _read(text).imports:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for imported, _, _ in _names(node, module, is_package):
                yield node.lineno, imported
        else:
            yield node.lineno, node.args[0].value  # type: ignore[attr-defined]


def _names(
    node: ast.Import | ast.ImportFrom, module: str, is_package: bool
) -> Iterator[tuple[str, str, str]]:
    """Full dotted name of each thing imported, the name that it gets, and what no other import may
    give something else: that name, but that `import a.b` and `import a.c` give one and the same a.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            # `import a.b` gives the name a; `import a.b as c` gives c for a.b.
            bound = alias.asname or alias.name.partition(".")[0]
            yield alias.name, bound, alias.asname or alias.name
        return
    base = node.module or ""
    if node.level:
        package = module if is_package else module.rpartition(".")[0]
        base = importlib.util.resolve_name("." * node.level + base, package)
    for alias in node.names:
        bound = alias.asname or alias.name
        yield f"{base}.{alias.name}", bound, bound


def names_imported(files: Mapping[str, Path]) -> set[str]:
    """Full dotted names of what these modules, by dotted name, have from each other; also through
    one that names it nowhere and only hands it on."""
    wanted: set[str] = set()
    while True:
        found = {
            name for module, path in files.items() for name, _ in used_imports(module, path, wanted)
        }
        if found <= wanted:
            return wanted
        wanted |= found


def used_imports(module: str, path: Path, wanted: Collection[str] = ()) -> list[tuple[str, str]]:
    """Full dotted name of each thing that a module imports and names, and its name there.

    wanted: what others have from it, whether it names that or not; see `names_imported`.
    """
    return [(name, bound) for name, bound, _ in _used(module, path, wanted)]


def _used(module: str, path: Path, wanted: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """As `used_imports`, with what `_names` has besides."""
    read = _parsed(path)
    return (
        one
        for node in read.imports
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in _names(node, module, _is_package(path))
        if one[1] in read.names or one[1] == "*" or f"{module}.{one[1]}" in wanted
    )


@dataclass(frozen=True)
class _Read:
    """What is asked of a Python file.

    meaning: without its imports; imports: the statements, and calls with a module's name; names,
    strings: that stand in it; marked: whether it says that it changes no result.
    """

    meaning: str
    imports: tuple[ast.Import | ast.ImportFrom | ast.Call, ...]
    names: frozenset[str]
    strings: frozenset[str]
    marked: bool


@functools.lru_cache(maxsize=1024)
def _read(text: str) -> _Read:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return _Read(
        meaning=_sha256(json.dumps(_plain(tree), ensure_ascii=True)),
        imports=tuple(filter(_imports, nodes)),
        names=frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        strings=frozenset(
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ),
        marked=any(map(_is_mark, tree.body)),
    )


@functools.cache
def _parsed(file: Path) -> _Read:
    try:
        return _read(text_of(file))
    except SyntaxError as error:
        where = f"{file} line {error.lineno}"
        raise UserError(f"{where} is not valid Python ({error.msg}): fix it") from None


def _imports(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom | ast.Call]:
    """Whether it is an import, by a statement or by a call with a module's name."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Import | ast.ImportFrom)
    called = getattr(node.func, "attr", getattr(node.func, "id", None))
    name = getattr(node.args[0], "value", None) if node.args else None
    return called in ("import_module", "__import__") and isinstance(name, str)


def _targets(
    used: Iterable[tuple[str, str, str]], roots: tuple[Path, ...]
) -> Iterator[tuple[str, ...]]:
    """The name that each thing imported gets, and its target; with the place among those of its
    name where two differ, as a branch for another version of a library has them."""
    alike: dict[str, list[tuple[str, ...]]] = {}
    for name, bound, given in used:
        alike.setdefault(given, []).append((bound, *_target(name, roots)))
    for targets in alike.values():
        in_order = len(set(targets)) > 1
        yield from ((*one, str(at)) if in_order else one for at, one in enumerate(targets))


def _target(name: str, roots: tuple[Path, ...]) -> tuple[str, str]:
    """Of something imported the meaning of its module, so that it may move, and its name there."""
    module, path = _locate(name, roots)
    if path is None:
        return name, ""
    meaning = "" if _is_marked(module, path, roots) else _parsed(path).meaning
    return meaning, name[len(module) :]


@functools.cache
def _locate(name: str, roots: tuple[Path, ...]) -> tuple[str, Path | None]:
    """The module that a dotted name is of, or is a name in, and its file; None: it is not ours."""
    if not name:
        return name, None
    for root in roots:
        place = os.path.join(root, *name.split("."))
        for path in (os.path.join(place, "__init__.py"), f"{place}.py"):
            if os.path.isfile(path):
                return name, Path(path)
    return _locate(name.rpartition(".")[0], roots)


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py"


@functools.cache
def _is_marked(module: str, path: Path, roots: tuple[Path, ...]) -> bool:
    if _parsed(path).marked:
        return True
    package, above = _locate(module.rpartition(".")[0], roots)
    return above is not None and _is_marked(package, above, roots)


def _is_mark(node: Any) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == MARK for target in node.targets
    )


def _files_of(module: str, path: Path) -> dict[str, Path]:
    """What a package holds besides Python and this module names, or what it names does: files by
    their name or their folder's, or by their ending alone where none is named in full."""
    inside = _no_code_in(path.parent)
    strings = _parsed(path).strings
    named: dict[str, Path] = {}
    waiting = {name for name in inside if name.split("/")[0] in strings or name in strings}
    if not waiting:
        waiting = {name for name, file in inside.items() if file.suffix in strings}
    while waiting:
        name = waiting.pop()
        named[name] = inside[name]
        holds = text_of(inside[name])
        waiting |= {other for other in inside if other in holds and other not in named}
    return {f"{module}: {name}": file for name, file in sorted(named.items())}


@functools.cache
def _no_code_in(folder: Path) -> dict[str, Path]:
    """The files of a folder that are no Python and no editor's, by their names in it."""
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.suffix not in (".py", ".pyc") and file.is_file()
        if not _is_left_by_editor(file.relative_to(folder))
    }


def _is_left_by_editor(path: Path) -> bool:
    """Whether a name is that of a swap file, a backup, or what a desktop knows of a folder.

    path: in a folder of code.
    """
    return any(name.startswith((".", "#")) or name.endswith("~") for name in path.parts)


_KNOWN: tuple[Any, ...] = (_parsed, _locate, _is_marked, _no_code_in)


def _look_again() -> None:
    """Files may have changed since they were looked at: each question begins anew."""
    for known in _KNOWN:
        known.cache_clear()


def text_of(file: Path) -> str:
    """Of a file of code, whatever its bytes."""
    return file.read_text(encoding="utf-8", errors="replace")


def _of_file(file: Path) -> str:
    """Of YAML its values, of CSS its rules, of what cannot be read and of other files each byte."""
    with contextlib.suppress(UserError, *yaml_text.ERRORS):
        if file.suffix == ".py":
            return _parsed(file).meaning
        if file.suffix == ".yaml":
            return _of_yaml(text_of(file))
    if file.suffix == ".css":
        return _sha256(" ".join(re.sub(r"/\*.*?\*/", " ", text_of(file), flags=re.DOTALL).split()))
    return _of_bytes(file)


def _of_bytes(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.lru_cache(maxsize=256)
def _of_yaml(text: str) -> str:
    return _sha256(json.dumps(yaml_text.read_yaml(text), sort_keys=True, default=str))


def _of_all(hashes: Iterable[str]) -> str:
    return _sha256("\n".join(sorted(hashes)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A syntax tree as nested lists, without empty fields, which later versions of Python add."""
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_idle(item)]
    if isinstance(value, ast.AST):
        fields = dict(ast.iter_fields(value))
        if isinstance(value, ast.JoinedStr):  # Python 3.12 alone adds empty texts
            fields["values"] = [v for v in value.values if getattr(v, "value", None) != ""]
        return [
            type(value).__name__,
            *(
                [name, _plain(field)]
                for name, field in fields.items()
                if name not in _OF_NO_MEANING and field is not None and field != []
            ),
        ]
    return [type(value).__name__, repr(value)]


def _is_idle(node: Any) -> bool:
    """Docstrings, texts below what they describe, imports, and that a module changes no result."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom) or _is_mark(node)
