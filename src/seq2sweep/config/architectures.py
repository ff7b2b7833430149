"""Typed sections `model` of params.yaml, one for each `model.architecture`.

All have `layers`, `d_model`, `dropout`, `tie_embeddings` and `target_symbols`; what else one has is
its own, so that a key of another architecture is refused. A variant of a sweep that names another
architecture takes over what both have. PUBLISHED_OPTIMIZER is that of its paper, as
`train.optimizer` names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from seq2sweep.config.fields import SHARE, Rule, field, must

FEW: Rule = ("at most 10000", lambda layers: layers <= 10_000)
"""A plan counts each: a mistyped number would fill its memory."""

TARGET_SYMBOLS = field(
    "vocabulary of the target alone, for data.target trees; 0: that of the source is shared",
    at_least=0,
    default=0,
)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    PUBLISHED_OPTIMIZER: ClassVar[str] = "adam"

    architecture: Literal["transformer"] = field(
        "the model that the keys below are of", kinds="architecture", default="transformer"
    )
    layers: int = field("N: layers of the encoder, and of the decoder", at_least=1, rule=FEW)
    d_model: int = field("width of the residual stream", at_least=1)
    d_ff: int = field("inner width of the feed-forward sub-layer", at_least=1)
    feed_forward: str = field(
        "relu (equation 2) or swiglu (Shazeer 2020; as costly with 2/3 of d_ff)",
        kinds="feed_forward",
        default="relu",
    )
    heads: int = field("h: attention heads", at_least=1)
    d_k: int = field("width of a query and a key in each head", at_least=1)
    d_v: int = field("width of a value in each head", at_least=1)
    attention: Literal["scaled_dot_product", "dot_product", "additive"] = field(
        "scaled_dot_product (equation 1), dot_product (unscaled) or additive (section 3.2.1)"
    )
    encoder_mixer: str = field(
        "self_attention (paper), restricted, recurrent, convolutional or separable: what lets the "
        "encoder's positions see each other (section 4)",
        kinds="mixer",
        default="self_attention",
    )
    decoder_mixer: str = field(
        "the same of the decoder; its attention over the encoder stays",
        kinds="mixer",
        default="self_attention",
    )
    mixer_neighbourhood: int = field(
        "r of restricted: positions that one sees, itself among them", at_least=1, default=7
    )
    mixer_kernel: int = field("k of convolutional and separable", at_least=1, default=3)
    mixer_dilation: tuple[int, ...] = field(
        "steps between the k positions, layer by layer, over and over: [1] contiguous, "
        "[1, 2, 4, 8, 16] as ByteNet",
        rule=("one number or more, each at least 1", lambda d: bool(d) and min(d) >= 1),
        default=(1,),
    )
    norm: Literal["post", "pre"] = field("post: after each sub-layer, as the paper; or pre")
    norm_kind: str = field(
        "layernorm (paper) or rmsnorm (Zhang and Sennrich 2019)", kinds="norm", default="layernorm"
    )
    dropout: float = field("on sub-layer outputs and embedding sums (section 5.4)", rule=SHARE)
    attention_dropout: float = field("on attention weights (paper: 0.0)", rule=SHARE)
    feed_forward_dropout: float = field(
        "inside the feed-forward sub-layer (paper: 0.0)", rule=SHARE
    )
    positions: Literal["sinusoidal", "learned"] = field(
        "sinusoidal (section 3.5) or learned (row E)"
    )
    tie_embeddings: bool = field("one matrix for both embeddings and the projection (section 3.4)")
    target_symbols: int = TARGET_SYMBOLS

    def problems(self) -> Iterator[str]:
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield must("model.d_model", "even for sinusoidal positions", self.d_model)
        if self.encoder_mixer == "recurrent" and self.d_model % 2:
            rule = "even for encoder_mixer recurrent, which has half of it for each direction"
            yield must("model.d_model", rule, self.d_model)
        if self.encoder_mixer == "restricted" and not self.mixer_neighbourhood % 2:
            rule = "odd for encoder_mixer restricted: as many positions on each side"
            yield must("model.mixer_neighbourhood", rule, self.mixer_neighbourhood)
        if self.encoder_mixer in ("convolutional", "separable") and not self.mixer_kernel % 2:
            rule = f"odd for encoder_mixer {self.encoder_mixer}: as many positions on each side"
            yield must("model.mixer_kernel", rule, self.mixer_kernel)


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Of `model.architecture: recurrent`."""

    HELP: ClassVar[str] = "THE RECURRENT MODEL WITH ATTENTION (GNMT, Wu et al. 2016)"
    PUBLISHED_OPTIMIZER: ClassVar[str] = "adam_then_sgd"

    architecture: Literal["recurrent"] = field(
        "the model that the keys below are of", kinds="architecture"
    )
    layers: int = field(
        "LSTM layers of the encoder, of which the lowest reads in both directions, and of the "
        "decoder",
        at_least=2,
        rule=FEW,
    )
    d_model: int = field("width of embeddings, LSTM layers and attention", at_least=1)
    context: Literal["current", "previous"] = field(
        "which attention the upper decoder layers read: of this token (GNMT v2) or of the one "
        "before (v1)",
        default="current",
    )
    dropout: float = field("on the input of each LSTM layer (paper: 0.2 to 0.3)", rule=SHARE)
    tie_embeddings: bool = field("one matrix for both embeddings and the projection")
    target_symbols: int = TARGET_SYMBOLS


