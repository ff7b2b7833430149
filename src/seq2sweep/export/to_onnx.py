"""ONNX: an encoder and one step of the decoder with its cache, and a search by them in numpy.

Attention is written out here with the layers' own weights: the model's fast paths choose by the
sizes of a batch, which a graph does not know.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2sweep.data.vocabulary import MODEL_NAME, PAD
from seq2sweep.decode.beam import Hypothesis
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export import onnx_search
from seq2sweep.export.protocol import SEARCH, Bounds, Format, Searched, needed, other_architecture
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention, additive
from seq2sweep.model.layers import (
    LEARNED_POSITIONS,
    DecoderLayer,
    EncoderLayer,
    Positions,
    sinusoids,
)

OPSET = 18
EXAMPLE = 6
"""Positions of what `save` shows the exporter; no table of them is shorter."""


class Onnx(Format):
    """The Transformer with attention of every kind."""

    title = "ONNX"
    PENALTIES = ("paper", "power")
    bounds = Bounds(
        same=0.99,
        score=0.1,
        logits=1e-4,
        why="the same sums of float32 by other kernels: a near tie may end otherwise",
    )

    def refuses(self, translator: Translator) -> str | None:
        if reason := other_architecture("the ONNX export", translator.model):
            return reason
        config = translator.model.config
        mixers = {config.encoder_mixer, config.decoder_mixer}
        if mixers != {"self_attention"}:
            return (
                "the ONNX graphs know encoder_mixer and decoder_mixer self_attention only; this "
                f"model has {config.encoder_mixer} and {config.decoder_mixer}"
            )
        if config.target_symbols:
            return "the ONNX export has no search for trees: a model for them is not exported"
        return None

    def write(self, translator: Translator, folder: Path) -> None:
        needed("onnx", "onnx", "onnxscript", "onnxruntime")
        assert isinstance(translator.model, Transformer)
        model = copy.deepcopy(translator.model).cpu().eval()
        asked = translator.config
        longest = max(EXAMPLE, asked.max_input_tokens + asked.max_extra_tokens)
        longest = min(longest, model.max_length)
        save(model, folder, longest)
        settings = {key: getattr(asked, key) for key in SEARCH} | {"max_length": longest}
        settings["max_input_tokens"] = min(asked.max_input_tokens, longest)
        (folder / "search.json").write_text(json.dumps(settings, indent=2) + "\n")
        shutil.copyfile(onnx_search.__file__, folder / "translate.py")
        (folder / MODEL_NAME).write_bytes(translator.vocabulary.model)

    def opened(self, folder: Path, translator: Translator) -> _Opened:
        needed("onnx", "onnxruntime")
        return _Opened(folder, translator)


class _Opened(Searched):
    def __init__(self, folder: Path, translator: Translator) -> None:
        super().__init__(translator, self._found)
        self.search = onnx_search.Search(folder)

    def _found(self, sentences: list[list[int]], *, n_best: int) -> list[list[Hypothesis]]:
        return [[Hypothesis(*found)] for found in self.search(sentences)]

    def logits(self, source: Tensor, target_in: Tensor) -> Tensor:
        memory = self.search.encode(source.numpy())
        past = self.search.start(memory)
        found = []
        for step, tokens in enumerate(target_in.T.numpy()):
            logits, past = self.search.step(np.ascontiguousarray(tokens), step, memory, past)
            found.append(torch.from_numpy(logits))
        return torch.stack(found, dim=1)


def save(model: Transformer, folder: Path, longest: int) -> None:
    """Write encoder.onnx and decoder.onnx into a folder that exists; longest: tokens a side."""
    layers = range(len(model.decoder))
    pairs = [f"{part}_{i}" for i in layers for part in ("keys", "values")]
    rows, n, past = (torch.export.Dim(name, min=1) for name in ("rows", "n", "past"))
    encoder, step = Encoder(model, longest).eval(), Step(model, longest).eval()
    source = torch.tensor([[5, 6, 7, 2], [4, 2, PAD, PAD], [7, 7, 2, PAD]])
    memory = encoder(source)
    so_far = [torch.zeros(*one.shape[:2], 5, one.size(3)) for one in memory]
    of_source = {0: rows, 1: n}
    _write(encoder, (source,), folder / "encoder.onnx", ["source"], pairs, {"source": of_source})
    _write(
        step,
        (torch.tensor([4, 5, 6]), torch.tensor([5]), source, list(memory), so_far),
        folder / "decoder.onnx",
        ["token", "step", "source", *pairs, *(f"past_{name}" for name in pairs)],
        ["logits", *(f"now_{name}" for name in pairs)],
        {
            "token": {0: rows},
            "step": None,
            "source": of_source,
            "memory": [{0: rows, 2: n} for _ in pairs],
            "past": [{0: rows, 2: past} for _ in pairs],
        },
    )


def _write(
    graph: nn.Module,
    example: tuple[Any, ...],
    file: Path,
    inputs: list[str],
    outputs: list[str],
    dynamic: dict[str, Any],
) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        # Of the exporter's own insides.
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            graph, example, str(file), dynamo=True, opset_version=OPSET, verbose=False,
            input_names=inputs, output_names=outputs, dynamic_shapes=dynamic, external_data=True,
        )  # fmt: skip


def attended(
    attention: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """As `MultiHeadAttention.attend`, by plain products whatever the sizes."""
    return attention.join(attention.weights(queries, keys, mask) @ values)


class Encoder(nn.Module):
    """source [B, n] to keys and values [B, h, n, d] for the decoder's layers, one after another."""

    model: Transformer
    table: Tensor

    def __init__(self, model: Transformer, longest: int) -> None:
        super().__init__()
        self.model, self.scale = model, math.sqrt(model.config.d_model)
        self.register_buffer("table", _table(model.source_positions, longest))

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        mask = additive(source.ne(PAD), self.table.dtype)[:, None, None, :]
        x = self.model.source_embedding(source) * self.scale + self.table[: source.size(1)]
        for layer in self.model.encoder:
            assert isinstance(layer, EncoderLayer)
            attention = layer.attention

            def to_itself(y: Tensor, attention: Any = attention) -> Tensor:
                queries, keys, values = attention.project(y)
                return attended(attention, queries, keys, values, mask)

            x = layer.attention_residual(x, to_itself)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        memory = self.model.encoder_norm(x)
        found: list[Tensor] = []
        for layer in self.model.decoder:
            assert isinstance(layer, DecoderLayer)
            found += layer.memory_attention.project_memory(memory)
        return tuple(found)


