"""Read a public stream into batches.

- `PublicStream` is the base class of the feeds, with the options that they share.
- `read_events` connects, reads ahead of the sink in a thread, and connects again after a failure.
- `StreamHalt` stops the reading thread at once, also while it is blocked on a connection.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import ClassVar
from weakref import WeakSet

from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.public_streams.backoff import Backoff, ConnectionLapse, Retries
from millrace.feeds.public_streams.progress import Event, PositionTracker
from millrace.plugins import option
from millrace.units import format_duration, parse_duration

READ_AHEAD_EVENTS = 2000
MAX_BATCH_EVENTS = 500
LINGER_S = 0.1
"""A batch holds what came within this time of its first event: few positions to save, little delay."""
_POLL_INTERVAL_S = 0.1
_CLOSE_TIMEOUT_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PublicStream(Feed):
    """A feed that reads a public stream, with the options of all of them."""

    idle: float = option(
        60.0, "Connect again when nothing came for this long.", parse=parse_duration, shown_default="1m"
    )

    backoff: ClassVar[Backoff] = Backoff()


class StreamHalt:
    """Stops a reading thread: wakes it when it waits, and shuts down the connection that it is blocked on."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._connections: WeakSet[socket.socket] = WeakSet()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep until the time is over or `stop` is called."""
        self._event.wait(seconds)

    def register(self, connection: socket.socket) -> None:
        """Shut this connection down as well on `stop`."""
        with self._lock:
            self._connections.add(connection)
        if self:
            self.stop()

    def stop(self) -> None:
        self._event.set()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    # close() would not wake a blocked thread, and SSLSocket.shutdown() removes the TLS layer
                    # that the thread reads from, so the plain socket's shutdown is called.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


Events = Generator[Event, None, None]
Connect = Callable[[StreamHalt], Events]
"""Connects once and yields events; returns, or raises a ConnectionLapse, when the connection ends."""


def read_events(
    run: Run, connect: Connect, *, name: str, backoff: Backoff, progress: PositionTracker | None = None
) -> Iterator[Batch]:
    """Yield a stream's events in batches until the run stops; each saves its position once the sink has it."""
    halt = StreamHalt()
    ahead = _ReadAhead(_read_with_reconnects(connect, halt, run.notify, name, backoff), halt, name)
    left = run.count
    try:
        while events := ahead.take(run.stop, MAX_BATCH_EVENTS if left is None else min(MAX_BATCH_EVENTS, left)):
            records = [event.record for event in events if event.record is not None]
            positions = [event.position for event in events if event.position is not None]
            done = progress.track(positions[-1] if positions else None) if progress else None
            if records:
                yield Batch(records, done)
            elif done:
                done(None)
            left = None if left is None else left - len(records)
    finally:
        ahead.close()


def _read_with_reconnects(
    connect: Connect, halt: StreamHalt, notify: Callable[[str], None], name: str, backoff: Backoff
) -> Events:
    retries = Retries(backoff)
    while not halt:
        connected_at: float | None = None
        try:
            with closing(connect(halt)) as events:
                for event in events:
                    connected_at = connected_at or time.monotonic()
                    yield event
            lapse = ConnectionLapse("the connection was closed")
        except ConnectionLapse as caught:
            lapse = caught
        if halt:
            return
        wait = retries.wait(lapse, time.monotonic() - connected_at if connected_at else 0.0)
        notify(f"{name}: {lapse}; connecting again in {format_duration(wait)}")
        halt.wait(wait)


class _ReadAhead:
    """Reads events in a thread ahead of the sink; a full queue makes the thread wait."""

    def __init__(self, events: Events, halt: StreamHalt, name: str) -> None:
        self._events = events
        self._halt = halt
        self._queue: Queue[Event | None] = Queue(READ_AHEAD_EVENTS)
        self._over = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._fill, name=f"millrace-feed-{name}", daemon=True)
        self._thread.start()

    def take(self, stop: threading.Event, limit: int) -> list[Event]:
        """Wait for at least one event and return what came; an empty list at the end."""
        events: list[Event] = []
        deadline = None
        while not self._over and not stop.is_set() and len(events) < limit:
            wait = _POLL_INTERVAL_S if deadline is None else deadline - time.monotonic()
            try:
                event = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
            except Empty:
                if deadline is None:
                    continue
                break
            if event is None:
                self._over = True
                break
            events.append(event)
            deadline = deadline or time.monotonic() + LINGER_S
        if self._over and not events and self._failure is not None:
            raise self._failure
        return events

    def close(self) -> None:
        """Stop the thread. A thread that waits for a name or a handshake ends when that times out."""
        self._halt.stop()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _fill(self) -> None:
        try:
            with closing(self._events) as events:
                for event in events:
                    if not self._put(event):
                        return
        except Exception as error:
            self._failure = error  # raised by take(), in the feed's thread
        self._put(None)

    def _put(self, event: Event | None) -> bool:
        while not self._halt:
            try:
                self._queue.put(event, timeout=_POLL_INTERVAL_S)
            except Full:
                continue
            return True
        return False
