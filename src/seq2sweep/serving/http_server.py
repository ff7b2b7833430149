"""The server that `seq2sweep serve` runs until it is told to end."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import sys

import uvicorn

from seq2sweep.console import say
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.ports import listening
from seq2sweep.serving.connections import limits, protocol
from seq2sweep.serving.http_app import Answers, app

TOKEN = "SEQ2SWEEP_TOKEN"
"""The environment variable with the token; an argument could be read by every user."""
SECONDS_TO_DRAIN = 25
"""For requests; then they are given up, and their search ends with its step."""
SECONDS_TO_END = 5
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def serve(translator: Translator, host: str, port: int, token: str | None) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish the requests that are there.

    Raises UserError where nothing can listen, the world could without a token, or no request could
    have this one.
    """
    if not _is_loopback(host) and not token:
        raise UserError(
            f"--host {host} is open to other machines: set {TOKEN} to a secret that they must "
            "send, or leave --host out"
        )
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UserError(
            f"{TOKEN} has a blank or a character that is not printable ASCII, which a header "
            "cannot have: set it to letters, digits and punctuation"
        )
    answers = Answers(translator)
    connections, backlog = limits()
    shown = f"[{host}]" if ":" in host else host
    with listening(host, port, "--port ") as listener:
        config = uvicorn.Config(
            app(answers, token or None, LOOPBACK | {shown.lower()}),
            http=protocol(connections),
            backlog=backlog,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SECONDS_TO_DRAIN,
        )
        say(f"Open http://{shown}:{listener.getsockname()[1]}/   (Ctrl-C ends it)")
        # uvicorn raises the signal again once it has drained.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            ended = answers.batcher.close(SECONDS_TO_END)
            signal.signal(signal.SIGTERM, before)
            if not ended and sys.exc_info()[0] in (None, SystemExit):
                # Python's own end would crash beside a thread that computes (SIGABRT).
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
