"""How large a pass a worker's memory allows, by arithmetic done anew here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.batching import passes, plan_epoch, share
from seq2sweep.hardware import Precision
from seq2sweep.model import flops, varlen_attention
from seq2sweep.train import footprint
from seq2sweep.train.footprint import LargestPass, largest_pass
from seq2sweep.train.updates import packs_all

SIZE, LONGEST = 37_000, 250
BASE = presets.load("base").config


def largest(
    available: float, config: Config = BASE, longest: int = LONGEST, workers: int = 1, **how: Any
) -> LargestPass:
    options: dict[str, Any] = {"precision": "float32", "gpu": True} | how
    return largest_pass(config, SIZE, longest, available, workers=workers, **options)


def test_by_hand_on_a_gpu() -> None:
    parameters = 63_045_632
    assert flops.parameter_count(BASE.model, SIZE) == parameters
    # On a GPU no scores are kept: a token takes the same whatever sentence it is in.
    per_token = sum(flops.kept_bytes(BASE.model, (30, 30), 4, True))
    assert per_token == sum(flops.kept_bytes(BASE.model, (LONGEST, LONGEST), 4, True))
    # Weights, gradients and Adam's moments; 2^28 logits at a time, in float32, and of 2^26 three
    # more numbers in the loss; libraries.
    fixed = 16 * parameters + 1.1 * (4 * 2**28 + 12 * 2**26) + 1.0e9
    for available in (8e9, 12e9):
        room = (0.9 * available - fixed) / (1.1 * per_token)
        found = largest(available)
        assert found.tokens == 100 * int(room / 100)
        assert 2000 < found.tokens < 25_000
        assert (found.fits, found.share) == (True, 25_000)
        assert found.why == f"the largest that fits into 90% of {available / 1e9:.1f} GB"


def test_a_checkpoint_is_a_copy_in_the_memory_of_the_cpu() -> None:
    """Weights and moments, while training goes on: of big 2.6 GB."""
    big = presets.load("wmt14-en-de-big").config
    count = flops.parameter_count(big.model, SIZE)
    how: dict[str, Any] = {"longest": LONGEST, "workers": 1, "precision": "float32"}
    here, on_gpu = (footprint.memory(big, SIZE, 1e4, 1000, gpu=gpu, **how) for gpu in (False, True))
    assert (here.snapshot, on_gpu.snapshot) == (12 * count, 0)
    assert 2.5e9 < here.snapshot < 2.7e9
    nesterov = configuration.with_changes(big, {"train.optimizer": "nesterov"})
    assert footprint.memory(nesterov, SIZE, 1e4, 1000, gpu=False, **how).snapshot == 8 * count
    parts = [here.weights, here.gradients, here.optimizer, here.exchange, here.casts]
    rest = [here.activations, here.logits, here.graphs, here.other]
    assert here.needed == pytest.approx(sum([*parts, here.snapshot, *rest]))


@pytest.mark.parametrize("faster", [True, False])
def test_onednn_multiplies_by_a_copy_of_the_projection(
    faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of base 2 x 37 000 x 512 numbers: its layout, and the gradient that is added to another."""
    monkeypatch.setattr(footprint, "onednn_is_faster", lambda: faster)

    def casts(precision: Precision, gpu: bool) -> float:
        how: dict[str, Any] = {"longest": LONGEST, "workers": 1}
        how |= {"precision": precision, "gpu": gpu}
        return footprint.memory(BASE, SIZE, 1e4, 1000, **how).casts

    assert casts("float32", False) == (151_552_000 if faster else 0)
    assert casts("float32", True) == 0
    assert casts("bf16", False) == casts("bf16", True) == 2 * 63_045_632


