"""Stage vocabulary: word pieces shared by both languages, in data/vocabulary.

python -m pipeline.vocabulary
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import sentencepiece

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import files, reading, vocabulary
from seq2sweep.storage import atomic

T = TypeVar("T")


def work(config: configuration.Config) -> None:
    """Write vocabulary.model and vocabulary.json."""
    source, target = files.text_paths(stage.CLEAN, "train")
    files.verify(stage.CLEAN, "train")
    pairs = files.count_lines(source)
    most = vocabulary.most_sentences(config.vocabulary)
    used = min(pairs, max(1, most // 2) if most else 0)
    sample = _evenly_spaced(reading.read_pairs(source, target), pairs, used)
    model = vocabulary.train(
        itertools.chain.from_iterable(console.progress(sample, "read train", "pairs", used)),
        config.vocabulary,
    )
    made = vocabulary.Vocabulary(model)
    with atomic.whole_folder(stage.VOCABULARY) as folder:
        (folder / vocabulary.MODEL_NAME).write_bytes(model)
        stage.write_json(
            folder / vocabulary.JSON_NAME,
            {
                "kind": config.vocabulary.kind,
                "size": len(made),
                "sha256": made.fingerprint,
                "sentencepiece": sentencepiece.__version__,
                "languages": {"source": config.data.source, "target": config.data.target},
                "sentences": 2 * used,
            },
        )
    console.say(f"{len(made):,} word pieces learned from {used:,} of {pairs:,} pairs")


def _evenly_spaced(items: Iterable[T], count: int, wanted: int) -> Iterator[T]:
    """`wanted` of `count` items, spread evenly: a sample of a large corpus without a seed."""
    for i, item in enumerate(items):
        if i * wanted // count != (i - 1) * wanted // count:
            yield item


if __name__ == "__main__":
    stage.run("vocabulary", "word pieces shared by both languages", work)
