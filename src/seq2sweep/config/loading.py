"""params.yaml read into its typed sections, written, and told from another.

An unknown key, a missing one that has no default, or a value of the wrong type or range is a
`UserError` that names the dotted key and how to mend it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import operator
import typing
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from seq2sweep import yaml_text
from seq2sweep.config import kinds_of_parts
from seq2sweep.config.conversion import convert
from seq2sweep.config.execution import SweepConfig
from seq2sweep.config.fields import LONGEST_SHOWN, must, shown
from seq2sweep.config.schema import Config
from seq2sweep.errors import UserError, did_you_mean
from seq2sweep.paths import read_text

DECISIVE = ("src", "pipeline", "params.yaml", "dvc.yaml", "constraints.txt", "pyproject.toml")
"""The project's files that determine a result. One elsewhere (documentation, tests, infrastructure,
dvc.lock, which stages write) leaves the tree of a run clean."""


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
    for problem in _problems(config):
        raise UserError(f"{name}: {problem}")
    return config


def _problems(config: Config) -> Iterator[str]:
    for key, value, field in _entries(config):
        yield from _broken(key, value, field)
    for part in (*vars(config).values(), config):
        if hasattr(part, "problems"):
            yield from part.problems()


def broken_rules(values: Any, prefix: str) -> Iterator[str]:
    """What is wrong with the values of a section such as `EvaluateConfig`, beside their types.

    prefix: `evaluate.` for messages.
    """
    for field in dataclasses.fields(values):
        yield from _broken(prefix + field.name, getattr(values, field.name), field)


def _broken(key: str, value: Any, field: dataclasses.Field[Any]) -> Iterator[str]:
    for rule, holds in field.metadata["rules"]:
        if value is not None and not holds(value):
            yield must(key, rule, value)


def with_changes(config: Config, changes: Mapping[str, Any], name: str = "params.yaml") -> Config:
    """A copy with dotted keys replaced, checked again: `{"model.heads": 8}`.

    Of a model that becomes another architecture the keys stay that both have.
    """
    values, known = to_dict(config), [*flatten(config)]
    architecture = changes.get("model.architecture", config.model.architecture)
    if architecture != config.model.architecture and architecture in [*architectures()]:
        own = _fields(architectures()[architecture], "model.")
        known = [key for key in known if not key.startswith("model.")] + [*own]
        values["model"] = {k: v for k, v in values["model"].items() if f"model.{k}" in own}
    for key, value in changes.items():
        if key not in known:
            raise UserError(_unknown(key, known, name, architecture))
        *path, last = key.split(".")
        functools.reduce(operator.getitem, path, values)[last] = value
    return from_dict(values, name)


# --- values and identity -------------------------------------------------------------------------


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain dictionaries, lists and scalars, with the keys that params.yaml leaves out."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(config)))


def flatten(config: Config, *sections: str) -> dict[str, Any]:
    """Dotted key to value, of the named sections or of all, with those that have a default."""
    return {key: value for key, value, _ in _entries(config, sections)}


def chosen(config: Config, *sections: str) -> dict[str, Any]:
    """As `flatten`, without keys that have their default: the same before and after one came."""
    return {
        key: value
        for key, value, field in _entries(config, sections)
        if not _is_default(value, field)
    }


def identity(config: Config, *sections: str) -> dict[str, Any]:
    """As `chosen`, without keys whose values can change nothing that comes out.

    Beside the name of a kind stands what its file means, even of a default, unless all trainings
    import it: a new kind's file changes nothing of models that do not name it.
    """
    return {
        key: f"{value} {kinds_of_parts.code(folder, value)[:8]}" if folder else value
        for key, value, field in _entries(config, sections)
        for folder in [field.metadata["kinds"]]
        if not _is_default(value, field) or (folder and not kinds_of_parts.is_shared(folder, value))
        if field.metadata["result"]
    }


def code_of_kinds(config: Config, *sections: str) -> dict[str, str]:
    """What the files of kinds mean that these sections name, by module; not what all import."""
    text = functools.partial(json.dumps, ensure_ascii=False)  # a name as it is, in quotes
    named = {key: text(value) for key, value in flatten(config, *sections).items()}
    if not sections or "sweep" in sections:
        for key, values in _swept(config.sweep):
            named[key] = named.get(key, "") + text(values)
    every = _fields_of_all(typing.cast(Hashable, Config))
    pairs = dict.fromkeys((key, field.metadata["kinds"]) for key, field in every)
    return {
        f"seq2sweep.model.{folder}.{kind}": kinds_of_parts.code(folder, kind)
        for key, folder in pairs
        if folder and key in named
        for kind in kinds_of_parts.names(folder)
        if f'"{kind}"' in named[key] and not kinds_of_parts.is_shared(folder, kind)
    }


def _swept(sweep: SweepConfig) -> list[tuple[str, Any]]:
    """Dotted keys with what a sweep gives them; of an architecture that it names, with the kinds
    that its section has where nothing names one."""
    every = [*sweep.base.items(), *sweep.space.items()]  # keys joined by commas
    found = [(key.strip(), values) for keys, values in every for key in keys.split(",")]
    if sweep.method == "table2":
        rows = [*architectures()] if "all" in sweep.rows else sweep.rows
        found.append(("model.architecture", rows))
    architecture = [values for key, values in found if key == "model.architecture"]
    named = json.dumps(architecture, ensure_ascii=False)
    for name, section in architectures().items():
        if f'"{name}"' in named:
            keys = _fields(section, "model.").items()
            found += [(k, f.default) for k, f in keys if f.metadata["kinds"] and _has_default(f)]
    return found


def kinds(section: Any) -> dict[str, str]:
    """The keys of a section that name kinds, with what they name."""
    fields = dataclasses.fields(section)
    return {f.name: getattr(section, f.name) for f in fields if f.metadata["kinds"]}


def keys_by_length() -> set[str]:
    """Dotted keys, of all architectures, by which a step may depend on how many there are."""
    every = _fields_of_all(typing.cast(Hashable, Config))
    return {key for key, field in every if field.metadata["by_length"]}


def fingerprint(
    config: Config, *sections: str, of_result: bool = False, without: Collection[str] = ()
) -> str:
    """sha256 (hex) of what is `chosen`: equal exactly when the values are.

    of_result: of `identity` alone. without: dotted keys that are left out.
    """
    values = (identity if of_result else chosen)(config, *sections)
    text = json.dumps({k: v for k, v in values.items() if k not in without}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _entries(
    config: Config, sections: Sequence[str] = ()
) -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """Dotted key, plain value and field of each key, of the named sections or of all."""
    for name, part in vars(config).items():
        if not sections or name in sections:
            for key, field in _fields(typing.cast(Hashable, type(part)), f"{name}.").items():
                yield key, _plain(operator.attrgetter(key)(config)), field


@functools.cache
def _fields(kind: Any, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """Dotted key to field; of several architectures with the keys of all, the first one's field."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for key, field in _fields_of_all(kind, prefix):
        found.setdefault(key, field)
    return found


