"""One who looks: what it wants, what it has, and the one frame that may be on its way to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping

from millrace.dashboard.encoding import Pieces, frame, message

MAX_NOTES = 50


class Reader:
    """Lives in the server's event loop. Nothing is queued for it: a frame is made when the last one has arrived."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        self.wanted: dict[str, int | None] = {}
        """The channels, each with the version that was sent."""
        self._acknowledges = acknowledges
        self._seq = 0
        self._awaited: int | None = None
        self._frame: str | None = None
        self._coalesced = 0
        self._dropped = 0
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._troubles: dict[str, str] = {}
        self._something = asyncio.Event()

    def subscribe(self, names: Iterable[str], have: Mapping[str, int]) -> None:
        """Want these channels and no others; `have` says which versions are there already.

        A channel that stays wanted goes on from what was sent last: that may be newer than what has arrived.
        """
        before = self.wanted
        self.wanted = {name: before[name] if name in before else have.get(name) for name in names}
        self._troubles = {name: told for name, told in self._troubles.items() if name in self.wanted}

    def acknowledge(self, seq: int) -> None:
        """A frame has been worked on."""
        if self._awaited is not None and seq >= self._awaited:
            self._awaited = None

    def note(self, channel: str | None, text: str | None) -> None:
        """Say that something is wrong, or (None) that it is over."""
        self._notes.append(message("error", channel=channel, message=text))
        self._something.set()

    def look(self, pieces: Pieces, troubles: Mapping[str, str]) -> None:
        """Take what is new, unless the last frame is still on its way."""
        self._tell(troubles)
        if self._frame is not None or self._awaited is not None:
            self._coalesced += any(pieces.get(*one) is not None for one in self.wanted.items())
            return
        found = {name: piece for name, version in self.wanted.items() if (piece := pieces.get(name, version))}
        if not found:
            return
        self._seq += 1
        self._dropped += sum(piece.forgotten for piece in found.values())
        self.wanted |= {name: piece.version for name, piece in found.items()}
        self._frame = frame(self._seq, {name: one.text for name, one in found.items()}, self._coalesced, self._dropped)
        self._coalesced = self._dropped = 0
        self._awaited = self._seq if self._acknowledges else None
        self._something.set()

    async def next(self) -> str:
        """The next message for it."""
        await self._something.wait()
        if self._notes:
            told = self._notes.popleft()
        else:
            told, self._frame = self._frame or "", None
        if not self._notes and self._frame is None:
            self._something.clear()
        return told

    def _tell(self, troubles: Mapping[str, str]) -> None:
        for name in self.wanted:
            told = troubles.get(name)
            if self._troubles.get(name) == told:
                continue
            if told is None:
                del self._troubles[name]
            else:
                self._troubles[name] = told
            self.note(name, told)
