"""Track the position in a stream up to which the sink has every record.

- `PositionTracker` loads the position of the last run, and saves it in the order of reading.
- `Event` is a record with its position; `RecentIds` filters out repeated events.
- `event_fields`, `key_of` and `timestamp_of` read an event's JSON, its key and its time.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from millrace.clients.kafka.record import Done, Record
from millrace.errors import FileUnusable, MillraceError, RecordRefused
from millrace.feeds.base.api import Run


@dataclass
class _Step:
    position: str | None
    safe: bool = False


class PositionTracker:
    """Saves positions in the order in which they were read, and never past an unconfirmed record.

    Batches may be confirmed in any order and from any thread. A position covers everything before it, so it is
    saved only when all earlier batches are confirmed as well; after a failed batch nothing more is saved.
    """

    def __init__(self, run: Run, origin: str) -> None:
        self._run = run
        self._origin = origin
        self._steps: deque[_Step] = deque()
        self._lock = threading.Lock()
        self._unsaved: OSError | None = None
        self._failed: MillraceError | None = None

    def load(self) -> str | None:
        """Return the saved position, or None if there is none or it belongs to another origin."""
        text = self._run.cursor.load()
        if text is None:
            return None
        try:
            saved = json.loads(text)
            origin, position = str(saved["origin"]), str(saved["position"])
        except (ValueError, KeyError, TypeError):
            raise FileUnusable(
                "the saved position of this feed cannot be read",
                why=f"it holds {text[:80]!r}",
                hint="remove it to start from now",
            ) from None
        if origin != self._origin:
            self._run.notify(f"the saved position is one in {origin}: starting from now in {self._origin}")
            return None
        return position

    def track(self, position: str | None) -> Done:
        """Return the callback that confirms (or fails) the batch that ends at this position."""
        if self._failed is not None:
            raise self._failed
        if self._unsaved is not None:
            raise FileUnusable("the position of this feed cannot be saved", why=str(self._unsaved))
        step = _Step(position)
        with self._lock:
            self._steps.append(step)

        def done(error: MillraceError | None) -> None:
            if isinstance(error, RecordRefused):
                # No retry would be accepted: report and skip it, else the feed would stop for good.
                self._run.notify(f"an event was left out: {error.why or error.message}")
                error = None
            if error is None:
                self._confirm(step)
            else:
                self._failed = self._failed or error
                self._run.stop.set()

        return done

    def _confirm(self, step: _Step) -> None:
        with self._lock:
            step.safe = True
            reached = None
            while self._steps and self._steps[0].safe:
                reached = self._steps.popleft().position or reached
            if reached is None:
                return
            try:
                self._run.cursor.save(json.dumps({"origin": self._origin, "position": reached}))
            except OSError as error:
                self._unsaved = error  # this is the sink's thread; the feed's thread raises it


class Event(NamedTuple):
    """A record to send, and the position after it.

    An event without a record advances the position only; one without a position does not change it.
    """

    record: Record | None = None
    position: str | None = None


CONNECTED = Event()
"""Reports an open connection before its first event."""


class RecentIds:
    """The newest event ids, to skip events that a rewound stream sends again."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def repeats(self, key: bytes | None) -> bool:
        """Return whether this id was seen before, and remember it."""
        if key is None:
            return False
        if key in self._ids:
            return True
        self._ids[key] = None
        if len(self._ids) > self._size:
            self._ids.popitem(last=False)
        return False


def event_fields(data: bytes) -> dict[str, Any]:
    """Return the fields of an event; empty if it is no JSON object, which the topic's readers have to handle."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def key_of(identity: object) -> bytes | None:
    """Return an event's id as a record key."""
    return str(identity).encode() if isinstance(identity, str | int) else None


def timestamp_of(text: Any) -> int | None:
    """Return the milliseconds of an ISO 8601 time; None if it is none, or in the future."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return valid_timestamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def valid_timestamp(millis: float) -> int | None:
    """Return a timestamp unless it is in the future: Kafka would never delete its segment."""
    return int(millis) if 0 <= millis <= time.time() * 1000 else None
