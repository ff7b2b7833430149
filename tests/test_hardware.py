"""Peaks by the names that drivers give, and the energy counter of a made-up NVML."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from seq2sweep import hardware
from seq2sweep.hardware import Precision, energy_counter, no_peak_warning, peak_flops

CPU = torch.device("cpu")

# Names as torch.cuda.get_device_name gives them, with TFLOP/s in float32 and bf16.
KNOWN: list[tuple[str, float, float | None]] = [
    ("Tesla P100-PCIE-16GB", 9.3, None),
    ("Tesla P100-SXM2-16GB", 10.6, None),
    ("Tesla V100-SXM2-32GB", 15.7, None),
    ("Tesla V100S-PCIE-32GB", 16.4, None),
    ("Tesla T4", 8.1, None),
    ("A100-SXM4-40GB", 19.5, 312),
    ("NVIDIA A100-SXM4-80GB", 19.5, 312),
    ("NVIDIA A100 80GB PCIe", 19.5, 312),
    ("NVIDIA A10", 31.2, 125),
    ("NVIDIA L4", 30.3, 121),
    ("NVIDIA L40", 90.5, 181.05),
    ("NVIDIA L40S", 91.6, 362.05),
    ("NVIDIA RTX 6000 Ada Generation", 91.1, 364.25),
    ("NVIDIA GeForce RTX 4090", 82.6, 165.2),
    ("NVIDIA H100 80GB HBM3", 67, 989.5),
    ("NVIDIA H100 PCIe", 51, 756.5),
    ("NVIDIA H100 NVL", 60, 835.5),
    ("NVIDIA H200", 67, 989.5),
    ("NVIDIA GH200 480GB", 67, 990),
    ("NVIDIA B200", 75, 2250),
    ("AMD Instinct MI250X", 47.85, 191.5),
]
# Parts of cards, other cards whose names hold or resemble known ones, and no cards at all.
UNKNOWN = [
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA A10G",
    "NVIDIA A100X",
    "NVIDIA L400",
    "NVIDIA GB200",
    "Quadro RTX 6000",
    "NVIDIA RTX 6000",
    "",
]


@pytest.mark.parametrize(("name", "float32", "bf16"), KNOWN)
def test_peak_by_name(name: str, float32: float, bf16: float | None) -> None:
    assert peak_flops(name, "float32") == pytest.approx(float32 * 1e12)
    assert peak_flops(name, "bf16") == (None if bf16 is None else pytest.approx(bf16 * 1e12))
    matching = [
        pattern
        for pattern in hardware.PEAK_TFLOPS
        if re.fullmatch(pattern, name.removeprefix("NVIDIA "))
    ]
    assert len(matching) == 1


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_names_that_only_resemble_are_unknown(name: str, precision: Precision) -> None:
    assert peak_flops(name, precision) is None


def test_matrix_units_are_never_slower_than_float32() -> None:
    for name, rates in hardware.PEAK_TFLOPS.items():
        # 1.9 to 32 times as fast on all cards there are: a digit too many or too few shows.
        assert "bf16" not in rates or 1.9 < rates["bf16"] / rates["float32"] < 33, name
        assert 5 < rates["float32"] < 200, name


def test_the_warning_says_what_is_missing_and_where_to_add_it() -> None:
    assert no_peak_warning("CPU", "bf16") is None
    assert no_peak_warning("Tesla T4", "float32") is None
    for name in ("Tesla T4", "NVIDIA A10G"):
        warning = no_peak_warning(name, "bf16")
        assert warning is not None
        assert f"bf16 peak of {name} " in warning
        assert "\n" not in warning
        assert "PEAK_TFLOPS in src/seq2sweep/hardware.py" in warning


UUID = "8c5e1f6a-0000-1111-2222-333344445555"
OK, NOT_SUPPORTED, NOT_FOUND = 0, 3, 6
HANDLE = 0x7F00_1234_5678  # more than 32 bits, as pointers have
INIT = ctypes.CFUNCTYPE(ctypes.c_int)
BY_UUID = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))
ENERGY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulonglong))


def fake_nvml(millijoules: list[int], support: int = OK) -> SimpleNamespace:
    """Functions with NVML's C signatures; `millijoules` are the readings to come."""

    def by_uuid(uuid: bytes, handle: ctypes.Array[ctypes.c_void_p]) -> int:
        if uuid != f"GPU-{UUID}".encode():
            return NOT_FOUND
        handle[0] = HANDLE  # type: ignore[call-overload]
        return OK

    def energy(handle: int, reading: ctypes.Array[ctypes.c_ulonglong]) -> int:
        if handle != HANDLE or support != OK:
            return support or NOT_FOUND
        reading[0] = millijoules.pop(0)  # type: ignore[call-overload]
        return OK

    return SimpleNamespace(
        nvmlInit_v2=INIT(lambda: OK),
        nvmlDeviceGetHandleByUUID=BY_UUID(by_uuid),
        nvmlDeviceGetTotalEnergyConsumption=ENERGY(energy),
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU that torch numbers 0 and NVML may number otherwise; its UUID is UUID."""
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID)
    )
    return torch.device("cuda", 0)


def test_energy_is_read_from_the_card_of_that_uuid(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    nvml = fake_nvml([5_000_000_000_000, 5_000_000_001_500])

    def open_library(name: str) -> SimpleNamespace:
        opened.append(name)
        return nvml

    monkeypatch.setattr(ctypes, "CDLL", open_library)
    joules = energy_counter(gpu)
    assert joules() == 5_000_000_000.0
    assert joules() == 5_000_000_001.5
    assert opened == ["libnvidia-ml.so.1"]


def test_without_a_counter_energy_is_unknown(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake_nvml([], support=NOT_SUPPORTED))
    assert energy_counter(gpu)() is None
    old = fake_nvml([1])
    del old.nvmlDeviceGetTotalEnergyConsumption
    monkeypatch.setattr(ctypes, "CDLL", lambda name: old)
    assert energy_counter(gpu)() is None
    slept = fake_nvml([1])
    slept.nvmlInit_v2 = INIT(lambda: NOT_SUPPORTED)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: slept)
    assert energy_counter(gpu)() is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake_nvml([1]))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="another")
    )
    assert energy_counter(gpu)() is None


def test_without_nvml_energy_is_unknown(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert energy_counter(gpu)() is None
    assert energy_counter(torch.device("cpu"))() is None


def test_the_memory_of_this_process() -> None:
    """Its peak too is its own, not that of the process that started it."""
    of_parent = bytearray(1_500_000_000)  # far more than torch takes by itself
    of_parent[::4096] = b"x" * len(of_parent[::4096])
    # In a process of its own: one that has freed memory may take it from there.
    code = (
        "import json, torch; from seq2sweep.hardware import memory_of_process as memory\n"
        "cpu = torch.device('cpu')\n"
        "before = memory(cpu); held = bytearray(b'x') * 300_000_000; after = memory(cpu)\n"
        "del held\n"
        "print(json.dumps([before, after, memory(cpu)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, freed = json.loads(done.stdout)
    assert set(after) == {"rss_bytes", "peak_rss_bytes"}
    for name in after:
        assert after[name] - before[name] == pytest.approx(300e6, rel=0.1)
    assert freed["rss_bytes"] == pytest.approx(before["rss_bytes"], rel=0.1)
    assert freed["peak_rss_bytes"] == pytest.approx(after["peak_rss_bytes"], rel=0.01)
    assert before["peak_rss_bytes"] < len(of_parent)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_peak_begins_anew_on_a_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reserved is given back first, or the peak would begin with it."""
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("empty"))
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: done.append(str(device))
    )
    hardware.forget_peak(torch.device(device))
    assert done == ([] if device == "cpu" else ["empty", "cuda:0"])


