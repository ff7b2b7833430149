"""Stage table1: what the paper's Table 1 compares, measured on this machine.

Times never come out alike, so that this runs again for other settings or other code alone.
"""

from __future__ import annotations

from pathlib import Path

from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.stages import stage
from seq2sweep.table1.measure import measure
from seq2sweep.tracking.lineage import code, hardware


def work(config: Config) -> None:
    record = measure(config.table1, code(Path()) | hardware())
    stage.write_json(project_files.REPORTS / "table1.json", record)


if __name__ == "__main__":
    stage.run("table1", "types of layer: operations, time, memory and path lengths", work)
