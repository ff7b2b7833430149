"""Which stages of dvc.yaml will run, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.errors import first_of
from seq2sweep.jobs import dvc_stages as dvc
from seq2sweep.project_files import PARAMS

NEVER = "has not run yet"
MOST_REASONS = 3
"""Shown of a stage; the others are counted."""
LONGEST_VALUE = 30


@dataclass(frozen=True)
class Stage:
    """why: what has changed, or the stage that it follows; empty where nothing is to be done."""

    name: str
    runs: bool
    why: str


def stages(project: Path) -> list[Stage] | None:
    """The stages in the order of dvc.yaml; None where there is no dvc.yaml to ask.

    DVC is asked for its status, which changes no file of the project. It may still restore a
    stage that it says has changed from its cache, if that ran before with the same inputs.

    Raises OperationalError when DVC cannot say, UserError when one of its files is damaged.
    """
    if not (project / "dvc.yaml").exists():
        return None
    changed, made = dvc.changes(project), dvc.sums(project)
    path = project / PARAMS
    now = configuration.to_dict(configuration.load(path)) if path.exists() else {}
    found: dict[str, Stage] = {}
    for name in dvc.described(project):
        if name == dvc.FINGERPRINT:  # what it will say of the others is told with them
            continue
        # A stage may name both a section and a key of it.
        told = _reasons(changed.get(name, ()), dvc.params(project, name), now)
        reasons = list(dict.fromkeys(told))
        if not made.keys() & set(dvc.outputs(project, name)):
            reasons.insert(0, NEVER)
        before = [
            maker
            for maker in dict.fromkeys(dvc.inputs(project, name).values())
            if maker in found and found[maker].runs
        ]
        found[name] = Stage(name, bool(reasons or before), _why(reasons, before))
    return list(found.values())


def _why(reasons: list[str], before: list[str]) -> str:
    if NEVER in reasons:
        return NEVER
    if reasons and not all(reason.startswith("data/") for reason in reasons):
        return first_of(reasons, MOST_REASONS)
    # That the data of an earlier stage are gone or new says the same, less clearly.
    return f"follows {', '.join(before)}" if before else ", ".join(reasons[:MOST_REASONS])


def _reasons(
    changed: Iterable[Any], before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[str]:
    """`model.dropout 0.1 -> 0.2`, `models/train deleted`, of one stage's part of `dvc status`.

    before, now: what it ran with and what params.yaml holds.
    """
    for entry in changed:
        if not isinstance(entry, Mapping):
            yield str(entry)
            continue
        for found in entry.values():
            for path, what in found.items():
                if not isinstance(what, Mapping):
                    yield f"{path} {what}"
                    continue
                for key, how in what.items():
                    value: Any = now
                    for part in key.split("."):
                        value = value.get(part) if isinstance(value, Mapping) else None
                    yield from _differences(key, before.get(key), value) or [f"{key} {how}"]


def _differences(key: str, before: Any, now: Any) -> list[str]:
    """What differs under a key, by dotted keys; nothing where it was not there before."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [
            line
            for inner in dict.fromkeys([*before, *now])
            if before.get(inner) != now.get(inner)
            for line in _differences(f"{key}.{inner}", before.get(inner), now.get(inner))
        ]
    before = configuration.DEFAULTS.get(key) if before is None else before
    shown = [
        text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."
        for text in map(str, (before, now))
    ]
    return [] if before in (None, now) else [f"{key} {' -> '.join(shown)}"]