def test_what_the_node_has_in_use() -> None:
    """Beside another process: psutil reads the same."""
    first, before = hardware.use_of_node(), psutil.cpu_times()
    assert hardware.use_of_node().keys() <= {"cpu_percent", "memory_percent"}
    work = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        hardware.use_of_node()
        before = psutil.cpu_times()
        time.sleep(1)
        found, after = hardware.use_of_node(), psutil.cpu_times()
    finally:
        for process in work:
            process.kill()
            process.wait()
    idle = after.idle + after.iowait - before.idle - before.iowait
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    whole = sum(getattr(after, name) - getattr(before, name) for name in names)
    assert found["cpu_percent"] == pytest.approx(100 * (1 - idle / whole), abs=5)
    assert found["cpu_percent"] > 20
    assert first["memory_percent"] == pytest.approx(psutil.virtual_memory().percent, abs=5)


def test_features_of_a_processor_are_those_that_choose_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    able = {"avx2": True, "avx512_bf16": True, "amx_bf16": False, "aes": True, "l1d_cache_size": 9}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert hardware.cpu_features() == "AVX512 avx2 avx512_bf16"


# --- free memory ---------------------------------------------------------------------------------


def group(folder: Path, files: tuple[str, str], limit: str, use: int, stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files[0]).write_text(f"{limit}\n")
    (folder / files[1]).write_text(f"{use}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{stat}\nfile 3\n")


def test_a_container_gives_what_its_groups_leave(tmp_path: Path) -> None:
    second, first = ("memory.max", "memory.current"), (
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
    )  # fmt: skip
    # Version 2: a job's limit is above the group of its process, whose own is none.
    group(tmp_path / "slurm/job", second, "8000", 5000, "inactive_file 1000")
    group(tmp_path / "slurm/job/step", second, "max", 4000, "inactive_file 900")
    text = "0::/slurm/job/step\n"
    assert [*hardware.memory_of_groups(text, tmp_path)] == [(8000.0, 4000.0)]
    # Version 1, in a container that sees its own group as the top.
    group(tmp_path / "memory", first, "6000", 5500, "total_inactive_file 200")
    text = "9:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/docker/1\n"
    assert [*hardware.memory_of_groups(text, tmp_path)] == [(6000.0, 700.0)]
    # More is in use than is allowed.
    group(tmp_path / "memory", first, "6000", 6500, "total_inactive_file 0")
    assert [*hardware.memory_of_groups(text, tmp_path)] == [(6000.0, 0.0)]
    assert [*hardware.memory_of_groups("", tmp_path)] == []


def test_of_cpus_the_workers_of_a_node_have_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_free_on_node", lambda: 12e9)
    monkeypatch.setattr(hardware, "_own_bytes", lambda: 1e9)  # of a trial before, used again
    assert hardware.free_bytes(CPU, 3) == 5e9
    monkeypatch.undo()
    text = Path("/proc/meminfo").read_text()
    total = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 0 < hardware._own_bytes() < hardware.free_bytes(CPU, 1) < total


def test_of_a_gpu_what_is_free_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def info(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return 60, 80

    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: asked.append("what is left is given back")
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", info)
    gpu = torch.device("cuda:1")
    # A trial that shares it with three others takes no more than its quarter.
    assert [hardware.free_bytes(gpu, sharers) for sharers in (1, 4)] == [60, 20]
    assert asked == 2 * ["what is left is given back", gpu]


def test_on_a_system_without_meminfo_half_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, *_: Any, **__: Any) -> str:
        raise FileNotFoundError(str(self))

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.get)
    assert hardware.free_bytes(CPU, 1) == 4096 * 500
