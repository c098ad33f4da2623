"""How bytes from the network become lines and server-sent events, wherever the network happens to cut them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millrace.errors import FeedFailed
from millrace.units import format_bytes

LONGEST = 16_000_000
"""Bytes that one line, or the data of one event, may have; more of them is no event but a fault."""

_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event of a `text/event-stream`; its data are kept as the bytes that came."""

    type: str
    data: bytes
    id: str


class EventParser:
    """Server-sent events out of chunks, by the rules of the HTML standard ("event stream interpretation")."""

    def __init__(self, longest: int = LONGEST) -> None:
        self.retry: float | None = None
        """Seconds that the server asks for between two connections."""
        self._lines = _StreamLines(longest)
        self._longest = longest
        self._type = b""
        self._data: list[bytes] = []
        self._size = 0
        self._id = b""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that this chunk completes."""
        completed = (self._line(line) for line in self._lines.feed(chunk))
        return [event for event in completed if event is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        # A line that starts with a colon is a comment: its name is empty, and matches no field.
        self._field(name, value.removeprefix(b" "))
        return None

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._size += len(value)
            _bounded(self._size, self._longest)
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value) / 1000

    def _dispatch(self) -> ServerSentEvent | None:
        data, kind = b"\n".join(self._data), self._type or b"message"
        empty = not self._data
        self._data, self._size, self._type = [], 0, b""
        if empty:
            return None
        return ServerSentEvent(kind.decode(errors="replace"), data, self._id.decode(errors="replace"))


class _StreamLines:
    """Lines that end in LF, CR or CRLF, as an event stream's do."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pending = bytearray()
        self._after_cr = False
        self._start: bytes | None = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        chunk = self._without_bom(chunk)
        if not chunk:
            return
        if self._after_cr:
            # The CR ended its line when it came; this LF is the other half of it.
            chunk = chunk.removeprefix(b"\n")
        for line in chunk.splitlines(keepends=True):
            self._pending += line
            _bounded(len(self._pending), self._longest)
            if line.endswith((b"\n", b"\r")):
                yield bytes(self._pending).rstrip(b"\r\n")
                self._pending.clear()
        self._after_cr = chunk.endswith(b"\r")

    def _without_bom(self, chunk: bytes) -> bytes:
        if self._start is None:
            return chunk
        self._start += chunk
        if len(self._start) < len(_BOM) and _BOM.startswith(self._start):
            return b""
        whole, self._start = self._start.removeprefix(_BOM), None
        return whole


def json_lines(chunks: Iterable[bytes], longest: int = LONGEST) -> Iterator[bytes]:
    """The lines of newline-delimited JSON, without their ends; empty ones, sent to keep a line open, are left out.

    What follows the last newline is no whole line and is dropped: the connection broke in the middle of it.
    """
    pending = bytearray()
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pending += first
        _bounded(len(pending), longest)
        for other in others:
            if line := bytes(pending).strip():
                yield line
            pending[:] = other


def _bounded(size: int, longest: int) -> None:
    if size > longest:
        raise FeedFailed(
            f"the origin sent an event of more than {format_bytes(longest)}",
            why="an event without an end would fill the memory",
        )
