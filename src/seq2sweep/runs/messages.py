"""What a driver and its workers tell each other: by files in a run's folder, or by a bucket."""

from __future__ import annotations

import json
from pathlib import Path

from seq2sweep.storage.atomic import write_json
from seq2sweep.storage.object_store import Bucket

CHANGES_NO_RESULT = "how the same files come to a node"

BEGUN, STOP, USER_ERROR = "begun", "stop", "user-error"
USER_ERROR_NAME = "user-error.json"
HANG_LOG_NAME = "hang-{rank}.log"


def stop_file(folder: Path, attempt: str) -> Path:
    """Appears when the workers of an attempt are to save and end."""
    return folder / f"stop-{attempt}"


def write_user_error(folder: Path, attempt: str, message: str) -> None:
    """Leave the message of a UserError that a worker of this attempt raised."""
    write_json(folder / USER_ERROR_NAME, {"attempt": attempt, "message": message})


def read_user_error(folder: Path, attempt: str) -> str | None:
    """The message of a UserError that a worker of this attempt raised."""
    try:
        content = json.loads((folder / USER_ERROR_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return str(content["message"]) if content["attempt"] == attempt else None


def hang_logs(folder: Path) -> list[Path]:
    """Each worker has one from its beginning on, empty unless it hung."""
    found = folder.glob(HANG_LOG_NAME.format(rank="*"))
    # Those of earlier hangs have a number more: hang-0.1.log.
    return sorted(path for path in found if not path.stem.rpartition(".")[2].isdigit())


class Signals:
    """Words that driver and workers of one attempt leave for each other in a bucket."""

    def __init__(self, run: Bucket, attempt: str) -> None:
        self._words = run.at(f"attempts/{attempt}")

    def tell(self, what: str, content: str = "") -> None:
        """Leave word."""
        self._words.write(what, content.encode())

    def told(self, what: str) -> str | None:
        """The word that was left; None if there is none."""
        content = self._words.read(what)
        return None if content is None else content.decode()

    def forget(self) -> None:
        """Remove all of them."""
        for name in self._words.sizes():
            self._words.delete(name)
