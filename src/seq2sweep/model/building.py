"""Models by their name, each checked against its formula when it is built."""

from __future__ import annotations

from collections.abc import Mapping

from seq2sweep.config import ModelConfig
from seq2sweep.errors import UserError
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.transformer import Transformer

ARCHITECTURES: Mapping[str, type[Architecture]] = {"transformer": Transformer}
"""By what `model.architecture` calls them."""


def build(config: ModelConfig, vocabulary_size: int) -> Architecture:
    """The model that the section `model` describes, with weights at their start, on the CPU.

    Raises UserError when it has not as many parameters as its formula says.
    """
    model = ARCHITECTURES[config.architecture](config, vocabulary_size)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    expected = model.parameter_count(config, vocabulary_size)
    if count != expected:
        raise UserError(
            f"model: the {config.architecture} with encoder_mixer {config.encoder_mixer}, "
            f"decoder_mixer {config.decoder_mixer}, feed_forward {config.feed_forward} and "
            f"norm_kind {config.norm_kind} has {count:,} parameters, but {expected:,} by its "
            "formula: correct `parameter_count` beside the part that differs"
        )
    return model
