"""A model of each kind with random weights, laid out as training leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.data.vocabulary import EOS, SYMBOLS_NAME, Vocabulary
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model import building
from seq2sweep.storage.atomic import sha256

from ..conftest import Corpus

SYMBOLS = Symbols(["NP", "S", "VP"])
PAPER = "the paper's"
TREES = "trees"
KINDS: dict[str, dict[str, Any]] = {
    PAPER: {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned"},
    "untied": {"tie_embeddings": False},
    "unscaled": {"attention": "dot_product"},
    "additive": {"attention": "additive"},
    "narrow keys": {"d_k": 8},
    "wide values": {"d_v": 24},
    "swiglu": {"feed_forward": "swiglu"},
    "rmsnorm": {"norm_kind": "rmsnorm"},
    **{
        f"{side} {mixer}": {f"{side}_mixer": mixer}
        for side in ("encoder", "decoder")
        for mixer in ("restricted", "recurrent", "convolutional", "separable")
    },
    "all at once": {
        "attention": "additive",
        "d_k": 8,
        "d_v": 24,
        "norm": "pre",
        "positions": "learned",
        "tie_embeddings": False,
        "feed_forward": "swiglu",
        "norm_kind": "rmsnorm",
    },
    "recurrent": {"architecture": "recurrent", "layers": 2},
    "recurrent of before": {"architecture": "recurrent", "layers": 2, "context": "previous"},
    "convolutional": {"architecture": "convolutional", "layers": 2},
    "bytenet": {"architecture": "bytenet", "layers": 2},
    TREES: {"target_symbols": len(SYMBOLS), "tie_embeddings": False},
}
"""What the section `model` has that a small one of the paper's has not."""


def settings(config: Config, kind: str) -> Config:
    """A configuration for a model of that kind."""
    changes = {f"model.{key}": value for key, value in KINDS[kind].items()}
    changes |= {"data.target": "trees"} if kind == TREES else {}
    return configuration.with_changes(config, {"evaluate.max_extra_tokens": 6, **changes})


def translator(folder: Path, config: Config, corpus: Corpus, kind: str = PAPER) -> Translator:
    """One of `weights` and `vocabulary` in the folder, which it makes."""
    config = settings(config, kind)
    vocabulary = folder / "vocabulary"
    shutil.copytree(corpus.vocabulary, vocabulary)
    if kind == TREES:
        (vocabulary / SYMBOLS_NAME).write_bytes(SYMBOLS.dump())
    opened = Vocabulary.open(vocabulary)
    (folder / "weights" / CHECKPOINTS).mkdir(parents=True)
    file = folder / "weights" / CHECKPOINTS / "7.safetensors"
    torch.manual_seed(7)
    model = building.build(config.model, len(opened))
    with torch.no_grad():
        for parameter in model.parameters():  # a bias of 0 would hide that it is forgotten
            parameter += 0.1 * torch.randn_like(parameter)
        if kind != TREES and config.model.architecture == "transformer":
            model.projection.weight[EOS] += 0.2  # so that some end before they are cut
    save_file({name: p.detach() for name, p in model.named_parameters()}, file)
    receipt = {
        "run": "train-7",
        "checkpoints": [{"step": 7, "file": file.name, "sha256": sha256(file), "valid_loss": 1.0}],
        "config": {
            key: configuration.to_dict(config)[key]
            for key in ("data", "prepare", "vocabulary", "model", "train")
        },
        "lineage": {"data.vocabulary": opened.fingerprint, "host": "secret"},
        "trained": {"device": "CPU"},
        "cost": {"flops": 9.3e12, "device_hours": 0.5, "energy_kwh": 0.25},
    }
    (folder / "weights" / RECEIPT).write_text(json.dumps(receipt))
    return Translator(folder / "weights", vocabulary, config.evaluate)
