"""The closed formulas of parameters and operations against the models themselves.

Models are made on PyTorch's meta device, which knows shapes and computes nothing, so that those of
Table 3 are counted at their real size.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep import presets
from seq2sweep.config import TransformerConfig
from seq2sweep.errors import UserError
from seq2sweep.model import building, components, flops
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.feed_forward import swiglu
from seq2sweep.presets import table3

from .models import FEED_FORWARDS, KINDS, MIXERS, NORM_KINDS, small

BASE = presets.load("base").config.model
ROWS = {
    row.name: {
        key.removeprefix("model."): value
        for key, value in row.changes.items()
        if key.startswith("model.")
    }
    for row in table3.read().rows
}
# Rows that differ in training or dropout alone are the base model.
SIZES = {name: changes for name, changes in ROWS.items() if set(changes) - {"dropout"}}
SIZES["base"] = {}
# Other rows change what these do, to other numbers.
SIZES_BY_DEFAULT = {
    *("base", "big", "A-heads-1", "B-d_k-16", "C-layers-2", "C-d_model-256"),
    "E-learned-positions",
}
VARIANTS: list[dict[str, object]] = [
    *({"attention": kind} for kind in KINDS),
    *({"attention": kind, "norm": "pre", "heads": 3, "d_k": 5, "d_v": 7} for kind in KINDS),
    {"tie_embeddings": False},
    {"tie_embeddings": False, "norm": "pre", "positions": "learned"},
    {"positions": "learned"},
    *({"feed_forward": kind} for kind in FEED_FORWARDS),
    *({"norm_kind": kind} for kind in NORM_KINDS),
    *({"feed_forward": "swiglu", "norm_kind": kind, "norm": "pre"} for kind in NORM_KINDS),
    {"dropout": 0.3, "attention_dropout": 0.2, "feed_forward_dropout": 0.1},
    {"d_k": 4},
    {"d_k": 3, "d_v": 9},
    {"heads": 4, "d_k": 2},
    {"heads": 1, "d_k": 1, "d_v": 1},
    {"layers": 3},
    {"d_model": 32, "d_ff": 8},
]


def counted(
    config: TransformerConfig, vocabulary: int, n: int, m: int, sentences: int
) -> list[int]:
    """Parameters, and operations of a forward pass and of a training pass, as PyTorch has them."""
    with torch.device("meta"):
        model = Transformer(config, vocabulary)
        source = torch.zeros(sentences, n, dtype=torch.int64)
        target = torch.zeros(sentences, m, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        logits = model(source, target)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    first = forward.get_total_flops()
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return [parameters, first, first + backward.get_total_flops()]


def formulas(
    config: TransformerConfig, vocabulary: int, n: int, m: int, sentences: int
) -> list[float]:
    lengths = np.full(sentences, n), np.full(sentences, m)
    return [
        flops.parameter_count(config, vocabulary),
        flops.forward_flops(config, vocabulary, *lengths),
        flops.training_flops(config, vocabulary, *lengths),
    ]


def test_table_3_is_here_whole() -> None:
    assert len(ROWS) == 20
    assert len(SIZES) == 16
    assert set(SIZES) >= SIZES_BY_DEFAULT
    differing = {key for changes in ROWS.values() for key in changes}
    assert differing == {
        "heads", "d_k", "d_v", "layers", "d_model", "d_ff", "dropout", "positions"
    }  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        row if row in SIZES_BY_DEFAULT else pytest.param(row, marks=pytest.mark.thorough)
        for row in SIZES
    ],
)
def test_formulas_count_the_models_of_table_3(row: str) -> None:
    config = dataclasses.replace(BASE, **SIZES[row])
    assert counted(config, 1000, 31, 27, 2) == formulas(config, 1000, 31, 27, 2)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_formulas_count_every_choice(changes: dict[str, object]) -> None:
    config = small(**changes)
    assert counted(config, 50, 7, 5, 3) == formulas(config, 50, 7, 5, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_counting_is_the_same_where_something_is_computed(kind: str) -> None:
    """Not on the meta device: what the CPU runs, in the passes of a training step."""
    config = small(attention=kind)
    torch.manual_seed(0)
    model = Transformer(config, 50)
    source, target = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 5))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as both:
        model(source, target).sum().backward()
    assert both.get_total_flops() == formulas(config, 50, 7, 5, 3)[2]
    assert all(p.grad is not None for p in model.parameters())


def test_the_kinds_that_are_counted_are_all() -> None:
    """A kind is a file: one that is not counted here, nor computed elsewhere, is found."""
    folder = Path(components.__file__).parent
    kinds = {"feed_forward": FEED_FORWARDS, "norm": NORM_KINDS, "mixer": MIXERS}
    for part, known in kinds.items():
        assert {file.stem for file in (folder / part).glob("[!_]*.py")} == set(known)


def test_a_model_that_is_not_what_its_formula_says_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small(feed_forward="swiglu")
    building.build(config, 50)
    monkeypatch.setattr(swiglu.FeedForward, "parameter_count", staticmethod(lambda d, d_ff: 7))
    with pytest.raises(UserError, match=r"swiglu.* parameters, but .* by its formula: correct"):
        building.build(config, 50)


def test_a_built_model_is_computed_without_tf32_and_without_cudnns_attention() -> None:
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(True)
    building.build(small(), 50)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_operations_of_sentences_add_up() -> None:
    config = small(d_k=5, d_v=3)
    pairs = [(3, 9), (12, 1), (7, 7)]
    together = flops.forward_flops(
        config, 50, *(np.array(side) for side in zip(*pairs, strict=True))
    )
    assert together == sum(counted(config, 50, n, m, 1)[1] for n, m in pairs)
    assert flops.forward_flops(config, 50, np.array([], int), np.array([], int)) == 0


def test_base_by_hand() -> None:
    """At 37000 pieces, for one pair of 20 and 30 pieces.

    A layer's attention has 4 x 512 x 512 = 1 048 576 weights, its feed-forward part
    2 x 512 x 2048 = 2 097 152. A piece passes through each weight once at two operations; and each
    query and key cost 2 x 2 x 512 for the score and the sum.
    """
    attention, feed_forward, pair = 1_048_576, 2_097_152, 2 * 2 * 512
    encoder = 20 * 2 * (attention + feed_forward) + 20 * 20 * pair
    decoder = 30 * 2 * (attention + feed_forward) + 30 * 30 * pair
    crossed = 2 * (30 + 20) * attention // 2 + 30 * 20 * pair
    projection = 30 * 2 * 512 * 37_000
    expected = 6 * (encoder + decoder + crossed) + projection
    lengths = np.array([20]), np.array([30])
    assert flops.forward_flops(BASE, 37_000, *lengths) == expected == 3_361_996_800
    assert flops.training_flops(BASE, 37_000, *lengths) == 3 * expected
