"""reports/translations.tsv: each test sentence with its reference, translation and phenomena."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seq2sweep.data.files import TRANSLATION_COLUMNS
from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError


def translations_table(
    sources: Sequence[str],
    references: Sequence[str],
    translations: Sequence[str],
    tags: Sequence[Sequence[str]] | None,
) -> str:
    """The text of the file; a tab inside a cell becomes a space."""
    all_tags = [" ".join(t) for t in tags] if tags is not None else [""] * len(sources)
    rows = [TRANSLATION_COLUMNS, *zip(sources, references, translations, all_tags, strict=True)]
    return "".join("\t".join(cell.replace("\t", " ") for cell in row) + "\n" for row in rows)


def table_rows(table: str) -> list[list[str]]:
    """The cells of each row of such a text: a row ends at "\\n" and nowhere else, as sentences may
    hold other characters that `str.splitlines` cuts at."""
    return [line.split("\t") for line in table.removesuffix("\n").split("\n")]


def read_table(path: Path) -> list[list[str]]:
    """The four cells of each row below the header. Raises UserError where the file is another."""
    header, *rows = [line.split("\t") for line in read_lines(path)] or [[]]
    if tuple(header) != TRANSLATION_COLUMNS or any(len(row) != len(header) for row in rows):
        raise UserError(
            f"{path} must have the columns {', '.join(TRANSLATION_COLUMNS)}: "
            "remove it and run `dvc repro`"
        )
    return rows
