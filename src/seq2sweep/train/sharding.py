"""Models that do not fit one device: weights, gradients and moments shared out over the workers.

Fully sharded data parallelism (Rajbhandari et al. 2020, ZeRO stage 3), by torch: each worker holds
its part of every tensor, and has a layer's weights whole only while it computes that layer.

What shards is imported only to shard: it takes a second, for which a stage that only waits for its
workers, or translates, would wait in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

from seq2sweep.model.architecture import Architecture


def shard(model: Architecture, device: torch.device, world_size: int) -> Architecture:
    """Share the model out, layer by layer, so that no device ever holds all of it.

    model: on the CPU, the same on every worker; what comes back is the same object, its parameters
    DTensors on `device`. Every worker must call this, and later each forward and backward pass.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world_size,))
    for layer in model.blocks():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.to(device)


def is_sharded(model: nn.Module) -> TypeGuard[FSDPModule]:
    """Whether `shard` made it what it is."""
    return hasattr(model, "set_requires_gradient_sync")


def _is_part(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "full_tensor")


def give_back(model: nn.Module) -> None:
    """Hold no more than this worker's part again, after passes without a backward."""
    if is_sharded(model):
        model.reshard()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be shared out: then every worker must call this."""
    full: Tensor = tensor.full_tensor() if _is_part(tensor) else tensor
    return full


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """This worker's part of a whole tensor, shared out as `other` is; itself where that is not."""
    if not _is_part(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every worker has read the same file: nothing needs to be sent.
    return distribute_tensor(
        tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None
    )
