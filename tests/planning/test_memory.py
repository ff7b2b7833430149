"""Memory of a worker, against what autograd keeps and by arithmetic done anew here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.model import flops
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.planning import machine, memory
from seq2sweep.planning.plan import plan
from seq2sweep.planning.render import overview
from seq2sweep.train import footprint
from seq2sweep.train.loss import smoothed_cross_entropy
from tests.planning.conftest import load_of, preset, write
from tests.saved_tensors import none_of, saved_bytes

GPU = machine.Device("H100", 8, "bf16")
PRECISIONS: tuple[Any, ...] = ("float32", "bf16")
CHANGES: list[dict[str, Any]] = [
    {},
    {"model.attention": "additive"},
    {"model.feed_forward_dropout": 0.1},
    {"model.dropout": 0},
    {"model.feed_forward": "swiglu"},
    {"model.feed_forward": "swiglu", "model.feed_forward_dropout": 0.1},
    {"model.norm_kind": "rmsnorm"},
    *(
        {"model.encoder_mixer": kind, "model.decoder_mixer": kind}
        for kind in ("restricted", "recurrent", "convolutional", "separable")
    ),
]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({"model.attention_dropout": 0.1}, 120),
        ({"model.attention_dropout": 0.1, "model.attention": "additive"}, 40),
        *((changes, 20) for changes in CHANGES),
    ],
    ids=str,
)
def test_activations_are_what_the_backward_pass_keeps(
    changes: dict[str, Any], length: int, precision: Any
) -> None:
    """Of one pass of the real model on a CPU, counted as autograd saves them."""
    config, pairs = preset("phrasebook", **changes), 16
    size = config.vocabulary.size
    model = Transformer(config.model, size)
    pieces = torch.randint(4, size, (pairs, length))

    def forward() -> None:
        smoothed_cross_entropy(model(pieces, pieces), pieces, 0.1)

    saved = saved_bytes(forward, precision, none_of(model))
    saved -= pairs * length * size * 4  # the probabilities, which are counted with the logits
    saved -= 2 * sum(w.numel() for w in model.parameters()) * (precision == "bf16")
    per_pair = footprint.most_per_token(config.model, length, precision, gpu=False)
    assert pairs * length * per_pair == pytest.approx(saved, rel=0.12)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_pass_is_of_the_longest_sentences(project: Path, kind: str) -> None:
    """As one of each epoch is, of which a token may take many times what one of others does."""
    config = preset("wmt14-en-de-base", **{"model.attention": "additive"})
    load = load_of("wmt14-en-de-base", 4_500_000)
    device = machine.Device("CPU" if kind == "cpu" else "H100", 8, "float32")
    found = memory.memory(config, load, device, 8)
    n = load.longest
    of_longest = sum(flops.kept_bytes(config.model, (n, n), 4, kind == "gpu"))
    assert found.activations == found.tokens * of_longest
    # It is what `auto` takes, and what it is told that it needs.
    auto = configuration.with_changes(config, {"train.tokens_per_pass": "auto"})
    sized, _ = memory.sized(auto, load, device, 8, available=16e9)
    assert memory.memory(sized, load, device, 8).needed <= 16e9
    more = memory.memory(config, load, device, 8, sized.train.pass_tokens + 200)
    assert more.needed > 0.9 * 16e9


def test_a_pass_is_of_one_sentence_at_least(project: Path) -> None:
    """However long: advice to take passes of fewer tokens would change none."""
    config = preset("wmt14-en-de-bytenet", **{"model.d_model": 2800, "train.tokens_per_pass": 800})
    load = load_of("wmt14-en-de-bytenet", 4_500_000)
    assert load.longest > 1000
    device = machine.Device("T4", 1, "float32")
    found = memory.memory(config, load, device, 1)
    assert found.tokens == load.longest
    assert found == memory.memory(config, load, device, 1, load.longest)
    said = memory.advice(config, load, device, 1, 0.99 * found.needed)
    assert said.startswith("the model itself is too large")
    larger = configuration.with_changes(config, {"train.tokens_per_pass": 4000})
    said = memory.advice(larger, load, device, 1, found.needed * 1.1)
    assert int(said.split()[3]) >= load.longest


def test_kernels_by_shape_take_memory_on_a_cpu_alone(project: Path) -> None:
    """oneDNN keeps one for each shape of a product."""
    load = load_of("phrasebook", 80_000)

    def kernels(precision: Any, kind: str, compiled: bool = False) -> float:
        config = preset("phrasebook", **{"train.compile": compiled})
        device = machine.Device("CPU" if kind == "cpu" else "H100", 2, precision)
        found = memory.memory(config, load, device, 2)
        fragments = footprint.FRAGMENTS[kind] * (found.activations + found.logits)
        return found.other - fragments - footprint.CONTEXT_BYTES[kind]

    for precision, expected in (("bf16", 0.7e9), ("float32", 0.12e9)):
        assert kernels(precision, "cpu") == pytest.approx(expected)
        assert kernels(precision, "cpu", compiled=True) == pytest.approx(expected + 0.13e9)
        assert kernels(precision, "gpu", compiled=True) == pytest.approx(0, abs=1)


def test_what_does_not_fit_says_what_to_change(project: Path) -> None:
    big = preset("big", **{"train.tokens_per_pass": 25_000})
    load = load_of("big", 4_500_000)

    def found(workers: int, config: Config = big) -> footprint.Memory:
        return memory.memory(config, load, GPU, workers)

    alone, eight = found(1), found(8)
    # A worker may have a sentence more than another: up to 7/8 of one beside an equal share.
    assert (alone.tokens, eight.tokens) == (25_000, -(-(25_000 + 7 * load.longest) // 8))
    assert alone.optimizer == 2 * alone.weights == 8 * 214_171_648
    # One worker exchanges nothing; several do it in place, unless passes are added up first and are
    # no CUDA graphs.
    several = configuration.with_changes(big, {"train.tokens_per_pass": 2000})
    plain = found(8, configuration.with_changes(several, {"train.deterministic": True}))
    assert (alone.exchange, eight.exchange, found(8, several).exchange) == (0, 0, 0)
    assert plain.exchange == plain.gradients == eight.gradients

    def advice(available: float, workers: int = 1) -> str:
        return memory.advice(big, load, GPU, workers, available)

    for available in (6e9, 16e9):
        tokens = int(advice(available).split()[3])
        few, more = (
            configuration.with_changes(big, {"train.tokens_per_pass": tokens + hundred})
            for hundred in (0, 100)
        )
        assert found(1, few).needed <= available < found(1, more).needed
        assert tokens >= 500
    assert "cluster.fsdp" in advice(4.5e9, workers=8)
    assert "too large" in advice(1e9)
    write(project, "big", **{"train.tokens_per_pass": 25_000})
    made = plan(project, on="P100")
    assert made["memory"]["fits"] is False
    assert "DOES NOT FIT" in overview(made)
    assert plan(project, on="1 x H200")["memory"]["fits"] is True


def test_a_plan_says_which_size_of_pass_is_taken_and_why(project: Path) -> None:
    write(project, "big", **{"train.tokens_per_pass": "auto"})
    whole = plan(project, on="8 x H100")
    large = whole["memory"]
    # An equal share has 3125: with that, workers that have a sentence more had to cut it off.
    assert 3125 + 7 / 8 * 200 < large["tokens"] <= 3344
    assert large["fits"]
    assert whole["device"]["detail"][0].startswith("each GPU, in 1 pass: ")
    assert (
        large["tokens_why"]
        == "all of a worker's share of an update, which fits into 90% of 80.0 GB"
    )
    made = plan(project, on="1 x P100")
    found = made["memory"]
    assert 500 < found["tokens"] < 25_000
    assert found["tokens"] % 100 == 0
    assert found["fits"]
    assert found["needed"] <= 0.9 * found["available"]
    why = "the largest that fits into 90% of 16.0 GB"
    assert f"train.tokens_per_pass auto: {found['tokens']:,}, {why}" in overview(made)
    # The same as if the number had been given.
    write(project, "big", **{"train.tokens_per_pass": found["tokens"]})
    again = plan(project, on="1 x P100")
    assert again["memory"] == found | {"tokens_why": None}
    assert again["training"] == made["training"]
    assert "auto" not in overview(again)


def test_all_parts_are_on_the_page(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the copy for a checkpoint too: of weights and both moments."""
    monkeypatch.setattr(machine, "available_cpus", lambda: 2)
    write(project, "phrasebook")
    made = plan(project)
    found, shown, as_size = made["memory"], overview(made), tqdm.format_sizeof
    assert found["snapshot"] == 12 * made["training"]["parameters"]
    assert f", checkpoint's copy {as_size(found['snapshot'], 'B')}\n" in shown
    parts = {each.name: found[each.name] for each in dataclasses.fields(footprint.Memory)}
    del parts["tokens"]
    assert sum(parts.values()) == pytest.approx(found["needed"])
    assert [name for name, part in parts.items() if part and as_size(part, "B") not in shown] == []


