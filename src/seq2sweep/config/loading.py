"""params.yaml read into its typed sections, written, and told from another.

An unknown key, a missing one that has no default, or a value of the wrong type or range is a
`UserError` that names the dotted key and how to mend it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from seq2sweep import code_fingerprint, yaml_text
from seq2sweep.config.fields import LONGEST_SHOWN, must, shown
from seq2sweep.config.schema import Config
from seq2sweep.errors import UserError
from seq2sweep.paths import read_text

DECISIVE = ("src", "pipeline", "params.yaml", "dvc.yaml", "constraints.txt", "pyproject.toml")
"""The project's files that determine a result. One elsewhere (documentation, tests, infrastructure,
dvc.lock, which stages write) leaves the tree of a run clean."""

MODEL = Path(__file__).parents[1] / "model"
"""Where the kinds of its parts lie, a folder a part."""


def load(path: Path) -> Config:
    """Read and check params.yaml. Raises UserError with one line for anything wrong in it."""
    try:
        text = read_text(path, "run `seq2sweep preset phrasebook` in the project's folder")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    return parse(text, str(path))


def parse(text: str, name: str = "params.yaml") -> Config:
    """Build a Config from YAML text; `name` is what error messages call it."""
    try:
        values = yaml_text.read_yaml(text)
    except yaml_text.ERRORS as error:
        raise UserError(yaml_text.problem(error, name)) from None
    if not isinstance(values, dict):
        raise UserError(f"{name}: expected sections such as `model:` and `train:`")
    return from_dict(values, name)


def from_dict(values: Mapping[str, Any], name: str = "params.yaml") -> Config:
    """Build a checked Config from nested dictionaries (the inverse of `to_dict`)."""
    config: Config = section(Config, values, "", name)
    for key, value, field in _entries(config):
        for rule, holds in field.metadata["rules"]:
            if value is not None and not holds(value):
                raise UserError(f"{name}: {must(key, rule, value)}")
    sections = [getattr(config, field.name) for field in dataclasses.fields(config)]
    for checked in (*sections, config):
        if problems := getattr(checked, "problems", None):
            for problem in problems():
                raise UserError(f"{name}: {problem}")
    return config


def with_changes(config: Config, changes: Mapping[str, Any], name: str = "params.yaml") -> Config:
    """A copy with dotted keys replaced, checked again: `{"model.heads": 8}`."""
    values, known = to_dict(config), list(flatten(config))
    for key, value in changes.items():
        if key not in known:
            raise UserError(_unknown(key, known, name))
        *path, last = key.split(".")
        place = values
        for part in path:
            place = place[part]
        place[last] = value
    return from_dict(values, name)


# --- values and identity -------------------------------------------------------------------------


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain dictionaries, lists and scalars, with the keys that params.yaml leaves out."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(config)))


def flatten(config: Config, *sections: str) -> dict[str, Any]:
    """Dotted key to value, of the named sections or of all, with those that have a default."""
    return {
        key: value
        for key, value, _ in _entries(config)
        if not sections or key.split(".")[0] in sections
    }


def chosen(config: Config, *sections: str) -> dict[str, Any]:
    """As `flatten`, without keys that have their default: the same before and after one came."""
    values = flatten(config, *sections)
    return {
        key: values[key]
        for key, value, field in _entries(config)
        if key in values and not _is_default(value, field)
    }


def identity(config: Config, *sections: str) -> dict[str, Any]:
    """As `chosen`, without keys whose values can change nothing that comes out.

    Beside the name of a kind stands what its file means, since only the code of defaults is part
    of the code that trains: a new kind's file changes nothing of models that do not name it.
    """
    fields = {key: field for key, _, field in _entries(config)}
    return {
        key: f"{value} {_code(folder, value)[:8]}" if (folder := _folder(fields[key])) else value
        for key, value in chosen(config, *sections).items()
        if fields[key].metadata["result"]
    }


def code_of_kinds(config: Config, *sections: str) -> dict[str, str]:
    """What the files of kinds mean that these sections name, by module; defaults are left out."""
    named = json.dumps(chosen(config, *sections))
    return {
        f"seq2sweep.model.{folder}.{kind}": _code(folder, kind)
        for _, _, field in _entries(config)
        if (folder := _folder(field))
        for kind in _kinds(folder)
        if f'"{kind}"' in named and kind != field.default
    }


def fingerprint(
    config: Config, *sections: str, of_result: bool = False, without: Collection[str] = ()
) -> str:
    """sha256 (hex) of what is `chosen`: equal exactly when the values are.

    of_result: of `identity` alone. without: dotted keys that are left out.
    """
    values = (identity if of_result else chosen)(config, *sections)
    text = json.dumps({k: v for k, v in values.items() if k not in without}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _defaults(kind: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _defaults(hints[field.name], f"{prefix}{field.name}.")
        elif field.default is not dataclasses.MISSING:
            yield prefix + field.name, _plain(field.default)


def _entries(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """Dotted key, plain value and field of each key of a section, and of the sections in it."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from _entries(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, _plain(value), field


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING and value == _plain(field.default)


def _folder(field: dataclasses.Field[Any]) -> str | None:
    folder: str | None = field.metadata["kinds"]
    return folder


def _kinds(folder: str) -> tuple[str, ...]:
    """Names of the modules of a folder of `seq2sweep/model`, which is not imported here."""
    return tuple(sorted(file.stem for file in (MODEL / folder).glob("[!_]*.py")))


