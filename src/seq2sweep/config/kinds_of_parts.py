"""Models and parts of them that come in kinds: a file each, found by its name in `seq2sweep.model`.

Nothing of `seq2sweep.model` is imported here: PyTorch takes a second to load.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seq2sweep import code_fingerprint

MODEL = Path(__file__).parents[1] / "model"
"""Where the kinds lie, a folder a part."""


def names(folder: str) -> tuple[str, ...]:
    """Of the kinds of a part, sorted: of files that Python can import."""
    stems = (file.stem for file in (MODEL / folder).glob("[!_]*.py"))
    return tuple(sorted(stem for stem in stems if "." not in stem))


def is_shared(folder: str, kind: str) -> bool:
    """Whether a kind's file is part of the code of all trainings."""
    return _module(MODEL / folder / f"{kind}.py") in _shared(MODEL.parents[1])


def code(folder: str, kind: str) -> str:
    """What a kind's file means, with other kinds' files that it makes use of, and with modules that
    are not part of the code of all trainings; with files of their folders that these name, such as
    a kernel's source; and where it has names from, as `_imported` says."""
    file = MODEL / folder / f"{kind}.py"
    code_fingerprint.of_code([file])  # says which one is no Python
    files = _files(file)
    held = (code_fingerprint.files_named(*entry) for entry in files.items())
    named = {f"{part} {sha256}" for parts in held for part, sha256 in parts.items()}
    return code_fingerprint.of_code(files.values(), _imported(files) | named)


def _imported(files: Mapping[str, Path]) -> set[str]:
    """What these files import from other libraries, or under another name, and no code of all
    trainings does: `from torch.nn.functional import gelu as gate` may become `silu as gate`.

    What Python's library or a module of ours calls by that name is left out: the identity of a kind
    that was trained before imports counted stays as it is.
    """
    known = {"seq2sweep", *sys.stdlib_module_names}
    wanted = code_fingerprint.names_imported(files)
    return {
        f"{path.name}: {name} as {bound}"
        for module, path in files.items()
        for name, bound in code_fingerprint.used_imports(module, path, wanted)
        if name.partition(".")[0] not in known or name.rpartition(".")[2] != bound
        if (name, bound) not in _usual(MODEL.parents[1])
    }


def _files(file: Path) -> dict[str, Path]:
    """A kind's file, those of kinds that it imports or gets by their names, and of what else these
    import that no default does, by module."""
    root = MODEL.parents[1]
    found, files = [file], dict[str, Path]()
    for path in found:
        name = _module(path)
        own = code_fingerprint.modules(name, root, without=_shared(root) - {name})
        others = [*_imported_kinds(path), *_named_kinds(own.values())]
        found += [other for other in dict.fromkeys(others) if other not in found]
        files |= {name: path} | own
    return files


def _imported_kinds(path: Path) -> Iterator[Path]:
    """The files of kinds that a kind's file imports."""
    for _, module in code_fingerprint.imports(code_fingerprint.text_of(path), _module(path)):
        parts = module.split(".")
        if parts[:2] == ["seq2sweep", "model"] and len(parts) > 3:
            other = MODEL / parts[2] / f"{parts[3]}.py"
            if other.is_file():
                yield other


def _named_kinds(paths: Iterable[Path]) -> Iterator[Path]:
    """The files of kinds that these get as `components.norm("rmsnorm")`, by a name that stands
    there; not of those that are part of the code of all trainings."""
    for path in paths:
        for folder, kind in _calls(code_fingerprint.text_of(path)):
            if folder and kind in names(folder) and not is_shared(folder, kind):
                yield MODEL / folder / f"{kind}.py"


@functools.lru_cache(maxsize=256)
def _calls(text: str) -> tuple[tuple[str, str], ...]:
    """The last name of each thing that Python code calls with a text, and the text."""
    return tuple(
        (getattr(node.func, "attr", getattr(node.func, "id", "")), given.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for given in (*node.args, *(keyword.value for keyword in node.keywords))
        if isinstance(given, ast.Constant) and isinstance(given.value, str)
    )


def _module(file: Path) -> str:
    """The dotted name of a kind's file."""
    return f"seq2sweep.model.{file.parent.name}.{file.stem}"


@functools.cache
def _shared(root: Path) -> frozenset[str]:
    """The modules that are part of the code of all trainings, whatever kinds these name."""
    return frozenset(code_fingerprint.modules("seq2sweep.model.building", root))


@functools.cache
def _usual(root: Path) -> frozenset[tuple[str, str]]:
    """What these import, and the names that it gets there."""
    found = code_fingerprint.modules("seq2sweep.model.building", root)
    pairs = (code_fingerprint.used_imports(*entry) for entry in found.items())
    return frozenset(pair for of_module in pairs for pair in of_module)
