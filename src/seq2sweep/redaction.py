"""Secrets: found by one parser in the addresses of all that is printed, recorded or uploaded, and
by name and content in the files of which copies go elsewhere.

In an address they stand in two places: before the `@` (`https://user:password@host`,
`https://token@host`), and in a query (`?password=...`, `&X-Amz-Signature=...`). It ends at white
space.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote_plus

CHANGES_NO_RESULT = "what is masked in what a person reads"

MASK = "***"

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30})?://", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_BETWEEN = re.compile("[\"'<>&]")
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

SECRET_NAMES = (
    ".env .env.* .netrc .pgpass .pypirc .htpasswd *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx "
    "id_rsa* id_dsa* id_ecdsa* id_ed25519* *credentials* auth_token kubeconfig"
).split()
HARMLESS_ENDINGS = (".example", ".sample", ".template", ".pub")

SECRET_CONTENT = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "an AWS key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "an AWS secret": rb"(?i)aws_secret_access_key\W{1,4}[a-z0-9/+]{40}(?![a-z0-9/+])",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})",
    "a GitLab token": rb"\bglpat-[\w-]{20}",
    "a Slack token": rb"\bxox[abeprs]-[\w-]{10}",
    "a Google key": rb"\bAIza[\w-]{35}",
    "a Hugging Face token": rb"\bhf_[A-Za-z0-9]{30}",
    "an API key": rb"\bsk-[\w-]{32}",
}
DVC_SECRETS = re.compile(
    rb"(?m)^[ \t]*(password|token|secret_access_key|session_token|sse_customer_key|account_key"
    rb"|connection_string|sas_token|client_secret|oss_key_secret|gdrive_client_secret)"
    rb"[ \t]*=[ \t]*\S"
)
"""Options of a remote in DVC's config that give access; they belong into .dvc/config.local."""
LOGINS = ("ssh", "git", "sftp", "rsync", "postgresql", "mysql", "mssql")
"""Schemes whose addresses name a user by custom: without a `:` that is no secret."""
_PLACEHOLDER = re.compile(
    r"(?:[^:@/]*:)?(?:[<{$\\\[].*|%(?![0-9a-f]{2}).*|%\w+%|password|passwd|token|secret|)\W*",
    re.IGNORECASE,
)
"""`***`, `$TOKEN`, `{user}`, `%s`, `user:password`: an example, or where a program puts one in. A
password that begins with `%40`, an `@`, is none."""


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
            if (secret := _before_host(text, found, at)) is not None:
                yield secret
                break
        if text.count("://", word.start(), word.end()) > 1:
            yield from _of_each_address(text, word.start(), word.end())


def _before_host(text: str, found: re.Match[str], at: int) -> Secret | None:
    """What stands between a scheme and the `@` at a place, if anything does."""
    scheme = (found[1] or "").lower().partition("+")[0]
    if scheme in _FILES or found.end() >= at:
        return None
    certain = _is_userinfo(text[found.end() : at])
    return Secret(found.end(), at, "a user or password", scheme, certain)


def _of_each_address(text: str, start: int, end: int) -> Iterator[Secret]:
    """Of a word with several: all of it may look like one address, whose `@` is in its path."""
    schemes = list(_SCHEME.finditer(text, start, end))
    ends = [*(found.start() for found in schemes[1:]), end]
    for found, last in zip(schemes, ends, strict=True):
        secret = _before_host(text, found, text.rfind("@", found.end(), last))
        if secret is None:
            continue
        # Behind a quote begins something else, such as a mail's address; unless what stands before
        # it is no host: a user and a password.
        first, *others = _BETWEEN.split(text[secret.start : secret.end], maxsplit=1)
        _, colon, rest = first.partition(":")
        login = bool(colon) and not _PORT.match(rest)
        yield replace(secret, certain=secret.certain and (login or not others))


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


# --- files ---------------------------------------------------------------------------------------


def is_secret_by_name(path: str) -> bool:
    """Whether a file of this name usually holds one."""
    name = PurePosixPath(path).name.lower()
    secret = any(fnmatchcase(name, pattern) for pattern in SECRET_NAMES)
    return secret and not name.endswith(HARMLESS_ENDINGS)


def secret_in(content: bytes, path: str = "") -> str | None:
    """What a file holds and in which line, such as `an AWS key in line 3`; never the secret.

    path: of the file, of which some formats are known.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode()
    if PurePosixPath(path).match(".dvc/config*") and (option := DVC_SECRETS.search(content)):
        line = content.count(b"\n", 0, option.start(1)) + 1
        return f"the {option[1].decode()} of a DVC remote in line {line}"
    for what, pattern in SECRET_CONTENT.items():
        found = re.search(pattern, content)
        if found:
            line = content.count(b"\n", 0, found.start()) + 1
            return f"{what} in line {line}"
    text = content.decode(errors="replace")
    for secret in secrets_in(text):
        value = text[secret.start : secret.end]
        login = ":" not in value and secret.scheme in LOGINS
        if secret.certain and not login and not _PLACEHOLDER.fullmatch(value):
            line = text.count("\n", 0, secret.start) + 1
            return f"an address with {secret.what} in line {line}"
    return None
