"""A search in bfloat16: which hypotheses it finds, and that nothing else is in it."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
import torch

from seq2sweep.config import Config
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode.beam import OurSearch, length_penalty
from seq2sweep.decode.ensemble import Ensemble
from seq2sweep.model import products
from seq2sweep.model.building import build
from seq2sweep.model.caching import KeyValueCache

from ..paper.models import VOCABULARY
from ..paper.test_rivals import SETTINGS, section

CPU = torch.device("cpu")
TRANSFORMER: dict[str, Any] = {
    "architecture": "transformer", "layers": 2, "heads": 2, "d_ff": 32, "d_k": 8, "d_v": 8,
    "attention": "scaled_dot_product", "norm": "post", "positions": "sinusoidal",
    "attention_dropout": 0.0, "feed_forward_dropout": 0.0,
}  # fmt: skip
MODELS = [
    TRANSFORMER,
    TRANSFORMER | {"attention": "additive", "positions": "learned"},
    *({"decoder_mixer": mixer, "mixer_neighbourhood": 3, "mixer_kernel": 3} | TRANSFORMER
      for mixer in ("restricted", "recurrent", "convolutional", "separable")),
    *SETTINGS,
]  # fmt: skip
SENTENCES = [[5, 9, 11, EOS], [7, EOS], [4, 6, 8, 10, 12, EOS]]


def model_of(changes: dict[str, Any], seed: int = 1) -> Any:
    torch.manual_seed(seed)
    return build(section(changes), VOCABULARY).eval()


def engine_of(model: Any, config: Config, **changes: Any) -> OurSearch:
    changes = {"beam": 3, "alpha": 0.6, "max_extra_tokens": 4, "precision": "bf16"} | changes
    return OurSearch(model, dataclasses.replace(config.evaluate, **changes), CPU)


@pytest.mark.parametrize("changes", MODELS, ids=str)
@torch.inference_mode()
def test_scores_are_near_those_of_float32(changes: dict[str, Any], tiny_config: Config) -> None:
    model = model_of(changes)
    engine = engine_of(model, tiny_config)
    for source, found in zip(SENTENCES, engine(SENTENCES, n_best=3), strict=True):
        assert len(found) == 3
        for one in found:
            pieces = torch.tensor([one.pieces])
            logits = model(
                torch.tensor([source]), pieces.roll(1, 1).index_fill(1, torch.tensor(0), BOS)
            )
            logs = logits.log_softmax(dim=-1).gather(2, pieces.unsqueeze(-1)).sum()
            kind = engine.config.length_penalty
            exact = float(logs) / length_penalty(len(one.pieces), 0.6, kind)
            assert one.score == pytest.approx(exact, rel=0.02)
            assert one.score != exact
            # A sum of float32, which bfloat16 would have rounded.
            log = torch.tensor(one.score * length_penalty(len(one.pieces), 0.6, kind))
            assert abs(log - log.bfloat16()) > 1e-6
            assert not {PAD, BOS} & {*one.pieces}


def test_keys_and_values_are_kept_alike_in_either_type() -> None:
    """In bfloat16 they have no room beyond what is used."""
    torch.manual_seed(0)
    wide, narrow = (
        KeyValueCache(torch.empty(3, 2, 0, 4, dtype=kind), torch.empty(3, 2, 0, 5, dtype=kind))
        for kind in (torch.float32, torch.bfloat16)
    )
    columns = torch.tensor([[0, 2, 5], [1, 2, 3], [3, 4, 6]])
    stay = torch.tensor([0, 2])
    sentences, done = 3, {2: lambda c: c.hold(columns), 20: lambda c: c.keep(stay)}
    for step in range(40):
        news = torch.randn(sentences, 2, 4, 9).bfloat16()
        news = news[:, :, : 1 if step > 4 else 3]
        kept = [cache.append(news[..., :4].to(kind), news[..., 4:].to(kind)) for cache, kind in
                ((wide, torch.float32), (narrow, torch.bfloat16))]  # fmt: skip
        for exact, ours in zip(*kept, strict=True):
            assert torch.equal(exact, ours.float())
            assert ours.is_contiguous()
        for cache in (wide, narrow):
            done.get(step, lambda _: None)(cache)
        sentences = 3 if step < 20 else 2


def test_the_model_stays_in_float32(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(TRANSFORMER)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen: set[torch.dtype] = set()
    linear = products.linear

    def watched(x: Any, *arguments: Any, **options: Any) -> Any:
        seen.add(x.dtype)
        return linear(x, *arguments, **options)

    monkeypatch.setattr("seq2sweep.model.attention.linear", watched)
    engine = engine_of(model, tiny_config)
    found = engine(SENTENCES, n_best=2)
    assert seen == {torch.bfloat16}
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, before[name])
    # The copy does not travel: it is made where it is used.
    sent = pickle.dumps(engine)
    assert len(sent) < len(pickle.dumps(engine_of(model, tiny_config))) + 1000
    assert dataclasses.replace(pickle.loads(sent), device=CPU)(SENTENCES, n_best=2) == found
    assert engine_of(model, tiny_config, precision="float32")(SENTENCES, n_best=2) != found


def test_an_ensemble_has_all_its_members_in_it(tiny_config: Config) -> None:
    members = [model_of(TRANSFORMER, seed) for seed in (1, 2)]
    both = Ensemble(members)
    found = engine_of(both, tiny_config)(SENTENCES, n_best=1)
    exact = engine_of(both, tiny_config, precision="float32")(SENTENCES, n_best=1)
    for ours, theirs in zip(found, exact, strict=True):
        assert ours[0].score == pytest.approx(theirs[0].score, rel=0.02)
        assert ours[0].score != theirs[0].score
