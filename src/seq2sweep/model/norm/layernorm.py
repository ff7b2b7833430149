"""Layer normalisation (Ba et al. 2016), the paper's."""

from __future__ import annotations

from torch import nn


class Norm(nn.LayerNorm):
    """(x - mean) / deviation * gain + bias, over d_model."""

    REPEATS = True

    @staticmethod
    def parameter_count(d_model: int) -> int:
        """Trainable numbers: gains and biases."""
        return 2 * d_model

    @staticmethod
    def kept_bytes(d_model: int) -> int:
        """What the backward pass needs for each token: its input, mean and deviation."""
        return 4 * d_model + 8
