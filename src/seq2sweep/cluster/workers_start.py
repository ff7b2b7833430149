"""The driver's watch over a start of workers: what it waits for is said, and not waited for ever.

A worker that has begun watches itself (watchdog.py). What never begins only the driver can see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from seq2sweep import console
from seq2sweep.cluster import gcs, session
from seq2sweep.config import ClusterConfig

CHANGES_NO_RESULT = "how long a start is waited for"

LOOK_SECONDS = 2.0
"""How often the driver looks whether the workers live."""
START_SECONDS = 300.0
"""How long workers may take to start where there is room for them; 10 to 60 s is usual."""


class Trainer(Protocol):
    """controller: the id (hex) of Ray Train's controller; None before there is one."""

    @property
    def controller(self) -> str | None: ...


class WorkersNotStartedError(Exception):
    """Workers did not start, though there was room for them."""


class Start:
    """Called again and again while an attempt runs; raises WorkersNotStartedError when it hangs.

    Time without live workers is counted, from the beginning of an attempt or from when they were
    last seen, but not while they wait for room: for nodes that are to come, or for other jobs.
    """

    def __init__(
        self, cluster: ClusterConfig, cpus: int, trainer: Trainer, begun: Callable[[], bool]
    ) -> None:
        """begun: whether a worker of this attempt has got to our code."""
        self.cluster, self.cpus, self.trainer, self.begun = cluster, cpus, trainer, begun
        self.looked = self.alive = time.monotonic()

    def __call__(self) -> bool:
        """Whether the workers were at work when they were last looked for."""
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return self.looked == self.alive
        if not session.require_alive.answers():
            return False
        before, self.looked = self.looked, now
        gcs.remove_orphans()
        controller = self.trainer.controller
        if controller and gcs.live_workers(controller) and self.begun():
            self.alive = now
            return True
        lack = None if controller and gcs.has_room(controller) else self._lack_of_room()
        if lack:
            self.alive += now - before
        console.doing(lack or f"waiting for {self.cluster.workers} workers to start")
        if now - self.alive > START_SECONDS:
            raise WorkersNotStartedError(
                f"the workers did not start within {console.duration(now - self.alive)}, though "
                "there was room for them"
            )
        return False

    def _lack_of_room(self) -> str | None:
        """What the workers wait for; None where there is enough of it."""
        fewest = self.cluster.min_workers or self.cluster.workers
        gpus = self.cluster.gpus_per_worker
        needed = f"waiting for resources for {fewest} workers of {self.cpus} CPUs and {gpus} GPUs"
        machines = session.nodes()
        if session.places(machines, self.cpus, gpus) < fewest:
            return f"{needed}; the cluster is {session.describe(machines)}"
        if session.address_of(self.cluster) is None:  # nobody else is there
            return None
        free = session.free_nodes()
        if session.places(free, self.cpus, gpus) < fewest:
            return f"{needed}; free is {session.describe(free)}"
        return None
