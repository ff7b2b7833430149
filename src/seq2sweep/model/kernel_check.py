"""A GPU's Triton kernel is tried before it serves."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch

from seq2sweep import console


def is_right(
    what: str, device: torch.device, largest_error: Callable[[], float], tolerance: float, off: str
) -> bool:
    """Whether a kernel runs on the device and is off by less than `tolerance`; else one line says
    what does not work, and why. Without Triton, which comes with PyTorch for GPUs, nothing does.

    off: the reason where it is wrong, with {} for the largest error.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        wrong = largest_error()
    except Exception as error:  # whatever a compiler, a driver, an old GPU or PyTorch may raise
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    else:
        if wrong < tolerance:
            return True
        reason = off.format(f"{wrong:.2g}")
    console.say(f"{what} does not work on {device} ({reason}): training is slower without")
    return False
