"""Connections that ask for nothing: how long one may take over a request, and how many come from one address.

uvicorn waits for a request's head and body for ever and takes in whoever knocks, until no file is left to open. Here a
request has to arrive at some least speed, and an address has a share of the connections: whoever wants more loses the
oldest of his own on which nothing is being answered.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import os
import socket
import sys
import threading

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from triforce_core import ConfigError

from ..words import command_line as cli_words
from .guard import HEADERS

GRACE = 20.0  # seconds that a request may take to arrive, and then so many more as its bytes allow it:
LEAST_SPEED = 500  # bytes per second
PER_ADDRESS = 256  # connections
FILES_WANTED = 8192  # open at once, where the system allows it


class PatientProtocol(H11Protocol):
    """uvicorn's own HTTP/1.1, but it closes on whoever dawdles."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._from = network(self.client[0] if self.client else "")
        self._wait_anew()
        same = [other for other in self.connections if isinstance(other, PatientProtocol)
                and other._from == self._from and not other.transport.is_closing()]
        if len(same) > PER_ADDRESS:
            idle = [other for other in same if other.idle and other is not self]
            min(idle, key=lambda other: other._deadline, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        owed = self._owes
        super().data_received(data)
        if owed:
            self._deadline += len(data) / LEAST_SPEED
        elif self._owes:
            self._wait_anew()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._owes:  # the next request has come in part while this one was answered
            self._wait_anew()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    @property
    def idle(self) -> bool:
        """Nothing is being answered here."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _owes(self) -> bool:
        """Whether the other side has a request to begin or to finish; between two of them uvicorn has its own timer."""
        waiting = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        return waiting or self.conn.their_state is h11.SEND_BODY

    def _wait_anew(self) -> None:
        self._deadline = self.loop.time() + GRACE
        if self._timer is None:
            self._timer = self.loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._owes or self.transport.is_closing():
            return
        if self.flow.read_paused:  # it is we who do not read on
            self._wait_anew()
        elif self._deadline > self.loop.time():
            self._timer = self.loop.call_at(self._deadline, self._look)
        else:
            self._refuse(408, "The request took too long to arrive.")

    def _refuse(self, status: int, words: str) -> None:
        """Say so where nothing has been said yet, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"),
                       *HEADERS]
            start = h11.Response(status_code=status, headers=headers, reason=http.HTTPStatus(status).phrase.encode())
            for event in (start, h11.Data(data=words.encode()), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()


class Server(uvicorn.Server):
    """In a thread of its own, with ``PatientProtocol``."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        # Whom another server in front of this one forwards is believed only where uvicorn's own variable says so: the
        # address decides how long a login waits.
        super().__init__(uvicorn.Config(
            app, host=host, port=port, log_level="warning", http=PatientProtocol, ws="none", server_header=False,
            proxy_headers="FORWARDED_ALLOW_IPS" in os.environ, timeout_graceful_shutdown=1))
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        """Returns when it listens. Raises ConfigError where it cannot."""
        allow_more_files()
        self._thread.start()
        self._settled.wait()
        if not self.started:
            raise ConfigError(cli_words.PORT_BUSY.format(port=self.config.port), remedy=cli_words.PORT_REMEDY)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._settled.set()

    def close(self) -> None:
        self.should_exit = True
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            self.run()
        except SystemExit:  # uvicorn's word for: it has logged why it does not listen
            pass
        finally:
            self._settled.set()


def network(address: str) -> str:
    """Whom an address belongs to: of IPv6 everybody has 2**64 of his own."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def allow_more_files() -> None:
    """Each connection is an open file, and the usual limit is 1,024."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
