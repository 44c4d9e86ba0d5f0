"""How connections to clients are kept: clients that send or read too slowly are cut off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crossjem_pl.serving.app import Service, create_app

__all__ = ["http_server"]


class _Connection(HttpToolsProtocol):
    """Ends if no further request's head is there `timeout_keep_alive` seconds after it began or was answered, whether
    or not the client has read the answer; `Service.answer` watches over bodies."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def on_headers_complete(self) -> None:
        self._met()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._met()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._met()
        self._limit = self.loop.call_later(self.timeout_keep_alive, self._late)

    def _met(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _late(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # not while it answers
            self.transport.abort()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the process's signals alone: the worker has its own answer to them."""
        yield


def http_server(service: Service) -> uvicorn.Server:
    """A server around the application, which serves the sockets that it is given until `should_exit`."""
    config = uvicorn.Config(
        create_app(service),
        http=_Connection,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=service.options.client_timeout,  # type: ignore[arg-type]
        timeout_graceful_shutdown=5,
    )
    return _Server(config)
