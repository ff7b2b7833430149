"""Toolkits' Transformers with weights of the same sizes, trained by the loop of `handwritten`.

Their own loops and losses take longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.contenders import Precision, Update
from benchmarks.handwritten import loop, plain_attention
from benchmarks.sizes import DROPOUT, LONGEST, Size


def marian(size: Size, precision: Precision) -> Update:
    """Hugging Face's MarianMTModel, with plain attention."""
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


def eole(size: Size, precision: Precision) -> Update:
    """eole's, the successor of OpenNMT-py: its layers begin with the norm. Its attention on a CPU
    is plain already."""
    model = eole_model(size)
    for module in model.modules():
        if hasattr(module, "dropout_1"):  # inside feed-forward layers
            module.dropout_1.p = 0.0

    def logits(batch: Any) -> Any:
        # It takes the last piece of the target away.
        target = F.pad(batch.target_in, (0, 1))
        states = model(batch.source, target, batch.source.ne(0).sum(dim=1))[0]
        return model.generator(states)

    return loop(model.train(), logits, precision)


def eole_model(size: Size) -> Any:
    """Initialised as eole does it."""
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import EncoderDecoderModel

    config = TransformerModelConfig(
        layers=size.layers, hidden_size=size.d_model, heads=size.heads, transformer_ff=size.d_ff,
        share_embeddings=True, share_decoder_embeddings=True, generator_bias=False,
        add_ffnbias=True, embeddings={"word_vec_size": size.d_model},
    )  # fmt: skip
    training = TrainingConfig(
        dropout=[DROPOUT], attention_dropout=[0.0], param_init_method="xavier_uniform"
    )
    model = EncoderDecoderModel.build(config, eole_vocabulary(size), training)
    model.init_weights(training)
    return model


def eole_vocabulary(size: Size) -> dict[str, Any]:
    """Pieces by number, with our special ones first."""
    import pyonmttok

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    pieces = pyonmttok.build_vocab_from_tokens(
        Counter(f"piece{i}" for i in range(size.vocabulary - len(special))), maximum_size=0,
        minimum_frequency=1, special_tokens=list(special.values()),
    )  # fmt: skip
    return {"src": pieces, "tgt": pieces, "specials": special, "decoder_start_token": "<s>"}


def sockeye(size: Size, precision: Precision) -> Update:
    """Sockeye's, with plain attention."""
    model = sockeye_model(size)

    def logits(batch: Any) -> Any:
        lengths = [
            torch.stack((side.ne(0).sum(dim=1), torch.zeros(len(side), dtype=torch.long)), dim=1)
            for side in (batch.source, batch.target_in)
        ]
        source, target = batch.source.unsqueeze(-1), batch.target_in.unsqueeze(-1)
        with plain_attention():
            return model(source, lengths[0], target, lengths[1])["logits"]

    return loop(model.train(), logits, precision)


def sockeye_model(size: Size, inference: bool = False) -> Any:
    """Initialised as PyTorch does it; inference: as Sockeye has it for search."""
    from sockeye.data_io import DataConfig
    from sockeye.encoder import EmbeddingConfig
    from sockeye.model import ModelConfig, SockeyeModel
    from sockeye.transformer import TransformerConfig

    side = TransformerConfig(
        model_size=size.d_model, attention_heads=size.heads, feed_forward_num_hidden=size.d_ff,
        act_type="relu", num_layers=size.layers, dropout_attention=0.0, dropout_act=0.0,
        dropout_prepost=DROPOUT, positional_embedding_type="fixed", preprocess_sequence="",
        postprocess_sequence="drn", max_seq_len_source=LONGEST, max_seq_len_target=LONGEST,
        depth_key_value=size.d_model,
    )  # fmt: skip
    pieces = EmbeddingConfig(size.vocabulary, size.d_model, dropout=0.0)
    config = ModelConfig(
        config_data=DataConfig(None, LONGEST, LONGEST, 1, 1), config_encoder=side,
        config_decoder=side, config_embed_source=pieces, config_embed_target=pieces,
        vocab_source_size=size.vocabulary, vocab_target_size=size.vocabulary,
    )  # fmt: skip
    return SockeyeModel(config, inference_only=inference)
