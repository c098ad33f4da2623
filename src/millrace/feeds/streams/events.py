"""An event on its way from an origin to a batch: its record, its place in the origin, its time."""

from __future__ import annotations

import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from millrace.clients.records import Record


class Event(NamedTuple):
    """What was read: a record to send, and how far into the origin it reaches.

    Without a record there is nothing to send and yet the position is past it; without a position it says
    nothing of how far the origin was read.
    """

    record: Record | None = None
    position: str | None = None


CONNECTED = Event()
"""Says that a connection stands, though nothing may come through it for a while."""


class Recent:
    """The last few thousand ids, to leave out what is sent again because a stream was rewound."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def repeats(self, key: bytes | None) -> bool:
        """Whether this id was here before; from now on it was."""
        if key is None:
            return False
        if key in self._ids:
            return True
        self._ids[key] = None
        if len(self._ids) > self._size:
            self._ids.popitem(last=False)
        return False


def fields(data: bytes) -> dict[str, Any]:
    """The fields of an event; none if it is not a JSON object, which is for the reader of the topic to judge."""
    try:
        read = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def key_of(identity: object) -> bytes | None:
    """An event's id as a record's key."""
    return str(identity).encode() if isinstance(identity, str | int) else None


def time_of(text: object) -> int | None:
    """The milliseconds of an ISO 8601 time, if it is one and not in the future."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return not_future((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def not_future(millis: float) -> int | None:
    """A timestamp that Kafka can take: one from the future would keep its segment from ever being deleted."""
    return int(millis) if 0 <= millis <= time.time() * 1000 else None
