"""Table 2 as files: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets.rivals import PAIRS, ROWS
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.formats import as_csv, paper_files
from seq2sweep.report.paper_tables.table2 import (
    NOT_MEASURED,
    TITLE,
    architecture_of,
    flops_of_tries,
    section,
)


def table2_files(sweep: Mapping[str, Any] | None, dataset: str) -> dict[str, str]:
    """The text of each file by its name, from reports/sweep.json; None where none has been run.

    dataset: what was translated, in words.
    """
    measured = sweep is not None and "table2" in sweep
    ending = [] if measured else [NOT_MEASURED]
    return paper_files("table2", TITLE, section(sweep, dataset), _csv(sweep), ending=ending)


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
    return as_csv(lines, lines[0])
