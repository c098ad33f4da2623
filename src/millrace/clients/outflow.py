"""Statements on their way to Cassandra: so many at once, again when it is away, all of them safe at the end."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from millrace.clients.cassandra import Cassandra
from millrace.clients.refusals import explained, passes
from millrace.errors import CassandraUnreachable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Outflow:
    """Sends idempotent statements; `send` waits while too many are under way, `finish` until all are safe.

    What fails for a reason that may pass is sent again, with growing pauses, until `patience` seconds have gone by
    in which nothing at all was taken; any other failure is raised by the next call.
    """

    def __init__(self, door: Cassandra, *, most: int, patience: float, doing: str) -> None:
        self._door = door
        self._most = most
        self._patience = patience
        self._doing = doing
        self._session = self._connected()
        self._changed = threading.Condition()
        self._under_way = 0
        self._again: deque[Any] = deque()
        self._failure: BaseException | None = None
        self._away: float | None = None
        """Since when nothing was taken; None while all is well."""
        self._pause = _FIRST_PAUSE

    @property
    def session(self) -> Any:
        """The driver's session, to prepare statements with."""
        return self._session

    def prepared(self, statement: str) -> Any:
        """A prepared statement; waits for a Cassandra that is away."""
        return self._insist(lambda: self._session.prepare(statement))

    def send(self, statement: Any) -> None:
        """Begin to send one more; raises what an earlier one failed with."""
        with self._changed:
            self._await_at_most(self._most - 1)
            self._under_way += 1
        self._start(statement)

    def finish(self) -> None:
        """Wait until every statement is safe."""
        with self._changed:
            self._await_at_most(0)

    def _await_at_most(self, most: int) -> None:
        """Wait, with the lock held, until no more than so many are under way and none has to be sent again."""
        while True:
            if self._failure is not None:
                raise explained(self._failure, self._door.address, self._doing) from self._failure
            if self._again:
                self._send_again()
            elif self._under_way <= most:
                return
            else:
                self._changed.wait()

    def _send_again(self) -> None:
        due = list(self._again)
        self._again.clear()
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._under_way += len(due)
        self._changed.release()
        try:
            time.sleep(pause)
            for statement in due:
                self._start(statement)
        finally:
            self._changed.acquire()

    def _start(self, statement: Any) -> None:
        future = self._session.execute_async(statement)
        future.add_callbacks(self._taken, self._refused, errback_args=(statement,))

    def _taken(self, _: object) -> None:
        with self._changed:
            self._under_way -= 1
            self._away, self._pause = None, _FIRST_PAUSE
            self._changed.notify()

    def _refused(self, error: BaseException, statement: Any) -> None:
        with self._changed:
            self._under_way -= 1
            now = time.monotonic()
            self._away = self._away or now
            if passes(error) and now - self._away < self._patience:
                self._again.append(statement)
            else:
                self._failure = self._failure or error
            self._changed.notify()

    def _connected(self) -> Any:
        return self._insist(self._door.session)

    def _insist(self, ask: Any) -> Any:
        """What a call gives, tried again while nobody answers."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                with self._door.speaking(self._doing):
                    return ask()
            except CassandraUnreachable:
                if time.monotonic() - began > self._patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
