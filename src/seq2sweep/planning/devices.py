"""Devices to plan for: what they are called, can do, hold, use and cost.

Peak rates are those of `seq2sweep.hardware`; memory, watts and prices of infra/prices.yaml.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seq2sweep import hardware, yaml_text
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.hardware import Precision
from seq2sweep.paths import read_text

PRICES = Path("infra/prices.yaml")
KEYS = {"per_hour", "watts", "memory_gb"}

ASSUMED_MFU: tuple[tuple[str, float, str], ...] = (
    # 8 P100 at 10.6 TFLOP/s and the FLOPs of Table 2's models as counted here.
    (r"Tesla P100.*", 0.3, "the paper's own times mean 0.24 for base and 0.35 for big"),
    # Eager PyTorch: the stream between products is float32 and goes through memory each time.
    (r"H100.*|H200.*|GH200.*|B200.*", 0.15, "assumed of bf16 in eager PyTorch, not measured"),
    (r"A100.*|A10|A30|A40|L4.*|.*RTX.*", 0.25, "assumed of bf16 in eager PyTorch, not measured"),
)
OTHER_MFU = 0.25, "assumed, not measured"
FLOAT32_MFU = 0.3, "assumed of float32, as the paper's P100 had it, not measured"


@dataclass(frozen=True)
class Device:
    """So many of one kind. None: not known.

    name: as torch gives it, less a leading `NVIDIA `, or `CPU`. peak: FLOP/s of one in
    `precision`; memory: bytes of one; per_hour: of one, in `currency`; watts: of one, at most.
    """

    name: str
    count: int
    precision: Precision
    peak: float | None = None
    memory: float | None = None
    watts: float | None = None
    per_hour: float | None = None
    currency: str = ""

    @property
    def gpu(self) -> bool:
        return self.name != "CPU"


def parse(text: str, config: Config, project: Path) -> Device:
    """The devices that `8 x P100` names; the first of the table where several kinds are called so.

    Raises UserError for a device that the table does not have, or whose peak is not known.
    """
    match = re.fullmatch(r"\s*(?:(\d+)\s*[x×*]\s*)?(\S.*?)\s*", text)
    count = int(match.group(1) or 1) if match else 0
    if match is None or count < 1:
        raise UserError(f"--on {text!r}: write it as `8 x P100`")
    table = read_table(project)
    wanted = _words(match.group(2))
    for name in table["devices"]:
        if wanted <= _words(name):
            return described(name, count, config, table)
    raise UserError(
        f"--on {text}: {PRICES} has no device {match.group(2)}; it has "
        f"{', '.join(table['devices'])}"
    )


def described(name: str, count: int, config: Config, table: dict[str, Any]) -> Device:
    """So many devices of a name, with what is known of them.

    Raises UserError where train.precision is one whose peak is not known of this device.
    """
    wanted = config.train.precision
    precision: Precision
    if wanted == "auto":
        precision = "bf16" if hardware.peak_flops(name, "bf16") else "float32"
    else:
        precision = wanted
    peak = hardware.peak_flops(name, precision)
    if peak is None:
        raise UserError(
            f"the {precision} peak of {name} is not known: set train.precision to auto, or add "
            "the peak to PEAK_TFLOPS in src/seq2sweep/hardware.py"
        )
    figures = table["devices"].get(name, {})
    gigabytes = figures.get("memory_gb")
    return Device(
        name,
        count,
        precision,
        peak,
        None if gigabytes is None else gigabytes * 1e9,
        figures.get("watts"),
        figures.get("per_hour"),
        table["currency"],
    )


def local_gpus(config: Config, project: Path) -> Device | None:
    """This machine's GPUs, as many as params.yaml asks for; None where there are not so many."""
    cluster = config.cluster
    count = cluster.workers * cluster.gpus_per_worker
    if not count or torch.cuda.device_count() < count:
        return None
    name = torch.cuda.get_device_name(0).removeprefix("NVIDIA ")
    found = described(name, count, config, read_table(project, needed=False))
    memory = float(torch.cuda.get_device_properties(0).total_memory)
    return dataclasses.replace(found, memory=memory)


def assumed_mfu(device: Device) -> tuple[float, str]:
    """Share of the peak that training is taken to reach, and why that."""
    for pattern, mfu, why in ASSUMED_MFU:
        if re.fullmatch(pattern, device.name):
            return (mfu, why) if device.precision == "bf16" or "P100" in pattern else FLOAT32_MFU
    return OTHER_MFU


def read_table(project: Path, *, needed: bool = True) -> dict[str, Any]:
    """infra/prices.yaml: `currency` and `devices`, by name. Empty if it is missing and not needed.

    Raises UserError naming what is wrong in it.
    """
    path = project / PRICES
    if not needed and not path.exists():
        return {"currency": "", "devices": {}}
    text = read_text(path, "call this in the project's folder, or restore it from git")
    try:
        table = dict(yaml_text.read_yaml(text))
        listed = {str(name): dict(figures) for name, figures in table["devices"].items()}
        currency = str(table["currency"])
    except (*yaml_text.ERRORS, KeyError, AttributeError):
        raise UserError(f"{PRICES} must have `currency` and `devices`, by name") from None
    for name, figures in listed.items():
        for key, value in figures.items():
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if key not in KEYS or not plain or value <= 0:
                raise UserError(
                    f"{PRICES}: {name}: {key}: {value!r}: known are {', '.join(sorted(KEYS))}, "
                    "each a number above 0"
                )
    return {"currency": currency, "devices": listed}


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s-]+", name.lower().removeprefix("nvidia "))) - {""}
