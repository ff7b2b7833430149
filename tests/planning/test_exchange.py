"""The exchange between GPUs: sums by hand, and the buckets that PyTorch makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from seq2sweep.config import TransformerConfig
from seq2sweep.data.batching import Batch
from seq2sweep.model.building import build
from seq2sweep.planning import exchange, roofline
from seq2sweep.planning.exchange import Links, Piece, buckets, exposed, exposed_of_shards, pipeline
from seq2sweep.train import step
from seq2sweep.train.distributed import averaged
from tests.planning.conftest import preset

MB = 2**20
NVLINK = Links(360e9, 10e9)


@pytest.fixture
def _no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LATENCY", (0.0, 0.0))


def test_two_stages_by_hand() -> None:
    assert pipeline([], []) == 0
    # The second stage is never waited for: its last work alone comes after.
    assert pipeline([3, 3, 3], [1, 1, 1]) == 10
    # It is always behind: it works on from the end of the first work.
    assert pipeline([1, 1, 1], [5, 5, 5]) == 16
    assert pipeline([1, 4, 1], [2, 2, 6]) == 13


@pytest.mark.usefixtures("_no_latency")
def test_a_ring_sends_what_it_must() -> None:
    assert NVLINK.sum(1e9, 1) == 0
    assert NVLINK.sum(1e9, 2) == pytest.approx(1e9 / 360e9)
    assert NVLINK.sum(1e9, 8) == pytest.approx(2 * 7 / 8 * 1e9 / 360e9)
    # Between eight machines 7/8 of all bytes leave each of them twice, at 100 and at 40 Gbit/s.
    inside = 2 * 7 / 8 * 1e9 / 360e9
    for gigabits in (100, 40):
        links = Links(360e9, gigabits / 8 * 1e9)
        between = 2 * 7 / 8 * 8e9 / (gigabits * 1e9)
        assert links.sum(1e9, 64) == pytest.approx(inside + between)
    assert NVLINK.sum(1e9, 9) == pytest.approx(inside + 2 * 1 / 2 * 1e9 / 10e9)


def test_a_small_sum_takes_its_latency() -> None:
    assert NVLINK.sum(0, 8) == exchange.LATENCY[0]
    assert NVLINK.sum(0, 16) == exchange.LATENCY[1]


@pytest.mark.usefixtures("_no_latency")
def test_overlap_by_hand() -> None:
    links = Links(1.0 * MB, 1.0 * MB)  # of two GPUs a sum of 1 MB takes a second
    # Nothing overlaps: one bucket, complete at the end.
    assert exposed([Piece(20 * MB, 50.0)], 2, links) == pytest.approx(20)
    assert exposed([Piece(0.5 * MB, 9.0), Piece(25 * MB, 9.0)], 2, links) == pytest.approx(25.5)
    # Each sum is done long before the next bucket is complete, the last one is exposed.
    many = [Piece(MB, 30.0), Piece(25 * MB, 30.0), Piece(25 * MB, 30.0), Piece(7 * MB, 30.0)]
    assert exposed(many, 2, links) == pytest.approx(7)
    # A large gradient that is complete last, as the tied embedding's, is waited for in full.
    assert exposed([*many, Piece(90 * MB, 0.0)], 2, links) == pytest.approx(7 + 90)
    # Sums take longer than the backward pass: they are under way from its first bucket on.
    slow = [Piece(MB, 1.0), Piece(25 * MB, 1.0), Piece(25 * MB, 1.0)]
    assert exposed(slow, 2, links) == pytest.approx(1 + 51 - 3)
    assert exposed(many, 1, links) == 0


def test_buckets_are_closed_by_the_gradient_that_fills_them() -> None:
    sizes = [0.5, 1, 20, 6, 3, 40, 1]
    found = buckets(Piece(size * MB, 1.0) for size in sizes)
    assert [piece.size / MB for piece in found] == [1.5, 26, 43, 1]
    assert [piece.seconds for piece in found] == [2, 2, 2, 1]
    assert buckets([]) == []


@pytest.mark.filterwarnings("error::FutureWarning")  # of what a later PyTorch has no more
@pytest.mark.parametrize("tied", [True, False])
def test_buckets_are_those_of_pytorch(tied: bool, tmp_path: Path) -> None:
    """DDP is asked which buckets it made in the order in which gradients were complete."""
    size = 3000
    model = preset("base", **{"model.layers": 2, "model.tie_embeddings": tied}).model
    assert isinstance(model, TransformerConfig)
    pieces = torch.randint(5, size, (2, 6))
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = averaged(build(model, size))
        for _ in range(3):
            step.accumulate(
                parallel, [Batch(pieces, pieces, pieces)], update_target_tokens=12,
                smoothing=0.1, world_size=1, precision="float32", device=torch.device("cpu"),
            )  # fmt: skip
        made = parallel._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    finally:
        dist.destroy_process_group()
    expected = [int(each) for each in made.split(", ")]
    share = roofline.Share(12, 12, 1e9, 1)
    groups = list(roofline.pieces(model, size, share, 1.0, "bf16"))
    # Layers and embeddings, as cluster.fsdp shards them.
    assert len(groups) == 4 + (1 if tied else 3)
    found = [piece.size for piece in buckets(piece for group in groups for piece in group)]
    # Layers are gathered in bf16, embeddings as they are.
    narrow = [sum(p.gathered for p in group) / sum(p.size for p in group) for group in groups]
    assert sorted(narrow) == [0.5] * 4 + [1.0] * (1 if tied else 3)
    # Norms and biases are not told apart.
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.usefixtures("_no_latency")
def test_shards_by_hand() -> None:
    links = Links(1.0, 1.0)  # of two GPUs a gathering of 2 bytes takes a second
    # What is computed takes long: the first gathering of each pass forward and back is waited for.
    pieces = [Piece(2, 40.0, 2), Piece(2, 40.0, 2)]
    assert exposed_of_shards(pieces, 2, links, 1) == pytest.approx(1 + 2)
    assert exposed_of_shards(pieces, 2, links, 3) == pytest.approx(3 * 1 + 2 * 1 + 2)
    # Nothing is: what is sent is waited for, once forward, twice backward.
    assert exposed_of_shards([Piece(2, 0.0, 2)], 2, links, 1) == pytest.approx(1 + 2)
    # In bf16 half is gathered, and all is summed.
    assert exposed_of_shards([Piece(2, 0.0, 1)], 2, links, 1) == pytest.approx(0.5 + 0.5 + 1)
    assert exposed_of_shards([Piece(2, 0.0, 1)], 2, links, 2) == pytest.approx(4 * 0.5 + 1)
