"""What the code of each stage means, in code.json: other code, and the stage runs again.

DVC by itself compares bytes, so a comment would start a training anew. This stage runs whenever a
byte of code has changed; the others depend on what it says of them.
"""

from __future__ import annotations

from pathlib import Path

from pipeline import stage
from seq2sweep import code_fingerprint
from seq2sweep.config import Config
from seq2sweep.jobs.dvc_stages import CODE_FILE, code_of_all


def work(config: Config) -> None:
    # A folder that data is made from may hold code, as ours do.
    folder = {"folder": code_fingerprint.of_folder(Path(config.data.folder))}
    stage.write_json(Path(CODE_FILE), folder | code_of_all(Path.cwd()))


if __name__ == "__main__":
    stage.run("fingerprint", "which stages have other code than before", work)
