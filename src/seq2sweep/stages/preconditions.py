"""What is asked of texts and models before any is trained: a mistake told then costs nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from seq2sweep import config as configuration
from seq2sweep import project_files
from seq2sweep.config import Config, ModelConfig
from seq2sweep.data.bitext import Bitext, require_positions
from seq2sweep.data.files import header_name
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.building import build
from seq2sweep.model.layers import LEARNED_POSITIONS
from seq2sweep.sweep import search_space
from seq2sweep.sweep.variants import Variant, base_of
from seq2sweep.train.footprint import longest

CHANGES_NO_RESULT = "what is refused before it is trained"

SMALL = 10_000_000
"""Parameters that get their values at once, where the first tensor on the meta device takes two
seconds: PyTorch imports what it needs for it then."""


def require_saved(models: Iterable[ModelConfig], vocabulary_size: int) -> None:
    """Raise UserError where a model has a buffer in its state: checkpoints hold parameters alone,
    so that whoever resumes, averages, evaluates or exports would go on with a fresh one.

    Of models that differ in sizes alone one is built.
    """
    for config in {_choices(config): config for config in models}.values():
        if (model := _built(config, vocabulary_size)) is None:
            continue
        if lost := sorted(dict(model.named_buffers()).keys() & model.state_dict().keys()):
            kinds = ", ".join(f"{key} {kind}" for key, kind in configuration.kinds(config).items())
            raise UserError(
                f"model: {kinds} keeps {lost[0]} in a buffer, which no checkpoint holds: make it a "
                "parameter (requires_grad=False where it is not trained), or, where params.yaml "
                "alone determines it, call register_buffer(..., persistent=False)"
            )


def require_all(config: Config, chosen: Sequence[Variant], vocabulary_size: int) -> None:
    """Raise UserError where a variant of a sweep cannot be trained, or what it learns not kept."""
    require_all_positions(chosen, vocabulary_size)
    require_all_saved(config, chosen, vocabulary_size)


def require_all_saved(config: Config, chosen: Sequence[Variant], vocabulary_size: int) -> None:
    """`require_saved` of the variants of a sweep; where a search is to propose others, also with
    each value that it may choose beside the base's."""
    models = [variant.config.model for variant in chosen]
    if config.sweep.method == "optuna":
        base = base_of(config)
        for keys, choices in search_space.spelt_out(base).items():
            for values in choices if isinstance(choices, list) else ():
                with contextlib.suppress(UserError):  # good only beside another one, if ever
                    changes = dict(zip(keys, values, strict=True))
                    models.append(configuration.with_changes(base, changes).model)
    require_saved(models, vocabulary_size)


def _choices(config: ModelConfig) -> tuple[Any, ...]:
    """The values of a model by which it may have other buffers, with sizes as 0 or not."""
    values = (getattr(config, field.name) for field in dataclasses.fields(config))
    return tuple(value if isinstance(value, str) else bool(value) for value in values)


def _built(config: ModelConfig, vocabulary_size: int) -> Architecture | None:
    """On the meta device, without memory for weights; a small one, or one with a part that asks for
    a number that it has made, on the CPU. None where it fails: this training tells when it starts.
    """
    with contextlib.suppress(Exception):
        small = flops.parameter_count(config, vocabulary_size) < SMALL
        for device in ("cpu",) if small else ("meta", "cpu"):
            with contextlib.suppress(Exception), torch.device(device):
                return build(config, vocabulary_size)
    return None


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
