"""What it costs to write well-formed trees only: `python -m benchmarks.parse`.

With `--project FOLDER`, of a project that has run `dvc repro evaluate`, its own model parses test
sentences, evenly spaced, with its own settings of `evaluate`. Without, a Transformer of random
weights parses one batch with beam 21, alpha 0.3 and at most 300 symbols more than words.
Unconstrained and well-formed in turns, on one thread.

The two write other things: with random weights unconstrained hypotheses share more of how they
begin, so that a step has fewer keys to attend to. What the masks cost is therefore `overhead`:
their seconds, divided by the others of the same search. Seconds are of the CPU, so that other work
counts little. Prints JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import TransformerConfig
from seq2sweep.data.reading import read_lines
from seq2sweep.data.vocabulary import EOS, UNK
from seq2sweep.decode import beam
from seq2sweep.decode.well_formed import Trees, WellFormed
from seq2sweep.evaluate.parsing import parse
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train.allocator import keep_memory

PIECES = 1000
SYMBOLS = 64
LABELS = 28
SIZES: dict[str, Any] = {
    "layers": 2, "d_model": 128, "d_ff": 512, "heads": 4, "d_k": 32, "d_v": 32,
    "target_symbols": SYMBOLS, "tie_embeddings": False,
}  # fmt: skip
SEED = 1


class Timed(WellFormed):
    """Adds up the seconds that masks take."""

    seconds = 0.0

    def mask(self, logits: Tensor) -> None:
        started = time.process_time()
        super().mask(logits)
        Timed.seconds += time.process_time() - started

    def select(self, sentences: Tensor, rows: Tensor, symbols: Tensor) -> None:
        started = time.process_time()
        super().select(sentences, rows, symbols)
        Timed.seconds += time.process_time() - started


def main() -> None:
    """Measure, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--project", type=Path, metavar="FOLDER")
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--words", type=int, default=25, help="of each random sentence")
    parser.add_argument("--beam", type=int, default=21, help="of random weights, as the next")
    parser.add_argument("--extra", type=int, default=300, help="symbols more than words")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each search")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    model, searches = trained(options) if options.project else random_weights(options)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in searches}
    for _ in range(options.rounds):
        for name, run in searches.items():
            turns[name].append(timed(model, run))
    ratios = [
        ours["seconds"] / free["seconds"]
        for ours, free in zip(turns["well_formed"], turns["unconstrained"], strict=True)
    ]
    result = {
        "options": {key: value for key, value in vars(options).items() if key != "project"},
        "trained": options.project is not None,
        "median": {
            name: {key: statistics.median(turn[key] for turn in each) for key in each[0]}
            for name, each in turns.items()
        },
        "overhead_of_each_round": [turn["overhead"] for turn in turns["well_formed"]],
        "ratio_of_each_round": ratios,
        "median_ratio": statistics.median(ratios),
    }
    print(json.dumps(result, indent=2))


Searches = dict[str, Callable[[], object]]


def random_weights(options: argparse.Namespace) -> tuple[Architecture, Searches]:
    """A model, and how it searches in each of two ways."""
    torch.manual_seed(SEED)
    config = presets.load("phrasebook").config.model
    assert isinstance(config, TransformerConfig)
    model = Transformer(dataclasses.replace(config, **SIZES), PIECES).eval()
    source = torch.randint(UNK + 1, PIECES, (options.sentences, options.words + 1))
    source[:, -1] = EOS
    find = functools.partial(
        beam.search, model, source, beam=options.beam, alpha=0.3, max_extra_tokens=options.extra
    )
    trees = Trees([options.words] * options.sentences, LABELS)
    return model, {"unconstrained": find, "well_formed": functools.partial(find, trees=trees)}


def trained(options: argparse.Namespace) -> tuple[Architecture, Searches]:
    """The same of a project's own model."""
    folder = options.project
    config = configuration.load(folder / "params.yaml")
    parser = Translator(folder / "models/train", folder / "data/vocabulary", config.evaluate)
    lines = list(read_lines(folder / "data/clean/test.source.txt"))
    some = lines[:: max(1, len(lines) // options.sentences)][: options.sentences]
    find = functools.partial(parse, parser.model, parser.vocabulary, some, config.evaluate)
    return parser.model, {
        name: functools.partial(find, well_formed=name == "well_formed")
        for name in ("unconstrained", "well_formed")
    }


def timed(model: Architecture, run: Callable[[], object]) -> dict[str, float]:
    """Of one search: its seconds, its steps, the seconds of each, and what masks add."""
    Timed.seconds = 0.0
    with (
        mock.patch.object(model, "step", wraps=model.step) as step,
        mock.patch.object(beam, "WellFormed", Timed),
    ):
        started = time.process_time()
        run()
        seconds = time.process_time() - started
    return {
        "seconds": seconds,
        "steps": step.call_count,
        "seconds_a_step": seconds / step.call_count,
        "overhead": Timed.seconds / (seconds - Timed.seconds),
    }


if __name__ == "__main__":
    main()
