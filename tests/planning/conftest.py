"""Presets, their made-up lengths, and a project's folder to plan in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import hardware, presets
from seq2sweep.config import Config
from seq2sweep.data.sources import REGISTRY
from seq2sweep.planning import workload

ROOT = Path(__file__).parents[2]


def preset(name: str, **changes: Any) -> Config:
    return configuration.with_changes(presets.load(name).config, changes)


def load_of(name: str, pairs: int) -> workload.Workload:
    config = preset(name)
    held_out = {"valid": 1000, "test": 1000} if name == "phrasebook" else {}
    return workload.workload(config, {"train": pairs} | held_out, None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the table of devices, params.yaml of base, and no dvc.yaml."""
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra/prices.yaml", tmp_path / "infra")
    write(tmp_path, "base")
    monkeypatch.chdir(tmp_path)
    # Fewer made-up sentences are planned sooner, in updates with more padding.
    monkeypatch.setattr(workload, "MOST_PAIRS", 20_000)
    return tmp_path


def write(project: Path, name: str, **changes: Any) -> None:
    folder = {} if name.startswith("phrasebook") else {"data.folder": str(REGISTRY)}
    text = configuration.dump(preset(name, **folder | changes))
    (project / "params.yaml").write_text(text, encoding="utf-8")


def record_run(folder: Path, *, tokens_per_update: float = 100.0, **figures: Any) -> None:
    """A journal as a training on the CPUs here leaves it, with these figures of its end.

    tokens_per_update: of both sides, of which there are 2000.
    """
    end = {
        "kind": "finished",
        "step": 2000 / tokens_per_update,
        "time": 1_763_640_000.0,  # 2025-11-20
        "flops": 4e6 * 2000,
        "source_tokens": 1000,
        "target_tokens": 1000,
        "flops_per_second": 1e10,
        "workers": 2,
        "threads": 1,
        "device": "CPU",
        "precision": "float32",
        "cpu_features": hardware.cpu_features(),
        "train_seconds": 360.0,
        "device_hours": 0.1 * (figures.get("workers") or 2),
    }
    folder.mkdir(parents=True)
    lines = [{"kind": "logged", "step": 1, "time": 0.0}, end | figures]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "journal.jsonl").write_text(text, encoding="utf-8")
