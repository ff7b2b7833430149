"""Parts of a model that come in kinds: each kind is one file, found by its name."""

from __future__ import annotations

import importlib
from typing import Any

# What every model is made of unless params.yaml says otherwise: imported here, their code is part
# of the code of all trainings. The code of another kind is part of the identity of those that name
# it (`config.identity`), so that a new file leaves all other results current.
from seq2sweep.model.feed_forward import relu  # noqa: F401
from seq2sweep.model.mixer import self_attention  # noqa: F401
from seq2sweep.model.norm import layernorm  # noqa: F401


def feed_forward(kind: str) -> Any:
    """The class of `seq2sweep/model/feed_forward/<kind>.py`."""
    return importlib.import_module(f"seq2sweep.model.feed_forward.{kind}").FeedForward


def norm(kind: str) -> Any:
    """The class of `seq2sweep/model/norm/<kind>.py`."""
    return importlib.import_module(f"seq2sweep.model.norm.{kind}").Norm


def mixer(kind: str) -> Any:
    """The class of `seq2sweep/model/mixer/<kind>.py`."""
    return importlib.import_module(f"seq2sweep.model.mixer.{kind}").Mixer
