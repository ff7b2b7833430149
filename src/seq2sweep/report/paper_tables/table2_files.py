"""Table 2 as files: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets.rivals import PAIRS, ROWS
from seq2sweep.report import page
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.formats import comments, tabular
from seq2sweep.report.markdown import markdown_table
from seq2sweep.report.paper_tables.table1 import Table
from seq2sweep.report.paper_tables.table2 import (
    NOT_MEASURED,
    TITLE,
    architecture_of,
    flops_of_tries,
    section,
    tables,
)


def table2_files(sweep: Mapping[str, Any] | None, dataset: str) -> dict[str, str]:
    """The text of each file by its name, from reports/sweep.json; None where none has been run.

    dataset: what was translated, in words.
    """
    found = tables(sweep)
    measured = sweep is not None and "table2" in sweep
    return {
        "table2.md": _markdown(found, measured),
        "table2.csv": _csv(sweep),
        "table2.tex": _latex(found),
        "table2.html": page.render_alone(TITLE, section(sweep, dataset)),
    }


def _markdown(found: Sequence[Table], measured: bool) -> str:
    lines = [f"# {TITLE}"]
    for table in found:
        lines += ["", f"## {table.title}", "", *markdown_table(table.headings, table.rows), ""]
        lines += [f"- {note}" for note in table.notes]
    return "\n".join([*lines, *([] if measured else ["", NOT_MEASURED]), ""])


def _latex(found: Sequence[Table]) -> str:
    lines = ["% Needs \\usepackage{booktabs} and, before LaTeX of 2018, inputenc with utf8."]
    for table in found:
        lines += ["", *comments([f"{table.title}.", *table.notes])]
        lines += tabular(table.headings, table.rows)
    return "\n".join(lines) + "\n"


def _csv(sweep: Mapping[str, Any] | None) -> str:
    """A line a row of the paper's table; the measured columns of rows that are here, empty else.

    Of a sweep of parsing there is no `paper_bleu_*`, and `f1*` in place of `bleu*`.
    """
    score = Score.of(sweep or {})
    figures = ("parameters", "valid_perplexity", *score.columns, "flops", "device_hours")
    measured = {}
    if sweep is not None and "table2" in sweep:
        measured = {architecture_of(v): v for v in aggregate(sweep)}
    tried = {
        one["variant"]: one for one in (sweep or {}).get("table2", {}).get("architectures", ())
    }
    lines = []
    for row in ROWS:
        line: dict[str, Any] = {"model": row.name, "architecture": row.architecture}
        for pair in PAIRS:
            cost = row.cost.get(pair)
            if score == BLEU:
                line[f"paper_bleu_{pair}"] = row.bleu.get(pair)
            line |= {
                f"paper_flops_{pair}": cost and cost.printed,
                f"computed_flops_{pair}": cost and cost.computed,
            }
        variant = measured.get(str(row.architecture))
        for figure in figures:
            known = variant and variant.figures[figure]
            line[figure] = known and known.mean
            line[f"{figure}_margin"] = known and known.margin
            line[f"{figure}_n"] = known and known.n
        against = variant and variant.against
        line[f"{score.name}_difference"] = against and against.difference.mean
        interval = (against and against.interval) or (None, None)
        line |= {"low": interval[0], "high": interval[1], "p": against and against.p}
        own = tried.get(variant.name, {}) if variant else {}
        line |= {"learning_rate": own.get("best"), "flops_of_tries": flops_of_tries(own) or None}
        line["status"] = variant and variant.status
        lines.append(line)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()
