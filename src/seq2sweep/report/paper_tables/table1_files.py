"""Table 1 measured as files: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep.report.formats import as_csv, paper_files
from seq2sweep.report.paper_tables.table1 import section
from seq2sweep.report.paper_tables.table1_record import BOTH, FORWARD

TITLE = "Table 1, measured"


def table1_files(record: Mapping[str, Any]) -> dict[str, str]:
    """The text of each file by its name, from reports/table1.json."""
    shown = section(record)
    return paper_files("table1", TITLE, shown, _csv(record), about=[shown["where"]])


def _csv(record: Mapping[str, Any]) -> str:
    """A line a layer, n and d, with all that was measured there."""
    lines = []
    for m in record["measurements"]:
        line = {key: value for key, value in m.items() if key not in (FORWARD, BOTH)}
        for what in (FORWARD, BOTH):
            line |= {f"{what}_{key}": value for key, value in m[what].items()}
        lines.append(line)
    return as_csv(lines, lines[0])
