"""What `train.tokens_per_pass: auto` is for a run.

Decided where the run starts, by the memory that is free there, and kept in its journal: all of its
workers have the same number, however often it resumes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import distributed as dist

from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.train.distributed import all_reduce
from seq2sweep.train.events import Sized
from seq2sweep.train.footprint import largest_pass
from seq2sweep.train.step import choose_precision

GROUPS = Path("/sys/fs/cgroup")
OF_GROUP = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of version 2 and 1 of cgroups, by the name that /proc/self/cgroup has: the folder, files of the
limit and of the use, and what of the use gives way, by its name in memory.stat."""
STAT = "memory.stat"
OF_A_MAC = 0.5
"""Of its memory, where the system does not say what is free."""


def recorded(config: Config, folder: Path) -> int | None:
    """What auto is in the run of this folder, by its journal; None where nothing says so yet."""
    if config.train.tokens_per_pass == "auto":
        for entry in journal.entries(folder / JOURNAL_NAME, "sized"):
            return int(entry["tokens_per_pass"])
    return None


def decide(
    config: Config,
    encoded: Path,
    device: torch.device,
    *,
    world_size: int = 1,
    sharers: int,
    known: int | None,
    step: int = 0,
) -> tuple[Config, Sized | None]:
    """The configuration with the number, and what is to be written of it; nothing where there is no
    auto. Every worker must call this.

    sharers: how many workers share this node's CPUs' memory, or this GPU. known: what it is in this
    run, which resumes after `step`. Of several workers the one with the least memory decides.
    """
    if config.train.tokens_per_pass != "auto":
        return config, None
    free = torch.tensor(free_bytes(device, sharers), dtype=torch.float64, device=device)
    if world_size > 1:
        all_reduce(free, dist.ReduceOp.MIN)
    splits = [Bitext.open(encoded, split) for split in ("train", "valid")]
    lengths = [side for each in splits for side in (each.source_lengths, each.target_lengths)]
    found = largest_pass(
        config,
        int(splits[0].header["vocabulary"]["size"]),
        max(int(side.max()) for side in lengths),
        float(free),
        workers=world_size,
        precision=choose_precision(config.train.precision, device, config.model.d_model),
        gpu=device.type == "cuda",
    )
    number = known or found.tokens
    figures = {
        "tokens_per_pass": number,
        "fitting_tokens": found.tokens if found.fits else 0,
        "free_bytes": float(free),
    }
    # Whether it fits on other workers, or beside others, is news only where it does not.
    news = known is None or found.tokens < min(known, found.share)
    return config.sized(number), Sized(0 if known is None else step, figures) if news else None


def in_words(entry: dict[str, float]) -> str:
    """A line of a journal's entry."""
    number, fitting = int(entry["tokens_per_pass"]), int(entry["fitting_tokens"])
    free = f"{entry['free_bytes'] / 1e9:,.1f} GB"
    if fitting >= number:
        return f"train.tokens_per_pass auto: {number:,} tokens, with {free} free for a worker"
    fits = f"{fitting:,} would fit" if fitting else "not even the longest sentence fits"
    return (
        f"train.tokens_per_pass auto: {number:,} tokens, though with {free} free for a worker "
        f"{fits}; where memory runs out, set a number"
    )


def free_bytes(device: torch.device, sharers: int) -> float:
    """Memory that one of so many workers on this device may take: of a GPU what is free, of CPUs
    what the system and the container of this process still give."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return float(min(free, total / sharers))
    return _free_on_node() / sharers


def _free_on_node() -> float:
    try:
        text = Path("/proc/meminfo").read_text(errors="replace")
    except FileNotFoundError:
        return OF_A_MAC * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    assert available is not None, "/proc/meminfo has no MemAvailable"
    return min([1024.0 * int(available[1]), *(free for _, free in own_groups())])


def own_groups() -> list[tuple[float, float]]:
    """`memory_of_groups` of this process; none where the system has no cgroups."""
    with contextlib.suppress(OSError):
        return [*memory_of_groups(Path("/proc/self/cgroup").read_text(errors="replace"), GROUPS)]
    return []


def memory_of_groups(text: str, root: Path) -> Iterator[tuple[float, float]]:
    """Bytes that each cgroup that a process is in allows, where they are limited, and what of them
    is left. A job's limit is often above the group of its process.

    text: its /proc/PID/cgroup; root: where cgroups are mounted.
    """
    for line in text.splitlines():
        _, kinds, path = line.split(":", 2)
        for kind in OF_GROUP.keys() & kinds.split(","):
            name, limit, use, gives_way = OF_GROUP[kind]
            top = root / name
            inner = top / path.lstrip("/")
            for folder in (inner, *inner.parents):
                # In a container the path may be that of the host; no limit is the word max.
                with contextlib.suppress(OSError, ValueError):
                    most, used = (int((folder / file).read_text()) for file in (limit, use))
                    stat = dict(row.split() for row in (folder / STAT).read_text().splitlines())
                    yield float(most), float(max(0, most - used + int(stat.get(gives_way, 0))))
                if folder == top:
                    break
