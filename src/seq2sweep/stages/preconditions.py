"""What is asked of texts and models before any is trained: a mistake told then costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext, require_positions
from seq2sweep.data.files import header_name
from seq2sweep.errors import UserError
from seq2sweep.model.building import build
from seq2sweep.model.layers import LEARNED_POSITIONS
from seq2sweep.sweep.variants import Variant
from seq2sweep.train.footprint import longest

CHANGES_NO_RESULT = "what is refused before it is trained"


def require_all_positions(chosen: Sequence[Variant], vocabulary_size: int) -> None:
    """Raise UserError where a sentence has more tokens than a variant has positions, before any is
    trained: the mend is another text, of which all of them are trained again."""
    texts = {split: Bitext.open(project_files.ENCODED, split) for split in ("train", "valid")}
    if max(map(longest, texts.values())) <= LEARNED_POSITIONS:
        return  # no model is made in vain: those of fewer positions tell when they are trained
    for variant in {variant.config.model: variant for variant in reversed(chosen)}.values():
        with torch.device("meta"):
            most = build(variant.config.model, vocabulary_size).max_length
        for split, text in texts.items():
            try:
                require_positions(text, split, most)
            except UserError as error:
                raise UserError(
                    f"{variant.name}: {error}; or leave this row out of the sweep"
                ) from None


def require_test_positions(config: Config, encoded: Path) -> None:
    """Raise UserError where a test sentence, if these are there, has more tokens than the model has
    positions: else that would be told when it has been trained.

    encoded: the folder of what it is trained on. It has longer sentences, as a rule; of these the
    workers tell when they start, and no model is built here.
    """
    if not (project_files.ENCODED / header_name("test")).exists():
        return
    test = Bitext.open(project_files.ENCODED, "test")
    trained_on = max(longest(Bitext.open(encoded, split)) for split in ("train", "valid"))
    if longest(test) > trained_on:
        model = build(config.model, int(test.header["vocabulary"]["size"]))
        require_positions(test, "test", model.max_length)
