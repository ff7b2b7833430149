"""Models by their name: each is one file, found by it, and checked against its formula."""

from __future__ import annotations

import importlib

import torch

from seq2sweep import config as configuration
from seq2sweep.config import ModelConfig
from seq2sweep.errors import UserError
from seq2sweep.model.architecture import Architecture

# The default's code is part of the code of all trainings, that of another of those that name it: as
# of other kinds (`model.components`). What kinds share, such as `lstm`, is part of it as well.
from seq2sweep.model import lstm  # noqa: F401  # isort: skip
from seq2sweep.model.architecture import transformer  # noqa: F401  # isort: skip


def architecture(kind: str) -> type[Architecture]:
    """The class of `seq2sweep/model/architecture/<kind>.py`, which has the same name."""
    module = importlib.import_module(f"seq2sweep.model.architecture.{kind}")
    found: type[Architecture] = getattr(module, kind.capitalize())
    return found


def build(config: ModelConfig, vocabulary_size: int) -> Architecture:
    """The model that the section `model` describes, with weights at their start, on the CPU.

    From then on this process computes convolutions and LSTMs in float32 without TF32, which is
    cuDNN's default, as no products are, and attention without cuDNN. Raises UserError when the
    model has not as many parameters as its formula says.
    """
    torch.backends.cudnn.allow_tf32 = False
    # On an H100 PyTorch prefers it to its own kernels. It makes and keeps a plan, at up to half a
    # second, for each new shape, and nearly every pass and step of the search has a new one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = architecture(config.architecture)(config, vocabulary_size)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    expected = model.parameter_count(config, vocabulary_size)
    if count != expected:
        kinds = ", ".join(f"{key} {kind}" for key, kind in configuration.kinds(config).items())
        raise UserError(
            f"model: {kinds} has {count:,} parameters, but {expected:,} by its formula: correct "
            "`parameter_count` beside the part that differs"
        )
    return model