@functools.cache
def _fields_of_all(kind: Any, prefix: str = "") -> tuple[tuple[str, dataclasses.Field[Any]], ...]:
    """Dotted key and field of each key, once more for each architecture that has it."""
    hints = typing.get_type_hints(kind)
    found: list[tuple[str, dataclasses.Field[Any]]] = []
    for field in dataclasses.fields(kind):
        name = prefix + field.name
        for section in (sections := _sections(hints[field.name])):
            found += _fields_of_all(section, f"{name}.")
        if not sections:
            found.append((name, field))
    return tuple(found)


def _sections(hint: Any) -> list[Any]:
    """The kinds of section that a type hint allows; none for a plain value."""
    return [kind for kind in typing.get_args(hint) or (hint,) if dataclasses.is_dataclass(kind)]


@functools.cache
def architectures() -> Mapping[str, Any]:
    """The typed section of each `model.architecture`, the default one first."""
    kinds = _sections(typing.get_type_hints(Config)["model"])
    return {typing.get_args(typing.get_type_hints(k)["architecture"])[0]: k for k in kinds}


def help_texts() -> dict[str, str]:
    """Each dotted key, of all architectures, to the comment that params.yaml has beside it."""
    keys = _fields(typing.cast(Hashable, Config))
    return {key: field.metadata["help"] for key, field in keys.items()}


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    return _has_default(field) and bool(value == _plain(field.default))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


DEFAULTS: Mapping[str, Any] = {
    key: _plain(field.default)
    for key, field in _fields(typing.cast(Hashable, Config)).items()
    if field.default is not dataclasses.MISSING
}
"""Dotted key to plain value, of the keys that params.yaml may leave out."""

