"""What one layer does and keeps: operations counted, the longest chain of them, saved activations.

Nothing here depends on the machine or its load.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep.table1.layer_types import written_out

PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Mv", "Convolution", "Softmax")
"""Kinds of nodes of the autograd graph that a chain counts, less their ending `Backward0`."""
CHAIN_WIDTH = 8
"""d of the layers whose chains are walked: no chain depends on it."""


def counted_flops(name: str, n: int, d: int, k: int, r: int) -> int:
    """Operations of a forward pass over x [1, n, d], by PyTorch's counter; nothing is computed."""
    with torch.device("meta"):
        layer = written_out(name, d, k, r)
        x = torch.empty(1, n, d)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    return int(counter.get_total_flops())


def longest_chain(name: str, n: int, k: int, r: int) -> int:
    """The most products, convolutions and softmaxes that wait for each other in a forward pass."""
    x = torch.randn(1, n, CHAIN_WIDTH, requires_grad=True)
    out: Tensor = written_out(name, CHAIN_WIDTH, k, r)(x)
    return chain_of(out)


def chain_of(out: Tensor) -> int:
    """The longest chain of PRODUCTS in the graph that made `out`; 0 where it has none."""
    lengths: dict[Any, int] = {}
    waiting: list[tuple[Any, bool]] = [(out.grad_fn, False)]
    while waiting:
        node, inputs_are_known = waiting.pop()
        if node is None or node in lengths:
            continue
        inputs = [before for before, _ in node.next_functions if before is not None]
        if not inputs_are_known:
            waiting += [(node, True), *((before, False) for before in inputs)]
            continue
        longest = max((lengths[before] for before in inputs), default=0)
        lengths[node] = longest + (node.name().removesuffix("Backward0") in PRODUCTS)
    return lengths.get(out.grad_fn, 0)


def saved_bytes(layer: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights left out, the input not.

    Each piece of memory counts once, however many operations keep it or a part of it.
    """
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # The graph must live while storages are told apart by where they lie.
        out = layer(x)
    del out
    return sum(found.values())
