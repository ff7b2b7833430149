"""The roofline's bytes and kernels against those that the training loop's update asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import count, fake_cuda
from seq2sweep.config import TransformerConfig
from seq2sweep.hardware import Precision
from seq2sweep.planning import roofline
from seq2sweep.planning.exchange import Links
from seq2sweep.planning.roofline import Rates, Share
from seq2sweep.presets import table3
from tests.planning.conftest import preset

NAMES = (
    *("base", "big", "B-d_k-16", "C-layers-2", "C-d_model-256", "D-dropout-0.0"),
    "base:float32",
)
WITHIN = 0.1
"""The worst: attention has 8 % fewer bytes than are counted, for its padding, a model without
dropout has 6 % more kernels, and one of d_model 256 takes 6 % longer."""
LINKS = Links(360e9, 10e9)
RATES = Rates(count.PRODUCTS, count.BYTES, LINKS)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("counted") / "counts.json"
    try:
        status = fake_cuda.run_with_it("tests.planning.recount", [*NAMES, str(file)])
    except fake_cuda.UnavailableError as why:
        pytest.skip(f"no tensors of a GPU without one: {why}")
    assert status == 0
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def model_of(name: str) -> tuple[TransformerConfig, Precision]:
    row, _, precision = name.partition(":")
    changes = next(each.changes for each in table3.read().rows if each.name == row)
    model = preset("base", **changes).model
    assert isinstance(model, TransformerConfig)
    return model, "float32" if precision else "bf16"


@pytest.mark.parametrize("name", NAMES)
def test_each_part_is_what_the_counter_counts(counted: dict[str, Any], name: str) -> None:
    """Where this fails: `python -m tests.planning.recount`, and its numbers into roofline.py."""
    model, precision = model_of(name)
    found, size = counted[name]["parts"], counted[name]["size"]
    share = Share(*counted[name]["share"])
    of_parts = roofline.moved(model, size, share, precision)
    pairs = {
        part: (sum(of_parts.get(part, [])), each["read"] + each["written"])
        for part, each in found.items()
    }
    assert of_parts.keys() == found.keys()
    drifted = {k: v for k, v in pairs.items() if v[0] != pytest.approx(v[1], rel=WITHIN)}
    assert drifted == {}, "bytes by the formula, and as counted"
    sums = {
        key: sum(each[key] for each in found.values()) for key in ("launches", "flops", "seconds")
    }
    seconds = roofline.predicted(model, size, share, RATES, precision).busy
    kernels = roofline.launches(model, size, share, precision)
    assert kernels == pytest.approx(sums["launches"], rel=WITHIN)
    assert share.flops == pytest.approx(sums["flops"], rel=WITHIN)
    assert seconds == pytest.approx(sums["seconds"], rel=WITHIN)


BASE, SIZE = model_of("base")[0], 37_000
WHOLE = 25_000.0, 25_000.0


def share_of(gpus: int) -> Share:
    return Share.of(WHOLE, 8.8e12, 25_000, 12_500, gpus)


def test_a_share_is_cut_into_passes() -> None:
    # Sentences do not fill two passes of 12 500 tokens with 25 000.
    assert [share_of(gpus).passes for gpus in (1, 2, 4, 64)] == [3, 2, 1, 1]
    assert share_of(8) == Share(3125, 3125, 1.1e12, 1)


def test_a_gpu_takes_the_longest_of_what_it_waits_for() -> None:
    alone = roofline.predicted(BASE, SIZE, share_of(1), RATES, "bf16")
    assert alone.products == pytest.approx(8.8e12 / count.PRODUCTS)
    assert alone.exchange == 0
    half = Rates(RATES.product, RATES.bandwidth / 2, LINKS)
    assert roofline.predicted(BASE, SIZE, share_of(1), half, "bf16").memory == 2 * alone.memory
    # A small share is over before the CPU has started its kernels, one by one.
    small = roofline.predicted(BASE, SIZE, share_of(64), RATES, "float32", 64)
    assert small.busy < small.computing == roofline.LAUNCH * small.kernels
    assert small.seconds == small.computing + small.exchange
    for fsdp in (False, True):
        graphs = roofline.predicted(BASE, SIZE, share_of(64), RATES, "bf16", 64, fsdp)
        assert (graphs.computing == graphs.busy) == (not fsdp)
    # Products of narrow models are bound by what they read.
    narrow = roofline.predicted(BASE, SIZE, Share(3000, 3000, 1.0, 1), RATES, "bf16")
    assert narrow.products > 1e-4


def test_the_embedding_is_always_waited_for() -> None:
    """On fast links no more than the last bucket, on slow ones nearly all of the gradients."""

    def waited(
        gpus: int, network: float, precision: Precision = "float32", **options: Any
    ) -> float:
        rates = Rates(RATES.product, RATES.bandwidth, Links(360e9, network))
        made = roofline.predicted(BASE, SIZE, share_of(gpus), rates, precision, gpus, **options)
        return made.exchange

    last = LINKS.sum(4 * SIZE * 512, 8)
    assert last < waited(8, 1.0) < 2 * last
    slow, slower = waited(64, 12.5e9), waited(64, 5e9)
    every = 4 * 63.05e6
    assert Links(360e9, 12.5e9).sum(every, 64) - 0.015 < slow < Links(360e9, 12.5e9).sum(every, 64)
    assert slower > 2 * slow
    # Sharded, weights are sent as well.
    assert waited(64, 12.5e9, fsdp=True) > slow
    # In bf16 all are sent when the last pass is done.
    size = 4 * roofline.flops.parameter_count(BASE, SIZE)
    assert waited(64, 12.5e9, "bf16") == Links(360e9, 12.5e9).sum(size, 64)


def test_only_the_papers_transformer_is_counted() -> None:
    assert roofline.serves(preset("big").model)
    for change in (
        {"model.attention": "additive"},
        {"model.encoder_mixer": "recurrent"},
        {"model.decoder_mixer": "convolutional"},
    ):
        assert not roofline.serves(preset("base", **change).model)
    assert not roofline.serves(preset("wmt14-en-de-gnmt").model)
