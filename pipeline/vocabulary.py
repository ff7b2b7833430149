"""Stage vocabulary: word pieces shared by both languages, in data/vocabulary; where the target is
trees, word pieces of the sentences, and the symbols of the trees beside them.

python -m pipeline.vocabulary
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import sentencepiece

from seq2sweep import config as configuration
from seq2sweep import console, project_files
from seq2sweep.data import files, reading, vocabulary
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.stages import stage
from seq2sweep.storage import atomic

T = TypeVar("T")


def work(config: configuration.Config) -> None:
    """Write vocabulary.model and vocabulary.json."""
    source, target = files.text_paths(project_files.CLEAN, "train")
    files.verify(project_files.CLEAN, "train")
    pairs = files.count_lines(source)
    trees = config.data.task == "parsing"
    sides = 1 if trees else 2
    most = vocabulary.most_sentences(config.vocabulary)
    used = min(pairs, max(1, most // sides) if most else 0)
    sample = (
        pair[:sides] for pair in _evenly_spaced(reading.read_pairs(source, target), pairs, used)
    )
    model = vocabulary.train(
        itertools.chain.from_iterable(console.progress(sample, "read train", "pairs", used)),
        config.vocabulary,
    )
    symbols = None
    if trees:
        parsing = config.parsing
        symbols = Symbols.learn(reading.read_lines(target), tags=parsing.tags, words=parsing.words)
    made = vocabulary.Vocabulary(model, symbols=symbols)
    with atomic.whole_folder(project_files.VOCABULARY) as folder:
        if symbols is not None:
            (folder / vocabulary.SYMBOLS_NAME).write_bytes(symbols.dump())
        (folder / vocabulary.MODEL_NAME).write_bytes(model)
        stage.write_json(
            folder / vocabulary.JSON_NAME,
            {
                "kind": config.vocabulary.kind,
                "size": len(made),
                "sha256": made.fingerprint,
                "sentencepiece": sentencepiece.__version__,
                "languages": {"source": config.data.source, "target": config.data.target},
                "sentences": sides * used,
            },
        )
    console.say(
        f"{len(made):,} word pieces learned from {used:,} of {pairs:,} pairs"
        + (f"; {len(symbols)} symbols of trees" if symbols is not None else "")
    )


def _evenly_spaced(items: Iterable[T], count: int, wanted: int) -> Iterator[T]:
    """`wanted` of `count` items, spread evenly: a sample of a large corpus without a seed."""
    for i, item in enumerate(items):
        if i * wanted // count != (i - 1) * wanted // count:
            yield item


if __name__ == "__main__":
    stage.run("vocabulary", "word pieces shared by both languages", work)
