"""Connections of the server: how long one may take to send its request and to read its answer, and
how many are open."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2sweep.hardware import may_open

SECONDS_TO_SEND = 20
"""In which a request has come whole, headers and body."""
SECONDS_TO_READ = 20
"""In which a client takes some of an answer that waits for it."""
MOST_OPEN = 1024
OWN_FILES = 64
"""Files that the process opens beside its connections."""


def limits() -> tuple[int, int]:
    """How many connections may be open, and how many are accepted at a time, for which the files
    that this process may have suffice; it asks for more where it may."""
    files = may_open(OWN_FILES + 2 * MOST_OPEN)
    # Connections are accepted a few times before those that are too many are closed.
    room = max(files - OWN_FILES, 16)
    return room // 2, room // 8


class Limited(H11Protocol):
    """uvicorn's protocol, which ends a connection whose client sends no whole request, or reads
    nothing of its answer."""

    most: int
    too_late: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Also a few bytes that nobody reads are noticed.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        self._wait()

    def _watch(self) -> None:
        waits = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < waits:
                self._watch()
            else:
                self.transport.abort()  # close() would wait for what nobody reads

        self.unread = self.loop.call_later(SECONDS_TO_READ, look)

    def _forget(self) -> None:
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def _wait(self) -> None:
        """Close the connection unless the next request is whole in time."""
        unfinished = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        more = unfinished and not self.transport.is_closing()
        if more and self.too_late is None:
            self.too_late = self.loop.call_later(SECONDS_TO_SEND, self.transport.close)
        elif not more and self.too_late is not None:
            self.too_late.cancel()
            self.too_late = None

    def _make_room(self) -> None:
        """Close the one that has had the longest to send its request: a new one gets on though
        others hold all places and send nothing."""
        others = (one for one in self.connections if isinstance(one, Limited))
        since = {
            one.too_late.when(): one
            for one in others
            if one.too_late and not one.transport.is_closing()
        }
        since[min(since)].transport.close()


def protocol(most: int) -> type[H11Protocol]:
    """uvicorn's protocol, with so many connections at most."""
    return type("Limited", (Limited,), {"most": most})
