"""What the data stages will need, before anything is fetched or written.

Sizes of downloads are the registry's. The rest is estimated from the number of pairs, with what
was measured on text in the layout and at the size of WMT14 (docs/performance.md): a plan is there
to find out that a disk is too small or a night too short.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.config import Config, DataConfig
from seq2sweep.data import download, files, sources
from seq2sweep.data.download import receipts
from seq2sweep.data.own import own_files
from seq2sweep.data.treebank import corpora
from seq2sweep.data.vocabulary import most_sentences
from seq2sweep.errors import UserError
from seq2sweep.parallel import available_cpus
from seq2sweep.paths import read_json

STAGES = ("download", "prepare", "vocabulary", "encode")
BYTES_PER_SECOND = 10e6
"""Assumed of the network; nothing is tried."""
CLEAN_BYTES_PER_PAIR = 320.0
ENCODED_BYTES_PER_PAIR = 150.0
"""Both sides of a pair as clean text, and as 2-byte pieces with lengths and offsets."""
PAIRS_PER_SECOND = {
    "generate": 15_000.0,
    "read": 180_000.0,
    "prepare": 35_000.0,
    "encode": 12_500.0,
}
"""Of one CPU; prepare and encode use all of them."""
LEARNED_PER_SECOND = 50_000.0
"""Sentences that pieces are learned from, on one CPU: 2 million in 40 s."""


def data_plan(
    config: Config,
    checkpoints: int = 0,
    stages: Collection[str] = STAGES,
    counted: Mapping[str, int] | None = None,
    models: int = 0,
) -> dict[str, Any]:
    """Downloads, bytes on disk and seconds of the stages download to encode.

    checkpoints: bytes that trainings will keep in cluster.storage; models: that they will export
    into the project; stages: those that will run, the others have what they need; counted: what
    `known_pairs` gave, else it is asked here.

    Keys: dataset, languages, pairs (to train on, before cleaning), counted (else pairs are about
    what the registry says), download {folder, files, bytes,
    missing_bytes, unknown_sizes}, disk {downloads, clean, encoded, models, cache, checkpoints,
    needed, free, short}, cpus, seconds by stage, whether it runs or not.
    No network, no side effect. `short`: the folder whose disk is too small, None where all fit.
    Raises UserError for a data set that cannot be.
    """
    registered = config.data.registered
    sides = 1 if config.data.task == "parsing" else 2
    archives = _of_registry(config).archives if registered else ()
    counted = counted or known_pairs(config)
    pairs, cpus = counted["train"], available_cpus()
    folder = Path(config.download.folder)
    absent = {archive.file: there for archive, there in download.missing(archives, folder)}
    listed: list[dict[str, Any]] = [
        {
            "file": archive.file,
            "bytes": archive.bytes,
            "complete": archive.file not in absent,
            "there": absent.get(archive.file, archive.bytes or 0),
            "from": receipts.shown(sources.mirrored(archive.addresses[0], config.download.mirrors)),
        }
        for archive in archives
    ]
    missing = sum(max(0, (f["bytes"] or 0) - f["there"]) for f in listed if not f["complete"])
    # What silver writes: the treebank's trees once more, and those of both parsers.
    sentences = config.self_training.sentences
    parsed = (pairs + sentences) * bool(sentences and "silver" in stages)
    clean = int((pairs * ("prepare" in stages) + parsed) * CLEAN_BYTES_PER_PAIR)
    encoded = int((pairs * ("encode" in stages) + parsed) * ENCODED_BYTES_PER_PAIR)
    made = "generate" if config.data.dataset == "phrasebook" else "read"
    return {
        "dataset": config.data.dataset,
        "languages": [config.data.source, config.data.target],
        "pairs": pairs,
        "counted": "valid" in counted,
        "download": {
            "folder": str(folder),
            "files": listed,
            "bytes": sum(f["bytes"] or 0 for f in listed),
            "missing_bytes": missing,
            "unknown_sizes": sum(f["bytes"] is None for f in listed),
        },
        "disk": _disk(
            config, missing * ("download" in stages), clean, encoded, models, checkpoints
        ),
        "cpus": cpus,
        "seconds": {
            "download": missing / BYTES_PER_SECOND + pairs / PAIRS_PER_SECOND[made],
            "prepare": pairs / PAIRS_PER_SECOND["prepare"] / cpus,
            "vocabulary": min(sides * pairs, most_sentences(config.vocabulary))
            / LEARNED_PER_SECOND,
            "encode": pairs / PAIRS_PER_SECOND["encode"] / cpus,
        },
    }


def _disk(
    config: Config, downloads: int, clean: int, encoded: int, models: int, checkpoints: int
) -> dict[str, Any]:
    folders: dict[int, Path] = {}
    needs: dict[int, int] = {}
    for place, count in (
        (Path(config.download.folder), downloads),
        # DVC keeps what a stage made; a copy where the file system cannot share the blocks.
        (Path.cwd(), 2 * (clean + encoded + models)),
        (Path(config.cluster.folder), checkpoints),
    ):
        folder = _existing(place)
        disk = folder.stat().st_dev
        folders.setdefault(disk, folder)
        needs[disk] = needs.get(disk, 0) + count
    free = {disk: shutil.disk_usage(folder).free for disk, folder in folders.items()}
    short = [str(folders[disk]) for disk in needs if needs[disk] > free[disk]]
    return {
        "downloads": downloads,
        "clean": clean,
        "encoded": encoded,
        "models": models,
        "cache": clean + encoded + models,
        "checkpoints": checkpoints,
        "needed": sum(needs.values()),
        "free": sum(free.values()),
        "short": short[0] if short else None,
    }


def known_pairs(config: Config, raw: Path | None = None) -> dict[str, int]:
    """Sentence pairs of the splits: of a data set of the registry about how many train, else all.

    raw: what the download stage wrote, where that is up to date: it has counted them. Else the
    user's own files are read through as that stage reads them, one line at a time.
    Raises UserError for a data set that cannot be.
    """
    data = config.data
    if raw is not None:
        splits = read_json(raw / "provenance.json")["splits"]
        lines = {split: sum(text["lines"] for text in texts) for split, texts in splits.items()}
        return _held_out(data, lines) if data.dataset == "files" else lines
    if data.task == "parsing" and not data.registered and data.dataset != "phrasebook":
        return _count_trees(config)
    if data.dataset == "phrasebook":
        sources.check_phrasebook(data.phrasebook)
        return {split: getattr(data.phrasebook, split) for split in files.SPLITS}
    if data.dataset == "files":
        corpora = own_files.named(data).items()
        return _held_out(data, {split: _count(split, each) for split, each in corpora})
    if not (pairs := _of_registry(config).pairs):
        raise UserError(
            f"{data.folder}: datasets.{data.dataset} has 0 as pairs: state about how many there "
            "are to train on"
        )
    return {"train": pairs}


def _of_registry(config: Config) -> sources.Dataset:
    data = config.data
    return sources.load(Path(data.folder), data.dataset, data.source, data.target)


def _held_out(data: DataConfig, counted: Mapping[str, int]) -> dict[str, int]:
    """Pairs of the splits when some of those of train are held out for others."""
    asked = data.files.held_out
    left = counted["train"] - sum(asked.values())
    if left <= 0:
        raise UserError(
            f"data.files holds {sum(asked.values()):,} pairs out of {counted['train']:,} for "
            "training: lower data.files.valid_pairs and data.files.test_pairs"
        )
    return {**counted, "train": left, **asked}


def _count(split: str, corpora: Sequence[own_files.Corpus]) -> int:
    """Pairs of a split, read through."""
    for text in (text for texts in corpora for text in texts):
        if not text.path.exists():
            raise UserError(f"{text.path} is missing: check data.folder and data.files.{split}")
    pairs = own_files.pairs(corpora)
    return sum(1 for _ in console.progress(pairs, f"count {split}", "pairs"))


def _count_trees(config: Config) -> dict[str, int]:
    """Trees of the user's own files, read through."""
    counted = {}
    for split, entries in corpora.of_own(config).items():
        trees = (tree for corpus in entries for tree in corpora.read_trees(corpus.text))
        counted[split] = sum(1 for _ in console.progress(trees, f"count {split}", "trees"))
    return counted


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
