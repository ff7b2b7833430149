"""Shared by the tests of the paper's equations."""

from __future__ import annotations

import pytest

from seq2sweep.model import attention


@pytest.fixture
def kernel_for_short_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's fused attention serves sentences as short as those of tests too, as on a GPU."""
    monkeypatch.setattr(attention, "FEW_SCORES", 0)
