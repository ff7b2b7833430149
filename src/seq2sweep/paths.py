"""Files that are read: found, regular, and never waited for.

A named pipe or a device in the place of a file would be read for ever.
"""

from __future__ import annotations

import functools
import json
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from seq2sweep.errors import PATH_REMEDIES, UserError

CHANGES_NO_RESULT = "how a file is opened: what comes of it has a sum or a value of its own"

REPRO = "run `dvc repro`, which makes it"
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}

_KIND_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def open_regular(path: Path, remedy: str = "check its name and folder") -> BufferedReader:
    """Open a regular file to read bytes, links followed; UserError where it is none.

    remedy: what to do where it is missing.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind == stat.S_IFREG:
            return path.open("rb")
    except FileNotFoundError:
        link = " (a link to nowhere)" if path.is_symlink() else ""
        raise UserError(f"{path} is missing{link}: {remedy}") from None
    except ValueError as error:  # a NUL, or a character that this locale cannot write
        raise UserError(f"{str(path)!r} is no path: {error}") from None
    except OSError as error:
        if error.errno not in PATH_REMEDIES:
            raise
        long = f"{str(path)[:200]}... ({len(str(path))} long)"
        name = str(path) if len(str(path)) <= 300 else long
        raise UserError(
            f"{name} cannot be read: {error.strerror}; {PATH_REMEDIES[error.errno]}"
        ) from None
    raise UserError(f"{path} cannot be read: it is {_KINDS.get(kind, 'no file')}, not a file")


def read_bytes(path: Path, remedy: str = REPRO) -> bytes:
    """All of a regular file; UserError as `open_regular` raises it."""
    with open_regular(path, remedy) as stream:
        return stream.read()


def read_text(path: Path, remedy: str = REPRO) -> str:
    """All of a regular file, as UTF-8 text with lines that end in "\\n".

    Raises UserError as `open_regular` does, and UnicodeDecodeError.
    """
    return read_bytes(path, remedy).decode().replace("\r\n", "\n")


def read_json(path: Path) -> Any:
    """An object that an earlier stage wrote as JSON.

    Raises UserError when it is missing, damaged, or something else than an object; so do its
    objects when they are asked for a key that they lack.
    """
    try:
        value = json.loads(read_text(path), object_pairs_hook=functools.partial(_Object, path))
    except (ValueError, RecursionError) as error:
        said = "nested too deep" if isinstance(error, RecursionError) else error
        raise UserError(f"{path} is damaged ({said}): remove it and run `dvc repro`") from None
    if not isinstance(value, dict):
        raise UserError(
            f"{path} is damaged (it holds {_kind(value)}, not an object): remove it and run "
            "`dvc repro`"
        )
    return value


class _Object(dict[str, Any]):
    """An object of a file. Older programs, and people, leave out keys."""

    def __init__(self, path: Path, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._path = path

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self._path} has no {key}: remove it and run `dvc repro`")

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _kind(value: Any) -> str:
    """What JSON calls a value."""
    kind = _type(value)
    return _KIND_NAMES.get(kind, f"a {kind.__name__}")  # YAML has dates too


def _type(value: Any) -> type:
    return dict if isinstance(value, dict) else type(value)


def mismatch(value: Any, shape: Any, key: str = "") -> str | None:
    """What is not as in `shape`, by dotted key, in words; None if all is.

    A shape is a type (float takes whole numbers too; a tuple of types any of them), an object with
    the shapes of the keys that it must have, or a list with the one shape of its items.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{key or 'it'} is {_kind(value)}, not an object"
        for name, part in shape.items():
            inner = f"{key}.{name}".removeprefix(".")
            if name not in value:
                return f"{inner} is missing"
            if found := mismatch(value[name], part, inner):
                return found
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{key or 'it'} is {_kind(value)}, not a list"
        numbered = enumerate(value)
        found_in = (mismatch(item, shape[0], f"{key}[{number}]") for number, item in numbered)
        return next((found for found in found_in if found), None)
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if _type(value) in kinds or (type(value) is int and float in kinds):
        return None
    return f"{key} is {_kind(value)}, not {' or '.join(map(_KIND_NAMES.__getitem__, kinds))}"
