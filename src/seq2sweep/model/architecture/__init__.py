"""What training, decoding and planning ask of a model. Each model is a module of this package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.model.packing import Packing

Lengths = NDArray[np.integer]


class Cache(Protocol):
    """What a decoding step needs of the steps before."""

    def select(self, hypotheses: Tensor) -> None:
        """Arrange hypotheses: row r becomes old row hypotheses[r], int64 [B * K_new]."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64, old indices)."""


class Architecture(nn.Module):
    """An encoder-decoder, as `model.architecture` names it and `model.building` builds it.

    Shapes: B sentences, n source pieces, m target pieces, K hypotheses a sentence, V pieces in the
    vocabulary of the target. Pieces are int64 ids, padded at the end with PAD. `Transformer` says
    more of each.
    """

    config: Any
    vocabulary_size: int

    def __init__(self, config: Any, vocabulary_size: int) -> None:
        """config: the section `model` of this architecture, such as a `TransformerConfig`."""
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size

    @abstractmethod
    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        packings: tuple[Packing, Packing] | None = None,
        head: Callable[[Tensor, Tensor], Any] = F.linear,
    ) -> Any:
        """Logits [B, m, V] of the next piece after each of target_in [B, m], or what `head` makes
        of the last states and the weights of the projection."""

    @abstractmethod
    def encode(self, source: Tensor, packing: Packing | None = None) -> Tensor:
        """The encoder's output [B, n, d_model], or packed, for source [B, n]."""

    @abstractmethod
    def start(self, source: Tensor) -> Cache:
        """Encode source [B, n] and prepare to decode it step by step."""

    @abstractmethod
    def step(self, pieces: Tensor, cache: Any) -> Tensor:
        """Logits [B, K, V] after appending pieces [B, K] to each hypothesis."""

    @abstractmethod
    def attention_weights(self, source: Tensor, target_in: Tensor) -> dict[str, Tensor]:
        """How each query spreads its attention, by layer, for inspection."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Most pieces a side may have."""

    @abstractmethod
    def blocks(self) -> Iterable[nn.Module]:
        """The parts that cluster.fsdp shares out one by one."""

    @staticmethod
    @abstractmethod
    def parameter_count(config: Any, vocabulary_size: int) -> int:
        """Trainable numbers, by formula: known before anything is built."""

    @staticmethod
    @abstractmethod
    def forward_flops(
        config: Any,
        vocabulary_size: int,
        source_lengths: Lengths,
        target_lengths: Lengths,
        widths: tuple[Lengths, Lengths] | None = None,
    ) -> float:
        """Operations of one forward pass, as `model.flops` says."""

    @staticmethod
    @abstractmethod
    def kept_bytes(
        config: Any, lengths: tuple[float, float], size: int, gpu: bool
    ) -> tuple[float, float]:
        """What the backward pass needs, as `model.flops` says."""
