"""Figures once more by other ways than the code under test: sentence by sentence, plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional

from seq2sweep.config import ModelConfig
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import BOS
from seq2sweep.model.architecture.transformer import Transformer


def averaged(config: ModelConfig, files: Sequence[Path], pieces: int) -> Transformer:
    """The model whose weights are the mean of those in files; pieces: of the vocabulary."""
    parts = [load_file(file) for file in files]
    model = Transformer(config, pieces).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(sum(part[name].double() for part in parts) / len(parts))
    return model


def perplexity(model: Transformer, bitext: Bitext) -> float:
    """Per piece of the target, in float32 and without smoothing."""
    total, pieces = 0.0, 0
    for i in range(len(bitext)):
        source = torch.tensor(bitext.source(i).astype("int64"))
        target = torch.tensor(bitext.target(i).astype("int64"))
        given = torch.cat([torch.tensor([BOS]), target[:-1]])
        with torch.no_grad():
            logits = model(source[None], given[None])[0]
        total += float(functional.cross_entropy(logits.double(), target, reduction="sum"))
        pieces += len(target)
    return math.exp(total / pieces)


def trained_on(bitext: Bitext, steps: int, seed: int, tokens_per_update: int) -> dict[str, int]:
    """Pieces that so many updates saw, and how many epochs were complete then."""
    source = target = done = epoch = 0
    while True:
        lengths = bitext.source_lengths, bitext.target_lengths
        plan = plan_epoch(*lengths, tokens_per_update=tokens_per_update, seed=seed, epoch=epoch)
        for update in range(len(plan)):
            if done == steps:
                return {"source_tokens": source, "target_tokens": target, "epochs": epoch}
            source += sum(int(lengths[0][i]) for i in plan[update])
            target += sum(int(lengths[1][i]) for i in plan[update])
            done += 1
        epoch += 1
