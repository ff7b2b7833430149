"""Table 3 of the paper: what each row changes in the preset `base`, and the figures printed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

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
    """source: where it is printed; data: what it was measured on; rows: base first, big last."""

    source: str
    data: str
    rows: tuple[Row, ...]


@functools.cache
def read() -> Table:
    """The table, in the paper's order."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    return Table(content["source"], content["data"], tuple(Row(**row) for row in content["rows"]))


def space(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """These rows as a `sweep.space` for `sweep.method` one_at_a_time, in their order."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        values = list(row.changes.values())
        found.setdefault(", ".join(row.changes), []).append(values if values[1:] else values[0])
    return found