OPTIONAL = tuple(f.name for f in dataclasses.fields(Config) if f.default is not dataclasses.MISSING)
"""Sections that params.yaml may leave out, where DVC cannot look for them: code.json has them."""


# --- writing -------------------------------------------------------------------------------------


def dump(config: Config) -> str:
    """params.yaml text, each key with its help as a comment; one that has its default is a comment
    as a whole, since DVC would run stages again for a key that came."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        part = getattr(config, section.name)
        heading = getattr(part, "HELP", section.metadata["help"])
        lines += ["", f"# {heading}", f"{section.name}:", *_dump_fields(part, "  ")]
    return "\n".join(lines[1:]) + "\n"


def _dump_fields(section: Any, indent: str) -> Iterator[str]:
    for field in dataclasses.fields(section):
        value, comment = getattr(section, field.name), f"# {field.metadata['help']}"
        if dataclasses.is_dataclass(value):
            yield f"{indent}{field.name}:  {comment}"
            yield from _dump_fields(value, indent + "  ")
        elif isinstance(value, dict) and value:
            yield f"{indent}{field.name}:  {comment}"
            yield from (f"{indent}  {_flow(key)}: {_flow(item)}" for key, item in value.items())
        else:
            idle = "# " * _is_default(_plain(value), field)
            yield f"{f'{indent}{idle}{field.name}: {_flow(value)}':<34}  {comment}"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


# --- reading -------------------------------------------------------------------------------------

_hints = functools.cache(typing.get_type_hints)
"""Of a kind of section: to evaluate them is most of the work of making one."""


def section(kind: Any, values: Any, prefix: str = "", name: str = "params.yaml") -> Any:
    """A section of a kind such as `TrainConfig` from its values, with defaults for what they lack.

    `ModelConfig` is of the kind that `architecture` among the values names. prefix: `model.` for
    messages. Types are checked, ranges are not.
    """
    if values is None and prefix.rstrip(".") in OPTIONAL:  # all its keys are comments
        values = {}
    if not isinstance(values, Mapping):
        raise UserError(f"{name}: {prefix.rstrip('.')} must be a section with keys of its own")
    if len(_sections(kind)) > 1:
        options = architectures()
        architecture = values.get("architecture", next(iter(options)))
        kind = options[convert(Literal[*options], architecture, f"{prefix}architecture", name)]
    hints = _hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            known = [prefix + field for field in fields]
            architecture = values.get("architecture", next(iter(architectures())))
            raise UserError(_unknown(f"{prefix}{key}", known, name, architecture))
    built = {}
    for key, field in fields.items():
        hint, dotted = hints[key], prefix + key
        if folder := field.metadata["kinds"]:
            hint = _of_kinds(hint, folder, dotted)
        if key not in values:
            if not _has_default(field):
                raise UserError(f"{name}: missing key {dotted} ({field.metadata['help']}); add it")
            if folder:
                convert(hint, field.default, f"the default of {dotted}", "src/seq2sweep/config")
        elif _sections(hint):
            built[key] = section(hint, values[key], f"{dotted}.", name)
        else:
            built[key] = convert(hint, values[key], dotted, name)
    return kind(**built)


def _of_kinds(hint: Any, folder: str, key: str) -> Any:
    """The type of a key that names a kind, from what its field says."""
    if hint is str:
        return Literal[kinds_of_parts.names(folder)]
    if typing.get_origin(hint) is Literal and all(
        type(one) is str for one in typing.get_args(hint)
    ):
        return hint
    raise UserError(
        f"src/seq2sweep/config: the field of {key} has kinds={folder!r}, so its type must be str, "
        f"not {inspect.formatannotation(hint)}: a kind is one name, and has a file"
    )


def _unknown(key: str, known: list[str], name: str, architecture: str) -> str:
    key = key[:LONGEST_SHOWN] if key.isprintable() else shown(key)
    if keys := [k for k in known if k.startswith(f"{key}.")]:
        return f"{name}: {key} is a section; its keys are {', '.join(keys)}"
    if key.startswith("model.") and key in help_texts():
        keys = [k for k in known if k.startswith("model.")]
        return (
            f"{name}: {key} is no key of model.architecture {architecture}, whose keys are "
            f"{', '.join(keys)}"
        )
    near = did_you_mean(key, known, cutoff=0.5)
    siblings = [k for k in known if k.startswith("".join(key.rpartition(".")[:2]))]
    return f"{name}: unknown key {key}" + (near or f"; known: {', '.join(siblings or known)}")
