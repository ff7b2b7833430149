"""The one exception that means "the user's input is wrong", and what a disk's errors mean."""

import errno

EXIT_FAILURE = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Numbers of an OSError that the user can mend: by making room, or by another folder or owner."""


class UserError(Exception):
    """The input cannot be used; the message names what is at fault and how to mend it.

    Command line and stages print the message as one line and exit with status 2, without a
    traceback. Anything else that goes wrong is a bug and keeps its traceback.
    """


class Failure(Exception):  # noqa: N818 - it names the outcome, as UserError names the cause
    """Something went wrong that is not the user's input, and the message says all there is to say.

    Printed as one line, exit status 1; details are where the message points.
    unclean: a library of this process is in a state that Python's own end would not survive.
    """

    unclean = False
