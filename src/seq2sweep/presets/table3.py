"""Table 3 of the paper: what each row changes in the preset `base`, and the figures printed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from seq2sweep.errors import UserError, did_you_mean

FILE = "table3.yaml"


@dataclass(frozen=True)
class Row:
    """One row; `group` is base, A to E, or big.

    changes: dotted keys of params.yaml; perplexity (per word piece) and bleu are of newstest2013;
    parameters_millions: None where the table prints nothing.
    """

    group: str
    name: str
    changes: dict[str, Any]
    perplexity: float
    bleu: float
    parameters_millions: int | None


@dataclass(frozen=True)
class Table:
    """source: where it is printed; data: what it was measured on; base: the values of the base row
    that others change, by dotted key; rows: base first, big last."""

    source: str
    data: str
    base: dict[str, Any]
    rows: tuple[Row, ...]


@functools.cache
def read() -> Table:
    """The table, in the paper's order."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    return Table(**content | {"rows": tuple(Row(**row) for row in content["rows"])})


def select(names: Sequence[str]) -> list[Row]:
    """The named rows, groups of rows, or `all`; each once, in the paper's order.

    Raises UserError for a name that is none of these, with the nearest that is.
    """
    rows = read().rows
    known = ["all", *dict.fromkeys(name for row in rows for name in (row.group, row.name))]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, cutoff=0.4) or f"; known: {', '.join(known)}"
            raise UserError(f"params.yaml: sweep.rows: Table 3 has no row or group {name}{hint}")
    return [row for row in rows if {"all", row.group, row.name} & set(names)]
