"""Ports that servers of this machine listen on."""

from __future__ import annotations

import errno
import os
import socket

from seq2sweep.errors import UserError

CHANGES_NO_RESULT = "where a server listens"


def port_number(text: str, least: int = 1) -> int:
    """A port as the user gives it. Raises UserError."""
    if text.isascii() and text.isdecimal() and least <= int(text) < 2**16:
        return int(text)
    raise UserError(f"the port must be a number from {least} to 65535, not {text!r}")


def listening(host: str, port: int, chosen_by: str) -> socket.socket:
    """A socket that listens there; at port 0 on any that is free.

    chosen_by: what the user puts before another port. Raises UserError.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no name of a machine"
        raise _no_address(host, reason) from None
    try:
        # As servers do, it may have a port whose server has ended a moment ago.
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise _no_address(host, os.strerror(error.errno)) from None
        another = f"{chosen_by}{max(1024, port % 65535 + 1)}"
        if error.errno in (errno.EACCES, errno.EPERM):  # as Linux answers for ports below 1024
            raise UserError(
                f"cannot listen on {host}:{port} ({error.strerror}): choose another: {another}"
            ) from None
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror}): end the program that has this "
            f"port, or choose another: {another}"
        ) from None


def _no_address(host: str, reason: str) -> UserError:
    return UserError(f"cannot listen on {host} ({reason}): give an address of this machine")
