"""Several models as one: their probabilities are averaged at each step of a search.

The arithmetic mean of probabilities, as fairseq (whose ConvS2S ensemble is a rival in Table 2) and
Sockeye (by default) have it; others, such as OpenNMT-py, average log-probabilities. Of
the two only the first is a probability again, so that scores and perplexities stay what they are of
one model: a word that one member excludes can still be said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2sweep.model.architecture import Architecture, Cache


def _of_one_model(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("an ensemble decodes step by step; ask its members for the rest")


class Ensemble(Architecture):
    """Models of one vocabulary, of any architectures, where a search takes a model.

    Of models of trees some may have more columns to spare (`model.target_symbols`): those are left
    out, and the others sum to one.

    It can be moved and copied as a model, but not trained, saved or looked into.
    """

    def __init__(self, members: Sequence[Architecture]) -> None:
        """Raises ValueError when there is none, or vocabularies differ in size."""
        sizes = {member.vocabulary_size for member in members}
        if len(sizes) != 1:
            raise ValueError(f"members of one vocabulary are needed, not of {len(sizes)} sizes")
        super().__init__(None, sizes.pop())
        self.members = nn.ModuleList(members)

    def start(self, source: Tensor) -> EnsembleCache:
        """Encode source [B, n] with each member and prepare to decode it step by step."""
        return EnsembleCache([member.start(source) for member in members_of(self)])

    def step(self, pieces: Tensor, cache: EnsembleCache) -> Tensor:
        """Log-probabilities [B, K, V] after appending pieces [B, K] to each hypothesis: logits of
        which the softmax is the mean of the members'."""
        logs = []
        for member, of in zip(members_of(self), cache.members, strict=True):
            logits = member.step(pieces, of)
            wide = torch.promote_types(logits.dtype, torch.float32)
            logs.append(logits.to(wide).log_softmax(dim=-1))
        narrowest = min(one.size(-1) for one in logs)
        return log_mean([one[..., :narrowest] for one in logs])

    @property
    def max_length(self) -> int:
        """Most pieces a side may have for each member."""
        return int(min(member.max_length for member in members_of(self)))

    forward = encode = attention_weights = blocks = _of_one_model
    parameter_count = forward_flops = kept_bytes = staticmethod(_of_one_model)


class EnsembleCache:
    """What a decoding step needs of the steps before: a cache of each member."""

    def __init__(self, members: Sequence[Cache]) -> None:
        self.members = members

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""
        for member in self.members:
            member.select(hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices)."""
        for member in self.members:
            member.keep(sentences)


def members_of(model: Architecture) -> list[Any]:
    """Those of an ensemble; a model is one of itself."""
    return [*model.members] if isinstance(model, Ensemble) else [model]


def log_mean(logs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of numbers, of which these are the logarithms; all of one shape."""
    return torch.stack([*logs]).logsumexp(dim=0) - math.log(len(logs))
