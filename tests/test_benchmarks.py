"""Contenders of the benchmarks of speed train the same model, and the ratios are those of turns."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import contenders, decode, handwritten, sizes, tables, train
from benchmarks.processes import Contender
from seq2sweep.data.batching import Batch
from seq2sweep.model.building import build
from seq2sweep.model.flops import parameter_count, training_flops
from tests.test_figures_in_docs import QUOTED, unknown

SIZE = sizes.Size(layers=2, d_model=32, d_ff=64, heads=2, vocabulary=53, pieces=53)
NEEDED = {"marian": "transformers", "joey": "joeynmt", "eole": "pyonmttok", "sockeye": "sockeye"}
BIASES = 2 * (4 + 2 * 4) * 32
"""Of the products of attention."""
MORE = {
    "hand": 0, "plain": BIASES, "marian": BIASES, "joey": BIASES,
    "eole": 2 * 2 * 32, "sockeye": 53,
}  # fmt: skip
"""Weights that a contender has and ours does not; eole: two norms, Sockeye: biases of logits."""
OURS_BY_HAND = {
    "source_embedding": "embedding.pieces", "inner": "0", "outer": "2",
    "attention_residual.norm": "norms.0", "memory_residual.norm": "norms.1",
    "projection": "projection.weight",
}  # fmt: skip


def batch() -> Batch:
    source = torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 12, 2, 0, 0]])
    target = torch.tensor([[1, 13, 14, 15, 16], [1, 17, 18, 0, 0]])
    out = torch.tensor([[13, 14, 15, 16, 2], [17, 18, 2, 0, 0]])
    return Batch(source=source, target_in=target, target_out=out)


def by_hand(name: str, value: Tensor) -> list[tuple[str, Tensor]]:
    """Our weight in the names of `handwritten`."""
    if name.endswith("memory_attention.projection"):
        start = name.removesuffix("projection")
        return [(f"{start}queries.weight", value[:32]), (f"{start}memory.weight", value[32:])]
    last = "norms.2" if name.startswith("decoder") else "norms.1"
    for right, theirs in (OURS_BY_HAND | {"feed_forward_residual.norm": last}).items():
        name = name.replace(right, theirs)
    return [(name, value)]


def test_what_is_written_by_hand_is_our_model() -> None:
    torch.manual_seed(1)
    ours = build(SIZE.config(), SIZE.vocabulary).eval()
    theirs = handwritten.Handwritten(SIZE).eval()
    weights = dict(pair for each in ours.named_parameters() for pair in by_hand(*each))
    assert theirs.load_state_dict(weights, strict=False).unexpected_keys == []
    assert set(weights) == dict(theirs.named_parameters()).keys()
    given = batch()
    real = given.target_out.ne(0)
    torch.testing.assert_close(
        theirs(given.source, given.target_in)[real],
        ours(given.source, given.target_in)[real],
        atol=1e-5,
        rtol=1e-4,
    )


def dropouts(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[nn.Module, list[int]]:
    """The model of a contender, and how much each dropout of one update takes."""
    module = importlib.import_module(
        f"benchmarks.{'toolkits' if name in NEEDED else 'handwritten'}"
    )
    kept: list[nn.Module] = []
    seen: list[int] = []
    loop = handwritten.loop

    def keep(model: nn.Module, logits: Any, precision: Any) -> Any:
        kept.append(model)
        return loop(model, logits, precision)

    dropout = F.dropout

    def draw(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if p and training:
            assert p == sizes.DROPOUT
            seen.append(x.numel())
        return dropout(x, p, training, inplace)

    attention = F.scaled_dot_product_attention

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout_p: float, *more: Any) -> Tensor:
        assert dropout_p == 0
        return attention(q, k, v, mask, dropout_p, *more)

    monkeypatch.setattr(module, "loop", keep)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(F, "dropout", draw)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    update = getattr(module, name)(SIZE, "float32")
    update(batch())
    return kept[0], seen


@pytest.mark.parametrize("name", ["hand", "plain", *NEEDED])
def test_dropout_is_in_the_same_places(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name in NEEDED and importlib.util.find_spec(NEEDED[name]) is None:
        pytest.skip(f"{NEEDED[name]} is not installed")
    model, seen = dropouts(monkeypatch, name)
    source, target = 2 * 6 * 32, 2 * 5 * 32
    # The sums of embeddings and positions, and each sub-layer's output.
    assert sorted(seen) == sorted([source] * (1 + 2 * 2) + [target] * (1 + 2 * 3))
    ours = parameter_count(SIZE.config(), SIZE.vocabulary)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == ours + MORE[name]


def test_the_products_are_those_of_the_model() -> None:
    """Of one source and one target token: what `training_flops` counts, less attention's own."""
    found = 6 * sum(into * out for _, into, out in contenders.products_of(SIZE))
    one = np.ones(1, np.int64)
    attention = 3 * 2 * (3 * 2 * 2 * 32)
    assert found == training_flops(SIZE.config(), SIZE.vocabulary, one, one) - attention


