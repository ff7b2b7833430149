"""What one machine says of itself, asked by cluster/doctor.py. Ray runs these functions there."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ray
import torch
from ray._private.utils import get_dashboard_dependency_error

import seq2sweep
from seq2sweep.config import is_address
from seq2sweep.errors import UserError
from seq2sweep.storage.locks import try_lock
from seq2sweep.storage.object_store import ObjectStore

DRIVER_SECONDS = 20.0
"""A driver that hangs never answers."""
PACKAGES = ("torch", "ray", "numpy", "safetensors", "sentencepiece")
"""Whose versions must be the same on all machines for the same result, or for talking at all."""


def facts(meeting: str, name: str) -> dict[str, Any]:
    """Versions, devices, room, and what became of a file that this machine wrote.

    meeting: a folder or an address in the storage, where the driver wrote its own file; name: of
    ours.
    """
    missing = get_dashboard_dependency_error()
    driver, driver_fault = _driver()
    return {
        "versions": versions(),
        "dashboard": None if missing is None else str(missing),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "driver": driver,
        "driver_fault": driver_fault,
        "cuda": torch.version.cuda,
        "storage": write(meeting, name),
        "free": _free(meeting),
        "free_temporary": shutil.disk_usage(tempfile.gettempdir()).free,
    }


def versions() -> dict[str, str]:
    """Python, the packages that count, and a sum of this package's own code."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    root = Path(seq2sweep.__file__).parent
    code = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        code.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return found | {"seq2sweep": code.hexdigest()[:12]}


def clock() -> float:
    """Unix seconds here."""
    return time.time()


def names_seen(meeting: str) -> list[str]:
    """Whose files this machine can read, and reads as they were written."""
    if is_address(meeting):
        there = ObjectStore(meeting)
        return [name for name in there.sizes() if there.read(name) == name.encode()]
    return [path.name for path in Path(meeting).iterdir() if path.read_text() == path.name]


def block(count: int) -> bytes:
    """So many bytes, to be sent elsewhere."""
    return bytes(count)


def seconds_to_fetch(references: list[ray.ObjectRef[Any]]) -> float:
    """How long the only object takes to come here."""
    before = time.perf_counter()
    ray.get(references[0])
    return time.perf_counter() - before


def write(meeting: str, name: str) -> str | None:
    """Leave a file at the meeting place, which only one can have made; what went wrong."""
    try:
        if is_address(meeting):
            return _create(ObjectStore(meeting), name)
        path = Path(meeting) / name
        path.write_text(name)
        with path.open("a") as stream:
            try_lock(stream.fileno(), path, "cluster.storage")
    except (OSError, UserError) as error:
        return str(error)
    return None


def _create(there: ObjectStore, name: str) -> str | None:
    there.create(name, name.encode())
    if there.create(name, b"another"):
        return (
            f"{there.address}: its server replaces an object that is to be made only if it is not "
            "there (If-None-Match), so two trainings could write at once"
        )
    return None


def _free(meeting: str) -> int | None:
    """Bytes that are free where checkpoints are written; None where that is not there."""
    if is_address(meeting):
        return shutil.disk_usage(tempfile.gettempdir()).free
    return shutil.disk_usage(meeting).free if Path(meeting).exists() else None


def _driver() -> tuple[str | None, str | None]:
    """Version of the NVIDIA driver, if there is one; and what is wrong with it, if it is dead."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS)
    except FileNotFoundError:
        return None, None
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvidia-smi: {error}"
    lines = (told.stdout if told.returncode == 0 else told.stdout + told.stderr).split("\n")
    said = next((line.strip() for line in lines if line.strip()), "no word")
    return (said, None) if told.returncode == 0 else (None, f"nvidia-smi: {said}")
