"""Everybody who looks, and the tick that serves them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from millrace.dashboard.demand import Demand
from millrace.dashboard.encoding import Pieces, message, now
from millrace.dashboard.reader import MAX_NOTES, Reader
from millrace.telemetry.channels import Channels

_log = logging.getLogger(__name__)

TICK = 0.1
BEAT = 2.0
MOST_CHANNELS = 200
_KNOWN = ("state", "events", "panels", "topics", "dead", "redrive")
_PREFIXES = ("history:", "lag:", "panel:", "tail:")


class Hub:
    """Lives in the server's event loop. Each tick makes each reader's frame, out of pieces that are shared."""

    def __init__(self, channels: Channels, demand: Demand) -> None:
        self.channels = channels
        self._demand = demand
        self._readers: set[Reader] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._changed = False
        """Whether other channels are wanted than at the last tick."""

    def hello(self) -> str:
        """What every reader is told first."""
        tick, beat = round(TICK * 1000), round(BEAT * 1000)
        return message("hello", epoch=self.channels.epoch, time=now(), tick=tick, heartbeat=beat)

    def start(self) -> None:
        """Begin to tick."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def stop(self) -> None:
        """Stop ticking, and end what was done for readers."""
        if self._ticking:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
        await asyncio.to_thread(self._demand.close)

    @contextmanager
    def reading(self, *, acknowledges: bool = True) -> Iterator[Reader]:
        """One more reader, for as long as it is there."""
        reader = Reader(acknowledges=acknowledges)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._changed = True

    def subscribe(self, reader: Reader, names: list[str], have: Mapping[str, int], epoch: str | None) -> None:
        """What a reader wants; names that cannot be are told to it."""
        known = [name for name in dict.fromkeys(names) if name in _KNOWN or name.startswith(_PREFIXES)]
        for name in [name for name in names if name not in _KNOWN and not name.startswith(_PREFIXES)][:MAX_NOTES]:
            reader.note(name[:200], "there is no such channel")
        if len(known) > MOST_CHANNELS:
            reader.note(None, f"only {MOST_CHANNELS} channels can be subscribed at once")
        reader.subscribe(known[:MOST_CHANNELS], have if epoch == self.channels.epoch else {})
        self._changed = True

    def look(self) -> None:
        """One tick."""
        pieces, troubles = Pieces(self.channels), self.channels.troubles()
        for reader in self._readers:
            reader.look(pieces, troubles)

    def _want(self) -> None:
        """Say which channels are wanted: once a tick, however often readers change their minds."""
        if self._changed:
            self._changed = False
            self._demand.want({name for reader in self._readers for name in reader.wanted})

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                self._want()
                self.look()
                self._demand.tidy()
            except Exception:  # one frame that cannot be made must not end all others
                _log.exception("a tick of the page failed")
