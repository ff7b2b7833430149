"""Builders that the tests of the model share: configurations, padded pieces, random weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.architecture.transformer import Transformer

KINDS = ("scaled_dot_product", "dot_product", "additive")
NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned")
FEED_FORWARDS = ("relu", "swiglu")
NORM_KINDS = ("layernorm", "rmsnorm")
MIXERS = ("self_attention", "restricted", "recurrent", "convolutional", "separable")
VOCABULARY = 50


def small(**changes: object) -> TransformerConfig:
    """A model as the paper's, but small."""
    values: dict[str, object] = {
        "layers": 2,
        "d_model": 16,
        "d_ff": 24,
        "heads": 2,
        "d_k": 8,
        "d_v": 8,
        "dropout": 0.1,
        "attention": "scaled_dot_product",
        "norm": "post",
        "attention_dropout": 0.0,
        "feed_forward_dropout": 0.0,
        "positions": "sinusoidal",
        "tie_embeddings": True,
    }
    return TransformerConfig(**(values | changes))  # type: ignore[arg-type]


def padded(lengths: Sequence[int], vocabulary: int = VOCABULARY) -> Tensor:
    """Random words in rows of these lengths, padded at the end to the longest."""
    rows = [torch.randint(4, vocabulary, (length,)) for length in lengths]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def randomised(
    config: TransformerConfig, seed: int = 0, vocabulary: int = VOCABULARY
) -> Transformer:
    """A model none of whose numbers is still at its start.

    Biases of 0 and gains of 1 would hide that they are forgotten.
    """
    torch.manual_seed(seed)
    model = Transformer(config, vocabulary)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.normal_(1.0, 0.3)
                module.bias.normal_(0.0, 0.3)
            elif isinstance(module, nn.RMSNorm):
                module.weight.normal_(1.0, 0.3)
            elif isinstance(module, nn.LSTM):
                module.bias_ih_l0.normal_(0.0, 0.3)
                module.bias_hh_l0.normal_(0.0, 0.3)
            elif isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.normal_(0.0, 0.3)
    return model


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Greatest difference, measured by the greatest number expected."""
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def steps_are_whole_passes(model: Architecture, *, steps: int, ends: dict[int, int]) -> None:
    """Each step of a search that swaps, drops and repeats hypotheses says what a pass over the
    hypothesis's own tokens says.

    model: in float64; ends: after which steps which of the sentences left is done. All but one are.
    """
    torch.manual_seed(7)
    source, hypotheses = padded([5, 9, 2]), 3
    history = torch.full((3, 1, 1), BOS)
    with torch.no_grad():
        cache = model.start(source)
        for i in range(steps):
            logits = model.step(history[:, :, -1], cache)
            for b, rows in enumerate(history):
                whole = model(source[b : b + 1].expand(len(rows), -1), rows)[:, -1]
                torch.testing.assert_close(logits[b], whole, rtol=1e-10, atol=1e-10)
            stay = [b for b in range(len(source)) if b != ends.get(i)]
            keep = torch.tensor(stay)
            parents = torch.randint(history.size(1), (len(stay), hypotheses))
            words = torch.randint(4, VOCABULARY, (len(stay), hypotheses, 1))
            cache.select((keep[:, None] * history.size(1) + parents).flatten())
            history = torch.cat((history[keep[:, None], parents], words), dim=2)
            if len(stay) < len(source):
                cache.keep(keep)
                source = source[keep]
    assert len(source) == 1


@contextmanager
def fused_calls() -> Iterator[list[dict[str, object]]]:
    """Notes the options of each call of PyTorch's fused attention, which works as ever."""
    calls: list[dict[str, object]] = []
    fused = F.scaled_dot_product_attention

    def noting(*tensors: Tensor, **options: object) -> Tensor:
        calls.append(options)
        return fused(*tensors, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", noting)
        yield calls
