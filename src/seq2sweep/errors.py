"""The one exception that means "the user's input is wrong", and what errors of the system mean."""

from __future__ import annotations

import difflib
import errno
import os
import sys
from collections.abc import Iterable, Sequence

CHANGES_NO_RESULT = "how a mistake or a failure is told"

EXIT_FAILURE = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Numbers of an OSError that the user can mend: by making room, or by another folder or owner."""

NO_MEMORY = (
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "STATUS_ALLOC_FAILED",
    "Failed to CUDA calloc",
)
"""Words of torch, the system, C++, cuBLAS, cuDNN and NCCL."""

_RIGHTS = "change its rights or owner, or name another place"
PATH_REMEDIES = {
    errno.ENOENT: "check its name and folder; what a stage makes, `dvc repro` makes",
    errno.ELOOP: "its links lead to each other: remove them",
    errno.ENOTDIR: "there is a file or a link in the place of a folder: move it away",
    errno.EISDIR: "there is a folder in the place of a file: move it away",
    errno.EEXIST: "move away what is there",
    errno.ENOTEMPTY: "move away what is there",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EINVAL: "give another path",
    errno.ENXIO: "give a regular file",
    errno.ENODEV: "give a regular file",
    errno.ETXTBSY: "end the program that uses it",
    **dict.fromkeys(NO_RIGHT, _RIGHTS),
}
"""Numbers of an OSError that says a path is not what it has to be, with what to do about it."""


class UserError(Exception):
    """The input cannot be used; the message names what is at fault and how to mend it.

    Command line and stages print the message as one line and exit with status 2, without a
    traceback. Anything else that goes wrong is a bug and keeps its traceback.
    lines: the message is a list, of one archive a line; a line end in it is not from a file's name.
    """

    lines = False


class NodeError(UserError):
    """A machine lacks what any work there needs: keys of the storage, its clock, a private folder,
    the data that the run is of.

    Another trial would fail in the same way, so a sweep ends, as where a disk is full.
    """


class OperationalError(Exception):
    """Something went wrong that is not the user's input, and the message says all there is to say.

    Printed as one line, exit status 1; details are where the message points.
    unclean: a library of this process is in a state that Python's own end would not survive.
    """

    unclean = False


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`, did you mean layers?` for `layrs`; nothing where nothing known is spelt that way.

    cutoff: how alike the two must be, from 0 to 1.
    """
    spelt = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name[:200].lower(), spelt, n=1, cutoff=cutoff)
    return f", did you mean {spelt[close[0]]}?" if close else ""


def ending(error: UserError | OperationalError | OSError) -> tuple[str, int]:
    """What to print of an error that ends a command or a stage, one line, and its exit status.

    An OSError that names a path is the user's to mend, if PATH_REMEDIES knows it; else (a disk
    that is full or broken, a network that is away) it is a failure.
    """
    if not isinstance(error, OSError):
        mistake = isinstance(error, UserError)
        parts = (
            str(error).split("\n") if isinstance(error, UserError) and error.lines else [str(error)]
        )
        return "\n".join(map(_one_line, parts)), EXIT_USER_ERROR if mistake else EXIT_FAILURE
    said = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        # Of a file that is open it is not known which: what standard output goes to may be one.
        where = f" (in {os.getcwd()}, or where the output goes)" if error.errno in NO_ROOM else ""
    else:
        # Of a copy the second one is where it goes.
        full = error.filename2 if error.errno in NO_ROOM else None
        where = f": {_shortened(os.fspath(full or error.filename))}"
    if error.filename is not None and error.errno in PATH_REMEDIES:
        return _one_line(f"{said}{where}; {PATH_REMEDIES[error.errno]}"), EXIT_USER_ERROR
    remedy = "make room there and run it again" if error.errno in NO_ROOM else "run it again"
    return _one_line(f"{said}{where}; {remedy}"), EXIT_FAILURE


def leave_if_unclean(error: Exception, status: int) -> None:
    """End this process at once, once its error is printed, where Python's own end would crash."""
    if isinstance(error, OperationalError) and error.unclean:
        sys.stderr.flush()
        os._exit(status)


def is_refused_memory(error: BaseException) -> bool:
    """Whether a process was refused memory, of the CPU or of a GPU."""
    # Not imported: it takes seconds, and where nobody has loaded it there is no error of its.
    torch = sys.modules.get("torch")
    if isinstance(error, (MemoryError, getattr(torch, "OutOfMemoryError", MemoryError))):
        return True
    return any(words in str(error) for words in NO_MEMORY)


def first_of(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def first_line(error: BaseException) -> str:
    """What it says, without further lines; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def kind_and_line(error: BaseException) -> str:
    """`ValueError: what it says`, without further lines; its type alone where it says nothing."""
    kind = type(error).__name__
    return f"{kind}: {first_line(error)}" if str(error).strip() else kind


def _shortened(name: str | bytes | int) -> str:
    text = os.fsdecode(name) if isinstance(name, str | bytes) else f"file descriptor {name}"
    return text if len(text) <= 300 else f"{text[:200]}... ({len(text)} characters)"


def _one_line(text: str) -> str:
    """With control characters, such as the ends of lines in a file's name, written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
