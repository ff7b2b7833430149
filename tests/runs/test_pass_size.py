"""`train.tokens_per_pass: auto`: one number for all workers of a run, from its start to its end."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.model import flops
from seq2sweep.runs import pass_size
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.train import footprint
from seq2sweep.train.events import CheckpointDue, Sized
from seq2sweep.train.loop import train
from tests.conftest import Corpus
from tests.processes import run_together

CPU = torch.device("cpu")


@pytest.fixture
def auto(tiny_config: Config) -> Config:
    """Updates of 600 tokens, of unlike dropout in each pass."""
    changes = {"train.tokens_per_pass": "auto", "train.tokens_per_update": 600, "train.steps": 4}
    return configuration.with_changes(tiny_config, changes | {"model.dropout": 0.2})


def longest_of(encoded: Path) -> int:
    """Tokens of the longest sentence to train on or to validate with."""
    splits = [Bitext.open(encoded, split) for split in ("train", "valid")]
    sides = [side for each in splits for side in (each.source_lengths, each.target_lengths)]
    return max(int(side.max()) for side in sides)


def room_for(config: Config, encoded: Path, tokens: int, workers: int = 1) -> float:
    """Free memory in which a pass of so many tokens just fits."""
    bitext, longest = Bitext.open(encoded, "train"), longest_of(encoded)
    per_token = max(
        sum(flops.kept_bytes(config.model, (n, n), 4, False)) for n in range(1, longest + 1)
    )
    size = int(bitext.header["vocabulary"]["size"])
    found = footprint.memory(
        *(config, size, per_token, tokens),
        longest=longest,
        workers=workers,
        precision="float32",
        gpu=False,
    )
    return found.needed / (1 - footprint.MARGIN) + 1


def test_a_number_is_taken_as_it_is(tiny_config: Config, tiny_corpus: Corpus) -> None:
    given = tiny_config, tiny_corpus.encoded, CPU
    assert pass_size.decide(*given, sharers=1, known=None) == (tiny_config, None)


def test_it_is_decided_once_and_kept(
    auto: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(free: float, step: int = 0) -> tuple[Config, Sized | None]:
        monkeypatch.setattr(pass_size, "free_bytes", lambda device, sharers: free / sharers)
        known = pass_size.recorded(auto, tmp_path)
        return pass_size.decide(
            *(auto, tiny_corpus.encoded, CPU), sharers=2, known=known, step=step
        )

    plenty, little = (2 * room_for(auto, tiny_corpus.encoded, tokens) for tokens in (300, 200))
    assert pass_size.recorded(auto, tmp_path) is None
    config, said = decide(plenty)
    assert config.train.pass_tokens == 300
    assert config == auto.sized(300)
    assert said == Sized(
        0, {"tokens_per_pass": 300, "fitting_tokens": 300, "free_bytes": plenty / 2}
    )
    assert pass_size.in_words(said.metrics) == (
        f"train.tokens_per_pass auto: 300 tokens, with {plenty / 2e9:.1f} GB free for a worker"
    )
    # Of a run that began with a number, behind its lines: a trial is as far as its last one says.
    assert decide(plenty, step=4)[1] == Sized(4, said.metrics)
    journal = Journal(tmp_path / JOURNAL_NAME)
    journal.append(said)
    # It resumes with more memory, and with less: as it began.
    assert decide(100e9, step=4) == (auto.sized(300), None)
    config, said = decide(little, step=4)
    assert config == auto.sized(300)
    assert said is not None
    assert (said.step, said.metrics["fitting_tokens"]) == (4, 200)
    assert "300 tokens, though with" in pass_size.in_words(said.metrics)
    assert "200 would fit" in pass_size.in_words(said.metrics)
    journal.append(said)
    journal.close()
    assert pass_size.recorded(auto, tmp_path) == 300
    # Who has set a number since has that one.
    number = configuration.with_changes(auto, {"train.tokens_per_pass": 100})
    assert pass_size.recorded(number, tmp_path) is None
    assert "not even the longest sentence fits" in pass_size.in_words(
        {"tokens_per_pass": 9, "fitting_tokens": 0, "free_bytes": 1e9}
    )


def weights(config: Config, encoded: Path, rank: int, world_size: int) -> dict[str, torch.Tensor]:
    """After the last step, on the first worker."""
    found = {}
    for event in train(config, encoded, rank=rank, world_size=world_size, device=CPU):
        if isinstance(event, CheckpointDue) and rank == 0:
            found = event.capture().model
    return found


def work(rank: int, folder: Path, config: Config, encoded: Path, free: list[float]) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    wait = timedelta(seconds=300)
    dist.init_process_group("gloo", meeting, wait, rank=rank, world_size=len(free))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pass_size, "free_bytes", lambda device, sharers: free[rank])
        decided, said = pass_size.decide(
            *(config, encoded, CPU), world_size=len(free), sharers=1, known=None
        )
    assert said is not None
    assert said.metrics["free_bytes"] == min(free)
    assert decided.train.pass_tokens == 200
    found = weights(decided, encoded, rank, len(free))
    number = configuration.with_changes(config, {"train.tokens_per_pass": 200})
    expected = weights(number, encoded, rank, len(free))
    other = configuration.with_changes(config, {"train.tokens_per_pass": 100})
    unlike = weights(other, encoded, rank, len(free))
    if rank == 0:
        assert found.keys() == expected.keys() != set()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert not all(torch.equal(found[name], unlike[name]) for name in expected)
    dist.destroy_process_group()


def test_the_worker_with_the_least_memory_decides_and_the_weights_are_those_of_the_number(
    auto: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    free = [80e9, room_for(auto, tiny_corpus.encoded, 200, workers=2)]
    run_together(work, [(rank, tmp_path, auto, tiny_corpus.encoded, free) for rank in (0, 1)])
