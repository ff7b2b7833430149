"""What `seq2sweep table1` finds, as one JSON object: `python -m benchmarks.table1`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2sweep.config import Table1Config
from seq2sweep.report.paper_tables.table1 import tables
from seq2sweep.table1.measure import FULL, measure
from seq2sweep.tracking import lineage


def figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of each table, row by row, and what is known of the measuring itself."""
    known = ("seconds", "load", "cpu_share", "threads", "clock")
    about = {key: record["about"][key] for key in known}
    return {"about": about} | {
        table.title: {"headings": table.headings, "rows": table.rows} for table in tables(record)
    }


def main() -> None:
    """Measure the whole set; the object is all that is printed."""
    record = measure(Table1Config(**FULL), lineage.code(Path()) | lineage.hardware())
    print(json.dumps(figures(record), ensure_ascii=False))


if __name__ == "__main__":
    main()
