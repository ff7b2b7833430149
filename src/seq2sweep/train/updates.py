"""What each update computes, made ready while the one before is computed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from seq2sweep.config import Config, ModelConfig, TransformerConfig
from seq2sweep.data.batching import Batch, Ids, blank, collate, passes, plan_epoch, share
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import EOS, PAD
from seq2sweep.model import components
from seq2sweep.model.attention import may_pad_nothing, pads_nothing
from seq2sweep.model.flops import training_flops
from seq2sweep.train.metrics import Progress
from seq2sweep.train.step import Staged, choose_precision

CAPACITIES = 32
"""Of how many numbers of rows a pass of `few_shapes` has one, on each side, up to that of a full
pass."""

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Update:
    """One update: its sentences `ids`, and the passes over them that are this worker's.

    after: epoch and number of the update that follows. source_tokens, target_tokens, flops: of
    the whole update, without padding. padded_flops: of this worker's passes, with all the padding
    that is computed.
    """

    ids: Ids
    batches: list[Staged]
    after: tuple[int, int]
    source_tokens: int
    target_tokens: int
    flops: float
    padded_flops: float


def updates(
    config: Config,
    bitext: Bitext,
    progress: Progress,
    rank: int,
    world_size: int,
    device: torch.device,
) -> Iterator[Update]:
    """The updates from where training stands to the last step, epoch after epoch.

    On a GPU a thread makes each of them while the one before is computed; a CPU has no hands free.
    """
    made = (
        _update(config, bitext, ids, after, rank, world_size, device)
        for ids, after in _places(config, bitext, progress)
    )
    return made if device.type == "cpu" else ahead(made)


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each made by a thread while the one before is in use.

    What the thread raises is raised here, in its turn.
    """
    with ThreadPoolExecutor(1, "batches") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _places(
    config: Config, bitext: Bitext, progress: Progress
) -> Iterator[tuple[Ids, tuple[int, int]]]:
    """Of each update its sentences, and epoch and number of the one that follows."""
    settings = config.train
    # Numbers of its own: `progress` follows what is computed, not what is made.
    left, epoch, first = settings.steps - progress.step, progress.epoch, progress.update
    while left > 0:
        plan = plan_epoch(
            bitext.source_lengths,
            bitext.target_lengths,
            tokens_per_update=settings.tokens_per_update,
            seed=settings.seed,
            epoch=epoch,
        )
        for number in range(first, min(len(plan), first + left)):
            last = number + 1 == len(plan)
            after = (epoch + 1, 0) if last else (epoch, number + 1)
            yield plan[number], after
        left -= len(plan) - first
        epoch, first = epoch + 1, 0


def _update(
    config: Config,
    bitext: Bitext,
    ids: Ids,
    after: tuple[int, int],
    rank: int,
    world_size: int,
    device: torch.device,
) -> Update:
    """Of the sentences `ids`; a worker with none of its own computes the first one as a blank."""
    source, target = bitext.source_lengths, bitext.target_lengths
    own = share(ids, rank, world_size)
    chunks = passes(own if len(own) else ids[:1], source, target, config.train.pass_tokens)
    batches = [collate(bitext, chunk) for chunk in chunks]
    if not len(own):
        batches = [blank(batch) for batch in batches]
    if config.cluster.fsdp:
        # For each pass all workers gather the weights together.
        shares = (share(ids, other, world_size) for other in range(world_size))
        cut = (passes(each, source, target, config.train.pass_tokens) for each in shares)
        batches += [blank(batches[0])] * (max(map(len, cut)) - len(batches))
    multiple = capacity(config.train.pass_tokens)
    if few_shapes(config, device):
        batches = [filled(batch, multiple) for batch in batches]
    # A sentence has a piece on each side at least.
    room = CAPACITIES * multiple if packs_all(config, device) else None
    size = int(bitext.header["vocabulary"]["size"])
    staged = [Staged.of(batch, device, room) for batch in batches]
    return Update(
        ids,
        staged,
        after,
        int(source[ids].sum()),
        int(target[ids].sum()),
        training_flops(config.model, size, source[ids], target[ids]),
        _computed_flops(config, size, staged, device),
    )


def few_shapes(config: Config, device: torch.device) -> bool:
    """Whether passes are `filled`: on a GPU, and on a CPU in bf16, for which oneDNN compiles a
    kernel for each shape of a product. At the demo's size updates are 5 % faster by that."""
    precision = choose_precision(config.train.precision, device, config.model.d_model)
    return device.type == "cuda" or precision == "bf16"


def packs_all(config: Config, device: torch.device) -> bool:
    """Whether the model in training needs no padding at all: on a GPU in bf16, where it attends
    packed sentences as they are."""
    return (
        device.type == "cuda"
        and choose_precision(config.train.precision, device, config.model.d_model) == "bf16"
        and pads_nothing(config.model, device, torch.bfloat16)
    )


def repeats_itself(model: ModelConfig) -> bool:
    """Whether a pass over other pieces starts the same kernels, so that it may be a CUDA graph."""
    return isinstance(model, TransformerConfig) and all(
        getattr(kind, "REPEATS", False)
        for kind in (components.feed_forward(model.feed_forward), components.norm(model.norm_kind))
    )


def records_passes(config: Config) -> bool:
    """Whether settings let passes be CUDA graphs (`train.step.Passes`), on GPUs in bf16 that have
    the whole model and whose kernels work (`packs_all`)."""
    model = config.model
    return not config.train.deterministic and may_pad_nothing(model) and repeats_itself(model)


def capacity(tokens_per_pass: int) -> int:
    """Of which the number of tokens of a side is made a multiple, itself one of 8."""
    return 8 * -(-tokens_per_pass // (8 * CAPACITIES))


def filled(batch: Batch, rows: int) -> Batch:
    """The batch with sentences behind it that make the tokens of each side a multiple of `rows`.

    So products have few shapes. They are blank: the loss does not count them, and no other sentence
    sees them. None is longer than those that are there.
    """
    sides = batch.source, batch.target_in
    missing = [-int(side.ne(PAD).sum()) % rows for side in sides]

    def needed() -> int:
        return max(-(-m // side.size(1)) for m, side in zip(missing, sides, strict=True))

    # Each of them has at least a token on either side.
    while (count := needed()) > min(missing):
        missing = [m if m >= count else m + rows for m in missing]
    if count == 0:
        return batch
    blanks = [_sentences(m, count, side.size(1)) for m, side in zip(missing, sides, strict=True)]
    blanks.append(torch.full_like(blanks[1], PAD))
    joined = [torch.cat(both) for both in zip((*sides, batch.target_out), blanks, strict=True)]
    return Batch(*joined)


def _sentences(tokens: int, count: int, width: int) -> torch.Tensor:
    """So many of them with so many tokens together, about as many each: int64 [count, width]."""
    lengths = (tokens + torch.arange(count)) // count
    return torch.where(torch.arange(width) < lengths[:, None], EOS, PAD)


def _computed_flops(
    config: Config, size: int, batches: list[Staged], device: torch.device
) -> float:
    """Operations of passes over the batches, padding included where attention is padded."""
    model = config.model
    sides = [[batch.packings[side] for batch in batches] for side in (0, 1)]
    source, target = (np.concatenate([each.lengths() for each in side]) for side in sides)
    if packs_all(config, device):
        return training_flops(model, size, source, target)
    widths = [np.repeat([p.width for p in side], [p.sentences for p in side]) for side in sides]
    return training_flops(model, size, source, target, (widths[0], widths[1]))
