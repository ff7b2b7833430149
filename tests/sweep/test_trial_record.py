"""What is known of a trial by its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2sweep.config import Config
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.trial_record import TrialRecord
from seq2sweep.sweep.variants import variants
from seq2sweep.train import checkpointing
from tests.cluster.checkpoints import damage, save


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of checkpoints that are read and summed, in order."""
    found, verify = list[str](), checkpointing.verify

    def counted(place: Path) -> None:
        found.append(place.name)
        verify(place)

    monkeypatch.setattr(checkpointing, "verify", counted)
    return found


def test_a_checkpoint_is_verified_once(
    tiny_config: Config, tmp_path: Path, verified: list[str]
) -> None:
    """As the rounds of a search ask for it, each with records of its own."""
    [variant, *_], _ = variants(tiny_config)
    places = [save(tmp_path / f"step-0000000{step}", step) for step in (4, 8)]

    def newest() -> Path | None:
        return TrialRecord.open(variant, RunStore(tmp_path), "none", "", False).checkpoint()

    assert [newest(), newest()] == [places[1]] * 2
    assert verified == ["step-00000008"]
    damage(places[1])
    assert newest() == places[0]
    assert verified[1:] == ["step-00000008", "step-00000004"]
