"""CTranslate2, an engine made for inference: the model in its format, and beam search by it.

Needs the package ctranslate2 (the extra of that name). Pieces are known to it as text: by their
ids, so that whatever vocabulary encoded a line decodes it, or as they are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from seq2sweep.config import EvaluateConfig, TransformerConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK
from seq2sweep.decode.beam import Hypothesis
from seq2sweep.errors import UserError
from seq2sweep.model import components
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.layers import (
    LEARNED_POSITIONS,
    DecoderLayer,
    EncoderLayer,
    Positions,
    Residual,
    sinusoids,
)

DOT_PRODUCTS = "scaled_dot_product", "dot_product"
GATED = {"relu": False, "swiglu": True}
"""Kinds of feed-forward that CTranslate2 knows, and whether they have a gate."""


def export(
    model: Architecture,
    folder: Path,
    tokens: Sequence[str] | None = None,
    quantization: str | None = None,
    longest: int = LEARNED_POSITIONS,
) -> None:
    """Write the model into a folder that is empty or not there yet.

    tokens: the text of each piece, the first those of `vocabulary.SPECIAL`; None: its id.
    quantization: how its weights are stored, as CTranslate2 names it; None: in float32. longest:
    how many tokens of a side sinusoids are for, `most_tokens` of a search. Raises UserError for
    what `known` refuses, and when the package is missing.
    """
    engine = _engine()
    config = known(model)
    assert isinstance(model, Transformer)
    specs = engine.specs
    spec = specs.TransformerSpec.from_config(
        config.layers,
        config.heads,
        pre_norm=config.norm == "pre",
        ffn_glu=GATED[config.feed_forward],
        activation=getattr(specs.Activation, "SWISH" if GATED[config.feed_forward] else "RELU"),
        rms_norm=config.norm_kind == "rmsnorm",
    )
    spec.config.layer_norm_epsilon = components.norm(config.norm_kind)(1).eps
    for side, layers, positions, embedding in (
        (spec.encoder, model.encoder, model.source_positions, model.source_embedding),
        (spec.decoder, model.decoder, model.target_positions, model.target_embedding),
    ):
        side.position_encodings.encodings = _array(_table(positions, longest))
        side.scale_embeddings = True
        for made, layer in zip(side.layer, layers, strict=True):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            _attention(made.self_attention, layer.attention, layer.attention_residual)
            if isinstance(layer, DecoderLayer):
                _attention(made.attention, layer.memory_attention, layer.memory_residual)
            _feed_forward(made.ffn, layer.feed_forward, layer.feed_forward_residual)
        (side.embeddings[0] if side is spec.encoder else side.embeddings).weight = _array(
            embedding.weight
        )
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = _array(model.projection.weight)
    pieces = [*tokens] if tokens else [str(piece) for piece in range(model.vocabulary_size)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    for name, piece in (("unk", UNK), ("bos", BOS), ("eos", EOS), ("decoder_start", BOS)):
        setattr(spec.config, f"{name}_token", pieces[piece])
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def known(model: Architecture) -> TransformerConfig:
    """The model's settings.

    Raises UserError for what CTranslate2 does not know: other architectures, models for trees,
    other mixers than self-attention, attention but by dot products, heads whose d_k and d_v are not
    d_model / heads, kinds of feed-forward and norm that are not the paper's, swiglu or rmsnorm.
    """
    if not isinstance(model, Transformer):
        raise UserError(f"CTranslate2 has no model.architecture {model.config.architecture}")
    config = model.config
    if config.target_symbols:
        raise UserError("CTranslate2 has no search for trees: a model for them is not exported")
    if config.feed_forward not in GATED or config.norm_kind not in ("layernorm", "rmsnorm"):
        raise UserError(
            "CTranslate2 knows feed_forward relu and swiglu, norm_kind layernorm and rmsnorm only; "
            f"this model has {config.feed_forward} and {config.norm_kind}"
        )
    mixers = {config.encoder_mixer, config.decoder_mixer}
    if mixers != {"self_attention"}:
        raise UserError(
            "CTranslate2 knows encoder_mixer and decoder_mixer self_attention only; this model has "
            f"{config.encoder_mixer} and {config.decoder_mixer}"
        )
    width = config.d_model / config.heads
    if config.attention not in DOT_PRODUCTS or {config.d_k, config.d_v} != {width}:
        raise UserError(
            "CTranslate2 knows dot-product attention with d_k = d_v = d_model / heads only; this "
            f"model has {config.attention}, d_k {config.d_k}, d_v {config.d_v}, d_model "
            f"{config.d_model} and {config.heads} heads"
        )
    return config


def most_tokens(config: EvaluateConfig) -> int:
    """Of a side in a search, EOS included."""
    return max(LEARNED_POSITIONS, config.max_input_tokens + config.max_extra_tokens)


def divides_by_length(config: EvaluateConfig) -> bool:
    """Whether scores are divided by length ** alpha: CTranslate2 knows no other penalty."""
    return config.length_penalty == "power" or not config.alpha


class Search:
    """CTranslate2's beam search as a `decode.beam.Engine`, of an exported folder, on the CPU.

    config: as `divides_by_length` has it. shortest: the fewest pieces of a translation, without
    EOS; it has at most `max_extra_tokens` more than the longest sentence of its batch, and no more
    than the model has positions, max_length. tokens: as
    for `export`; compute_type: as CTranslate2 names it, `default` being that of the weights where
    the CPU has it. A score is of probabilities without PAD and BOS, where decode.beam's is the
    model's own; a source of EOS alone is not searched: [] with the score 0.
    """

    def __init__(
        self,
        folder: Path,
        config: EvaluateConfig,
        threads: int,
        shortest: int = 0,
        tokens: Sequence[str] | None = None,
        compute_type: str = "float32",
        max_length: int = LEARNED_POSITIONS,
    ) -> None:
        assert divides_by_length(config)
        self.config, self.shortest = config, shortest
        self.tokens, self.max_length = tokens, max_length
        self.ids = {token: piece for piece, token in enumerate(tokens or ())}
        self.translator = _engine().Translator(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=1,
            intra_threads=threads,
        )  # fmt: skip

    def __call__(self, sentences: list[list[int]], *, n_best: int) -> list[list[Hypothesis]]:
        """Hypotheses without their EOS."""
        limit = max(map(len, sentences)) - 1 + self.config.max_extra_tokens
        results = self.translator.translate_batch(
            [list(map(self._token, sentence)) for sentence in sentences],
            beam_size=self.config.beam,
            num_hypotheses=n_best,
            length_penalty=self.config.alpha,
            min_decoding_length=self.shortest,
            max_input_length=0,  # else it cuts at 1024, without a word
            max_decoding_length=min(limit, self.max_length),
            suppress_sequences=[[self._token(PAD)], [self._token(BOS)]],
            return_scores=True,
        )
        return [
            [
                Hypothesis([self._piece(token) for token in said], float(score))
                for said, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def log_probs(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> Iterator[Sequence[float]]:
        """Of each target's tokens and its EOS, in nats. Sources end with EOS, targets do not."""
        found = self.translator.score_batch(
            [list(map(self._token, source)) for source in sources],
            [list(map(self._token, target)) for target in targets],
            max_input_length=0,
        )
        return (one.log_probs for one in found)

    def _token(self, piece: int) -> str:
        return self.tokens[piece] if self.tokens else str(piece)

    def _piece(self, token: str) -> int:
        return self.ids[token] if self.tokens else int(token)