@dataclass(frozen=True, kw_only=True)
class ConvolutionalConfig:
    """Of `model.architecture: convolutional`."""

    HELP: ClassVar[str] = "THE CONVOLUTIONAL MODEL (ConvS2S, Gehring et al. 2017)"
    PUBLISHED_OPTIMIZER: ClassVar[str] = "nesterov"

    architecture: Literal["convolutional"] = field(
        "the model that the keys below are of", kinds="architecture"
    )
    layers: int = field("blocks of the encoder, and of the decoder", at_least=1, rule=FEW)
    d_model: int = field("width of embeddings and attention", at_least=1)
    widths: tuple[int, ...] = field(
        "of the blocks, the last one repeated; []: d_model",
        rule=("numbers of at least 1", lambda widths: all(width >= 1 for width in widths)),
        default=(),
    )
    kernels: tuple[int, ...] = field(
        "k of the blocks, the last one repeated",
        rule=(
            "one odd number or more",
            lambda kernels: bool(kernels) and all(k >= 1 and k % 2 for k in kernels),
        ),
        default=(3,),
    )
    d_out: int | None = field(
        "width of what is projected to the vocabulary; null: d_model", at_least=1, default=None
    )
    dropout: float = field("on embeddings and the input of each block", rule=SHARE)
    tie_embeddings: bool = field("one matrix for both embeddings and the projection")
    target_symbols: int = TARGET_SYMBOLS

    def problems(self) -> Iterator[str]:
        for key in ("widths", "kernels"):
            values = getattr(self, key)
            if len(values) > self.layers:
                rule = f"at most model.layers ({self.layers}) numbers"
                yield must(f"model.{key}", rule, list(values))
        if self.tie_embeddings and self.d_out not in (None, self.d_model):
            rule = f"null or model.d_model ({self.d_model}) where model.tie_embeddings is true"
            yield must("model.d_out", rule, self.d_out)


@dataclass(frozen=True, kw_only=True)
class BytenetConfig:
    """Of `model.architecture: bytenet`."""

    HELP: ClassVar[str] = "BYTENET (Kalchbrenner et al. 2016), best with vocabulary.kind characters"
    PUBLISHED_OPTIMIZER: ClassVar[str] = "adam_constant"

    architecture: Literal["bytenet"] = field(
        "the model that the keys below are of", kinds="architecture"
    )
    layers: int = field("blocks of the encoder, and of the decoder", at_least=1, rule=FEW)
    d_model: int = field("width between the blocks, 2d of the paper; inside they have half of it")
    kernel: int = field(
        "k of the convolutions",
        rule=("an odd number of at least 1", lambda kernel: kernel >= 1 and kernel % 2 == 1),
        default=3,
    )
    dilations: tuple[int, ...] = field(
        "steps between the k positions, block by block, over and over",
        rule=("one number or more, each at least 1", lambda d: bool(d) and min(d) >= 1),
        default=(1, 2, 4, 8, 16),
    )
    unfolding: float = field(
        "a: the encoder's output is a |source| + b positions long, and the decoder's position t "
        "sees its position t",
        rule=("from 1 to 10", lambda a: 1 <= a <= 10),
        default=1.2,
    )
    unfolding_extra: int = field("b of the same", at_least=0, default=0)
    dropout: float = field("on embeddings and the output of each block (paper: none)", rule=SHARE)
    tie_embeddings: bool = field("one matrix for both embeddings and the projection")
    target_symbols: int = TARGET_SYMBOLS

    def problems(self) -> Iterator[str]:
        if self.d_model % 2 or self.d_model < 2:
            yield must("model.d_model", "an even number of at least 2", self.d_model)


ModelConfig = TransformerConfig | RecurrentConfig | ConvolutionalConfig | BytenetConfig
"""The first is that of a params.yaml without `model.architecture`."""


def target_size(model: ModelConfig, vocabulary_size: int) -> int:
    """Size of the target's vocabulary; vocabulary_size: of the source's, which it may share."""
    return model.target_symbols or vocabulary_size
