"""Secrets in addresses: found by one parser, for all that is printed, recorded or uploaded.

They stand in two places: before the `@` (`https://user:password@host`, `https://token@host`), and
in a query (`?password=...`, `&X-Amz-Signature=...`). An address ends at white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_plus

CHANGES_NO_RESULT = "what is masked in what a person reads"

MASK = "***"

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30})?://", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_KEY = re.compile(r"[?&;#]([^=?&;#\s]{1,80})=")
_SECRET_KEY = re.compile(
    "pass|pwd|token|secret|key|credential|signature|session|authorization|^(?:sig|pw|auth|jwt|code|odbc_connect)$",
    re.IGNORECASE,
)
# A password may hold a slash that nobody has quoted; what follows a host's colon is a port.
_PATH = re.compile("[/?#]")
_PORT = re.compile(r"\d*(?:[/?#]|\Z)")
# Their addresses have no host, so an @ is part of a file's name.
_FILES = ("file", "sqlite")


@dataclass(frozen=True)
class Secret:
    """Where a secret stands in a text, and what it is, in words.

    scheme: of its address, in small letters; empty for one in a query. certain: neither an `@` in
    a path, which an unquoted password with a slash in it looks like, nor `;key=` without address.
    """

    start: int
    end: int
    what: str
    scheme: str = ""
    certain: bool = True


def secrets_in(text: str) -> list[Secret]:
    """All secrets in the addresses of a text; they may overlap."""
    return [*_before_hosts(text), *_in_queries(text)]


def redact(text: str) -> str:
    """The text with a mask in place of all secrets of its addresses.

    In doubt more is masked: all before an address's last `@`, and a query's value to its end.
    """
    pieces, position = [], 0
    for secret in sorted(secrets_in(text), key=lambda secret: secret.start):
        if secret.start >= position:
            pieces += [text[position : secret.start], MASK]
        position = max(position, secret.end)
    return "".join([*pieces, text[position:]])


def _before_hosts(text: str) -> Iterator[Secret]:
    for word in _WORD.finditer(text):
        at = text.rfind("@", word.start(), word.end())
        for found in _SCHEME.finditer(text, word.start(), max(at, word.start())):
            scheme = (found[1] or "").lower().partition("+")[0]
            if scheme not in _FILES and found.end() < at:
                certain = _is_userinfo(text[found.end() : at])
                yield Secret(found.end(), at, "a user or password", scheme, certain)
                break


def _is_userinfo(text: str) -> bool:
    """Whether what stands before an `@` cannot be a host with a path."""
    host, colon, rest = text.partition(":")
    if not _PATH.search(text):
        return True
    return bool(colon) and not _PATH.search(host) and not _PORT.match(rest)


def _in_queries(text: str) -> Iterator[Secret]:
    for word in _WORD.finditer(text):
        address = text.find("://", word.start(), word.end())
        position = word.start()
        while found := _KEY.search(text, position, word.end()):
            position = found.end()
            key = unquote_plus(found[1])
            if _SECRET_KEY.search(key):
                end = text.find("&", position, word.end())
                position = word.end() if end < 0 else end
                if position > found.end():
                    certain = 0 <= address < found.start()
                    what = f"a secret in its query ({key})"
                    yield Secret(found.end(), position, what, certain=certain)
