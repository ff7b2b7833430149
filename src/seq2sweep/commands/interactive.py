"""`seq2sweep translate --interactive`: lines as a person types them."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator

from seq2sweep.commands.trained import opened_together
from seq2sweep.errors import UserError


def interact(options: argparse.Namespace) -> None:
    """Translate line by line until the end of the input, or Ctrl-C."""
    if sys.stdin is None:
        raise UserError("standard input is closed: there is nobody to type")
    translator = opened_together(options)
    from seq2sweep.hardware import memory_by

    try:
        for line in _typed():
            if translator.vocabulary.symbols is not None:  # trees come whole
                print(translator.translate([line])[0][0].text, end="")
            else:
                with memory_by("type a shorter line, or lower evaluate.beam"):
                    for part in translator.stream([line]):
                        print(part.text, end="", flush=True)
            print(flush=True)
    except KeyboardInterrupt:
        print()


def _typed() -> Iterator[str]:
    """The lines of standard input as they come; on a terminal with a prompt and a history."""
    from seq2sweep.data.reading import lines_of

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from lines_of(sys.stdin.buffer, "standard input")
        return
    with contextlib.suppress(ImportError):  # not every Python has it
        import readline  # noqa: F401  # `input` then edits lines and remembers them
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
