"""Stage prepare: clean text in data/clean, and what was dropped in metrics/prepare.json.

    python -m pipeline.prepare

Validation and test text is normalised only, never dropped: a test set keeps its size and order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import files
from seq2sweep.data.clean import Cleaner
from seq2sweep.errors import UserError


def work(config: configuration.Config) -> None:
    """Write data/clean and metrics/prepare.json."""
    provenance = stage.read_json(stage.RAW / "provenance.json")
    cleaner = Cleaner(config.prepare)
    metrics: dict[str, Any] = {}
    with files.whole_folder(stage.CLEAN) as folder:
        for split in ("valid", "test"):
            kept = _write(folder, split, _held_out(cleaner, split, provenance))
            metrics[split] = {"read": kept, "kept": kept, "dropped": {}}
        if (stage.RAW / files.PHENOMENA).exists():
            _copy_phenomena(folder, metrics["test"]["kept"])
        kept = _write(folder, "train", cleaner.clean(_raw_pairs("train", provenance)))
        assert cleaner.read == kept + sum(cleaner.dropped.values())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in cleaner.dropped.items())
        if kept == 0:
            raise UserError(
                f"none of {cleaner.read:,} training pairs is left ({reasons}): "
                "look at prepare.max_words and prepare.max_ratio, or at the text"
            )
    metrics["train"] = {"read": cleaner.read, "kept": kept, "dropped": cleaner.dropped}
    stage.write_json(
        stage.METRICS / "prepare.json", {split: metrics[split] for split in files.SPLITS}
    )
    console.say(f"kept {kept:,} of {cleaner.read:,} training pairs; dropped: {reasons}")


def _raw_pairs(split: str, provenance: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, target = (stage.RAW / files.text_name(split, side) for side in files.SIDES)
    total = provenance["outputs"][source.name]["lines"]
    pairs = files.read_pairs(source, target)
    yield from console.progress(pairs, f"clean {split}", "pairs", total)


def _held_out(
    cleaner: Cleaner, split: str, provenance: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    for number, pair in enumerate(_raw_pairs(split, provenance), start=1):
        normalised = cleaner.hold_out(*pair)
        for side, text in zip(files.SIDES, normalised, strict=True):
            if not text:
                name = files.text_name(split, side)
                # The user's own file, which has the same lines, where there is one.
                name = provenance.get("inputs", {}).get(name, {}).get("name", stage.RAW / name)
                raise UserError(
                    f"{name} line {number} is empty: {split} sentences are never dropped, "
                    "so fill it in, or remove the line from both sides"
                )
        yield normalised


def _write(folder: Path, split: str, pairs: Iterator[tuple[str, str]]) -> int:
    source, target = (folder / files.text_name(split, side) for side in files.SIDES)
    return files.write_pairs(source, target, pairs)


def _copy_phenomena(folder: Path, sentences: int) -> None:
    origin = stage.RAW / files.PHENOMENA
    lines = files.write_lines(folder / files.PHENOMENA, files.read_lines(origin))
    if lines != sentences:
        raise UserError(
            f"{origin} has {lines} lines but the test set {sentences} sentences: "
            f"remove {stage.RAW} and run `dvc repro`"
        )


if __name__ == "__main__":
    stage.run("prepare", "clean text, and counts of what was dropped", work)
