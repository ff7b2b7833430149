"""What a model costs: parameters and floating-point operations by closed formulas.

The formulas lie with what they are of: `architecture/*.py`, `attention`, `feed_forward/*.py`,
`mixer/*.py`, `norm/*.py`.

A multiply-add counts as two operations, as in PyTorch's FlopCounterMode. Only matrix products
are counted: softmax, norms and element-wise work are a percent or two. The causal half of the
decoder's self-attention is counted in full, as it is computed by a plain product; of restricted
attention the neighbourhoods are counted, clipped at the ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seq2sweep.config import ModelConfig

if TYPE_CHECKING:
    from seq2sweep.model.architecture import Architecture, Lengths

TRAINING_FACTOR = 3
"""Forward, gradient of the inputs, gradient of the weights: one product each."""


def parameter_count(config: ModelConfig, vocabulary_size: int) -> int:
    """Trainable numbers."""
    return _architecture(config).parameter_count(config, vocabulary_size)


def forward_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: Lengths,
    target_lengths: Lengths,
    widths: tuple[Lengths, Lengths] | None = None,
) -> float:
    """Operations of one forward pass over sentence pairs of these lengths, in pieces, summed.

    widths: of source and target as they are padded, the longest sentences that each pair is with;
    only attention and other mixers compute padding. Without them: what the task needs.
    """
    return _architecture(config).forward_flops(
        config, vocabulary_size, source_lengths, target_lengths, widths
    )


def training_flops(
    config: ModelConfig,
    vocabulary_size: int,
    source_lengths: Lengths,
    target_lengths: Lengths,
    widths: tuple[Lengths, Lengths] | None = None,
) -> float:
    """Operations of forward and backward over sentence pairs of these lengths, summed.

    Arguments as in `forward_flops`.
    """
    return TRAINING_FACTOR * forward_flops(
        config, vocabulary_size, source_lengths, target_lengths, widths
    )


def kept_bytes(
    config: ModelConfig, lengths: tuple[float, float], size: int, gpu: bool
) -> tuple[float, float]:
    """Bytes that the backward pass needs for each source and each target token, logits left out.

    lengths: tokens of the sentence that a token is in, of both sides; size: bytes of a number that
    goes into a product; gpu: whether it is a GPU's memory.
    """
    return _architecture(config).kept_bytes(config, lengths, size, gpu)


def _architecture(config: ModelConfig) -> type[Architecture]:
    # Imported here: PyTorch takes a second to load.
    from seq2sweep.model.building import architecture

    return architecture(config.architecture)