def turns(*seconds: float) -> list[dict[str, Any]]:
    return [{"seconds": each, "tokens": 100, "peak_megabytes": 10 * each} for each in seconds]


def test_times_are_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    found = train.against(turns(1, 10, 4), turns(2, 11, 12))
    assert found["times"] == 2
    assert (found["least_times"], found["most_times"]) == (pytest.approx(1.1), 3)
    assert found["tokens_per_second"] == pytest.approx(100 / 11)


def test_the_best_opponent_is_the_one_where_ours_leads_least() -> None:
    ours = turns(1, 1)
    ways = {
        "products": train.against(ours, turns(0.5, 0.5)),
        "slow": train.against(ours, turns(3, 3)),
        "fast": train.against(ours, turns(2, 2)),
        "none": train.against(ours, [{"absent": "no module"}]),
    }
    found = train.summary(ours, ways)
    assert (found["best"], found["times_of_best"], found["memory_of_best"]) == ("fast", 2, 0.5)
    assert found["percent_of_floor"] == 50
    assert ways["none"] == {"absent": "no module"}


def test_compiled_layers_are_held_against_opponents_and_against_ours_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []

    def in_turns(
        commands: dict[str, tuple[str, ...]], questions: list[Any], warm_up: Any, title: str
    ) -> dict[str, Any]:
        assert warm_up == (0, questions[0][0])
        started.extend(arguments[2] for arguments in commands.values())
        slower = {"ours": 1.25, "marian": 1.5, "products": 0.5}
        return {name: turns(*[slower.get(name, 2)] * len(questions)) for name in commands} | {
            "ours_compiled": turns(*[1] * len(questions))
        }

    monkeypatch.setattr(train, "in_turns", in_turns)
    options = argparse.Namespace(only=None, architecture="transformer", threads=2, rounds=3)
    found = train.in_precision("bf16", "demo", "somewhere", options)
    assert (found["best"], found["times_of_best"]) == ("marian", 1.5)
    assert (found["times_of_eager"], found["percent_of_floor"]) == (1.25, 50)
    assert started.count("ours_compiled") == 3  # in each group
    assert started.count("marian") == 1
    assert "1.25 times as fast as without compiled layers" in tables.in_words("bf16", found)
    found = train.in_precision("float32", "demo", "somewhere", options)
    assert [*found["others"]] == ["ours", "hand", "hand_compiled", "products"]
    assert (found["best"], found["times_of_best"], found["times_of_eager"]) == ("hand", 2, 1.25)


