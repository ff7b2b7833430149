"""The model's kernels: interpreted on a CPU, compiled for GPUs, and where they serve.

The loss's kernel is interpreted here as well: one process loads Triton for all.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from seq2sweep.model import residual_norm
from seq2sweep.model.layers import Residual

from ..triton_kernels import compiled, needs_triton, require_interpreted

TYPES = {
    "places": "*i64", "key_places": "*i64", "seed": "*i64", "kept": "*i8",
    **dict.fromkeys(("offsets", "key_offsets", "query_offsets"), "*i32"),
    **dict.fromkeys(("sums", "deltas", "total", "statistics", "x", "wide"), "*fp32"),
    **dict.fromkeys(("gain", "bias", "of_wide", "of_x", "of_biases", "of_gains"), "*fp32"),
    **dict.fromkeys(("scale", "to_scores", "share", "epsilon"), "fp32"),
    **dict.fromkeys(("queries", "keys", "values", "out", "slope"), "*bf16"),
    **dict.fromkeys(("of_queries", "of_keys", "of_values"), "*bf16"),
    **dict.fromkeys(("inside", "narrow", "of_narrow", "of_inside"), "*bf16"),
}  # fmt: skip
"""Of the kernels' arguments; all others are int32."""


@needs_triton
def test_they_are_exact_where_they_are_interpreted() -> None:
    tests = Path(__file__).parent.parent
    require_interpreted(
        tests / "paper" / "interpreted_kernels.py", tests / "train" / "interpreted_loss.py"
    )


@needs_triton
@pytest.mark.parametrize(
    ("d_k", "d_v", "warps", "capability"),
    [(13, 16, 2, 80), (64, 64, 2, 90), *((256, 256, 4, each) for each in (80, 90, 100))],
)
@pytest.mark.parametrize("name", ["forward", "backward_of_queries", "backward_of_keys"])
def test_attention_compiles_for_gpus(
    name: str, d_k: int, d_v: int, warps: int, capability: int
) -> None:
    from seq2sweep.model import varlen_attention, varlen_attention_kernel

    constants = {"D_K": d_k, "D_V": d_v, "FILLED_K": max(16, d_k), "FILLED_V": max(16, d_v)}
    constants |= {"FILLED_K": 16} if d_k == 13 else {}
    constants |= {"ROWS": varlen_attention.ROWS}
    kernel = getattr(varlen_attention_kernel, name)
    made = compiled(kernel, TYPES, constants, capability, num_warps=warps, num_stages=2)
    assert made.asm["cubin"]
    # As much as the smallest of these GPUs gives a program.
    assert made.metadata.shared <= 99 * 1024


@needs_triton
@pytest.mark.parametrize(("size", "capability"), [(4096, 80), (512, 90), (100, 100)])
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_the_norm_compiles_for_gpus(name: str, size: int, capability: int) -> None:
    from seq2sweep.model import residual_norm_kernel

    rows, options = residual_norm._tile(size)
    warps = options.pop("num_warps")
    constants = {"DROPS": True, "SIZE": size, "ROWS": rows, **options}
    if name == "backward":
        constants |= {"WIDE": True, "NARROW": True}
    kernel = getattr(residual_norm_kernel, name)
    assert compiled(kernel, TYPES, constants, capability, num_warps=warps).asm["cubin"]


# --- where sum and norm are one kernel -----------------------------------------------------------


