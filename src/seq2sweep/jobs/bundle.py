"""What of the project goes to a cluster with a job: the files that git knows or would.

Data and results are not among them: those go by the storage (results.py). What looks like a secret,
by a file's name or content, is refused: it must not go to a cluster unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seq2sweep.config import DECISIVE
from seq2sweep.errors import UserError, first_of
from seq2sweep.git_command import GitError, git
from seq2sweep.redaction import is_secret_by_name, secret_in
from seq2sweep.tracking import lineage

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
    left_out: dict[str, str]

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
    listed = {path: _unfit(project / path, project) for path in _listed(project)}
    left_out = {_shown(path): why for path, why in listed.items() if why is not None}
    # What is deleted and not committed is still listed.
    there = [path for path, why in listed.items() if why is None and (project / path).exists()]
    sizes = {path: (project / path).stat().st_size for path in sorted(there)}
    _check_size(sizes)
    _refuse([f"{path} (by its name)" for path in sizes if is_secret_by_name(path)])
    files = {path: (project / path).read_bytes() for path in sizes}
    _refuse([f"{path} ({what})" for path in files if (what := secret_in(files[path], path))])
    return Upload(files, left_out)


def commit(project: Path) -> str:
    """The commit's id, `unknown` before the first.

    `-dirty` stands behind it when files that determine a result differ from it, but for those of
    NOT_CODE, which are recorded themselves: a run of a dirty commit cannot be made again.
    This is what $SEQ2SWEEP_COMMIT says to the stages, which find no git in a cluster.
    """
    code = lineage.code(project, [path for path in DECISIVE if path not in NOT_CODE])
    return code["git.commit"] + "-dirty" * (code["git.dirty"] == "true")


def _listed(project: Path) -> list[str]:
    both = ("ls-files", "-z", "--cached", "--others")
    listed = set(os.fsdecode(_git(project, *both, "--exclude-standard")).split("\0")) - {""}
    if (project / IGNORE).is_file():
        # Not by -X, whose patterns begin at the top of a repository that the project is a part of.
        ignored = _git(project, *both, "--ignored", f"--exclude-per-directory={IGNORE}")
        listed -= set(os.fsdecode(ignored).split("\0"))
    return sorted(listed)


def _shown(path: str) -> str:
    """As text that can be printed, whatever bytes the name has."""
    return path.encode(errors="backslashreplace").decode()


def _unfit(file: Path, project: Path) -> str | None:
    name = str(file.relative_to(project))
    if _shown(name) != name:
        return "a name that is no UTF-8"
    if file.is_symlink():
        # Also a link to itself, and one into a folder of somebody else's.
        if not os.path.isfile(file):
            return "a link to a folder, or to nothing"
        if not file.resolve().is_relative_to(project.resolve()):
            return "a link out of the project"
    elif file.is_dir():
        return "a git repository of its own"
    elif _takes_our_output(file):
        return "this command writes to it"
    return None


def _takes_our_output(file: Path) -> bool:
    """As nohup.out does: with it the job would be another one at the next call."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # closed, or deleted meanwhile
            if os.path.samestat(file.stat(), os.fstat(stream)):
                return True
    return False


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
        raise UserError(
            f"what looks like a secret would be uploaded: {first_of(found)}: {MEND}, or move the "
            "secret out of the project"
        )


def mebibytes(size: int) -> str:
    """`1.5 MiB`."""
    return f"{size / 2**20:.1f} MiB"


def _git(project: Path, *arguments: str) -> bytes:
    try:
        return git(project, *arguments)
    except GitError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UserError(
                "git, which lists the files to upload, is not installed: install it"
            ) from None
        raise UserError(
            f"git decides what is uploaded, and says `{error}`: mend that or, where the project is "
            "no repository yet, make it one by `git init` (nothing has to be committed)"
        ) from None
