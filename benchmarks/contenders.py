"""One way to train the same model on the same batches: `python -m benchmarks.contenders NAME ...`.

Trains in this process alone, and prints JSON: seconds and target tokens of each update, seconds
from the start of the process to the end of the first, and the peak of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil

Precision = Literal["float32", "bf16"]
Update = Callable[[Any], None]

SIZES = {"layers": 4, "d_model": 256, "d_ff": 1024, "heads": 4, "d_k": 64, "d_v": 64}
SIZES_OF_RIVALS = {"layers": 4, "d_model": 256}
DROPOUT = 0.1
SMOOTHING = 0.1
LEARNING_RATE = 1e-4
LONGEST = 512
WARM_UP = 3

REQUIRED = {
    "ours": "torch", "plain": "torch", "marian": "transformers", "joey": "joeynmt",
    "ours_recurrent": "torch", "joey_recurrent": "joeynmt",
    "ours_convolutional": "torch", "fairseq_convolutional": "fairseq",
}  # fmt: skip
"""The package that each contender needs."""


def main() -> None:
    """Train; print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=REQUIRED)
    parser.add_argument("folder", type=Path, help="the encoded text")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--keep-memory", action="store_true", help="settings of malloc as ours")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens of a batch")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="the batch to begin with")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if importlib.util.find_spec(REQUIRED[options.name]) is None:
        print(json.dumps({"absent": f"{REQUIRED[options.name]} is not installed"}))
        return
    print(json.dumps(run(options)))


def told_by(command: list[str]) -> dict[str, Any]:
    """The JSON that a turn in a process of its own prints, or why there is none, as `absent`."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing said"]
        return {"absent": f"failed: {lines[-1]}"}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def peak_megabytes() -> float:
    """Of memory that this process had at most."""
    import torch

    from seq2sweep.hardware import memory_of_process

    return memory_of_process(torch.device("cpu"))["peak_rss_bytes"] / 1e6


def run(options: argparse.Namespace) -> dict[str, Any]:
    """What `main` prints."""
    import torch

    from benchmarks import corpus
    from seq2sweep.data.batching import collate
    from seq2sweep.train.allocator import keep_memory

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    if options.keep_memory:
        keep_memory()
    data, groups = corpus.batches(options.folder, options.tokens)
    size = int(data.header["vocabulary"]["size"])
    make: dict[str, Callable[[int, Precision], Update]] = {
        "ours": ours, "plain": plain, "marian": marian, "joey": joey,
        "ours_recurrent": functools.partial(ours, architecture="recurrent"),
        "joey_recurrent": joey_recurrent,
        "ours_convolutional": functools.partial(ours, architecture="convolutional"),
        "fairseq_convolutional": fairseq_convolutional,
    }  # fmt: skip
    update = make[options.name](size, options.precision)
    started = time.time() - psutil.Process().create_time()
    seconds, tokens, first = [], [], math.nan
    for i in range(WARM_UP + options.updates):
        ids = groups[(options.first + i) % len(groups)]
        batch = collate(data, ids)
        before = time.perf_counter()
        update(batch)
        taken = time.perf_counter() - before
        if i == 0:
            first = started + taken
        if i >= WARM_UP:
            seconds.append(taken)
            tokens.append(int(data.target_lengths[ids].sum()))
    return {
        "seconds": seconds,
        "tokens": tokens,
        "first_update": first,
        "peak_megabytes": peak_megabytes(),
    }


def our_model_config(architecture: str = "transformer") -> Any:
    """The `model` section of what every contender trains."""
    from seq2sweep import config as configuration
    from seq2sweep import presets

    sizes = SIZES if architecture == "transformer" else SIZES_OF_RIVALS
    changes: dict[str, Any] = {f"model.{key}": value for key, value in sizes.items()}
    changes |= {"model.dropout": DROPOUT, "model.architecture": architecture}
    return configuration.with_changes(presets.load("phrasebook").config, changes).model


def ours(size: int, precision: Precision, architecture: str = "transformer") -> Update:
    """The core's own update."""
    import torch

    from seq2sweep.model.building import build
    from seq2sweep.train import optimizers, step

    model, device = build(our_model_config(architecture), size).train(), torch.device("cpu")
    optimizer = optimizers.make_adam(model)

    def update(batch: Any) -> None:
        step.accumulate(
            model,
            [batch],
            update_target_tokens=int(batch.target_out.ne(0).sum()),
            smoothing=SMOOTHING,
            world_size=1,
            precision=precision,
            device=device,
        )
        step.apply(model, optimizer, LEARNING_RATE)

    return update


