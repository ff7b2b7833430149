"""How much a model and its data are: parameters, lengths of sentences, FLOPs.

Where `data/encoded` is up to date its lengths count. Before that, lengths are drawn from what is
typical of the data set, always the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.config import DEFAULTS, Config, flatten
from seq2sweep.config.datasets import BYTES
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.errors import UserError
from seq2sweep.model import flops
from seq2sweep.sweep.budget import updates_per_epoch

Lengths = NDArray[np.int32]

MOST_PAIRS = 200_000
"""Of the training text that are looked at: enough for a mean, and quickly planned."""
TYPICAL = {
    "phrasebook": (11.7, 12.0, 0.27),
    "multi30k": (15.0, 15.0, 0.3),
    "wmt14-en-de": (28.0, 29.0, 0.6),
    "wmt14-en-fr": (28.0, 33.0, 0.6),
    "phrasebook trees": (10.0, 27.0, 0.27),
    "craft trees": (35.4, 64.5, 0.7),
    "ptb trees": (30.0, 62.6, 0.5),
}
"""Mean pieces of a sentence, its end included, source and target, and the standard deviation of
the logarithm: of the phrasebook as counted with 3000 pieces, of the others roughly. Trees are
symbols: counted of CRAFT, of the Penn Treebank in the part that is free; others are as it is."""
TYPICAL_OTHER = (25.0, 25.0, 0.6)
CHARACTERS_A_PIECE = 4.3
"""Counted: from 3.9 (phrasebook) to 4.8 (Multi30k, German); bytes are hardly more."""
LONGEST = 250
"""Pieces."""
DIFFERENCE = 0.15
"""Standard deviation of the logarithm of the ratio of a pair's two lengths."""
HELD_OUT = {"multi30k": (1014, 1000), "wmt14": (3000, 3003)}
"""Sentences for validation and for the test."""


KIND = (
    *("model.architecture", "model.encoder_mixer", "model.decoder_mixer"),
    *("model.attention", "model.attention_dropout"),
    *("train.compile", "train.deterministic"),
)
"""Keys on which the FLOPs a second depend, whatever the size."""


@dataclass(frozen=True, eq=False)
class Workload:
    """What is trained on: lengths in pieces of (some of) the training pairs and of the others.

    origin: where the lengths are from, in words; pairs: of the whole training text.
    """

    train: Bitext
    valid: tuple[Lengths, Lengths]
    test: tuple[Lengths, Lengths]
    pairs: int
    origin: str

    @property
    def vocabulary_size(self) -> int:
        return int(self.train.header["vocabulary"]["size"])

    @property
    def longest(self) -> int:
        """Pieces of the longest sentence to train on or to validate with."""
        sides = (self.train.source_lengths, self.train.target_lengths, *self.valid)
        return max(int(side.max()) for side in sides)


@dataclass(frozen=True)
class Training:
    """One training: what the device computes in it, and the model's parameters.

    Tokens and FLOPs (`seq2sweep.model.flops`) are of real pieces, without padding;
    an update has tokens of both sides, on average; validation: FLOPs of all validations; longest:
    pieces of a sentence; kind: as of `kind_of`.
    """

    steps: int
    source_tokens_per_update: float
    target_tokens_per_update: float
    flops_per_update: float
    validation_flops: float
    checkpoints: int
    parameters: int
    longest: int
    kind: Mapping[str, str] = field(default_factory=dict)

    @property
    def flops(self) -> float:
        return self.flops_per_update * self.steps

    @property
    def tokens_per_update(self) -> float:
        """Of both sides."""
        return self.source_tokens_per_update + self.target_tokens_per_update

    @property
    def flops_per_token(self) -> float:
        """Of a token of either side."""
        return self.flops_per_update / self.tokens_per_update


