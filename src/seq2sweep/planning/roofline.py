"""Seconds of an update of the Transformer on GPUs by a roofline: a prediction, not a measurement.

A GPU takes what its products take at the rate that products reach, what else there is by the bytes
that it reads and writes, and a little for each kernel; or the CPU takes longer to start them all.
What the exchange between GPUs adds is simulated: `planning.exchange`.

COUNTED and LAUNCHES are what `python -m benchmarks.count` counts of the training loop's own update,
by the model's sizes. `python -m tests.planning.recount` counts them anew, and
`tests/planning/test_roofline.py` compares them with the counter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seq2sweep.config import ModelConfig, TransformerConfig, target_size
from seq2sweep.hardware import Precision
from seq2sweep.model import components, flops
from seq2sweep.planning.exchange import (
    COPIED,
    Links,
    Piece,
    exposed,
    exposed_of_shards,
    joined,
)
from seq2sweep.train.loss import CHUNK

PRODUCT_SHARE: dict[Precision, float] = {"bf16": 730 / 989.5, "float32": 0.9}
"""Of the peak, in products: on an H200 690 TFLOP/s in base and 780 in big; as the paper does for a
P100 (9.5 of 10.6 TFLOP/s)."""
BANDWIDTH_SHARE = 0.9
"""Of the memory's bandwidth: an H200 copied 4.2 of 4.8 TB/s."""
LINK_SHARE = 0.8
"""Of a link's rate: 380 of 450 GB/s were measured between two H100 (NVIDIA/nccl issue 1264)."""
LAUNCH = 30e-6
"""Seconds of the CPU to start a kernel from Python, autograd included: 34 of base on a virtual
machine with an H200. CUDA graphs, in bf16 without cluster.fsdp, start all at once."""
KERNEL = 1e-6
"""Seconds that a kernel takes on the GPU besides: `benchmarks.count` states 2 us at least, which
about half of the kernels do not reach by their bytes."""
FULL = 1.02
"""Passes are cut as if updates were so much larger: whole sentences do not fill them."""

COLUMNS = (
    *(f"{side} x layers x {n}" for side in "ST" for n in ("d_model", "d_ff", "keys", "values")),
    *("S x d_model", "T x d_model", "T x vocabulary"),
    *("passes x weights of layers", "passes x projections of the memory", "passes x embedding"),
    *("chunks x embedding", "parameters"),
)
"""What the numbers of COUNTED are bytes of. S, T: real source and target tokens of an update; keys,
values: heads x d_k, heads x d_v; embedding: vocabulary x d_model numbers; chunks: of logits."""

COUNTED: dict[Precision, dict[str, tuple[int, ...]]] = {
    "bf16": {
        "products": (30, 12, 18, 18, 36, 12, 18, 18, 0, 2, 2, 6, 0, 0, 2, 0),
        "vocabulary: products": (0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 0, 0, 0, 4, 0),
        "vocabulary: loss": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0),
        "attention": (0, 0, 18, 18, 0, 0, 18, 18, 0, 0, 0, 0, 0, 0, 0, 0),
        "optimizer": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 36),
        "norms": (68, 0, 0, 0, 102, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        "dropout": (0, 0, 0, 0, 0, 0, 0, 0, 18, 18, 0, 0, 0, 0, 0, 0),
        "rows": (0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 0, 0, 0, 16, 0, 0),
        "copies": (12, 0, 12, 8, 0, 0, 8, 4, 12, 30, 0, 12, 0, 10, 0, 0),
        "element by element": (14, 12, 0, 0, 2, 12, 0, 0, 28, 48, 0, 20, 16, 44, 10, -12),
    },
    "float32": {
        "products": (60, 24, 36, 36, 72, 24, 36, 36, 0, 4, 4, 12, 0, 0, 12, 0),
        "vocabulary: products": (0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 0, 0, 0, 8, 0),
        "vocabulary: loss": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0),
        "attention": (0, 0, 36, 36, 0, 0, 36, 36, 0, 0, 0, 0, 0, 0, 0, 0),
        "optimizer": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 36),
        "norms": (40, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        "dropout": (36, 0, 0, 0, 54, 0, 0, 0, 18, 18, 0, 0, 0, 0, 0, 0),
        "rows": (0, 0, 48, 48, 0, 0, 48, 48, 16, 16, 0, 0, 0, 16, 0, 0),
        "copies": (0, 0, 36, 28, 0, 0, 28, 20, 0, 12, 0, 0, 0, 4, 0, 0),
        "element by element": (64, 24, 0, 0, 76, 24, 0, 0, 16, 36, 0, 20, 16, 44, 0, -12),
    },
}
"""By the parts of `benchmarks.count`. Padding of sentences in attention is not counted. What is
below zero, of all parameters, is that the first pass adds to no gradient."""
SLOWER: dict[str, float] = {
    "attention": 2.6,
    "vocabulary: loss": 1.4,
    "optimizer": 1.2,
    "norms": 1.15,
    **dict.fromkeys(("dropout", "rows", "copies", "element by element"), 1.4),
}
"""How many times as long as their bytes take these parts do: in base and in big on an H200, where
an update is one pass (docs/performance.md); of what one part has there, both differ by 7 %."""
PRODUCTS = ("products", "vocabulary: products")
OF_LAYERS = (*range(8), 11, 12)
"""Columns of the layers alone."""
BACKWARD = 2 / 3
"""Of what the layers take in a pass."""

