"""What looks like a secret, by a file's name or content: it must not go to a cluster unnoticed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from seq2sweep.redaction import Secret, secrets_in

NAMES = (
    ".env .env.* .netrc .pgpass .pypirc .htpasswd *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx "
    "id_rsa* id_dsa* id_ecdsa* id_ed25519* *credentials* auth_token kubeconfig"
).split()
HARMLESS = ("*.example", "*.sample", "*.template", "*.pub")

CONTENT = {
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
_CONTENT = {what: re.compile(pattern) for what, pattern in CONTENT.items()}


LOGINS = ("ssh", "git", "sftp", "rsync", "postgresql", "mysql", "mssql")
"""Schemes whose addresses name a user by custom: without a `:` that is no secret."""
_PLACEHOLDER = re.compile(
    r"(?:[^:@/]*:)?(?:[<{$%\\\[].*|password|passwd|token|secret|)\W*", re.IGNORECASE
)
"""`***`, `$TOKEN`, `{user}`, `user:password`: an example, or where a program puts one in."""


def by_name(path: str) -> bool:
    """Whether files of such a name usually hold secrets."""
    name = PurePosixPath(path).name.lower()
    if any(fnmatchcase(name, pattern) for pattern in HARMLESS):
        return False
    return any(fnmatchcase(name, pattern) for pattern in NAMES)


def in_content(content: bytes) -> str | None:
    """What a file holds and in which line, such as `an AWS key in line 3`; never the secret."""
    for what, pattern in _CONTENT.items():
        found = pattern.search(content)
        if found:
            line = content.count(b"\n", 0, found.start()) + 1
            return f"{what} in line {line}"
    text = content.decode(errors="replace")
    for secret in secrets_in(text):
        if _is_literal(secret, text[secret.start : secret.end]):
            line = text.count("\n", 0, secret.start) + 1
            return f"an address with {secret.what} in line {line}"
    return None


def _is_literal(secret: Secret, value: str) -> bool:
    login = ":" not in value and secret.scheme in LOGINS
    return secret.certain and not login and not _PLACEHOLDER.fullmatch(value)
