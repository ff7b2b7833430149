from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_power_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are killed here and disks are full: what they wrote before need not be flushed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