def _engine() -> ModuleType:
    try:
        import ctranslate2
        import ctranslate2.specs
    except ModuleNotFoundError:
        raise UserError(
            "CTranslate2 is not installed: pip install -c constraints.txt -e '.[ctranslate2]'"
        ) from None
    engine: ModuleType = ctranslate2
    return engine


def _array(tensor: Tensor) -> Any:
    # A copy: CTranslate2 rounds the numbers that it is given in their place.
    return tensor.detach().float().cpu().numpy().copy()


def _table(positions: Positions, longest: int) -> Tensor:
    table = positions.table
    return table if positions.learned else sinusoids(longest, table.size(1))


def _norm(made: Any, norm: Any) -> None:
    made.gamma = _array(norm.weight)
    if isinstance(norm, torch.nn.LayerNorm):
        made.beta = _array(norm.bias)


def _attention(made: Any, attention: MultiHeadAttention, residual: Residual) -> None:
    """W^Q, W^K and W^V, the first such that division by sqrt(d_k), its way, gives our scores.

    They are one matrix, but for attention to another text, whose queries have one of their own.
    """
    projection = attention.projection.detach().clone()
    projection[: attention.query_width] *= attention.scale * attention.d_k**0.5
    split = [attention.query_width] if len(made.linear) == 3 else []
    weights = *projection.tensor_split(split), attention.output.weight
    for linear, weight in zip(made.linear, weights, strict=True):
        linear.weight = _array(weight)
    _norm(made.layer_norm, residual.norm)


def _feed_forward(made: Any, feed_forward: Any, residual: Residual) -> None:
    """CTranslate2 puts its activation on linear_0, which of a gated kind is the gate."""
    pairs = [(made.linear_0, feed_forward.inner), (made.linear_1, feed_forward.outer)]
    if hasattr(made, "linear_0_noact"):
        pairs = [(made.linear_0, feed_forward.gate), (made.linear_0_noact, feed_forward.inner)]
        pairs.append((made.linear_1, feed_forward.outer))
    for linear, ours in pairs:
        linear.weight = _array(ours.weight)
        if ours.bias is not None:
            linear.bias = _array(ours.bias)
    _norm(made.layer_norm, residual.norm)
