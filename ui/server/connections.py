"""The server: uvicorn in a thread of its own, with its own limits."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from triforce_core import ConfigError

PORT_BUSY = "Port {port} is in use"
PORT_REMEDY = "Choose another with --port, or leave --port out to take the next free one."

MOST_CONNECTIONS = 400  # and as many requests; uvicorn answers 503 to more. A tab has three.


class Server(uvicorn.Server):
    """uvicorn, which closes a connection that asks for nothing more after five seconds."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        super().__init__(uvicorn.Config(
            app, host=host, port=port, log_level="warning", http="h11", ws="none", server_header=False,
            limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=1))
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        """Return when it listens. Raises ConfigError where it cannot."""
        self._thread.start()
        self._settled.wait()
        if not self.started:
            raise ConfigError(PORT_BUSY.format(port=self.config.port), remedy=PORT_REMEDY)

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