class Step(nn.Module):
    """One token more of each row: its logits [R, V], and keys and values with it."""

    model: Transformer
    table: Tensor

    def __init__(self, model: Transformer, longest: int) -> None:
        super().__init__()
        self.model, self.scale = model, math.sqrt(model.config.d_model)
        self.register_buffer("table", _table(model.target_positions, longest))

    def forward(
        self, token: Tensor, step: Tensor, source: Tensor, memory: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        mask = additive(source.ne(PAD), self.table.dtype)[:, None, None, :]
        x = self.model.target_embedding(token) * self.scale + self.table.index_select(0, step)
        x = x.unsqueeze(1)
        now: list[Tensor] = []
        for i, layer in enumerate(self.model.decoder):
            assert isinstance(layer, DecoderLayer)
            own, other = layer.attention, layer.memory_attention

            def to_itself(y: Tensor, i: int = i, own: Any = own) -> Tensor:
                queries, keys, values = own.project(y)
                keys = torch.cat((past[2 * i], keys), dim=2)
                values = torch.cat((past[2 * i + 1], values), dim=2)
                now.extend((keys, values))
                return attended(own, queries, keys, values)

            def to_source(y: Tensor, i: int = i, other: Any = other) -> Tensor:
                queries = other.project_queries(y)
                return attended(other, queries, memory[2 * i], memory[2 * i + 1], mask)

            x = layer.attention_residual(x, to_itself)
            x = layer.memory_residual(x, to_source)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        return self.model.projection(self.model.decoder_norm(x)).squeeze(1), *now


def _table(positions: Positions, longest: int) -> Tensor:
    if positions.learned:
        return positions.table.detach()[:LEARNED_POSITIONS].clone()
    return sinusoids(longest, positions.d_model)
