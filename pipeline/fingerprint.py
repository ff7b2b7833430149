"""What the code of each stage means, in code.json: other code, and the stage runs again.

DVC by itself compares bytes, so a comment would start a training anew. This stage runs whenever a
byte of code has changed; the others depend on what it says of them.
"""

from __future__ import annotations

from pathlib import Path

from seq2sweep.config import Config
from seq2sweep.jobs import dvc_stages
from seq2sweep.stages import stage


def work(config: Config) -> None:
    stage.write_json(Path(dvc_stages.CODE_FILE), dvc_stages.meaning(Path.cwd(), config))


if __name__ == "__main__":
    stage.run("fingerprint", "which stages have other code than before", work)
