"""params.yaml and the installed packages once more, from what a run's records say of them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
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


def missing(environment: str) -> list[str]:
    """Packages of a recorded environment.txt that pip finds here in no or another version."""
    here = _here()
    wanted = dict(line.split("==") for line in environment.splitlines())
    return [name for name, version in wanted.items() if here.get(name) != version]


@functools.cache
def _here() -> dict[str, str]:
    """Versions of the packages that pip finds here."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        one["name"].lower().replace("_", "-").replace(".", "-"): one["version"]
        for one in json.loads(done.stdout)
    }
