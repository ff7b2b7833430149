"""Processes that answer questions in turn: each contender of a benchmark has one of its own."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seq2sweep import console

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
            try:
                answer: dict[str, Any] = json.loads(told)
            except json.JSONDecodeError:
                return {"absent": f"no answer, but: {told.strip()[:200]}"}
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


Turns = list[dict[str, Any]]
"""What a contender answered."""


def in_turns(
    commands: Mapping[str, Sequence[str]], questions: Sequence[Any], warm_up: Any, title: str
) -> dict[str, Turns]:
    """Answers of each contender to all questions, every other one the other way round.

    commands: arguments of Python for each; warm_up: a question whose answers are not kept.
    """
    found: dict[str, Turns] = {name: [] for name in commands}
    with contextlib.ExitStack() as stack:
        running: dict[str, Contender] = {}
        for name in console.progress(commands, f"{title}: start", "contenders", len(commands)):
            running[name] = stack.enter_context(Contender(*commands[name]))
            running[name].ask(warm_up)
        names = list(commands)
        turns = [
            (name, question)
            for turn, question in enumerate(questions)
            for name in names[:: -1 if turn % 2 else 1]
        ]
        for name, question in console.progress(turns, title, "turns", len(turns)):
            found[name].append(running[name].ask(question))
    return found


def absent(*turns: Turns) -> str | None:
    """Why there is nothing to say, if there is not."""
    return next((turn["absent"] for each in turns for turn in each if "absent" in turn), None)


def times(ours: Turns, theirs: Turns) -> dict[str, float]:
    """How many times as fast ours is, turn by turn on the same work."""
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)]
    return {
        "times": statistics.median(ratios),
        "least_times": min(ratios),
        "most_times": max(ratios),
    }
