"""Reading an origin without end: connect, read ahead of the sink, connect again, stop at once when told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from queue import Empty, Full, Queue
from weakref import WeakSet

from millrace.feeds.base.api import Batch, Run
from millrace.feeds.public_streams.backoff import Backoff, ConnectionLapse, Retries
from millrace.feeds.public_streams.progress import Event, PositionTracker
from millrace.units import format_duration

AHEAD = 2000
"""Events that are read before the sink asks for them; then the reading waits."""
LARGEST = 500
LINGER = 0.1
"""A batch is what came within this many seconds of its first event: few cursors to save, little to wait for."""
_TICK = 0.1
_PATIENCE = 1.0


class StreamHalt:
    """Ends a thread that reads: wakes it when it waits, and cuts the connection when it is blocked on one."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._connections: WeakSet[socket.socket] = WeakSet()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the end."""
        self._event.wait(seconds)

    def cuts(self, connection: socket.socket) -> None:
        """From now on the end of the reading is the end of this connection too."""
        with self._lock:
            self._connections.add(connection)
        if self:
            self.now()

    def now(self) -> None:
        """End it."""
        self._event.set()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    # Closing would not wake a thread that is blocked on it; and the shutdown of an SSLSocket
                    # takes its TLS away under the reading thread, so it is the plain socket's that is called.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


Events = Generator[Event, None, None]
Connect = Callable[[StreamHalt], Events]
"""Connects once and yields what comes; ends, or raises a Lapse, when the connection does."""


def read_events(
    run: Run, connect: Connect, *, name: str, backoff: Backoff, progress: PositionTracker | None = None
) -> Iterator[Batch]:
    """An origin's events in batches, for ever; each saves its position once the sink has it."""
    halt = StreamHalt()
    ahead = _Ahead(_follow(connect, halt, run.say, name, backoff), halt, name)
    left = run.count
    try:
        while events := ahead.take(run.stop, LARGEST if left is None else min(LARGEST, left)):
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


def _follow(connect: Connect, halt: StreamHalt, say: Callable[[str], None], name: str, backoff: Backoff) -> Events:
    retries = Retries(backoff)
    while not halt:
        began: float | None = None
        try:
            with closing(connect(halt)) as events:
                for event in events:
                    began = began or time.monotonic()
                    yield event
            lapse = ConnectionLapse("the connection was closed")
        except ConnectionLapse as caught:
            lapse = caught
        if halt:
            return
        wait = retries.wait(lapse, time.monotonic() - began if began else 0.0)
        say(f"{name}: {lapse}; connecting again in {format_duration(wait)}")
        halt.wait(wait)


class _Ahead:
    """Events read in a thread ahead of the sink: a slow sink slows the reading, and fills no memory."""

    def __init__(self, events: Events, halt: StreamHalt, name: str) -> None:
        self._events = events
        self._halt = halt
        self._queue: Queue[Event | None] = Queue(AHEAD)
        self._over = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._fill, name=f"millrace-feed-{name}", daemon=True)
        self._thread.start()

    def take(self, stop: threading.Event, most: int) -> list[Event]:
        """What has come: at least one event, waited for; none when it is over."""
        events: list[Event] = []
        deadline = None
        while not self._over and not stop.is_set() and len(events) < most:
            wait = _TICK if deadline is None else deadline - time.monotonic()
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
            deadline = deadline or time.monotonic() + LINGER
        if self._over and not events and self._failure is not None:
            raise self._failure
        return events

    def close(self) -> None:
        """End the thread. One that still waits for a name or a handshake ends when that has timed out."""
        self._halt.now()
        self._thread.join(_PATIENCE)

    def _fill(self) -> None:
        try:
            with closing(self._events) as events:
                for event in events:
                    if not self._put(event):
                        return
        except Exception as error:
            # Whatever it is, it is raised to whoever takes the events.
            self._failure = error
        self._put(None)

    def _put(self, event: Event | None) -> bool:
        while not self._halt:
            try:
                self._queue.put(event, timeout=_TICK)
            except Full:
                continue
            return True
        return False
