"""Each message that docs/messages.md lists is one that the program can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/messages.md"
PLACEHOLDER = re.compile(r"<[^<>]+>")
FOLDERS = ("src/seq2sweep", "pipeline")
VALUE = "\0"
"""What stands in a text of the code for a value that is put in, so that no fragment spans it."""


def listed(page: str) -> list[str]:
    """The messages of a page: the first cell of each row of its tables, in backticks."""
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def fragments(message: str) -> list[str]:
    """What stands between the placeholders."""
    return [text for text in PLACEHOLDER.split(message) if text.strip()]


def texts(source: str) -> Iterator[str]:
    """The texts of a module, an f-string as one; without docstrings, which nobody is shown."""
    tree = ast.parse(source)
    hidden = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            # Its parts; texts inside of its values are texts of their own.
            hidden |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def printed() -> str:
    """All texts of the program, none of which runs into the next."""
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return VALUE.join(text for path in files for text in texts(path.read_text(encoding="utf-8")))


def unknown(message: str) -> list[str]:
    """The fragments of a message that are in no text of the program."""
    return [fragment for fragment in fragments(message) if fragment not in printed()]


MESSAGES = listed(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("message", MESSAGES)
def test_a_listed_message_is_in_the_code(message: str) -> None:
    assert unknown(message) == []
    # Else it would prove nothing: a comma is in any code.
    assert max(map(len, fragments(message))) >= len(" must be ")


def test_every_row_is_read_and_none_is_listed_twice() -> None:
    rows = re.findall(r"^\| (?!message)(.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(MESSAGES) == len(rows) >= 60
    assert len(set(MESSAGES)) == len(MESSAGES)


def test_a_message_that_nobody_prints_is_found() -> None:
    assert unknown("<file> is damaged (<reason>): throw it away and run <command>") == [
        "): throw it away and run "
    ]
    assert unknown("training failed: <cause>; stack traces are in <file>; have a nice day") == [
        "; have a nice day"
    ]


def test_texts_are_those_that_a_person_can_be_shown() -> None:
    source = '"""Of a module."""\nA = f"has {n} of " f"{a or \'none\'}: " "mend"\nB = "plain"\n'
    assert list(texts(source)) == [f"has {VALUE} of {VALUE}: mend", "plain", "none"]
