"""What the data stages will need, before anything is fetched or written: `seq2sweep plan`.

Sizes of downloads are the registry's. The rest is estimated from the number of pairs, with what
was measured on text in the layout and at the size of WMT14 (docs/performance.md): a plan is there
to find out that a disk is too small or a night too short.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.data import download, files, sources
from seq2sweep.data.parallel import available_cpus
from seq2sweep.errors import UserError

BYTES_PER_SECOND = 10e6
"""Assumed of the network; nothing is tried."""
CLEAN_BYTES_PER_PAIR = 320.0
ENCODED_BYTES_PER_PAIR = 150.0
"""Both sides of a pair as clean text, and as 2-byte pieces with lengths and offsets."""
PAIRS_PER_SECOND = {"read": 180_000.0, "prepare": 35_000.0, "encode": 12_500.0}
"""Of one CPU; prepare and encode use all of them."""
VOCABULARY_SECONDS = 40.0
"""To learn the pieces of 2 million sentences, on one CPU."""


def data_plan(config: Config) -> dict[str, Any]:
    """Downloads, bytes on disk and seconds of the stages download to encode.

    Keys: dataset, pairs (about; None if unknown), download {folder, files, bytes, missing_bytes,
    unknown_sizes}, disk {downloads, clean, encoded, cache, needed, free, short}, seconds by stage.
    No network, no side effect. `short`: the folder whose disk is too small, None where all fit.
    Raises UserError for a data set that cannot be.
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
    # DVC keeps what a stage made; a copy where the file system cannot share the blocks.
    needs = {_existing(folder): missing, Path.cwd(): 2 * (clean + encoded)}
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
            "cache": clean + encoded,
            "needed": missing + 2 * (clean + encoded),
            "free": sum(_free_by_disk(needs).values()),
            "short": _short(needs),
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
    enough = "enough" if disk["short"] is None else f"NOT ENOUGH in {disk['short']}"
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
    """Lines of a plain file; None if both are packed, and would have to be unpacked."""
    for name in names:
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing: check data.folder and data.files.train")
    plain = [folder / name for name in names if not name.endswith((".gz", ".tgz", ".tar", ".sgm"))]
    return files.count_lines(plain[0]) if plain else None


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _free_by_disk(folders: Iterable[Path]) -> dict[int, int]:
    """Free bytes of each disk that one of the folders is on, by device number."""
    return {folder.stat().st_dev: shutil.disk_usage(folder).free for folder in folders}


def _short(needs: dict[Path, int]) -> str | None:
    """A folder on a disk with less room than is needed there in all."""
    free = _free_by_disk(needs)
    for folder in needs:
        disk = folder.stat().st_dev
        needed = sum(n for other, n in needs.items() if other.stat().st_dev == disk)
        if needed > free[disk]:
            return str(folder)
    return None


def _size(count: int) -> str:
    return tqdm.format_sizeof(count, "B")
