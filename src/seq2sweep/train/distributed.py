"""Several workers: sums over all of them, one answer of all, and models that do not fit one device.

Such a model's weights, gradients and moments are shared out: fully sharded data parallelism
(Rajbhandari et al. 2020, ZeRO stage 3), by torch. Each worker holds its part of every tensor, and
has a layer's weights whole only while it computes that layer.

What shards is imported only to shard: it takes a second, for which a stage that only waits for its
workers, or translates, would wait in vain.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from seq2sweep.hardware import Precision
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.mixer import self_attention
from seq2sweep.model.products import Linear

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


FACTORS = {Linear, MultiHeadAttention, self_attention.Mixer}
"""Modules whose own parameters are factors and addends of products alone: autocast rounds them.
Not those of a kind derived from them, which may do more."""
NORMS = nn.LayerNorm, nn.RMSNorm
"""Those whose parameters it leaves as they are."""


def shard(
    model: Architecture, device: torch.device, world_size: int, precision: Precision
) -> Architecture:
    """Share the model out, layer by layer, so that no device ever holds all of it.

    model: on the CPU, the same on every worker; what comes back is the same object, its parameters
    DTensors on `device`. Every worker must call this, and later each forward and backward pass.

    precision: of products. In bf16 a layer's weights are gathered as products round them, with the
    same result: for half the bytes, and the backward pass keeps no copy of them. Norms, embeddings
    and layers with anything else in them are gathered as they are. Gradients are added up in
    float32 over passes and workers, and each worker's part of the weights is float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world_size,))
    narrow = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for layer in model.blocks():
        if precision == "bf16" and is_of_products(layer):
            fully_shard([part for part in layer.modules() if isinstance(part, NORMS)], mesh=mesh)
            fully_shard(layer, mesh=mesh, mp_policy=narrow)
        else:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.to(device)


def averaged(model: nn.Module) -> DistributedDataParallel:
    """A model whose gradients are averaged over workers while a backward pass goes on.

    Its buffers are each worker's own: tables of positions, which grow as it needs. Gradients lie in
    what is exchanged, so that there is no second copy of them.
    """
    # PyTorch 2.13 has a new name for it.
    names = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    own: dict[str, Any] = {name: False}
    return DistributedDataParallel(model, gradient_as_bucket_view=True, **own)


def is_of_products(layer: nn.Module) -> bool:
    """Whether autocast rounds all parameters of a layer, but for its norms."""
    return all(
        type(part) in FACTORS or isinstance(part, NORMS)
        for part in layer.modules()
        if [*part.parameters(recurse=False)]
    )


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


def own_part(tensor: Tensor) -> Tensor:
    """This worker's part, in the same memory; the tensor itself where it is not shared out."""
    part: Tensor = tensor.to_local() if _is_part(tensor) else tensor
    return part


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """This worker's part of a whole tensor, shared out as `other` is; itself where that is not."""
    if not _is_part(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every worker has read the same file: nothing needs to be sent.
    return distribute_tensor(
        tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None
    )


class Agreement:
    """Whether any worker says yes, known to all of them at the same update, one late.

    Late, because then nobody waits: the answer has been on its way during a whole update.
    """

    def __init__(self, world_size: int) -> None:
        self.alone = world_size == 1
        # Over the CPUs, as asking a GPU would mean to wait for its queue.
        nccl = not self.alone and dist.get_backend() != "gloo"
        self.group = dist.new_group(backend="gloo") if nccl else None
        self.asked: tuple[Tensor, Any] | None = None

    def __call__(self, mine: bool) -> bool:
        """Ask, and get the answer to what was asked the last time."""
        if self.alone:
            return mine
        answer = False
        if self.asked is not None:
            said, under_way = self.asked
            under_way.wait()
            answer = bool(said)
        said = torch.tensor(float(mine))
        under_way = all_reduce(said, dist.ReduceOp.MAX, group=self.group, async_op=True)
        self.asked = said, under_way
        return answer

    def settle(self) -> None:
        """Wait for what is under way: a worker that is gone would be missed by the others."""
        if self.asked is not None:
            self.asked[1].wait()


_lent: deque[Tensor] = deque(maxlen=64)
"""Views of what was last handed to the process group.

A thread of gloo's lets go of a tensor some time after its sum is known. Were that the last
reference beside Python's own, the thread would have to wait for Python's lock, which whoever
destroys the process group holds while waiting for that thread (torch 2.13): neither would ever get
on. A view holds its tensor in that sense.
"""


def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, **options: Any) -> Any:
    """As torch.distributed's, of a tensor that stays in memory for a while, if it is a CPU's."""
    if not tensor.is_cuda:
        _lent.append(tensor.view_as(tensor))
    return dist.all_reduce(tensor, op, **options)


def add_up(sums: Tensor, world_size: int) -> None:
    """Replace sums by those over all workers, each of which must call this."""
    if world_size > 1:
        all_reduce(sums)


def same_on_all(model: nn.Module) -> None:
    """Give all workers, each of which must call this, the first one's weights."""
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), 0)


def all_gather(tensors: list[Tensor], tensor: Tensor) -> None:
    """As torch.distributed's, of tensors that stay in memory for a while."""
    _lent.extend(each.view_as(each) for each in (*tensors, tensor))
    dist.all_gather(tensors, tensor)
