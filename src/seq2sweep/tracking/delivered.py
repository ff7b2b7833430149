"""How far MLflow has an outbox. Needs no mlflow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking.outbox import RECORDS, Outbox, begins_a_line, naming

DELIVERED = "delivered.json"


@dataclass
class Delivered:
    """How far MLflow has an outbox (delivered.json). Addresses are without passwords.

    position: byte of records.jsonl up to which all was applied. whole: up to which the store holds
    complete runs, which stay there when another store is chosen. refused: records that the store
    did not take, by the byte where each begins.
    """

    store: str
    experiment: str
    key: str = ""
    run_id: str | None = None
    parent_id: str | None = None
    position: int = 0
    whole: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    journal: str | None = None
    journal_offset: int = 0
    last_steps: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, box: Outbox, store: str, experiment: str) -> Delivered:
        """How far this store's experiment has an outbox."""
        store = redact(store)
        anew = cls(store, experiment)  # applying all again changes nothing
        try:
            noted = cls(**json.loads((box.folder / DELIVERED).read_text(encoding="utf-8")))
            # Power that failed may have taken records that MLflow has.
            if not begins_a_line(box.folder / RECORDS, noted.position):
                return anew
        except (FileNotFoundError, ValueError, TypeError):
            return anew
        if (noted.store, noted.experiment) == (store, experiment):
            return noted
        return cls(store, experiment, position=noted.whole, whole=noted.whole)

    def save(self, box: Outbox) -> None:
        """Note it, whole or not at all."""
        path = box.folder / DELIVERED
        with naming(path):
            write_whole(path, json.dumps(asdict(self)))
