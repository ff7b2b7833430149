"""A value that YAML has read, as the type of its key has it."""

from __future__ import annotations

import contextlib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from seq2sweep.config.fields import must
from seq2sweep.errors import UserError, did_you_mean

WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text (in quotes if YAML reads it as something else)",
    dict[str, Any]: "a mapping, such as {}",
    tuple[str, ...]: "a list of texts",
    tuple[int, ...]: "a list of whole numbers",
    tuple[float, ...]: "a list of numbers",
}
"""What a value of a type must be, in an error message."""


def convert(hint: Any, value: Any, key: str, name: str) -> Any:
    """A value as its field has it. Raises UserError for one of another type."""

    def wrong(expected: str, options: Sequence[str] = (), odd: Any = None) -> UserError:
        near = did_you_mean(odd, options) if isinstance(odd, str) else ""
        words = expected + ", ".join(options) + near
        return UserError(f"{name}: {must(key, words, value)}")

    named: tuple[Any, ...] = ()  # in the place of a value of the type, as auto may be
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint, other = typing.get_args(hint)
        named = typing.get_args(other)
        if value in (named or (None,)):
            return value
    simple = WORDS.get(hint, str(hint)) + " or " * bool(named), named, value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in inner:
            raise wrong("one of ", inner, value)
    elif origin is tuple:
        kind, options = inner[0], typing.get_args(inner[0])
        listed = isinstance(value, list | tuple)
        items = [_number(i) if kind is float else i for i in (value if listed else [value])]
        odd = [i for i in items if (i not in options if options else type(i) is not kind)]
        if odd or not listed:
            each = ("a list, each one of ", options, next(iter(odd), None))
            raise wrong(*each) if options else wrong(*simple)
        value = tuple(items)
    elif origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise wrong(*simple)
        value = dict(value)
    elif hint is float:
        if (number := _number(value)) is None:
            raise wrong(*simple)
        return number
    # type, not isinstance: true and false are no whole numbers here.
    elif type(value) is not hint:
        raise wrong(*simple)
    if any(isinstance(i, str) and "\n" in i for i in (value if origin is tuple else [value])):
        raise wrong("text of one line")
    return value


def _number(value: Any) -> float | None:
    """A finite one, or None; YAML 1.1 reads 1e-4 (no dot) as text."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and math.isfinite(number := float(value)):
            return number
    return None
