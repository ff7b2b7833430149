"""Stage download: the raw text of all splits in data/raw, with where it came from.

    python -m pipeline.download

Dataset phrasebook is generated; dataset files is read from data.folder. Raw means: the text as it
was, only line ends, byte order mark and compression are gone.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import files, phrasebook
from seq2sweep.errors import UserError


def work(config: configuration.Config) -> None:
    """Write data/raw and its provenance.json."""
    with files.whole_folder(stage.RAW) as folder:
        if config.data.dataset == "phrasebook":
            provenance = _generate(config.data.phrasebook, folder)
        else:
            provenance = _read_files(config.data, folder)
        stage.write_json(folder / "provenance.json", provenance)
    pairs = ", ".join(
        f"{split} {provenance['outputs'][files.text_name(split, 'source')]['lines']:,}"
        for split in files.SPLITS
    )
    console.say(f"sentence pairs in {stage.RAW}: {pairs}")


def _generate(config: configuration.PhrasebookConfig, folder: Path) -> dict[str, Any]:
    counts = {"train": config.train, "valid": config.valid, "test": config.test}
    for split, count in counts.items():
        most = phrasebook.CAPACITY[split]
        if count > most:
            raise UserError(
                f"data.phrasebook.{split} is {count} but the phrasebook holds at most {most} "
                "different sentences for it; lower it"
            )
    phenomena: list[str] = []

    def pairs(split: phrasebook.Split) -> Iterator[tuple[str, str]]:
        generated = phrasebook.generate(split, counts[split], config.seed)
        for pair in console.progress(generated, f"generate {split}", "pairs", counts[split]):
            if split == "test":
                phenomena.append(" ".join(pair.phenomena))
            yield pair.source, pair.target

    outputs = {
        **_write_pairs(folder, "train", pairs("train")),
        **_write_pairs(folder, "valid", pairs("valid")),
        **_write_pairs(folder, "test", pairs("test")),
    }
    files.write_lines(folder / files.PHENOMENA, phenomena)
    outputs[files.PHENOMENA] = _output(folder / files.PHENOMENA, len(phenomena))
    for split, count in counts.items():
        assert outputs[files.text_name(split, "source")]["lines"] == count
    return {"dataset": "phrasebook", "seed": config.seed, "counts": counts, "outputs": outputs}


def _read_files(config: configuration.DataConfig, folder: Path) -> dict[str, Any]:
    origin = Path(config.folder)
    if not origin.is_dir():
        raise UserError(
            f"data.folder is {config.folder}, which is not a folder: put the files there"
        )
    named: dict[str, tuple[str, ...]] = {
        "train": config.files.train,
        "valid": config.files.valid,
        "test": config.files.test,
    }
    for split, names in named.items():
        for name in names:
            _require_inside(name, split)
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for split, names in named.items():
        source, target = (origin / name for name in names)
        pairs = files.read_pairs(source, target)
        outputs |= _write_pairs(folder, split, console.progress(pairs, f"read {split}", "pairs"))
        for side, name in zip(files.SIDES, names, strict=True):
            inputs[files.text_name(split, side)] = {
                "name": name,
                "bytes": (origin / name).stat().st_size,
                "sha256": files.sha256(origin / name),
            }
    return {"dataset": "files", "inputs": inputs, "outputs": outputs}


def _require_inside(name: str, split: str) -> None:
    # By name only: a link inside the folder may well point elsewhere, as DVC's own links do.
    path = os.path.normpath(name)
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        raise UserError(
            f"data.files.{split} names {name}, which is outside of data.folder: "
            "DVC would miss its changes; move it inside"
        )


def _write_pairs(
    folder: Path, split: str, pairs: Iterable[tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    source, target = (folder / files.text_name(split, side) for side in files.SIDES)
    lines = files.write_pairs(source, target, pairs)
    return {path.name: _output(path, lines) for path in (source, target)}


def _output(path: Path, lines: int) -> dict[str, Any]:
    return {"lines": lines, "sha256": files.sha256(path)}


if __name__ == "__main__":
    stage.run("download", "raw sentence pairs of train, valid and test", work)
