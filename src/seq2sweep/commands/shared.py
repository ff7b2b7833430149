"""What the subcommands have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from seq2sweep import yaml_text
from seq2sweep.errors import UserError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What add_subparsers gives; it has no public name."""


def add_set(command: argparse.ArgumentParser, about: str) -> None:
    """`--set KEY=VALUE`, which `changes` reads; about: what it does, with an example."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{about} (again for more)",
    )


def print_json(value: Any) -> None:
    """On standard output, for people and for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def changes(assignments: Sequence[str]) -> dict[str, object]:
    """The values that `--set KEY=VALUE` asks for, by key. Raises UserError."""
    changes = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise UserError(f"--set wants KEY=VALUE, not {assignment}")
        try:
            changes[key] = yaml_text.read_yaml(text)
        except yaml_text.ERRORS as error:
            raise UserError(yaml_text.problem(error, f"--set {key}={text}")) from None
    return changes
