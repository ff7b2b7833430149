"""The subcommands: each with its arguments, its work, and examples.

What takes long to load is imported where it is used: `seq2sweep --help` starts at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from seq2sweep.commands import analysis, models, project
from seq2sweep.commands.shared import Commands

COMMANDS: Mapping[str, tuple[Callable[[Commands], None], Callable[[argparse.Namespace], None]]] = {
    **project.COMMANDS,
    **models.COMMANDS,
    **analysis.COMMANDS,
}
"""What adds its parser, and what does the work, by name."""

EXAMPLES = project.EXAMPLES + models.EXAMPLES + analysis.EXAMPLES
"""For each subcommand's --help those that call it; a test parses every one."""


def examples(name: str) -> list[str]:
    """Those that call a subcommand."""
    return [line for line in EXAMPLES if f"seq2sweep {name} " in f"{line} "]
