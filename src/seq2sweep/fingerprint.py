"""What Python code means, as a hash: what changes no result does not change it."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_OF_NO_MEANING = {"ctx", "kind", "type_comment", "type_ignores"}
"""Fields of syntax trees that repeat what their place says, or that only type checkers read."""


def of_code(files: Iterable[Path]) -> str:
    """sha256 (hex) of Python files by their meaning.

    Comments, docstrings, layout, the places of files and their imports are not in it, so code that
    is moved is the same; and it is the same on every version of Python that can read the files.
    Raises SyntaxError for one that is no Python.
    """
    parts = sorted(_of_text(file.read_text(encoding="utf-8")) for file in files)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _of_text(text: str) -> str:
    tree = json.dumps(_plain(ast.parse(text)), ensure_ascii=True)
    return hashlib.sha256(tree.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A syntax tree as nested lists, without empty fields, which later versions of Python add."""
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_idle(item)]
    if isinstance(value, ast.AST):
        fields = dict(ast.iter_fields(value))
        if isinstance(value, ast.JoinedStr):  # Python 3.12 alone adds empty texts
            fields["values"] = [part for part in value.values if not _is_empty(part)]
        return [
            type(value).__name__,
            *(
                [name, _plain(field)]
                for name, field in fields.items()
                if name not in _OF_NO_MEANING and field is not None and field != []
            ),
        ]
    return [type(value).__name__, repr(value)]


def _is_empty(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value == ""


def _is_idle(node: Any) -> bool:
    """Docstrings, texts below what they describe, and imports."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
