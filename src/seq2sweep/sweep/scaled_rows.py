"""The rows of Table 3 at the size of another base model, by the paper's own ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.presets import table3

SIZES = (
    "model.layers",
    "model.d_model",
    "model.d_ff",
    "model.heads",
    "model.d_k",
    "model.d_v",
    "train.steps",
)
"""Keys whose value in a row means a multiple of the base model's; others are taken as they are."""


def scaled(
    names: Sequence[str], base: Config
) -> Iterator[tuple[table3.Row, dict[str, Any], str | None]]:
    """What the paper's rows change in the base at hand, and why one cannot be.

    The rows that `names` select (`table3.select`), each with its values sized to `base`.

    A value that does not come out whole is a float, and the row's problem says what base has it.
    """
    if base.model.architecture != "transformer":
        raise UserError(
            "params.yaml: sweep.method table3 varies the Transformer, and model.architecture is "
            f"{base.model.architecture}: choose another method, such as one_at_a_time"
        )
    ours, paper = configuration.flatten(base), table3.read().base
    for row in table3.select(names):
        changes = dict(row.changes)
        problems = []
        for key in row.changes.keys() & set(SIZES):
            value = Fraction(row.changes[key] * ours[key], paper[key])
            changes[key] = int(value) if value.denominator == 1 else float(value)
            if value.denominator > 1:
                fitting = paper[key] // gcd(paper[key], row.changes[key])
                problems.append(
                    f"{key} would be {changes[key]:g}: the base must have a multiple of {fitting}"
                )
        yield row, changes, "; ".join(sorted(problems)) or None
