"""How many processes have a GPU together: what `hardware` tells of devices loads torch."""

from __future__ import annotations

CHANGES_NO_RESULT = "how GPUs are shared"


def processes_on_gpus(gpus: float, each: float) -> int:
    """How many processes of so many GPUs each fit: Ray never takes a share below 1 from two."""
    if each >= 1:
        return int(gpus / each + 1e-9)
    whole = int(gpus + 1e-9)  # what is free may be less
    return whole * sharers_of_gpu(each) + int((gpus - whole) / each + 1e-9)


def sharers_of_gpu(each: float) -> int:
    """How many processes of so many GPUs each have one GPU together: of 0.6 it is one alone, whose
    share is then the whole."""
    return max(1, int(1 / each + 1e-9))
