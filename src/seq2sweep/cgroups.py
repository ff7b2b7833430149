"""The cgroups that a process is in, of version 1 or 2, which limit containers and jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

CHANGES_NO_RESULT = "where the limits of a process lie"

ROOT = Path("/sys/fs/cgroup")


def of_this_process() -> str:
    """Its /proc/PID/cgroup; empty where the system has no cgroups, as macOS."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/cgroup").read_text(errors="replace")
    return ""


def folders(text: str, root: Path, of: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Kind and folder of each group, from the innermost up: a job's limit is often above the group
    of its process. In a container the path may be that of the host, so a folder may not be there.

    text: a process's /proc/PID/cgroup; root: where cgroups are mounted; of: kinds, by the name that
    they have in text and there, which is empty for version 2.
    """
    for line in text.splitlines():
        _, kinds, path = line.split(":", 2)
        for kind in kinds.split(","):
            if kind not in of:
                continue
            top = root / kind
            inner = top / path.lstrip("/")
            for folder in (inner, *inner.parents):
                yield kind, folder
                if folder == top:
                    break
