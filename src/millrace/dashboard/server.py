"""The server in a thread of its own, for as long as a block lasts.

- `listen` opens the port that was asked for, or the first free one of ours.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import uvicorn

from millrace.dashboard import connections
from millrace.dashboard.app import STATIC, make_app
from millrace.dashboard.auth import rules_for
from millrace.dashboard.run_interface import RunInterface
from millrace.errors import PortInUse, ServiceFailed
from millrace.sockets import address_of, is_loopback, listening_socket

FIRST_PORT = 4040
"""The port that is tried first when none is asked for."""
_TRIED = 50


def listen(host: str, port: int | None) -> tuple[socket.socket, bool]:
    """Listen at an address, without a port at the first free one; also return whether only this machine reaches it."""
    _, address = address_of(host, port or 0)
    for candidate in [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + _TRIED), 0]:
        with suppress(PortInUse):
            return listening_socket(address, candidate), is_loopback(address)
    raise PortInUse(
        f"port {port} is in use, so the dashboard cannot listen there",
        hint="choose another with --port, or leave it out to get a free one",
    )


_START = 10.0
_LOOK = 0.01
_MOST_MESSAGE = 65_536
_TICK_S = 0.1
_TICKS_BETWEEN_LOOKS = 5


@dataclass(frozen=True)
class ServerOptions:
    """What the user chose for the dashboard."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None is the first free one from 4040 on."""
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    """What others must know; None makes one when the address can be reached from other machines."""
    all_topics: bool = False
    """Whether every topic of the cluster is shown, or only those of the run."""


class _Server(uvicorn.Server):
    """Uvicorn's server, which also closes connections that have had their time, and stops when it is asked to."""

    _stopped: Callable[[], object] | None = None

    async def main_loop(self) -> None:
        stop, loop, counter = asyncio.Event(), asyncio.get_running_loop(), 0
        self._stopped = partial(loop.call_soon_threadsafe, stop.set)
        while not await self.on_tick(counter):
            counter += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _TICK_S)

    def stop(self) -> None:
        """End it; from another thread, as soon as the loop has time instead of at the next tick."""
        self.should_exit = True
        if self._stopped:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._stopped()

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_BETWEEN_LOOKS == 0:
            connections.close_overdue(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


class Dashboard:
    """Serves the dashboard of a run."""

    def __init__(self, subject: RunInterface, options: ServerOptions = ServerOptions(), static: Path = STATIC) -> None:  # noqa: B008
        self._subject, self._options, self._static = subject, options, static
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.address = ""
        """Return the address, with the token if one is needed."""
        self.port = 0
        self.loopback = True
        """Whether only this machine reaches it."""

    def __enter__(self) -> Dashboard:
        listening, self.loopback = listen(self._options.host, self._options.port)
        self.port = listening.getsockname()[1]
        rules = rules_for(self._options.host, loopback=self.loopback, token=self._options.token)
        app = make_app(self._subject, rules, read_only=self._options.read_only, static=self._static)
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="on",
            loop="asyncio",
            http=connections.HttpConnection,
            h11_max_incomplete_event_size=connections.MAX_HEAD_BYTES,
            backlog=connections.backlog(),
            timeout_keep_alive=connections.IDLE_S,
            ws=connections.WebSocketConnection,
            ws_max_size=_MOST_MESSAGE,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
        )
        server = self._server = _Server(config)
        name = f"dashboard-{self.port}"
        thread = self._thread = threading.Thread(target=server.run, args=([listening],), name=name, daemon=True)
        thread.start()
        deadline = time.monotonic() + _START
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise ServiceFailed("the dashboard's server did not start", hint="run without it: --no-dashboard")
            time.sleep(_LOOK)
        self.address = _address(self._options.host, self.port, rules.token)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server and self._thread:
            self._server.stop()
            self._thread.join(_START)


def _address(host: str, port: int, token: str | None) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")
