"""Names of the files that stages hand on, and writing that is whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seq2sweep.errors import UserError
from seq2sweep.paths import mismatch, open_regular, read_json
from seq2sweep.storage.atomic import sha256, write_json

SPLITS = ("train", "valid", "test")
SIDES = ("source", "target")
HELD_OUT = "held out"
"""The name of a corpus that the download stage has taken out of train, and written itself."""
PHENOMENA = "test.phenomena.txt"
RECEIPT = "receipt.json"
"""What training says of the weights it leaves, beside them."""
MANIFEST = "manifest.json"
"""Of a model in one folder (decode/model_folder.py)."""
CHECKPOINTS = "checkpoints"
"""The folder of those weights, one safetensors file a checkpoint."""
TRANSLATION_COLUMNS = ("source", "reference", "translation", "phenomena")
"""Of reports/translations.tsv."""


def text_name(split: str, side: str) -> str:
    """Name of one side of one split inside data/raw and data/clean."""
    return f"{split}.{side}.txt"


def text_paths(folder: Path, split: str) -> tuple[Path, Path]:
    """Source and target of a split inside a folder such as data/raw or data/clean."""
    source, target = (folder / text_name(split, side) for side in SIDES)
    return source, target


def header_name(split: str) -> str:
    """Name of a split's header, which describes its files, inside data/clean and data/encoded."""
    return f"{split}.json"


def count_lines(path: Path) -> int:
    """Lines of a plain file as fast as it can be read; 0 where it is missing."""
    if not path.exists():
        return 0  # reading it will say so
    with open_regular(path) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines as UTF-8, each ended by "\\n"; returns how many."""
    count = 0
    with path.open("wb") as stream:
        for line in lines:
            stream.write(line.encode() + b"\n")
            count += 1
    return count


def write_pairs(source: Path, target: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Write pairs as two aligned files; returns how many."""
    count = 0
    with source.open("wb") as source_stream, target.open("wb") as target_stream:
        for source_line, target_line in pairs:
            source_stream.write(source_line.encode() + b"\n")
            target_stream.write(target_line.encode() + b"\n")
            count += 1
    return count


def test_set(clean: Path, split: str) -> dict[str, str]:
    """What translations are of, and what they are scored against: sha256 (hex) of two files."""
    return {"split": split} | {side: sha256(clean / text_name(split, side)) for side in SIDES}


FILE = {"bytes": int, "sha256": str}
"""What a header says of a file."""


def describe(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Bytes and sha256 (hex) of files of a folder, as `verify` expects them."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }


def write_header(folder: Path, split: str, sentences: int) -> None:
    """Describe the clean text of a split: by this later stages see that a byte has changed."""
    names = [text_name(split, side) for side in SIDES]
    if split == "test" and (folder / PHENOMENA).exists():
        names.append(PHENOMENA)
    header = {"sentences": sentences, "files": describe(folder, names)}
    write_json(folder / header_name(split), header)


def verify(folder: Path, *splits: str) -> None:
    """Read all files of splits, of data/clean or data/encoded, and compare with their headers.

    Raises UserError where a file is not as it was written, or a header is missing or damaged.
    """
    for split in splits:
        header = folder / header_name(split)
        described = read_json(header).get("files")
        kind = "it lists no files" if not isinstance(described, dict) else None
        if wrong := kind or mismatch(described, dict.fromkeys(described, FILE)):
            raise UserError(f"{header} is damaged ({wrong}): remove it and run `dvc repro`")
        for name, about in described.items():
            path = folder / name
            if not path.is_file():
                raise UserError(f"{path} is missing: run `dvc repro`, which makes it")
            if describe(folder, [name])[name] != about:
                raise UserError(
                    f"{path} has changed since it was written (its sha256 is not that in "
                    f"{header}): run `dvc repro`, which makes it again"
                )
