"""Products with weights, by the library that is fastest at them on this CPU; a search, which needs
the same ones hundreds of times, lays them out."""

from __future__ import annotations

import functools
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

_search = threading.local()
_LAID_OUT: set[torch.dtype] = set()
"""Types in which this PyTorch has oneDNN's products with weights in its own layout."""
if platform.machine().lower() in ("x86_64", "amd64") and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
):
    _LAID_OUT.add(torch.float32)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        _LAID_OUT.add(torch.bfloat16)
LARGE = 1 << 24
"""Multiply-adds of a product from which oneDNN's new kernel for its shape pays, of two cores."""


class Linear(nn.Linear):
    """nn.Linear, by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return linear(input, self.weight, self.bias)


@contextmanager
def laid_out(kept: dict[Any, Any] | None = None) -> Iterator[None]:
    """Within, this thread's products on a CPU keep weights as oneDNN likes them best.

    Its layout is made at the first product with a weight and thrown away at the end, of the
    outermost of several: weights may not change within, nor be differentiated, so that inference
    mode is a condition. kept: where they are from one time to the next, for a search that goes on
    later; as long as it is, weights may not change.
    """
    outermost = getattr(_search, "weights", None) is None
    if outermost:
        _search.weights = {} if kept is None else kept
    try:
        yield
    finally:
        if outermost:
            _search.weights = None


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, rows: slice = slice(None)
) -> Tensor:
    """x weight[rows]^T + bias: [..., in] to [..., out], for weight [all of out, in]."""
    # torch.compile cannot ask for the inference mode: it would end its graph here.
    if torch.compiler.is_compiling():
        return F.linear(x, weight[rows], bias)
    if not torch.is_inference_mode_enabled() or not _serves(x, weight):
        weight = weight[rows]
        if x.dim() < 2 or not by_onednn(x, weight):
            return F.linear(x, weight, bias)
        # Rows, as a view made inside could not be changed in place.
        product: Tensor = OneDNNLinear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
        return product if x.dim() == 2 else product.unflatten(0, x.shape[:-1])
    key = id(weight), rows.start, rows.stop
    if key not in _search.weights:
        made = torch.ops.mkldnn._reorder_linear_weight(weight[rows].contiguous())
        # With the weight itself, so that its id stays its own.
        _search.weights[key] = weight, made
    return onednn(x, _search.weights[key][1], bias)


@functools.cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 faster here than PyTorch does by itself.

    PyTorch asks MKL, which takes AVX-512 on Intel's processors alone. On an EPYC of Zen 5 it
    makes 0.2 TFLOP/s on two cores, oneDNN 0.5, of a gradient of weights 0.4 and less.
    """
    if torch.float32 not in _LAID_OUT:
        return False
    able = torch.cpu.get_capabilities()
    name = str(able.get("cpu_name") or "")
    return bool(name) and not name.startswith("Intel") and bool(able.get("avx512_f"))


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether x weight^T is `onednn`'s: a large product in float32, on a CPU where that is faster.

    Not within a dispatch mode: PyTorch's FLOP counter knows its own products alone.
    """
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.size(0) >= LARGE
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
        and not is_in_torch_dispatch_mode()
    )


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T by the faster library: [..., in] to [..., out]. No gradients: see `linear`."""
    return onednn(x, weight) if by_onednn(x, weight) else F.linear(x, weight)


def weight_gradient(gradient: Tensor, x: Tensor, total: Tensor | None = None) -> Tensor:
    """gradient^T x by the faster library: [out, in] of rows [N, out] and [N, in]; where there is a
    total of the same shape, added to it."""
    if by_onednn(gradient, x.T):
        made = onednn_of_weight(gradient, x)
    elif total is not None and total.dtype == x.dtype:
        return torch.addmm(total, gradient.T, x, out=total)
    else:
        made = gradient.T @ x
    return made if total is None else total.add_(made)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias by oneDNN: [..., in] to [..., out]. No gradients: see `OneDNNLinear`."""
    # Of rows with gaps in between its products are a hundred times slower.
    if weight.layout == torch.strided and not weight.T.is_contiguous():
        weight = weight.contiguous()
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def onednn_of_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """gradient^T x by oneDNN: [out, in] of rows [N, out] and [N, in]."""
    # It copies its first argument where that is transposed: the narrower of both.
    if gradient.size(1) < x.size(1):
        return onednn(gradient.T, x.T)
    return onednn(x.T, gradient.T).T


class OneDNNLinear(torch.autograd.Function):
    """F.linear of rows [N, in] by oneDNN, with its three products."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = context.needs_input_grad
        context.save_for_backward(x if of_weight else None, weight if of_x else None)
        return onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = context.saved_tensors
        of_x, of_weight, of_bias = context.needs_input_grad
        return (
            onednn(gradient, weight.T) if of_x else None,
            onednn_of_weight(gradient, x) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


def product_type(x: Tensor) -> torch.dtype:
    """In which products with x are: autocast's where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _serves(x: Tensor, weight: Tensor) -> bool:
    return (
        getattr(_search, "weights", None) is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype
        and x.dtype in _LAID_OUT
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )
