"""What a model attends to, and what is said of each head."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import vocabulary
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.data.vocabulary import BOS, EOS, Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.evaluate import attention_maps
from seq2sweep.evaluate.attention_maps import Maps, Pair
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention

from ..paper.models import randomised, small

TEXT = ["The old dog sleeps.", "The dog is not old: Ärger 漢 <0x41>"]
TREE = "(S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN dog))) (. .))"
ENCODER, DECODER, MEMORY = (
    "encoder.0.attention",
    "decoder.0.attention",
    "decoder.0.memory_attention",
)


def pieces(kind: str, size: int = 60, **changes: Any) -> Vocabulary:
    config = VocabularyConfig(
        kind=kind, size=size, character_coverage=1.0, byte_fallback=False, sentences=99, **changes
    )
    return Vocabulary(vocabulary.train(TEXT, config))


def maps(weights: dict[str, Any], source: Sequence[str], target: Sequence[str] = ()) -> Maps:
    said = [*target]
    arrays = {layer: np.array(of, np.float32) for layer, of in weights.items()}
    return Maps([*source], ["<s>", *said[:-1]], said, arrays)


# --- tokens and words ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word_piece", "characters", "bytes"])
def test_words_are_joined_from_tokens(kind: str) -> None:
    of = pieces(kind, 29 if kind == "unigram" else 60)
    for line in TEXT:
        (ids,) = of.encode([line])
        tokens = of.tokens(ids)
        assert len(tokens) == len(ids)
        assert tokens[-1] == "</s>"
        one = maps({}, tokens, tokens)
        assert one.texts(one.source) == [*line.split(" "), "</s>"]
        assert "".join(tokens[:-1]).replace("▁", " ").strip() == line or kind == "bytes"
    assert of.tokens([0, 1, 2, 3]) == vocabulary.SPECIAL


def test_bytes_that_are_no_text_are_shown() -> None:
    of = pieces("bytes")
    (ids,) = of.encode(["Är\x01"])
    assert of.tokens(ids) == ["<0xC3>", "<0x84>", "r", "<0x01>", "</s>"]
    one = maps({}, of.tokens(ids[1:]), ["</s>"])
    assert one.texts(one.source) == ["\ufffdr\x01", "</s>"]


def test_symbols_of_trees_are_words_each() -> None:
    symbols = Symbols.learn([TREE], tags=True, words=1)
    of = Vocabulary(pieces("bpe")._model, symbols=symbols)
    (ids,) = of.encode([TREE], "target")
    tokens = of.tokens(ids, "target")
    assert tokens == "(S (NP DT dog )NP (VP VBZ (NP DT dog )NP )VP . )S </s>".split()
    one = Maps(["▁a", "b", "</s>"], ["<s>", *tokens[:-1]], tokens, {}, symbols=True)
    assert one.words(one.predicted) == [*range(len(tokens))]
    assert one.words(one.source) == [0, 0, 1]


def test_weights_by_word() -> None:
    source = ["▁a", "b", "▁c", "</s>"]
    rows = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.1, 0.3], [0.0, 0.0, 1.0, 0.0], [0.25] * 4]
    one = maps({ENCODER: [rows]}, source)
    expected = [[0.45, 0.2, 0.35], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]]
    np.testing.assert_allclose(one.by_word(ENCODER)[0], expected, atol=1e-6)
    # Keys of the decoder are what it has read, its rows what it predicts.
    said = ["▁x", "y", "</s>"]
    lower = [[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]]
    one = maps({DECODER: [lower]}, source, said)
    assert (one.rows(DECODER), one.keys(DECODER)) == (said, ["<s>", "▁x", "y"])
    np.testing.assert_allclose(one.by_word(DECODER)[0], [[0.75, 0.25], [0.2, 0.8]], atol=1e-6)


# --- maps of a model -----------------------------------------------------------------------------


class OfNumbers:
    """A vocabulary whose tokens are numbers."""

    symbols = None

    @staticmethod
    def tokens(ids: Sequence[int], side: str = "source") -> list[str]:
        return [f"▁{i}" for i in ids]


@pytest.mark.parametrize("kind", ["scaled_dot_product", "dot_product", "additive"])
def test_maps_are_those_of_the_model_in_one_pass(kind: str) -> None:
    model = randomised(small(attention=kind, d_k=5, d_v=3, attention_dropout=0.3)).train()
    pair = Pair([7, 8, 9, 10, EOS], [11, 12, EOS])
    found = attention_maps.maps(model, OfNumbers, pair)  # type: ignore[arg-type]
    assert found.source == ["▁7", "▁8", "▁9", "▁10", "▁2"]
    assert found.read == ["▁1", "▁11", "▁12"]  # one later
    assert found.predicted == ["▁11", "▁12", "▁2"]
    # Beside a longer pair: padding changes nothing.
    batch = torch.tensor([[*pair.source, 0, 0], [5, 6, 7, 8, 9, 10, EOS]])
    said = torch.tensor([[BOS, 11, 12, 0], [BOS, 4, 5, 6]])
    together = model.attention_weights(batch, said)
    for layer, weights in found.weights.items():
        n, m = weights.shape[1:]
        assert (len(found.rows(layer)), len(found.keys(layer))) == (n, m)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
        beside = together[layer][0, :, :n, :m].numpy()
        np.testing.assert_allclose(weights, beside, atol=1e-6)
    assert len(found.weights) == 6


# --- heads in numbers ----------------------------------------------------------------------------


def plain(weights: NDArray[np.float64], keys: Sequence[str], causal: bool) -> dict[str, Any]:
    """The same numbers of one map of one head, one row after another."""
    n, m = weights.shape
    entropies, distances, ends, punctuation, diagonal = [], [], [], [], []
    at: dict[int, list[float]] = {}
    for i in range(n):
        row = weights[i]
        seen = i + 1 if causal else m
        if seen > 1:
            entropies.append(-sum(w * math.log(w) for w in row if w > 0) / math.log(seen))
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


@pytest.mark.parametrize("layer", [ENCODER, DECODER, MEMORY])
def test_numbers_of_heads(layer: str) -> None:
    draw = np.random.default_rng(3)
    source = ["▁a", ",", "b", "▁(", "▁c", "d", ".", "</s>"]
    said = ["▁x", "y", ",", "▁z", "▁.", "</s>"]
    one = maps({}, source, said)
    n, m = len(one.rows(layer)), len(one.keys(layer))
    causal = layer == DECODER
    weights = draw.dirichlet([0.3] * m, (3, n)) * (np.tri(n, m) if causal else 1)
    weights /= weights.sum(-1, keepdims=True)
    one.weights[layer] = weights.astype(np.float32)
    found = attention_maps.heads([one])
    assert [entry["head"] for entry in found] == [0, 1, 2]
    for entry, of_head in zip(found, one.weights[layer], strict=True):
        expected = plain(of_head.astype(np.float64), one.keys(layer), causal)
        if layer != MEMORY:
            expected["diagonal"] = None
        for name, value in expected.items():
            assert entry[name] == (value if value is None else pytest.approx(value, abs=1e-6)), name
        assert entry["layer"] == layer


def test_means_are_over_the_rows_of_all_maps() -> None:
    short = maps({ENCODER: [np.eye(2)]}, ["▁a", "</s>"])
    long = maps({ENCODER: [np.eye(6)[::-1]]}, [*"abcde", "</s>"])
    (found,) = attention_maps.heads([short, long])
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
    (found,) = attention_maps.heads([maps({ENCODER: [weights]}, [f"▁{i}" for i in range(n)])])
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


@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_the_loss_without_a_head(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_maps, "AT_ONCE", at_once)
    model = randomised(small(d_k=5, d_v=3, dropout=0.2)).train()
    before = copy.deepcopy(model.state_dict())
    done: list[int] = []
    found = attention_maps.loss_without(model, PAIRS, done.append)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert sum(done) == len(found) == attention_maps.head_count(model) == 12
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

    monkeypatch.setattr(attention_maps, "_loss", fails)
    with pytest.raises(MemoryError):
        attention_maps.loss_without(model, PAIRS)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


# --- what is chosen ------------------------------------------------------------------------------


def test_a_layer_heads_and_a_word_are_chosen() -> None:
    weights = {f"{part}.{i}.attention": np.ones((2, 3, 3)) for part in ("encoder",) for i in (0, 1)}
    one = maps(weights, ["▁a", "b", "</s>"], ["▁x", "</s>"])
    assert attention_maps.choose(one, "encoder") == ("encoder.1.attention", [0, 1], None)
    found = attention_maps.choose(one, "encoder", 1, [2], "ab")
    assert found == ("encoder.0.attention", [1], 0)
    by_token = attention_maps.choose(one, "encoder", 1, [2], "b", words=False)
    assert by_token == ("encoder.0.attention", [1], 1)
    for given, problem in (
        ((one, "memory"), "has no attention of the kind memory"),
        ((one, "encoder", 3), "--layer 3: encoder attention has layers 1, 2"),
        ((one, "encoder", 0), "--layer 0"),
        ((one, "encoder", 1, [3]), "--head 3: the layer has heads 1 to 2"),
        ((one, "encoder", 1, [0]), "--head 0"),
        ((one, "encoder", 1, None, "its"), "--word its: the words are ab </s>"),
    ):
        with pytest.raises(UserError, match=problem):
            attention_maps.choose(*given)  # type: ignore[arg-type]


# --- what a model has learned --------------------------------------------------------------------


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_a_learned_order_is_seen_in_the_memory(task: str) -> None:
    """A model that copies looks along the diagonal, one that reverses along the other one."""
    torch.manual_seed(1)
    model = Transformer(small(layers=1, d_model=64, heads=1, d_k=64, d_v=64, d_ff=128), 16).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def drawn(length: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        words = torch.randint(4, 16, (count, length))
        said = words if task == "copy" else words.flip(1)
        end = torch.full((count, 1), EOS)
        return torch.cat((words, end), 1), torch.cat((said, end), 1)

    for step in range(1200):
        source, target = drawn(4 + step % 5, 32)
        target_in = torch.cat((torch.full_like(target[:, :1], BOS), target[:, :-1]), 1)
        logits = model(source, target_in)
        F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    shares = []
    for _ in range(20):
        (source,), (target,) = drawn(7, 1)
        pair = Pair(source.tolist(), target.tolist())
        weights = attention_maps.maps(model, OfNumbers, pair).weights[MEMORY]  # type: ignore[arg-type]
        order = range(7) if task == "copy" else range(6, -1, -1)
        shares.append(weights[:, range(7), [*order]].mean(axis=1))
    assert np.mean(shares) > 0.8
