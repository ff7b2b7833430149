"""Other architectures of the paper's Table 2: ours, and those of the toolkits known for them."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.contenders import Precision, Update, ours
from benchmarks.handwritten import loop
from benchmarks.sizes import DROPOUT, LONGEST, Size


def ours_recurrent(size: Size, precision: Precision) -> Update:
    """GNMT, as `model.architecture: recurrent` has it."""
    return ours(size, precision, "recurrent")


def ours_convolutional(size: Size, precision: Precision) -> Update:
    """ConvS2S, as `model.architecture: convolutional` has it."""
    return ours(size, precision, "convolutional")


def joey_recurrent(size: Size, precision: Precision) -> Update:
    """Joey NMT's LSTMs with Bahdanau's attention: as wide, as deep in the decoder; its encoder
    reads both ways in every layer, so that two of its layers have the weights of four of GNMT's.
    In all it has fewer weights than ours."""
    from joeynmt.decoders import RecurrentDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import RecurrentEncoder

    shared = {
        "rnn_type": "lstm", "hidden_size": size.d_model, "emb_size": size.d_model,
        "dropout": DROPOUT, "emb_dropout": DROPOUT,
    }  # fmt: skip
    embeddings = Embeddings(
        embedding_dim=size.d_model, scale=True, vocab_size=size.vocabulary, padding_idx=0
    )
    encoder = RecurrentEncoder(num_layers=size.layers // 2, **shared)
    decoder = RecurrentDecoder(
        encoder=encoder, num_layers=size.layers, vocab_size=size.vocabulary,
        hidden_dropout=DROPOUT, **shared,
    )  # fmt: skip
    decoder.output_layer.weight = embeddings.lut.weight
    model = torch.nn.ModuleList([embeddings, encoder, decoder]).train()

    def logits(batch: Any) -> Any:
        # It asks for the longest sentence first.
        lengths, order = batch.source.ne(0).sum(dim=1).sort(descending=True)
        source, target_in = batch.source[order], batch.target_in[order]
        mask = source.ne(0).unsqueeze(1)
        memory, last = encoder(embeddings(source), lengths, mask)[:2]
        said = decoder(embeddings(target_in), memory, last, mask, target_in.size(1))[0]
        return said[order.argsort()]

    return loop(model, logits, precision)


def fairseq_convolutional(size: Size, precision: Precision) -> Update:
    """fairseq's ConvS2S with all matrices of embeddings tied."""
    from fairseq.models.fconv import FConvDecoder, FConvEncoder

    class Pieces:
        def __len__(self) -> int:
            return size.vocabulary

        def pad(self) -> int:
            return 0

    shared = {
        "embed_dim": size.d_model, "max_positions": 2 * LONGEST,
        "convolutions": ((size.d_model, 3),) * size.layers, "dropout": DROPOUT,
    }  # fmt: skip
    encoder = FConvEncoder(Pieces(), **shared)
    decoder = FConvDecoder(Pieces(), out_embed_dim=size.d_model, share_embed=True, **shared)
    encoder.embed_tokens.weight = decoder.embed_tokens.weight
    encoder.num_attention_layers = len(decoder.attention)  # as its FConvModel does
    model = torch.nn.ModuleList([encoder, decoder]).train()

    def logits(batch: Any) -> Any:
        memory = encoder(batch.source, batch.source.ne(0).sum(dim=1))
        return decoder(batch.target_in, encoder_out=memory)[0]

    return loop(model, logits, precision)
