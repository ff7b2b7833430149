"""Stage encode: clean text as token ids in data/encoded, which training maps into memory.

python -m pipeline.encode
"""

from __future__ import annotations

from typing import Any

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import bitext, files
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError


def work(config: configuration.Config) -> None:
    """Write the token and offset files of all splits and sides, and header.json."""
    vocabulary = Vocabulary.open(stage.VOCABULARY)
    counts: dict[str, dict[str, dict[str, Any]]] = {}
    with files.whole_folder(stage.ENCODED) as folder:
        for split in files.SPLITS:
            counts[split] = {}
            for side in files.SIDES:
                path = stage.CLEAN / files.text_name(split, side)
                lines = console.progress(
                    files.read_lines(path),
                    f"encode {split} {side}",
                    "sentences",
                    files.count_lines(path),
                )
                counts[split][side] = bitext.write_side(folder, split, side, lines, vocabulary)
            _require_aligned(split, counts[split])
        header = bitext.make_header(
            folder,
            vocabulary,
            {"source": config.data.source, "target": config.data.target},
            counts,
        )
        stage.write_json(folder / bitext.HEADER_NAME, header)
    for side, found in counts["train"].items():
        console.say(
            f"train {side}: {found['sentences']:,} sentences, {found['tokens']:,} tokens, "
            f"{found['unknown_share']:.4%} of them unknown"
        )


def _require_aligned(split: str, sides: dict[str, dict[str, Any]]) -> None:
    source, target = (sides[side]["sentences"] for side in files.SIDES)
    if source != target:
        raise UserError(
            f"{stage.CLEAN} has {source} {split} sentences in one language and {target} in the "
            f"other: remove {stage.CLEAN} and run `dvc repro`"
        )


if __name__ == "__main__":
    stage.run("encode", "clean text as token ids", work)
