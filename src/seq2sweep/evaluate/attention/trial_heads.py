"""What a sweep says of the attention heads of a trial, beside its scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from seq2sweep.config import Config
from seq2sweep.data import files
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import JSON_NAME, MODEL_NAME, SYMBOLS_NAME, Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.evaluate.attention import head_numbers
from seq2sweep.evaluate.evaluation import Data, validation_scores
from seq2sweep.train.checkpointing import read_progress

SENTENCES = 100
"""Of the validation set, on which heads are measured."""


def score_with_heads(
    config: Config, checkpoint: Path, encoded: Path, *, clean: Path, vocabulary: Path
) -> dict[str, Any]:
    """`validation_scores` of one checkpoint folder, unaveraged, and under `heads` what
    `head_numbers.summary` says, None where all sentences are too long to measure heads on.

    Under `valid_perplexity` its own, None where it is no number: the journal's may be of weights
    that were lost before they were a checkpoint.
    """
    pieces, bitext = Vocabulary.open(vocabulary), Bitext.open(encoded, "valid")
    model = build(config.model, average([checkpoint / "model.safetensors"]), len(pieces))
    scores = validation_scores(config, model, Data(clean, vocabulary, encoded))
    of = [head_numbers.pair(bitext, i) for i in head_numbers.sample(bitext, SENTENCES)]
    heads = head_numbers.summary(head_numbers.measure(model, pieces, of)) if of else None
    perplexity = read_progress(checkpoint).newest.get("valid_perplexity", math.nan)
    known = perplexity if math.isfinite(perplexity) else None
    return scores | {"heads": heads, "valid_perplexity": known}


@dataclass(frozen=True)
class TrialScorer:
    """`score_with_heads` with the small files that it reads, by name and content: it travels to
    where a trial is scored, which may not see the project."""

    clean: Mapping[str, bytes]
    vocabulary: Mapping[str, bytes]

    @classmethod
    def read(cls, data: Data) -> Self:
        """Raises UserError where a file has changed, or one folder was not made from the others."""
        data.verify("valid")
        texts = (files.text_name("valid", side) for side in files.SIDES)
        return cls(
            _contents(data.clean, [files.header_name("valid"), *texts]),
            _contents(data.vocabulary, [MODEL_NAME, JSON_NAME, SYMBOLS_NAME]),
        )

    def __call__(self, config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
        with TemporaryDirectory() as name:
            clean = _write(self.clean, Path(name) / "clean")
            vocabulary = _write(self.vocabulary, Path(name) / "vocabulary")
            return score_with_heads(config, checkpoint, encoded, clean=clean, vocabulary=vocabulary)


def _write(contents: Mapping[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def _contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Of those that are there."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}
