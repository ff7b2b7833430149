"""Hugging Face's MarianMTModel: the same numbers in another order.

It computes its positions with all sines first and all cosines after them, where ours take turns,
and keeps no table of them in the file. So the units of the residual stream are put in its order, in
every weight that reads or writes them: what the layers compute stays the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2sweep.data.vocabulary import BOS, EOS, PAD, UNK
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.protocol import (
    Bounds,
    Format,
    OnDone,
    needed,
    of_one_length,
    other_architecture,
)
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.layers import DecoderLayer, EncoderLayer
from seq2sweep.storage.atomic import disk_errors

WANTED = {
    "encoder_mixer": ("self_attention",),
    "decoder_mixer": ("self_attention",),
    "attention": ("scaled_dot_product", "dot_product"),
    "positions": ("sinusoidal",),
    "norm": ("post",),
    "norm_kind": ("layernorm",),
    "feed_forward": ("relu",),
    "target_symbols": (0,),
}
"""Values of keys of the section `model` that it can hold."""


class Marian(Format):
    """The paper's model with dot-product attention of any scale, and a SentencePiece vocabulary."""

    title = "MarianMT"
    STOPPINGS = ("exact",)
    bounds = Bounds(
        same=0.99,
        score=0.1,
        logits=1e-5,
        why="the same sums of float32 in another order: a near tie may end otherwise",
    )

    def refuses(self, translator: Translator) -> str | None:
        if reason := other_architecture(self.title, translator.model):
            return reason
        config = translator.model.config
        for key, values in WANTED.items():
            if (value := getattr(config, key)) not in values:
                return f"MarianMT knows model.{key} {' or '.join(map(str, values))}, not {value}"
        if {config.d_k, config.d_v} != {config.d_model / config.heads}:
            return (
                "MarianMT knows d_k = d_v = d_model / heads only; this model has d_k "
                f"{config.d_k}, d_v {config.d_v}, d_model {config.d_model}, {config.heads} heads"
            )
        if translator.vocabulary.model.startswith(b"{"):  # JSON, as of the other kinds
            return (
                "MarianMT's tokenizer knows SentencePiece only: a vocabulary.kind of bpe, unigram "
                "or characters"
            )
        return None

    def write(self, translator: Translator, folder: Path) -> None:
        transformers, *_ = needed("marian", "transformers", "sentencepiece")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        assert isinstance(translator.model, Transformer)
        # A translation has one token at least, after the one that it starts with.
        longest = max(2, translator.config.max_input_tokens + translator.config.max_extra_tokens)
        made = transformers.MarianMTModel(_config(transformers, translator.model, longest)).eval()
        fill(made, translator.model)
        made.generation_config = _generation(transformers, translator, longest)
        with disk_errors():
            made.save_pretrained(folder)
        _save_tokenizer(transformers, translator, folder)

    def opened(self, folder: Path, translator: Translator) -> _Opened:
        return _Opened(folder, translator)


class _Opened:
    """As its users have it: `from_pretrained`, the tokenizer, `generate` with what is saved, but
    for the longest output: ours goes by the input, which no file can say."""

    def __init__(self, folder: Path, translator: Translator) -> None:
        (transformers,) = needed("marian", "transformers")
        self.config, self.vocabulary = translator.config, translator.vocabulary
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = transformers.MarianMTModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32
        ).eval()

    @torch.inference_mode()
    def translate(self, lines: Sequence[str], on_done: OnDone) -> list[str]:
        said = [""] * len(lines)
        encoded = self.tokenizer([*lines], truncation=True).input_ids
        for group in of_one_length([*map(len, encoded)]):
            source = torch.tensor([encoded[i] for i in group])
            most = max(source.size(1) - 1 + self.config.max_extra_tokens, 1)
            found = self.model.generate(input_ids=source, max_new_tokens=most)
            for i, tokens in zip(group, found.tolist(), strict=True):
                said[i] = self._text(tokens[1:])  # after the one that it starts with
            on_done(len(group))
        return said

    def _text(self, tokens: list[int]) -> str:
        """By its tokenizer, which leaves out unknown tokens where ours shows U+2047."""
        if UNK in tokens:
            return self.vocabulary.decode([tokens])[0]
        return " ".join(self.tokenizer.decode(tokens, skip_special_tokens=True).split())

    @torch.inference_mode()
    def logits(self, source: Tensor, target_in: Tensor) -> Tensor:
        found: Tensor = self.model(
            input_ids=source, attention_mask=source.ne(PAD), decoder_input_ids=target_in
        ).logits
        return found