LAUNCHES: dict[Precision, tuple[int, ...]] = {
    "bf16": (137, 42, 9, -16, 18),
    "float32": (138, 43, 8, -17, 19),
}
"""Kernels of a layer in a pass (an encoder's and a decoder's layer together), of a pass, of a
chunk, of a layer in an update and of an update; the first pass adds to no gradient."""


@dataclass(frozen=True)
class Share:
    """What one GPU does of an update: real tokens of both sides, FLOPs of products, and passes."""

    source: float
    target: float
    flops: float
    passes: int

    @classmethod
    def of(
        cls, tokens: tuple[float, float], flops: float, per_update: int, per_pass: int, gpus: int
    ) -> Share:
        """An equal one, of tokens and FLOPs of an update on so many GPUs; per_update, per_pass:
        train.tokens_per_update and train.tokens_per_pass."""
        source, target = tokens
        whole = per_pass >= per_update  # an update has no more tokens
        passes = 1 if whole else -int(-FULL * per_update / gpus // per_pass)
        return cls(source / gpus, target / gpus, flops / gpus, passes)


@dataclass(frozen=True)
class Rates:
    """What a GPU reaches: FLOPs a second in products, bytes a second of memory, and its links."""

    product: float
    bandwidth: float
    links: Links


@dataclass(frozen=True)
class Prediction:
    """Seconds of an update: of products and of memory on the GPU, and of the exchange, as far as
    the GPU waits for it; and its kernels, and whether the CPU starts each of them."""

    products: float
    memory: float
    kernels: int
    started: bool = True
    exchange: float = 0.0

    @property
    def busy(self) -> float:
        """Of the GPU alone."""
        return self.products + self.memory + KERNEL * self.kernels

    @property
    def computing(self) -> float:
        """Of an update without the exchange."""
        return max(self.busy, LAUNCH * self.kernels * self.started)

    @property
    def seconds(self) -> float:
        return self.computing + self.exchange


def serves(model: ModelConfig) -> bool:
    """Whether COUNTED is of such a model: the paper's Transformer, whatever its sizes.

    With swiglu or rmsnorm too, of which it says 12 and 19 % less than is counted.
    """
    return (
        isinstance(model, TransformerConfig)
        and model.attention in ("scaled_dot_product", "dot_product")
        and model.encoder_mixer == model.decoder_mixer == "self_attention"
    )


def moved(
    model: TransformerConfig, size: int, share: Share, precision: Precision
) -> dict[str, list[float]]:
    """Bytes read and written in an update, by part, in columns as COLUMNS names them.

    size: of the vocabulary.
    """
    every = dict.fromkeys(COUNTED[precision], numbers(model, size, share))
    return {
        part: [each * number for each, number in zip(row, every[part], strict=True)]
        for part, row in COUNTED[precision].items()
        if part != "dropout" or model.dropout
    }


def numbers(model: TransformerConfig, size: int, share: Share) -> list[float]:
    """Of an update, as COLUMNS names them. size: of the vocabulary."""
    d, keys, values = model.d_model, model.heads * model.d_k, model.heads * model.d_v
    source, target, passes = share.source, share.target, share.passes
    widths = [model.layers * width for width in (d, model.d_ff, keys, values)]
    parameters, embedding = flops.parameter_count(model, size), size * d
    return [
        *(tokens * width for tokens in (source, target) for width in widths),
        *(source * d, target * d, target * target_size(model, size)),
        passes * (parameters - sum(_embeddings(model, size))),
        passes * model.layers * d * (2 * keys + values),
        passes * embedding,
        chunks(model, size, share) * embedding,
        parameters,
    ]


def chunks(model: TransformerConfig, size: int, share: Share) -> int:
    """Products of the decoder's last states with the embedding, of so many rows at a time."""
    rows = max(1, CHUNK[False] // target_size(model, size))
    return share.passes * -int(-share.target / share.passes // rows)


def launches(model: TransformerConfig, size: int, share: Share, precision: Precision) -> int:
    """Kernels of an update, of one GPU. size: of the vocabulary."""
    every = kernel_numbers(model, size, share)
    return sum(n * number for n, number in zip(LAUNCHES[precision], every, strict=True))


def kernel_numbers(model: TransformerConfig, size: int, share: Share) -> tuple[int, ...]:
    """Of an update, what LAUNCHES has kernels of."""
    layers, passes = model.layers, share.passes
    return passes * layers, passes, chunks(model, size, share), layers, 1


def _embeddings(model: ModelConfig, size: int) -> list[int]:
    """Parameters of the projection, the target's embedding and the source's, as the backward pass
    completes their gradients: of a tied one at its very end."""
    target = target_size(model, size) * model.d_model
    source = size * model.d_model
    return [0, 0, source] if model.tie_embeddings else [target, target, source]


def _effort(part: str, moved: list[float]) -> float:
    """Bytes that take as long at the memory's rate as these of a part do."""
    return SLOWER[part] * sum(moved)


def predicted(
    model: TransformerConfig,
    size: int,
    share: Share,
    rates: Rates,
    precision: Precision,
    gpus: int = 1,
    fsdp: bool = False,
    repeats: bool = True,
) -> Prediction:
    """An update of so many GPUs, each with such a share. size: of the vocabulary; repeats: whether
    passes can be CUDA graphs (`train.step.Passes`) as far as other settings go."""
    of_parts = moved(model, size, share, precision)
    in_products = sum(sum(of_parts[part]) for part in PRODUCTS)
    beside = sum(_effort(part, row) for part, row in of_parts.items() if part not in PRODUCTS)
    parameters = flops.parameter_count(model, size)
    # In bf16 passes are CUDA graphs, but for those of models that are shared out.
    graphs = repeats and precision == "bf16" and not (fsdp and gpus > 1)
    if gpus > 1 and not fsdp and not graphs:
        beside += COPIED * parameters
    alone = Prediction(
        max(share.flops / rates.product, in_products / rates.bandwidth),
        beside / rates.bandwidth,
        launches(model, size, share, precision),
        started=not graphs,
    )
    if gpus == 1:
        return alone
    if graphs:
        # All gradients at once, when the last pass is done.
        return replace(alone, exchange=rates.links.sum(4 * parameters, gpus))
    vocabulary = flops.TRAINING_FACTOR * 2 * share.target * model.d_model * target_size(model, size)
    layers = Prediction(
        (share.flops - vocabulary) / rates.product,
        sum(
            _effort(part, [row[i] for i in OF_LAYERS])
            for part, row in of_parts.items()
            if part not in PRODUCTS
        )
        / rates.bandwidth,
        share.passes * model.layers * LAUNCHES[precision][0],
    )
    # The last pass, with which sums overlap, is as long as the others.
    backward = BACKWARD * layers.computing / share.passes
    groups = list(pieces(model, size, share, backward, precision))
    if fsdp:
        whole = [joined(group) for group in groups]
        waiting = exposed_of_shards(whole, gpus, rates.links, share.passes)
    else:
        waiting = exposed(list(itertools.chain(*groups)), gpus, rates.links)
    return replace(alone, exchange=waiting)


def pieces(
    model: TransformerConfig, size: int, share: Share, backward: float, precision: Precision
) -> Iterator[list[Piece]]:
    """Matrices in the order in which the backward pass completes their gradients, float32, layer by
    layer.

    The last layer of the decoder comes first. Each takes of the time by its parameters and tokens.
    Those of layers are gathered in the precision of products, embeddings in float32.
    """
    kind = components.feed_forward(model.feed_forward)
    half = kind.parameter_count(model.d_model, model.d_ff) / 2
    output = model.d_model * model.heads * model.d_v
    attention = [output, output + 2 * model.d_model * model.heads * model.d_k]
    decoder = [(n, share.target) for n in (half, half, *attention, *attention)]
    encoder = [(n, share.source) for n in (half, half, *attention)]
    embeddings = [[(n, 0.0)] if n else [] for n in _embeddings(model, size)]
    projection, target, source = embeddings
    layers = [decoder] * model.layers, [encoder] * model.layers
    every = [projection, *layers[0], target, *layers[1], source]
    whole = sum(n * tokens for group in every for n, tokens in group)
    for group in filter(None, every):
        wide = 4.0 if precision == "float32" or group in embeddings else 2.0
        yield [Piece(4.0 * n, backward * n * tokens / whole, wide * n) for n, tokens in group]
