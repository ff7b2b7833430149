"""One update of the weights, the same whatever the number of workers and passes."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seq2sweep.data.batching import Batch
from seq2sweep.model.packing import Packing
from seq2sweep.train.distributed import is_sharded, whole
from seq2sweep.train.loss import projected_cross_entropy

NARROWEST_BF16_ON_CPU = {"avx512_bf16": 64, "amx_bf16": 256}
"""d_model from which `auto` takes bf16 on processors with these instructions."""


def autocast(
    precision: Literal["float32", "bf16"], device: torch.device
) -> contextlib.AbstractContextManager[None]:
    """Products in bf16 where asked for; weights and their updates stay float32."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def choose_precision(
    wanted: Literal["float32", "bf16", "auto"], device: torch.device, d_model: int
) -> Literal["float32", "bf16"]:
    """Resolve `auto`: bf16 where the device multiplies it faster than float32.

    Of a sweep that is done once, by the base variant: `seq2sweep.sweep.variants`.

    On a processor without AVX512-BF16 or AMX a bf16 product is emulated, a hundred times slower.
    AVX512-BF16 is faster than float32 on AMD's processors alone: on an EPYC an update takes 0.69
    of the time at d_model 64, 0.68 at 128 and 0.56 at 256; on a Xeon a product takes twice the
    time at every width from 64 to 1024, and an update 1.4 to 1.8 times. With AMX, and an earlier
    form of the update, it was 1.3 times the time at 128 and the same at 256.
    """
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "float32"
    able = torch.cpu.get_capabilities()
    if able.get("amx_bf16"):
        narrowest = NARROWEST_BF16_ON_CPU["amx_bf16"]
    elif able.get("avx512_bf16") and not str(able.get("cpu_name")).startswith("Intel"):
        narrowest = NARROWEST_BF16_ON_CPU["avx512_bf16"]
    else:
        return "float32"
    return "bf16" if d_model >= narrowest else "float32"


def be_deterministic(device: torch.device) -> None:
    """Let a GPU add up in a fixed order, which costs speed. A CPU always does.

    For the whole process; must come before its first product on the GPU.
    """
    if device.type == "cuda":
        # cuBLAS is only deterministic with workspaces of a fixed size.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


@dataclass(frozen=True, eq=False)
class Staged:
    """A batch ready for a device: all its numbers lie in one piece of memory, which one copy moves.

    source [B, n] and target_in [B, m]: as in `Batch`. packings: of both. target [R]: what to say
    after each real piece of target_in. numbers: all of that, int64; the others are views of it.
    """

    source: Tensor
    target_in: Tensor
    target: Tensor
    packings: tuple[Packing, Packing]
    numbers: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> Staged:
        """Of a batch, still on the CPU, where which pieces are real can be told without waiting.

        For a GPU in pinned memory, from which it copies while the CPU goes on.
        """
        packings = [Packing.of(batch.source), Packing.of(batch.target_in)]
        places = [packing.places for packing in packings]
        offsets = [packing.offsets for packing in packings if packing.offsets is not None]
        target = batch.target_out.flatten()[places[1]]
        parts = [batch.source.flatten(), batch.target_in.flatten(), target, *places, *offsets]
        numbers = torch.empty(
            sum(map(len, parts)), dtype=torch.int64, pin_memory=device.type == "cuda"
        )
        torch.cat(parts, out=numbers)
        return cls._cut(numbers, batch.source.shape, batch.target_in.shape, len(places[0]))

    def to(self, device: torch.device) -> Staged:
        """The same on a device; returns at once where the copy can run in the background."""
        shapes = self.source.shape, self.target_in.shape
        numbers = self.numbers.to(device, non_blocking=True)
        return self._cut(numbers, *shapes, len(self.packings[0].places))

    @classmethod
    def _cut(cls, numbers: Tensor, source: torch.Size, target: torch.Size, real: int) -> Staged:
        """Views of these shapes; real: how many pieces of the source are so."""
        pieces, offsets = (math.prod(source), math.prod(target)), source[0] + 1
        real_target = (len(numbers) - sum(pieces) - real - 2 * offsets) // 2
        parts = numbers.split([*pieces, real_target, real, real_target, offsets, offsets])
        packings = (
            Packing(parts[3], source[0], source[1], parts[5].int()),
            Packing(parts[4], target[0], target[1], parts[6].int()),
        )
        return cls(parts[0].view(source), parts[1].view(target), parts[2], packings, numbers)


def accumulate(
    model: nn.Module,
    batches: Iterable[Batch | Staged],
    *,
    update_target_tokens: int,
    smoothing: float,
    world_size: int,
    precision: Literal["float32", "bf16"],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Add the gradients of this worker's batches; returns sums (smoothed loss, likelihood).

    The gradient becomes that of the mean over all `update_target_tokens` pieces of the update,
    on all workers together: each batch's sum is divided by that one number, and multiplied by
    world_size because DistributedDataParallel and FSDP average over workers.
    """
    losses = torch.zeros(2, device=device)
    queue = list(batches)
    for index, batch in enumerate(queue):
        last = index == len(queue) - 1
        if is_sharded(model):
            model.set_requires_gradient_sync(last)
        wait = (
            model.no_sync()
            if isinstance(model, DistributedDataParallel) and not last
            else contextlib.nullcontext()
        )
        with wait:
            with autocast(precision, device):
                loss, likelihood = sums_of(model, batch, smoothing, device)
            (loss * (world_size / update_target_tokens)).backward()
        losses += torch.stack((loss.detach(), likelihood.detach()))
    return losses[0], losses[1]


def sums_of(
    model: nn.Module, batch: Batch | Staged, smoothing: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` of a batch, without padding and without all logits in memory.

    batch: on the CPU; one that is not staged yet is staged here.
    """
    staged = batch if isinstance(batch, Staged) else Staged.of(batch, device)
    staged = staged.to(device)
    sums: tuple[Tensor, Tensor] = model(
        staged.source,
        staged.target_in,
        staged.packings,
        lambda states, weight: projected_cross_entropy(states, weight, staged.target, smoothing),
    )
    return sums


def apply(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    learning_rate: float,
    clip_norm: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Take the step, unless the gradient is not finite, and clear the gradients.

    optimizer: a fused one. clip_norm: what a larger gradient's norm is scaled down to.

    Returns the gradient's norm, before that, and whether the step was skipped (1.0 or 0.0), both on
    the device. Workers share the gradient, so they agree. A loss that is not finite has no finite
    gradient.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    skipped = (~norm.isfinite()).float()
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    # As torch's GradScaler does: fused optimizers leave weights and moments alone where this is 1,
    # and divide gradients by the scale, and nobody has to wait for the device to know.
    optimizer.found_inf = skipped  # type: ignore[attr-defined]
    if clip_norm is not None:
        optimizer.grad_scale = (norm / clip_norm).clamp(min=1.0)  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, skipped