def plain(size: int, precision: Precision) -> Update:
    """What anybody writes: torch.nn.Transformer, its masks, cross-entropy and Adam."""
    import torch
    from torch import nn

    from seq2sweep.model.layers import sinusoids

    class Model(nn.Module):
        positions: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(size, SIZES["d_model"], padding_idx=0)
            self.register_buffer("positions", sinusoids(LONGEST, SIZES["d_model"]))
            self.dropout = nn.Dropout(DROPOUT)
            self.transformer = nn.Transformer(
                SIZES["d_model"], SIZES["heads"], SIZES["layers"], SIZES["layers"],
                SIZES["d_ff"], DROPOUT, batch_first=True,
            )  # fmt: skip
            self.output = nn.Linear(SIZES["d_model"], size, bias=False)
            self.output.weight = self.embedding.weight

        def embed(self, pieces: Any) -> Any:
            scaled = self.embedding(pieces) * math.sqrt(SIZES["d_model"])
            return self.dropout(scaled + self.positions[: pieces.size(1)])

        def forward(self, source: Any, target: Any) -> Any:
            blank = source.eq(0)
            future = nn.Transformer.generate_square_subsequent_mask(target.size(1)).isinf()
            states = self.transformer(
                self.embed(source), self.embed(target), tgt_mask=future, tgt_is_causal=True,
                src_key_padding_mask=blank, memory_key_padding_mask=blank,
                tgt_key_padding_mask=target.eq(0),
            )  # fmt: skip
            return self.output(states)

    model = Model().train()
    return _loop(model, lambda batch: model(batch.source, batch.target_in), precision)


def marian(size: int, precision: Precision) -> Update:
    """Hugging Face's MarianMTModel."""
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(marian_config(MarianConfig, size)).train()

    def logits(batch: Any) -> Any:
        return model(
            input_ids=batch.source,
            attention_mask=batch.source.ne(0),
            decoder_input_ids=batch.target_in,
            use_cache=False,
        ).logits

    return _loop(model, logits, precision)


def marian_config(make: Callable[..., Any], size: int) -> Any:
    """The same sizes in Hugging Face's words."""
    names = {"layers": SIZES["layers"], "attention_heads": SIZES["heads"], "ffn_dim": SIZES["d_ff"]}
    sides = {f"{side}_{key}": v for side in ("encoder", "decoder") for key, v in names.items()}
    return make(
        vocab_size=size, d_model=SIZES["d_model"], dropout=DROPOUT, attention_dropout=0.0,
        activation_dropout=0.0, activation_function="relu", max_position_embeddings=LONGEST,
        scale_embedding=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, forced_eos_token_id=None, **sides,
    )  # fmt: skip


