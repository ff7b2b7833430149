"""The models that benchmarks of speed train and decode with, and on what text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import presets

DROPOUT = 0.1
SMOOTHING = 0.1
LEARNING_RATE = 1e-4
LONGEST = 512
"""Positions that opponents with a table of them have."""
MADE_UP_PAIRS = 29_000


@dataclass(frozen=True)
class Size:
    """A model, its text and its batches.

    layers: of the encoder, and of the decoder. vocabulary: rows of the one matrix of embeddings.
    pieces: vocabulary of the text, at most those rows: what a product with the matrix costs depends
    on its rows, not on which of them occur. words: of a target sentence at least, joined from
    sentences that follow one another; 0: as they are. tokens: target tokens of a batch. updates: of
    a turn.
    """

    layers: int
    d_model: int
    d_ff: int
    heads: int
    vocabulary: int
    pieces: int
    words: int = 0
    tokens: int = 4096
    updates: int = 4

    @property
    def head(self) -> int:
        """d_k and d_v."""
        return self.d_model // self.heads

    def config(self, architecture: str = "transformer") -> Any:
        """The `model` section of our own."""
        sizes = {"layers": self.layers, "d_model": self.d_model}
        if architecture == "transformer":
            sizes |= {"d_ff": self.d_ff, "heads": self.heads, "d_k": self.head, "d_v": self.head}
        changes: dict[str, Any] = {f"model.{key}": value for key, value in sizes.items()}
        changes |= {"model.dropout": DROPOUT, "model.architecture": architecture}
        return configuration.with_changes(presets.load("phrasebook").config, changes).model


def _demo() -> Size:
    """What `make reproduce` trains."""
    config = presets.load("phrasebook").config
    model: Any = config.model
    pieces = config.vocabulary.size
    return Size(
        model.layers, model.d_model, model.d_ff, model.heads, pieces, pieces,
        tokens=config.train.tokens_per_update, updates=20,
    )  # fmt: skip


SIZES = {
    "demo": _demo(),
    "4x256": Size(4, 256, 1024, 4, 8000, 8000),
    "long": Size(4, 256, 1024, 4, 8000, 8000, words=85),
    "base_8k": Size(6, 512, 2048, 8, 8000, 8000, updates=1),
    "base_37k": Size(6, 512, 2048, 8, 37_000, 8000, updates=1),
}
"""The last two are the paper's base; 37 000 pieces are those of its English-German."""
