"""What a person sees: banners, progress bars, one-line errors, quiet third parties."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def say(text: str) -> None:
    """Print a line at once, also when the output goes to a pipe or file.

    A progress bar steps aside for it; threads may speak at the same time.
    """
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def banner(stage: str, about: str) -> None:
    """Announce a stage."""
    say(f"\n== {stage} · {about}")


def progress(items: Iterable[T], what: str, unit: str, total: int | None = None) -> Iterable[T]:
    """Iterate with a bar that shows rate and time left."""
    return tqdm(items, total=total, **bar(what, unit))


def bar(what: str, unit: str) -> dict[str, Any]:
    """How every progress bar looks, for tqdm: nothing is shown of what takes under a second.

    Without a terminal a line every few seconds is enough, so that log files stay readable.
    """
    interactive = sys.stderr.isatty()
    return {
        "desc": what,
        "unit": f" {unit}",
        "delay": 1,
        "mininterval": 0.2 if interactive else 5,
        "unit_scale": True,
        "leave": True,
        "dynamic_ncols": interactive,
    }


def duration(seconds: float) -> str:
    """`75` becomes `1m15s`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{left:02d}s" if minutes else f"{left}s"


def quiet_environment() -> None:
    """Switch off telemetry and chatter of Ray, MLflow and DVC, and let compute threads be polite.

    Must come before those libraries, and torch, are imported.

    What the user set is left alone.
    """
    for name, value in {
        "DO_NOT_TRACK": "1",
        "DVC_NO_ANALYTICS": "1",
        "GIT_PYTHON_REFRESH": "quiet",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Compute threads that wait by spinning slow each other down beside any other program.
        "OMP_WAIT_POLICY": "passive",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }.items():
        os.environ.setdefault(name, value)
