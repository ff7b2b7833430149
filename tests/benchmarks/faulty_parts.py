"""Parts that end in every way, for `tests/benchmarks/test_gpu.py`. Needs nothing but Python."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """As `benchmarks.gpu_parts`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--pids", type=Path)
    options = parser.parse_args()
    if options.part == "raises":
        options.output.write_text(json.dumps({"first": 1}))
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if options.part == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if options.part == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        options.pids.write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    if options.part != "says nothing":
        options.output.write_text(json.dumps({"seconds": options.seconds}))


if __name__ == "__main__":
    main()
