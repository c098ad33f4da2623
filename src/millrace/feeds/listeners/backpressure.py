"""What a feed has taken from others and the sink does not have yet: the bytes that it holds, the verdict awaited."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from millrace.errors import FeedFailed, MillraceError

Verdict = asyncio.Future[MillraceError | None]
"""What the sink says of records: None when they are safe."""


class Receipt:
    """Brings the sink's verdict to whoever waits for it, from whichever thread has it.

    A receipt that is let go without a verdict (the sink raised instead) is one that can never come: who waits is told
    so rather than left waiting.
    """

    def __init__(self, verdict: Verdict) -> None:
        self._verdict: Verdict | None = verdict

    def __call__(self, error: MillraceError | None) -> None:
        verdict, self._verdict = self._verdict, None
        if verdict is not None:
            # A loop that is closed has nobody left to answer.
            with suppress(RuntimeError):
                verdict.get_loop().call_soon_threadsafe(settle, verdict, error)

    def __del__(self) -> None:
        if self._verdict is not None:
            self(FeedFailed("the records were not delivered", why="the run ended while they were being sent"))


def settle(verdict: Verdict, error: MillraceError | None) -> None:
    """Say what became of records, if nobody has."""
    if not verdict.done():
        verdict.set_result(error)


class ByteBudget:
    """The bytes that may be held at once; who wants more than is left waits, and is served in turn."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, amount: int) -> None:
        """Have this much, until it is given back."""
        async with self._turn:
            while self._left < amount:
                self._freed.clear()
                await self._freed.wait()
            self._left -= amount

    def give(self, amount: int) -> None:
        """Leave it to the others."""
        self._left += amount
        self._freed.set()
