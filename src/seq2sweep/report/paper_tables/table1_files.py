"""Table 1 measured as files: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from seq2sweep.report import page
from seq2sweep.report.formats import comments, tabular
from seq2sweep.report.markdown import markdown_table
from seq2sweep.report.paper_tables.table1 import section, tables, where
from seq2sweep.report.paper_tables.table1_record import BOTH, FORWARD

TITLE = "Table 1, measured"


def table1_files(record: Mapping[str, Any]) -> dict[str, str]:
    """The text of each file by its name, from reports/table1.json."""
    return {
        "table1.md": markdown(record),
        "table1.csv": csv_text(record),
        "table1.tex": latex(record),
        "table1.html": page.render_alone(TITLE, section(record)),
    }


def markdown(record: Mapping[str, Any]) -> str:
    """reports/table1.md."""
    lines = [f"# {TITLE}", "", where(record)]
    for table in tables(record):
        lines += ["", f"## {table.title}", "", *markdown_table(table.headings, table.rows), ""]
        lines += [f"- {note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def csv_text(record: Mapping[str, Any]) -> str:
    """reports/table1.csv: a line a layer, n and d, with all that was measured there."""
    lines = []
    for m in record["measurements"]:
        line = {key: value for key, value in m.items() if key not in (FORWARD, BOTH)}
        for what in (FORWARD, BOTH):
            line |= {f"{what}_{key}": value for key, value in m[what].items()}
        lines.append(line)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def latex(record: Mapping[str, Any]) -> str:
    """reports/table1.tex: a tabular for each table, to be taken in by \\input; needs booktabs."""
    lines = [
        "% Needs \\usepackage{booktabs} and, before LaTeX of 2018, inputenc with utf8.",
        *comments([where(record)]),
    ]
    for table in tables(record):
        lines += ["", *comments([f"{table.title}.", *table.notes])]
        lines += tabular(table.headings, table.rows)
    return "\n".join(lines) + "\n"
