"""Ports that nothing can listen on, and what is said of them."""

from __future__ import annotations

import errno
import os
import socket
from unittest.mock import Mock

import pytest

from seq2sweep import ports
from seq2sweep.errors import UserError

TAKEN = "end the program that has this port, or choose another: --port "


@pytest.mark.parametrize(
    ("port", "number", "mend"),
    [
        (80, errno.EACCES, "choose another: --port 1024"),
        (80, errno.EPERM, "choose another: --port 1024"),
        (80, errno.EADDRINUSE, f"{TAKEN}1024"),
        (8000, errno.EADDRINUSE, f"{TAKEN}8001"),
        (65535, errno.EADDRINUSE, f"{TAKEN}1024"),
    ],
)
def test_another_port_is_one_that_every_user_may_have(
    monkeypatch: pytest.MonkeyPatch, port: int, number: int, mend: str
) -> None:
    """The first ones are root's: no program has to have them."""
    refused = OSError(number, os.strerror(number))
    monkeypatch.setattr(socket, "create_server", Mock(side_effect=refused))
    with pytest.raises(UserError) as told:
        ports.listening("127.0.0.1", port, "--port ")
    assert str(told.value) == f"cannot listen on 127.0.0.1:{port} ({os.strerror(number)}): {mend}"
