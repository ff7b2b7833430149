"""What devices can do and what they use: peak and sustained rates by name, energy, memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import torch

from seq2sweep import cgroups
from seq2sweep.errors import OperationalError, is_refused_memory, kind_and_line

CHANGES_NO_RESULT = "what a device can do, and what was used of it"

Precision = Literal["float32", "bf16"]

COSTS = (
    "flops",
    "padded_flops",
    "paper_rule_flops",
    "padding_share",
    "flops_per_second",
    "mfu",
    "device_hours",
    "energy_kwh",
)
"""The figures of a run's summary that say what it cost; some may be None."""

PAPER_SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Sustained single-precision operations a second that the paper assumes (footnote 5)."""

# Dense rates as the vendors print them; where they print a rate with sparsity, half of that. bf16
# adds up in float32. float32 is the full one, not TF32 (`model.building`). A name stands for whole
# cards only: a slice of one (MIG), a laptop's chip or another memory size may well be slower.
PEAK_TFLOPS: dict[str, dict[Precision, float]] = {
    # "NVIDIA Tesla P100 GPU Accelerator" data sheets: NVLink and PCIe.
    r"Tesla P100-SXM2-16GB": {"float32": 10.6},
    r"Tesla P100-PCIE-(12|16)GB": {"float32": 9.3},
    # "NVIDIA V100 Tensor Core GPU" data sheet (volta-v100-datasheet-update-us-1165301-r5).
    r"Tesla V100-SXM2-(16|32)GB": {"float32": 15.7},
    r"Tesla V100-PCIE-(16|32)GB": {"float32": 14.0},
    r"Tesla V100S-PCIE-32GB": {"float32": 16.4},
    # "NVIDIA T4 Tensor Core GPU" data sheet (t4-tensor-core-datasheet-951643).
    r"Tesla T4": {"float32": 8.1},
    # "NVIDIA A100 Tensor Core GPU" data sheet (nvidia-1758950-r4): the same on SXM and PCIe.
    r"A100-SXM4?-(40|80)GB|A100-PCIE-(40|80)GB|A100 80GB PCIe": {"float32": 19.5, "bf16": 312.0},
    # Data sheets of the A10, A30 and A40. None was found of the A10G, which is another card.
    r"A10": {"float32": 31.2, "bf16": 125.0},
    r"A30": {"float32": 10.3, "bf16": 165.0},
    r"A40": {"float32": 37.4, "bf16": 149.7},
    # "NVIDIA Ampere GA102 GPU Architecture" white paper, version 2: tables 3 and 9.
    r"RTX A6000": {"float32": 38.7, "bf16": 154.8},
    r"GeForce RTX 3090": {"float32": 35.6, "bf16": 71.0},
    # "NVIDIA Ada GPU Architecture" white paper, version 2.1: appendix D and table 2.
    r"L4": {"float32": 30.3, "bf16": 121.0},
    r"GeForce RTX 4090": {"float32": 82.6, "bf16": 165.2},
    # Product pages of the L40 and the L40S.
    r"L40": {"float32": 90.5, "bf16": 181.05},
    r"L40S": {"float32": 91.6, "bf16": 362.05},
    # "NVIDIA RTX 6000 Ada Generation" data sheet (2504660): 1457.0 is its FP8 with sparsity.
    r"RTX 6000 Ada Generation": {"float32": 91.1, "bf16": 1457.0 / 4},
    # "NVIDIA RTX Blackwell GPU Architecture" white paper.
    r"GeForce RTX 5090": {"float32": 104.8, "bf16": 209.5},
    # "NVIDIA H100 Tensor Core GPU" data sheet, all rates in bf16 with sparsity: SXM, PCIe, NVL.
    r"H100 80GB HBM3": {"float32": 67.0, "bf16": 1979.0 / 2},
    r"H100 PCIe": {"float32": 51.0, "bf16": 1513.0 / 2},
    r"H100 NVL": {"float32": 60.0, "bf16": 1671.0 / 2},
    # "NVIDIA H200 Tensor Core GPU" data sheet, likewise: SXM, NVL.
    r"H200": {"float32": 67.0, "bf16": 1979.0 / 2},
    r"H200 NVL": {"float32": 60.0, "bf16": 1671.0 / 2},
    # "NVIDIA GH200 Grace Hopper Superchip" data sheet (2705455).
    r"GH200 (120GB|480GB|144G HBM3e)": {"float32": 67.0, "bf16": 990.0},
    # "NVIDIA Blackwell" data sheet, column HGX B200: 4.5 PFLOP/s with sparsity.
    r"B200": {"float32": 75.0, "bf16": 4500.0 / 2},
    # AMD Instinct data sheets, matrix cores. An MI250X is two devices, each half of the rate.
    r"AMD Instinct MI210": {"float32": 45.3, "bf16": 181.0},
    r"AMD Instinct MI250X": {"float32": 95.7 / 2, "bf16": 383.0 / 2},
    r"AMD Instinct MI300X": {"float32": 163.4, "bf16": 1307.4},
}
"""TFLOP/s by the name that torch.cuda.get_device_name gives, less a leading `NVIDIA `."""


def device_name(device: torch.device) -> str:
    """`CPU`, or a GPU's name as its driver gives it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


