"""The text of a benchmark: encoded once, with a vocabulary of its own, read by every contender."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.text import pairs
from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.data import bitext, reading, vocabulary
from seq2sweep.data.batching import Ids, plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import SIDES, write_pairs
from seq2sweep.parallel import Processes, available_cpus

SAMPLE = 200_000
"""Sentences that the vocabulary is learned from, at most."""


class Texts(NamedTuple):
    """A source file and its aligned target, plain or .gz."""

    source: Path
    target: Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """What text a training benchmark has, and how much of it an update."""
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--pairs", type=int, default=29_000, help="made-up pairs without --text")
    parser.add_argument("--pieces", type=int, default=8000, help="size of the vocabulary")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens of a batch")


def make_as_asked(folder: Path, options: argparse.Namespace) -> None:
    """`make` of what these options say."""
    text = Texts(*options.text) if options.text else None
    make(folder, text, options.pairs, options.pieces)


def make(
    folder: Path,
    text: Texts | None,
    count: int,
    size: int,
    split: str = "train",
    words: int = 0,
) -> None:
    """Encode `text` (without: `count` made-up pairs) as a split in `folder`.

    size: of the vocabulary, learned from the first split that is made there and kept. words: pairs
    that follow one another are joined until the target has so many; 0: they are not.
    """
    plain = {side: folder / f"{split}.{side}.txt" for side in SIDES}
    # Sentences of other splits are others.
    seed = 1 if split == "train" else 2
    made = pairs(count, seed=seed) if text is None else reading.read_pairs(*text)
    if words:
        made = _joined(made, words)
    write_pairs(plain["source"], plain["target"], console.progress(made, "read text", "pairs"))
    model = folder / "vocabulary.model"
    if not model.exists():
        lines = [line for path in plain.values() for line in path.read_text("utf-8").splitlines()]
        settings = configuration.with_changes(
            presets.load("phrasebook").config, {"vocabulary.size": size}
        ).vocabulary
        model.write_bytes(vocabulary.train(lines[:: max(1, len(lines) // SAMPLE)], settings))
    pieces = vocabulary.Vocabulary(model.read_bytes())
    languages = {"source": "en", "target": "de"}
    bitext.write_split(folder, split, plain, pieces, languages, Processes(available_cpus()))


def _joined(single: Iterable[tuple[str, str]], words: int) -> Iterator[tuple[str, str]]:
    source: list[str] = []
    target: list[str] = []
    for pair in single:
        source += pair[0].split()
        target += pair[1].split()
        if len(target) >= words:
            yield " ".join(source), " ".join(target)
            source, target = [], []


def batches(folder: Path, tokens: int) -> tuple[Bitext, list[Ids]]:
    """The training split, and the sentences of each batch of an epoch, in the order of training."""
    data = Bitext.open(folder, "train")
    plan = plan_epoch(
        data.source_lengths, data.target_lengths, tokens_per_update=tokens, seed=1, epoch=0
    )
    return data, [plan[i] for i in range(len(plan))]