@pytest.mark.parametrize(
    ("preset", "changes", "recorded"),
    [
        ("base", {}, True),
        ("base", {"model.d_k": 256, "model.d_v": 256}, True),
        ("base", {"model.d_k": 512, "model.d_v": 512, "model.heads": 1}, False),
        ("base", {"model.attention": "additive"}, False),
        ("base", {"model.encoder_mixer": "recurrent"}, False),
        ("base", {"model.decoder_mixer": "separable"}, False),
        ("base", {"model.attention_dropout": 0.1}, False),
        ("base", {"train.deterministic": True}, False),
        ("base", {"cluster.fsdp": True}, False),
        ("phrasebook-recurrent", {}, False),
        ("phrasebook-convolutional", {}, False),
        ("phrasebook-bytenet", {}, False),
    ],
)
def test_cuda_graphs_take_memory_only_where_training_has_them(
    preset: str, changes: dict[str, Any], recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = presets.load(preset).config
    config = configuration.with_changes(config, changes | {"train.precision": "bf16"})
    how: dict[str, Any] = {"longest": LONGEST, "workers": 2, "precision": "bf16", "gpu": True}
    found = footprint.memory(config, SIZE, 1e4, 1000, **how)
    # They work in a memory of their own, as large as that of a pass.
    assert found.graphs == (found.activations + found.logits if recorded else 0)
    # What is asked of settings alone a GPU whose kernels work does.
    monkeypatch.setattr(varlen_attention, "_is_right", lambda *_: True)
    apart = config.train.deterministic or config.cluster.fsdp
    assert packs_all(config, torch.device("cuda")) == (recorded or apart)


def test_no_more_than_a_workers_share_and_no_less_than_a_sentence() -> None:
    assert largest(80e9) == LargestPass(25_000, 25_000, True, 80e9)
    assert "all of a worker's share of an update" in largest(80e9).why
    # Equal shares have 12 500, 3125 and 391 tokens. Workers that have one sentence more than others
    # have up to 1/2, 7/8 and 63/64 of the longest one more: with 12 500 they would need two passes.
    found = [largest(80e9, workers=workers) for workers in (2, 8, 64)]
    assert [each.tokens for each in found] == [12_625, 3344, 637]
    assert all(each.tokens == each.share for each in found)
    few = largest(1e9)
    assert (few.tokens, few.fits) == (LONGEST, False)
    assert few.why == "the longest sentence, which does not fit into 90% of 1.0 GB"
    # Passes are never larger than a share, but for a sentence that is.
    small = configuration.with_changes(BASE, {"train.tokens_per_update": 100})
    assert largest(80e9, small).tokens == 100
    assert largest(1e9, small) == LargestPass(100, 100, False, 1e9)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("longest", [30, 100, 1500])
def test_what_fits_into_one_pass_is_not_cut(workers: int, longest: int) -> None:
    """Updates are dealt out by sentence: of 33 of 30 tokens each of eight workers has four, and the
    first one five. Also where some sentences are longer than a share, or than an update."""
    config = configuration.with_changes(BASE, {"train.tokens_per_update": 1000})
    random = np.random.default_rng(0)
    alike, unlike = np.full((2, 66), longest), random.integers(1, longest + 1, (2, 300))
    unlike[0, 0] = longest
    number = largest(80e9, config, longest, workers).tokens
    assert number <= 2 * -(-1000 // workers)
    for source, target in (alike, unlike):
        plan = plan_epoch(source, target, tokens_per_update=1000, seed=1, epoch=0)
        for ids in map(plan.__getitem__, range(len(plan))):
            shares = (share(ids, rank, workers) for rank in range(workers))
            assert max(len(passes(own, source, target, number)) for own in shares) == 1


def test_several_workers_and_passes_add_gradients_up_beside_what_they_exchange() -> None:
    alone, two = largest(8e9), largest(8e9, workers=2)
    per_token = sum(flops.kept_bytes(BASE.model, (30, 30), 4, True))
    assert alone.tokens - two.tokens == pytest.approx(4 * 63_045_632 / (1.1 * per_token), abs=100)
    # Shared out, the model leaves room for more.
    sharded = configuration.with_changes(BASE, {"cluster.fsdp": True})
    little = 2.8e9
    assert largest(little, workers=8).tokens < largest(little, sharded, workers=8).tokens < 3125


@pytest.mark.parametrize("model", ["base", "phrasebook-recurrent", "phrasebook-convolutional"])
def test_what_is_whole_with_fsdp_are_all_embeddings(model: str) -> None:
    def exchange(tied: bool) -> float:
        changes = {"cluster.fsdp": True, "model.tie_embeddings": tied}
        config = configuration.with_changes(presets.load(model).config, changes)
        how: dict[str, Any] = {"longest": LONGEST, "workers": 2, "precision": "bf16", "gpu": True}
        return footprint.memory(config, SIZE, 1e4, 1000, **how).exchange

    width = presets.load(model).config.model.d_model
    # Two matrices more, with their gradients, in float32.
    assert exchange(False) - exchange(True) == pytest.approx(16 * SIZE * width, rel=0.02)


def test_on_a_cpu_the_sentences_count_whose_scores_are_kept() -> None:
    """Longer ones have a kernel that keeps none."""

    def tokens(longest: int) -> int:
        return largest(8e9, longest=longest, gpu=False).tokens

    assert tokens(10) > tokens(64) == tokens(250)


def test_all_architectures_have_one() -> None:
    for name in ("recurrent", "convolutional", "bytenet", "mixers"):
        config = presets.load(f"phrasebook-{name}").config
        assert largest(2e9, config, gpu=False).tokens == config.train.tokens_per_update


def test_a_larger_one_does_not_fit() -> None:
    for available in (6e9, 8e9):
        found = largest(available, precision="bf16")
        per_token = sum(flops.kept_bytes(BASE.model, (30, 30), 2, True))
        needed = [
            footprint.memory(
                *(BASE, SIZE, per_token, found.tokens + more),
                longest=LONGEST,
                workers=1,
                precision="bf16",
                gpu=True,
            ).needed
            for more in (0, footprint.STEP)
        ]
        assert needed[0] <= (1 - footprint.MARGIN) * available < needed[1]
