"""Tables, and their forms in Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Inside of words, as in d_model, underscores are none; brackets without what may follow no links.
_SPECIAL = re.compile(
    r"""[\\|`*<] | (?<![^\W_])_ | _(?![^\W_]) | \](?=[(\[:]) | &(?=\#?\w+;)""", re.VERBOSE
)


@dataclass(frozen=True)
class Table:
    """Cells as text under headings, and how to read them. words: columns that are no figures,
    besides the first."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    words: Sequence[int] = ()


def sections(tables: Iterable[Table]) -> list[str]:
    """Lines of a section for each table, with its notes as a list."""
    lines = []
    for table in tables:
        lines += ["", f"## {table.title}", "", *markdown_table(table.headings, table.rows), ""]
        lines += [f"- {note}" for note in table.notes]
    return lines


def markdown_table(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to one width, so that the text reads as a table in a terminal too."""
    cells = [[escape(cell) for cell in row] for row in (headings, *table)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return [lines[0], "| " + " | ".join("-" * width for width in widths) + " |", *lines[1:]]


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in one line: no emphasis, code, tag, link or image."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.splitlines()))


def as_csv(lines: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """The columns of these lines, and their headings; an empty cell for what is not known."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()