def joey(size: int, precision: Precision) -> Update:
    """Joey NMT's model and its own loss."""
    import torch
    from joeynmt.config import BaseConfig  # noqa: F401  (fails early where it is half installed)
    from joeynmt.decoders import TransformerDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import TransformerEncoder
    from joeynmt.loss import XentLoss

    width = SIZES["d_model"]
    shared = {
        "hidden_size": width, "ff_size": SIZES["d_ff"], "num_layers": SIZES["layers"],
        "num_heads": SIZES["heads"], "dropout": DROPOUT, "emb_dropout": DROPOUT,
        "layer_norm": "post",
    }  # fmt: skip
    embeddings = Embeddings(embedding_dim=width, scale=True, vocab_size=size, padding_idx=0)
    encoder = TransformerEncoder(emb_size=width, **shared)
    decoder = TransformerDecoder(emb_size=width, vocab_size=size, **shared)
    decoder.output_layer.weight = embeddings.lut.weight
    model = torch.nn.ModuleList([embeddings, encoder, decoder]).train()
    loss = XentLoss(pad_index=0, smoothing=SMOOTHING)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def update(batch: Any) -> None:
        source_mask = batch.source.ne(0).unsqueeze(1)
        target_mask = batch.target_in.ne(0).unsqueeze(1)
        with _autocast(precision):
            memory, last = encoder(embeddings(batch.source), None, source_mask)
            logits, *_ = decoder(
                embeddings(batch.target_in), memory, last, source_mask, None, None, target_mask
            )
            found = loss(torch.log_softmax(logits, dim=-1), trg=batch.target_out)
        total = found[0] if isinstance(found, tuple) else found
        (total / batch.target_out.ne(0).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def joey_recurrent(size: int, precision: Precision) -> Update:
    """Joey NMT's LSTMs with Bahdanau's attention and its own loss: as wide, as deep in the decoder;
    its encoder reads both ways in every layer, so that two of its layers have the weights of four
    of GNMT's. In all it has fewer weights than ours."""
    import torch
    from joeynmt.decoders import RecurrentDecoder
    from joeynmt.embeddings import Embeddings
    from joeynmt.encoders import RecurrentEncoder
    from joeynmt.loss import XentLoss

    width, layers = SIZES_OF_RIVALS["d_model"], SIZES_OF_RIVALS["layers"]
    shared = {
        "rnn_type": "lstm", "hidden_size": width, "emb_size": width, "dropout": DROPOUT,
        "emb_dropout": DROPOUT,
    }  # fmt: skip
    embeddings = Embeddings(embedding_dim=width, scale=True, vocab_size=size, padding_idx=0)
    encoder = RecurrentEncoder(num_layers=layers // 2, **shared)
    decoder = RecurrentDecoder(
        encoder=encoder, num_layers=layers, vocab_size=size, hidden_dropout=DROPOUT, **shared
    )
    decoder.output_layer.weight = embeddings.lut.weight
    model = torch.nn.ModuleList([embeddings, encoder, decoder]).train()
    loss = XentLoss(pad_index=0, smoothing=SMOOTHING)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def update(batch: Any) -> None:
        # It asks for the longest sentence first.
        lengths, order = batch.source.ne(0).sum(dim=1).sort(descending=True)
        source, target_in = batch.source[order], batch.target_in[order]
        target_out = batch.target_out[order]
        mask = source.ne(0).unsqueeze(1)
        with _autocast(precision):
            memory, last = encoder(embeddings(source), lengths, mask)[:2]
            logits, *_ = decoder(embeddings(target_in), memory, last, mask, target_in.size(1))
            found = loss(torch.log_softmax(logits, dim=-1), trg=target_out)
        total = found[0] if isinstance(found, tuple) else found
        (total / target_out.ne(0).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def fairseq_convolutional(size: int, precision: Precision) -> Update:
    """fairseq's ConvS2S with all matrices of embeddings tied, and the loss of `_loop`, which is
    faster than its own."""
    import torch
    from fairseq.models.fconv import FConvDecoder, FConvEncoder

    class Pieces:
        def __len__(self) -> int:
            return size

        def pad(self) -> int:
            return 0

    width, layers = SIZES_OF_RIVALS["d_model"], SIZES_OF_RIVALS["layers"]
    shared = {
        "embed_dim": width, "max_positions": 2 * LONGEST, "convolutions": ((width, 3),) * layers,
        "dropout": DROPOUT,
    }  # fmt: skip
    encoder = FConvEncoder(Pieces(), **shared)
    decoder = FConvDecoder(Pieces(), out_embed_dim=width, share_embed=True, **shared)
    encoder.embed_tokens.weight = decoder.embed_tokens.weight
    encoder.num_attention_layers = len(decoder.attention)  # as its FConvModel does
    model = torch.nn.ModuleList([encoder, decoder]).train()

    def logits(batch: Any) -> Any:
        memory = encoder(batch.source, batch.source.ne(0).sum(dim=1))
        return decoder(batch.target_in, encoder_out=memory)[0]

    return _loop(model, logits, precision)


def _loop(model: Any, logits: Callable[[Any], Any], precision: Precision) -> Update:
    """Forward, cross-entropy, backward, Adam: as in any tutorial."""
    import torch
    from torch.nn import functional as F

    optimizer = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    def update(batch: Any) -> None:
        with _autocast(precision):
            said = logits(batch)
            loss = F.cross_entropy(
                said.flatten(0, 1), batch.target_out.flatten(), ignore_index=0,
                label_smoothing=SMOOTHING,
            )  # fmt: skip
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


@contextlib.contextmanager
def _autocast(precision: Precision) -> Iterator[None]:
    import torch

    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        yield


if __name__ == "__main__":
    main()
