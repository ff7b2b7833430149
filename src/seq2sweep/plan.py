"""What the data stages will need, before anything is fetched or written: `seq2sweep plan`.

Sizes of downloads are the registry's. The rest is estimated from the number of pairs, with what
was measured on text in the layout and at the size of WMT14 (docs/performance.md): a plan is there
to find out that a disk is too small or a night too short.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.data import download, files, sources
from seq2sweep.data.parallel import available_cpus

BYTES_PER_SECOND = 10e6
"""Assumed of the network; nothing is tried."""
CLEAN_BYTES_PER_PAIR = 290.0
ENCODED_BYTES_PER_PAIR = 160.0
"""Both sides of a pair as clean text, and as 2-byte pieces with lengths and offsets."""
PAIRS_PER_SECOND = {"read": 100_000.0, "prepare": 25_000.0, "encode": 25_000.0}
"""Of one CPU; prepare and encode use all of them."""
VOCABULARY_SECONDS = 240.0
"""To learn the pieces of 2 million sentences, on one CPU."""


def data_plan(config: Config) -> dict[str, Any]:
    """Downloads, bytes on disk and seconds of the stages download to encode.

    Keys: dataset, pairs (about; None if unknown), download {folder, files, bytes, missing_bytes,
    unknown_sizes}, disk {downloads, clean, encoded, cache, needed, free}, seconds {stage: ...}.
    Reads sizes of files and nothing else; no network, no side effect. Raises UserError for a data
    set that cannot be.
    """
    archives: tuple[sources.Archive, ...] = ()
    data = config.data
    if data.dataset == "phrasebook":
        pairs: int | None = data.phrasebook.train
    elif data.dataset == "files":
        pairs = _pairs_of_files(Path(data.folder), data.files.train)
    else:
        dataset = sources.load(Path(data.folder), data.dataset, data.source, data.target)
        pairs, archives = dataset.pairs, dataset.archives
    folder = Path(config.download.folder)
    listed = _listed(archives, folder, config)
    missing = sum(max(0, (f["bytes"] or 0) - f["there"]) for f in listed if not f["complete"])
    clean = int((pairs or 0) * CLEAN_BYTES_PER_PAIR)
    encoded = int((pairs or 0) * ENCODED_BYTES_PER_PAIR)
    free = shutil.disk_usage(next(p for p in (folder, *folder.absolute().parents) if p.exists()))
    cpus = available_cpus()
    seconds = {
        "download": missing / BYTES_PER_SECOND + (pairs or 0) / PAIRS_PER_SECOND["read"],
        "prepare": (pairs or 0) / PAIRS_PER_SECOND["prepare"] / cpus,
        "vocabulary": VOCABULARY_SECONDS * min(1.0, 2 * (pairs or 0) / config.vocabulary.sentences),
        "encode": (pairs or 0) / PAIRS_PER_SECOND["encode"] / cpus,
    }
    return {
        "dataset": data.dataset,
        "languages": [data.source, data.target],
        "pairs": pairs,
        "download": {
            "folder": str(folder),
            "files": listed,
            "bytes": sum(f["bytes"] or 0 for f in listed),
            "missing_bytes": missing,
            "unknown_sizes": sum(f["bytes"] is None for f in listed),
        },
        "disk": {
            "downloads": missing,
            "clean": clean,
            "encoded": encoded,
            # DVC keeps what a stage made; a copy where the file system cannot share the blocks.
            "cache": clean + encoded,
            "needed": missing + 2 * (clean + encoded),
            "free": free.free,
        },
        "cpus": cpus,
        "seconds": seconds,
    }


def overview(plan: dict[str, Any]) -> str:
    """The plan for a reader."""
    size = _size
    found, disk = plan["download"], plan["disk"]
    pairs = "an unknown number of" if plan["pairs"] is None else f"about {plan['pairs']:,}"
    lines = [f"{plan['dataset']}, {' to '.join(plan['languages'])}: {pairs} training pairs"]
    if found["files"]:
        unknown = f", and {found['unknown_sizes']} of unknown size" * bool(found["unknown_sizes"])
        lines.append(
            f"\nTo download into {found['folder']}: {size(found['missing_bytes'])} of "
            f"{size(found['bytes'])}{unknown}"
        )
        width = max(len(f["file"]) for f in found["files"])
        for f in found["files"]:
            part = f"{size(f['there'])} there" if f["there"] else "missing"
            state = "there" if f["complete"] else part
            total = "size unknown" if f["bytes"] is None else size(f["bytes"])
            lines.append(f"  {f['file']:{width}}  {total:>12}  {state:14}  {f['from']}")
    else:
        lines.append("\nNothing to download")
    enough = "enough" if disk["needed"] <= disk["free"] else "NOT ENOUGH"
    lines += [
        "",
        f"Disk, about: downloads {size(disk['downloads'])}, clean text {size(disk['clean'])}, "
        f"encoded {size(disk['encoded'])}, DVC's cache {size(disk['cache'])}",
        f"  in all {size(disk['needed'])}, free {size(disk['free'])}: {enough}",
        "",
        f"Time, about, on {plan['cpus']} CPU(s) with {size(int(BYTES_PER_SECOND))}/s from the "
        "network: "
        + ", ".join(f"{s} {console.duration(t)}" for s, t in plan["seconds"].items())
        + f"; in all {console.duration(sum(plan['seconds'].values()))}",
    ]
    return "\n".join(lines)


def _listed(
    archives: tuple[sources.Archive, ...], folder: Path, config: Config
) -> list[dict[str, Any]]:
    absent = {archive.file: there for archive, there in download.missing(archives, folder)}
    return [
        {
            "file": archive.file,
            "bytes": archive.bytes,
            "complete": archive.file not in absent,
            "there": absent.get(archive.file, archive.bytes or 0),
            "from": sources.mirrored(archive.addresses[0], config.download.mirrors),
        }
        for archive in archives
    ]


def _pairs_of_files(folder: Path, names: tuple[str, ...]) -> int | None:
    """Lines of a plain file; None for a compressed one, which would have to be read."""
    plain = [folder / name for name in names if not name.endswith(".gz")]
    return files.count_lines(plain[0]) if plain else None


def _size(count: int) -> str:
    return tqdm.format_sizeof(count, "B")
