"""Requests whose records the sink has not confirmed yet.

- `Receipt` brings the sink's result from its thread to the event loop.
- `ByteBudget` bounds the bytes of all requests together.
- `queued_batches` hands their batches to the feed; `refuse_queued` ends those that it has not taken.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

from millrace.errors import FeedFailed, MillraceError
from millrace.feeds.base.api import Batch

_POLL_INTERVAL_S = 0.1

Verdict = asyncio.Future[MillraceError | None]
"""The sink's result for a batch: None when it has all records."""


def queued_batches(queue: SimpleQueue[Batch], stop: threading.Event) -> Iterator[Batch]:
    """Yield batches as they arrive, until the run stops."""

    def take() -> Batch | None:
        while not stop.is_set():
            with suppress(Empty):
                return queue.get(timeout=_POLL_INTERVAL_S)
        return None

    # Not a loop with a variable: it would keep the receipt alive after the sink has dropped it.
    yield from iter(take, None)


def refuse_queued(queue: SimpleQueue[Batch]) -> None:
    """Report to the requests whose batches the feed has not taken that it is stopping."""
    while not queue.empty():
        _, done = queue.get_nowait()
        if done is not None:
            done(FeedFailed("the feed is stopping"))


class Receipt:
    """Brings the sink's result to the request that waits for it, from any thread.

    A receipt that is deleted without a result (the sink raised an error) fails the request.
    """

    def __init__(self, verdict: Verdict) -> None:
        self._verdict: Verdict | None = verdict

    def __call__(self, error: MillraceError | None) -> None:
        verdict, self._verdict = self._verdict, None
        if verdict is not None:
            with suppress(RuntimeError):  # the loop is closed: no request waits
                verdict.get_loop().call_soon_threadsafe(settle, verdict, error)

    def __del__(self) -> None:
        if self._verdict is not None:
            self(FeedFailed("the records were not delivered", why="the run ended while they were being sent"))


def settle(verdict: Verdict, error: MillraceError | None) -> None:
    """Set the result of a batch unless it has one."""
    if not verdict.done():
        verdict.set_result(error)


class ByteBudget:
    """A number of bytes that requests share; a request that needs more than is left waits for its turn."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, amount: int) -> None:
        """Wait until this many bytes are free, and reserve them."""
        async with self._turn:
            while self._left < amount:
                self._freed.clear()
                await self._freed.wait()
            self._left -= amount

    def give(self, amount: int) -> None:
        self._left += amount
        self._freed.set()
