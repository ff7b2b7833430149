"""No more threads than a container's quota of CPUs keeps busy."""

from __future__ import annotations

import torch

from seq2sweep.parallel import available_cpus


def keep_to_quota() -> None:
    """PyTorch starts a thread for each CPU that this process may run on, whatever time it may have
    of them: more than its quota allows only stop each other. Fewer threads stay as they are."""
    if (cpus := available_cpus()) < torch.get_num_threads():
        torch.set_num_threads(cpus)
