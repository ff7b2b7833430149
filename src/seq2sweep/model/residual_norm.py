"""LayerNorm(x + Dropout(inside)), the connection around each sub-layer, as one kernel for GPUs.

PyTorch's own operations read and write a number six times, and those of its gradient eight. The sum
is made in float32 and comes out in float32, for the next sum, and in the narrow type of products,
for the next sub-layer.

Shapes: [..., d], rows that lie one behind another.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.model import kernel_check
from seq2sweep.model.products import product_type

LARGEST = 4096
"""Numbers of a row for which a program has room."""
NUMBERS = 512
"""Of a tile of rows, or one row."""
PROGRAMS = 8
"""Of the gradient's, on each multiprocessor: each adds up gradients of gain and bias on its own."""
TOLERANCE = 0.01
"""Of outputs and gradients, as a share of the greatest number, between kernel and float64."""


def serves(x: Tensor, norm: nn.Module) -> bool:
    """Whether the kernel makes sum and norm: of float32 on a GPU where products are narrower.

    Not where the norm is of a kind of its own, or where FSDP shares it out: its own call gathers
    its parameters, and lets go of them. Tried once on some rows: where it cannot be compiled, or is
    wrong, one line says so, and PyTorch's operations serve.
    """
    return (
        x.device.type == "cuda"
        and isinstance(norm, nn.LayerNorm)
        and type(norm).forward is nn.LayerNorm.forward
        and norm.weight is not None
        and norm.bias is not None
        and not hasattr(norm, "reshard")
        and x.dtype == torch.float32
        and product_type(x) == torch.bfloat16
        and norm.normalized_shape[0] <= LARGEST
        and _works(x.device, norm.normalized_shape[0])
    )


def _works(device: torch.device, size: int) -> bool:
    return _is_right(device, size)


# As in `varlen_attention`.
_works._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _is_right(device: torch.device, size: int) -> bool:
    return kernel_check.is_right(
        "the fused norm",
        device,
        lambda: largest_error(device, size),
        TOLERANCE,
        "it is off by {} of the greatest number",
    )


def residual_norm(
    x: Tensor, inside: Tensor, norm: nn.LayerNorm, share: float
) -> tuple[Tensor, Tensor]:
    """The norm of x + Dropout(inside), as float32 and as inside's type. share: of what is dropped.

    Dropout draws numbers of its own from a seed that PyTorch's generator of the device draws.
    """
    seed = torch.randint(2**62, (1,), device=x.device) if share else None
    wide, narrow, *_ = _operator()(x, inside, norm.weight, norm.bias, seed, share, norm.eps)
    return wide, narrow


