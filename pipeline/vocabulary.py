"""Stage vocabulary: word pieces shared by both languages, in data/vocabulary.

python -m pipeline.vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import files, vocabulary


def work(config: configuration.Config) -> None:
    """Write vocabulary.model and vocabulary.json."""
    source, target = (stage.CLEAN / files.text_name("train", side) for side in files.SIDES)
    sentences = files.count_lines(source) + files.count_lines(target)
    used = min(sentences, vocabulary.MOST_SENTENCES)
    lines = _evenly_spaced(_both(source, target), sentences, used)
    model = vocabulary.train(
        console.progress(lines, "read train", "sentences", used), config.vocabulary
    )
    made = vocabulary.Vocabulary(model)
    with files.whole_folder(stage.VOCABULARY) as folder:
        (folder / vocabulary.MODEL_NAME).write_bytes(model)
        stage.write_json(
            folder / vocabulary.JSON_NAME,
            {
                "size": len(made),
                "sha256": made.fingerprint,
                "sentencepiece": sentencepiece.__version__,
                "languages": {"source": config.data.source, "target": config.data.target},
                "sentences": used,
            },
        )
    console.say(f"{len(made):,} word pieces learned from {used:,} sentences")


def _both(source: Path, target: Path) -> Iterator[str]:
    for pair in files.read_pairs(source, target):
        yield from pair


def _evenly_spaced(lines: Iterator[str], count: int, wanted: int) -> Iterator[str]:
    """`wanted` of `count` lines, spread evenly: a sample of a large corpus without a seed."""
    for i, line in enumerate(lines):
        if i * wanted // count != (i - 1) * wanted // count:
            yield line


if __name__ == "__main__":
    stage.run("vocabulary", "word pieces shared by both languages", work)
