"""ByteNet written from its definition: loops over positions, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2sweep.model.architecture.bytenet import Bytenet

Array = NDArray[np.float64]


def array(x: Tensor) -> Array:
    found: Array = x.detach().double().numpy()
    return found


def norm(layer: nn.Module, x: Array) -> Array:
    gain, bias = array(layer.weight), array(layer.bias)  # type: ignore[arg-type]
    out = np.empty_like(x)
    for i, row in enumerate(x):
        mean = sum(row) / len(row)
        variance = sum((number - mean) ** 2 for number in row) / len(row)
        out[i] = (row - mean) / math.sqrt(variance + 1e-5) * gain + bias
    return out


def block(layer: Any, x: Array, k: int, s: int, causal: bool) -> Array:
    d = x.shape[1] // 2
    inside = np.maximum(norm(layer.outer_norm, x), 0) @ array(layer.narrow.weight).T
    inside = np.maximum(norm(layer.norm, inside), 0)
    taps = array(layer.taps).reshape(k, d, d)
    mixed = np.zeros_like(inside)
    for i in range(len(x)):
        for t in range(k):
            seen = i - (k - 1 - t) * s if causal else i + (t - (k - 1) // 2) * s
            if 0 <= seen < len(x):
                mixed[i] += taps[t] @ inside[seen]
    return x + np.maximum(norm(layer.last_norm, mixed), 0) @ array(layer.widen.weight).T


def defined(model: Bytenet, source: Sequence[int], target: Sequence[int]) -> tuple[Array, Array]:
    """Columns and logits of one pair of sentences."""
    config = model.config
    scale = math.sqrt(config.d_model)
    exact = round(config.unfolding * 10) * len(source)
    columns = (exact + 9) // 10 + config.unfolding_extra
    x = np.zeros((columns, config.d_model))
    for i, token in enumerate(source):
        x[i] = array(model.source_embedding.weight)[token] * scale
    for number, layer in enumerate(model.encoder):
        s = config.dilations[number % len(config.dilations)]
        x = block(layer, x, config.kernel, s, causal=False)
    memory = norm(model.encoder_norm, x)
    x = np.zeros((len(target), config.d_model))
    for t, token in enumerate(target):
        x[t] = array(model.target_embedding.weight)[token] * scale
        if t < columns:
            x[t] += memory[t]
    for number, layer in enumerate(model.decoder):
        s = config.dilations[number % len(config.dilations)]
        x = block(layer, x, config.kernel, s, causal=True)
    return memory, norm(model.decoder_norm, x) @ array(model.projection.weight).T
