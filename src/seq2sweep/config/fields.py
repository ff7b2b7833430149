"""What a key of params.yaml is made of: its help, its default if it has one, and its rules."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from seq2sweep.redaction import redact

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words, and whether one is that."""

LONGEST_SHOWN, SHOWN_VALUES = 200, 100
"""Characters, and values of a list, of what error messages show of a value."""


def field(
    help_text: str,
    at_least: int | None = None,
    *,
    rule: Rule | None = None,
    kinds: str | None = None,
    result: bool = True,
    by_length: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """A key; the help text becomes the comment beside it in params.yaml.

    at_least, rule: what its value must be, null left out. kinds: the folder of `seq2sweep/model`
    whose modules are what it may name. result: whether another value can change what comes out.
    by_length: whether with another value than the default a step depends on how many there are.
    default: the value where params.yaml leaves the key out; it enters no identity, so that results
    from before there was the key stay current.
    """
    rules = []
    if at_least is not None:
        rules.append((f"at least {at_least}", lambda value: value >= at_least))
    if rule is not None:
        rules.append(rule)
    metadata = {"help": help_text, "rules": rules, "kinds": kinds, "result": result}
    metadata["by_length"] = by_length
    return dataclasses.field(default=default, metadata=metadata)


def must(key: str, rule: str, value: Any) -> str:
    """The problem of a dotted key whose value breaks a rule."""
    return f"{key} must be {rule}, not {shown(value)}"


def shown(value: Any) -> str:
    """A value in an error message: on one line, and not endless."""
    text = repr(value) if not isinstance(value, list | tuple) else repr(value[:SHOWN_VALUES])
    text = redact(text)  # first: half a password has no @ behind it
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def is_address(text: str) -> bool:
    """Whether a text begins as an address (https://, s3://) that can be taken apart."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def is_language(code: str) -> bool:
    """Whether a text is a language code of two letters (ISO 639-1), perhaps with a region."""
    return re.fullmatch("[A-Za-z]{2}([-_][A-Za-z0-9]+)*", code) is not None


ABOVE_0: Rule = ("above 0", lambda value: value > 0)
SHARE: Rule = ("in [0, 1)", lambda value: 0 <= value < 1)
NOT_EMPTY: Rule = ("not empty", lambda value: bool(value.strip()))
SEED: Rule = ("below 2147483648", lambda value: value < 2**31)
PATH: Rule = (
    "a path, without ~ for a home, with names of at most 255 bytes",
    lambda value: (
        bool(value.strip())
        and not value.startswith("~")
        and max(map(len, value.encode().split(b"/"))) <= 255
    ),
)
"""Longer names no file system here takes; a folder called ~ is no home."""


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


PLAIN: Rule = ("made of texts, numbers, true, false, null and lists, without dates", _is_plain)
"""Of YAML what can be recorded."""


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that is no mapping, by its dotted key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}".removeprefix("."))
    else:
        yield key, value
