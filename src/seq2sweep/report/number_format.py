"""Numbers as people write them, the same in Markdown, HTML and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING = "–"
LARGE = 1e6
"""From here on only powers of ten are read: the perplexity of a training that diverged."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fixed(value: float | None, decimals: int) -> str:
    """`4.917` with 2 decimals is `4.92`, `-0.917` is `−0.92`; what is shown as `0.00` has no sign.

    A dash for a figure that does not exist; LARGE ones as `powers`.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:z.{decimals}f}".replace("-", "−")
    return text if abs(value) < LARGE else powers(value)


def signed(value: float | None, decimals: int) -> str:
    """A difference: `+0.37`, `−0.90`, `0.00` without a sign."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = fixed(abs(value), decimals)
    if abs(value) < LARGE and float(text) == 0:
        return text
    return ("+" if value > 0 else "−") + text


def whole(value: float | None) -> str:
    """`1234567` becomes `1 234 567`, with narrow spaces that do not break."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:,.0f}".replace(",", "\u202f")


def millions(value: float | None) -> str:
    """Parameters in units of 10^6: `65` or, when small, `0.83`."""
    if value is None:
        return MISSING
    scaled = value / 1e6
    return fixed(scaled, 0 if scaled >= 20 else 1 if scaled >= 10 else 2)


def powers(value: float | None) -> str:
    """`3.28e18` becomes `3.3 × 10¹⁸`."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    mantissa = mantissa.replace("-", "−")
    return f"{mantissa}\u202f×\u202f10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def percent(share: float | None, decimals: int = 1) -> str:
    """A share of one: `0.0512` becomes `5.1 %`."""
    return MISSING if share is None else f"{fixed(100 * share, decimals)}\u202f%"


def plain(value: object) -> str:
    """A setting as params.yaml would show it: `0.1`, `512`, `learned`, `true`."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def p_value(p: float | None) -> str:
    """`0.0312` becomes `0.031`; what is smaller than three decimals show, `< 0.001`.

    What is below 0.05, and so is seen, is shown below it: `0.0498`.
    """
    if p is None:
        return MISSING
    if 0.0495 <= p < 0.05:
        return f"{p:g}"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def decoding(evaluate: Mapping[str, Any]) -> str:
    """`beam 4, α 0.6`, of metrics/evaluate.json; the kind of length penalty where it is not the
    paper's, by which α is of another rule."""
    kind = evaluate.get("length_penalty", "paper")
    named = "" if kind == "paper" else f" (length penalty {kind})"
    return f"beam {plain(evaluate['beam'])}, α {plain(evaluate['alpha'])}{named}"
