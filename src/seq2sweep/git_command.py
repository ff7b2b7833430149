"""git, called for a project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CHANGES_NO_RESULT = "says which code it is"


class GitError(Exception):
    """git failed, or is not there; the message is the line of what it said that has the reason."""


def git(
    folder: Path,
    *arguments: str,
    given: bytes = b"",
    index: Path | None = None,
    seconds: float | None = None,
) -> bytes:
    """What git prints in a folder; given: its standard input; index: in the place of the usual one;
    seconds: how long it may take.

    Raises GitError, of which a FileNotFoundError is the cause where git is not installed.
    """
    # Inside a hook, git's own variables point at another repository or index.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "--no-optional-locks", "--literal-pathspecs", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, env=environment, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reasons = [line for line in said if line.startswith(("fatal:", "error:"))]
        # Advice may come after it, and it may be in another language.
        raise GitError([*reasons[:1], *said[-1:], f"git {arguments[0]} failed"][0])
    return done.stdout
