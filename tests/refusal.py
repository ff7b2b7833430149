"""A command that refuses: one line on standard error, and status 2."""

from __future__ import annotations

import pytest

from seq2sweep.cli import main


def refusal(capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> str:
    """The line, with its end."""
    assert main([command, *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(f"seq2sweep {command}: ")
    assert error.count("\n") == 1
    return error
