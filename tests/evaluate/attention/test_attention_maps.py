"""What a model attends to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import vocabulary
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.data.vocabulary import BOS, EOS, Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import attention_maps
from seq2sweep.evaluate.attention.attention_maps import Maps, Pair
from seq2sweep.model.architecture.transformer import Transformer
from tests.paper.models import randomised, small

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
    of = Vocabulary(pieces("bpe").model, symbols=symbols)
    (ids,) = of.encode([TREE], "target")
    tokens = of.tokens(ids, "target")
    assert tokens == "(S (NP DT dog )NP (VP VBZ (NP DT dog )NP )VP . )S </s>".split()
    one = Maps(["▁a", "b", "</s>"], ["<s>", *tokens[:-1]], tokens, {}, symbols=True)
    assert one.words(one.predicted) == [*range(len(tokens))]
    assert one.words(one.source) == [0, 0, 1]


def test_what_the_vocabulary_does_not_know_begins_no_word() -> None:
    source = "▁the ▁ <unk> ▁man ▁caf <unk> s </s>".split()
    one = maps({}, source)
    assert one.words(source) == [0, 1, 1, 2, 3, 3, 3, 4]
    assert one.texts(source) == ["the", "<unk>", "man", "caf<unk>s", "</s>"]


@pytest.mark.parametrize("mixer", ["self_attention", "restricted"])
def test_a_neighbourhood_goes_with_the_maps_that_have_one(mixer: str) -> None:
    symbols = Symbols.learn([TREE], tags=True)
    of = Vocabulary(pieces("bpe").model, symbols=symbols)
    model = randomised(
        small(encoder_mixer=mixer, mixer_neighbourhood=3, tie_embeddings=False), vocabulary=len(of)
    )
    one = attention_maps.maps(model, of, Pair([5, 6, 7, 8, 2], [5, 6, 2]))
    wanted = {f"encoder.{i}.attention": 3 for i in range(2)} if mixer == "restricted" else {}
    assert one.neighbourhoods == wanted
    most = (one.weights["encoder.0.attention"] > 0).sum(-1).max()
    assert most == (3 if mixer == "restricted" else 5)


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


def double(vocabulary: Vocabulary) -> Any:
    """In place of a translator: it takes 99 tokens and cleans nothing."""
    return SimpleNamespace(vocabulary=vocabulary, longest_input=99, clean=list)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("The \udcff cat", "2 is not UTF-8"),  # as Python gives a byte of the command line
        (" ", "2 is empty"),
        (100 * "cat ", r"2 has \d+ tokens: at most 99"),
    ],
)
def test_a_text_that_no_model_takes_is_one_line(wrong: str, said: str) -> None:
    translator, both = double(pieces("bpe")), ["The dog", wrong]
    with pytest.raises(UserError, match=f"^sentence {said}"):
        attention_maps.pairs(translator, both)
    with pytest.raises(UserError, match=f"^target {said}"):
        attention_maps.pairs(translator, ["The dog", "The cat"], both)


@pytest.mark.parametrize(
    ("target", "said"),
    [("foo", "'foo' outside of any tree"), ("(S", "not closed"), (")", "that is not open")],
)
def test_a_target_that_is_no_tree_is_one_line(target: str, said: str) -> None:
    symbols = Symbols.learn([TREE])
    translator = double(Vocabulary(pieces("bpe").model, symbols=symbols))
    sentences = ["The dog sees a dog ."] * 2
    assert len(attention_maps.pairs(translator, sentences, [TREE, TREE])) == 2
    with pytest.raises(UserError, match=f"target 2 is no tree: .*{said}"):
        attention_maps.pairs(translator, sentences, [TREE, target])


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("The dog sees a cat .", "'dog' where its sentence has 'cat'"),
        ("The dog sees a dog", "'.' where its sentence has 'no word'"),
        ("The dog sees a dog . It", "'no word' where its sentence has 'It'"),
    ],
)
def test_a_tree_over_other_words_is_refused(sentence: str, said: str) -> None:
    translator = double(Vocabulary(pieces("bpe").model, symbols=Symbols.learn([TREE])))
    with pytest.raises(UserError, match=f"target 1 has {said}"):
        attention_maps.pairs(translator, [sentence], [TREE])


# --- what a model has learned --------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_a_learned_order_is_seen_in_the_memory(task: str) -> None:
    """A model that copies looks along the diagonal, one that reverses along the other one."""
    torch.manual_seed(1)
    model = Transformer(small(layers=1, d_model=64, heads=1, d_k=64, d_v=64, d_ff=128), 16).train()
    # In float64, so that it learns the same whatever the processor's rounding.
    model = model.double()
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
    there, back = range(7), range(6, -1, -1)
    shares, others = [], []
    for _ in range(20):
        (source,), (target,) = drawn(7, 1)
        pair = Pair(source.tolist(), target.tolist())
        weights = attention_maps.maps(model, OfNumbers, pair).weights[MEMORY]  # type: ignore[arg-type]
        order, other = (there, back) if task == "copy" else (back, there)
        shares.append(weights[:, there, [*order]].mean(axis=1))
        others.append(weights[:, there, [*other]].mean(axis=1))
    assert np.mean(shares) > 0.8
    assert np.mean(others) < 0.25
