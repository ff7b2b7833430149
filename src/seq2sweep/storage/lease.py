"""One process at a time, where locks of files do not reach: leases that lie in an object store.

`<run>/leases/<kind>/<generation>.json` names who holds it, and is renewed every few seconds for as
long as that process lives. Who finds it unchanged for long creates the next generation, which only
one can. So a process that was cut off for a while finds out: its generation is not the newest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import briefly, repeating

RENEW_SECONDS = 10.0
LEASE_SECONDS = 60.0
"""A lease that is not renewed for so long has expired, by the clock of whoever waits for it."""
POLL_SECONDS = 1.0
_LEASE = re.compile(r"\d{8,}\.json")


class LeaseHeldError(TimeoutError):
    """A process that lives holds it; the message names it."""


class LeaseLostError(OperationalError):
    """Another process has taken the lease over, as if this one had ended."""


class Lease:
    """A lease that this process holds, as `acquire` gives it."""

    def __init__(self, store: ObjectStore, generation: int, content: dict[str, Any]) -> None:
        """store: of this kind of lease; content: who holds it."""
        self.store, self.generation, self._content = store, generation, content
        self._lock = threading.Lock()  # so that none is replaced by an older one
        self.lost = False
        """Whether a renewal has found that another process has taken it over."""

    def check(self) -> None:
        """Raise LeaseLostError if another process has taken it over."""
        if self._is_lost():
            raise self.error()

    def error(self) -> LeaseLostError:
        """What to raise then."""
        return LeaseLostError(
            f"another process has taken over {self.store.address}, as if this one had ended"
        )

    def renew(self) -> None:
        """Have whoever waits see that this process lives."""
        self._write({"renewals": self._content.get("renewals", 0) + 1})
        with contextlib.suppress(OSError, UserError):
            self.lost = self.lost or self._is_lost()

    def _is_lost(self) -> bool:
        return max(_generations(self.store), default=0) > self.generation

    def release(self) -> None:
        """Leave it to others at once; they wait until it expires if the store does not answer."""
        self._write({"released": True})

    def _write(self, changes: dict[str, Any]) -> None:
        self._content |= changes
        # What is wrong is said by whoever uploads something.
        with contextlib.suppress(OSError, UserError), self._lock:
            self.store.write(_name(self.generation), _as_bytes(self._content))


@contextlib.contextmanager
def acquire(store: ObjectStore, timeout: float = 0.0) -> Iterator[Lease]:
    """Wait until nobody holds a lease, and hold it until the block ends.

    store: has nothing but this kind of lease. timeout: seconds to wait for a holder that lives,
    which is said; LeaseHeldError after them.
    """
    lease = _take(store, timeout)
    try:
        with repeating(RENEW_SECONDS, lease.renew, "lease", patient=False):
            yield lease
    finally:
        briefly(lease.release)


def _take(store: ObjectStore, timeout: float) -> Lease:
    seen: tuple[int, dict[str, Any] | None] | None = None
    since, deadline, said = time.monotonic(), time.monotonic() + timeout, False
    while True:
        generation, holder = _newest(store)
        expired = (generation, holder) == seen and time.monotonic() - since > LEASE_SECONDS
        if holder is None or holder.get("released") or _is_dead_here(holder) or expired:
            content = _this_process() | {"lease": uuid.uuid4().hex}
            if store.create(_name(generation + 1), _as_bytes(content)):
                with contextlib.suppress(OSError, UserError):  # it is held, whoever removes these
                    for old in _generations(store):
                        if old <= generation:
                            store.delete(_name(old))
                return Lease(store, generation + 1, content)
            continue  # somebody else was faster
        who = f"process {holder['process']} on {holder['host']}"
        if (generation, holder) != seen:
            if seen is not None and time.monotonic() >= deadline:
                place = store.address.partition("/leases/")[0]
                raise LeaseHeldError(f"{who} is working in {place}: wait for its end, or end it")
            seen, since = (generation, holder), time.monotonic()
        if not said:
            said = True
            console.say(f"waiting for {who}, which holds {store.address}")
        time.sleep(POLL_SECONDS)


def _newest(store: ObjectStore) -> tuple[int, dict[str, Any] | None]:
    """Generation and content of the lease that counts; 0 and None where there is none."""
    generation = max(_generations(store), default=0)
    content = store.read(_name(generation)) if generation else None
    return generation, json.loads(content) if content else None


def _name(generation: int) -> str:
    return f"{generation:08d}.json"


def _generations(store: ObjectStore) -> list[int]:
    """Those that are there; what else lies there, such as what marks a folder, is no lease."""
    return [int(name.removesuffix(".json")) for name in store.sizes() if _LEASE.fullmatch(name)]


def _as_bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()


# --- whether the process that holds it is one of this machine, and has ended ---------------------


def _this_process() -> dict[str, Any]:
    machine = _machine()
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": _started(os.getpid()) if machine else None,
        "machine": machine,
    }


def _machine() -> str | None:
    """Names the process numbers that are seen here; None where that is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(process: int) -> str | None:
    """When a process began, in ticks since this machine did; None when it has ended.

    Not psutil's create_time, which is another one when somebody sets the clock. Raises OSError
    where none of the number is to be seen.
    """
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    state, *others = stat.rpartition(")")[2].split()
    return None if state == "Z" else others[18]


def _is_dead_here(holder: dict[str, Any]) -> bool:
    """Whether it was a process of this machine and is gone: then there is nothing to wait for."""
    if holder.get("machine") is None or holder["machine"] != _machine():
        return False
    process = int(holder["process"])
    try:
        return bool(_started(process) != holder["started"])
    except OSError:  # with the mount option hidepid also of one of another user that lives
        with contextlib.suppress(PermissionError):
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return True
        return False
