"""What a sweep says of the attention heads of a trial, beside its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.evaluate.attention import head_numbers
from seq2sweep.evaluate.evaluation import score_checkpoint

SENTENCES = 100
"""Of the validation set, on which heads are measured."""


def score_with_heads(
    config: Config, checkpoint: Path, encoded: Path, *, clean: Path, vocabulary: Path
) -> dict[str, Any]:
    """`score_checkpoint`, and under `heads` what `head_numbers.summary` says."""
    scores = score_checkpoint(config, checkpoint, encoded, clean=clean, vocabulary=vocabulary)
    pieces, bitext = Vocabulary.open(vocabulary), Bitext.open(encoded, "valid")
    model = build(config.model, average([checkpoint / "model.safetensors"]), len(pieces))
    of = [head_numbers.pair(bitext, i) for i in head_numbers.sample(bitext, SENTENCES)]
    return scores | {"heads": head_numbers.summary(head_numbers.measure(model, pieces, of))}
