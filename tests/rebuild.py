"""params.yaml once more, from what a run's records say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config


def from_params(params: Mapping[str, str]) -> Config:
    """Of the parameters of a run in MLflow, which are texts by dotted key."""
    values: dict[str, Any] = {}
    for key, text in params.items():
        *path, last = key.split(".")
        section = values
        for part in path:
            section = section.setdefault(part, {})
        try:
            section[last] = json.loads(text)
        except ValueError:
            section[last] = text
    return configuration.from_dict(values)


def from_sweep(report: Mapping[str, Any], trial: Mapping[str, Any]) -> Config:
    """Of reports/sweep.json, and one of its trials."""
    sections = {"model": trial["model"], "train": trial["train"]}
    return configuration.from_dict(report["config"] | sections)
