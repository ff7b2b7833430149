"""Toolkits' Transformers with weights of the same sizes, trained by the loop of `handwritten`.

Their own loops and losses take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.contenders import Precision, Update
from benchmarks.handwritten import loop
from benchmarks.sizes import DROPOUT, LONGEST, Size


def marian(size: Size, precision: Precision) -> Update:
    """Hugging Face's MarianMTModel, with plain attention, as `plain` has it."""
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(marian_config(MarianConfig, size)).train()

    def logits(batch: Any) -> Any:
        return model(
            input_ids=batch.source,
            attention_mask=batch.source.ne(0),
            decoder_input_ids=batch.target_in,
            use_cache=False,
        ).logits

    return loop(model, logits, precision)


def marian_config(make: Callable[..., Any], size: Size) -> Any:
    """The same sizes in Hugging Face's words."""
    names = {"layers": size.layers, "attention_heads": size.heads, "ffn_dim": size.d_ff}
    sides = {f"{side}_{key}": v for side in ("encoder", "decoder") for key, v in names.items()}
    return make(
        vocab_size=size.vocabulary, d_model=size.d_model, dropout=DROPOUT, attention_dropout=0.0,
        activation_dropout=0.0, activation_function="relu", max_position_embeddings=LONGEST,
        scale_embedding=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, forced_eos_token_id=None, attn_implementation="eager", **sides,
    )  # fmt: skip


def joey(size: Size, precision: Precision) -> Update:
    """Joey NMT's encoder and decoder."""
    import torch
    from joeynmt.decoders import TransformerDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import TransformerEncoder

    shared = {
        "hidden_size": size.d_model, "ff_size": size.d_ff, "num_layers": size.layers,
        "num_heads": size.heads, "dropout": DROPOUT, "emb_dropout": DROPOUT, "layer_norm": "post",
    }  # fmt: skip
    embeddings = Embeddings(
        embedding_dim=size.d_model, scale=True, vocab_size=size.vocabulary, padding_idx=0
    )
    encoder = TransformerEncoder(emb_size=size.d_model, **shared)
    decoder = TransformerDecoder(emb_size=size.d_model, vocab_size=size.vocabulary, **shared)
    decoder.output_layer.weight = embeddings.lut.weight
    for layer in (*encoder.layers, *decoder.layers):
        layer.feed_forward.pwff_layer[2].p = 0.0
        for part in layer.children():
            if type(part).__name__ == "MultiHeadedAttention":
                part.dropout.p = 0.0
    model = torch.nn.ModuleList([embeddings, encoder, decoder]).train()

    def logits(batch: Any) -> Any:
        source_mask = batch.source.ne(0).unsqueeze(1)
        target_mask = batch.target_in.ne(0).unsqueeze(1)
        memory, last = encoder(embeddings(batch.source), None, source_mask)
        target = embeddings(batch.target_in)
        return decoder(target, memory, last, source_mask, None, None, target_mask)[0]

    return loop(model, logits, precision)
