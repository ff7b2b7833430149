"""Sweeps of translation that never ran, as if they had been of parsing with the same scores."""

from __future__ import annotations

import copy
from typing import Any

SIGNATURE = "EVALB, COLLINS.prm"


def of_parsing(record: dict[str, Any]) -> dict[str, Any]:
    """reports/sweep.json with F1 where it had BLEU."""
    record = copy.deepcopy(record) | {"score": "f1"}
    for trial in record["trials"]:
        for name in ("bleu_paper", "chrf"):
            trial.pop(name, None)
        f1 = trial["f1"] = trial.pop("bleu")
        known = f1 is not None
        trial["precision"], trial["recall"] = (f1 + 1, f1 - 1) if known else (None, None)
        trial["complete"] = f1 / 2 if known else None
        trial["signature"] = SIGNATURE if known else None
    for one in (record.get("significance") or {}).values():
        one["f1_difference"] = one.pop("bleu_difference")
    if record.get("by_length"):
        record["by_length"]["f1"] = record["by_length"].pop("bleu")
        record["by_length"]["signature"] = SIGNATURE
    for objective in record.get("objectives", []):
        if objective["name"] == "bleu":
            objective |= {"name": "f1", "figure": "f1"}
    return record
