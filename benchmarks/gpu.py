"""All that is to be known of one GPU, in less than eight minutes: `python -m benchmarks.gpu`.

Runs from a bare checkout (`PYTHONPATH=src`) with torch, numpy, pyyaml, safetensors and
sentencepiece. Each part runs in a process of its own, with a limit to its time: one that fails, is
killed or hangs is stated, and the next one goes on. After each part all results so far are in the
JSON file, whole. The parts: see `benchmarks.gpu_parts`.

On a CPU (`--device cpu --tiny`) it shows that it works, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep.storage.atomic import write_json

ALL_SECONDS = 470.0
PARTS = {
    "machine": 20.0,
    "ceilings": 25.0,
    "check": 80.0,
    "base": 70.0,
    "big": 75.0,
    "passes": 60.0,
    "profile": 50.0,
    "decoding": 40.0,
    "rows": 50.0,
    "checkpoint": 25.0,
    "compiled": 100.0,
}
"""Each part's limit, in seconds, its start included; the last ones get what is left."""
TOO_SHORT = 5.0
"""Seconds in which no part can do anything."""
ERROR_LINES = 5


def main() -> int:
    """Measure; the exit status is 0 when every part has a result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to see that it works")
    parser.add_argument("--seconds", type=float, default=ALL_SECONDS, help="for all of it")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="where results go")
    parser.add_argument("--check", action="store_true", help="only whether it computes rightly")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    options = parser.parse_args()
    wanted = ["check"] if options.check else options.parts
    parts = {name: limit for name, limit in PARTS.items() if name in wanted}
    arguments = ["--device", options.device, *(["--tiny"] if options.tiny else [])]
    results = measure("benchmarks.gpu_parts", parts, arguments, options.json, options.seconds)
    return 0 if all(part["status"] == "done" for part in results["parts"].values()) else 1


def measure(
    module: str,
    parts: Mapping[str, float],
    arguments: Sequence[str],
    file: Path,
    seconds: float,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> dict[str, Any]:
    """Run `python -m module PART` for each part, and write what they find to `file` after each.

    parts: each one's limit in seconds; seconds: for all together. Returns what is in the file:
    `parts`, each with its `status` (done, failed, killed, timed out, no time left), `seconds`, and
    `result` or `error`.
    """
    began = time.monotonic()
    results: dict[str, Any] = {"command": [module, *arguments], "parts": {}}
    for name, limit in parts.items():
        left = seconds - (time.monotonic() - began)
        if left < TOO_SHORT:
            found: dict[str, Any] = {"status": "no time left"}
        else:
            found = _part(module, name, arguments, min(limit, left))
        results["parts"][name] = found
        results["seconds"] = time.monotonic() - began
        write_json(file, results)
        say(f"{name}: {found['status']}, {found.get('result', found.get('error', ''))}")
    return results


def _part(module: str, name: str, arguments: Sequence[str], limit: float) -> dict[str, Any]:
    """One part, in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [sys.executable, "-m", module, name, "--output", str(output)]
        command += ["--seconds", str(limit), *arguments]
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status = process.wait(limit)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            finally:
                # With all that it has started, also when this process is interrupted.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # Not for ever: a process that hangs in a driver cannot be killed.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TOO_SHORT)
        found = _found(output)
        lines = log.read_text(errors="replace").splitlines()
    seconds = time.monotonic() - began
    error = "\n".join(lines[-ERROR_LINES:])
    if late:
        ended = {"status": "timed out", "error": f"not done within {limit:.0f} s\n{error}"}
    elif status < 0:
        ended = {"status": "killed", "error": f"by signal {-status}\n{error}"}
    elif status or found is None:
        ended = {"status": "failed", "error": error or f"exit status {status}"}
    else:
        ended = {"status": "done"}
    # What a part had found before it ended otherwise is kept.
    return ended | {"seconds": seconds} | ({} if found is None else {"result": found})


def _found(output: Path) -> Any:
    try:
        return json.loads(output.read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main())