def _code(folder: str, kind: str) -> str:
    try:
        return code_fingerprint.of_code([MODEL / folder / f"{kind}.py"])
    except SyntaxError as error:
        where = f"{error.filename} line {error.lineno}"
        raise UserError(f"{where} is no Python ({error.msg}): mend it") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


DEFAULTS: Mapping[str, Any] = dict(_defaults(Config))
"""Dotted key to plain value, of the keys that params.yaml may leave out."""

OPTIONAL = tuple(f.name for f in dataclasses.fields(Config) if f.default is not dataclasses.MISSING)
"""Sections that params.yaml may leave out, where DVC cannot look for them: code.json has them."""


# --- writing -------------------------------------------------------------------------------------


def dump(config: Config) -> str:
    """params.yaml text, each key with its help as a comment; one that has its default is a comment
    as a whole, since DVC would run stages again for a key that came."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        lines += ["", f"# {section.metadata['help']}", f"{section.name}:"]
        lines += _dump_fields(getattr(config, section.name), 1)
    return "\n".join(lines[1:]) + "\n"


def _dump_fields(section: Any, depth: int) -> list[str]:
    indent = "  " * depth
    lines = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        comment = f"# {field.metadata['help']}"
        if dataclasses.is_dataclass(value):
            lines.append(f"{indent}{field.name}:  {comment}")
            lines += _dump_fields(value, depth + 1)
        elif isinstance(value, dict) and value:
            lines.append(f"{indent}{field.name}:  {comment}")
            lines += [f"{indent}  {_flow(key)}: {_flow(item)}" for key, item in value.items()]
        else:
            idle = "# " * _is_default(_plain(value), field)
            lines.append(f"{f'{indent}{idle}{field.name}: {_flow(value)}':<34}  {comment}")
    return lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


# --- reading -------------------------------------------------------------------------------------


def section(kind: Any, values: Any, prefix: str = "", name: str = "params.yaml") -> Any:
    """A section of a kind such as `ModelConfig` from its values, with defaults for what they lack.

    prefix: `model.` for messages. Types are checked, ranges are not.
    """
    if values is None and prefix.rstrip(".") in OPTIONAL:  # all its keys are comments
        values = {}
    if not isinstance(values, Mapping):
        raise UserError(f"{name}: {prefix.rstrip('.')} must be a section with keys of its own")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            raise UserError(_unknown(f"{prefix}{key}", [prefix + field for field in fields], name))
    built = {}
    for key, field in fields.items():
        hint, dotted = hints[key], prefix + key
        if key not in values:
            if field.default is dataclasses.MISSING:
                raise UserError(f"{name}: missing key {dotted} ({field.metadata['help']}); add it")
        elif dataclasses.is_dataclass(hint):
            built[key] = section(hint, values[key], f"{dotted}.", name)
        else:
            if folder := _folder(field):
                hint = Literal[_kinds(folder)]
            built[key] = _convert(hint, values[key], dotted, name)
    return kind(**built)


def _unknown(key: str, known: list[str], name: str) -> str:
    key = key[:LONGEST_SHOWN] if key.isprintable() else shown(key)
    section = key if any(k.startswith(key + ".") for k in known) else key.rpartition(".")[0]
    if section == key:
        keys = ", ".join(k for k in known if k.startswith(key + "."))
        return f"{name}: {key} is a section; its keys are {keys}"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
    if not close and section:
        siblings = [k for k in known if k.startswith(section + ".")]
        hint = f"; known: {', '.join(siblings or known)}"
    return f"{name}: unknown key {key}{hint}"


def _convert(hint: Any, value: Any, key: str, name: str) -> Any:
    def wrong(expected: str) -> UserError:
        return UserError(f"{name}: {must(key, expected, value)}")

    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        return _convert(next(a for a in hint.__args__ if a is not type(None)), value, key, name)
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise wrong("one of " + ", ".join(options) + _near(value, options))
        return value
    if origin is tuple:
        return _convert_list(typing.get_args(hint)[0], value, wrong)
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise wrong("a mapping, such as {}")
        return dict(value)
    if hint is float:
        return _convert_number(value, wrong)
    # type, not isinstance: true and false are no whole numbers here.
    if type(value) is not hint:
        raise wrong(
            {bool: "true or false", int: "a whole number"}.get(
                hint, "text (in quotes if YAML reads it as something else)"
            )
        )
    return _line(value, wrong)


def _convert_list(kind: Any, value: Any, wrong: Callable[[str], UserError]) -> tuple[Any, ...]:
    if typing.get_origin(kind) is Literal:
        options = typing.get_args(kind)
        items = value if isinstance(value, list | tuple) else [value]
        strange = [item for item in items if item not in options]
        if strange or items is not value:
            near = _near(strange[0], options) if strange else ""
            raise wrong("a list, each one of " + ", ".join(options) + near)
        return tuple(value)
    if not isinstance(value, list | tuple) or not all(type(v) is kind for v in value):
        raise wrong("a list of texts" if kind is str else "a list of whole numbers")
    return tuple(_line(item, wrong) for item in value)


def _convert_number(value: Any, wrong: Callable[[str], UserError]) -> float:
    """YAML 1.1 reads 1e-4 (no dot) as text."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise wrong("a number")
    return number


def _line(value: Any, wrong: Callable[[str], UserError]) -> Any:
    if isinstance(value, str) and "\n" in value:
        raise wrong("text of one line")
    return value


def _near(value: Any, options: Iterable[str]) -> str:
    if not isinstance(value, str):
        return ""
    close = difflib.get_close_matches(value[:LONGEST_SHOWN], options, n=1)
    return f", did you mean {close[0]}?" if close else ""
