"""What `train.precision` and `train.deterministic` mean on a device."""

from __future__ import annotations

import os

import pytest
import torch

from seq2sweep.train.step import be_deterministic, choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("capabilities", "d_model", "expected"),
    [
        ({"avx2": True}, 1024, "float32"),
        ({"avx512_bf16": False, "amx_bf16": False}, 512, "float32"),
        ({"avx512_bf16": True}, 64, "bf16"),
        ({"avx512_bf16": True}, 32, "float32"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC"}, 64, "bf16"),
        ({"avx512_bf16": True, "cpu_name": "Intel Xeon"}, 512, "float32"),
        ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, 512, "bf16"),
        ({"amx_bf16": True}, 1024, "bf16"),
        ({"amx_bf16": True, "avx512_bf16": True}, 256, "bf16"),
        ({"amx_bf16": True, "avx512_bf16": True}, 128, "float32"),
    ],
)
def test_auto_on_a_processor(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, object], d_model: int, expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision("auto", CPU, d_model) == expected


@pytest.mark.parametrize(
    ("capability", "expected"), [((6, 0), "float32"), ((7, 5), "float32"), ((8, 0), "bf16")]
)
def test_auto_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision("auto", GPU, 64) == expected


def test_what_is_asked_for_is_given() -> None:
    assert choose_precision("bf16", CPU, 16) == "bf16"
    assert choose_precision("float32", GPU, 1024) == "float32"


def test_deterministic_changes_a_gpus_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    be_deterministic(CPU)
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        be_deterministic(GPU)
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ.pop("CUBLAS_WORKSPACE_CONFIG") == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
