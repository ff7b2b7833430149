"""Parameters and floating-point operations as closed formulas.

A multiply-add counts as two operations, as in PyTorch's FlopCounterMode. Only matrix products
are counted: softmax, norms and element-wise work are a percent or two. The causal half of the
decoder's self-attention is counted in full, as it is computed by a plain product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seq2sweep.config import ModelConfig

TRAINING_FACTOR = 3
"""Forward, gradient of the inputs, gradient of the weights: one product each."""


def parameter_count(config: ModelConfig, vocabulary_size: int) -> int:
    """Trainable numbers: attention has no biases, feed-forward and LayerNorm have."""
    from seq2sweep.model.layers import LEARNED_POSITIONS  # PyTorch takes a second to load

    d = config.d_model
    attention = d * config.heads * (2 * config.d_k + 2 * config.d_v)
    if config.attention == "additive":
        attention += config.heads * config.d_k
    feed_forward = 2 * d * config.d_ff + config.d_ff + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    embeddings = vocabulary_size * d * (1 if config.tie_embeddings else 3)
    positions = 2 * LEARNED_POSITIONS * d if config.positions == "learned" else 0
    last_norms = 2 * norm if config.norm == "pre" else 0
    return config.layers * (encoder_layer + decoder_layer) + last_norms + embeddings + positions


def forward_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: NDArray[np.integer],
    target_lengths: NDArray[np.integer],
    widths: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
) -> float:
    """Operations of one forward pass over sentence pairs of these lengths, in pieces, summed.

    widths: of source and target as attention computes them, the longest sentences that each pair
    is with; nothing else computes padding. Without them: what the task needs.
    """
    n = source_lengths.astype(np.float64)
    m = target_lengths.astype(np.float64)
    keys, queries = (n, m) if widths is None else (w.astype(np.float64) for w in widths)
    d, h, d_k, d_v = config.d_model, config.heads, config.d_k, config.d_v
    projections = 2 * d * h * (2 * d_k + 2 * d_v)  # Q, K, V and the output, for each piece
    # Scores and weighted sum, for each query and key. Additive scores are a product of d_k numbers
    # too, u . tanh(q + k); their sum and tanh are element-wise.
    pairwise = 2 * h * (d_k + d_v)
    feed_forward = 4 * d * config.d_ff
    encoder_layer = n * (projections + feed_forward) + keys * keys * pairwise
    decoder_layer = (
        m * (projections + feed_forward)
        + queries * queries * pairwise
        + m * 2 * d * h * (d_k + d_v)  # cross-attention: queries and output ...
        + n * 2 * d * h * (d_k + d_v)  # ... and keys and values of the memory
        + queries * keys * pairwise
    )
    per_pair = config.layers * (encoder_layer + decoder_layer) + 2 * m * d * vocabulary_size
    return float(per_pair.sum())


def training_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: NDArray[np.integer],
    target_lengths: NDArray[np.integer],
    widths: tuple[NDArray[np.integer], NDArray[np.integer]] | None = None,
) -> float:
    """Operations of forward and backward over sentence pairs of these lengths, summed.

    Arguments as in `forward_flops`.
    """
    return TRAINING_FACTOR * forward_flops(
        config, vocabulary_size, source_lengths, target_lengths, widths
    )
