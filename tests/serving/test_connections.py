"""Connections that send no whole request, or read no answer, are closed, and never keep others
out."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2sweep.serving import connections

Connect = Callable[..., socket.socket]
HEAD = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"


LARGE = 64 << 20
"""Bytes that no system keeps for a client that does not read them."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The body; at /slow once a request would have had to be whole."""
    body, message = b"", await receive()
    while message["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
        message = await receive()
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * connections.SECONDS_TO_SEND)
    if scope["path"] == "/large":
        body = bytes(LARGE)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Send something to a server with 4 connections."""
    monkeypatch.setattr(connections, "SECONDS_TO_SEND", 0.4)
    monkeypatch.setattr(connections, "SECONDS_TO_READ", 0.4)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    config = uvicorn.Config(
        echo, http=connections.protocol(4), lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    opened = []

    def connected(sent: bytes) -> socket.socket:
        opened.append(socket.create_connection(address, timeout=20))
        opened[-1].sendall(sent)
        return opened[-1]

    yield connected
    for one in opened:
        one.close()
    server.should_exit = True
    thread.join(20)


def received(connection: socket.socket, last: bytes | None = None) -> bytes:
    """Up to what comes last, or until it is closed."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while (last is None or not found.endswith(last)) and (part := connection.recv(1 << 16)):
            found += part
    return bytes(found)


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nX: ", HEAD, HEAD + b"abc"])
def test_a_request_that_is_not_whole_in_time_is_closed(connect: Connect, sent: bytes) -> None:
    assert received(connect(sent)) == b""


def test_so_is_one_after_another_on_its_connection(connect: Connect) -> None:
    connection = connect(HEAD + b"abcd" + HEAD + b"efg")
    assert received(connection).count(b"200 OK") == 1


def test_an_answer_may_take_longer(connect: Connect) -> None:
    connection = connect(HEAD + b"abcd")
    assert received(connection, b"abcd").endswith(b"abcd")
    connection.sendall(HEAD + b"efgh")
    assert received(connection, b"efgh").endswith(b"efgh")


def test_an_answer_that_nobody_reads_is_given_up(connect: Connect) -> None:
    asked = HEAD.replace(b"slow", b"large") + b"abcd"
    assert len(received(connect(asked))) > LARGE
    unread = connect(asked)
    begun = sum(len(unread.recv(1 << 20)) for _ in range(20))
    time.sleep(1.5)
    assert begun + len(received(unread)) < LARGE


def test_a_few_bytes_that_nobody_reads_are_waited_for_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, made = [], H11Protocol.connection_made

    def note(self: H11Protocol, transport: Any) -> None:
        limits.append(transport.get_write_buffer_limits())
        made(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", note)
    received(connect(HEAD + b"abcd"), b"abcd")
    assert limits == [(0, 0)]


def test_a_client_that_stops_to_read_is_noticed_and_a_slow_one_is_not() -> None:
    left, looks, ended = [0], [], []

    def call_later(seconds: float, look: Callable[[], None]) -> SimpleNamespace:
        assert seconds == connections.SECONDS_TO_READ
        looks.append(look)
        return SimpleNamespace(cancel=looks.clear)

    unread: Any = object.__new__(connections.Limited)
    unread.flow = SimpleNamespace(pause_writing=lambda: None, resume_writing=lambda: None)
    unread.loop = SimpleNamespace(call_later=call_later)
    unread.transport = SimpleNamespace(
        get_write_buffer_size=lambda: left[0], abort=lambda: ended.append(left[0])
    )
    left[0] = 100
    unread.pause_writing()
    for waits in (90, 89, 40):
        left[0] = waits
        looks.pop()()
        assert (len(looks), ended) == (1, [])
    unread.resume_writing()
    assert not looks
    left[0] = 100
    unread.pause_writing()
    left[0] = 90
    looks.pop()()
    looks.pop()()
    assert (looks, ended) == ([], [90])


def test_those_that_send_nothing_leave_room(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SECONDS_TO_SEND", 20)
    first, *others = [connect(b"GET") for _ in range(4)]
    whole = connect(HEAD.replace(b"slow", b"fast") + b"abcd")
    assert received(whole, b"abcd").endswith(b"abcd")
    assert received(first) == b""
    for one in others:
        one.settimeout(0.05)
        with pytest.raises(TimeoutError):
            one.recv(1)


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(1024, 2**20, (1024, 256)), (128, 128, (32, 8)), (256, resource.RLIM_INFINITY, (1024, 256))],
)
def test_connections_are_fewer_than_files(
    soft: int, hard: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked.append(both))
    assert connections.limits() == expected
    assert [both[1] for both in asked] == ([] if soft == hard else [hard])
