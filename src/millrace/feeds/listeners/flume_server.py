"""The server of the Flume feed.

- Accepts the connections of agents that are allowed to send.
- Queues the events of each call as a batch.
- Answers a call when the sink has its events, also after the feed was stopped.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from queue import SimpleQueue

from millrace.errors import FeedFailed, MillraceError
from millrace.feeds.base.api import Batch
from millrace.feeds.listeners import flume_protocol
from millrace.feeds.listeners.backpressure import ByteBudget, Receipt, Verdict, refuse_queued, settle
from millrace.feeds.listeners.flume_protocol import (
    Conversation,
    FlumeConnection,
    HeldRequest,
    MalformedFlumeData,
    Request,
)

MAX_HELD_BYTES = 64_000_000
"""Bytes that the longer messages of all agents together may hold until the sink has them."""
MAX_CONNECTIONS = 1000
STOP_TIMEOUT_S = 60.0
"""How long agents wait for the sink's result after the feed was stopped."""
REPEAT_INTERVAL_S = 60.0
"""The same message is not repeated within this time."""
_MAX_REMEMBERED_MESSAGES = 100
_START_TIMEOUT_S = 10.0
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""An agent may be silent for days; a machine that disappeared is noticed within two minutes."""


@dataclass(frozen=True)
class FlumeListenerOptions:
    """Limits for agents, and the header that becomes the record's key."""

    max_bytes: int
    key: str | None = None
    allow: tuple[IPv4Network | IPv6Network, ...] = ()
    """The networks that may send; if empty, all."""

    def admits(self, host: str) -> bool:
        """Return whether an address may send."""
        address = ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None) or address
        return not self.allow or any(mapped in network for network in self.allow)


class FlumeServer:
    """Serves the agents of one run in an event loop."""

    def __init__(self, options: FlumeListenerOptions, notify: Callable[[str], None]) -> None:
        self.batches: SimpleQueue[Batch] = SimpleQueue()
        """Batches that wait for the sink: at most one message of each connection."""
        self._options = options
        self._notify = notify
        self._notified: dict[str, float] = {}
        self._protocols: set[bytes] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None] | None, Verdict] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ready = threading.Event()

    def start(self, listener: socket.socket) -> None:
        """Listen in a thread; it ends after `stop`, when every call is answered."""
        threading.Thread(target=lambda: asyncio.run(self._serve(listener)), name="millrace-feed-flume").start()
        if not self._ready.wait(_START_TIMEOUT_S):
            self.stop()
            raise FeedFailed("the listener for agents of Flume did not start")

    def stop(self) -> None:
        """Accept no more calls; those that the sink has are still answered. May be called from any thread."""
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._budget = ByteBudget(max(MAX_HELD_BYTES, 2 * self._options.max_bytes))
        server = await asyncio.start_server(self._accept, sock=listener)
        self._ready.set()
        await self._over.wait()
        server.close()
        refuse_queued(self.batches)
        for connection in self._connections - self._waiting.keys():
            connection.cancel()
        self._loop.call_later(STOP_TIMEOUT_S, self._give_up)
        while self._connections:
            await asyncio.wait(self._connections)

    def _give_up(self) -> None:
        for verdict in self._waiting.values():
            settle(verdict, FeedFailed("it is not known whether the events were delivered", why="the feed stopped"))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        with closing(writer):
            if not host or self._stopping:
                return
            if not self._options.admits(host):
                self._notify_once(f"{host} wants to send and is not allowed to")
            elif len(self._connections) >= MAX_CONNECTIONS:
                self._notify_once(f"{MAX_CONNECTIONS:,} agents are connected; no more are accepted")
            else:
                await self._serve_connection(reader, writer, host)

    @property
    def _stopping(self) -> bool:
        return self._over is None or self._over.is_set()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
        try:
            _keep_alive(writer.get_extra_info("socket"))
            await self._answer_calls(reader, writer)
        except MalformedFlumeData as error:
            self._notify_once(f"the connection of {host} was closed: {error}")
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # one side has left: the agent sends again what was not answered
        finally:
            if task is not None:
                self._connections.discard(task)

    async def _answer_calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, conversation = FlumeConnection(reader), Conversation(self._options.key, self._protocols)
        while not self._stopping:
            held = HeldRequest(self._budget, self._options.max_bytes)
            try:
                serial, message = await connection.message(held)
                # A long message is parsed in a thread, so that other agents do not wait.
                short = len(message) <= flume_protocol.UNBUDGETED_BYTES
                request = conversation.parse(message) if short else await asyncio.to_thread(conversation.parse, message)
                del message
                response = request.response(safe=await self._delivered(request))
                del request  # its records would stay in memory until the agent's next call
            finally:
                held.release()
            writer.write(connection.framed(serial, response))
            async with asyncio.timeout(flume_protocol.MESSAGE_TIMEOUT_S):
                await writer.drain()

    async def _delivered(self, request: Request) -> bool:
        """Queue the events of a call, and return whether the sink has all of them."""
        if not request.records or self._stopping:
            return not request.records
        task, verdict = asyncio.current_task(), asyncio.get_running_loop().create_future()
        self._waiting[task] = verdict
        self.batches.put(Batch(request.records, Receipt(verdict)))
        try:
            error: MillraceError | None = await verdict
        finally:
            del self._waiting[task]
        if error is not None:
            reason = "; ".join(filter(None, (error.message, error.why, error.hint)))
            self._notify_once(f"events were not taken, and their agent keeps them: {reason}")
        return error is None

    def _notify_once(self, text: str) -> None:
        """Report a message unless it was reported just now."""
        now = time.monotonic()
        self._notified = {message: at for message, at in self._notified.items() if now - at < REPEAT_INTERVAL_S}
        if text not in self._notified and len(self._notified) < _MAX_REMEMBERED_MESSAGES:
            self._notified[text] = now
            self._notify(text)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # macOS has other names
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