def workload(config: Config, pairs: Mapping[str, int], encoded: Path | None) -> Workload:
    """What `config` trains on.

    pairs: of train, and of the other splits where they are known (`data.known_pairs`); encoded: the
    folder of the encoded text, None where it is still to be made. Raises UserError when that is
    damaged, and for a split that has no pair.
    """
    if encoded is not None:
        splits = {split: Bitext.open(encoded, split) for split in ("train", "valid", "test")}
        train = splits["train"]
        source, target = train.source_lengths, train.target_lengths
        every = np.arange(0, len(train), -(-len(train) // MOST_PAIRS))
        # The longest are among them, as by these `train.tokens_per_pass: auto` is decided.
        rows = np.union1d(every, [source.argmax(), target.argmax()])
        few = _bitext(source[rows], target[rows], train.header["vocabulary"])
        held_out = [(s.source_lengths, s.target_lengths) for s in (splits["valid"], splits["test"])]
        return Workload(few, held_out[0], held_out[1], len(train), str(encoded))
    if empty := next((split for split, count in pairs.items() if not count), None):
        raise UserError(f"{empty} has no sentence pair: look at the section data")
    trees = config.data.task == "parsing"
    name = config.data.dataset + " trees" * trees
    fitting = max(filter(name.startswith, TYPICAL), key=len, default="")
    typical = TYPICAL.get(fitting, TYPICAL["ptb trees"] if trees else TYPICAL_OTHER)
    usual = next((v for key, v in HELD_OUT.items() if name.startswith(key)), (3000, 3000))
    held_out_pairs = pairs.get("valid", usual[0]), pairs.get("test", usual[1])
    number = pairs["train"]
    kind, size = config.vocabulary.kind, config.vocabulary.size
    longer = CHARACTERS_A_PIECE if kind in ("characters", "bytes") else 1.0
    # Trees are symbols, whatever their sentences are cut into.
    times = longer, 1.0 if trees else longer
    source, target = _typical(typical, min(number, MOST_PAIRS), times)
    few = _bitext(source, target, {"size": BYTES if kind == "bytes" else size})
    valid, test = (_typical(typical, count, times) for count in held_out_pairs)
    first, last = (f"{round(typical[side] * times[side], 1):g}" for side in (0, 1))
    pieces = "tokens" if longer == 1 else kind
    differing = trees and longer != 1
    said = f"{first} {kind} and {last} symbols" if differing else f"{first} and {last} {pieces}"
    origin = f"assumed: {said} a sentence"
    return Workload(few, valid, test, number, origin)


def with_updates(config: Config, times: float) -> Config:
    """With so many times the tokens an update."""
    tokens = max(1, round(times * config.train.tokens_per_update))
    return replace(config, train=replace(config.train, tokens_per_update=tokens))


def training(config: Config, load: Workload) -> Training:
    """What one training of `config` computes."""
    settings = config.train
    source, target = load.train.source_lengths, load.train.target_lengths
    # Which they are depends on the seed, their number hardly does.
    updates = updates_per_epoch(load.train, settings.tokens_per_update, seed=0)
    size = load.vocabulary_size
    validations = -(-settings.steps // settings.validate_every)
    return Training(
        steps=settings.steps,
        source_tokens_per_update=float(source.sum()) / updates,
        target_tokens_per_update=float(target.sum()) / updates,
        flops_per_update=flops.training_flops(config.model, size, source, target) / updates,
        validation_flops=validations * flops.forward_flops(config.model, size, *load.valid),
        checkpoints=-(-settings.steps // settings.checkpoint_every),
        parameters=flops.parameter_count(config.model, size),
        longest=load.longest,
        kind=kind_of(flatten(config, "model", "train")),
    )


def kind_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The values of KIND, of those keys that are known, as params.yaml has them; of dropout of
    attention whether there is any.

    values: of the section model, or of model and train, by dotted key, of a configuration or of an
    identity, which leaves out keys with their default.
    """
    sections = {key.partition(".")[0] for key in values}
    known = {key: values.get(key, DEFAULTS.get(key)) for key in KIND}
    if known["model.architecture"] != "transformer":  # it alone has mixers and kinds of attention
        known = {k: known[k] for k in KIND if k == "model.architecture" or k.startswith("train.")}
    elif known["model.attention_dropout"]:
        known["model.attention_dropout"] = "above_0"
    return {
        # Beside the name of a kind of part an identity has what its file means.
        key: str(value).lower() if isinstance(value, bool) else str(value).partition(" ")[0]
        for key, value in known.items()
        if value is not None and key.partition(".")[0] in sections
    }


def _typical(
    typical: tuple[float, float, float], pairs: int, times: tuple[float, float]
) -> tuple[Lengths, Lengths]:
    """Log-normal lengths of so many pairs, alike on both sides of a pair; times: so much longer
    than typical is each side."""
    *means, spread = typical
    random = np.random.default_rng(0)
    shared = random.normal(0.0, spread, pairs)
    sides = []
    for mean, longer in zip(means, times, strict=True):
        own = random.normal(0.0, DIFFERENCE / math.sqrt(2), pairs)
        ratio = np.exp(shared + own - (spread**2 + DIFFERENCE**2 / 2) / 2)
        sides.append(np.clip(np.rint(mean * longer * ratio), 2, LONGEST * longer).astype(np.int32))
    return sides[0], sides[1]


def _bitext(source: Lengths, target: Lengths, vocabulary: Mapping[str, Any]) -> Bitext:
    """Lengths alone, without the text, as what asks for a budget takes them."""
    nothing = np.empty(0, np.int64)
    sides = (Side(nothing, nothing, lengths) for lengths in (source, target))
    return Bitext({"vocabulary": dict(vocabulary)}, *sides)
