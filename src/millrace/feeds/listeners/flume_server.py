"""The agents that send to the Flume feed: listened to, handed over, and answered when the sink has their events."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from queue import SimpleQueue

from millrace.errors import FeedFailed, MillraceError
from millrace.feeds.base.api import Batch
from millrace.feeds.listeners import flume_protocol
from millrace.feeds.listeners.backpressure import ByteBudget, Receipt, Verdict, settle
from millrace.feeds.listeners.flume_protocol import (
    FREE,
    Conversation,
    FlumeConnection,
    HeldRequest,
    MalformedFlumeData,
    Request,
)

HELD = 64_000_000
"""Bytes that the longer messages of all agents together may hold, until the sink has them."""
MOST_CONNECTIONS = 1000
GRACE_SECONDS = 60.0
"""After the stop a sink has so long to say what became of its records."""
AGAIN_SECONDS = 60.0
"""The same is not said more often."""
_MOST_SAID = 100
_START_SECONDS = 10.0
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""An agent may be silent for days; a machine that is gone is noticed in two minutes."""


@dataclass(frozen=True)
class FlumeListenerOptions:
    """What an agent must keep to, and what becomes of its events."""

    largest: int
    key: str | None = None
    allow: tuple[IPv4Network | IPv6Network, ...] = ()
    """Who may send; nobody is refused when it is empty."""

    def admits(self, host: str) -> bool:
        """Whether an address may send."""
        found = ip_address(host.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None) or found
        return not self.allow or any(mapped in network for network in self.allow)


class FlumeServer:
    """The agents of one run, from the event loop's side."""

    def __init__(self, terms: FlumeListenerOptions, say: Callable[[str], None]) -> None:
        self.batches: SimpleQueue[Batch] = SimpleQueue()
        """What was taken and waits for the sink: a message of each connection at most."""
        self._terms = terms
        self._say = say
        self._said: dict[str, float] = {}
        self._known: set[bytes] = set()
        self._talks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None] | None, Verdict] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ready = threading.Event()

    def start(self, listener: socket.socket) -> None:
        """Listen in a thread of its own; it ends after `stop`, when everybody is answered."""
        threading.Thread(target=lambda: asyncio.run(self._serve(listener)), name="millrace-feed-flume").start()
        if not self._ready.wait(_START_SECONDS):
            self.stop()
            raise FeedFailed("the listener for agents of Flume did not start")

    def stop(self) -> None:
        """Take nothing more, from any thread; what the sink was given already is still answered by its verdict."""
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._budget = ByteBudget(max(HELD, 2 * self._terms.largest))
        server = await asyncio.start_server(self._meet, sock=listener)
        self._ready.set()
        await self._over.wait()
        server.close()
        while not self.batches.empty():
            _, done = self.batches.get_nowait()
            if done is not None:
                done(FeedFailed("the feed is stopping"))
        for talk in self._talks - self._waiting.keys():
            talk.cancel()
        self._loop.call_later(GRACE_SECONDS, self._give_up)
        while self._talks:
            await asyncio.wait(self._talks)

    def _give_up(self) -> None:
        for verdict in self._waiting.values():
            settle(verdict, FeedFailed("it is not known whether the events were delivered", why="the feed stopped"))

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        if not host or self._stopping:
            writer.close()
        elif not self._terms.admits(host):
            writer.close()
            self._tell(f"{host} wants to send and is not allowed to")
        elif len(self._talks) >= MOST_CONNECTIONS:
            writer.close()
            self._tell(f"{MOST_CONNECTIONS:,} agents are connected; no more are let in")
        else:
            await self._remember(reader, writer, host)

    @property
    def _stopping(self) -> bool:
        return self._over is None or self._over.is_set()

    async def _remember(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        talk = asyncio.current_task()
        if talk is not None:
            self._talks.add(talk)
        try:
            _keep_alive(writer.get_extra_info("socket"))
            await self._talk(reader, writer)
        except MalformedFlumeData as error:
            self._tell(f"the connection of {host} was closed: {error}")
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # it has gone, or we have: what was not answered is sent again
        finally:
            if talk is not None:
                self._talks.discard(talk)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inflowing, conversation = FlumeConnection(reader), Conversation(self._terms.key, self._known)
        while not self._stopping:
            held = HeldRequest(self._budget, self._terms.largest)
            try:
                serial, message = await inflowing.message(held)
                # A long one in a thread, because the loop has other agents to attend to.
                short = len(message) <= FREE
                request = conversation.heard(message) if short else await asyncio.to_thread(conversation.heard, message)
                del message
                answer = request.answered(safe=await self._delivered(request))
                del request  # its records are not kept while the agent has nothing to say
            finally:
                held.release()
            writer.write(inflowing.framed(serial, answer))
            async with asyncio.timeout(flume_protocol.SLOW_SECONDS):
                await writer.drain()

    async def _delivered(self, request: Request) -> bool:
        """Whether the sink has all events of a call."""
        if not request.records or self._stopping:
            return not request.records
        talk, verdict = asyncio.current_task(), asyncio.get_running_loop().create_future()
        self._waiting[talk] = verdict
        self.batches.put(Batch(request.records, Receipt(verdict)))
        try:
            error: MillraceError | None = await verdict
        finally:
            del self._waiting[talk]
        if error is not None:
            reason = "; ".join(filter(None, (error.message, error.why, error.hint)))
            self._tell(f"events were not taken, and their agent keeps them: {reason}")
        return error is None

    def _tell(self, text: str) -> None:
        """Say it, unless it was said just now."""
        now = time.monotonic()
        self._said = {one: at for one, at in self._said.items() if now - at < AGAIN_SECONDS}
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said[text] = now
            self._say(text)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # macOS has other names
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
