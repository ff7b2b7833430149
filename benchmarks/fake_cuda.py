"""Tensors that say they are on a GPU, on a machine without one: nothing of them is computed.

PyTorch's FakeTensorMode knows shapes, types and devices only. A PyTorch that is built without CUDA
needs `fake_cuda.cpp` besides, loaded before it, which takes a C++ compiler and two seconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

LOADED = "SEQ2SWEEP_FAKE_CUDA"
FUSED_LOSS = "fake_cuda::fused_loss"
"""The operation that stands for the kernel of `train.fused_loss`."""


class UnavailableError(Exception):
    """There can be no such tensors here; it says why."""


def run_with_it(module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module` in a process that has it; returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        library = _build(Path(folder))
        environment = os.environ | {"LD_PRELOAD": str(library), LOADED: "1"}
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def is_loaded() -> bool:
    """Whether this process has it."""
    return LOADED in os.environ


def _build(folder: Path) -> Path:
    import torch

    if torch.version.cuda or sys.platform != "linux":
        raise UnavailableError("it is for a PyTorch without CUDA on Linux")
    compiler = shutil.which("g++")
    if compiler is None:
        raise UnavailableError("there is no g++")
    home = Path(torch.__file__).parent
    library = folder / "fake_cuda.so"
    source = Path(__file__).with_suffix(".cpp")
    built = subprocess.run(
        [
            *(compiler, "-shared", "-fPIC", "-std=c++20", f"-I{home / 'include'}"),
            *("-o", str(library), str(source)),
            *(f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise UnavailableError(f"g++ fails with torch {torch.__version__}: {built.stderr[:500]}")
    return library


@contextlib.contextmanager
def gpu() -> Iterator[None]:
    """A context in which torch.cuda reports a GPU with bf16, and tensors are fake."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.nn import functional as F
    from torch.utils import _foreach_utils

    from seq2sweep.model import residual_norm, varlen_attention
    from seq2sweep.train import fused_loss, loop

    kinds = _foreach_utils._foreach_supported_types

    patches: list[Any] = [
        mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False),
        mock.patch.object(torch.cuda, "is_bf16_supported", return_value=True),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
        mock.patch.object(torch.cuda, "get_device_name", return_value="NVIDIA H200"),
        mock.patch.object(torch.cuda, "synchronize"),
        mock.patch.object(F, "scaled_dot_product_attention", _attention),
        mock.patch.object(varlen_attention, "_is_right", return_value=True),
        mock.patch.object(residual_norm, "_is_right", return_value=True),
        mock.patch.object(fused_loss, "_is_right", return_value=True),
        # Kernel by kernel, as graphs are recorded.
        mock.patch.object(loop._Training, "_passes", return_value=None),
        mock.patch.object(fused_loss, "loss_and_gradient", _fused_loss()),
        # So that kernels over lists of tensors take fake ones.
        mock.patch.object(_foreach_utils, "_foreach_supported_types", [*kinds, FakeTensor]),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        # Numbers from numpy are real ones.
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


@functools.cache
def _fused_loss() -> Any:
    """In the place of `fused_loss.loss_and_gradient`, whose Triton kernel a fake tensor cannot run:
    one operation of the same shapes."""
    import torch

    def nothing(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return logits.new_empty((2, len(logits)), dtype=torch.float32)

    # Not `from __future__`'s text: the schema is made of the types themselves.
    nothing.__annotations__ = dict(
        logits=torch.Tensor, target=torch.Tensor, **{"return": torch.Tensor}
    )
    kernel = torch.library.custom_op(FUSED_LOSS, nothing, mutates_args={"logits"})
    kernel.register_fake(nothing)

    def loss_and_gradient(logits: Any, target: Any, *_: Any) -> Any:
        loss, likelihood = kernel(logits, target).sum(dim=1)
        return loss, likelihood

    return loss_and_gradient


def _attention(
    queries: Any,
    keys: Any,
    values: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """The kernel that PyTorch takes on a GPU: its own choice is compiled out where CUDA is.

    FlashAttention in 16 bits without a mask, for heads of at most 256 numbers, as many of keys as
    of values; else the memory-efficient one.
    """
    import torch

    narrow = queries.dtype in (torch.float16, torch.bfloat16)
    if attn_mask is None and narrow and queries.size(-1) == values.size(-1) <= 256:
        return torch.ops.aten._scaled_dot_product_flash_attention(
            queries, keys, values, dropout_p, is_causal, scale=scale
        )[0]
    if attn_mask is not None:
        shape = *queries.shape[:-1], keys.size(-2)
        attn_mask = attn_mask.to(queries.dtype).expand(shape)
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        queries, keys, values, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
