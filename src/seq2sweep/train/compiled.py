"""Layers by torch.compile, each kind of layer once, for batches of any lengths."""

from __future__ import annotations

import contextlib

import torch

from seq2sweep.errors import UserError
from seq2sweep.model.architecture import Architecture


def compile_layers(model: Architecture, device: torch.device) -> None:
    """Have each layer compiled at its first call; layers of a kind share what is compiled.

    What is between the products of a layer (softmax, dropout, residual, norm) becomes few kernels.
    They are kept on disk by PyTorch, for runs and trials that come later. Raises UserError where
    nothing can be compiled: that takes a C++ compiler, or Triton on a GPU.
    """
    import torch._inductor.config as inductor  # two seconds

    # A trial before this one, in this process, may have had other layers, and of one place in the
    # code PyTorch keeps so many forms and no more (`loop._keep_forms`).
    torch._dynamo.reset()
    # Kernels from the disk may have been made by a process with more threads than this one has.
    inductor.cpp.dynamic_threads = True
    inductor.compile_threads = 1
    # Cutting graphs where buckets of gradients end is for models that are one graph. Here a layer
    # is, and its shapes are variable, which the cut loses.
    torch._dynamo.config.optimize_ddp = False
    try:
        torch.compile(_something)(torch.ones(64, device=device))
    except Exception as error:  # whatever is missing, it is named
        reason = str(error).strip().split("\n", 1)[0]
        raise UserError(
            f"train.compile: torch.compile fails on {device.type} ({reason[:200]}): install a C++ "
            "compiler, such as g++, and for a GPU Triton; or set train.compile to false"
        ) from error
    for layer in model.blocks():
        layer.compile(dynamic=True)


def eager() -> contextlib.AbstractContextManager[None]:
    """A context in which layers that are compiled run as they are, for what is done seldom."""
    stance: contextlib.AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def _something(x: torch.Tensor) -> torch.Tensor:
    return x.exp() + 1
