"""What channels say, as JSON, each piece encoded once a tick however many look."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import orjson

from millrace.masking import hidden, hidden_bytes
from millrace.telemetry.channels import Channels


class Piece(NamedTuple):
    """What one channel has to say to those who have a certain version of it."""

    text: bytes
    version: int
    forgotten: int
    """Rows between that version and these that are no longer there."""


class Pieces:
    """The pieces of one tick."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._made: dict[tuple[str, int | None], Piece | None] = {}

    def get(self, name: str, version: int | None) -> Piece | None:
        """What a reader of that version misses; None when it misses nothing."""
        key = (name, version)
        if key not in self._made:
            self._made[key] = self._encoded(name, version)
        return self._made[key]

    def _encoded(self, name: str, version: int | None) -> Piece | None:
        channel = self._channels.get(name)
        delta = channel.since(version) if channel else None
        if delta is None:
            return None
        forgotten = 0
        if delta.kind == "snapshot" and version is not None:
            kept = max((len(values) for values in delta.data["columns"].values()), default=0)
            forgotten = max(0, delta.version - version - kept)
        text = orjson.dumps({"kind": delta.kind, "version": delta.version, "data": delta.data})
        return Piece(hidden_bytes(text), delta.version, forgotten)


def frame(seq: int, pieces: dict[str, bytes], coalesced: int, dropped: int) -> str:
    """One message out of pieces that are encoded already."""
    inside = b",".join(orjson.dumps(name) + b":" + text for name, text in pieces.items())
    head = b'{"type":"frame","seq":%d,"time":%d,"channels":{' % (seq, now())
    return (head + inside + b'},"coalesced":%d,"dropped":%d}' % (coalesced, dropped)).decode()


def message(kind: str, **more: Any) -> str:
    """Any other message."""
    return hidden(orjson.dumps({"type": kind, **more}).decode())


def now() -> int:
    """Milliseconds since 1970."""
    return round(time.time() * 1000)
