"""Products with weights; a search, which needs the same ones hundreds of times, lays them out."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_search = threading.local()
_LAID_OUT: set[torch.dtype] = set()
"""Types in which this PyTorch has oneDNN's products with weights in its own layout."""
if platform.machine().lower() in ("x86_64", "amd64") and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
):
    _LAID_OUT.add(torch.float32)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        _LAID_OUT.add(torch.bfloat16)


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
    compiling = torch.compiler.is_compiling()
    if compiling or not torch.is_inference_mode_enabled() or not _serves(x, weight):
        return F.linear(x, weight[rows], bias)
    key = id(weight), rows.start, rows.stop
    if key not in _search.weights:
        made = torch.ops.mkldnn._reorder_linear_weight(weight[rows].contiguous())
        # With the weight itself, so that its id stays its own.
        _search.weights[key] = weight, made
    out: Tensor = torch.ops.mkldnn._linear_pointwise(
        x, _search.weights[key][1], bias, "none", [], ""
    )
    return out


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
