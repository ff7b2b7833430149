"""One update of the weights, the same whatever the number of workers and passes."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seq2sweep import console, hardware
from seq2sweep.data.batching import Batch
from seq2sweep.hardware import Precision
from seq2sweep.model.packing import Packing
from seq2sweep.train.distributed import add_up, is_sharded, whole
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
    AVX512-BF16 is faster than float32 on AMD's processors alone: on an EPYC an update takes 0.85
    of the time at d_model 64, 0.73 at 128 and 0.62 at 256; on a Xeon a product takes twice the
    time at every width from 64 to 1024, and an update 1.4 to 1.8 times. With AMX it is the same
    time at 128, and with compiled layers 0.9 of it.
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


ALIGNED = 64
"""Numbers: of a multiple of them each gradient begins among all of them, for kernels that read
several at a time."""
SPARE = 500_000_000
"""Bytes of a GPU that must be free for another graph."""
MOST_GRAPHS = 128
"""Shapes of passes that are CUDA graphs, each of which takes some memory; later ones are not."""


@dataclass(frozen=True, eq=False)
class Staged:
    """A batch ready for a device: all its numbers lie in one piece of memory, which one copy moves.

    source [B, n] and target_in [B, m]: as in `Batch`, or their real pieces alone, [S] and [R].
    packings: of both. target [R]: what to say after each real piece of target_in. numbers: all of
    that, int64; the others are views of it.
    """

    source: Tensor
    target_in: Tensor
    target: Tensor
    packings: tuple[Packing, Packing]
    numbers: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device, room: int | None = None) -> Staged:
        """Of a batch, still on the CPU, where which pieces are real can be told without waiting.

        For a GPU in pinned memory, from which it copies while the CPU goes on. room: for how many
        sentences offsets are, those behind the batch's without pieces; then there is no padding
        either, and all shapes come from how many pieces there are (`Passes`).
        """
        sides = batch.source, batch.target_in
        packings = [Packing.of(side) for side in sides]
        target = batch.target_out.flatten()[packings[1].places]
        pieces = list(sides)
        if room is not None:
            pieces = [s.flatten()[p.places] for s, p in zip(sides, packings, strict=True)]
            packings = [packing.roomy(room) for packing in packings]
        places = [packing.places for packing in packings]
        offsets = [packing.offsets for packing in packings if packing.offsets is not None]
        parts = [*(each.flatten() for each in pieces), target, *places, *offsets]
        numbers = torch.empty(
            sum(map(len, parts)), dtype=torch.int64, pin_memory=device.type == "cuda"
        )
        torch.cat(parts, out=numbers)
        return cls._cut(numbers, pieces[0].shape, pieces[1].shape, packings[0], packings[1])

    def to(self, device: torch.device) -> Staged:
        """The same on a device; returns at once where the copy can run in the background."""
        return self.over(self.numbers.to(device, non_blocking=True))

    def over(self, numbers: Tensor) -> Staged:
        """Views of other numbers, cut as these are."""
        return self._cut(numbers, self.source.shape, self.target_in.shape, *self.packings)

    @property
    def shape(self) -> tuple[int, ...]:
        """On which the shapes of all that is computed depend."""
        widths = [packing.width for packing in self.packings]
        sentences = self.packings[0].sentences
        return *self.source.shape, *self.target_in.shape, len(self.target), sentences, *widths

    @classmethod
    def _cut(
        cls, numbers: Tensor, source: torch.Size, target: torch.Size, *packings: Packing
    ) -> Staged:
        """Views of these shapes; packings: of which numbers hold places and offsets."""
        real = [len(packing.places) for packing in packings]
        offsets = packings[0].sentences + 1
        parts = numbers.split(
            [math.prod(source), math.prod(target), real[1], *real, offsets, offsets]
        )
        source_packing, target_packing = (
            Packing(places, packing.sentences, packing.width, begin.int())
            for packing, places, begin in zip(packings, parts[3:5], parts[5:], strict=True)
        )
        return cls(
            parts[0].view(source),
            parts[1].view(target),
            parts[2],
            (source_packing, target_packing),
            numbers,
        )


class Passes:
    """Forward and backward passes as CUDA graphs: one for each shape, once it was there before.

    A GPU computes base in less time than Python takes to start its two thousand kernels. What is
    recorded at the second pass of a shape is started at once for all those that follow. Shapes are
    few: see `updates.filled`. Gradients lie side by side, where they are in all updates; several
    workers add theirs up at once, when the last pass is done. All graphs work in one memory, beside
    that of passes that are no graphs: without room for both there are no graphs.
    """

    def __init__(
        self,
        model: nn.Module,
        smoothing: float,
        precision: Precision,
        device: torch.device,
        world_size: int = 1,
    ) -> None:
        self.model, self.smoothing, self.precision = model, smoothing, precision
        self.device, self.world_size = device, world_size
        self.scale = torch.zeros((), device=device)
        self.graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Any]] = {}
        self.seen: set[tuple[int, ...]] = set()
        self.gradients = torch.zeros(0, device=device)
        self.held: list[tuple[nn.Parameter, Tensor]] = []
        self.pool: Any = None
        self.works = True
        if device.type == "cuda":  # a trial before, in this process, may have had larger passes
            torch.cuda.reset_peak_memory_stats(device)

    def __call__(self, staged: Staged, scale: float) -> Tensor:
        """As `one_pass`, of a batch that is on the CPU."""
        self._put_gradients_back()
        found = self.graphs.get(staged.shape)
        new = found is None and staged.shape in self.seen
        if new and self.works and len(self.graphs) < MOST_GRAPHS:
            found = self._recorded(staged)
        if found is None:
            self.seen.add(staged.shape)
            sums = self._computed(staged.to(self.device), scale)
            if not self.held:
                self._hold_gradients()
            return sums
        graph, numbers, sums, _ = found
        numbers.copy_(staged.numbers, non_blocking=True)
        self.scale.fill_(scale)
        graph.replay()
        return sums

    def exchange(self) -> None:
        """Add up the gradients of all workers, each of which must call this."""
        add_up(self.gradients, self.world_size)

    def _hold_gradients(self) -> None:
        """Give those of the first pass the memory in which they stay."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        sizes = [-(-parameter.numel() // ALIGNED) * ALIGNED for parameter in parameters]
        self.gradients = torch.zeros(sum(sizes), device=self.device)
        for parameter, place in zip(parameters, self.gradients.split(sizes), strict=True):
            held = place[: parameter.numel()].view_as(parameter)
            if parameter.grad is not None:
                held.copy_(parameter.grad)
            parameter.grad = held
            self.held.append((parameter, held))

    def _put_gradients_back(self) -> None:
        """Zeros, where an optimizer has let go of them: to these graphs add."""
        if self.held and self.held[0][0].grad is None:
            self.gradients.zero_()
            for parameter, gradient in self.held:
                parameter.grad = gradient

    def _computed(self, staged: Staged, scale: float | Tensor) -> Tensor:
        return one_pass(self.model, staged, scale, self.smoothing, self.precision, self.device)

    def _recorded(self, staged: Staged) -> Any:
        """A graph, the numbers that it reads and the sums that it leaves; None where none can be.

        With what it reads besides: a model's tables may grow, and others take their place.
        """
        if not self._has_room():
            self.works = False
            console.say("memory is short: passes are started kernel by kernel, which is slower")
            return None
        numbers = staged.numbers.to(self.device, non_blocking=True)
        graph = torch.cuda.CUDAGraph()
        try:
            # A thread makes the next batch meanwhile, in pinned memory: its calls are not these.
            # The stream from before, as PyTorch stays on its own where a recording fails.
            with (
                torch.cuda.stream(torch.cuda.current_stream(self.device)),
                torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"),
                _waits_refused(),
            ):
                sums = self._computed(staged.over(numbers), self.scale)
        except RuntimeError as error:  # an operator of a user's own may wait for the GPU
            self.works = False
            reason = str(error).split("\n", 1)[0]
            console.say(f"passes cannot be CUDA graphs ({reason}): training is slower without")
            return None
        self.pool = graph.pool()
        kept = list(self.model.buffers())
        self.graphs[staged.shape] = graph, numbers, sums, kept
        return self.graphs[staged.shape]

    def _has_room(self) -> bool:
        """For the first graph beside passes that are none, and for another where there are some."""
        if self.graphs:
            return torch.cuda.mem_get_info(self.device)[0] > SPARE
        peak, now = (
            torch.cuda.max_memory_allocated(self.device),
            torch.cuda.memory_allocated(self.device),
        )
        return hardware.free_bytes(self.device, 1) > 2 * (peak - now) + SPARE


@contextlib.contextmanager
def _waits_refused() -> Iterator[None]:
    """Within, what would wait for a GPU raises RuntimeError before it does.

    A wait that reaches the GPU ends the recording in a way after which PyTorch's random numbers and
    its memory stay as in a recording (torch 2.11: "Offset increment outside graph capture").
    """
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def accumulate(
    model: nn.Module,
    batches: Iterable[Batch | Staged],
    *,
    update_target_tokens: int,
    smoothing: float,
    world_size: int,
    precision: Precision,
    device: torch.device,
    graphs: Passes | None = None,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Add the gradients of this worker's batches; returns sums (smoothed loss, likelihood).

    The gradient becomes that of the mean over all `update_target_tokens` pieces of the update,
    on all workers together: each batch's sum is divided by that one number, and multiplied by
    world_size because DistributedDataParallel and FSDP average over workers.

    graphs: of this model, which then computes all passes, and adds up. compiled: whether its layers
    are (`train.compiled`), and so the loss.
    """
    losses = torch.zeros(2, device=device)
    queue = list(batches)
    scale = (world_size if graphs is None else 1) / update_target_tokens
    for index, batch in enumerate(queue):
        if graphs is not None:
            assert isinstance(batch, Staged)
            losses += graphs(batch, scale)
            continue
        last = index == len(queue) - 1
        if is_sharded(model):
            model.set_requires_gradient_sync(last)
        wait = (
            model.no_sync()
            if isinstance(model, DistributedDataParallel) and not last
            else contextlib.nullcontext()
        )
        with wait:
            losses += one_pass(model, batch, scale, smoothing, precision, device, compiled)
    if graphs is not None:
        graphs.exchange()
    return losses[0], losses[1]


def one_pass(
    model: nn.Module,
    batch: Batch | Staged,
    scale: float | Tensor,
    smoothing: float,
    precision: Precision,
    device: torch.device,
    compiled: bool = False,
) -> Tensor:
    """Add the gradients of a batch, times `scale`; returns its sums, as `sums_of`: [2]."""
    with autocast(precision, device):
        loss, likelihood = sums_of(model, batch, smoothing, device, compiled)
    (loss * scale).backward()
    return torch.stack((loss.detach(), likelihood.detach()))


def sums_of(
    model: nn.Module,
    batch: Batch | Staged,
    smoothing: float,
    device: torch.device,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` of a batch, staged here if it is not, without padding and without
    all logits in memory."""
    staged = batch if isinstance(batch, Staged) else Staged.of(batch, device)
    if staged.numbers.device != device:
        staged = staged.to(device)
    sums: tuple[Tensor, Tensor] = model(
        staged.source,
        staged.target_in,
        staged.packings,
        lambda states, weight: projected_cross_entropy(
            states, weight, staged.target, smoothing, compiled
        ),
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
