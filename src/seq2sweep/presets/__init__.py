"""Ready experiments: a preset is a YAML file here, full or as differences from another.

`about` tells what to expect of it, `extends` names the preset it starts from and `changes` holds
dotted keys; the root preset `phrasebook` holds the full `params` instead.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from seq2sweep import config as configuration
from seq2sweep.errors import UserError


@dataclass(frozen=True)
class Preset:
    """A named experiment with what its user may expect."""

    name: str
    summary: str
    bleu: str
    time: str
    hardware: str
    config: configuration.Config


def names() -> list[str]:
    """Names of all presets, sorted."""
    files = resources.files(__package__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load(name: str) -> Preset:
    """Read a preset; an unknown name is a UserError with the nearest known one."""
    content = _read(name)
    about = content["about"]
    return Preset(
        name, about["summary"], about["bleu"], about["time"], about["hardware"], _config(name)
    )


def _read(name: str) -> dict[str, Any]:
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f", did you mean {close[0]}?" if close else ""
        raise UserError(f"unknown preset {name}{hint}; known: {', '.join(known)}")
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def _config(name: str) -> configuration.Config:
    content = _read(name)
    where = f"preset {name}"
    if "extends" in content:
        base = _config(content["extends"])
        return configuration.with_changes(base, content["changes"], where)
    return configuration.from_dict(content["params"], where)
