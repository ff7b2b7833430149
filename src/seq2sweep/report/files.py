"""Table 3 of a sweep as files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep.report import formats, numbers, page
from seq2sweep.report.table import tables


def table_files(
    sweep: Mapping[str, Any] | None, dataset: str, vocabulary_size: int | None
) -> dict[str, str]:
    """The text of each file by its name, from reports/sweep.json; None where none has been run.

    dataset: what was translated, in words.
    """
    found = None if sweep is None else tables(sweep, dataset, vocabulary_size)
    return {
        "table3.md": formats.markdown(found),
        "table3.csv": numbers.csv_text(sweep),
        "table3.tex": formats.latex(found),
        "table3.html": page.render_tables(found, dataset),
    }
