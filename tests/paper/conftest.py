"""Shared by the tests of the paper's equations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seq2sweep.model import attention

from .packed import packed_attention


@pytest.fixture
def kernel_for_short_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's fused attention serves sentences as short as those of tests too, as on a GPU."""
    monkeypatch.setattr(attention, "FEW_SCORES", 0)


@pytest.fixture(params=["padded", "packed"])
def either_attention(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once each: sentences are padded for attention, as on a CPU, and stay packed, as on a GPU."""
    if request.param == "padded":
        yield
    else:
        with packed_attention():
            yield
