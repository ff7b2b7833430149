"""The templates of the report: Jinja, which escapes all text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from seq2sweep.report.number_format import fixed, millions, percent, powers, signed, whole

OWN = Path(__file__).parent


def render(template: str, **context: Any) -> str:
    """The text that a template of this name makes."""
    return environment().get_template(template).render(context)


def environment(folder: Path = OWN, autoescape: bool = True) -> jinja2.Environment:
    """Of all templates of a folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _code,
        **{made.__name__: made for made in (fixed, millions, percent, powers, signed, whole)},
    }
    return environment


def _code(text: str) -> Markup:
    """A sentence of the tables; what stands in `backticks` becomes <code>."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))
