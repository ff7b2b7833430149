"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

from torch import nn

EPSILON = 1e-6
"""As in T5."""


class Norm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + EPSILON) * gain, over d_model; no bias."""

    REPEATS = True

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, eps=EPSILON)

    @staticmethod
    def parameter_count(d_model: int) -> int:
        """Trainable numbers: gains."""
        return d_model

    @staticmethod
    def kept_bytes(d_model: int) -> int:
        """What the backward pass needs for each token: its input, itself scaled, and the scale."""
        return 8 * d_model + 4