def _config(transformers: Any, model: Transformer, longest: int) -> Any:
    config = model.config
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", config.layers),
            ("attention_heads", config.heads),
            ("ffn_dim", config.d_ff),
        )
    }
    return transformers.MarianConfig(
        vocab_size=model.vocabulary_size,
        d_model=config.d_model,
        max_position_embeddings=longest,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=config.tie_embeddings,
        tie_word_embeddings=config.tie_embeddings,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.feed_forward_dropout,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **sides,
    )


def _generation(transformers: Any, translator: Translator, longest: int) -> Any:
    """How `generate` searches unless it is told otherwise; its penalty is length ** alpha.

    Early stopping "never" is our `exact`. False is not our `own_length`: it waits for as many
    hypotheses as the beam holds.
    """
    asked = translator.config
    beams: dict[str, Any] = {}
    if asked.beam > 1:
        beams = {"length_penalty": asked.alpha, "early_stopping": "never"}
    return transformers.GenerationConfig(
        num_beams=asked.beam,
        max_length=longest,
        suppress_tokens=[PAD, BOS],
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        **beams,
    )


def _save_tokenizer(transformers: Any, translator: Translator, folder: Path) -> None:
    vocabulary = translator.vocabulary
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(vocabulary.model)
    ids = {token: piece for piece, token in enumerate(vocabulary.tokens(range(len(vocabulary))))}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        source_lang=translator.settings["data"]["source"],
        target_lang=translator.settings["data"]["target"],
        model_max_length=translator.config.max_input_tokens,
    ).save_pretrained(folder)


def order(d_model: int) -> Tensor:
    """Which of our units each of theirs is: those that get a sine, then those that get a cosine."""
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


@torch.no_grad()
def fill(made: Any, model: Transformer) -> None:
    """Copy our weights, their units in the other order, and zeros for biases that we have not."""
    units = order(model.config.d_model)

    def reads(linear: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
        linear.weight.copy_(weight[:, units])
        linear.bias.zero_() if bias is None else linear.bias.copy_(bias)

    def writes(linear: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
        linear.weight.copy_(weight[units])
        linear.bias.zero_() if bias is None else linear.bias.copy_(bias[units])

    def attend(theirs: Any, attention: MultiHeadAttention) -> None:
        queries, keys, values = attention.projection.chunk(3)  # d_k and d_v are the same here
        # They divide the scores by sqrt(d_k), whatever the kind.
        reads(theirs.q_proj, queries * (attention.scale * attention.d_k**0.5))
        reads(theirs.k_proj, keys)
        reads(theirs.v_proj, values)
        writes(theirs.out_proj, attention.output.weight)

    def norm(theirs: nn.LayerNorm, residual: Any) -> None:
        theirs.weight.copy_(residual.norm.weight[units])
        theirs.bias.copy_(residual.norm.bias[units])
        theirs.eps = residual.norm.eps

    made.final_logits_bias.zero_()
    for embedding, weight in (
        (made.model.encoder.embed_tokens, model.source_embedding.weight),
        (made.model.decoder.embed_tokens, model.target_embedding.weight),
        (made.lm_head, model.projection.weight),
    ):
        embedding.weight.copy_(weight[:, units])
    for side, layers in ((made.model.encoder, model.encoder), (made.model.decoder, model.decoder)):
        for theirs, layer in zip(side.layers, layers, strict=True):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            attend(theirs.self_attn, layer.attention)
            norm(theirs.self_attn_layer_norm, layer.attention_residual)
            if isinstance(layer, DecoderLayer):
                attend(theirs.encoder_attn, layer.memory_attention)
                norm(theirs.encoder_attn_layer_norm, layer.memory_residual)
            feed_forward: Any = layer.feed_forward
            inner, outer = feed_forward.inner, feed_forward.outer
            reads(theirs.fc1, inner.weight, inner.bias)
            writes(theirs.fc2, outer.weight, outer.bias)
            norm(theirs.final_layer_norm, layer.feed_forward_residual)
