"""The form in which MLflow takes values; needs no mlflow."""

from __future__ import annotations

import json
import math
import numbers
import os
import re
from collections.abc import Mapping
from typing import Any

from seq2sweep.redaction import redact

LONGEST_PARAM = 6000
# MLflow 3 takes 8000 characters in a tag, older servers 5000.
LONGEST_TAG = 5000
LONGEST_DIGEST = 36


def cut(text: str, longest: int) -> str:
    """Shorten text to `longest` characters, and say so at its end."""
    if len(text) <= longest:
        return text
    note = f"... [cut, {len(text)} characters in all]"
    return text[: longest - len(note)] + note


def finite(key: str, value: Any) -> bool:
    """Whether a metric's value is finite. Raises TypeError if it is no number at all."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"metric {key} must be a number, not {value!r}")
    return math.isfinite(value)


def param_text(value: Any) -> str:
    """A parameter's value as MLflow holds it: JSON but for text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(redact(text), LONGEST_PARAM)


def relative(text: str) -> str:
    """Text with `.` for the project folder and `~` for the home folder, as others see it too."""
    for folder, short in ((os.getcwd(), "."), (os.path.expanduser("~"), "~")):
        for path in {folder, os.path.realpath(folder)} - {"/"}:
            text = re.sub(rf"(?<![\w.~-]){re.escape(path)}(?![\w-]|\.\w)", short, text)
    return text


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with passwords masked, folders relative, and long values cut with a note."""
    return {key: cut(relative(redact(value)), LONGEST_TAG) for key, value in tags.items()}
