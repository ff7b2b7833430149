"""What `train.tokens_per_pass: auto` is for a run.

Decided where the run starts, by the memory that is free there, and kept in its journal: all of its
workers have the same number, however often it resumes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import distributed as dist

from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.hardware import free_bytes
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.train.distributed import all_reduce
from seq2sweep.train.events import Sized
from seq2sweep.train.footprint import largest_pass, longest
from seq2sweep.train.step import choose_precision


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
    found = largest_pass(
        config,
        int(splits[0].header["vocabulary"]["size"]),
        max(map(longest, splits)),
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
    return config.sized(number), Sized(step, figures) if news else None


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