ORIGIN = ("precision", "workers", "threads", "device", "cpu_features", "tokens_per_pass")
"""What `origin` says, besides figures, of how a training was computed."""
_KERNELS = ("avx", "amx", "arm", "neon", "sve", "sme")


def cpu_features() -> str:
    """What torch chooses its kernels by: its own level, and what the processor can do of it."""
    able = torch.cpu.get_capabilities()
    found = sorted(name for name, has in able.items() if has is True and name.startswith(_KERNELS))
    return " ".join([torch.backends.cpu.get_cpu_capability(), *found])


def origin(
    device: str, precision: Precision, workers: int, tokens_per_pass: int
) -> dict[str, float | str]:
    """ORIGIN of a training, as this worker knows it; threads and processor are its own."""
    return {
        "precision": precision,
        "workers": workers,
        "threads": torch.get_num_threads(),
        "device": device,
        "cpu_features": cpu_features(),
        "tokens_per_pass": tokens_per_pass,
    }


def peak_flops(device: str, precision: Precision) -> float | None:
    """Dense operations a second that a device of this name can do; None for an unknown one."""
    name = device.removeprefix("NVIDIA ")
    for pattern, rates in PEAK_TFLOPS.items():
        if re.fullmatch(pattern, name):
            return rates[precision] * 1e12 if precision in rates else None
    return None


def no_peak_warning(device: str, precision: Precision) -> str | None:
    """A line for people when a GPU's peak is unknown; None when it is known, and for a CPU."""
    if device == "CPU" or peak_flops(device, precision) is not None:
        return None
    return (
        f"no MFU: the {precision} peak of {device} is not known; add it to PEAK_TFLOPS in "
        "src/seq2sweep/hardware.py"
    )


def paper_rule(seconds: float, devices: int, device: str) -> float | None:
    """The paper's cost: time x devices x sustained rate; None for a device it does not list."""
    for name, rate in PAPER_SUSTAINED_FLOPS.items():
        # The K40 came as K40c, K40m and more, all the same chip.
        if re.search(rf"\b{name}[CMST]?\b", device.upper()):
            return seconds * devices * rate
    return None


def energy_counter(device: torch.device) -> Callable[[], float | None]:
    """A function that reads how many joules a GPU has used since some time before this call.

    It is the counter of the whole card, with whatever else runs there. The function gives None
    where there is none: on a CPU, on cards of AMD or older than Volta, on a slice of a card (MIG).
    """
    if device.type != "cuda":
        return lambda: None
    handle = ctypes.c_void_p()
    try:
        # NVML, which is part of NVIDIA's driver.
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        # NVML knows nothing of CUDA_VISIBLE_DEVICES: its own numbers may mean other cards.
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        read = nvml.nvmlDeviceGetTotalEnergyConsumption
        failed = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle))
    except (OSError, AttributeError):
        return lambda: None

    def joules() -> float | None:
        millijoules = ctypes.c_ulonglong()
        if failed or read(handle, ctypes.byref(millijoules)):
            return None
        return millijoules.value / 1000

    return joules


def memory_of_process(device: torch.device) -> dict[str, float]:
    """Bytes that this process takes: rss_bytes now, peak_rss_bytes since its start, and on a GPU
    peak_gpu_bytes, the most that PyTorch has reserved there. What the system does not tell is left
    out."""
    names = {"VmRSS": "rss_bytes", "VmHWM": "peak_rss_bytes"}
    try:
        # Not getrusage: on Linux its peak is at least that of the process which started this one.
        status = _bytes_in("/proc/self/status")
        found = {name: status[key] for key, name in names.items() if key in status}
    except FileNotFoundError:  # macOS, which gives its peak in bytes
        found = {"peak_rss_bytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)}
    if device.type == "cuda":
        found["peak_gpu_bytes"] = float(torch.cuda.max_memory_reserved(device))
    return found


def forget_peak(device: torch.device) -> None:
    """Have peak_gpu_bytes count from now on, without what an earlier training of this process has
    left to be used again."""
    if device.type == "cuda":
        return_unused()
        torch.cuda.reset_peak_memory_stats(device)


def return_unused() -> None:
    """Give a GPU what PyTorch keeps of it and no tensor holds."""
    gc.collect()
    torch.cuda.empty_cache()


def _bytes_in(path: str) -> dict[str, float]:
    """What lines such as `VmRSS: 12 kB` say, by name. Raises FileNotFoundError on macOS."""
    text = Path(path).read_text(errors="replace")
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: 1024.0 * int(kilobytes) for name, kilobytes in found}


