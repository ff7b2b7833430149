"""An ensemble searches with the mean of its members' probabilities."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2sweep.data.vocabulary import EOS
from seq2sweep.decode.beam import Hypothesis, OurSearch, length_penalty, search
from seq2sweep.decode.ensemble import Ensemble
from seq2sweep.decode.well_formed import Trees
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.layers import LEARNED_POSITIONS

from ..paper.models import VOCABULARY, randomised, small
from ..paper.test_decoding import assert_same, beam_search_as_defined, padded, random_rows
from ..paper.test_rivals import SETTINGS, made
from .test_forced import bitext, scores, step_by_step
from .test_streaming import options

LENGTHS = [4, 1, 6, 3]
SEARCH: dict[str, Any] = {"beam": 3, "alpha": 0.6, "max_extra_tokens": 4, "n_best": 3}
TRANSFORMER = vars(small()) | {"architecture": "transformer"}


def model(changes: dict[str, Any] = TRANSFORMER, seed: int = 0, sharpness: float = 4.0) -> Any:
    """Sharp enough for members to disagree; it ends sooner or later."""
    found = made(changes, seed).eval()
    if isinstance(found, Transformer):
        found.projection.weight.data.mul_(sharpness)
    return found


class Mean:
    """The mean of models' probabilities of the next piece, each from one pass over all before."""

    vocabulary_size = VOCABULARY

    def __init__(self, members: Sequence[Any]) -> None:
        self.members = members

    @torch.no_grad()
    def __call__(self, source: Tensor, target_in: Tensor) -> Tensor:
        numbers = [member(source, target_in).softmax(-1).numpy() for member in self.members]
        return torch.tensor(np.log(np.mean(numbers, axis=0)))


@pytest.mark.parametrize("changes", [*SETTINGS, TRANSFORMER], ids=lambda c: c["architecture"])
def test_of_a_model_with_itself_it_is_the_model(changes: dict[str, Any]) -> None:
    alone = model(changes)
    source = padded(random_rows(0, LENGTHS, VOCABULARY))
    expected = search(alone, source, **SEARCH)
    for members in ([alone], [alone, alone], [alone, model(changes), alone]):
        found = search(Ensemble(members), source, **SEARCH)
        for mine, other in zip(found, expected, strict=True):
            assert_same(mine, other)


MIXED = [
    [TRANSFORMER, TRANSFORMER],
    [TRANSFORMER, SETTINGS[0]],
    [SETTINGS[2], SETTINGS[4], TRANSFORMER],
]


@pytest.mark.parametrize("kinds", MIXED, ids=["alike", "two", "three"])
def test_it_is_beam_search_as_defined_on_mean_probabilities(kinds: list[dict[str, Any]]) -> None:
    members = [model(changes, seed) for seed, changes in enumerate(kinds)]
    rows = random_rows(1, LENGTHS, VOCABULARY)
    found = search(Ensemble(members), padded(rows), **SEARCH)
    mean: Any = Mean(members)
    for row, hypotheses in zip(rows, found, strict=True):
        expected = beam_search_as_defined(mean, row, 3, 0.6, "paper", 4)
        assert_same(hypotheses, expected[:3])
    # No member says so by itself, nor does a mean of logarithms.
    for member in members:
        assert [best[0] for best in search(member, padded(rows), **SEARCH)] != [b[0] for b in found]


def test_the_order_of_members_does_not_matter() -> None:
    members = [model(changes, seed) for seed, changes in enumerate(MIXED[2])]
    source = padded(random_rows(2, LENGTHS, VOCABULARY))
    expected = search(Ensemble(members), source, **SEARCH)
    for order in itertools.permutations(members):
        for mine, other in zip(search(Ensemble(order), source, **SEARCH), expected, strict=True):
            assert_same(mine, other)


