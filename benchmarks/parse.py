"""What it costs to write well-formed trees only: `python -m benchmarks.parse`.

One batch of sentences, beam 21, alpha 0.3 and at most 300 symbols more than words, as the paper
parses, by a Transformer with random weights, unconstrained and well-formed in turns, on one thread.
The two write other things: unconstrained hypotheses share more of how they begin, so that a step
has fewer keys to attend to. What the masks cost is therefore `overhead`: their seconds, divided by
the others of the same search. Seconds are of the CPU, so that other work counts little. Prints
JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from seq2sweep import presets
from seq2sweep.config import TransformerConfig
from seq2sweep.data.vocabulary import EOS, UNK
from seq2sweep.decode import beam
from seq2sweep.decode.well_formed import Trees, WellFormed
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
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--words", type=int, default=25, help="of each sentence")
    parser.add_argument("--beam", type=int, default=21)
    parser.add_argument("--extra", type=int, default=300, help="symbols more than words")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each search")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    torch.manual_seed(SEED)
    config = presets.load("phrasebook").config.model
    assert isinstance(config, TransformerConfig)
    model = Transformer(dataclasses.replace(config, **SIZES), PIECES).eval()
    source = torch.randint(UNK + 1, PIECES, (options.sentences, options.words + 1))
    source[:, -1] = EOS
    trees = Trees([options.words] * options.sentences, LABELS)
    turns: dict[str, list[dict[str, float]]] = {"unconstrained": [], "well_formed": []}
    for _ in range(options.rounds):
        for name, each in turns.items():
            each.append(timed(model, source, trees if name == "well_formed" else None, options))
    result = {
        "model": SIZES, "options": vars(options),
        "median": {
            name: {key: statistics.median(turn[key] for turn in each) for key in each[0]}
            for name, each in turns.items()
        },
        "overhead_of_each_round": [turn["overhead"] for turn in turns["well_formed"]],
    }  # fmt: skip
    print(json.dumps(result, indent=2))


def timed(
    model: Transformer, source: Tensor, trees: Trees | None, options: argparse.Namespace
) -> dict[str, float]:
    """Of one search: its steps, the seconds of each, and what masks add."""
    Timed.seconds = 0.0
    with (
        mock.patch.object(model, "step", wraps=model.step) as step,
        mock.patch.object(beam, "WellFormed", Timed),
    ):
        started = time.process_time()
        beam.search(
            model, source, beam=options.beam, alpha=0.3, max_extra_tokens=options.extra,
            trees=trees,
        )  # fmt: skip
        seconds = time.process_time() - started
    return {
        "steps": step.call_count, "seconds_a_step": seconds / step.call_count,
        "overhead": Timed.seconds / (seconds - Timed.seconds),
    }  # fmt: skip


if __name__ == "__main__":
    main()
