"""`translate --interactive`, as a person and as a program would use it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.evaluate.translator import Translator

from ..conftest import Corpus
from .test_translator import config, folder, project

__all__ = ["config", "folder", "project"]
pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def command(folder: Path, tiny_corpus: Corpus) -> list[str]:
    trained = ["--weights", str(folder), "--vocabulary", str(tiny_corpus.vocabulary)]
    return ["translate", "--interactive", *trained]


@pytest.fixture
def expected(config: Config, folder: Path, tiny_corpus: Corpus) -> dict[str, str]:
    translator = Translator(folder, tiny_corpus.vocabulary, config.evaluate)
    lines = ["alpha beta", "", "ROT grün"]
    found = translator.translate(lines)
    return {line: best.text for line, (best, *_) in zip(lines, found, strict=True)}


def program(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "seq2sweep.cli", *command]


def test_each_line_is_answered_before_the_next(
    command: list[str], expected: dict[str, str]
) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(program(command), stdin=pipe, stdout=pipe, encoding="utf-8") as running:
        assert running.stdin
        assert running.stdout
        for line, text in expected.items():
            running.stdin.write(f"{line}\n")
            running.stdin.flush()
            assert running.stdout.readline() == f"{text}\n"
        running.stdin.close()
        assert running.stdout.read() == ""
        assert running.wait() == 0


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.screen, inside = pty.openpty()
        self.running = subprocess.Popen(
            program(command), stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=os.environ | {"TERM": "dumb"},
        )  # fmt: skip
        os.close(inside)

    def read(self, until: str = "") -> str:
        """What it shows up to its next prompt, or to its end."""
        shown = b""
        while not (until and shown.decode(errors="replace").endswith(until)):
            assert select.select([self.screen], [], [], 100)[0], f"nothing more after {shown!r}"
            try:
                block = os.read(self.screen, 4096)
            except OSError:  # it has ended
                break
            if not block:
                break
            shown += block
        return re.sub(r"\x1b\[\?2004[hl]\r?", "", shown.decode(errors="replace"))

    def type(self, keys: bytes) -> str:
        os.write(self.screen, keys)
        # At the start of a line: while keys come in, the prompt is drawn again in its place.
        return self.read("\r\n> ")


@pytest.fixture
def terminal(command: list[str]) -> Iterator[Terminal]:
    made = Terminal(command)
    yield made
    made.running.kill()
    made.running.wait()
    os.close(made.screen)


@pytest.mark.parametrize("last", [b"\x04", b"\x03"], ids=["ctrl-d", "ctrl-c"])
def test_a_terminal_has_a_prompt_and_a_history(
    terminal: Terminal, expected: dict[str, str], last: bytes
) -> None:
    assert terminal.read("> ") == "> "
    answer = f"{expected['alpha beta']}\r\n> "
    assert terminal.type(b"alpha beta\r").endswith(f"\r\n{answer}")
    assert terminal.type("ROT gr\u00fcn\r".encode()).endswith(f"\r\n{expected['ROT grün']}\r\n> ")
    # The line before the last one, by the arrow keys.
    assert terminal.type(b"\x1b[A\x1b[A\r").endswith(f"\r\n{answer}")
    assert "Traceback" not in terminal.type(b"\xff\xfe\r")
    os.write(terminal.screen, last)
    # Python sees a Ctrl-C that comes between the prompt and its waiting for keys with the next key.
    while not select.select([terminal.screen], [], [], 5)[0]:
        os.write(terminal.screen, last)
    assert terminal.read().strip() in ("", "^C")
    assert terminal.running.wait() == 0


def test_it_goes_alone(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for further in (["lines"], ["--n-best", "1"], ["--tasks"], ["--engine", "ctranslate2"]):
        assert main([*command, *further]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--interactive goes without FILE, --n-best, --tasks and --engine" in line