def _forward(
    x: Tensor,
    inside: Tensor,
    gain: Tensor,
    bias: Tensor,
    seed: Tensor | None,
    share: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Norm in float32 and in inside's type; the sum; what dropout kept, int8; and of each row the
    mean and one over the deviation, [2, rows]."""
    x, inside = x.contiguous(), inside.contiguous()
    outputs = _like(x, inside, gain, bias, seed, share, epsilon)
    rows, size = outputs[-1].size(1), x.size(-1)
    tile, options = _tile(size)
    with torch.cuda.device_of(x):
        _kernel("forward")[(-(-rows // tile),)](
            x, inside, gain, bias, seed, *outputs, rows, share, epsilon,
            DROPS=seed is not None, SIZE=size, ROWS=tile, **options,
        )  # fmt: skip
    return outputs


def _like(
    x: Tensor, inside: Tensor, gain: Tensor, bias: Tensor, seed: Tensor | None, *_: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    wide, total = (x.new_empty(x.shape) for _ in range(2))
    kept = x.new_empty(x.shape if seed is not None else (0,), dtype=torch.int8)
    statistics = x.new_empty(2, x.numel() // x.size(-1))
    return wide, inside.new_empty(inside.shape), total, kept, statistics


def _backward(
    of_wide: Tensor | None,
    of_narrow: Tensor | None,
    total: Tensor,
    kept: Tensor,
    statistics: Tensor,
    gain: Tensor,
    share: float,
    narrow: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, inside, gain and bias."""
    of_wide, of_narrow = (None if x is None else x.contiguous() for x in (of_wide, of_narrow))
    of_x, of_inside, *_ = _like_gradients(
        of_wide, of_narrow, total, kept, statistics, gain, share, narrow
    )
    rows, size = statistics.size(1), total.size(-1)
    tile, options = _tile(size)
    programs = min(PROGRAMS * _multiprocessors(total.device), -(-rows // tile))
    of_biases, of_gains = (total.new_empty(programs, size) for _ in range(2))
    with torch.cuda.device_of(total):
        _kernel("backward")[(programs,)](
            of_wide, of_narrow, total, kept, statistics, gain, of_x, of_inside,
            of_biases, of_gains, rows, share,
            WIDE=of_wide is not None, NARROW=of_narrow is not None, DROPS=len(kept) > 0,
            SIZE=size, ROWS=tile, **options,
        )  # fmt: skip
    return of_x, of_inside, of_gains.sum(0), of_biases.sum(0)


def _like_gradients(
    of_wide: Tensor | None,
    of_narrow: Tensor | None,
    total: Tensor,
    kept: Tensor,
    statistics: Tensor,
    gain: Tensor,
    share: float,
    narrow: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_x, of_inside = total.new_empty(total.shape), total.new_empty(total.shape, dtype=narrow)
    return of_x, of_inside, torch.empty_like(gain), torch.empty_like(gain)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, inside, gain, _, _, share, _ = inputs
    _, _, *kept = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*kept)
    ctx.save_for_backward(*kept, gain)
    ctx.share, ctx.narrow = share, inside.dtype


def _gradients(ctx: Any, of_wide: Any, of_narrow: Any, *_: Any) -> tuple[Tensor | None, ...]:
    of_x, of_inside, of_gain, of_bias = torch.ops.seq2sweep.residual_norm_backward(
        of_wide, of_narrow, *ctx.saved_tensors, ctx.share, ctx.narrow
    )
    return of_x, of_inside, of_gain, of_bias, None, None, None


# Not torch.library.custom_op, which loads the compiler when such an operator first runs.
_operators = torch.library.Library("seq2sweep", "FRAGMENT")
_operators.define(
    "residual_norm(Tensor x, Tensor inside, Tensor gain, Tensor bias, Tensor? seed, float share, "
    "float epsilon) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_operators.define(
    "residual_norm_backward(Tensor? of_wide, Tensor? of_narrow, Tensor total, Tensor kept, "
    "Tensor statistics, Tensor gain, float share, ScalarType narrow) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_operators.impl("residual_norm", _forward, "CUDA")
_operators.impl("residual_norm_backward", _backward, "CUDA")
torch.library.register_fake("seq2sweep::residual_norm", _like, lib=_operators)
torch.library.register_fake("seq2sweep::residual_norm_backward", _like_gradients, lib=_operators)
torch.library.register_autograd(
    "seq2sweep::residual_norm", _gradients, setup_context=_keep, lib=_operators
)


def _tile(size: int) -> tuple[int, dict[str, int]]:
    """Rows of a tile, and options of the kernels."""
    filled = max(4, 1 << (size - 1).bit_length())
    rows = max(1, NUMBERS // filled)
    return rows, {"FILLED": filled, "num_warps": 8 if filled > 1024 else 4}


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _kernel(name: str) -> Any:
    """By its name. With `TRITON_INTERPRET=1` it runs on a CPU."""
    from seq2sweep.model import residual_norm_kernel

    return getattr(residual_norm_kernel, name)


@torch.inference_mode(False)
@torch.enable_grad()
def largest_error(device: torch.device, size: int) -> float:
    """By how much outputs and gradients of some rows differ from the formula's, as a share of the
    greatest number of each; with dropout, of which it counts what it says that it kept."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    norm = nn.LayerNorm(size)
    with torch.no_grad():
        norm.weight.copy_(drawn(size))
        norm.bias.copy_(drawn(size))
    x, inside = drawn(37, size), drawn(37, size).bfloat16()
    slopes = drawn(37, size), drawn(37, size).bfloat16()

    worst = 0.0
    for share, outputs in ((0.0, 2), (0.3, 2), (0.3, 1)):
        given = [
            y.to(device).requires_grad_() for y in (x, inside, norm.weight.data, norm.bias.data)
        ]
        seed = torch.tensor([3], device=device) if share else None
        wide, narrow, _, kept, _ = _operator()(*given, seed, share, norm.eps)
        out = [wide, narrow][:outputs]
        found = _with_gradients(out, given, slopes)
        exact = [y.detach().double().cpu().requires_grad_() for y in given]
        mask = kept.double().cpu() / (1 - share) if share else 1.0
        summed = exact[0] + mask * exact[1]
        right = F.layer_norm(summed, (size,), exact[2], exact[3], norm.eps)
        expected = _with_gradients([right] * outputs, exact, slopes)
        for mine, other in zip(found, expected, strict=True):
            difference = (mine.double().cpu() - other).abs().max() / other.abs().max()
            worst = max(worst, float(difference.detach().nan_to_num(torch.inf)))
        if share and not 0.2 < 1 - float(kept.float().mean()) < 0.4:
            worst = torch.inf
    return worst


def _operator() -> Any:
    return torch.ops.seq2sweep.residual_norm


def _with_gradients(
    out: list[Tensor], given: list[Tensor], slopes: tuple[Tensor, ...]
) -> list[Tensor]:
    """What came out, and the gradients of what went in for slopes of what came out."""
    away = [slope.to(o) for slope, o in zip(slopes, out, strict=False)]
    return [*out, *torch.autograd.grad(out, given, away)]