def test_trials_have_sizes_of_their_own(project: Path) -> None:
    changes = {"sweep.method": "one_at_a_time", "sweep.space": {"model.d_ff": [4096, 8192]}}
    changes |= {"train.tokens_per_pass": "auto", "sweep.gpus_per_trial": 0.25}
    write(project, "base", **changes)
    rows = plan(project, on="1 x P100")["sweep"]["rows"]
    assert len(rows) > 1
    # Four of them share 16 GB, which passes fill, whatever the model.
    assert all(0.85 * 4e9 < row["memory"] <= 0.9 * 4e9 for row in rows)


def test_shards_hold_a_part_of_the_model() -> None:
    whole, load = preset("big"), load_of("big", 4_500_000)
    sharded = configuration.with_changes(whole, {"cluster.fsdp": True})
    plain = memory.memory(whole, load, GPU, 8)
    found = memory.memory(sharded, load, GPU, 8)
    assert (8 * found.weights, 8 * found.optimizer) == (plain.weights, plain.optimizer)
    assert found.gradients == plain.gradients / 8
    assert found.needed < plain.needed
    # Gathered in bf16, layers need no copies in it; only the projection is copied.
    assert (plain.casts, found.casts) == (2 * plain.weights / 4, 2 * 37_000 * 1024)
    other = configuration.with_changes(sharded, {"model.encoder_mixer": "convolutional"})
    held = memory.memory(other, load, GPU, 8)
    assert held.casts == pytest.approx(2 * 8 * held.weights / 4)
    # With several passes an update the gradients stay whole in between.
    passes = configuration.with_changes(sharded, {"train.tokens_per_pass": 1000})
    assert memory.memory(passes, load, GPU, 8).gradients == plain.gradients
    alone = memory.memory(sharded, load, GPU, 1)
    assert alone == memory.memory(whole, load, GPU, 1)
