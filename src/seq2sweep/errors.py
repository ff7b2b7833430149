"""The one exception that means "the user's input is wrong"."""

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75


class UserError(Exception):
    """The input cannot be used; the message names what is at fault and how to mend it.

    Command line and stages print the message as one line and exit with status 2, without a
    traceback. Anything else that goes wrong is a bug and keeps its traceback.
    """
