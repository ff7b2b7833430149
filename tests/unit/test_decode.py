"""Beam search against exhaustive search, greedy search and itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from seq2sweep import config as configuration
from seq2sweep.config import Config, ModelConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD, Vocabulary
from seq2sweep.decode.average import average
from seq2sweep.decode.beam import length_penalty, search, translate
from seq2sweep.model.transformer import Transformer

from ..conftest import WORDS, Corpus


def random_model(seed: int, vocabulary: int, sharpness: float = 3.0) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        layers=1,
        d_model=8,
        d_ff=16,
        heads=2,
        d_k=4,
        d_v=4,
        dropout=0.0,
        positions="sinusoidal",
        tie_embeddings=False,
    )
    model = Transformer(config, vocabulary).eval()
    with torch.no_grad():
        model.projection.weight.mul_(sharpness)
    return model


def log_probability(model: Transformer, source: torch.Tensor, pieces: list[int]) -> float:
    target_in = torch.tensor([[BOS, *pieces[:-1]]])
    logits = model(source, target_in)
    logits[:, :, [PAD, BOS]] = -torch.inf
    return torch.log_softmax(logits, -1)[0, range(len(pieces)), pieces].sum().item()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_beam_of_all_finds_the_exhaustive_optimum(seed: int, alpha: float) -> None:
    vocabulary, longest = 6, 4  # pieces that may be said: EOS and 3, 4, 5
    model = random_model(seed, vocabulary)
    source = torch.tensor([[3, 4, EOS]])
    words = [3, 4, 5]
    every = [
        [*prefix, EOS] for n in range(longest) for prefix in itertools.product(words, repeat=n)
    ]
    scores = {
        tuple(y): log_probability(model, source, y) / ((5 + len(y)) / 6) ** alpha for y in every
    }
    best = max(scores, key=lambda y: scores[y])
    found = search(model, source, beam=4**longest, alpha=alpha, max_extra_tokens=longest - 2)[0]
    assert tuple(found[0].pieces) == best
    assert found[0].score == pytest.approx(scores[best], abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    beam=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_early_stop_batch_and_padding_change_nothing(
    seed: int, beam: int, alpha: float, lengths: list[int]
) -> None:
    model = random_model(seed, 12)
    rows = [[*torch.randint(4, 12, (n,)).tolist(), EOS] for n in lengths]
    source = torch.full((len(rows), max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        source[i, : len(row)] = torch.tensor(row)
    options = {"beam": beam, "alpha": alpha, "max_extra_tokens": 6}
    together = search(model, source, **options)  # type: ignore[arg-type]
    patient = search(model, source, early_stop=False, **options)  # type: ignore[arg-type]
    for i, row in enumerate(rows):
        alone = search(model, torch.tensor([row]), **options)[0]  # type: ignore[arg-type]
        assert together[i][0].pieces == alone[0].pieces == patient[i][0].pieces
        assert together[i][0].score == pytest.approx(alone[0].score, abs=1e-4)
        assert len(alone[0].pieces) <= len(row) - 1 + 6
        if alone[0].pieces[-1] == EOS:
            expected = log_probability(model, torch.tensor([row]), alone[0].pieces)
            penalty = length_penalty(len(alone[0].pieces), alpha)
            assert alone[0].score == pytest.approx(expected / penalty, abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_beam_one_is_greedy(seed: int) -> None:
    model = random_model(seed, 12)
    source = torch.tensor([[5, 7, 4, EOS]])
    pieces: list[int] = []
    while len(pieces) < 9 and (not pieces or pieces[-1] != EOS):
        logits = model(source, torch.tensor([[BOS, *pieces]]))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        pieces.append(int(logits.argmax()))
    found = search(model, source, beam=1, alpha=0.6, max_extra_tokens=6)[0]
    assert found[0].pieces == pieces
    assert len(found) == 1


def test_length_penalty_by_hand() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(13, 0.5) == pytest.approx(3**0.5)


def test_translations_keep_the_order_and_empty_lines_stay_empty(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary.open(tiny_corpus.vocabulary)
    model = Transformer(tiny_config.model, len(vocabulary)).eval()
    lines = ["", *WORDS, " ".join(WORDS), "  ", " ".join(WORDS[:3])]
    config = configuration.with_changes(
        tiny_config, {"evaluate.tokens_per_batch": 40, "evaluate.max_extra_tokens": 5}
    ).evaluate
    done: list[int] = []
    together = translate(model, vocabulary, lines, config, torch.device("cpu"), done.append)
    alone = [translate(model, vocabulary, [line], config, torch.device("cpu"))[0] for line in lines]
    assert together == alone
    assert together[0] == together[-2] == ""
    assert sum(done) == len(lines)
    assert len(done) > 1


def test_average_is_the_mean(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for i, file in enumerate(files):
        save_file({"a": torch.tensor([float(i), 1.0]), "b": torch.full((2, 2), i * 3.0)}, file)
    mean = average(files)
    assert mean["a"].tolist() == [1.0, 1.0]
    assert torch.equal(mean["b"], torch.full((2, 2), 3.0))
    save_file({"a": torch.zeros(3), "b": torch.zeros(2, 2)}, files[0])
    with pytest.raises(ValueError, match="another shape"):
        average(files)
    save_file({"c": torch.zeros(3)}, files[0])
    with pytest.raises(ValueError, match="other tensors"):
        average(files)
    with pytest.raises(ValueError, match="no checkpoint"):
        average([])