class OnGpu:
    """What says that it is a tensor on a GPU."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.device, self.dtype = torch.device("cuda"), dtype


class OfItsOwn(nn.LayerNorm):
    """A user's kind of norm."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_it_serves_float32_on_gpus_where_products_are_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = {"type": torch.bfloat16}
    monkeypatch.setattr(residual_norm, "_is_right", lambda *_: True)
    monkeypatch.setattr(residual_norm, "product_type", lambda _: narrow["type"])

    def serves(x: Any, norm: nn.Module) -> bool:
        return residual_norm.serves(x, norm)

    wide, norm = OnGpu(torch.float32), nn.LayerNorm(512)
    assert serves(wide, norm)
    assert serves(wide, nn.LayerNorm(4096))
    assert not serves(wide, nn.LayerNorm(4097))
    assert not serves(OnGpu(torch.bfloat16), norm)
    assert not serves(wide, nn.RMSNorm(512))
    assert not serves(wide, nn.LayerNorm(512, bias=False))
    assert not serves(wide, nn.LayerNorm(512, elementwise_affine=False))
    assert not serves(wide, OfItsOwn(512))
    # As cluster.fsdp has it, also while weights are whole: its own call gathers and frees them.
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        shared = nn.Sequential(nn.LayerNorm(512), nn.LayerNorm(512))
        mesh, whole = init_device_mesh("cpu", (1,)), []
        fully_shard([*shared], mesh=mesh)
        fully_shard(shared, mesh=mesh)

        def look(*_: Any) -> None:
            whole.extend(not hasattr(each.weight, "full_tensor") for each in shared)
            whole.extend(serves(wide, each) for each in shared)

        shared[0].register_forward_hook(look)
        shared(torch.zeros(2, 512))
        assert whole == [True, True, False, False]
        assert not any(serves(wide, each) for each in shared)
    finally:
        dist.destroy_process_group()
    assert not serves(torch.zeros(2, 512), norm)
    narrow["type"] = torch.float32
    assert not serves(wide, norm)


def test_a_wrong_norm_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_operations(x: Any, inside: Any, gain: Any, bias: Any, seed: Any, *rest: Any) -> Any:
        share, epsilon = rest
        kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) >= share
        summed = x + kept * inside / (1 - share)
        out = nn.functional.layer_norm(summed, x.shape[-1:], gain, bias, epsilon)
        return out, out.to(inside.dtype), summed, kept, None

    def without_a_gradient(*given: Any) -> Any:
        wide, narrow, *others = by_operations(*given)
        return wide, narrow.detach() + 0 * narrow, *others

    def of_x_alone(x: Any, inside: Any, *others: Any) -> Any:
        return by_operations(x, 0 * inside, *others)

    def that_keeps_others(*given: Any) -> Any:
        *out, kept, _ = by_operations(*given)
        return *out, kept.flip(0), None

    def that_keeps_all(x: Any, inside: Any, gain: Any, bias: Any, seed: Any, *rest: Any) -> Any:
        share, epsilon = rest
        *out, kept, _ = by_operations(x, inside * (1 - share), gain, bias, seed, 0.0, epsilon)
        return *out, kept, None

    cpu = torch.device("cpu")
    monkeypatch.setattr(residual_norm, "_operator", lambda: by_operations)
    assert residual_norm.largest_error(cpu, 64) < residual_norm.TOLERANCE / 2
    for wrong in (without_a_gradient, of_x_alone, that_keeps_others, that_keeps_all):
        monkeypatch.setattr(residual_norm, "_operator", lambda wrong=wrong: wrong)
        assert residual_norm.largest_error(cpu, 64) > 0.1


def test_where_it_cannot_run_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> float:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(residual_norm, "largest_error", refuse)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert not residual_norm._is_right.__wrapped__(torch.device("cpu"), 8)
    assert "the fused norm does not work on cpu (RuntimeError: no compiler)" in "".join(
        capsys.readouterr()
    )
    # Without Triton it is not tried, and nothing is to be said.
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert not residual_norm._is_right.__wrapped__(torch.device("cpu"), 8)
    assert "".join(capsys.readouterr()) == ""


@pytest.mark.parametrize("training", [True, False])
def test_sub_layers_take_the_narrow_one_and_sums_the_other(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noting(x: Any, inside: Any, norm: nn.LayerNorm, share: float) -> Any:
        seen.append((x, inside, share))
        return x + inside, x - inside

    monkeypatch.setattr(residual_norm, "serves", lambda *_: True)
    monkeypatch.setattr(residual_norm, "residual_norm", noting)
    residual = Residual(4, 0.25).train(training)
    wide, narrow = torch.ones(3, 4), 2 * torch.ones(3, 4)
    share = 0.25 if training else 0.0
    out = residual((wide, narrow), lambda y: 10 * y)
    assert torch.equal(seen[0][0], wide)
    assert torch.equal(seen[0][1], 10 * narrow)
    assert seen[0][2] == share
    assert isinstance(out, tuple)
    plain = residual(wide, lambda y: 10 * y)
    assert torch.equal(plain[0], 11 * wide)
    # A layer whose norm comes first makes sums alone.
    first = Residual(4, 0.0, "pre")
    assert torch.equal(first(wide, lambda y: 0 * y), wide)
    assert len(seen) == 2
