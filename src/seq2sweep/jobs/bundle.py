"""What of the project goes to a cluster with a job: the files that git knows or would.

Data and results are not among them: those go by the storage (parcels.py).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seq2sweep.config import DECISIVE
from seq2sweep.errors import UserError
from seq2sweep.jobs import secrets

LARGEST = 20 * 2**20
"""Bytes of all files. Ray takes some hundreds of MiB, but keeps them in the head's memory, and code
is far smaller: whoever is above has forgotten something."""
IGNORE = ".rayignore"
MEND = f"name it in .gitignore or {IGNORE}"
NOT_CODE = ("params.yaml", "dvc.lock")
"""What says no more than params.yaml's values and the data's sums, which count by themselves."""


@dataclass(frozen=True)
class Upload:
    """Content by path, in the order of the paths; and what was left out, with the reason."""

    files: dict[str, bytes]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(map(len, self.files.values()))

    def fingerprint(self) -> str:
        """sha256 (hex) of names and content: neither times nor the commit are part of it."""
        code = hashlib.sha256()
        for path, content in self.files.items():
            if path not in NOT_CODE:
                code.update(f"{path}\0{len(content)}\0".encode() + content)
        return code.hexdigest()


def write_zip(file: Path, files: Mapping[str, bytes]) -> None:
    """Write files as an archive: the same bytes for the same content."""
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in sorted(files.items()):
            # Without a time, that of 1980.
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)


def collect(project: Path) -> Upload:
    """Read all files that go to a cluster.

    Raises UserError where there is no git, above LARGEST, and for what looks like a secret.
    """
    left_out: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for path in _listed(project):
        reason = _unfit(project, path)
        if reason is not None:
            left_out[path] = reason
        elif (project / path).exists():  # what is deleted and not committed is still listed
            sizes[path] = (project / path).stat().st_size
    _check_size(sizes)
    named = [f"{path} (by its name)" for path in sizes if secrets.by_name(path)]
    _refuse(named)
    files = {path: (project / path).read_bytes() for path in sizes}
    found = {path: secrets.in_content(content) for path, content in files.items()}
    _refuse([f"{path} ({what})" for path, what in found.items() if what is not None])
    return Upload(files, left_out)


def commit(project: Path) -> str:
    """The commit's id, `unknown` before the first.

    `-dirty` stands behind it when files that determine a result differ from it.
    This is what $SEQ2SWEEP_COMMIT says to the stages, which find no git in a cluster.
    """
    try:
        name = _git(project, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    except UserError:
        return "unknown"
    changes = _git(project, "status", "--porcelain", "--untracked-files=all", "--", *DECISIVE)
    return name + "-dirty" * bool(changes)


def _listed(project: Path) -> list[str]:
    excluded = ["-X", IGNORE] if (project / IGNORE).is_file() else []
    paths = _git(project, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *excluded)
    listed = set(os.fsdecode(paths).split("\0")) - {""}
    if excluded:
        # For git what is tracked is never ignored.
        tracked = _git(project, "ls-files", "-z", "--cached", "--ignored", *excluded)
        listed -= set(os.fsdecode(tracked).split("\0"))
    return sorted(listed)


def _unfit(project: Path, path: str) -> str | None:
    file = project / path
    if file.is_symlink():
        if not file.resolve().is_relative_to(project.resolve()):
            return "a link out of the project"
        if not file.is_file():
            return "a link to a folder, or to nothing"
    elif file.is_dir():
        return "a git repository of its own"
    return None


def _check_size(sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total > LARGEST:
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
        named = ", ".join(f"{path} ({mebibytes(size)})" for path, size in largest)
        raise UserError(
            f"{mebibytes(total)} of files would be uploaded, and at most {mebibytes(LARGEST)} may "
            f"be; the largest are {named}: for each that is no code {MEND}"
        )


def _refuse(found: list[str]) -> None:
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise UserError(
            f"what looks like a secret would be uploaded: {', '.join(found[:3])}{more}: {MEND}, "
            "or move the secret out of the project"
        )


def mebibytes(size: int) -> str:
    """`1.5 MiB`."""
    return f"{size / 2**20:.1f} MiB"


def _git(project: Path, *arguments: str) -> bytes:
    # Inside a hook, git's own variables point at another repository or index.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(project), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=environment)
    except FileNotFoundError:
        raise UserError("git is missing, which says what is uploaded: install it") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"git {arguments[0]} failed"
        raise UserError(
            f"git decides what is uploaded, and says `{reason}`: make the project a repository by "
            "`git init` (nothing has to be committed)"
        )
    return done.stdout