@torch.no_grad()
def test_what_one_member_excludes_can_still_be_said() -> None:
    sure = model(seed=1)
    step = sure.step

    def never_ends(pieces: Tensor, cache: Any) -> Tensor:
        logits: Tensor = step(pieces, cache)
        logits[..., EOS] = -torch.inf
        return logits

    sure.step = never_ends
    both = Ensemble([sure, model(seed=2, sharpness=1.0)])
    source = padded(random_rows(3, [5], VOCABULARY))
    cache = both.start(source)
    probability = both.step(torch.tensor([[1]]), cache).exp()
    other = both.members[1]
    alone = other.step(torch.tensor([[1]]), other.start(source)).softmax(-1)  # type: ignore[operator]
    assert float(probability.sum()) == pytest.approx(1)
    assert float(probability[0, 0, EOS]) == pytest.approx(float(alone[0, 0, EOS]) / 2)


def test_forced_decoding_gives_the_scores_of_its_search() -> None:
    members = [model(changes, seed) for seed, changes in enumerate(MIXED[2])]
    both = Ensemble(members)
    rows = random_rows(4, LENGTHS, VOCABULARY)
    sources, found = [], list[Hypothesis]()
    for row, best in zip(rows, search(both, padded(rows), **SEARCH), strict=True):
        sources += [row] * len(best)
        found += best
    forced = scores(both, bitext(sources, [one.pieces for one in found]), 40)
    for row, one, score in zip(sources, found, forced, strict=True):
        expected = one.score * length_penalty(len(one.pieces), 0.6)
        assert score.log_probability == pytest.approx(expected, abs=1e-9)
        assert score.log_probability == pytest.approx(step_by_step(both, row, one.pieces), abs=1e-9)


def test_it_travels_and_finds_trees_as_a_model_does() -> None:
    alone = randomised(small(tie_embeddings=False), vocabulary=VOCABULARY).double().eval()
    source = [[5, 6, 7, EOS], [8, EOS]]
    trees = Trees([3, 1], 2)
    engine = OurSearch(Ensemble([alone, alone]), options(beam=2), torch.device("cpu"))
    found = pickle.loads(pickle.dumps(engine))(source, n_best=2, trees=trees)
    expected = OurSearch(alone, options(beam=2), torch.device("cpu"))(source, n_best=2, trees=trees)
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other)


def test_parsers_with_more_columns_to_spare_go_together() -> None:
    """As with another `model.target_symbols`; what is to spare is no symbol. The wider one says of
    all others what the narrow one says, times what it does not give to its columns to spare."""
    changes = vars(small(tie_embeddings=False)) | {"architecture": "transformer"}
    members = [model(changes | {"target_symbols": symbols}, 1) for symbols in (14, 17)]
    wide, narrow = (members[1].state_dict(), members[0].state_dict())
    for name, weights in narrow.items():
        wide[name][tuple(map(slice, weights.shape))] = weights
    members[1].load_state_dict(wide)
    members[1].projection.weight.data[14:] = 0
    source = padded(random_rows(0, LENGTHS, VOCABULARY))
    trees = Trees([3, 0, 5, 2], 2)
    alone = search(members[0], source, **SEARCH, trees=trees)
    for order in (members, members[::-1]):
        found = search(Ensemble(order), source, **SEARCH, trees=trees)
        for mine, other in zip(found, alone, strict=True):
            assert_same(mine, other)


def test_what_goes_together() -> None:
    learned = model(TRANSFORMER | {"positions": "learned"})
    both = Ensemble([model(), learned])
    assert both.max_length == LEARNED_POSITIONS
    assert Ensemble([model()]).max_length > LEARNED_POSITIONS
    with pytest.raises(ValueError, match="not of 2 sizes"):
        Ensemble([model(), randomised(small(), vocabulary=9)])
    with pytest.raises(ValueError, match="not of 0 sizes"):
        Ensemble([])
    with pytest.raises(NotImplementedError, match="ask its members"):
        both(torch.tensor([[EOS]]), torch.tensor([[1]]))
