"""The `seq2sweep` command."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import shtab

from seq2sweep import commands, console
from seq2sweep.errors import (
    EXIT_INTERRUPTED,
    OperationalError,
    UserError,
    ending,
    leave_if_unclean,
)
from seq2sweep.jobs.dvc_stages import require_own_code
from seq2sweep.redaction import redact


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand. Exit status: 0 done, 1 it failed, 2 the input is wrong (one line says
    what), 75 interrupted."""
    console.quiet_environment()
    console.ready_streams()
    # The interpreter's end would walk all that libraries have made, for a second.
    atexit.register(gc.freeze)
    options = parser().parse_args(arguments)
    try:
        require_own_code(Path())
        _, work = commands.COMMANDS[options.command]
        work(options)
        # Here rather than at exit, where nobody would hear of a closed pipe or a full disk.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output (`| head`) has seen enough.
        _leave_standard_output()
    except (UserError, OperationalError, OSError) as error:
        line, status = ending(error)
        print(redact(f"seq2sweep {options.command}: {line}"), file=sys.stderr)
        leave_if_unclean(error, status)
        if isinstance(error, OSError):
            _leave_standard_output()
        return status
    return 0


def _leave_standard_output() -> None:
    """Keep the interpreter from flushing once more, at its end, into what cannot be written."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """Of the command and all its subcommands."""
    made = argparse.ArgumentParser(
        prog="seq2sweep",
        description="The Transformer paper as a living experiment. `dvc repro` runs the pipeline.",
    )
    made.add_argument(
        "--version", action="version", version=f"%(prog)s {console.installed_version()}"
    )
    shtab.add_argument_to(
        made,
        "--print-completion",
        help="print the completion of this command for a shell",
    )
    added = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add, _ in commands.COMMANDS.values():
        add(added)
    for name, command in added.choices.items():
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.epilog = "\n  ".join(["examples:", *commands.examples(name)])
    return made


if __name__ == "__main__":
    sys.exit(main())
