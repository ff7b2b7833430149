"""What is said of each attention head."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import BOS, EOS
from seq2sweep.evaluate.attention import head_numbers
from seq2sweep.evaluate.attention.attention_maps import KINDS, Maps, Pair
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention
from tests.conftest import Corpus
from tests.evaluate.attention.test_attention_maps import DECODER, ENCODER, MEMORY, OfNumbers, maps
from tests.paper.models import randomised, small


def layers_of(number: int) -> list[str]:
    return [name.format(number) for name in KINDS.values()]


# --- heads in numbers ----------------------------------------------------------------------------


def plain(
    weights: NDArray[np.float64], keys: Sequence[str], causal: bool, back: int, ahead: int
) -> dict[str, Any]:
    """The same numbers of one map of one head, one row after another, each of which sees so many
    keys before and after it."""
    n, m = weights.shape
    entropies, distances, ends, punctuation, diagonal = [], [], [], [], []
    at: dict[int, list[float]] = {}
    for i in range(n):
        row = weights[i]
        seen = i + 1 if causal else m
        visible = sum(i - back <= j <= i + ahead for j in range(seen))
        if visible > 1:
            entropies.append(-sum(w * math.log(w) for w in row if w > 0) / math.log(visible))
        distances.append(sum(w * abs(i - j) for j, w in enumerate(row)))
        ends.append(sum(w for w, key in zip(row, keys, strict=True) if key in ("<s>", "</s>")))
        marks = ("▁.", ".", ",", "▁(")
        punctuation.append(sum(w for w, key in zip(row, keys, strict=True) if key in marks))
        place = i * (m - 1) / (n - 1) if n > 1 else 0
        diagonal.append(sum(w for j, w in enumerate(row) if abs(j - place) <= 1))
        for j in range(seen):
            at.setdefault(j - i, []).append(row[j])
    mean = {offset: float(np.mean(values)) for offset, values in at.items() if abs(offset) <= 5}
    return {
        "entropy": np.mean(entropies),
        "distance": np.mean(distances),
        "ends": np.mean(ends),
        "punctuation": np.mean(punctuation),
        "diagonal": np.mean(diagonal),
        **{name: mean.get(offset) for name, offset in (("previous", -1), ("same", 0), ("next", 1))},
        "offset_share": max(mean.values()),
    }


@pytest.mark.parametrize(
    ("layer", "neighbourhood"),
    [(ENCODER, None), (DECODER, None), (MEMORY, None), (ENCODER, 3), (ENCODER, 5), (DECODER, 3)],
)
def test_numbers_of_heads(layer: str, neighbourhood: int | None) -> None:
    draw = np.random.default_rng(3)
    source = ["▁a", ",", "b", "▁(", "▁c", "d", ".", "</s>"]
    said = ["▁x", "y", ",", "▁z", "▁.", "</s>"]
    one = maps({}, source, said)
    n, m = len(one.rows(layer)), len(one.keys(layer))
    causal = layer == DECODER
    weights = draw.dirichlet([0.3] * m, (3, n)) * (np.tri(n, m) if causal else 1)
    back = ahead = 99
    if neighbourhood is not None:
        one = dataclasses.replace(one, neighbourhoods={layer: neighbourhood})
        back, ahead = (neighbourhood - 1, 0) if causal else (neighbourhood // 2,) * 2
        weights *= np.tri(n, m, ahead) * (1 - np.tri(n, m, -back - 1))
    weights /= weights.sum(-1, keepdims=True)
    one.weights[layer] = weights.astype(np.float32)
    found = head_numbers.heads([one])
    assert [entry["head"] for entry in found] == [0, 1, 2]
    for entry, of_head in zip(found, one.weights[layer], strict=True):
        expected = plain(of_head.astype(np.float64), one.keys(layer), causal, back, ahead)
        if layer != MEMORY:
            expected["diagonal"] = None
        for name, value in expected.items():
            assert entry[name] == (value if value is None else pytest.approx(value, abs=1e-6)), name
        assert entry["layer"] == layer


def test_means_are_over_the_rows_of_all_maps() -> None:
    short = maps({ENCODER: [np.eye(2)]}, ["▁a", "</s>"])
    long = maps({ENCODER: [np.eye(6)[::-1]]}, [*"abcde", "</s>"])
    (found,) = head_numbers.heads([short, long])
    assert found["same"] == pytest.approx(2 / 8)
    assert found["distance"] == pytest.approx((5 + 3 + 1) * 2 / 8)
    assert found["entropy"] == 0
    assert found["ends"] == pytest.approx((1 + 1) / 8)


@pytest.mark.parametrize(("offset", "share", "positional"), [(-1, 0.95, True), (2, 0.85, False)])
def test_a_head_is_positional(offset: int, share: float, positional: bool) -> None:
    n = 20
    weights = np.full((n, n), 0.0)
    for i in range(n):
        weights[i] = (1 - share) / (n - 1)
        weights[i, (i + offset) % n] = share
    (found,) = head_numbers.heads([maps({ENCODER: [weights]}, [f"▁{i}" for i in range(n)])])
    assert (found["offset"], found["positional"]) == (offset, positional)
    assert found["offset_share"] == pytest.approx(share)


# --- what a head is worth ------------------------------------------------------------------------

PAIRS = [
    Pair([5, 6, 7, 8, EOS], [9, 10, EOS]),
    Pair([8, EOS], [4, 5, 6, 7, EOS]),
    Pair([6, 6, 9, EOS], [9, EOS]),
]


def loss(model: Transformer) -> float:
    """Of each pair alone."""
    lost, count = 0.0, 0
    for pair in PAIRS:
        said = [BOS, *pair.target[:-1]]
        with torch.no_grad():
            logits = model(torch.tensor([[*pair.source]]), torch.tensor([said]))[0]
        chosen = F.log_softmax(logits.double(), dim=-1)[range(len(said)), list(pair.target)]
        lost, count = lost - float(chosen.sum()), count + len(said)
    return lost / count


@pytest.mark.parametrize("at_once", [1, 10, 1000])
def test_the_loss_without_a_head(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_numbers, "AT_ONCE", at_once)
    model = randomised(small(d_k=5, d_v=3, dropout=0.2)).train()
    before = copy.deepcopy(model.state_dict())
    done: list[int] = []
    layers = [of for i in (0, 1) for of in layers_of(i)]
    found = head_numbers.loss_without(model, layers, PAIRS, done.append)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert sum(done) == len(found) == 12
    whole = loss(model)
    for (layer, head), rise in found.items():
        other = copy.deepcopy(model)
        module = other.get_submodule(layer)
        assert isinstance(module, MultiHeadAttention)
        with torch.no_grad():
            module.output.weight[:, 3 * head : 3 * head + 3] = 0
        assert rise == pytest.approx(loss(other) - whole, abs=1e-5)
    assert max(map(abs, found.values())) > 1e-3


def test_weights_come_back_where_measuring_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = randomised(small())
    before = copy.deepcopy(model.state_dict())
    lost: list[float] = []

    def fails(*given: Any) -> float:
        if lost:
            raise MemoryError
        lost.append(1.0)
        return 1.0

    monkeypatch.setattr(head_numbers, "_loss", fails)
    with pytest.raises(MemoryError):
        head_numbers.loss_without(model, layers_of(0), PAIRS)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


# --- all heads ------------------------------------------------------------------------------------


def test_a_model_is_measured_pair_by_pair() -> None:
    model, heard, done = randomised(small()), list[Maps](), list[int]()
    found = head_numbers.measure(model, OfNumbers, PAIRS, done.append, heard.append)  # type: ignore[arg-type]
    assert len(heard) == 3
    assert sum(done) == 3 + 12
    lost = head_numbers.loss_without(model, layers_of(0) + layers_of(1), PAIRS)
    assert {(e["layer"], e["head"]): e["loss_without"] for e in found} == lost
    # Other layers are not left out.
    assert {layer for layer, _ in head_numbers.loss_without(model, layers_of(1), PAIRS)} == {
        *layers_of(1)
    }
    assert [{k: v for k, v in e.items() if k != "loss_without"} for e in found] == (
        head_numbers.heads(heard)
    )


def test_there_are_no_numbers_of_no_pair() -> None:
    """Of a set whose sentences are all too long to be measured."""
    assert head_numbers.measure(small(), OfNumbers, []) == []  # type: ignore[arg-type]
    assert head_numbers.summary([])["heads"] == 0


def test_the_few_numbers_of_all_heads() -> None:
    def one(layer: str, entropy: float | None, positional: bool, lost: float | None) -> Any:
        return {"layer": layer, "entropy": entropy, "positional": positional, "loss_without": lost}

    found = [
        one(ENCODER, 0.9, True, 0.0099),
        one(DECODER, 0.7, True, -0.3),
        one(MEMORY, 0.2, False, 0.0101),
        one("decoder.3.memory_attention", 0.4, False, 0.5),
        one("decoder.4.memory_attention", None, False, 0.0),
    ]
    assert head_numbers.summary(found) == {
        "heads": 5,
        "cross_attention_entropy": pytest.approx(0.3),
        "positional": 2,
        "loss_without": pytest.approx((0.0099 - 0.3 + 0.0101 + 0.5) / 5),
        "removable": pytest.approx(3 / 5),
    }
    cannot = [one(MEMORY, 0.2, False, None)]
    assert head_numbers.summary(cannot)["removable"] is None
    assert head_numbers.summary(cannot)["loss_without"] is None
    nothing = head_numbers.summary([])
    assert nothing == dict.fromkeys(nothing) | {"heads": 0, "positional": 0}


def test_a_sample_is_spread_evenly_over_what_is_short(tiny_corpus: Corpus) -> None:
    bitext = Bitext.open(tiny_corpus.encoded, "test")
    longest = np.maximum(bitext.source_lengths, bitext.target_lengths)
    limit = int(np.median(longest))
    fits = [i for i in range(len(bitext)) if longest[i] <= limit]
    assert 10 < len(fits) < len(bitext)
    assert head_numbers.sample(bitext, 1000, limit) == fits
    found = head_numbers.sample(bitext, 5, limit)
    places = [fits.index(i) for i in found]
    assert len(found) == 5
    assert {b - a for a, b in itertools.pairwise(places)} <= {
        len(fits) // 5,
        len(fits) // 5 + 1,
    }
    assert head_numbers.sample(bitext, 5, 0) == []
    pair = head_numbers.pair(bitext, found[1])
    assert pair.source == bitext.source(found[1]).tolist()
    assert pair.target == bitext.target(found[1]).tolist()
    assert pair.target[-1] == EOS
