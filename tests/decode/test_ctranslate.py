"""Weights in CTranslate2's format say what ours say."""

from __future__ import annotations

import importlib.util
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2sweep import presets
from seq2sweep.config import TransformerConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode import ctranslate
from seq2sweep.decode.beam import search
from seq2sweep.errors import UserError
from tests.paper.models import FEED_FORWARDS, NORM_KINDS, padded, randomised, small

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None,
    reason="ctranslate2 is not installed (the extra of that name)",
)
LENGTHS = [3, 9, 5, 1, 12, 7]


def settings(**changes: Any) -> Any:
    evaluate = presets.load("phrasebook").config.evaluate
    values = {"beam": 4, "alpha": 0.0, "length_penalty": "power", "max_extra_tokens": 20}
    return type(evaluate)(**(vars(evaluate) | values | changes))


# What a beam finds when the end is nearly as good as going on depends on when a search stops:
# unscaled attention, all or nothing with these weights, is compared without a beam.
SEARCHES = [("scaled_dot_product", 1), ("scaled_dot_product", 4), ("dot_product", 1)]
EVERY_PAIR = {
    (True, "post", "sinusoidal", ("scaled_dot_product", 1)),
    (False, "pre", "learned", ("scaled_dot_product", 1)),
    (True, "pre", "learned", ("scaled_dot_product", 4)),
    (False, "post", "sinusoidal", ("scaled_dot_product", 4)),
    (True, "post", "learned", ("dot_product", 1)),
    (False, "pre", "sinusoidal", ("dot_product", 1)),
}
"""Of two values, one case at least."""


@pytest.mark.parametrize(
    ("tie", "norm", "positions", "attention", "beam"),
    [
        pytest.param(
            *parts, *way, marks=() if (*parts, way) in EVERY_PAIR else pytest.mark.thorough
        )
        for *parts, way in product(
            (True, False), ("post", "pre"), ("sinusoidal", "learned"), SEARCHES
        )
    ],
)
def test_it_finds_what_our_search_finds(
    tie: bool, norm: str, positions: str, attention: str, beam: int, tmp_path: Path
) -> None:
    changes = {"tie_embeddings": tie, "norm": norm, "positions": positions}
    finds_what_ours_finds(small(attention=attention, **changes), beam, tmp_path)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("feed_forward", FEED_FORWARDS)
@pytest.mark.parametrize("norm_kind", NORM_KINDS)
def test_it_knows_other_parts(feed_forward: str, norm_kind: str, norm: str, tmp_path: Path) -> None:
    config = small(feed_forward=feed_forward, norm_kind=norm_kind, norm=norm)
    finds_what_ours_finds(config, 4, tmp_path)
    written = json.loads((tmp_path / "exported" / "config.json").read_text(encoding="utf-8"))
    assert written["layer_norm_epsilon"] == {"layernorm": 1e-5, "rmsnorm": 1e-6}[norm_kind]


def finds_what_ours_finds(model_config: TransformerConfig, beam: int, tmp_path: Path) -> None:
    model = randomised(model_config, seed=4).eval()
    with torch.no_grad():
        model.projection.weight[EOS] += 0.3  # so that some end before they are cut
    ctranslate.export(model, tmp_path / "exported")
    source = padded([n + 1 for n in LENGTHS])
    for row, n in enumerate(LENGTHS):
        source[row, n] = EOS
    config = settings(beam=beam)
    engine = ctranslate.Search(tmp_path / "exported", config, threads=1)
    rows = [source[i, : n + 1].tolist() for i, n in enumerate(LENGTHS)]
    for row in rows:  # one by one: a limit of length is that of each
        ours = search(
            model, torch.tensor([row]), beam=beam, alpha=0.0, penalty="power",
            max_extra_tokens=config.max_extra_tokens,
        )[0][0].pieces  # fmt: skip
        ((theirs, *_),) = engine([row], n_best=beam)
        assert theirs.pieces == (ours[:-1] if ours[-1] == EOS else ours)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_as_many_tokens_as_there_are_positions(positions: str, tmp_path: Path) -> None:
    """More than CTranslate2 takes by itself, and no more than it has positions for."""
    model = randomised(small(positions=positions), seed=4).eval()
    config = settings(beam=1, max_input_tokens=1500, max_extra_tokens=30)
    longest = ctranslate.most_tokens(config)
    ctranslate.export(model, tmp_path / "exported", longest=longest)
    most = min(longest, model.max_length)
    length = {"sinusoidal": 1529, "learned": 1024}[positions]
    source = padded([min(most, 1500)])
    source[0, -1] = EOS
    engine = ctranslate.Search(tmp_path / "exported", config, 1, shortest=length, max_length=most)
    [[found]] = engine([source[0].tolist()], n_best=1)
    assert len(found.pieces) == length
    with torch.no_grad():
        logits = model(source, torch.tensor([[BOS, *found.pieces[:-1]]]))[0].float()
    places = torch.arange(length), torch.tensor(found.pieces)
    [scored] = engine.log_probs([source[0].tolist()], [found.pieces[:-1]])
    ours = logits.log_softmax(dim=-1)[places]
    torch.testing.assert_close(torch.tensor(scored[:-1]), ours[:-1], rtol=1e-4, atol=1e-4)
    # In a search none of these can be chosen, the end because of `shortest`.
    logits[:, [PAD, BOS, EOS]] = -torch.inf
    ours = logits.log_softmax(dim=-1)[places]
    assert found.score == pytest.approx(ours.sum().item(), rel=1e-4)


def test_what_it_does_not_know_is_refused(tmp_path: Path) -> None:
    for changes in ({"attention": "additive"}, {"d_k": 4}, {"d_v": 16}):
        with pytest.raises(UserError, match="CTranslate2 knows dot-product"):
            ctranslate.export(randomised(small(**changes)), tmp_path / "no")
    for mixer in ({"encoder_mixer": "recurrent"}, {"decoder_mixer": "separable"}):
        with pytest.raises(UserError, match="self_attention only; this model has"):
            ctranslate.export(randomised(small(**mixer)), tmp_path / "no")
    own = randomised(small())
    object.__setattr__(own.config, "attention", "cosine")
    with pytest.raises(UserError, match=r"CTranslate2 knows dot-product .* has cosine"):
        ctranslate.export(own, tmp_path / "no")
    unknown = randomised(small())
    object.__setattr__(unknown.config, "feed_forward", "geglu")
    with pytest.raises(UserError, match=r"knows feed_forward relu and swiglu, .* has geglu"):
        ctranslate.export(unknown, tmp_path / "no")
    with pytest.raises(AssertionError):
        ctranslate.Search(tmp_path, settings(length_penalty="paper", alpha=0.6), threads=1)
