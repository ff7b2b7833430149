"""The project as git has it: what differs from its commit, and a worktree of a commit."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from seq2sweep.config import DECISIVE
from seq2sweep.errors import UserError
from seq2sweep.git_command import GitError, git
from seq2sweep.tracking.recorder import clean_tags

PARAMS = "params.yaml"
CODE = tuple(path for path in DECISIVE if path != PARAMS)
"""What a patch holds; the values of params.yaml are recorded themselves, without secrets."""
# Whatever the user's own settings of `git diff` are.
DIFF = (
    "diff --binary --no-color --no-ext-diff --no-textconv --no-renames --no-relative --unified=3 "
    "--src-prefix=a/ --dst-prefix=b/ HEAD --"
).split()


FILLING = "seq2sweep is filling it"
"""The reason for which a worktree is locked until it has all that it should."""


def changes(project: Path) -> bytes:
    """How the files that determine a result, params.yaml apart, differ from the commit, as a patch.

    Files that git does not know yet are in it. The index stays as it is. Raises GitError.
    """
    new = git(project, "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE)
    with TemporaryDirectory(prefix="seq2sweep-") as name:
        index = Path(name) / "index"
        usual = project / os.fsdecode(git(project, "rev-parse", "--git-path", "index")).strip()
        if usual.exists():
            # With its time: git takes a file that is older, and as long as before, for unchanged.
            shutil.copy2(usual, index)
        for path in filter(None, os.fsdecode(new).split("\0")):
            git(project, "add", "--intent-to-add", "--", path, index=index)
        return git(project, *DIFF, *CODE, index=index)


def files_of(project: Path, patch: bytes) -> list[str]:
    """The files that a patch changes, from the project's folder on. Raises GitError."""
    if not patch.strip():
        return []
    if re.search(rb"^(rename|copy) ", patch, re.MULTILINE):  # git names the new file alone
        raise GitError("it renames or copies files, which no recorded patch does")
    table = os.fsdecode(
        git(project, "apply", "--numstat", "--whitespace=nowarn", "-z", "-", given=patch)
    )
    return sorted(line.split("\t", 2)[2] for line in table.split("\0") if line.count("\t") >= 2)


def holds(project: Path, commit: str, folder: str) -> bool:
    """Whether a commit has a file of a folder of the project, but for git's own; also where the
    commit is not here."""
    try:
        listed = os.fsdecode(
            git(project, "ls-tree", "-r", "-z", "--name-only", commit, "--", folder)
        )
    except GitError:
        return True
    return any(not Path(name).name.startswith(".git") for name in listed.split("\0") if name)


def remotes(project: Path) -> dict[str, str]:
    """The address of each remote by its name, without secrets; none where there is no git."""
    found: dict[str, str] = {}
    with contextlib.suppress(GitError):
        for name in os.fsdecode(git(project, "remote")).splitlines():
            with contextlib.suppress(GitError):  # one may have no address
                found[name] = os.fsdecode(git(project, "remote", "get-url", name)).strip()
    return clean_tags(found)


def is_strange(project: Path, commit: str) -> bool:
    """Whether a commit is here, but in no branch, of a remote too, in no tag and not before HEAD.

    So is one that was fetched by an address, or by its id alone.
    """
    others = ("--not", "--branches", "--remotes", "--tags", "HEAD")
    try:
        return _is_here(project, commit) and bool(
            git(project, "rev-list", "--max-count=1", commit, *others)
        )
    except GitError:
        return True


def _is_here(project: Path, commit: str) -> bool:
    try:
        git(project, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except GitError:
        return False
    return True


def add_worktree(project: Path, folder: Path, commit: str, come_from: str | None) -> Path:
    """Make a worktree of a commit at `folder`, locked as FILLING; gives the project's folder in it.

    come_from: where the commit can be fetched from, as a record has it: a stranger's text, which is
    compared and not printed. Raises UserError where the commit, or git, is not there.
    """
    place = folder / prefix(project)
    if not _is_here(project, commit):
        known = [name for name, address in remotes(project).items() if address == come_from]
        shallow = git(project, "rev-parse", "--is-shallow-repository").strip() == b"true"
        raise UserError(
            f"the run's commit {commit} is not in this repository: git fetch "
            f"{'--unshallow ' * shallow}{shlex.quote([*known, 'REMOTE'][0])}, then run this again"
        )
    # Git locks it before anything else. Twice --force: in the place of one whose folder has gone.
    # Others that have gone stay known: their disk may only be away.
    how = ("--quiet", "--detach", "--force", "--force", "--lock", "--reason", FILLING)
    try:
        git(project, "worktree", "add", *how, str(folder.resolve()), commit)
    except GitError as error:
        raise UserError(f"git makes no worktree at {folder}: {error}") from None
    return place


def prefix(project: Path) -> str:
    """The project's folder in its repository, usually "". Raises UserError where that is none."""
    try:
        return os.fsdecode(git(project, "rev-parse", "--show-prefix")).strip()
    except GitError as error:
        raise UserError(
            f"{project.resolve()} is no git repository ({error}): run this in a clone of the "
            "project that the run is of"
        ) from None


def is_half_made(project: Path, folder: Path) -> bool:
    """Whether there is a worktree that is still FILLING, whose maker was killed."""
    return _is_worktree(project, folder, f"locked {FILLING}")


def how_to_remove(project: Path, folder: Path) -> str:
    """What a user may do with a folder that is in the way."""
    if _is_worktree(project, folder):
        return f"remove it (git worktree remove --force {shlex.quote(str(folder))})"
    return "move it away"


def _is_worktree(project: Path, folder: Path, *more: str) -> bool:
    """Whether git lists a worktree at a folder, with these lines; not the repository itself."""
    try:
        listed = os.fsdecode(git(project, "worktree", "list", "--porcelain"))
    except GitError:  # no repository
        return False
    entries = (entry.splitlines() for entry in listed.split("\n\n")[1:])
    wanted = {f"worktree {folder.resolve()}", *more}
    return any(wanted <= set(entry) for entry in entries)