def test_a_compiled_contender_is_its_eager_one_with_compiled_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda self, **options: compiled.append(f"{type(self).__name__} {options}"),
    )
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    layers = 2 * sizes.SIZES["demo"].layers
    for name in ("ours_compiled", "hand_compiled"):
        compiled.clear()
        getattr(importlib.import_module(contenders.MAKERS[name]), name)(
            sizes.SIZES["demo"], "float32"
        )
        assert len(compiled) == layers
        assert all("'dynamic': True" in each for each in compiled)


def test_who_fails_is_absent_and_says_why() -> None:
    serving = (
        "from benchmarks.processes import serve\n"
        "def half(x):\n    print('said')\n    return {'half': 12 / x}\nserve(half)"
    )
    with Contender("-c", serving) as contender:
        assert contender.ask(4) == {"half": 3}
        assert contender.ask(6) == {"half": 2}
        assert "division by zero" in contender.ask(0)["absent"]
        assert "division by zero" in contender.ask(4)["absent"]


def test_the_weakest_size_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def content(times: float, name: str) -> dict[str, Any]:
        ours = turns(1)
        found = train.summary(ours, {"hand": train.against(ours, turns(times))})
        size = {**vars(sizes.SIZES[name]), "tokens_of_a_sentence": 9.0, "bf16": found}
        return {
            "command": f"python -m benchmarks.train --sizes {name}", "commit": "1234567",
            "date": "2026-11-25", "machine": {"cores": "2", "cpu": "AMD EPYC"},
            "figures": {"sizes": {name: size}, "text": "of files"},
        }  # fmt: skip

    files = {"train_demo": content(1.5, "demo"), "train_long": content(1.25, "long")}
    monkeypatch.setattr(tables, "read", files.__getitem__)
    monkeypatch.setattr(tables, "exists", files.__contains__)
    page = "a\n<!-- tables: train -->\nold\n<!-- /tables -->\nb\n"
    found = tables.with_tables(page)
    assert found.startswith("a\n<!-- tables: train -->\n<!-- figures: train_long -->\n**long**")
    assert found.index("train_long") < found.index("train_demo")
    assert found.endswith("<!-- /figures -->\n<!-- /tables -->\nb\n")
    assert "| hand, bf16 | 80 | 1.25 | 1.25 to 1.25 | 12 MB |" in found
    assert tables.with_tables(found) == found
    for name, text in QUOTED.findall(found):
        assert unknown(text, files[name]) == []


def test_decoders_are_held_against_ours_by_each_rule() -> None:
    def said(seconds: float, *pieces: list[int]) -> list[dict[str, Any]]:
        return [{"seconds": seconds, "said": list(pieces), "batch": 64}]

    ours = {"ours exact": said(2, [5], [6, 7]), "ours own_length": said(1, [5], [6])}
    found = decode.against(ours, "marian_bf16", said(4, [5], [6, 8]))
    assert found["sentences_per_second"] == 0.5
    assert (found["pieces"], found["same"]) == (3, 1)
    assert found["stopping"] == decode.STOPPING["marian"]
    assert {rule: each["times"] for rule, each in found["against"].items()} == {
        "ours exact": 2, "ours own_length": 4
    }  # fmt: skip
    faster = decode.against(ours, "ctranslate2", said(3, [5], [6, 7]))
    others = {"marian_bf16": found, "ctranslate2": faster, "eole": {"absent": "no module"}}
    assert decode.times_of_best(["ours exact"], others) == {"ours exact": 1.5}
    assert decode.times_of_best(["ours exact"], {"b": {"absent": "not installed"}}) == {}
    case = {
        "sentences": 2, "others": others, "times_of_best": {"ours exact": 1.5},
        "ours": {name: decode.against(ours, name, turns) for name, turns in ours.items()},
    }  # fmt: skip
    table = tables.decoding({"text": "of files", "natural length": case})
    assert table.index("ctranslate2") < table.index("marian_bf16")
    assert "| ctranslate2 | 1 | 64 | 1.50 (1.50 to 1.50) | 3.00 (3.00 to 3.00) | 2 |" in table
    assert "Absent: eole (no module)." in table
