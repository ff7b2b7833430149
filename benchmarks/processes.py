"""Processes that answer questions in turn: each contender of a benchmark has one of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

PAUSE = 0.3
"""Seconds until the threads of the process before have gone to sleep."""


class Contender:
    """A process of `serve`. It fails for good: from then on it only says why, as `absent`."""

    def __init__(self, *arguments: str) -> None:
        """arguments: of Python."""
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def ask(self, question: Any) -> dict[str, Any]:
        """What it answers to this; both are as JSON has them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        time.sleep(PAUSE)
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            told = self.process.stdout.readline()
        except BrokenPipeError:
            told = ""
        if told:
            answer: dict[str, Any] = json.loads(told)
            return answer
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["it ended without a word"]
        return {"absent": lines[-1]}

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def serve(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answer each line of standard input. What libraries print goes to standard error."""
    with os.fdopen(os.dup(1), "w") as out, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        for line in sys.stdin:
            out.write(json.dumps(answer(json.loads(line))) + "\n")
            out.flush()
