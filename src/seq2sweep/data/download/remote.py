"""A file at one address: opened at any byte and read on, over http or any scheme of fsspec.

Nothing here writes. Whatever keeps an address from giving the file is an `UnavailableError`.
"""

from __future__ import annotations

import contextlib
import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import fsspec.core
import requests
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    NameResolutionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry

TRIES = 5
"""Failures in a row, none of which brought a new byte, after which an address is given up."""
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0
LONGEST_WAIT = 60.0
"""Seconds that a server's Retry-After is obeyed for at most."""
BLOCK = 1 << 18

ASK_AGAIN = (408, 425, 429)
"""Statuses besides 500 and above that may be others a little later."""


class UnavailableError(Exception):
    """An address does not give the file; the message says why in a few words.

    tries: how often to ask it in all; 1 is to go to the next address at once.
    wait: seconds it wants to be left alone.
    """

    def __init__(self, reason: str, tries: int = TRIES, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.tries = tries
        self.wait = wait


@dataclass(frozen=True)
class Body:
    """The bytes of a file from `start` on; `read` gives the next few, and b"" at the end.

    total: bytes of the whole file, None where the server does not say.
    end_shows: whether an end before the last byte is told from the end of the file.
    validator: changes when the file does; None where there is none to rely on.
    is_page: whether the server calls it a web page, as the login of a network is.
    """

    start: int
    total: int | None
    end_shows: bool
    validator: str | None
    read: Callable[[], bytes]
    close: Callable[[], None]
    is_page: bool = False


def open_at(address: str, start: int, validator: str | None) -> Body:
    """Open a file at byte `start`, or at its beginning where it cannot be continued there.

    With a `validator` it is continued only if that is still the file's. Raises UnavailableError,
    here and in reading.
    """
    opened = _open_http if urlsplit(address).scheme in ("http", "https") else _open_other
    body = opened(address, start, validator)
    if body is None and start > 0:
        body = opened(address, 0, None)
    if body is None:
        raise UnavailableError("sends another part of the file than was asked for", tries=1)
    return body


# --- http and https ----------------------------------------------------------------------------


def _open_http(address: str, start: int, validator: str | None) -> Body | None:
    """None where the server cannot continue at `start`: the file is another one or is shorter."""
    # identity: a server must not pack what it sends, nor anyone here unpack it.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator:
            headers["If-Range"] = validator
    response = _get(address, headers)
    with contextlib.ExitStack() as stack:
        stack.callback(response.close)
        body = _answer(response, start, validator)
        if body is not None:
            stack.pop_all()  # it is read on
    return body


class _Session(requests.Session):
    """It follows no redirect: requests reads the body of each to its end first, however long."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


def _get(address: str, headers: dict[str, str]) -> requests.Response:
    timeout = (CONNECT_TIMEOUT, READ_TIMEOUT)
    try:
        with _Session() as session:
            for _ in range(session.max_redirects):
                response = session.get(address, headers=headers, stream=True, timeout=timeout)
                target = super(_Session, session).get_redirect_target(response)
                if target is None:
                    return response
                response.close()
                address = urljoin(response.url, target)
            raise requests.TooManyRedirects
    except requests.TooManyRedirects:
        raise UnavailableError("redirects in a circle", tries=1) from None
    except requests.exceptions.SSLError:
        raise UnavailableError("its certificate is not accepted", tries=1) from None
    except requests.Timeout:
        raise UnavailableError("no answer in time") from None
    except requests.ConnectionError as error:
        raise _no_connection(error) from None
    except (requests.RequestException, ValueError) as error:  # an address or answer that is none
        raise UnavailableError(f"request failed ({type(error).__name__})", tries=1) from None


def _no_connection(error: requests.ConnectionError) -> UnavailableError:
    cause = error.args[0] if error.args else None
    if isinstance(getattr(cause, "reason", None), NameResolutionError):
        return UnavailableError("no connection (host name not found)", tries=2)
    if isinstance(cause, ProtocolError):
        return UnavailableError("no answer, or none that is HTTP")
    return UnavailableError("no connection")


def _answer(response: requests.Response, start: int, validator: str | None) -> Body | None:
    status, headers = response.status_code, response.headers
    # A weak ETag does not promise equal bytes.
    tag = headers.get("ETag")
    found = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    part = re.fullmatch(
        r"bytes (?:(\d{1,18})-\d+|\*)/(\d{1,18}|\*)", headers.get("Content-Range", "")
    )
    total = int(part[2]) if part and part[2] != "*" else None
    if status == 200:
        length = re.fullmatch(r"\d{1,18}", headers.get("Content-Length", ""))
        return _http_body(response, 0, int(length[0]) if length else None, found)
    if status == 206:
        changed = validator is not None and found not in (None, validator)
        if changed or part is None or part[1] is None or int(part[1]) != start:
            return None
        return _http_body(response, start, total, found)
    if status == 416:
        if total != start:
            return None
        return Body(start, total, True, found or validator, lambda: b"", response.close)
    reason = f"{status} {http.client.responses.get(status, '')}".strip()
    again = status in ASK_AGAIN or status >= 500
    raise UnavailableError(reason, tries=TRIES if again else 1, wait=_wait(response))


def _http_body(
    response: requests.Response, start: int, total: int | None, validator: str | None
) -> Body:
    def read() -> bytes:
        try:
            # read1 gives what has come, so that a cut or a kill loses nothing of it.
            return bytes(response.raw.read1(BLOCK, decode_content=False))
        except ReadTimeoutError:
            raise UnavailableError(f"sends nothing for {READ_TIMEOUT:g} s") from None
        except (HTTPError, OSError):
            raise UnavailableError("the connection is cut") from None

    chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
    end_shows = chunked or total is not None
    is_page = response.headers.get("Content-Type", "").lower().startswith("text/html")
    return Body(start, total, end_shows, validator, read, response.close, is_page)


def _wait(response: requests.Response) -> float:
    """Seconds of a Retry-After, which is a number or a date; 0 for anything else."""
    try:
        return min(Retry().get_retry_after(response.raw) or 0.0, LONGEST_WAIT)
    except InvalidHeader:
        return 0.0
    except (ValueError, OverflowError):  # a number of thousands of digits
        return LONGEST_WAIT


# --- everything else ---------------------------------------------------------------------------


def _open_other(address: str, start: int, validator: str | None) -> Body | None:
    try:
        system, path = fsspec.core.url_to_fs(address)
        info = system.info(path)
        if info["type"] != "file":
            raise IsADirectoryError
        found, total = str(system.ukey(path)), info["size"]
        if (validator and found != validator) or (total is not None and start > total):
            return None
        stream = system.open(path, "rb")
        stream.seek(start)
    except Exception as error:
        raise _explained(error) from error

    def read() -> bytes:
        try:
            return bytes(stream.read(BLOCK))
        except Exception as error:
            raise _explained(error) from error

    return Body(start, total, total is not None, found, read, stream.close)


_FINAL = {
    FileNotFoundError: "not there",
    NotADirectoryError: "not there",
    IsADirectoryError: "a folder, not a file",
    PermissionError: "no permission to read it",
}


def _explained(error: Exception) -> UnavailableError:
    """Drivers raise what they like, and texts of theirs may hold a password: named by type only."""
    reason = next((why for kind, why in _FINAL.items() if isinstance(error, kind)), None)
    if isinstance(error, OSError) and reason is None:
        return UnavailableError(error.strerror or type(error).__name__)
    if isinstance(error, ImportError):
        reason = str(error)  # "Install s3fs to access S3"
    elif isinstance(error, ValueError):
        reason = "not an address that fsspec knows"
    return UnavailableError(reason or type(error).__name__, tries=1)
