"""A file server on the loopback interface that fails as told, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast


@dataclass
class Page:
    """What a path answers with; it has no fault unless one is set.

    statuses: errors to answer first, one a request; retry_after goes with them.
    cut_after: bytes of an answer after which the connection is cut, in the first `cuts` answers.
    block, pause: bytes sent at once, seconds between two such blocks.
    etag: a counter in it (`{}`) makes it another one for each request.
    range_shift: sends, and says so, a part that begins this many bytes off.
    silent: seconds to say nothing before the connection is cut.
    redirect: where to go instead; the content comes with it.
    """

    content: bytes = b""
    statuses: list[int] = field(default_factory=list)
    retry_after: str | None = None
    cut_after: int | None = None
    cuts: int = 1_000_000
    silent: float = 0.0
    block: int = 1 << 16
    pause: float = 0.0
    ranges: bool = True
    if_range: bool = True
    range_shift: int = 0
    chunked: bool = False
    etag: str | None = None
    redirect: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Request:
    """A request as it came, and what it got."""

    path: str
    start: int
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


class Server(ThreadingHTTPServer):
    """Serves `pages` by path (query left out); `requests` has all that were asked, in order."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, pages: dict[str, Page]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages
        self.requests: list[Request] = []

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone is no news here."""


@contextlib.contextmanager
def serving(pages: dict[str, Page]) -> Iterator[Server]:
    """A running server of these pages, which may be changed meanwhile."""
    with Server(pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        path = self.path.partition("?")[0]
        part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        request = Request(path, int(part[1]) if part else 0, dict(self.headers))
        server.requests.append(request)
        page = server.pages.get(path)
        if page is None:
            self._refuse(request, 404, {})
        elif page.statuses:
            wait = {} if page.retry_after is None else {"Retry-After": page.retry_after}
            self._refuse(request, page.statuses.pop(0), wait)
        elif page.redirect is not None:
            request.status = 302
            length = str(len(page.content))
            self._head(302, {"Location": page.redirect, "Content-Length": length})
            self._body(request, page, memoryview(page.content))
        else:
            self._answer(request, page, len(server.asked(path)))

    def _refuse(self, request: Request, status: int, headers: dict[str, str]) -> None:
        request.status = status
        self._head(status, {**headers, "Content-Length": "0"})

    def _answer(self, request: Request, page: Page, number: int) -> None:
        etag = None if page.etag is None else page.etag.format(number)
        headers = dict(page.headers) if etag is None else {**page.headers, "ETag": etag}
        size = len(page.content)
        wanted = self.headers.get("If-Range")
        unchanged = not page.if_range or wanted in (None, etag)
        start = request.start if page.ranges and unchanged else 0
        if start and start >= size:
            self._refuse(request, 416, {"Content-Range": f"bytes */{size}"})
            return
        request.status = 206 if start else 200
        if start:
            start += page.range_shift
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        if page.chunked:
            headers["Transfer-Encoding"] = "chunked"
        self._head(request.status, {"Content-Length": str(size - start), **headers})
        self._body(request, page, memoryview(page.content)[start:])

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name != "Content-Length" or "Transfer-Encoding" not in headers:
                self.send_header(name, value)
        # Said as well as done, or a client that is redirected would come back on this connection.
        self.send_header("Connection", "close")
        self.end_headers()

    def _body(self, request: Request, page: Page, rest: memoryview) -> None:
        is_cut = page.cut_after is not None and page.cuts > 0 and len(rest) > page.cut_after
        if is_cut:
            page.cuts -= 1
            rest = rest[: page.cut_after]
        for begin in range(0, len(rest), page.block):
            block = rest[begin : begin + page.block]
            self.wfile.write(
                b"%x\r\n%b\r\n" % (len(block), bytes(block)) if page.chunked else block
            )
            request.sent += len(block)
            time.sleep(page.pause)
        if is_cut:
            time.sleep(page.silent)
        elif page.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """The test's output is not for this."""