_ticks: list[tuple[int, int]] = []
"""Of all processors: those in use and all, since this machine was started, as last read."""


def use_of_node() -> dict[str, float]:
    """How much of this node all its processes have in use, in percent: cpu_percent since the last
    call of this process (its first has none), memory_percent, and gpu_memory_percent of the GPU of
    this process. What the system does not tell is left out."""
    found: dict[str, float] = {}
    with contextlib.suppress(FileNotFoundError):  # macOS
        line = Path("/proc/stat").read_text(errors="replace").partition("\n")[0]
        ticks = [int(text) for text in line.split()[1:9]]  # behind these, parts of the first two
        now = sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # idle, and idle while the disk works
        if _ticks and now[1] > _ticks[0][1]:
            (busy, whole) = (after - before for after, before in zip(now, _ticks[0], strict=True))
            found["cpu_percent"] = 100 * busy / whole
        _ticks[:] = [now]
        total, available = _memory_of_node()
        found["memory_percent"] = 100 * (1 - available / total)
    if torch.cuda.is_initialized():
        free, of_gpu = torch.cuda.mem_get_info()
        found["gpu_memory_percent"] = 100 * (1 - free / of_gpu)
    return found


def _memory_of_node() -> tuple[float, float]:
    """Bytes that there are, and those that new work may have; raises as `_bytes_in`."""
    sizes = _bytes_in("/proc/meminfo")
    return sizes["MemTotal"], sizes["MemAvailable"]


OF_GROUP = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of version 2 and 1 of cgroups, by the name that /proc/self/cgroup has: files of the limit and of
the use, and what of the use gives way, by its name in memory.stat."""
STAT = "memory.stat"
OF_A_MAC = 0.5
"""Of its memory, where the system does not say what is free."""


@contextlib.contextmanager
def memory_by(mend: str) -> Iterator[None]:
    """Where memory is refused in the block: OperationalError, a line that says what helps."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OperationalError) or not is_refused_memory(error):
            raise
        raise OperationalError(f"out of memory ({kind_and_line(error)}): {mend}") from None


def free_bytes(device: torch.device, sharers: int) -> float:
    """Memory that one of so many workers on this device may take in all: of a GPU what is free, of
    CPUs its part of what the system and the container still give, and what it has already.

    What a trial before it in this process has left is its own: it is used again.
    """
    if device.type == "cuda":
        return_unused()
        free, total = torch.cuda.mem_get_info(device)
        return float(min(free, total / sharers))
    return _free_on_node() / sharers + _own_bytes()


def _own_bytes() -> float:
    """That this process has for itself; 0 where the system does not say, as macOS."""
    with contextlib.suppress(FileNotFoundError):
        return _bytes_in("/proc/self/status").get("RssAnon", 0.0)
    return 0.0


def _free_on_node() -> float:
    try:
        _, available = _memory_of_node()
    except FileNotFoundError:
        return OF_A_MAC * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([available, *(free for _, free in own_groups())])


def may_open(files: int) -> int:
    """How many files this process may have open, of so many; it asks for more where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def own_groups() -> list[tuple[float, float]]:
    """`memory_of_groups` of this process; none where the system has no cgroups."""
    return [*memory_of_groups(cgroups.of_this_process(), cgroups.ROOT)]


def memory_of_groups(text: str, root: Path) -> Iterator[tuple[float, float]]:
    """Bytes that each cgroup that a process is in allows, where they are limited, and what of them
    is left; text, root: as of `cgroups.folders`.
    """
    for kind, folder in cgroups.folders(text, root, OF_GROUP):
        limit, use, gives_way = OF_GROUP[kind]
        with contextlib.suppress(OSError, ValueError):  # no limit is the word max
            most, used = (int((folder / file).read_text()) for file in (limit, use))
            stat = dict(row.split() for row in (folder / STAT).read_text().splitlines())
            yield float(most), float(max(0, most - used + int(stat.get(gives_way, 0))))
