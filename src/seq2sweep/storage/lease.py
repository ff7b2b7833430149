"""One process at a time, where locks of files do not reach: claims that lie in a bucket.

`<run>/claims/<kind>/<generation>.json` names who holds it, and is written anew every few seconds
for as long as that lives. Who finds it unchanged for long takes the next generation, which only one
can make. So a process that was cut off for a while finds out: its generation is not the newest.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seq2sweep import console
from seq2sweep.errors import Failure, UserError
from seq2sweep.storage.object_store import Bucket
from seq2sweep.storage.ticker import Ticker

BEAT_SECONDS = 10.0
LEASE_SECONDS = 60.0
"""A claim that is not renewed for so long is given up, by the clock of whoever waits for it."""
LOOK_SECONDS = 1.0


class Held(Exception):  # noqa: N818 - what the claim is
    """Somebody else who lives holds it; the message names the process."""


class ClaimLost(Failure):
    """Somebody else has taken the claim over, as if this process had ended."""


class Claim:
    """A claim that this process holds, renewed by a thread until the block ends."""

    def __init__(self, bucket: Bucket, generation: int, content: dict[str, Any]) -> None:
        """As `take` makes it. bucket: of this kind of claim."""
        self.bucket, self.generation, self._content = bucket, generation, content
        self._beats = 0
        self._ticker = Ticker(BEAT_SECONDS, self._renew, "claim")
        self._ticker.start()

    def check(self) -> None:
        """Raise ClaimLost if somebody else has taken it over."""
        newest = max(map(_generation, self.bucket.sizes()), default=0)
        if newest > self.generation:
            raise ClaimLost(
                f"another process has taken over {self.bucket.address}, as if this one had ended"
            )

    def release(self) -> None:
        """Leave it to others at once; they wait for its lease if the bucket does not answer."""
        self._ticker.stop()
        with contextlib.suppress(OSError, UserError):
            self._write({"released": True})

    def _renew(self) -> None:
        self._beats += 1
        # What is wrong is said by whoever uploads something.
        with contextlib.suppress(OSError, UserError):
            self._write({"beats": self._beats})

    def _write(self, news: dict[str, Any]) -> None:
        self.bucket.write(_name(self.generation), _as_bytes(self._content | news))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def take(bucket: Bucket, patience: float = 0.0) -> Claim:
    """Wait until nobody holds a claim and hold it; `bucket` has nothing but this kind of claim.

    patience: seconds to wait for one who lives, which is said; raises Held after them.
    """
    seen: tuple[int, dict[str, Any] | None] | None = None
    since, give_up, said = time.monotonic(), time.monotonic() + patience, False
    while True:
        generation, holder = _newest(bucket)
        silent = (generation, holder) == seen and time.monotonic() - since > LEASE_SECONDS
        if holder is None or holder.get("released") or _is_dead_here(holder) or silent:
            content = _this_process() | {"claim": uuid.uuid4().hex}
            if bucket.create(_name(generation + 1), _as_bytes(content)):
                _forget_before(bucket, generation)
                return Claim(bucket, generation + 1, content)
            continue  # somebody else was faster
        if (generation, holder) != seen:
            if seen is not None and time.monotonic() >= give_up:
                raise Held(_description(holder))
            seen, since = (generation, holder), time.monotonic()
        if not said:
            said = True
            console.say(f"waiting for {_description(holder)}, which holds {bucket.address}")
        time.sleep(LOOK_SECONDS)


def _newest(bucket: Bucket) -> tuple[int, dict[str, Any] | None]:
    """Generation and content of the claim that counts; 0 and None where there is none."""
    generation = max(map(_generation, bucket.sizes()), default=0)
    content = bucket.read(_name(generation)) if generation else None
    return generation, json.loads(content) if content else None


def _forget_before(bucket: Bucket, generation: int) -> None:
    for name in bucket.sizes():
        if _generation(name) <= generation:
            bucket.delete(name)


def _name(generation: int) -> str:
    return f"{generation:08d}.json"


def _generation(name: str) -> int:
    return int(name.removesuffix(".json"))


def _as_bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()


def _description(holder: dict[str, Any]) -> str:
    return f"process {holder['process']} on {holder['host']}"


# --- whether the process that holds it is one of this machine, and has ended ---------------------


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": _started(os.getpid()),
        "machine": _machine(),
    }


def _machine() -> str | None:
    """Names the process numbers that are seen here; None where that is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(process: int) -> str | None:
    """When a process began, in ticks since this machine did; None where none of the number lives.

    Not psutil's create_time, which is another one when somebody sets the clock.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *others = stat.rpartition(")")[2].split()
    return None if state == "Z" else others[18]


def _is_dead_here(holder: dict[str, Any]) -> bool:
    """Whether it was a process of this machine and is gone: then there is nothing to wait for."""
    here = holder.get("machine") is not None and holder["machine"] == _machine()
    return here and _started(int(holder["process"])) != holder["started"]
