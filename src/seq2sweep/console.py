"""What a person sees: banners, progress bars, one-line errors, quiet third parties."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO, TypeVar

CHANGES_NO_RESULT = "what a person sees while it runs"

T = TypeVar("T")

SILENT_SECONDS = 50.0
"""After so long without a line it is said what is being done: nobody is to wait for a minute not
knowing whether anything happens."""
LOOK_SECONDS = 2.0


class _Lasting(io.FileIO):
    """A stream whose reader may go: what cannot be written is thrown away, and the work goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
        except OSError:  # a terminal that has gone, or a full disk, which may have room again
            pass
        return len(data)


def ready_streams(*, lasting: bool = False) -> None:
    """Standard output and errors that take any text, as UTF-8, and that are open.

    Files are UTF-8 here whatever the locale, so what goes through a pipe is as well; half a
    surrogate pair (of a file's name that is not UTF-8) is written as an escape. One that was closed
    leads to nowhere, as the next file opened would take its number. Work goes on when the reader of
    errors and progress has gone, a pipe or a terminal, and when the disk of a log is full; lasting:
    when that of standard output has, too, as under `| head`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one: those before it are open by now.
            os.open(os.devnull, os.O_RDWR)
        if number:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__") or not isinstance(stream, io.TextIOWrapper):
            continue  # tests put streams of their own there
        if lasting or name == "stderr":
            stream.flush()
            raw = io.BufferedWriter(_Lasting(stream.fileno(), "w", closefd=False))
            stream = io.TextIOWrapper(raw, line_buffering=True, write_through=name == "stderr")
            setattr(sys, name, stream)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def say(text: str, end: str = "\n", file: TextIO | None = None) -> None:
    """Print a line at once, also when the output goes to a pipe or file; None: standard output.

    A progress bar steps aside for it; threads may speak at the same time.
    """
    file = file or sys.stdout
    with _speaking:
        if file is sys.stderr:
            file = _errors or file
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            tqdm.write(text, file=file, end=end)
        else:  # nobody has a bar; benchmarks.gpu runs where tqdm is not installed
            file.write(text + end)
        file.flush()
    _heartbeat.said = time.monotonic()


_speaking = threading.RLock()  # a signal's handler may speak while its thread does
_errors: TextIO | None = None


@contextlib.contextmanager
def errors_said_on(descriptor: int) -> Iterator[None]:
    """What is said on standard errors inside goes to `descriptor`: 2 is for the noise of others."""
    global _errors
    raw = io.BufferedWriter(_Lasting(descriptor, "w", closefd=False))
    _errors = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        with _speaking:  # else a thread might still speak when the descriptor is another's
            _errors = None


class _Heartbeat:
    """What this process does, since when, and when it last said anything (times are monotonic)."""

    def __init__(self) -> None:
        self.doing, self.since, self.said = "working", time.monotonic(), time.monotonic()
        self.beating = False

    def beat(self, ending: threading.Event, file: TextIO | None) -> None:
        while not ending.wait(min(LOOK_SECONDS, SILENT_SECONDS / 2)):
            if time.monotonic() - self.said >= SILENT_SECONDS:
                say(f"{self.doing}, {duration(time.monotonic() - self.since)}", file=file)


_heartbeat = _Heartbeat()


def doing(what: str) -> None:
    """What to say when nothing else is said for long, such as `waiting for 2 workers to start`."""
    if what != _heartbeat.doing:
        _heartbeat.doing, _heartbeat.since = what, time.monotonic()


def doing_now() -> str:
    """What `doing` was last told."""
    return _heartbeat.doing


@contextlib.contextmanager
def never_silent(what: str, file: TextIO | None = None) -> Iterator[None]:
    """Inside, a line comes every minute at least: what is being done, and for how long.

    what: is being done, unless `doing` says otherwise; file: where to, None: standard output. A
    block inside of another one has no effect.
    """
    if _heartbeat.beating:
        yield
        return
    ending = threading.Event()
    thread = threading.Thread(
        target=_heartbeat.beat, args=(ending, file), name="heartbeat", daemon=True
    )
    _heartbeat.said = time.monotonic()
    doing(what)
    _heartbeat.beating = True
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        _heartbeat.beating = False


def progress(items: Iterable[T], what: str, unit: str, total: int | None = None) -> Iterable[T]:
    """Iterate with a bar that shows rate and time left."""
    from tqdm import tqdm

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
    minutes, left = divmod(max(0, round(seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{left:02d}s" if minutes else f"{left}s"


def perplexity(value: float, decimals: int = 2) -> str:
    """`4.92`; `6.3e+41` of a training that has diverged, which would fill the line."""
    return f"{value:.{decimals}f}" if not value >= 1e6 else f"{value:.1e}"


def columns(rows: Sequence[Sequence[str]], aligned: str | None = None) -> list[str]:
    """A table as lines, each column as wide as it must be; aligned: `<` or `>` for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    looks = [*map("{}{}".format, aligned or "<" * len(widths), widths)]
    return ["  ".join(map(format, row, looks)).rstrip() for row in rows]


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


def installed_version() -> str:
    """Of this package; in words where it is not installed, as in a job that has the folder only."""
    try:
        return version("seq2sweep")
    except PackageNotFoundError:
        return "from a folder, not installed"
